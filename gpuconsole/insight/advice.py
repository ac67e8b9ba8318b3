"""A plain sentence, the arithmetic and the next step for each reason why a workload waits in its queue."""

from collections.abc import Iterator, Sequence

from msgspec import Struct

from gpuconsole.insight.capacity import circle
from gpuconsole.insight.device_demand import amount_of
from gpuconsole.insight.reasons import Code, Reason
from gpuconsole.insight.shortage import Remedy, Shortage, show
from gpuconsole.insight.tables import counted
from gpuconsole.model.clock import format_span
from gpuconsole.model.quantity import format_quantity
from gpuconsole.model.queues import ClusterQueue, StopPolicy
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.model.workloads import Workload
from gpuconsole.scheduling.kueue.readiness import readiness


class Advice(Struct, frozen=True):
    """What to say; `remedies` are those that need no arithmetic (see `shortage.remedies` for the others)."""

    headline: str
    lines: tuple[str, ...] = ()
    remedies: tuple[Remedy, ...] = ()


def advise(
    snapshot: Snapshot,
    workload: Workload,
    queue: ClusterQueue | None,
    code: Code,
    reasons: Sequence[Reason],
    gaps: Sequence[Shortage],
) -> Advice:
    """Put a code into words for one waiting workload."""
    name = queue.name if queue is not None else "its ClusterQueue"
    match code:
        case Code.QUOTA:
            return Advice(_quota_headline(workload, queue, reasons, gaps), tuple(_lines(reasons, gaps)))
        case Code.EXCEEDS_MAX:
            return _exceeds(workload, name, reasons, gaps)
        case Code.FLAVOR_MISMATCH:
            return _mismatch(name, reasons, gaps)
        case Code.TOPOLOGY:
            headline = "There is quota, but no place in the topology that is close enough."
            return Advice(headline, tuple(_lines(reasons, gaps)))
        case Code.WAITING_FOR_VICTIMS:
            return _victims(snapshot, workload, reasons)
        case Code.CONTENTION:
            return Advice("Another workload was quicker in the same cycle; it is tried again at once.")
        case Code.NAMESPACE:
            return _namespace(workload, queue)
        case Code.QUEUE_STOPPED | Code.QUEUE_INACTIVE | Code.QUEUE_MISSING:
            return _queue(snapshot, workload, code)
        case Code.DEACTIVATED:
            return _deactivated(workload)
        case Code.BACKOFF:
            return _backoff(snapshot, workload)
        case Code.EVICTED:
            return _evicted(snapshot, reasons, name)
        case Code.PARKED:
            headline = "It is parked with its look-alikes, which did not fit, until something in its tree changes."
            return Advice(headline)
        case Code.QUEUED:
            return Advice(f"It waits for its turn in {name} and was not tried yet.")
        case Code.GATED:
            return Advice("Its admission is held by a gate.", (), (Remedy(True, "remove the gate that is named"),))
        case Code.PODS_READY:
            return Advice("Kueue admits nothing more until all admitted workloads are ready.")
        case Code.INVALID:
            return Advice("What it asks for is not allowed: waiting does not help.", (), (_RESUBMIT,))
        case _:
            return Advice(f"It waits in {name}; Kueue's own words say why.")


_RESUBMIT = Remedy(True, "correct its resources and submit it again")


def _deactivated(workload: Workload) -> Advice:
    """Who deactivated it says so when it evicts; somebody who sets spec.active by hand says nothing."""
    said = workload.condition("Evicted")
    cause = said.message if said is not None and said.status and said.reason.startswith("Deactivated") else ""
    told = cause.partition(" due to ")[2]
    headline = f"It was stopped (spec.active is false): {told}." if told else "It was stopped (spec.active is false)."
    return Advice(headline, (), (Remedy(True, "resume it"),))


def _quota_headline(
    workload: Workload, queue: ClusterQueue | None, reasons: Sequence[Reason], gaps: Sequence[Shortage]
) -> str:
    if queue is None or not gaps:
        first = next(reason for reason in reasons if reason.code is Code.QUOTA)
        return f"{workload.name} is {show(first.resource, first.short)} short in {first.flavor}."
    gap = gaps[0]
    # Where several flavors are short, the numbers are those of the nearest; the lines below name each.
    of = f" of {gap.flavor}" if {one.flavor for one in gaps} == {gap.flavor} else ""
    free, needs = f"{show(gap.resource, gap.available)}{of}", _needs(workload, gap)
    if not gap.short:
        return f"There is room by now: {free} free, and {workload.name} needs {needs}."
    if gap.limited_by == "limit":
        return f"{queue.name} may take {free} more within its borrowing limit, and {workload.name} needs {needs}."
    if gap.limited_by == "cohort" and gap.own_left:
        lent = f"{gap.borrowable} of them" if gap.borrowable else "nothing"
        return (
            f"{queue.name} may take {free}, {lent} from the cohort {queue.cohort}, and {workload.name} needs {needs}."
        )
    who = f"The cohort {queue.cohort}" if gap.limited_by == "cohort" else queue.name
    return f"{who} has {free} free, and {workload.name} needs {needs}."


def _needs(workload: Workload, gap: Shortage) -> str:
    """What is needed, and of which pod set, if that is not all."""
    needs = show(gap.resource, gap.needed)
    if not gap.up_to:
        return needs
    whole = sum(pod_set.requests.get(gap.resource, 0) for pod_set in workload.pod_sets)
    return f"{needs} up to its pod set {gap.up_to}, {show(gap.resource, whole)} in all"


def _lines(reasons: Sequence[Reason], gaps: Sequence[Shortage]) -> Iterator[str]:
    """One line for each flavor and resource."""
    yield from (_gap_line(gap) for gap in gaps)
    known = {(gap.flavor, gap.resource) for gap in gaps}
    for reason in reasons:
        if reason.code is Code.QUOTA and (reason.flavor, reason.resource) not in known:
            yield f"{reason.flavor}  {show(reason.resource, reason.short)} short"
        elif reason.code is Code.EXCEEDS_MAX:
            wants, most = reason.assumed + reason.request, show(reason.resource, reason.capacity)
            yield f"{reason.flavor}  needs {show(reason.resource, wants)} · could never have more than {most}"
        elif reason.code in (Code.FLAVOR_MISMATCH, Code.TOPOLOGY):
            yield f"{reason.flavor or reason.resource or reason.name}  {reason.text}"


def _gap_line(gap: Shortage) -> str:
    def plain(amount: int) -> str:
        return format_quantity(gap.resource, amount)

    limit = "no limit" if gap.borrowing_limit is None else f"limit {plain(gap.borrowing_limit)}"
    borrowable = f" · borrowable {plain(gap.borrowable)} ({limit}, used {plain(gap.borrowed)})"
    parts = (
        f"{gap.flavor}  needs {show(gap.resource, gap.needed)}",
        f" · own quota left {plain(gap.own_left)}",
        borrowable if gap.limited_by != "queue" else "",
        f" · {plain(gap.short)} short" if gap.short else " · fits by now",
    )
    return "".join(parts)


def _exceeds(workload: Workload, name: str, reasons: Sequence[Reason], gaps: Sequence[Shortage]) -> Advice:
    most = max((r for r in reasons if r.code is Code.EXCEEDS_MAX), key=lambda reason: reason.capacity)
    wants, cap = most.assumed + most.request, most.capacity
    headline = (
        f"{workload.name} asks for {show(most.resource, wants)}, and {name} could never have more than "
        f"{show(most.resource, cap)} of {most.flavor}."
    )
    fixes = [Remedy(False, "waiting: it never fits")]
    if cap:
        fixes.append(Remedy(True, f"ask for at most {show(most.resource, cap)}"))
    fixes.append(Remedy(True, f"raise the quota or the borrowing limit by {show(most.resource, wants - cap)}"))
    return Advice(headline, tuple(_lines(reasons, gaps)), tuple(fixes))


def _mismatch(name: str, reasons: Sequence[Reason], gaps: Sequence[Shortage]) -> Advice:
    fixes = []
    for reason in reasons:
        if reason.text.startswith("untolerated taint"):
            fixes.append(Remedy(True, f"add a toleration for {reason.name} (flavor {reason.flavor})"))
        elif "node affinity" in reason.text:
            fixes.append(Remedy(True, f"a node selector or affinity that {reason.flavor} meets"))
        elif reason.resource and not reason.flavor:
            fixes.append(Remedy(True, f"give {name} a quota of {reason.resource}, or do not ask for it"))
    return Advice(f"No flavor of {name} suits its pods.", tuple(_lines(reasons, gaps)), tuple(dict.fromkeys(fixes)))


def _victims(snapshot: Snapshot, workload: Workload, reasons: Sequence[Reason]) -> Advice:
    marker = f"(UID: {workload.uid}," if workload.uid else "\0"
    leaving = []
    for other in snapshot.workloads.all():
        preempted = other.condition("Preempted")
        if preempted is not None and preempted.status and other.reserved and marker in preempted.message:
            leaving.append(other)
    count = len(leaving) or next((reason.count for reason in reasons if reason.count), 0)
    names = ", ".join(other.key for other in leaving[:4])
    who = f": {names}" if names else ""
    headline = f"Room is being made: {count} victim{'s have' if count != 1 else ' has'} to end first{who}."
    return Advice(headline, tuple(f"{other.key} leaves {counted(*amount_of(snapshot, other))}" for other in leaving))


def _namespace(workload: Workload, queue: ClusterQueue | None) -> Advice:
    name = queue.name if queue is not None else "its ClusterQueue"
    if queue is not None and queue.namespace_selector is None:
        headline = f"{name} admits nobody: it has no namespaceSelector."
        return Advice(headline, (), (Remedy(True, f"set namespaceSelector: {{}} on {name} to open it to all"),))
    headline = f"{name} does not accept workloads of namespace {workload.namespace}."
    fix = Remedy(True, f"label the namespace so that the namespaceSelector of {name} matches it")
    return Advice(headline, (), (fix,))


def _queue(snapshot: Snapshot, workload: Workload, code: Code) -> Advice:
    door = snapshot.local_queues.get(workload.local_queue)
    if door is None:
        what = f"LocalQueue {workload.queue} does not exist in namespace {workload.namespace}"
        return Advice(f"{what}.", (), (Remedy(True, "create it, or move the workload to another queue"),))
    queue = snapshot.cluster_queues.get(door.cluster_queue)
    if queue is None:
        fix = Remedy(True, "create it, or move the workload to another queue")
        return Advice(f"ClusterQueue {door.cluster_queue} does not exist.", (), (fix,))
    if code is Code.QUEUE_STOPPED:
        name = door.key if door.stop_policy is not StopPolicy.NONE else queue.name
        policy = door.stop_policy if door.stop_policy is not StopPolicy.NONE else queue.stop_policy
        return Advice(f"{name} is stopped ({policy}).", (), (Remedy(True, f"resume {name}"),))
    ready = readiness(queue, snapshot, seen=snapshot.seen)
    if ready.active and (why := circle(snapshot, queue.cohort)):
        fix = Remedy(True, "give one of the cohorts in the circle another parent, or none")
        return Advice(f"{queue.name} admits nobody: {why}. Waiting does not help.", (), (fix,))
    if ready.active:
        return Advice(f"{queue.name} was inactive; it can admit again.")
    return Advice(f"{queue.name} is inactive ({ready.reason}): {ready.message}", (), (_ACTIVATE[ready.reason],))


_CREATE = Remedy(True, "create what is missing, or take it out of the ClusterQueue")
_FEWER_CHECKS = Remedy(True, "take the admission checks that exclude one another out of the ClusterQueue")
_ACTIVATE = {
    "FlavorNotFound": _CREATE,
    "AdmissionCheckNotFound": _CREATE,
    "TopologyNotFound": _CREATE,
    "AdmissionCheckInactive": Remedy(True, "see why the controller of the admission check holds it inactive"),
    "MultipleMultiKueueAdmissionChecks": _FEWER_CHECKS,
    "MultiKueueAdmissionCheckAppliedPerFlavor": Remedy(True, "name no flavors for the MultiKueue check"),
    "MultiKueueWithProvisioningRequest": _FEWER_CHECKS,
    "Terminating": Remedy(True, "move the workload to another queue"),
}
"""What makes a ClusterQueue active again, by the reason of its condition."""


def _evicted(snapshot: Snapshot, reasons: Sequence[Reason], name: str) -> Advice:
    uid = reasons[0].name
    by = next((other.key for other in snapshot.workloads.all() if uid and other.uid == uid), "")
    why = f"was preempted for {by}" if by else "was preempted" if uid else "was evicted"
    return Advice(f"It {why}, and waits for its turn in {name} again.")


def _backoff(snapshot: Snapshot, workload: Workload) -> Advice:
    at = workload.requeue.at or snapshot.time
    left = format_span(max(0, at - snapshot.time))
    often = workload.evictions or workload.requeue.count
    times = "once" if often == 1 else f"{often} times"
    return Advice(f"It was evicted {times} and is tried again in {left}.")

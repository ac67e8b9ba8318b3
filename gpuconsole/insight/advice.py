"""Headline, arithmetic and next step for each reason why a workload is pending."""

from collections.abc import Iterator, Sequence

from msgspec import Struct

from gpuconsole.insight.capacity import cohort_cycle
from gpuconsole.insight.device_demand import amount_of
from gpuconsole.insight.reasons import ParsedReason, PendingReason
from gpuconsole.insight.shortage import FlavorShortage, Remedy, show
from gpuconsole.insight.tables import counted
from gpuconsole.model.clock import format_span
from gpuconsole.model.queues import ClusterQueue, StopPolicy
from gpuconsole.model.resources import format_quantity
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.model.workloads import Workload
from gpuconsole.scheduling.kueue.cluster_queue_status import active_condition


class Advice(Struct, frozen=True):
    """Text of an explanation; `remedies` are those that need no arithmetic (see `shortage.remedies` for the others)."""

    headline: str
    lines: tuple[str, ...] = ()
    remedies: tuple[Remedy, ...] = ()


def advise(
    snapshot: Snapshot,
    workload: Workload,
    queue: ClusterQueue | None,
    code: PendingReason,
    reasons: Sequence[ParsedReason],
    gaps: Sequence[FlavorShortage],
) -> Advice:
    """Explain why a workload is pending for the reason `code`, and what would admit it."""
    name = queue.name if queue is not None else "its ClusterQueue"
    match code:
        case PendingReason.QUOTA:
            return Advice(_quota_headline(workload, queue, reasons, gaps), tuple(_lines(reasons, gaps)))
        case PendingReason.EXCEEDS_MAX:
            return _exceeds(workload, name, reasons, gaps)
        case PendingReason.FLAVOR_MISMATCH:
            return _mismatch(name, reasons, gaps)
        case PendingReason.TOPOLOGY:
            headline = "There is quota, but no topology domain fits its pods."
            return Advice(headline, tuple(_lines(reasons, gaps)))
        case PendingReason.WAITING_FOR_VICTIMS:
            return _victims(snapshot, workload, reasons)
        case PendingReason.CONTENTION:
            return Advice("Another workload was processed earlier in the same scheduling cycle; Kueue retries at once.")
        case PendingReason.NAMESPACE:
            return _namespace(workload, queue)
        case PendingReason.QUEUE_STOPPED | PendingReason.QUEUE_INACTIVE | PendingReason.QUEUE_MISSING:
            return _queue(snapshot, workload, code)
        case PendingReason.DEACTIVATED:
            return _deactivated(workload)
        case PendingReason.BACKOFF:
            return _backoff(snapshot, workload)
        case PendingReason.EVICTED:
            return _evicted(snapshot, reasons, name)
        case PendingReason.INADMISSIBLE:
            headline = "Inadmissible, like equivalent workloads, until something in its cohort tree changes."
            return Advice(headline)
        case PendingReason.QUEUED:
            return Advice(f"Queued in {name}; Kueue has not tried to admit it yet.")
        case PendingReason.GATED:
            return Advice("Its admission is gated.", (), (Remedy(True, "remove the gate that Kueue's message names"),))
        case PendingReason.PODS_READY:
            return Advice("Kueue admits no other workload until all admitted workloads are ready (blockAdmission).")
        case PendingReason.INVALID:
            return Advice("Its resource requests are invalid: waiting does not help.", (), (_RESUBMIT,))
        case _:
            return Advice(f"Pending in {name}; see Kueue's message for the reason.")


_RESUBMIT = Remedy(True, "correct its resource requests and submit it again")


def _deactivated(workload: Workload) -> Advice:
    """Explain a deactivated workload. Only Kueue gives a cause (condition Evicted), not a user who sets spec.active."""
    said = workload.condition("Evicted")
    cause = said.message if said is not None and said.status and said.reason.startswith("Deactivated") else ""
    due_to = cause.partition(" due to ")[2]
    headline = f"Deactivated (spec.active is false): {due_to}." if due_to else "Deactivated (spec.active is false)."
    return Advice(headline, (), (Remedy(True, "resume it"),))


def _quota_headline(
    workload: Workload, queue: ClusterQueue | None, reasons: Sequence[ParsedReason], gaps: Sequence[FlavorShortage]
) -> str:
    if queue is None or not gaps:
        first = next(reason for reason in reasons if reason.code is PendingReason.QUOTA)
        return f"Insufficient unused quota in flavor {first.flavor}: {show(first.resource, first.short)} more needed."
    gap = gaps[0]
    # Where several flavors are short, the numbers are those of the nearest; the lines below name each.
    of = f" of {gap.flavor}" if {one.flavor for one in gaps} == {gap.flavor} else ""
    free, needs = f"{show(gap.resource, gap.available)}{of}", _needs(workload, gap)
    if not gap.short:
        return f"{workload.name} needs {needs}; available now: {free}."
    if gap.limited_by == "limit":
        return f"{workload.name} needs {needs}; {queue.name} has {free} available within its borrowing limit."
    if gap.limited_by == "cohort" and gap.own_left:
        borrowed = format_quantity(gap.resource, gap.borrowable) if gap.borrowable else "none"
        return (
            f"{workload.name} needs {needs}; {queue.name} has {free} available ({borrowed} from cohort {queue.cohort})."
        )
    where = f"cohort {queue.cohort}" if gap.limited_by == "cohort" else queue.name
    return f"{workload.name} needs {needs}; {where} has {free} available."


def _needs(workload: Workload, gap: FlavorShortage) -> str:
    """Format the amount needed, and name the last pod set that it includes if it leaves some out."""
    needs = show(gap.resource, gap.needed)
    if not gap.up_to:
        return needs
    whole = sum(pod_set.requests.get(gap.resource, 0) for pod_set in workload.pod_sets)
    return f"{needs} for its pod sets up to {gap.up_to} ({show(gap.resource, whole)} in total)"


def _lines(reasons: Sequence[ParsedReason], gaps: Sequence[FlavorShortage]) -> Iterator[str]:
    """One line for each flavor and resource."""
    yield from (_gap_line(gap) for gap in gaps)
    known = {(gap.flavor, gap.resource) for gap in gaps}
    for reason in reasons:
        if reason.code is PendingReason.QUOTA and (reason.flavor, reason.resource) not in known:
            yield f"{reason.flavor}  {show(reason.resource, reason.short)} more needed"
        elif reason.code is PendingReason.EXCEEDS_MAX:
            wants, most = reason.assumed + reason.request, show(reason.resource, reason.capacity)
            yield f"{reason.flavor}  needs {show(reason.resource, wants)} · maximum capacity {most}"
        elif reason.code in (PendingReason.FLAVOR_MISMATCH, PendingReason.TOPOLOGY):
            yield f"{reason.flavor or reason.resource or reason.name}  {reason.text}"


def _gap_line(gap: FlavorShortage) -> str:
    def plain(amount: int) -> str:
        return format_quantity(gap.resource, amount)

    limit = "no borrowing limit" if gap.borrowing_limit is None else f"borrowing limit {plain(gap.borrowing_limit)}"
    borrowable = f" · borrowable {plain(gap.borrowable)} ({limit}, borrowed {plain(gap.borrowed)})"
    parts = (
        f"{gap.flavor}  needs {show(gap.resource, gap.needed)}",
        f" · unused nominal quota {plain(gap.own_left)}",
        borrowable if gap.limited_by != "queue" else "",
        f" · {plain(gap.short)} more needed" if gap.short else " · fits now",
    )
    return "".join(parts)


def _exceeds(workload: Workload, name: str, reasons: Sequence[ParsedReason], gaps: Sequence[FlavorShortage]) -> Advice:
    most = max((r for r in reasons if r.code is PendingReason.EXCEEDS_MAX), key=lambda reason: reason.capacity)
    wants, cap = most.assumed + most.request, most.capacity
    headline = (
        f"{workload.name} requests {show(most.resource, wants)}; the maximum capacity of {name} is "
        f"{show(most.resource, cap)} of {most.flavor}."
    )
    fixes = [Remedy(False, "waiting: it never fits")]
    if cap:
        fixes.append(Remedy(True, f"request at most {show(most.resource, cap)}"))
    fixes.append(Remedy(True, f"raise the quota or the borrowing limit by {show(most.resource, wants - cap)}"))
    return Advice(headline, tuple(_lines(reasons, gaps)), tuple(fixes))


def _mismatch(name: str, reasons: Sequence[ParsedReason], gaps: Sequence[FlavorShortage]) -> Advice:
    fixes = []
    for reason in reasons:
        if reason.text.startswith("untolerated taint"):
            fixes.append(Remedy(True, f"add a toleration for {reason.name} (flavor {reason.flavor})"))
        elif "node affinity" in reason.text:
            fixes.append(Remedy(True, f"a node selector or affinity that matches flavor {reason.flavor}"))
        elif reason.resource and not reason.flavor:
            fixes.append(Remedy(True, f"add quota of {reason.resource} to {name}, or do not request it"))
    return Advice(f"No flavor of {name} matches its pods.", tuple(_lines(reasons, gaps)), tuple(dict.fromkeys(fixes)))


def _victims(snapshot: Snapshot, workload: Workload, reasons: Sequence[ParsedReason]) -> Advice:
    marker = f"(UID: {workload.uid}," if workload.uid else "\0"
    leaving = []
    for other in snapshot.workloads.all():
        preempted = other.condition("Preempted")
        if preempted is not None and preempted.status and other.reserved and marker in preempted.message:
            leaving.append(other)
    count = len(leaving) or next((reason.count for reason in reasons if reason.count), 0)
    names = ", ".join(other.key for other in leaving[:4])
    who = f": {names}" if names else ""
    headline = f"Waiting for {counted(count, 'preempted workload')} to terminate{who}."
    return Advice(headline, tuple(f"{other.key} frees {counted(*amount_of(snapshot, other))}" for other in leaving))


def _namespace(workload: Workload, queue: ClusterQueue | None) -> Advice:
    name = queue.name if queue is not None else "its ClusterQueue"
    if queue is not None and queue.namespace_selector is None:
        headline = f"{name} has no namespaceSelector, so it matches no namespace."
        return Advice(headline, (), (Remedy(True, f"set namespaceSelector: {{}} on {name} to match all namespaces"),))
    headline = f"The namespaceSelector of {name} does not match namespace {workload.namespace}."
    fix = Remedy(True, f"label the namespace so that the namespaceSelector of {name} matches it")
    return Advice(headline, (), (fix,))


def _queue(snapshot: Snapshot, workload: Workload, code: PendingReason) -> Advice:
    local_queue = snapshot.local_queues.get(workload.local_queue)
    if local_queue is None:
        what = f"LocalQueue {workload.queue} does not exist in namespace {workload.namespace}"
        return Advice(f"{what}.", (), (Remedy(True, "create it, or move the workload to another queue"),))
    queue = snapshot.cluster_queues.get(local_queue.cluster_queue)
    if queue is None:
        fix = Remedy(True, "create it, or move the workload to another queue")
        return Advice(f"ClusterQueue {local_queue.cluster_queue} does not exist.", (), (fix,))
    if code is PendingReason.QUEUE_STOPPED:
        name = local_queue.key if local_queue.stop_policy is not StopPolicy.NONE else queue.name
        policy = local_queue.stop_policy if local_queue.stop_policy is not StopPolicy.NONE else queue.stop_policy
        return Advice(f"{name} is stopped ({policy}).", (), (Remedy(True, f"resume {name}"),))
    ready = active_condition(queue, snapshot, seen=snapshot.seen)
    if ready.active and (why := cohort_cycle(snapshot, queue.cohort)):
        fix = Remedy(True, "change or remove the parent of one cohort in the cycle")
        return Advice(f"{queue.name} admits no workload: {why}. Waiting does not help.", (), (fix,))
    if ready.active:
        return Advice(f"{queue.name} was inactive and is active again.")
    return Advice(f"{queue.name} is inactive ({ready.reason}): {ready.message}", (), (_ACTIVATE[ready.reason],))


_CREATE = Remedy(True, "create the missing object, or remove it from the ClusterQueue")
_FEWER_CHECKS = Remedy(True, "remove the admission checks that cannot be combined from the ClusterQueue")
_ACTIVATE = {
    "FlavorNotFound": _CREATE,
    "AdmissionCheckNotFound": _CREATE,
    "TopologyNotFound": _CREATE,
    "AdmissionCheckInactive": Remedy(True, "see in the AdmissionCheck's status why its controller reports it inactive"),
    "MultipleMultiKueueAdmissionChecks": _FEWER_CHECKS,
    "MultiKueueAdmissionCheckAppliedPerFlavor": Remedy(True, "remove onFlavors from the MultiKueue admission check"),
    "MultiKueueWithProvisioningRequest": _FEWER_CHECKS,
    "Terminating": Remedy(True, "move the workload to another queue"),
}
"""Remedy for an inactive ClusterQueue, by the reason of its condition Active."""


def _evicted(snapshot: Snapshot, reasons: Sequence[ParsedReason], name: str) -> Advice:
    uid = reasons[0].name
    by = next((other.key for other in snapshot.workloads.all() if uid and other.uid == uid), "")
    what = f"Preempted by {by}" if by else "Preempted" if uid else "Evicted"
    return Advice(f"{what}; requeued in {name}.")


def _backoff(snapshot: Snapshot, workload: Workload) -> Advice:
    at = workload.requeue.at or snapshot.time
    left = format_span(max(0, at - snapshot.time))
    often = workload.evictions or workload.requeue.count
    times = "once" if often == 1 else f"{often} times"
    return Advice(f"Evicted {times}; requeued in {left} (backoff).")

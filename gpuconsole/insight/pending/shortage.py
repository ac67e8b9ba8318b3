"""Quota shortage behind a refusal, and the texts and data of an explanation.

`shortages` and `remedies` have the arithmetic: needed and available quota, the workloads that hold the rest, and
changes that would free enough. `advise` has headline, arithmetic and next step for each reason code.
`PendingExplanation` is the whole answer, for workloads, jobs and pods.
"""

from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct, field

from gpuconsole.insight.index.capacity import QuotaCapacity, capacity, cohort_cycle
from gpuconsole.insight.index.demand import FlavorResource, amount_of, ends_at, held
from gpuconsole.insight.index.gpu_time import uncheckpointed_gpu_time
from gpuconsole.insight.index.queues import Position, queue_index
from gpuconsole.insight.pending.reasons import ParsedReason, PendingReason
from gpuconsole.insight.preemption.history import summed
from gpuconsole.insight.sharing.fair_shares import borrowed_gpus, victim_order
from gpuconsole.insight.tables import counted
from gpuconsole.model.clock import HOUR, Time, format_span, format_time
from gpuconsole.model.devices import WHOLE_GPU, is_counted
from gpuconsole.model.queues import ClusterQueue, PreemptionPolicy, Quota, StopPolicy
from gpuconsole.model.resources import format_quantity, is_gpu
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.model.workloads import Workload
from gpuconsole.scheduling.kueue.cluster_queue_status import active_condition

MOST_HOLDERS = 8
MOST_TRIALS = 50


class FlavorShortage(Struct, frozen=True, kw_only=True):
    """One (flavor, resource) of which a workload could not get enough, in base units."""

    flavor: str
    resource: str
    needed: int
    own_left: int
    """Part of the nominal quota of its ClusterQueue that is unused."""
    borrowable: int
    """Amount that its ClusterQueue could borrow beyond that."""
    borrowed: int
    borrowing_limit: int | None
    up_to: str = ""
    """The pod set that was refused, if `needed` leaves out pod sets after it; else empty."""
    limited_by: str
    """`limit` (its borrowing limit), `cohort` (nothing left to borrow) or `queue` (it is in no cohort)."""

    @property
    def available(self) -> int:
        """Amount that is available now, borrowing included."""
        return self.own_left + self.borrowable

    @property
    def short(self) -> int:
        """The missing amount; 0 if the request fits now."""
        return max(0, self.needed - self.available)


class Holder(Struct, frozen=True, kw_only=True):
    """A workload that holds quota which a pending one needs."""

    workload: str
    queue: str
    priority: int
    gpus: int
    """GPUs, or what `unit` names."""
    unit: str = WHOLE_GPU.noun
    borrowed: int
    """Number of these on borrowed quota."""
    ends: Time | None
    """Estimated end; None if unknown."""


class Remedy(Struct, frozen=True):
    """A change that would unblock a workload (✓), or an obvious one that would not (✗)."""

    works: bool
    text: str


def show(resource: str, amount: int) -> str:
    """Format an amount: `6 GPUs`, `512Gi memory`, `1500m cpu`."""
    if is_gpu(resource):
        return f"{amount} GPU" if amount == 1 else f"{amount} GPUs"
    return f"{format_quantity(resource, amount)} {resource}"


def freed(workload: Workload, short: Iterable[str]) -> str:
    """Format what the end of a workload would free: of the resources that are short, else accelerators, else all."""
    amounts: dict[str, int] = {}
    for (_, resource), amount in held(workload):
        amounts[resource] = amounts.get(resource, 0) + amount
    had = [resource for resource, amount in amounts.items() if amount]
    shown = [r for r in dict.fromkeys(short) if r in had] or [r for r in had if is_counted(r)] or had
    return ", ".join(show(resource, amounts[resource]) for resource in shown)


def shortages(
    snapshot: Snapshot, workload: Workload, queue: ClusterQueue, reasons: Iterable[ParsedReason]
) -> tuple[FlavorShortage, ...]:
    """Return the quota reasons of a refusal with current numbers: accelerators first, then by increasing shortage.

    Each (flavor, resource) comes once, with the need of all pod sets up to the last one that was refused.
    """
    state = capacity(snapshot)
    node = state.tree.queues.get(queue.name)
    if node is None:
        return ()
    quotas = queue.quotas()
    refused = {
        pair: reason
        for reason in reasons
        if reason.code is PendingReason.QUOTA and (pair := (reason.flavor, reason.resource)) in quotas
    }
    found = [_shortage(state, node, queue, pair, workload, reason) for pair, reason in refused.items()]
    return tuple(sorted(found, key=lambda one: (not is_counted(one.resource), one.short, one.flavor)))


def _needed(workload: Workload, reason: ParsedReason) -> int:
    """Return the total request of the pod sets up to the one that was refused."""
    total = 0
    for pod_set in workload.pod_sets:
        total += pod_set.requests.get(reason.resource, 0)
        if pod_set.name == reason.pod_set:
            break
    return total


def _shortage(
    state: QuotaCapacity, node: int, queue: ClusterQueue, pair: FlavorResource, workload: Workload, reason: ParsedReason
) -> FlavorShortage:
    column, quota, needed = state.tree.numbers[pair], queue.quotas()[pair], _needed(workload, reason)
    whole = sum(pod_set.requests.get(reason.resource, 0) for pod_set in workload.pod_sets)
    used = state.usage.usage_of(node, column)
    available = max(0, state.usage.available(node, column))
    own_left = min(available, max(0, quota.nominal - used))
    return FlavorShortage(
        flavor=pair[0],
        resource=pair[1],
        needed=needed,
        own_left=own_left,
        borrowable=available - own_left,
        borrowed=max(0, used - quota.nominal),
        borrowing_limit=quota.borrowing_limit,
        up_to=reason.pod_set if needed < whole else "",
        limited_by=_limited_by(state, node, column, available, quota),
    )


def _limited_by(state: QuotaCapacity, node: int, column: int, available: int, quota: Quota) -> str:
    parent = state.tree.parent[node]
    if parent < 0:
        return "queue"
    reach = state.usage.unlent_quota(node, column) + max(0, state.usage.available(parent, column))
    return "limit" if quota.borrowing_limit is not None and reach > available else "cohort"


def holders(snapshot: Snapshot, queue: str, pairs: Iterable[FlavorResource]) -> list[Workload]:
    """Workloads anywhere in the queue's cohort tree that hold any of these, the largest first."""
    wanted = set(pairs)
    state = capacity(snapshot)
    node = state.tree.queues.get(queue)
    if node is None:
        return []
    known = queue_index(snapshot)
    found = [
        workload
        for member in state.tree.subtree_queues(state.tree.root(node))
        for workload in known.cluster_queue(state.tree.names[member]).holding
        if any(pair in wanted for pair, _ in held(workload))
    ]
    return sorted(found, key=lambda workload: (-amount_of(snapshot, workload)[0], workload.key))


def describe_holder(snapshot: Snapshot, workload: Workload) -> Holder:
    """Return a workload with the accelerators that it holds, and its estimated end."""
    gpus, unit = amount_of(snapshot, workload)
    return Holder(
        workload=workload.key,
        queue=workload.cluster_queue,
        priority=workload.priority,
        gpus=gpus,
        unit=unit,
        borrowed=borrowed_gpus(snapshot).get(workload.key, 0),
        ends=ends_at(workload, snapshot.jobs.get(workload.owner), snapshot.time),
    )


def remedies(
    snapshot: Snapshot, workload: Workload, queue: ClusterQueue, gap: FlavorShortage, held_by: Sequence[Workload]
) -> Iterator[Remedy]:
    """Yield remedies for the shortage `gap`, by the scheduler's own quota arithmetic; `held_by` hold the quota."""
    if not gap.short:
        yield Remedy(True, "quota is available now: Kueue retries it when something in its cohort tree changes")
        return
    yield from _endings(snapshot, queue, gap, held_by)
    if gap.available:
        yield Remedy(True, f"request {show(gap.resource, gap.available)}")
    if gap.limited_by == "limit":
        yield Remedy(True, f"raise the borrowingLimit of {queue.name} by {show(gap.resource, gap.short)}")
    elif gap.limited_by == "cohort":
        yield Remedy(False, "a higher borrowing limit: the cohort has no unused quota")
    yield from _priority(snapshot, workload, queue, gap, held_by)


def _endings(
    snapshot: Snapshot, queue: ClusterQueue, gap: FlavorShortage, held_by: Sequence[Workload]
) -> Iterator[Remedy]:
    """Yield workloads each of which alone would free enough, the smallest first."""
    state = capacity(snapshot)
    node = state.tree.queues[queue.name]
    column = state.tree.numbers[gap.flavor, gap.resource]
    enough = []
    for holder in held_by[:MOST_TRIALS]:
        uses = [(state.tree.numbers[pair], amount) for pair, amount in held(holder) if pair in state.tree.numbers]
        trial = state.usage.copy()
        trial.remove(state.tree.queues[holder.cluster_queue], uses)
        if trial.available(node, column) >= gap.needed:
            enough.append(holder)
    for holder in enough[:-4:-1]:
        end = ends_at(holder, snapshot.jobs.get(holder.owner), snapshot.time)
        when = f", ~{format_time(end)[11:16]}" if end is not None else ""
        yield Remedy(True, f"{holder.key} ends ({freed(holder, [gap.resource])}{when})")
    if held_by and not enough:
        yield Remedy(False, "the end of one workload: no single workload holds enough quota")


def _priority(
    snapshot: Snapshot, workload: Workload, queue: ClusterQueue, gap: FlavorShortage, held_by: Sequence[Workload]
) -> Iterator[Remedy]:
    """Yield the lowest priority at which preemption within its ClusterQueue would free enough."""
    if queue.preemption.within_cluster_queue is PreemptionPolicy.NEVER:
        never = f"{queue.name} does not preempt its own workloads (withinClusterQueue: Never)"
        yield Remedy(False, f"a higher priority: {never}")
        return
    freed, victims = 0, []
    for candidate in sorted((w for w in held_by if w.cluster_queue == queue.name), key=victim_order):
        freed += sum(amount for pair, amount in held(candidate) if pair == (gap.flavor, gap.resource))
        victims.append(candidate)
        if freed >= gap.short:
            break
    priority = max((victim.priority for victim in victims), default=0) + 1
    if freed < gap.short or priority <= workload.priority:
        return
    losses = [uncheckpointed_gpu_time(snapshot, victim) for victim in victims]
    lost = summed([None if one is None else one / HOUR for one in losses], ".1f")
    names = ", ".join(victim.key for victim in victims[:3]) + (" …" if len(victims) > 3 else "")
    yield Remedy(True, f"priority ≥ {priority}: preempts {names} ({lost} GPU-hours lost)")


class Advice(Struct, frozen=True):
    """Text of an explanation, with the remedies that need no arithmetic; the function `remedies` yields the others."""

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


KUEUE = "Kueue"
KUBE_SCHEDULER = "kube-scheduler"
KUBELET = "kubelet"
API_SERVER = "kube-apiserver"


class PendingExplanation(Struct, frozen=True, kw_only=True):
    """One answer: the dominant reason, its evidence, its arithmetic, and the next step."""

    subject: str
    code: PendingReason
    headline: str
    """One sentence."""
    text: str = ""
    """The scheduler's message, verbatim; empty if it wrote none."""
    source: str = ""
    """The component that wrote `text`, such as Kueue, a scheduler or kubelet; empty if only the objects are read."""
    queue: str = ""
    """ClusterQueue."""
    since: Time | None = None
    """Start of the condition that gives the reason."""
    position: Position | None = None
    inadmissible: bool = field(default=False, name="parked")
    lines: tuple[str, ...] = ()
    """The arithmetic, a line for each flavor or node reason."""
    holders: tuple[Holder, ...] = ()
    """Workloads that hold the quota it needs, the largest first."""
    remedies: tuple[Remedy, ...] = ()


def not_waiting(key: str, headline: str) -> PendingExplanation:
    """Return an explanation for work that is not pending."""
    return PendingExplanation(subject=key, code=PendingReason.NOT_WAITING, headline=headline)

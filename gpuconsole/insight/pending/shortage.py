"""Quota shortage behind a refusal, and the texts and data of an explanation.

`shortages` and `remedies` have the arithmetic: needed and available quota, the workloads that hold the rest, and
changes that would free enough. `advise` has headline, arithmetic and next step for each reason code.
`PendingExplanation` is the whole answer, for workloads, jobs and pods.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Literal

from msgspec import Struct, field

from gpuconsole.insight.index.capacity import capacity, cohort_cycle
from gpuconsole.insight.index.demand import FlavorResource, amount_of, ends_at, held
from gpuconsole.insight.index.gpu_time import uncheckpointed_gpu_time
from gpuconsole.insight.index.queues import Position, queue_index
from gpuconsole.insight.pending.reasons import ParsedReason, PendingReason
from gpuconsole.insight.preemption.history import summed
from gpuconsole.insight.sharing.fair_shares import borrowed_gpus, victim_order
from gpuconsole.insight.tables import counted
from gpuconsole.model.clock import HOUR, Time, format_span, format_time
from gpuconsole.model.devices import WHOLE_GPU, is_counted
from gpuconsole.model.queues import ClusterQueue, LocalQueue, PreemptionPolicy, StopPolicy
from gpuconsole.model.resources import format_quantity, is_gpu
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.model.workloads import Workload
from gpuconsole.scheduling.kueue.cluster_queue_status import active_condition
from gpuconsole.scheduling.kueue.quota_tree import UsageTree

MOST_HOLDERS = 8
MOST_USERS = 4
MOST_KEEPERS = 4
MOST_TRIALS = 50


class QuotaLevel(Struct, frozen=True, kw_only=True):
    """Quota of a ClusterQueue, or of a Cohort above it; amounts in base units."""

    kind: str
    name: str
    nominal: int
    quota: int
    """Its nominal quota and what its members lend to it."""
    used: int
    """Usage of that quota."""
    unused: int
    withheld: int
    """Part of its unused quota that lending limits keep from the levels above."""
    borrowing_limit: int | None
    available: int
    """Available to the level below (of a ClusterQueue: to its workloads), by its own quota and by borrowing."""


class LendingLimitGap(Struct, frozen=True, kw_only=True):
    """A member of a cohort on the path whose lending limit withholds unused quota; amounts in base units."""

    kind: str
    name: str
    nominal: int
    quota: int
    """Its nominal quota and what its members lend to it."""
    lending_limit: int
    withheld: int
    """Unused quota that is never lent."""


class QuotaUser(Struct, frozen=True):
    """A workload that uses the quota which is short."""

    workload: str
    queue: str
    amount: int


class QuotaBreakdown(Struct, frozen=True, kw_only=True):
    """Needed against available quota of one flavor and resource."""

    flavor: str
    resource: str
    needed: int
    available: int
    ceiling: int
    """Maximum capacity of its ClusterQueue: nominal quota and all that it may borrow."""
    levels: tuple[QuotaLevel, ...]
    """The levels from its ClusterQueue up to the root cohort."""
    blocked_at: str
    """The limit: `borrowingLimit of ClusterQueue q`, or the level that has no more quota."""
    keepers: tuple[LendingLimitGap, ...]
    """Members that could lend more, the largest amount first; only if no borrowing limit is the obstacle."""
    users: tuple[QuotaUser, ...]

    @property
    def short(self) -> int:
        """Amount that is missing; 0 if enough is available."""
        return max(0, self.needed - self.available)

    @property
    def unused_nominal(self) -> int:
        """Part of the available amount that is its ClusterQueue's own unused nominal quota; the rest is borrowed."""
        own = self.levels[0]
        return min(self.available, max(0, own.nominal - own.used))

    @property
    def limited_by(self) -> Literal["limit", "cohort", "queue"]:
        """What allows its ClusterQueue no more: its borrowing limit, its cohort, or that it is in no cohort."""
        own, *above = self.levels
        if not above:
            return "queue"
        return (
            "limit"
            if own.borrowing_limit is not None and own.withheld + above[0].available > own.available
            else "cohort"
        )


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


def first_of(names: Sequence[str], most: int = 3) -> str:
    """Format the first names and the number of the others: `a, b, c and 2 more`."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


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
) -> tuple[QuotaBreakdown, ...]:
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
    found = [quota_breakdown(state.usage, node, pair, _needed(workload, reason)) for pair, reason in refused.items()]
    return tuple(sorted(found, key=lambda one: (not is_counted(one.resource), one.short, one.flavor)))


def _needed(workload: Workload, reason: ParsedReason) -> int:
    """Return the total request of the pod sets up to the one that was refused."""
    total = 0
    for pod_set in workload.pod_sets:
        total += pod_set.requests.get(reason.resource, 0)
        if pod_set.name == reason.pod_set:
            break
    return total


def quota_breakdown(
    usage: UsageTree, node: int, pair: FlavorResource, needed: int, users: tuple[QuotaUser, ...] = ()
) -> QuotaBreakdown:
    """Return the arithmetic of one (flavor, resource) for a ClusterQueue of the tree, by its node number."""
    tree = usage.tree
    column = tree.numbers[pair]
    path = (node, *tree.paths[node])
    limited = _limited(usage, path, column, needed)
    return QuotaBreakdown(
        flavor=pair[0],
        resource=pair[1],
        needed=needed,
        available=max(0, usage.available(node, column)),
        ceiling=tree.potential[node * tree.width + column],
        levels=tuple(_level(usage, level, column) for level in path),
        blocked_at=_blocked_at(usage, path, column, limited),
        keepers=tuple(_lending_limit_gaps(usage, path, column)) if limited is None else (),
        users=users,
    )


def _blocked_at(usage: UsageTree, path: tuple[int, ...], column: int, limited: int | None) -> str:
    """Name the limit: a borrowing limit, or the root; both if a borrowing limit allows even less than the root."""
    if limited is not None:
        return f"borrowingLimit of {_called(usage, limited)}"
    tree, root = usage.tree, _called(usage, path[-1])
    for node, above in pairwise(path):
        limit = tree.borrowing_limit[node * tree.width + column]
        more = usage.unlent_quota(node, column) + max(0, usage.available(above, column))
        if limit is not None and usage.available(node, column) < more:
            return f"borrowingLimit of {_called(usage, node)}, and {root}"
    return root


def _called(usage: UsageTree, node: int) -> str:
    return f"{_kind(usage, node)} {usage.tree.names[node]}"


def _kind(usage: UsageTree, node: int) -> str:
    return "Cohort" if node < len(usage.tree.cohorts) else "ClusterQueue"


def _level(usage: UsageTree, node: int, column: int) -> QuotaLevel:
    tree = usage.tree
    at = node * tree.width + column
    return QuotaLevel(
        kind=_kind(usage, node),
        name=tree.names[node],
        nominal=tree.nominal[at],
        quota=tree.subtree[at],
        used=usage.usage_of(node, column),
        unused=max(0, tree.subtree[at] - usage.usage_of(node, column)),
        withheld=usage.unlent_quota(node, column),
        borrowing_limit=tree.borrowing_limit[at],
        available=max(0, usage.available(node, column)),
    )


def _limited(usage: UsageTree, path: tuple[int, ...], column: int, needed: int) -> int | None:
    """Return the lowest level with too little available although the one above has enough; None if it is the root."""
    for node, above in pairwise(path):
        unlent = usage.unlent_quota(node, column)
        if max(0, usage.available(above, column)) + unlent >= needed:
            return node
        needed -= unlent
    return None


def _lending_limit_gaps(usage: UsageTree, path: tuple[int, ...], column: int) -> list[LendingLimitGap]:
    """List the members of the tree outside the path whose lending limits withhold unused quota."""
    tree = usage.tree
    found = [
        _lending_limit_gap(usage, member, column)
        for member in range(len(tree.names))
        if path[-1] in tree.paths[member] and member not in path and usage.unlent_quota(member, column)
    ]
    return sorted(found, key=lambda keeper: (-keeper.withheld, keeper.kind, keeper.name))


def _lending_limit_gap(usage: UsageTree, node: int, column: int) -> LendingLimitGap:
    seen, never_lent = _level(usage, node, column), usage.tree.local[node * usage.tree.width + column]
    return LendingLimitGap(
        kind=seen.kind,
        name=seen.name,
        nominal=seen.nominal,
        quota=seen.quota,
        lending_limit=seen.quota - never_lent,
        withheld=seen.withheld,
    )


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
    snapshot: Snapshot, workload: Workload, queue: ClusterQueue, gap: QuotaBreakdown, held_by: Sequence[Workload]
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
    snapshot: Snapshot, queue: ClusterQueue, gap: QuotaBreakdown, held_by: Sequence[Workload]
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
    snapshot: Snapshot, workload: Workload, queue: ClusterQueue, gap: QuotaBreakdown, held_by: Sequence[Workload]
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
    names = first_of([victim.key for victim in victims])
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
    gaps: Sequence[QuotaBreakdown],
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
        case (
            PendingReason.QUEUE_STOPPED
            | PendingReason.QUEUE_INACTIVE
            | PendingReason.QUEUE_MISSING
            | PendingReason.DEACTIVATED
        ) if queue is not None:
            return Advice(f"It can be admitted in {name} again: Kueue's message is out of date.")
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


class AdmissionObstacle(Struct, frozen=True):
    """A state of the objects in which Kueue does not try to admit a workload, whatever it wrote before."""

    code: PendingReason
    advice: Advice


def admission_obstacle(snapshot: Snapshot, workload: Workload) -> AdmissionObstacle | None:
    """Return why Kueue does not try to admit a workload; None if nothing prevents it, or its queue is not visible."""
    if not workload.active:
        return AdmissionObstacle(PendingReason.DEACTIVATED, _deactivated(workload))
    local_queue, seen = snapshot.local_queues.get(workload.local_queue), snapshot.seen
    if local_queue is None:
        missing = f"LocalQueue {workload.queue} does not exist in namespace {workload.namespace}"
        return _missing(missing) if seen.all_of(LocalQueue, within=workload.namespace) else None
    queue = snapshot.cluster_queues.get(local_queue.cluster_queue)
    if local_queue.stop_policy is not StopPolicy.NONE:
        return _stopped(local_queue.key, local_queue.stop_policy)
    if queue is None:
        missing = f"ClusterQueue {local_queue.cluster_queue} does not exist"
        return _missing(missing) if seen.all_of(ClusterQueue) else None
    if queue.stop_policy is not StopPolicy.NONE:
        return _stopped(queue.name, queue.stop_policy)
    ready = active_condition(queue, snapshot, seen=seen)
    if not ready.active:
        headline = f"{queue.name} is inactive ({ready.reason}): {ready.message}"
        return AdmissionObstacle(PendingReason.QUEUE_INACTIVE, Advice(headline, (), (_ACTIVATE[ready.reason],)))
    if why := cohort_cycle(snapshot, queue.cohort):
        headline = f"{queue.name} admits no workload: {why}. Waiting does not help."
        fix = Remedy(True, "change or remove the parent of one cohort in the cycle")
        return AdmissionObstacle(PendingReason.QUEUE_INACTIVE, Advice(headline, (), (fix,)))
    if workload.requeue.at is not None and workload.requeue.at > snapshot.time:
        return AdmissionObstacle(PendingReason.BACKOFF, _backoff(snapshot, workload))
    return None


def _missing(what: str) -> AdmissionObstacle:
    fix = Remedy(True, "create it, or move the workload to another queue")
    return AdmissionObstacle(PendingReason.QUEUE_MISSING, Advice(f"{what}.", (), (fix,)))


def _stopped(name: str, policy: StopPolicy) -> AdmissionObstacle:
    advice = Advice(f"{name} is stopped ({policy}).", (), (Remedy(True, f"resume {name}"),))
    return AdmissionObstacle(PendingReason.QUEUE_STOPPED, advice)


_RESUBMIT = Remedy(True, "correct its resource requests and submit it again")


def _deactivated(workload: Workload) -> Advice:
    """Explain a deactivated workload. Only Kueue gives a cause (condition Evicted), not a user who sets spec.active."""
    said = workload.condition("Evicted")
    cause = said.message if said is not None and said.status and said.reason.startswith("Deactivated") else ""
    due_to = cause.partition(" due to ")[2]
    headline = f"Deactivated (spec.active is false): {due_to}." if due_to else "Deactivated (spec.active is false)."
    return Advice(headline, (), (Remedy(True, "resume it"),))


def _quota_headline(
    workload: Workload, queue: ClusterQueue | None, reasons: Sequence[ParsedReason], gaps: Sequence[QuotaBreakdown]
) -> str:
    if queue is None or not gaps:
        first = next(reason for reason in reasons if reason.code is PendingReason.QUOTA)
        return f"Insufficient unused quota in flavor {first.flavor}: {show(first.resource, first.short)} more needed."
    gap = gaps[0]
    # Where several flavors are short, the numbers are those of the nearest; the lines below name each.
    of = f" of {gap.flavor}" if {one.flavor for one in gaps} == {gap.flavor} else ""
    free, needs = f"{show(gap.resource, gap.available)}{of}", _needs(workload, reasons, gap)
    if not gap.short:
        return f"{workload.name} needs {needs}; available now: {free}."
    if gap.limited_by == "limit":
        return f"{workload.name} needs {needs}; {queue.name} has {free} available within its borrowing limit."
    if gap.limited_by == "cohort" and gap.unused_nominal:
        borrowable = gap.available - gap.unused_nominal
        borrowed = format_quantity(gap.resource, borrowable) if borrowable else "none"
        return (
            f"{workload.name} needs {needs}; {queue.name} has {free} available ({borrowed} from cohort {queue.cohort})."
        )
    where = f"cohort {queue.cohort}" if gap.limited_by == "cohort" else queue.name
    return f"{workload.name} needs {needs}; {where} has {free} available."


def _needs(workload: Workload, reasons: Sequence[ParsedReason], gap: QuotaBreakdown) -> str:
    """Format the amount needed, and name the last pod set that it includes if it leaves some out."""
    needs = show(gap.resource, gap.needed)
    whole = sum(pod_set.requests.get(gap.resource, 0) for pod_set in workload.pod_sets)
    if gap.needed >= whole:
        return needs
    last = next(one.pod_set for one in reversed(reasons) if (one.flavor, one.resource) == (gap.flavor, gap.resource))
    return f"{needs} for its pod sets up to {last} ({show(gap.resource, whole)} in total)"


def _lines(reasons: Sequence[ParsedReason], gaps: Sequence[QuotaBreakdown]) -> Iterator[str]:
    """Yield the arithmetic of each shortage, and a line for each other reason."""
    for gap in gaps:
        yield from room_lines(gap)
    known = {(gap.flavor, gap.resource) for gap in gaps}
    for reason in reasons:
        if reason.code is PendingReason.QUOTA and (reason.flavor, reason.resource) not in known:
            yield f"{reason.flavor}  {show(reason.resource, reason.short)} more needed"
        elif reason.code is PendingReason.EXCEEDS_MAX:
            wants, most = reason.assumed + reason.request, show(reason.resource, reason.capacity)
            yield f"{reason.flavor}  needs {show(reason.resource, wants)} · maximum capacity {most}"
        elif reason.code in (PendingReason.FLAVOR_MISMATCH, PendingReason.TOPOLOGY):
            yield f"{reason.flavor or reason.resource or reason.name}  {reason.text}"


def room_lines(room: QuotaBreakdown) -> Iterator[str]:
    """Yield the lines of text for a quota shortage: need, levels, members that withhold quota, and its users."""

    def plain(amount: int) -> str:
        return format_quantity(room.resource, amount)

    never = f", maximum capacity {plain(room.ceiling)}" if room.needed > room.ceiling else ""
    missing = f"{plain(room.short)} more needed, limited by {room.blocked_at}" if room.short else "fits now"
    has = f"needs {plain(room.needed)}, available {plain(room.available)}{never}"
    yield f"{room.flavor} {room.resource}: {has} · {missing}"
    for level in room.levels:
        yield f"  {_level_text(level, room.resource)}"
    for keeper in room.keepers[:MOST_KEEPERS]:
        yield f"  {_keeper(keeper, room.resource)}"
    others = room.keepers[MOST_KEEPERS:]
    if others:
        yield f"  {len(others)} more withhold {plain(sum(keeper.withheld for keeper in others))}"
    if room.users:
        users = [f"{user.workload} {plain(user.amount)}" for user in room.users]
        yield f"  used by {first_of(users, MOST_USERS)}"


def _level_text(level: QuotaLevel, resource: str) -> str:
    def plain(amount: int) -> str:
        return format_quantity(resource, amount)

    limit = f", borrowing limit {plain(level.borrowing_limit)}" if level.borrowing_limit is not None else ""
    withheld = f" ({plain(level.withheld)} withheld by lending limits)" if level.withheld else ""
    return (
        f"{level.kind} {level.name}: quota {plain(level.quota)}, used {plain(level.used)},"
        f" unused {plain(level.unused)}{withheld}{limit} → available {plain(level.available)}"
    )


def _keeper(keeper: LendingLimitGap, resource: str) -> str:
    def plain(amount: int) -> str:
        return format_quantity(resource, amount)

    return (
        f"{keeper.kind} {keeper.name} withholds {plain(keeper.withheld)} unused:"
        f" quota {plain(keeper.quota)}, lending limit {plain(keeper.lending_limit)}"
    )


def _exceeds(workload: Workload, name: str, reasons: Sequence[ParsedReason], gaps: Sequence[QuotaBreakdown]) -> Advice:
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


def _mismatch(name: str, reasons: Sequence[ParsedReason], gaps: Sequence[QuotaBreakdown]) -> Advice:
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
    who = f": {first_of([other.key for other in leaving], 4)}" if leaving else ""
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

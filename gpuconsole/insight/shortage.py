"""Quota shortage behind a refusal: needed, available, the workloads that hold the rest, and remedies."""

from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct

from gpuconsole.insight.borrowing import borrowed_gpus, victim_order
from gpuconsole.insight.capacity import QuotaCapacity, capacity
from gpuconsole.insight.demand import FlavorResource, ends_at, held
from gpuconsole.insight.device_demand import amount_of
from gpuconsole.insight.losses import summed
from gpuconsole.insight.queue_index import queue_index
from gpuconsole.insight.reasons import ParsedReason, PendingReason
from gpuconsole.insight.uncheckpointed import uncheckpointed_gpu_time
from gpuconsole.model.clock import HOUR, Time, format_time
from gpuconsole.model.device_units import WHOLE_GPU, is_counted
from gpuconsole.model.queues import ClusterQueue, PreemptionPolicy, Quota
from gpuconsole.model.resources import format_quantity, is_gpu
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.model.workloads import Workload

MOST_HOLDERS = 8
MOST_TRIALS = 50


class FlavorShortage(Struct, frozen=True, kw_only=True):
    """One (flavor, resource) of which a workload could not get enough, in base units."""

    flavor: str
    resource: str
    needed: int
    own_left: int
    """Unused nominal quota of its ClusterQueue."""
    borrowable: int
    """Amount that it could borrow beyond that."""
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
    """Number of these that are borrowed."""
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
    """Format the amounts that a workload's end frees: of the resources that are short, else accelerators, else all."""
    amounts: dict[str, int] = {}
    for (_, resource), amount in held(workload):
        amounts[resource] = amounts.get(resource, 0) + amount
    had = [resource for resource, amount in amounts.items() if amount]
    shown = [r for r in dict.fromkeys(short) if r in had] or [r for r in had if is_counted(r)] or had
    return ", ".join(show(resource, amounts[resource]) for resource in shown)


def shortages(
    snapshot: Snapshot, workload: Workload, queue: ClusterQueue, reasons: Iterable[ParsedReason]
) -> tuple[FlavorShortage, ...]:
    """Return the quota reasons of a refusal with current numbers, the smallest shortage first.

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
    used = state.usage.used(node, column)
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
    reach = state.usage.unlent(node, column) + max(0, state.usage.available(parent, column))
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
    """Yield remedies for a shortage, computed with the scheduler's own quota arithmetic where possible."""
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

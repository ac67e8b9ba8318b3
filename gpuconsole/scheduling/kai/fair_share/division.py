"""Fair shares of KAI's queues: the nodes' resources, divided down the queue tree (KAI 0.13 plugins/proportion).

Among siblings, quotas come first, then the surplus is divided by weight and past usage, resource by resource
(proportion/resource_division). `QueueState` is a queue as configured (api/queue_info; scheduling.run.ai/v2 Queue), and
`QueueShares` its quota, limit, fair share and usage by resource (proportion/resource_share). CPU is in milli, memory in
bytes; -1 is unlimited.

`UsageHistory` is the time-based part (cache/usagedb): a queue's past usage is the sum of its allocation over the
window, divided by the sum of capacity; older usage counts less by the half-life.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby

from msgspec import Struct, field

from gpuconsole.model.clock import Span, Time
from gpuconsole.scheduling.kai.api.nodes import RESERVATION_APP, KaiNodeInfo, is_node_ready, request_quota
from gpuconsole.scheduling.kai.api.tasks import ACTIVE_USED, PodInfo, ResourceAmounts, ResourceRequirements
from gpuconsole.scheduling.kai.config import SchedulerFlags

UNLIMITED = -1.0
DEFAULT_PRIORITY = 100


class KaiQueueQuota(Struct, frozen=True, kw_only=True):
    """A queue's quota, limit and weight for one resource; -1 is unlimited. CPU in milli, memory in megabytes, GPUs."""

    quota: float = 0
    over_quota_weight: float = 0
    limit: float = 0


NO_QUOTA = KaiQueueQuota()


class QueueState(Struct, frozen=True, kw_only=True):
    """A queue as configured, which holds either jobs or child queues."""

    uid: str
    name: str = ""
    parent: str = ""
    children: tuple[str, ...] = ()
    gpu: KaiQueueQuota = NO_QUOTA
    cpu: KaiQueueQuota = NO_QUOTA
    memory: KaiQueueQuota = NO_QUOTA
    usage: Mapping[str, float] = {}
    """Past usage by resource, as a share of the cluster's capacity."""
    priority: int = DEFAULT_PRIORITY
    created: Time = 0
    preempt_min_runtime: Span | None = None
    reclaim_min_runtime: Span | None = None

    @property
    def is_leaf(self) -> bool:
        return not self.children


CPU, MEMORY, GPU = "CPU", "Memory", "GPU"
RESOURCES = (CPU, MEMORY, GPU)
Quantities = dict[str, float]


def quantities(cpu: float = 0, memory: float = 0, gpu: float = 0) -> Quantities:
    """Amounts by resource: CPU in milli, memory in bytes, GPUs."""
    return {CPU: cpu, MEMORY: memory, GPU: gpu}


def quantities_of(amounts: ResourceAmounts) -> Quantities:
    """Amounts that count against a queue; MIG slices count as GPUs."""
    return quantities(amounts.cpu, amounts.memory, amounts.gpu_quota)


def requested_quantities(request: ResourceRequirements) -> Quantities:
    """Amounts of a request that count against a queue; MIG slices and claimed devices count as GPUs."""
    return quantities(request.cpu, request.memory, request_quota(request))


def add(one: Mapping[str, float], other: Mapping[str, float]) -> Quantities:
    """The sum, resource by resource."""
    return {name: one.get(name, 0) + other.get(name, 0) for name in RESOURCES}


def subtract(one: Mapping[str, float], other: Mapping[str, float]) -> Quantities:
    """The difference, resource by resource."""
    return {name: one.get(name, 0) - other.get(name, 0) for name in RESOURCES}


def is_less(one: Mapping[str, float], other: Mapping[str, float]) -> bool:
    """True if every amount is below that in `other`; -1 is compared as a number."""
    return all(one.get(name, 0) < other.get(name, 0) for name in RESOURCES)


def is_within(one: Mapping[str, float], other: Mapping[str, float]) -> bool:
    """True if no amount exceeds that in `other`, in which -1 is unlimited."""
    return all(_is_at_most(one.get(name, 0), other.get(name, 0)) for name in RESOURCES)


def _is_at_most(one: float, other: float) -> bool:
    if other == UNLIMITED:
        return True
    return one != UNLIMITED and one <= other


_NO_SHARE_PENALTY = 1000


class ResourceShares:
    """Quota, limit, fair share and usage of a queue for one resource. Mutates."""

    __slots__ = ("allocated", "deserved", "fair", "limit", "non_preemptible", "requested", "usage", "weight")

    def __init__(
        self,
        *,
        deserved: float = 0,
        fair: float = 0,
        limit: float = 0,
        weight: float = 0,
        allocated: float = 0,
        non_preemptible: float = 0,
        requested: float = 0,
        usage: float = 0,
    ) -> None:
        self.deserved, self.limit, self.weight = deserved, limit, weight
        self.fair = fair
        self.allocated, self.requested, self.usage = allocated, requested, usage
        self.non_preemptible = non_preemptible
        """The part of `allocated` that non-preemptible jobs hold."""

    def copy(self) -> "ResourceShares":
        """An independent copy."""
        return ResourceShares(**{name: getattr(self, name) for name in self.__slots__})

    @property
    def requestable(self) -> float:
        """The request, capped by the limit."""
        return self.requested if self.limit == UNLIMITED else min(self.limit, self.requested)

    @property
    def allocatable(self) -> float:
        """The amount that the queue may hold: the larger of quota and fair share, up to the limit."""
        if self.deserved == UNLIMITED:
            return self.limit
        most = max(self.deserved, self.fair)
        return most if self.limit == UNLIMITED else min(self.limit, most)

    @property
    def is_satisfied(self) -> bool:
        return self.requested <= self.fair or (self.limit != UNLIMITED and self.limit <= self.fair)


class QueueShares:
    """Quota, limit, fair share and usage of one queue by resource, and its priority among siblings. Mutates."""

    def __init__(
        self,
        uid: str,
        *,
        name: str = "",
        parent: str = "",
        children: tuple[str, ...] = (),
        created: Time = 0,
        priority: int = 0,
        cpu: ResourceShares | None = None,
        memory: ResourceShares | None = None,
        gpu: ResourceShares | None = None,
    ) -> None:
        self.uid, self.name, self.parent, self.children = uid, name or uid, parent, children
        self.created, self.priority = created, priority
        self.by_resource: dict[str, ResourceShares] = {
            CPU: cpu or ResourceShares(),
            MEMORY: memory or ResourceShares(),
            GPU: gpu or ResourceShares(),
        }

    def copy(self) -> "QueueShares":
        """An independent copy."""
        return QueueShares(
            self.uid,
            name=self.name,
            parent=self.parent,
            children=self.children,
            created=self.created,
            priority=self.priority,
            cpu=self.by_resource[CPU].copy(),
            memory=self.by_resource[MEMORY].copy(),
            gpu=self.by_resource[GPU].copy(),
        )

    def _map(self, read: Callable[[ResourceShares], float]) -> Quantities:
        return {name: read(self.by_resource[name]) for name in RESOURCES}

    @property
    def allocated(self) -> Quantities:
        return self._map(lambda share: share.allocated)

    @property
    def non_preemptible(self) -> Quantities:
        return self._map(lambda share: share.non_preemptible)

    @property
    def deserved(self) -> Quantities:
        return self._map(lambda share: share.deserved)

    @property
    def fair(self) -> Quantities:
        return self._map(lambda share: share.fair)

    @property
    def requested(self) -> Quantities:
        return self._map(lambda share: share.requested)

    @property
    def requestable(self) -> Quantities:
        return self._map(lambda share: share.requestable)

    @property
    def allocatable(self) -> Quantities:
        return self._map(lambda share: share.allocatable)

    def dominant(self, total: Quantities, extra: Quantities | None = None) -> float:
        """The largest ratio of allocation plus `extra` to allocatable share, or to `total` if that is unlimited.

        Use of a resource with an allocatable share of zero counts a thousandfold.
        """
        most = 0.0
        for name, share in self.by_resource.items():
            allowed = share.allocatable
            if allowed == UNLIMITED:
                allowed = total.get(name, 0)
            allocated = share.allocated + (extra[name] if extra else 0)
            most = max(most, allocated / allowed if allowed else allocated * _NO_SHARE_PENALTY)
        return most

    def add_allocation(self, amounts: Quantities, *, preemptible: bool, sign: int = 1) -> None:
        """Add an allocation to the queue's, or subtract it (`sign` -1)."""
        for name, share in self.by_resource.items():
            share.allocated += sign * amounts[name]
            if not preemptible:
                share.non_preemptible += sign * amounts[name]


def set_fair_shares(total: Mapping[str, float], k: float, queues: Iterable[QueueShares]) -> None:
    """Set the fair share of sibling queues for every resource; `k` is the weight of past usage."""
    siblings = sorted(queues, key=lambda queue: queue.uid)
    for name in RESOURCES:
        set_fair_share(total.get(name, 0), k, siblings, name)


def set_fair_share(total: float, k: float, queues: Sequence[QueueShares], name: str) -> float:
    """Divide one resource over sibling queues; returns the part that no queue requests."""
    remaining = _divide_quotas(total, queues, name)
    if remaining <= 0:
        return 0
    wanting: list[dict[str, tuple[QueueShares, float]]] = []
    for band in by_priority(queues):
        remaining, fractions = _divide_in_rounds(remaining, k, band, name)
        wanting.append(fractions)
    for fractions in wanting:
        if remaining <= 0:
            break
        remaining = _divide_remaining_units(remaining, fractions, name)
    return remaining


def _divide_quotas(total: float, queues: Sequence[QueueShares], name: str) -> float:
    remaining = total
    for queue in queues:
        share = queue.by_resource[name]
        deserved = total if share.deserved == UNLIMITED else share.deserved
        amount = min(deserved, share.requestable)
        share.fair += amount
        remaining -= amount
    return remaining


def by_priority(queues: Iterable[QueueShares]) -> Iterator[list[QueueShares]]:
    """The sibling queues grouped by priority, the highest first."""
    falling = sorted(queues, key=lambda queue: -queue.priority)
    for _, band in groupby(falling, key=lambda queue: queue.priority):
        yield list(band)


def _divide_in_rounds(
    total: float, k: float, queues: Sequence[QueueShares], name: str
) -> tuple[float, dict[str, tuple[QueueShares, float]]]:
    """Divide by weight in rounds until no queue gets its full request; returns the rest, and by queue the fractions
    that were cut off.
    """
    fractions: dict[str, tuple[QueueShares, float]] = {}
    again = True
    while again and total != 0:
        again, budget = False, total
        weights = _weights(queues, name, k)
        weight_sum = sum(weights.values())
        if weight_sum == 0:
            break
        for queue in queues:
            share = queue.by_resource[name]
            if total == 0:
                break
            if share.is_satisfied or share.weight == 0:
                continue
            wanted = _unsatisfied_request(queue, name)
            fair = budget * (weights[queue.uid] / weight_sum)
            amount = wanted if wanted <= fair else float(math.floor(fair))
            if wanted <= fair:
                fractions.pop(queue.uid, None)
            elif fair - amount > 0:
                fractions[queue.uid] = (queue, fair - amount)
            if amount == 0:
                continue
            share.fair += amount
            total -= amount
            again = again or wanted < fair
    return total, fractions


def _weights(queues: Sequence[QueueShares], name: str, k: float) -> dict[str, float]:
    """Weight of each unsatisfied queue: its share of all weights, corrected by its usage history."""
    total = sum(queue.by_resource[name].weight for queue in queues if _unsatisfied_request(queue, name) > 0)
    if total == 0:
        return {}
    weights = {}
    for queue in queues:
        share = queue.by_resource[name]
        if not share.is_satisfied:
            part = share.weight / total
            weights[queue.uid] = max(0.0, part + k * (part - share.usage))
    return weights


def _unsatisfied_request(queue: QueueShares, name: str) -> float:
    share = queue.by_resource[name]
    return max(0.0, share.requestable - share.fair)


def _divide_remaining_units(total: float, fractions: Mapping[str, tuple[QueueShares, float]], name: str) -> float:
    """Give single units by the largest fraction that was cut off, then to the oldest queue, then by name."""
    for queue, _ in sorted(fractions.values(), key=lambda item: (-item[1], item[0].created, item[0].uid)):
        if total == 0:
            break
        unit = min(1.0, total)
        queue.by_resource[name].fair += unit
        total -= unit
    return total


_MEGABYTE = 1_000_000
GPU_WORKER_LABEL = "node-role.kubernetes.io/gpu-worker"


def total_resources(nodes: Iterable[KaiNodeInfo], parameters: SchedulerFlags) -> Quantities:
    """Resources of all nodes that queues can use."""
    total = quantities()
    for node in nodes:
        for name, amount in usable_resources(node, parameters).items():
            total[name] += amount
    return total


def usable_resources(node: KaiNodeInfo, parameters: SchedulerFlags) -> Quantities:
    """Allocatable resources of a ready node, less what pods of other schedulers use."""
    if not is_node_ready(node.node):
        return quantities()
    amounts = quantities_of(node.allocatable)
    if parameters.restrict_nodes and GPU_WORKER_LABEL not in node.node.labels:
        amounts[GPU] = 0
    for task in node.tasks.values():
        if (
            task.status in ACTIVE_USED
            and task.spec.scheduler != parameters.scheduler_name
            and not _is_utility_pod(task)
        ):
            amounts = subtract(amounts, requested_quantities(task.request))
    return amounts


def _is_utility_pod(task: PodInfo) -> bool:
    """True for a pod by which KAI itself reserves a GPU or scales up nodes."""
    return task.spec.labels.get("app") in (RESERVATION_APP, "scaling-pod")


def new_queue_shares(queue: QueueState) -> QueueShares:
    """A queue's quotas, limits, weights and past usage, still without allocations and requests."""
    return QueueShares(
        queue.uid,
        name=queue.name,
        parent=queue.parent,
        children=queue.children,
        created=queue.created,
        priority=queue.priority,
        cpu=_new_resource_shares(queue.cpu, queue.usage.get(CPU, 0)),
        memory=_new_resource_shares(queue.memory, queue.usage.get(MEMORY, 0), _MEGABYTE),
        gpu=_new_resource_shares(queue.gpu, queue.usage.get(GPU, 0)),
    )


def _new_resource_shares(quota: KaiQueueQuota, usage: float, unit: int = 1) -> ResourceShares:
    deserved, limit = quota.quota, quota.limit
    if unit > 1:
        deserved, limit = max(UNLIMITED, deserved * unit), max(UNLIMITED, limit * unit)
    return ResourceShares(deserved=deserved, limit=limit, weight=quota.over_quota_weight, usage=usage)


def set_fair_shares_of_tree(total: Mapping[str, float], k: float, queues: Mapping[str, QueueShares]) -> None:
    """Divide the total over the top queues, then each queue's share over its children."""
    _divide_level(total, k, [queue for queue in queues.values() if not queue.parent], queues)


def _divide_level(
    total: Mapping[str, float], k: float, level: list[QueueShares], queues: Mapping[str, QueueShares]
) -> None:
    set_fair_shares(total, k, level)
    for queue in level:
        children = [queues[uid] for uid in queue.children]
        if children:
            _divide_level(queue.fair, k, children, queues)


class UsageInterval(Struct, frozen=True):
    """What queues had allocated, and the cluster's capacity, during one interval."""

    start: Time
    end: Time
    allocated: Mapping[str, Mapping[str, float]] = field(name="held")
    capacity: Mapping[str, float]


class UsageHistory:
    """Records what queues have allocated over the usage window, from which their past usage follows. Mutates."""

    def __init__(self, window: Span, half_life: Span) -> None:
        self._window, self._half_life = window, half_life
        self._intervals: list[UsageInterval] = []
        self._since: Time | None = None
        self._allocated: Mapping[str, Mapping[str, float]] = {}
        self._capacity: Mapping[str, float] = {}

    def record(self, now: Time, allocated: Mapping[str, Mapping[str, float]], capacity: Mapping[str, float]) -> None:
        """Record what the queues have allocated (`allocated`), and the cluster's capacity, from `now` on."""
        self._close_interval(now)
        self._since, self._capacity = now, _floats(capacity)
        self._allocated = {queue: _floats(amounts) for queue, amounts in allocated.items()}

    def _close_interval(self, now: Time) -> None:
        if self._since is not None and now > self._since:
            self._intervals.append(UsageInterval(self._since, now, self._allocated, self._capacity))
            self._since = now
        oldest = now - self._window
        self._intervals = [interval for interval in self._intervals if interval.end > oldest]

    def usage(self, now: Time) -> dict[str, dict[str, float]]:
        """Each queue's usage as a fraction of cluster capacity by resource, over the window."""
        self._close_interval(now)
        had = dict.fromkeys(RESOURCES, 0.0)
        used: dict[str, dict[str, float]] = {}
        for interval in self._intervals:
            weight = self._decayed_length(interval, now)
            for name in RESOURCES:
                had[name] += weight * interval.capacity.get(name, 0)
            for queue, allocated in interval.allocated.items():
                sums = used.setdefault(queue, dict.fromkeys(RESOURCES, 0.0))
                for name in RESOURCES:
                    sums[name] += weight * allocated.get(name, 0)
        return {
            queue: {name: sums[name] / had[name] if had[name] else 0.0 for name in RESOURCES}
            for queue, sums in used.items()
        }

    def _decayed_length(self, interval: UsageInterval, now: Time) -> float:
        """Length of the interval in seconds, decayed by the age of its middle."""
        start = max(interval.start, now - self._window)
        age = now - (start + interval.end) / 2
        decay = 0.5 ** (age / self._half_life) if self._half_life else 1.0
        return float((interval.end - start) / 1_000_000 * decay)

    def fork(self) -> "UsageHistory":
        """An independent copy."""
        copied = UsageHistory(self._window, self._half_life)
        copied._intervals, copied._since = list(self._intervals), self._since
        copied._allocated, copied._capacity = self._allocated, self._capacity
        return copied

    def dump(self) -> list[UsageInterval]:
        """The state to save: all intervals, of which the last is still open."""
        last = [] if self._since is None else [UsageInterval(self._since, self._since, self._allocated, self._capacity)]
        return [*self._intervals, *last]

    def load(self, intervals: list[UsageInterval]) -> None:
        """Restore the state that `intervals` returned."""
        if intervals:
            *self._intervals, last = intervals
            self._since, self._allocated, self._capacity = last.start, last.allocated, last.capacity


def _floats(amounts: Mapping[str, float]) -> dict[str, float]:
    """Amounts as floats, as they are read back from a file."""
    return {name: float(amount) for name, amount in amounts.items()}

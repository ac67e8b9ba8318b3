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

from msgspec import Struct

from gpuconsole.model.clock import Span, Time
from gpuconsole.scheduling.kai.api.nodes import RESERVATION, KaiNodeInfo, ready, request_quota
from gpuconsole.scheduling.kai.api.resources import ResourceAmounts, ResourceRequirements
from gpuconsole.scheduling.kai.api.tasks import ACTIVE_USED, PodInfo
from gpuconsole.scheduling.kai.config import Parameters

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
    def leaf(self) -> bool:
        return not self.children


CPU, MEMORY, GPU = "CPU", "Memory", "GPU"
RESOURCES = (CPU, MEMORY, GPU)
Quantities = dict[str, float]


def quantities(cpu: float = 0, memory: float = 0, gpu: float = 0) -> Quantities:
    """Amounts by resource: CPU in milli, memory in bytes, GPUs."""
    return {CPU: cpu, MEMORY: memory, GPU: gpu}


def of_amounts(amounts: ResourceAmounts) -> Quantities:
    """Amounts that count against a queue; MIG slices count as GPUs."""
    return quantities(amounts.cpu, amounts.memory, amounts.gpu_quota)


def of_request(request: ResourceRequirements) -> Quantities:
    """Amounts of a request that count against a queue; MIG slices and claimed devices count as GPUs."""
    return quantities(request.cpu, request.memory, request_quota(request))


def plus(one: Mapping[str, float], other: Mapping[str, float]) -> Quantities:
    """The sum, resource by resource."""
    return {name: one.get(name, 0) + other.get(name, 0) for name in RESOURCES}


def minus(one: Mapping[str, float], other: Mapping[str, float]) -> Quantities:
    """The difference, resource by resource."""
    return {name: one.get(name, 0) - other.get(name, 0) for name in RESOURCES}


def less(one: Mapping[str, float], other: Mapping[str, float]) -> bool:
    """True if every amount is below that in `other`; -1 is compared as a number."""
    return all(one.get(name, 0) < other.get(name, 0) for name in RESOURCES)


def within(one: Mapping[str, float], other: Mapping[str, float]) -> bool:
    """True if no amount exceeds that in `other`, in which -1 is unlimited."""
    return all(_at_most(one.get(name, 0), other.get(name, 0)) for name in RESOURCES)


def _at_most(one: float, other: float) -> bool:
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

    def clone(self) -> "ResourceShares":
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
    def satisfied(self) -> bool:
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
        self.of: dict[str, ResourceShares] = {
            CPU: cpu or ResourceShares(),
            MEMORY: memory or ResourceShares(),
            GPU: gpu or ResourceShares(),
        }

    def clone(self) -> "QueueShares":
        """An independent copy."""
        return QueueShares(
            self.uid,
            name=self.name,
            parent=self.parent,
            children=self.children,
            created=self.created,
            priority=self.priority,
            cpu=self.of[CPU].clone(),
            memory=self.of[MEMORY].clone(),
            gpu=self.of[GPU].clone(),
        )

    def _each(self, read: Callable[[ResourceShares], float]) -> Quantities:
        return {name: read(self.of[name]) for name in RESOURCES}

    @property
    def allocated(self) -> Quantities:
        return self._each(lambda share: share.allocated)

    @property
    def non_preemptible(self) -> Quantities:
        return self._each(lambda share: share.non_preemptible)

    @property
    def deserved(self) -> Quantities:
        return self._each(lambda share: share.deserved)

    @property
    def fair(self) -> Quantities:
        return self._each(lambda share: share.fair)

    @property
    def limits(self) -> Quantities:
        return self._each(lambda share: share.limit)

    @property
    def requested(self) -> Quantities:
        return self._each(lambda share: share.requested)

    @property
    def requestable(self) -> Quantities:
        return self._each(lambda share: share.requestable)

    @property
    def allocatable(self) -> Quantities:
        return self._each(lambda share: share.allocatable)

    def dominant(self, total: Quantities, extra: Quantities | None = None) -> float:
        """The largest ratio of allocation plus `extra` to allocatable share, or to `total` if that is unlimited.

        Use of a resource with an allocatable share of zero counts a thousandfold.
        """
        most = 0.0
        for name, share in self.of.items():
            allowed = share.allocatable
            if allowed == UNLIMITED:
                allowed = total.get(name, 0)
            held = share.allocated + (extra[name] if extra else 0)
            most = max(most, held / allowed if allowed else held * _NO_SHARE_PENALTY)
        return most

    def take(self, amounts: Quantities, *, preemptible: bool, sign: int = 1) -> None:
        """Add an allocation to the queue's, or subtract it (`sign` -1)."""
        for name, share in self.of.items():
            share.allocated += sign * amounts[name]
            if not preemptible:
                share.non_preemptible += sign * amounts[name]


def divide(total: Mapping[str, float], k: float, queues: Iterable[QueueShares]) -> None:
    """Set the fair share of sibling queues for every resource; `k` is the weight of past usage."""
    siblings = sorted(queues, key=lambda queue: queue.uid)
    for name in RESOURCES:
        divide_resource(total.get(name, 0), k, siblings, name)


def divide_resource(total: float, k: float, queues: Sequence[QueueShares], name: str) -> float:
    """Divide one resource over sibling queues; returns the part that no queue requests."""
    rest = _give_quotas(total, queues, name)
    if rest <= 0:
        return 0
    wanting: list[dict[str, tuple[QueueShares, float]]] = []
    for band in bands(queues):
        rest, fractions = _divide_in_rounds(rest, k, band, name)
        wanting.append(fractions)
    for fractions in wanting:
        if rest <= 0:
            break
        rest = _give_single_units(rest, fractions, name)
    return rest


def _give_quotas(total: float, queues: Sequence[QueueShares], name: str) -> float:
    rest = total
    for queue in queues:
        share = queue.of[name]
        deserved = total if share.deserved == UNLIMITED else share.deserved
        amount = min(deserved, share.requestable)
        share.fair += amount
        rest -= amount
    return rest


def bands(queues: Iterable[QueueShares]) -> Iterator[list[QueueShares]]:
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
            share = queue.of[name]
            if total == 0:
                break
            if share.satisfied or share.weight == 0:
                continue
            wanted = _wanted(queue, name)
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
    total = sum(queue.of[name].weight for queue in queues if _wanted(queue, name) > 0)
    if total == 0:
        return {}
    weights = {}
    for queue in queues:
        share = queue.of[name]
        if not share.satisfied:
            part = share.weight / total
            weights[queue.uid] = max(0.0, part + k * (part - share.usage))
    return weights


def _wanted(queue: QueueShares, name: str) -> float:
    share = queue.of[name]
    return max(0.0, share.requestable - share.fair)


def _give_single_units(total: float, fractions: Mapping[str, tuple[QueueShares, float]], name: str) -> float:
    """Give single units by the largest fraction that was cut off, then to the oldest queue, then by name."""
    for queue, _ in sorted(fractions.values(), key=lambda item: (-item[1], item[0].created, item[0].uid)):
        if total == 0:
            break
        unit = min(1.0, total)
        queue.of[name].fair += unit
        total -= unit
    return total


_MEGABYTE = 1_000_000
GPU_WORKER_LABEL = "node-role.kubernetes.io/gpu-worker"


def total_of(nodes: Iterable[KaiNodeInfo], parameters: Parameters) -> Quantities:
    """Resources of all nodes that queues can use."""
    total = quantities()
    for node in nodes:
        for name, amount in offered(node, parameters).items():
            total[name] += amount
    return total


def offered(node: KaiNodeInfo, parameters: Parameters) -> Quantities:
    """Allocatable resources of a ready node, less what pods of other schedulers use."""
    if not ready(node.node):
        return quantities()
    amounts = of_amounts(node.allocatable)
    if parameters.restrict_nodes and GPU_WORKER_LABEL not in node.node.labels:
        amounts[GPU] = 0
    for task in node.tasks.values():
        if task.status in ACTIVE_USED and task.spec.scheduler != parameters.scheduler_name and not _utility(task):
            amounts = minus(amounts, of_request(task.request))
    return amounts


def _utility(task: PodInfo) -> bool:
    """True for a pod by which KAI itself reserves a GPU or scales up nodes."""
    return task.spec.labels.get("app") in (RESERVATION, "scaling-pod")


def shares_of(queue: QueueState) -> QueueShares:
    """A queue's quotas, limits, weights and past usage, still without allocations and requests."""
    return QueueShares(
        queue.uid,
        name=queue.name,
        parent=queue.parent,
        children=queue.children,
        created=queue.created,
        priority=queue.priority,
        cpu=_share(queue.cpu, queue.usage.get(CPU, 0)),
        memory=_share(queue.memory, queue.usage.get(MEMORY, 0), _MEGABYTE),
        gpu=_share(queue.gpu, queue.usage.get(GPU, 0)),
    )


def _share(quota: KaiQueueQuota, usage: float, unit: int = 1) -> ResourceShares:
    deserved, limit = quota.quota, quota.limit
    if unit > 1:
        deserved, limit = max(UNLIMITED, deserved * unit), max(UNLIMITED, limit * unit)
    return ResourceShares(deserved=deserved, limit=limit, weight=quota.over_quota_weight, usage=usage)


def divide_tree(total: Mapping[str, float], k: float, queues: Mapping[str, QueueShares]) -> None:
    """Divide the total over the top queues, then each queue's share over its children."""
    _divide_level(total, k, [queue for queue in queues.values() if not queue.parent], queues)


def _divide_level(
    total: Mapping[str, float], k: float, level: list[QueueShares], queues: Mapping[str, QueueShares]
) -> None:
    divide(total, k, level)
    for queue in level:
        children = [queues[uid] for uid in queue.children]
        if children:
            _divide_level(queue.fair, k, children, queues)


class Stretch(Struct, frozen=True):
    """What queues had allocated, and the cluster's capacity, during one interval."""

    start: Time
    end: Time
    held: Mapping[str, Mapping[str, float]]
    capacity: Mapping[str, float]


class UsageHistory:
    """Records what queues have allocated over the usage window, from which their past usage follows. Mutates."""

    def __init__(self, window: Span, half_life: Span) -> None:
        self._window, self._half_life = window, half_life
        self._stretches: list[Stretch] = []
        self._since: Time | None = None
        self._held: Mapping[str, Mapping[str, float]] = {}
        self._capacity: Mapping[str, float] = {}

    def note(self, now: Time, held: Mapping[str, Mapping[str, float]], capacity: Mapping[str, float]) -> None:
        """Record what the queues have allocated (`held`), and the cluster's capacity, from `now` on."""
        self._close(now)
        self._since, self._capacity = now, _floats(capacity)
        self._held = {queue: _floats(amounts) for queue, amounts in held.items()}

    def _close(self, now: Time) -> None:
        if self._since is not None and now > self._since:
            self._stretches.append(Stretch(self._since, now, self._held, self._capacity))
            self._since = now
        oldest = now - self._window
        self._stretches = [stretch for stretch in self._stretches if stretch.end > oldest]

    def usage(self, now: Time) -> dict[str, dict[str, float]]:
        """Each queue's usage as a fraction of cluster capacity by resource, over the window."""
        self._close(now)
        had = dict.fromkeys(RESOURCES, 0.0)
        used: dict[str, dict[str, float]] = {}
        for stretch in self._stretches:
            weight = self._weight(stretch, now)
            for name in RESOURCES:
                had[name] += weight * stretch.capacity.get(name, 0)
            for queue, held in stretch.held.items():
                sums = used.setdefault(queue, dict.fromkeys(RESOURCES, 0.0))
                for name in RESOURCES:
                    sums[name] += weight * held.get(name, 0)
        return {
            queue: {name: sums[name] / had[name] if had[name] else 0.0 for name in RESOURCES}
            for queue, sums in used.items()
        }

    def _weight(self, stretch: Stretch, now: Time) -> float:
        """Length of the interval in seconds, decayed by the age of its middle."""
        start = max(stretch.start, now - self._window)
        age = now - (start + stretch.end) / 2
        decay = 0.5 ** (age / self._half_life) if self._half_life else 1.0
        return float((stretch.end - start) / 1_000_000 * decay)

    def fork(self) -> "UsageHistory":
        """An independent copy."""
        twin = UsageHistory(self._window, self._half_life)
        twin._stretches, twin._since = list(self._stretches), self._since
        twin._held, twin._capacity = self._held, self._capacity
        return twin

    def pages(self) -> list[Stretch]:
        """The state to save: all intervals, of which the last is still open."""
        last = [] if self._since is None else [Stretch(self._since, self._since, self._held, self._capacity)]
        return [*self._stretches, *last]

    def take_back(self, pages: list[Stretch]) -> None:
        """Restore the state that `pages` returned."""
        if pages:
            *self._stretches, last = pages
            self._since, self._held, self._capacity = last.start, last.held, last.capacity


def _floats(amounts: Mapping[str, float]) -> dict[str, float]:
    """Amounts as floats, as they are read back from a file."""
    return {name: float(amount) for name, amount in amounts.items()}

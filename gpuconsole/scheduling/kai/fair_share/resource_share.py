"""Quota, limit, fair share and usage of a queue by resource (KAI 0.13 proportion/resource_share).

Quota, limit, fair share and usage of a queue by resource (KAI 0.13 proportion/resource_share).

Amounts of the three resources that queues share; -1 is unlimited (KAI 0.13 proportion/resource_share).

A queue in a session, and its configured quotas (KAI 0.13 api/queue_info; scheduling.run.ai/v2 Queue).
"""

from collections.abc import Callable, Mapping

from msgspec import Struct

from gpuconsole.model.clock import Span, Time
from gpuconsole.scheduling.kai.api.nodes import request_quota
from gpuconsole.scheduling.kai.api.resources import ResourceAmounts, ResourceRequirements

UNLIMITED = -1.0
DEFAULT_PRIORITY = 100


class KaiQueueQuota(Struct, frozen=True, kw_only=True):
    """Quota of a queue for one resource; -1 is unlimited. CPU in milli, memory in megabytes, GPUs."""

    quota: float = 0
    over_quota_weight: float = 0
    limit: float = 0


NO_QUOTA = KaiQueueQuota()


class QueueState(Struct, frozen=True, kw_only=True):
    """A queue of jobs or of child queues."""

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
    """True if every resource is below the other's; -1 is compared as a number."""
    return all(one.get(name, 0) < other.get(name, 0) for name in RESOURCES)


def within(one: Mapping[str, float], other: Mapping[str, float]) -> bool:
    """True if no resource exceeds the other's; nothing exceeds an unlimited one."""
    return all(_at_most(one.get(name, 0), other.get(name, 0)) for name in RESOURCES)


def _at_most(one: float, other: float) -> bool:
    if other == UNLIMITED:
        return True
    return one != UNLIMITED and one <= other


_NO_SHARE_PENALTY = 1000


class ResourceShares:
    """One resource of a queue. Mutates."""

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
    """The shares of one queue, and its order among others. Mutates."""

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
        """Account for an allocation that was added, or removed (`sign` -1)."""
        for name, share in self.of.items():
            share.allocated += sign * amounts[name]
            if not preemptible:
                share.non_preemptible += sign * amounts[name]

"""Quota, limit, fair share and usage of a queue by resource (KAI 0.13 proportion/resource_share)."""

from collections.abc import Callable

from gpuconsole.model.clock import Time
from gpuconsole.scheduling.kai.api.queues import UNLIMITED
from gpuconsole.scheduling.kai.fair_share.quantities import CPU, GPU, MEMORY, RESOURCES, Quantities

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

"""Pending pods, batches of equal pods, and gangs: the units that placement tries. Batches and gangs mutate.

A `PodBatch` holds equal pods that are placed one by one: a refusal of the first holds for the others. A `PodGang` is
placed all or nothing. Both record whether they were refused since capacity was last freed.
"""

from bisect import bisect_left, insort
from typing import Union

from msgspec import Struct

from gpuconsole.model.clock import Time
from gpuconsole.model.cluster import Pod
from gpuconsole.scheduling.kube.pod_classes import PodClass

Order = tuple[int, Time, str]
"""Position in the queue: (−priority, creation time, pod key)."""

Kind = tuple[object, ...]


class PendingPod(Struct, frozen=True, kw_only=True):
    """A pending pod."""

    pod: str
    created: Time
    shape: PodClass
    priority: int
    never: bool
    """preemptionPolicy Never: it preempts no pods."""
    gang: str = ""
    """`namespace/gang`, even if gangs are not scheduled all or nothing; empty without a gang."""
    size: int = 0
    """The gang's minimum as far as the pod or its PodGroup names it; 0 if neither does."""
    job: str = ""
    nominated: str = ""
    """The nominated node; empty if none."""
    message: str = ""
    """The message of its last refusal."""
    who: Pod | None = None
    kind: Kind | None = None
    """Key by its labels, affinity terms, host ports and claims; None where these make no difference."""

    @property
    def order(self) -> Order:
        return (-self.priority, self.created, self.pod)


class PodBatch:
    """Equal pods that are placed one by one."""

    def __init__(self) -> None:
        self.orders: list[Order] = []
        self.refused_at = -1
        """`PlacementState.freed` at its last refusal; -1 if it has to be tried."""
        self.said = ""
        """The message of its last refusal; empty if it got a pod since."""

    @property
    def order(self) -> Order:
        return self.orders[0]

    @property
    def waiting(self) -> bool:
        return bool(self.orders)

    def add(self, waiter: PendingPod) -> None:
        """Add a pod; the batch has to be tried again."""
        insort(self.orders, waiter.order)
        self.refused_at, self.said = -1, ""

    def drop(self, waiter: PendingPod) -> None:
        """Remove a pod of the batch."""
        del self.orders[bisect_left(self.orders, waiter.order)]

    @property
    def pods(self) -> list[str]:
        return [order[2] for order in self.orders]

    def fork(self) -> "PodBatch":
        """An independent copy."""
        twin = PodBatch()
        twin.orders = self.orders.copy()
        twin.refused_at, twin.said = self.refused_at, self.said
        return twin


class PodGang:
    """A gang: pods that start together or not at all."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.size = 0
        self.job = ""
        self.waiters: dict[str, PendingPod] = {}
        self.seated: dict[str, int] = {}
        """Its pods that have a node and are not terminating, and how many GPUs each holds."""
        self.refused_at = -1
        self.said = ""
        self._members: tuple[PendingPod, ...] | None = None
        self._kinds: tuple[tuple[PendingPod, int], ...] = ()
        self._order: Order = (0, 0, "")

    @property
    def order(self) -> Order:
        """Queue position of its first pending pod."""
        self._sort()
        return self._order

    @property
    def members(self) -> tuple[PendingPod, ...]:
        """Its pending pods, those with the most GPUs first, as they are the hardest to place."""
        return self._sort()

    @property
    def kinds(self) -> tuple[tuple[PendingPod, int], ...]:
        """Its pending pods by class: one of each, and their number."""
        self._sort()
        return self._kinds

    @property
    def waiting(self) -> bool:
        return bool(self.waiters)

    @property
    def needed(self) -> int:
        """How many of its pending pods have to be placed at once to reach its minimum; all if it has none."""
        return max(0, (self.size or len(self.waiters) + len(self.seated)) - len(self.seated))

    def add(self, waiter: PendingPod) -> None:
        """Add a pending pod; the gang has to be tried again."""
        self.waiters[waiter.pod] = waiter
        self.refused_at, self.said = -1, ""
        self._members = None

    def replace(self, waiter: PendingPod) -> None:
        """Update a pending pod; a refusal of the gang still holds."""
        self.waiters[waiter.pod] = waiter
        self._members = None

    def drop(self, waiter: PendingPod) -> None:
        """Remove a pending pod."""
        del self.waiters[waiter.pod]
        self._members = None

    def _sort(self) -> tuple[PendingPod, ...]:
        if self._members is None:
            members = sorted(self.waiters.values(), key=lambda waiter: (-waiter.shape.gpus, waiter.order))
            runs: dict[tuple[PodClass, int, bool], tuple[PendingPod, int]] = {}
            for waiter in members:
                kind = (waiter.shape, waiter.priority, waiter.never)
                first, count = runs.get(kind, (waiter, 0))
                runs[kind] = (first, count + 1)
            self._kinds = tuple(runs.values())
            self._order = min((waiter.order for waiter in members), default=self._order)
            self._members = tuple(members)
        return self._members

    @property
    def pods(self) -> list[str]:
        return sorted(self.waiters)

    def fork(self) -> "PodGang":
        """An independent copy."""
        twin = PodGang(self.name)
        twin.size, twin.job, twin.refused_at, twin.said = self.size, self.job, self.refused_at, self.said
        twin.waiters, twin.seated = self.waiters.copy(), self.seated.copy()
        twin._members, twin._kinds, twin._order = self._members, self._kinds, self._order
        return twin


Unit = Union[PodBatch, PodGang]

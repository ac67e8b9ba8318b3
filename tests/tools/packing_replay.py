"""Replay of a stream of pods through one packing policy: placements, and allocated and fragmented GPU capacity.

Pods come one by one and never leave; one that fits nowhere is dropped. Ties go to the first node in an order that is
fixed for the run. A node's score for a kind of pod is cached until that node changes.
"""

from collections.abc import Iterable, Iterator, Sequence
from random import Random

from msgspec import Struct

from gpuconsole.scheduling.kube.packing.policies import (
    POLICIES,
    Fragmentation,
    FreeCapacity,
    PodDemand,
    PolicyName,
    fits,
)

_DRAWS = 16
UNFIT = -(10**9)
"""The score of a node that does not take the pod: below any other."""


class ReplayedPlacement(Struct, frozen=True):
    """Where a pod was placed."""

    node: int
    """Its number in the list that the replay was given."""
    gpus: tuple[int, ...]


class GpuAmounts(Struct, frozen=True):
    """GPU capacity of the cluster after a pod arrived, in milli."""

    arrived: int
    """Requests of all pods so far, including dropped ones."""
    allocated: int
    idle: int
    fragment: float


class _Kind:
    """Scores of every node for one demand; `stale` are those to compute again."""

    __slots__ = ("demand", "scores", "stale")

    def __init__(self, demand: PodDemand, nodes: int) -> None:
        self.demand = demand
        self.scores = [UNFIT] * nodes
        self.stale = set(range(nodes))


class Replay:
    """A cluster that is filled by a stream of pods. Mutates."""

    def __init__(
        self,
        rooms: Sequence[FreeCapacity],
        policy: PolicyName,
        measure: Fragmentation,
        order: Sequence[int],
        chance: Random,
    ) -> None:
        """`order` has the numbers of all nodes, the one that wins ties first; only `random` draws from `chance`."""
        self._policy = POLICIES[policy]
        self._measure = measure
        self._chance = chance
        self._order = order
        known: dict[FreeCapacity, FreeCapacity] = {}
        self._rooms = [known.setdefault(rooms[number], rooms[number]) for number in order]
        self._kinds: dict[PodDemand, _Kind] = {}
        self._refused: set[PodDemand] = set()
        """Demands that no node fits any more."""
        self._arrived = self._allocated = 0
        self._idle = sum(room.idle for room in self._rooms)
        self._fragment = sum(self._amount(room) for room in self._rooms)

    @property
    def amounts(self) -> GpuAmounts:
        """Current allocated and fragmented GPU capacity."""
        return GpuAmounts(self._arrived, self._allocated, self._idle, self._fragment / self._measure.weight)

    def run(self, demands: Iterable[PodDemand]) -> Iterator[GpuAmounts]:
        """Place the pods one by one; yields the GPU capacity after each of them."""
        for demand in demands:
            self.place(demand)
            yield self.amounts

    def place(self, demand: PodDemand) -> ReplayedPlacement | None:
        """Assign the pod to a node; None if it fits nowhere."""
        self._arrived += demand.total
        found = self._best(demand)
        if found is None:
            return None
        before = self._rooms[found]
        gpus = self._policy.choose(before, demand, self._measure, self._chance) if demand.gpus else ()
        after = self._rooms[found] = taken(before, demand, gpus)
        self._allocated += demand.total
        self._idle -= demand.total
        self._fragment += self._amount(after) - self._amount(before)
        for kind in self._kinds.values():
            kind.stale.add(found)
        return ReplayedPlacement(self._order[found], gpus)

    def _best(self, demand: PodDemand) -> int | None:
        if self._policy.is_random:
            return self._draw(demand)
        kind = self._kinds.get(demand)
        if kind is None:
            kind = self._kinds[demand] = _Kind(demand, len(self._rooms))
        if kind.stale:
            self._renew(kind)
        scores = kind.scores
        top = max(scores, default=UNFIT)
        if top == UNFIT:
            return None
        return scores.index(top)

    def _draw(self, demand: PodDemand) -> int | None:
        """A random node that fits: drawn from all nodes first, and after too many misses only from those that fit."""
        if demand in self._refused:
            return None
        for _ in range(_DRAWS):
            place = self._chance.randrange(len(self._rooms))
            if fits(self._rooms[place], demand):
                return place
        able = [place for place, room in enumerate(self._rooms) if fits(room, demand)]
        if able:
            return self._chance.choice(able)
        self._refused.add(demand)
        return None

    def _renew(self, kind: _Kind) -> None:
        """Recompute the scores of changed nodes; equal nodes that share one object are scored once."""
        demand, scores, score, measure = kind.demand, kind.scores, self._policy.score, self._measure
        seen: dict[int, int] = {}
        for place in kind.stale:
            room = self._rooms[place]
            known = seen.get(id(room))
            if known is None:
                known = seen[id(room)] = score(room, demand, measure) if fits(room, demand) else UNFIT
            scores[place] = known
        kind.stale.clear()

    def _amount(self, room: FreeCapacity) -> int:
        return self._measure.amount(room.model, room.cpu, room.ordered)


def taken(room: FreeCapacity, demand: PodDemand, gpus: tuple[int, ...]) -> FreeCapacity:
    """Free capacity after one more pod takes these GPUs."""
    left = list(room.gpus)
    for index in gpus:
        left[index] -= demand.milli
    kinds = room.kinds | {demand.kind} if gpus else room.kinds
    return FreeCapacity(room.cpu - demand.cpu, room.memory - demand.memory, tuple(left), room.model, kinds)

"""Cached preemption candidates for one class of pods, computed on demand. Mutates."""

from heapq import heapify, heappop, heappush

from gpuconsole.scheduling.kube.nodes import NodeState
from gpuconsole.scheduling.kube.pod_classes import PodClass
from gpuconsole.scheduling.kube.preemption import Rank, Victims, movable_on, reach, victims


class PreemptionCandidates:
    """The victims by node, and how many pods would fit without all pods of lower priority."""

    def __init__(self, shape: PodClass, priority: int, nodes: list[NodeState]) -> None:
        self._shape, self._priority, self._nodes = shape, priority, nodes
        self._victims: dict[int, Victims] = {}
        self._cheapest: list[tuple[Rank, str, int]] = []
        """(rank, node name, node number) of all victims, some of them outdated; the lowest is the best."""
        self._unseen: set[int] = set()
        """Nodes that fit no such pod and whose victims have not been computed."""
        self._reach: dict[int, int] = {}
        self._reachable = 0
        self._unreached: dict[int, int] = {}
        """Nodes that are not in `_reach` yet → how many such pods fit now."""

    def fork(self, nodes: list[NodeState]) -> "PreemptionCandidates":
        """A copy over another node cache, whose nodes have to be the same."""
        twin = PreemptionCandidates(self._shape, self._priority, nodes)
        twin._victims, twin._cheapest, twin._unseen = self._victims.copy(), self._cheapest[:], self._unseen.copy()
        twin._reach, twin._reachable, twin._unreached = self._reach.copy(), self._reachable, self._unreached.copy()
        return twin

    def forget(self, number: int) -> None:
        """Drop the entry of a changed node."""
        self._victims.pop(number, None)
        self._unseen.discard(number)
        self._reachable -= self._reach.pop(number, 0)
        self._unreached.pop(number, None)

    def consider(self, number: int, slots: int) -> None:
        """Record that preemption may help on this node, which fits `slots` such pods now."""
        self._unreached[number] = slots
        if not slots:
            self._unseen.add(number)

    def cheapest(self) -> tuple[int, Victims] | None:
        """The node whose victims have the lowest rank, and these; None if preemption helps nowhere.

        The first by name on ties.
        """
        while self._unseen:
            self._find_victims(self._unseen.pop())
        self._tidy()
        heap = self._cheapest
        while heap:
            rank, _, number = heap[0]
            found = self._victims.get(number)
            if found is not None and found.rank == rank:
                return number, found
            heappop(heap)
        return None

    def victims_on(self, number: int) -> Victims | None:
        """Victims on this node, which fits no such pod now; None if preemption does not help."""
        if number in self._unseen:
            self._unseen.discard(number)
            self._find_victims(number)
        return self._victims.get(number)

    def reachable(self) -> int:
        """How many such pods would fit without all pods of lower priority."""
        while self._unreached:
            number, slots = self._unreached.popitem()
            movable = movable_on(self._nodes[number], self._priority)
            if movable:
                slots = reach(self._nodes[number], self._shape, self._priority, movable)
            self._reach[number] = slots
            self._reachable += slots
        return self._reachable

    def _find_victims(self, number: int) -> None:
        found = victims(self._nodes[number], self._shape, self._priority)
        if found is not None:
            self._victims[number] = found
            heappush(self._cheapest, (found.rank, self._nodes[number].name, number))

    def _tidy(self) -> None:
        """Rebuild the heap if outdated entries accumulate."""
        if len(self._cheapest) > 64 + 2 * len(self._victims):
            self._cheapest = [(found.rank, self._nodes[i].name, i) for i, found in self._victims.items()]
            heapify(self._cheapest)

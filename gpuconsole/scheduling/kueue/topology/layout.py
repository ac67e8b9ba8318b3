"""Phase 2 of TAS: chooses a level and its domains, then assigns pods level by level to as few domains as possible.

Kueue 0.19 TASFlavorSnapshot.findLevelWithFitDomains and updateCountsToMinimumGeneric. BestFit takes the domains with
the most free capacity first, and as the last one the smallest that suffices; LeastFreeCapacity (unconstrained requests
with TASProfileMixed) starts with the least. Domain numbers stand for their values, so they break ties.
"""

import itertools
from collections.abc import Iterable, Sequence

from msgspec import Struct

from gpuconsole.scheduling.kueue.topology.balanced import balance
from gpuconsole.scheduling.kueue.topology.domains import (
    Counts,
    PlacementShape,
    TopologyDomainTree,
    sort_domains,
    sort_with_leader,
)


class TasGates(Struct, frozen=True):
    """The feature gates that decide how pods are placed."""

    mixed: bool = True
    """TASProfileMixed: unconstrained requests use LeastFreeCapacity."""
    balanced: bool = False
    """TASBalancedPlacement: pods with a preferred level are spread evenly."""
    affinity: bool = False
    """TASRespectNodeAffinityPreferred: nodes that match preferred node affinity come first."""
    overlapping: bool = True
    """TASHandleOverlappingFlavors: flavors that share nodes see each other's usage."""
    elastic: bool = False
    """ElasticJobsViaWorkloadSlicesWithTAS: a replacing workload slice keeps the domains of running pods."""


class DoesNotFit(Exception):
    """Error: the pods do not fit at `level`, only `fitting` slices or leaders (None: the level has no domain)."""

    def __init__(self, level: int, fitting: int | None) -> None:
        super().__init__(level, fitting)
        self.level = level
        self.fitting = fitting


class PodLayout:
    """Distributes one group of pods over domains. Mutates its counts, from capacity to assigned pods."""

    def __init__(
        self,
        domains: TopologyDomainTree,
        counts: Counts,
        shape: PlacementShape,
        *,
        required: bool,
        unconstrained: bool,
        gates: TasGates,
    ) -> None:
        self._domains = domains
        self._counts = counts
        self._balanced = gates.balanced and not required and not unconstrained
        self._shape = shape
        self._required = required
        self._unconstrained = unconstrained
        self._best_fit = not (unconstrained and gates.mixed)
        self._wanted = shape.count // shape.slice_size

    def run(self) -> tuple[list[int], Counts]:
        """Return the chosen domains of the lowest level with the pods and leaders of each. Raises DoesNotFit."""
        shape, lowest = self._shape, len(self._domains.levels) - 1
        balanced = balance(self._domains, self._counts, shape) if self._balanced else None
        if balanced is not None:
            level, current, self._counts = balanced
        else:
            level, current = self._find(shape.level)
        current = self._spread(current, shape.count, shape.leaders, shape.slice_size, slices=True)
        while balanced is None and level < min(lowest, shape.slice_level):
            below = self._sorted(child for number in current for child in self._domains.children[number])
            current = self._spread(below, shape.count, shape.leaders, shape.slice_size, slices=True)
            level += 1
        while level < lowest:
            size = shape.slice_size if level < shape.slice_level else shape.inner_sizes.get(level + 1, 1)
            level += 1
            current = [child for number in current for child in self._descend(number, size)]
        return current, self._counts

    def _descend(self, number: int, size: int) -> list[int]:
        """Distribute the pods of a domain over its children.

        As in Kueue the children are sorted before their inner slices are counted, so inside slices those with the
        least free capacity come first.
        """
        counts = self._counts
        children = self._sorted(self._domains.children[number])
        if size > 1:
            for child in children:
                counts.slices[child] = counts.pods[child] // size
                counts.slices_with_leader[child] = counts.pods_with_leader[child] // size
        return self._spread(children, counts.pods[number], counts.leaders[number], size, slices=size > 1)

    def _find(self, level: int) -> tuple[int, list[int]]:
        """Return the level and the domains that hold the whole group."""
        counts, leaders = self._counts, self._shape.leaders
        everything = self._domains.by_level[level]
        if not everything:
            raise DoesNotFit(level, None)
        order = self._sorted_with_leader(everything)
        top = order[0]
        if self._takes_all(top) and self._best_fit:
            needed = counts.slices_with_leader if leaders else counts.slices
            return level, [self._smallest(order, self._wanted, needed, leaders)]
        if not self._best_fit:
            for number in order:
                if self._takes_all(number):
                    return level, [number]
        if self._required:
            for at, number in enumerate(order):
                if self._takes_all(number):  # Not the first: domains with a higher affinity score are too small.
                    needed = counts.slices_with_leader if leaders else counts.slices
                    return level, [self._smallest(order[at:], self._wanted, needed, leaders)]
            raise DoesNotFit(level, counts.slices[top])
        if level > 0 and not self._unconstrained:
            return self._find(level - 1)
        return level, self._several(level, order)

    def _takes_all(self, number: int) -> bool:
        counts = self._counts
        return counts.slices_with_leader[number] >= self._wanted and counts.leaders[number] >= self._shape.leaders

    def _several(self, level: int, order: list[int]) -> list[int]:
        """Choose domains greedily until the group fits; the leader's domain comes first."""
        counts = self._counts
        chosen: list[int] = []
        wanted, leaders = self._wanted, self._shape.leaders
        order = self._leader_first(order, self._shape.count, leaders, self._shape.slice_size, slices=True)
        used = 0
        while leaders > 0 and used < len(order) and counts.leaders[order[used]] > 0:
            number = order[used]
            if self._best_fit and counts.slices_with_leader[number] >= wanted:
                number = self._smallest(order[used:], wanted, counts.slices_with_leader, leaders)
            chosen.append(number)
            leaders -= counts.leaders[number]
            wanted -= counts.slices_with_leader[number]
            used += 1
        if leaders > 0:
            raise DoesNotFit(level, self._shape.leaders - leaders)
        rest = self._sorted(order[used:])
        for at, candidate in enumerate(rest):
            if wanted <= 0:
                break
            number = candidate
            if self._best_fit and counts.slices[number] >= wanted:
                number = self._smallest(rest[at:], wanted, counts.slices, 0)
            chosen.append(number)
            wanted -= counts.slices[number]
        if wanted > 0:
            raise DoesNotFit(level, self._wanted - wanted)
        return chosen

    def _spread(self, order: Sequence[int], count: int, leaders: int, size: int, *, slices: bool) -> list[int]:
        """Give `count` pods, in whole slices of `size` or one by one, to as few of the domains as possible."""
        counts = self._counts
        order = self._leader_first(order, count, leaders, size, slices=slices)
        capacity = counts.slices if slices else counts.pods
        with_leader = counts.slices_with_leader if slices else counts.pods_with_leader
        unit = size if slices else 1
        left = count // unit
        chosen: list[int] = []
        for at, candidate in enumerate(order):
            number = candidate
            room = with_leader if leaders else capacity
            if self._best_fit and room[number] >= left and counts.leaders[number] >= leaders:
                number = self._smallest(order[at:], left, room, leaders)
            given = min(room[number], left)
            last = room[number] >= left and counts.leaders[number] >= leaders
            counts.leaders[number] = min(counts.leaders[number], leaders)
            with_leader[number] = min(with_leader[number], left) if leaders else with_leader[number]
            capacity[number], counts.pods[number] = given, given * unit
            chosen.append(number)
            leaders -= counts.leaders[number]
            left -= given
            if last:
                return chosen
        return []

    def _smallest(self, order: Sequence[int], needed: int, room: Sequence[int], leaders: int) -> int:
        """Return the first of the smallest domains with enough capacity; the first of all if none has enough.

        Only domains with the same affinity score as the first one are compared.
        """
        scores = self._counts.scores
        tier = itertools.takewhile(lambda n: scores[n] == scores[order[0]], order)
        enough = [n for n in tier if self._counts.leaders[n] >= leaders and room[n] >= needed]
        return min(enough, key=lambda number: room[number]) if enough else order[0]

    def _leader_first(self, order: Sequence[int], count: int, leaders: int, size: int, *, slices: bool) -> list[int]:
        """Move the first domain that can host the leader and still leaves capacity for all workers to the front."""
        counts = self._counts
        capacity = counts.slices if slices else counts.pods
        with_leader = counts.slices_with_leader if slices else counts.pods_with_leader
        if not leaders or len(order) < 2:
            return list(order)
        spare = sum(capacity[number] for number in order) - (count // size if slices else count)
        for number in order:
            if counts.leaders[number] >= leaders and capacity[number] - with_leader[number] <= spare:
                return [number, *(other for other in order if other != number)]
        return list(order)

    def _sorted_with_leader(self, numbers: Iterable[int]) -> list[int]:
        return sort_with_leader(self._counts, numbers, best_fit=self._best_fit)

    def _sorted(self, numbers: Iterable[int]) -> list[int]:
        return sort_domains(self._counts, numbers, best_fit=self._best_fit)

"""Counts of pods and slices per domain, rolled up from the leaves (Kueue 0.19 TASFlavorSnapshot.fillInCounts)."""

from collections import Counter
from collections.abc import Mapping, Sequence

from msgspec import Struct

from gpuconsole.model.resources import MANY
from gpuconsole.scheduling.kueue.topology.domains import TopologyDomainTree, Values


class PlacementShape(Struct, frozen=True):
    """Placement request of one group of pods; levels are numbers, 0 is the highest."""

    count: int
    leaders: int
    """1 where a leader pod is to be placed with the workers, else 0."""
    level: int
    slice_level: int
    slice_size: int
    inner_sizes: Mapping[int, int]
    """Level → size of further slices inside the slices."""


class Counts:
    """Per domain: capacity after phase 1, assigned pods after phase 2. Mutated by the layout."""

    __slots__ = (
        "excluded",
        "leaders",
        "pods",
        "pods_with_leader",
        "scores",
        "slices",
        "slices_with_leader",
        "total_nodes",
    )

    def __init__(self, size: int) -> None:
        self.pods = [0] * size
        self.slices = [0] * size
        self.pods_with_leader = [0] * size
        self.slices_with_leader = [0] * size
        self.leaders = [0] * size
        self.scores = [0] * size
        """Weights of the preferred node affinity terms that match; not changed in phase 2."""
        self.excluded: Counter[str] = Counter()
        """Reason as the message names it → number of excluded leaves."""
        self.total_nodes = 0

    def copy(self) -> "Counts":
        """Copy the counts; scores and exclusions are shared."""
        twin = Counts(0)
        twin.pods, twin.slices, twin.leaders = self.pods[:], self.slices[:], self.leaders[:]
        twin.pods_with_leader, twin.slices_with_leader = self.pods_with_leader[:], self.slices_with_leader[:]
        twin.scores = self.scores
        twin.excluded, twin.total_nodes = self.excluded, self.total_nodes
        return twin


def belongs_to(values: Values, above: Values) -> bool:
    """True if a domain equals `above` or lies in it; an empty `above` contains every domain."""
    return values[: len(above)] == above


def count_domain(counts: Counts, domains: TopologyDomainTree, number: int, shape: PlacementShape) -> None:
    """Roll up the children's counts; slices are counted at their level and summed above it."""
    level = len(domains.values[number]) - 1
    children = domains.children[number]
    if children:
        _roll_up(counts, number, children, shape, shape.inner_sizes.get(level + 1, 1))
    if level == shape.slice_level:
        counts.slices[number] = counts.pods[number] // shape.slice_size
        counts.slices_with_leader[number] = counts.pods_with_leader[number] // shape.slice_size


def _roll_up(counts: Counts, number: int, children: Sequence[int], shape: PlacementShape, inner: int) -> None:
    """Sum up the children in whole inner slices; the leader goes to the child where it costs the fewest workers."""
    pods = slices = leaders = score = 0
    pod_cost = slice_cost = MANY
    hosts_leader = False
    for child in children:
        child_pods = counts.pods[child] // inner * inner
        pods += child_pods
        slices += counts.slices[child]
        leaders = max(leaders, counts.leaders[child])
        score += counts.scores[child]
        if not shape.leaders or counts.leaders[child]:
            hosts_leader = True
            pod_cost = min(pod_cost, child_pods - counts.pods_with_leader[child] // inner * inner)
            slice_cost = min(slice_cost, counts.slices[child] - counts.slices_with_leader[child])
    counts.pods[number], counts.slices[number], counts.leaders[number] = pods, slices, leaders
    counts.scores[number] = score
    counts.pods_with_leader[number] = pods - pod_cost if hosts_leader else 0
    counts.slices_with_leader[number] = slices - slice_cost if hosts_leader else 0

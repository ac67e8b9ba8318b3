"""Fair sharing: the dominant resource share, which says how much a node borrows (Kueue 0.19 scheduler/fair_sharing.go).

It is the greatest ratio, over resources, of what the node's subtree uses beyond its own quota to what its parent could
lend, in thousandths, divided by the node's weight. Ratios are float64, as in Kueue.
"""

import math
from typing import NamedTuple

from gpuconsole.model.resources import MAX
from gpuconsole.scheduling.kueue.usage import UsageTree


class DominantResourceShare(NamedTuple):
    """The dominant resource share of a ClusterQueue or cohort."""

    ratio: float
    """Unweighted, in thousandths."""
    weight: float
    borrowed: tuple[int, ...] = ()
    """Columns in which the node borrows."""
    dominant: str = ""
    """The resource with the greatest ratio, the first by name if several have it; empty if none is borrowed."""

    @property
    def key(self) -> tuple[bool, float]:
        """Sort key of shares (CompareDRS): borrowing with weight 0 is greater than every weighted share."""
        if self.ratio and not self.weight:
            return True, self.ratio
        return False, self.ratio / self.weight if self.ratio else 0.0

    @property
    def infinite(self) -> bool:
        """True if the node borrows with weight 0."""
        return self.ratio > 0 and self.weight == 0

    @property
    def weighted(self) -> float:
        """The ratio divided by the weight (PreciseWeightedShare)."""
        return math.inf if self.infinite else self.key[1]

    @property
    def rounded(self) -> int:
        """The value of status.fairSharing.weightedShare."""
        return MAX if self.infinite else math.ceil(self.weighted)


LEAST = (False, -1.0)
"""A key below that of every share."""


def share(usage: UsageTree, node: int) -> DominantResourceShare:
    """Return the share of a ClusterQueue or a cohort; its ratio is 0 for a root or a node that borrows nothing."""
    tree = usage.tree
    weight = tree.weights[node]
    parent = tree.parent[node]
    if parent < 0:
        return DominantResourceShare(0.0, weight)
    base = node * tree.width
    borrowed: list[int] = []
    totals: dict[str, int] = {}
    for column in tree.named[node]:
        beyond = usage.usage[base + column] - tree.subtree[base + column]
        if beyond > 0:
            borrowed.append(column)
            resource = tree.columns[column][1]
            totals[resource] = totals.get(resource, 0) + beyond
    ratio, dominant = 0.0, ""
    for resource, total in totals.items():
        lendable = tree.lendable[parent][resource]
        if lendable > 0:
            mine = total * 1000.0 / lendable
            if mine > ratio or (mine == ratio and resource < dominant):
                ratio, dominant = mine, resource
    return DominantResourceShare(ratio, weight, tuple(borrowed), dominant)

"""Fair sharing: the dominant resource share, which says how much a node borrows (Kueue 0.19 scheduler/fair_sharing.go).

It is the greatest ratio, over resources, of what the node's subtree uses beyond its own quota to what its parent could
lend, in thousandths, divided by the node's weight. Ratios are float64, as in Kueue.

The log shows the shares that were compared before a victim was skipped or chosen (Kueue 0.19 fair_sharing_log.go): one
DEBUG record for each ClusterQueue that the first strategy visits, with its comparisons, and one for each that the
second visits. Nothing is gathered while that level is off.
"""

import logging
import math
from typing import NamedTuple

from msgspec import Struct

from gpuconsole.model.resources import MAX
from gpuconsole.scheduling.kueue.quota_tree import UsageTree


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
    def is_infinite(self) -> bool:
        """True if the node borrows with weight 0."""
        return self.ratio > 0 and self.weight == 0

    @property
    def weighted(self) -> float:
        """The ratio divided by the weight (PreciseWeightedShare)."""
        return math.inf if self.is_infinite else self.key[1]

    @property
    def rounded(self) -> int:
        """The value of status.fairSharing.weightedShare."""
        return MAX if self.is_infinite else math.ceil(self.weighted)


LOWEST_SHARE_KEY = (False, -1.0)
"""A key below that of every share."""


def share_of(usage: UsageTree, node: int) -> DominantResourceShare:
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


LOGGER = logging.getLogger(__name__)


class ShareComparison(Struct, frozen=True):
    """A preemption candidate, the share of its branch of the cohort without it, and whether the strategy allows it."""

    workload: str
    share: str
    is_allowed: bool

    def __str__(self) -> str:
        return f"{self.workload} {'goes' if self.is_allowed else 'stays'} (share without it {self.share})"


class LogRecord(Struct, frozen=True):
    """One record of the log: one visit to a ClusterQueue."""

    queue: str
    """The ClusterQueue that may lose workloads."""
    preemptor_share: str
    """Share of the preemptor's branch, the incoming workload included."""
    target_share: str
    comparisons: tuple[ShareComparison, ...] = ()
    """Comparisons of the first strategy; empty if its shares rule out all candidates."""
    is_second_strategy: bool = False
    is_chosen: bool = False
    """True if the second strategy chooses the queue's next candidate."""

    def __str__(self) -> str:
        head = f"fair sharing: {self.preemptor_share} against {self.target_share} of ClusterQueue {self.queue}: "
        if self.is_second_strategy:
            return head + f"its next workload {'goes' if self.is_chosen else 'stays'} by the second strategy"
        return head + ("; ".join(map(str, self.comparisons)) or "no workload of it can pass")


def share_text(share: DominantResourceShare) -> str:
    """Return a share as Kueue writes it: `+Inf` for one that borrows with weight 0 (PreciseWeightedShareSerialized)."""
    return "+Inf" if share.is_infinite else format(share.weighted, "f").rstrip("0").rstrip(".")


def is_log_enabled() -> bool:
    """True if the log is enabled."""
    return LOGGER.isEnabledFor(logging.DEBUG)


def log_record(record: LogRecord) -> None:
    """Write a record to the log."""
    LOGGER.debug("%s", record)

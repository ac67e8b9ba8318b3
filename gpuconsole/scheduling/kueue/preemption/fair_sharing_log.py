"""Logs the shares that fair sharing compared before it skipped or chose a victim (Kueue 0.19 fair_sharing_log.go).

There is one DEBUG record for each ClusterQueue that the first strategy visits, with its comparisons, and one for each
that the second visits. Nothing is gathered while that level is off.
"""

import logging

from msgspec import Struct

from gpuconsole.scheduling.kueue.fair_sharing import DominantResourceShare

LOG = logging.getLogger(__name__)


class ShareComparison(Struct, frozen=True):
    """A candidate, the share of its branch without it, and whether the strategy allows it."""

    workload: str
    share: str
    passed: bool

    def __str__(self) -> str:
        return f"{self.workload} {'goes' if self.passed else 'stays'} (share without it {self.share})"


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
    passed: bool = False
    """True if the second strategy chooses the queue's next candidate."""

    def __str__(self) -> str:
        head = f"fair sharing: {self.preemptor_share} against {self.target_share} of ClusterQueue {self.queue}: "
        if self.is_second_strategy:
            return head + f"its next workload {'goes' if self.passed else 'stays'} by the second strategy"
        return head + ("; ".join(map(str, self.comparisons)) or "no workload of it can pass")


def share_text(share: DominantResourceShare) -> str:
    """Return a share as Kueue writes it: `+Inf` for one that borrows with weight 0 (PreciseWeightedShareSerialized)."""
    return "+Inf" if share.infinite else format(share.weighted, "f").rstrip("0").rstrip(".")


def is_enabled() -> bool:
    """True if the log is enabled."""
    return LOG.isEnabledFor(logging.DEBUG)


def log_record(weighed: LogRecord) -> None:
    """Write a record to the log."""
    LOG.debug("%s", weighed)

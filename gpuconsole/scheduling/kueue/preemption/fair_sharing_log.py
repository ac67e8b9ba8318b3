"""Logs the shares that fair sharing compared before it skipped or chose a victim (Kueue 0.19 fair_sharing_log.go).

At level DEBUG there is one record for each ClusterQueue that the first strategy looks at, with all that it judged
there, and one for each that the second looks at. Nothing is gathered while that level is off.
"""

import logging

from msgspec import Struct

from gpuconsole.scheduling.kueue.fair_sharing import DominantResourceShare

LOG = logging.getLogger(__name__)


class ShareComparison(Struct, frozen=True):
    """A candidate, the share of its branch without it, and whether it may be preempted."""

    workload: str
    share: str
    passed: bool

    def __str__(self) -> str:
        return f"{self.workload} {'goes' if self.passed else 'stays'} (share without it {self.share})"


class LogRecord(Struct, frozen=True):
    """One record of the log."""

    queue: str
    """The ClusterQueue that may lose workloads."""
    preemptor_share: str
    """The preemptor's share, the incoming workload included."""
    target_share: str
    comparisons: tuple[ShareComparison, ...] = ()
    """Comparisons of the first strategy; empty if none of the candidates could pass."""
    is_second_strategy: bool = False
    passed: bool = False
    """Whether the second strategy takes its next workload."""

    def __str__(self) -> str:
        head = f"fair sharing: {self.preemptor_share} against {self.target_share} of ClusterQueue {self.queue}: "
        if self.is_second_strategy:
            return head + f"its next workload {'goes' if self.passed else 'stays'} by the second strategy"
        return head + ("; ".join(map(str, self.comparisons)) or "no workload of it can pass")


def share_text(share: DominantResourceShare) -> str:
    """A share as Kueue writes it: `+Inf` for one that borrows with weight 0 (PreciseWeightedShareSerialized)."""
    return "+Inf" if share.infinite else format(share.weighted, "f").rstrip("0").rstrip(".")


def is_enabled() -> bool:
    """True if the log is enabled."""
    return LOG.isEnabledFor(logging.DEBUG)


def log_record(weighed: LogRecord) -> None:
    LOG.debug("%s", weighed)

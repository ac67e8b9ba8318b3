"""What fair sharing weighed before it spared or took a workload, for the log (Kueue 0.19 fair_sharing_log.go).

At level DEBUG there is one record for each ClusterQueue that the first strategy looks at, with all that it judged
there, and one for each that the second looks at. Nothing is gathered while that level is off.
"""

import logging

from msgspec import Struct

from gpuconsole.scheduling.kueue.fairness import Share

LOG = logging.getLogger(__name__)


class Judged(Struct, frozen=True):
    """A workload, the share of its branch without it, and whether it may be taken."""

    workload: str
    share: str
    passed: bool

    def __str__(self) -> str:
        return f"{self.workload} {'goes' if self.passed else 'stays'} (share without it {self.share})"


class Weighed(Struct, frozen=True):
    """One record of the log."""

    queue: str
    """The ClusterQueue that may lose workloads."""
    mine: str
    """The preemptor's share, the incoming workload included."""
    theirs: str
    judged: tuple[Judged, ...] = ()
    """By the first strategy; nobody where none of them could pass."""
    second: bool = False
    passed: bool = False
    """Whether the second strategy takes its next workload."""

    def __str__(self) -> str:
        head = f"fair sharing: {self.mine} against {self.theirs} of ClusterQueue {self.queue}: "
        if self.second:
            return head + f"its next workload {'goes' if self.passed else 'stays'} by the second strategy"
        return head + ("; ".join(map(str, self.judged)) or "no workload of it can pass")


def written(share: Share) -> str:
    """A share as Kueue writes it: `+Inf` for one that borrows with weight 0 (PreciseWeightedShareSerialized)."""
    return "+Inf" if share.infinite else format(share.weighted, "f").rstrip("0").rstrip(".")


def gathers() -> bool:
    """True if somebody reads this log."""
    return LOG.isEnabledFor(logging.DEBUG)


def tell(weighed: Weighed) -> None:
    LOG.debug("%s", weighed)

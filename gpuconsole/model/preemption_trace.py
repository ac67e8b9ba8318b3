"""Trace of a preemption decision: the candidates in order, and why each was preempted or skipped."""

from enum import StrEnum

from msgspec import Struct

from gpuconsole.model.clock import Time


class CandidateVerdict(StrEnum):
    """Outcome for one preemption candidate."""

    CHOSEN = "chosen"
    PUT_BACK = "put-back"
    """It was chosen, and the others turned out to be enough."""
    NOT_NEEDED = "not-needed"
    """There was room before its turn came."""
    NOT_BORROWING = "not-borrowing"
    """Its queue, or a cohort on the way to it, uses no more than its own quota of what is short."""
    NOT_WHILE_BORROWING = "not-while-borrowing"
    """It may only go for one that does not borrow itself."""
    FAIR_SHARE = "fair-share"
    """Its queue's share is not above that of the preemptor by the strategy of fair sharing."""
    PRIORITY = "priority"
    """The policy takes lower priorities only, or also newer ones of the same."""
    POLICY_NEVER = "policy-never"
    """The preemptor's queue may not take from that queue at all."""


class ConsideredCandidate(Struct, frozen=True, omit_defaults=True):
    """A candidate that uses a contended resource, and the outcome for it."""

    workload: str
    queue: str
    verdict: CandidateVerdict
    priority: int = 0


class PreemptionTrace(Struct, frozen=True, omit_defaults=True):
    """Search for victims. Shares are Kueue's weighted shares in thousandths, before any preemption."""

    share: str = "0"
    """Of the victim's ClusterQueue; `+Inf` for one that borrows with weight 0."""
    by_share: str = "0"
    """Of the preemptor's."""
    considered: tuple[ConsideredCandidate, ...] = ()
    """Those that the rules allow in the order in which they were looked at, then those that they do not."""
    left_out: int = 0
    """So many more were considered."""
    as_of: Time = 0
    """Of when the cluster is on which our engine was asked, where the one who decided told nothing; 0 = it was told."""
    differs: bool = False
    """Our engine, asked so, would not have chosen this victim for that preemptor: nothing else is told then."""

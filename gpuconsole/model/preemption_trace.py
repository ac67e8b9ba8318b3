"""Trace of a preemption decision: the candidates in order, and why each was preempted or skipped."""

from enum import StrEnum

from msgspec import Struct

from gpuconsole.model.clock import Time


class CandidateVerdict(StrEnum):
    """Outcome for one preemption candidate."""

    CHOSEN = "chosen"
    PUT_BACK = "put-back"
    """It was chosen at first, but the other victims were enough."""
    NOT_NEEDED = "not-needed"
    """There was enough capacity without it."""
    NOT_BORROWING = "not-borrowing"
    """Its ClusterQueue, or a cohort above it, is within nominal quota of the contended resources."""
    NOT_WHILE_BORROWING = "not-while-borrowing"
    """The rule allows it only for a preemptor that does not borrow."""
    FAIR_SHARE = "fair-share"
    """Its ClusterQueue's share is not above the preemptor's by the fair sharing strategy."""
    PRIORITY = "priority"
    """The policy allows only lower priorities, or also newer workloads of equal priority."""
    POLICY_NEVER = "policy-never"
    """The policies of the preemptor's ClusterQueue allow no victims in that queue."""


class ConsideredCandidate(Struct, frozen=True, omit_defaults=True):
    """A candidate that uses a contended resource, and the outcome for it."""

    workload: str
    queue: str
    verdict: CandidateVerdict
    priority: int = 0


class PreemptionTrace(Struct, frozen=True, omit_defaults=True):
    """Search for victims. Shares are Kueue's weighted shares in thousandths, before any preemption."""

    share: str = "0"
    """Share of the victim's ClusterQueue; `+Inf` for one that borrows with weight 0."""
    by_share: str = "0"
    """Share of the preemptor's ClusterQueue."""
    considered: tuple[ConsideredCandidate, ...] = ()
    """Candidates that the rules allow, in the order in which they were examined, then the others."""
    left_out: int = 0
    """Number of candidates that are not listed."""
    as_of: Time = 0
    """Time of the cluster state from which our engine reconstructed the trace; 0 if the scheduler reported it."""
    differs: bool = False
    """Our engine would not have chosen this victim in that state; the rest of the trace is empty then."""

"""Text for how Kueue chose preemption victims: chosen, skipped, or not a candidate."""

from gpuconsole.model.decisions import CandidateVerdict, PreemptionTrace

WORDS = {
    CandidateVerdict.CHOSEN: "evicted",
    CandidateVerdict.PUT_BACK: "restored (fill-back): the other victims free enough",
    CandidateVerdict.NOT_NEEDED: "skipped: enough capacity without it",
    CandidateVerdict.NOT_BORROWING: "skipped: its ClusterQueue is within nominal quota",
    CandidateVerdict.NOT_WHILE_BORROWING: "skipped: the preemptor would have to borrow",
    CandidateVerdict.FAIR_SHARE: "skipped: its share would not stay above the preemptor's",
    CandidateVerdict.PRIORITY: "not a candidate: the policy requires a lower priority",
    CandidateVerdict.POLICY_NEVER: "not a candidate: the policy excludes its ClusterQueue",
}


def shares(choice: PreemptionTrace) -> str:
    """Format the weighted shares of the victim's and the preemptor's ClusterQueues."""
    return f"share {_short(choice.share)} ‰ ← {_short(choice.by_share)} ‰"


def _short(share: str) -> str:
    whole, point, _ = share.partition(".")
    return f"~{whole}" if point else whole


def whose(choice: PreemptionTrace, moment: str) -> str:
    """Format the source of a reconstructed choice; empty if the choice was recorded. `moment` is its `as_of`."""
    if not moment:
        return ""
    if choice.differs:
        return f"candidates unknown: a replay from the state at {moment} chose no such victim"
    return f"reconstructed from the state at {moment}"

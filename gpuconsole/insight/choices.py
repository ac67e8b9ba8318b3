"""Text for how Kueue chose preemption victims: chosen, skipped, or not a candidate."""

from gpuconsole.model.choices import Choice, Verdict

WORDS = {
    Verdict.CHOSEN: "evicted",
    Verdict.PUT_BACK: "restored (fill-back): the other victims free enough",
    Verdict.NOT_NEEDED: "skipped: enough capacity without it",
    Verdict.NOT_BORROWING: "skipped: its ClusterQueue is within nominal quota",
    Verdict.NOT_WHILE_BORROWING: "skipped: the preemptor would have to borrow",
    Verdict.FAIR_SHARE: "skipped: its share would not stay above the preemptor's",
    Verdict.PRIORITY: "not a candidate: the policy requires a lower priority",
    Verdict.POLICY_NEVER: "not a candidate: the policy excludes its ClusterQueue",
}


def shares(choice: Choice) -> str:
    """The weighted shares of the victim's and the preemptor's ClusterQueues."""
    return f"share {_short(choice.share)} ‰ ← {_short(choice.by_share)} ‰"


def _short(share: str) -> str:
    whole, point, _ = share.partition(".")
    return f"~{whole}" if point else whole


def whose(choice: Choice, moment: str) -> str:
    """Describe a decision that was reconstructed, not recorded; empty if it was recorded. `moment` is its `as_of`."""
    if not moment:
        return ""
    if choice.differs:
        return f"not reproduced from the state at {moment}: the candidates are unknown"
    return f"reconstructed from the state at {moment}"

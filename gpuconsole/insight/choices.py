"""How a victim was chosen, in words."""

from gpuconsole.model.choices import Choice, Verdict

WORDS = {
    Verdict.CHOSEN: "evicted",
    Verdict.PUT_BACK: "put back: the others make room enough",
    Verdict.NOT_NEEDED: "not needed: there was room before its turn came",
    Verdict.NOT_BORROWING: "spared: its queue uses no more than its own quota",
    Verdict.NOT_WHILE_BORROWING: "spared: it goes only for a workload that does not borrow",
    Verdict.FAIR_SHARE: "spared: its queue's share would not stay above the preemptor's",
    Verdict.PRIORITY: "no candidate: the policy wants a lower priority",
    Verdict.POLICY_NEVER: "no candidate: the policy takes nobody from there",
}


def shares(choice: Choice) -> str:
    """How the queues' shares stood: of the victim's, and of the preemptor's."""
    return f"share {_short(choice.share)} ‰ ← {_short(choice.by_share)} ‰"


def _short(share: str) -> str:
    whole, point, _ = share.partition(".")
    return f"~{whole}" if point else whole


def whose(choice: Choice, moment: str) -> str:
    """Who says so, where the one who decided does not; nothing where that one did. `moment` is its `as_of`."""
    if not moment:
        return ""
    if choice.differs:
        return f"our engine, on the state at {moment}, would not have chosen it: who was considered is unknown"
    return f"reconstructed by our engine on the state at {moment}"

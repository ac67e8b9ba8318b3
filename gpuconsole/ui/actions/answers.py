"""Answers about the whole cluster, each a screen of its own. They stand last: a screen's own keys come first."""

from gpuconsole.ui.actions.action import Action, Scope


def _answer(id: str, key: str, label: str, help: str, *aliases: str, argument: str = "") -> Action:
    name, scope = f"answer.{id}", Scope.ANSWERS
    return Action(
        id=name, keys=(key,), label=label, help=help, scope=scope, aliases=aliases, argument=argument, footer=True
    )


ANSWERS: tuple[Action, ...] = (
    _answer(
        "ledger", "b", "ledger", "Show who lends GPUs to whom, and who would have to go if a lender returned.", "ledger"
    ),
    _answer(
        "slots",
        "F",
        "slots",
        "Show how many gangs would start now, by quota, nodes and topology, and why these differ.",
        "slots",
    ),
    _answer(
        "shares", "f", "shares", "Show fair shares with their arithmetic, and whose turn is next.", "shares", "fair"
    ),
    _answer(
        "antipatterns",
        "L",
        "anti-patterns",
        "Show what wastes GPUs or patience, what it costs a day, and what would mend it.",
        "antipatterns",
        "waste",
    ),
    _answer("risk", "K", "risk", "Show the preemption risk of running workloads.", "risk"),
    _answer(
        "drills",
        "T",
        "drills",
        "Play a drill step by step: predict who has to go, then see who does, and why.",
        "drills",
        "drill",
        argument="[file]",
    ),
)

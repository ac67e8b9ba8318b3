"""Answers about the whole cluster, each a screen of its own. They stand last: a screen's own keys come first."""

from gpuconsole.ui.actions.action import Action, Scope

ANSWERS: tuple[Action, ...] = (
    Action(
        id="answer.ledger",
        keys=("b",),
        label="ledger",
        help="Show who lends GPUs to whom, and who would have to go if a lender returned.",
        scope=Scope.ANSWERS,
        aliases=("ledger",),
    ),
    Action(
        id="answer.slots",
        keys=("F",),
        label="slots",
        help="Show how many gangs would start now, by quota, nodes and topology, and why these differ.",
        scope=Scope.ANSWERS,
        aliases=("slots",),
    ),
    Action(
        id="answer.shares",
        keys=("f",),
        label="shares",
        help="Show fair shares with their arithmetic, and whose turn is next.",
        scope=Scope.ANSWERS,
        aliases=("shares", "fair"),
    ),
    Action(
        id="answer.antipatterns",
        keys=("L",),
        label="anti-patterns",
        help="Show what wastes GPUs or patience, what it costs a day, and what would mend it.",
        scope=Scope.ANSWERS,
        aliases=("antipatterns", "waste"),
    ),
)

"""Actions that open reports about the whole cluster. They come last: a screen's own keys have precedence."""

from gpuconsole.ui.actions.action import Action, Scope


def _answer(id: str, key: str, label: str, help: str, *aliases: str, argument: str = "") -> Action:
    name, scope = f"answer.{id}", Scope.ANSWERS
    return Action(
        id=name, keys=(key,), label=label, help=help, scope=scope, aliases=aliases, argument=argument, footer=True
    )


ANSWERS: tuple[Action, ...] = (
    _answer(
        "ledger", "b", "ledger", "Show quota loans: lenders, borrowers, and workloads evicted by a reclaim.", "ledger"
    ),
    _answer(
        "slots",
        "F",
        "slots",
        "Show how many gangs fit now by quota, nodes and topology.",
        "slots",
    ),
    _answer("shares", "f", "shares", "Show fair shares, their calculation, and the admission order.", "shares", "fair"),
    _answer(
        "antipatterns",
        "L",
        "anti-patterns",
        "Show anti-patterns: wasted GPUs, daily cost, suggested fixes.",
        "antipatterns",
        "waste",
    ),
    _answer("risk", "K", "risk", "Show the preemption risk of running workloads.", "risk"),
    _answer(
        "drills",
        "T",
        "drills",
        "Play a drill: predict the victims of each step, then check.",
        "drills",
        "drill",
        argument="[file]",
    ),
)

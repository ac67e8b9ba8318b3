"""Fair shares and turns in words, with the arithmetic."""

from collections.abc import Sequence

from gpuconsole.insight.engine_shares import RULES, QueueShare
from gpuconsole.insight.shares import NodeShare, Part, Shares, Turn
from gpuconsole.insight.tables import table
from gpuconsole.model.clock import SECOND, Time, format_span
from gpuconsole.model.quantity import format_quantity
from gpuconsole.ui.names import called

TREE = ("NODE", "WEIGHT", "SHARE", "ARITHMETIC")
TURNS = ("TURN", "WORKLOAD", "OUTCOME", "QUEUE", "PRIORITY", "WAITS", "BORROWS", "SHARE WITH IT")
"""What is cut on a narrow screen stands to the right."""
QUEUES = ("QUEUE", "GPUS", "DESERVED", "SHARE", "WAITING", "TURN", "RULES")


def shares_lines(found: Shares | None, queues: Sequence[QueueShare], now: Time) -> list[str]:
    """The answer for people, engine by engine."""
    parts = [_kueue(found, now)] if found is not None and found.tree else []
    for name, rule in RULES.items():
        own = [_queue(queue) for queue in queues if queue.engine == name]
        if own:
            parts.append([f"{name}: next is {rule}", "", *table(QUEUES, own)])
    if not parts:
        return ["there are no queues that share anything"]
    return [line for number, part in enumerate(parts) for line in ([""] if number else []) + part]


def _kueue(found: Shares, now: Time) -> list[str]:
    said = "on" if found.fair_sharing else "off: shares are shown, and decide nothing"
    lines = [f"Kueue, fair sharing {said}", "", *table(TREE, [_node(node) for node in found.tree])]
    lines += ["", f"a cycle takes the first of each queue ({found.within}), in this order: {found.order}"]
    if not found.turns:
        return [*lines, "nobody waits"]
    words = [f"{called(turn.workload)}: {turn.message}" for turn in found.turns if _unsaid(turn)]
    return [*lines, "", *table(TURNS, [_turn(turn, now) for turn in found.turns]), *(["", *words] if words else [])]


def _node(node: NodeShare) -> tuple[object, ...]:
    arithmetic = "; ".join(map(_part, node.parts))
    weight = "–" if node.weight is None else f"{node.weight:g}"
    if node.parts and node.weight != 1:
        arithmetic += f"; divided by weight {weight}"
    return "  " * node.depth + node.name, weight, f"{_rounded(node.share)} ‰", arithmetic or "borrows nothing"


def _rounded(share: str) -> str:
    """A share as the arithmetic beside it prints it; `+Inf` stays."""
    return f"{float(share):.0f}" if share[-1].isdigit() else share


def _part(part: Part) -> str:
    borrowed, lendable = (format_quantity(part.resource, amount) for amount in (part.borrowed, part.lendable))
    return f"{borrowed} {part.resource} borrowed of {lendable} lendable = {part.ratio:.0f} ‰"


def _unsaid(turn: Turn) -> bool:
    """Whether Kueue's words say more than the outcome; who is preempted stands with whoever is."""
    return bool(turn.message) and turn.outcome != "preempts"


def _turn(turn: Turn, now: Time) -> tuple[object, ...]:
    waits = format_span(max(0, now - turn.queued) // SECOND * SECOND)
    borrows, with_it = "–", "–"
    if turn.share_with_it is not None:
        borrows, with_it = f"{turn.borrows} up" if turn.borrows else "no", f"{_rounded(turn.share_with_it)} ‰"
    return turn.place, called(turn.workload), turn.outcome, turn.queue, turn.priority, waits, borrows, with_it


def _queue(queue: QueueShare) -> tuple[object, ...]:
    share = "–" if queue.share is None else f"{100 * queue.share:.0f} %"
    turn = "–" if queue.turn is None else str(queue.turn)
    return "  " * queue.depth + queue.name, queue.used, queue.deserved, share, queue.waiting, turn, queue.words

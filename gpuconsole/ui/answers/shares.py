"""Text of the fair-share report: shares with their calculation, and the admission order."""

from collections.abc import Sequence

from gpuconsole.insight.index.engine_queues import RULES, QueueShare
from gpuconsole.insight.sharing.shares import CycleHead, NodeShare, ShareReport
from gpuconsole.insight.sharing.shares import ResourceShare as Borrowed
from gpuconsole.model.clock import SECOND, Time, format_span
from gpuconsole.model.device_units import WHOLE_GPU
from gpuconsole.model.resources import format_quantity
from gpuconsole.ui.answers.parts import About, AnswerTable, Part, Row, Valued, lines_of
from gpuconsole.ui.names import called

TREE = ("COHORT / QUEUE", "WEIGHT", "SHARE", "CALCULATION")
TURNS = ("ORDER", "WORKLOAD", "OUTCOME", "QUEUE", "PRIORITY", "WAIT", "BORROWING", "SHARE IF ADMITTED")
"""Columns to the right are the first to be cut on a narrow screen."""
TABLES = {"Volcano": "volcano_queues", "KAI": "kai_queues"}
"""Engine → table of its queue objects."""
QUEUES = ("QUEUE", "GPUS", "DESERVED", "SHARE", "PENDING", "ORDER", "RULES")
QUEUES_IN_UNITS = ("QUEUE", "USED", "DESERVED", "SHARE", "PENDING", "ORDER", "UNIT", "RULES")


def shares_lines(found: ShareReport | None, queues: Sequence[QueueShare], now: Time) -> list[str]:
    """The report as text."""
    return lines_of(shares_parts(found, queues, now))


def shares_parts(found: ShareReport | None, queues: Sequence[QueueShare], now: Time) -> list[Part]:
    """The report as lines and tables, engine by engine."""
    parts = [_kueue(found, now)] if found is not None and found.tree else []
    for name, rule in RULES.items():
        own = [queue for queue in queues if queue.engine == name]
        if own:
            # The unit has a column only where some queue counts another unit than whole GPUs.
            said = any(queue.unit != WHOLE_GPU.noun for queue in own)
            rows = tuple(_queue(queue, said) for queue in own)
            parts.append(
                [f"{name}, admission order: {rule}", "", AnswerTable(QUEUES_IN_UNITS if said else QUEUES, rows)]
            )
    if not parts:
        return ["no queues with fair shares"]
    return [line for number, part in enumerate(parts) for line in ([""] if number else []) + part]


def _kueue(found: ShareReport, now: Time) -> list[Part]:
    said = "on" if found.fair_sharing else "off: shares do not affect admission"
    parts: list[Part] = [
        f"Kueue, fair sharing {said}",
        "",
        AnswerTable(TREE, tuple(_node(node) for node in found.tree)),
    ]
    parts += ["", f"each scheduling cycle takes the head of each queue ({found.within}), in this order: {found.order}"]
    if not found.turns:
        return [*parts, "no pending workloads"]
    words = [f"{called(turn.workload)}: {turn.message}" for turn in found.turns if _unsaid(turn)]
    return [
        *parts,
        "",
        AnswerTable(TURNS, tuple(_turn(turn, now) for turn in found.turns)),
        *(["", *words] if words else []),
    ]


def _node(node: NodeShare) -> Row:
    arithmetic = "; ".join(map(_part, node.parts))
    weight = "–" if node.weight is None else f"{node.weight:g}"
    if node.parts and node.weight != 1:
        arithmetic += f"; divided by weight {weight}"
    return Row(
        key=f"{node.kind} {node.name}",
        cells=("  " * node.depth + node.name, weight, _permille(node.share), arithmetic or "borrows nothing"),
        about=About("cluster_queues" if node.kind == "queue" else "cohorts", node.name),
    )


def _permille(share: str) -> Valued:
    return Valued(f"{_rounded(share)} ‰", float(share))


def _rounded(share: str) -> str:
    """A share without decimals, as in the calculation; `+Inf` is unchanged."""
    return f"{float(share):.0f}" if share[-1].isdigit() else share


def _part(part: Borrowed) -> str:
    borrowed, lendable = (format_quantity(part.resource, amount) for amount in (part.borrowed, part.lendable))
    return f"{borrowed} {part.resource} borrowed of {lendable} lendable = {part.ratio:.0f} ‰"


def _unsaid(turn: CycleHead) -> bool:
    """Whether Kueue's message says more than the outcome; the victims of a preemption are listed elsewhere."""
    return bool(turn.message) and turn.outcome != "preempts"


def _turn(turn: CycleHead, now: Time) -> Row:
    waited = max(0, now - turn.queued) // SECOND * SECOND
    borrows: object = "–"
    with_it: object = "–"
    if turn.share_with_it is not None:
        borrows, with_it = f"level {turn.borrows}" if turn.borrows else "no", _permille(turn.share_with_it)
    waits, name = Valued(format_span(waited), waited), called(turn.workload)
    outcome = "stays pending" if turn.outcome == "waits" else turn.outcome
    return Row(
        key=turn.workload,
        cells=(turn.place, name, outcome, turn.queue, turn.priority, waits, borrows, with_it),
        about=About("workloads", turn.workload),
    )


def _queue(queue: QueueShare, unit_said: bool) -> Row:
    share = "–" if queue.share is None else Valued(f"{100 * queue.share:.0f}%", queue.share)
    turn = "–" if queue.turn is None else str(queue.turn)
    name = "  " * queue.depth + queue.name
    numbers = (name, queue.used, queue.deserved, share, queue.waiting, turn)
    return Row(
        key=f"{queue.engine} {queue.name}",
        cells=(*numbers, queue.unit, queue.words) if unit_said else (*numbers, queue.words),
        about=About(TABLES[queue.engine], queue.name),
    )

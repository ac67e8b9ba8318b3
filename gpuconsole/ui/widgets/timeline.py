"""Lines of a workload's timeline: time, interval, event and reason."""

from collections.abc import Iterable

from gpuconsole.insight.timeline import Moment
from gpuconsole.model.events import HistoryEventKind
from gpuconsole.ui import format as fmt
from gpuconsole.ui.names import named
from gpuconsole.ui.paint import GLYPHS, Painted

LOOKS: dict[HistoryEventKind, tuple[str, str]] = {
    HistoryEventKind.SUBMITTED: ("+", "key"),
    HistoryEventKind.PENDING: (GLYPHS["pending"], "pending"),
    HistoryEventKind.RESERVED: ("◒", "held"),
    HistoryEventKind.ADMITTED: (GLYPHS["good"], "good"),
    HistoryEventKind.STARTED: (GLYPHS["running"], "running"),
    HistoryEventKind.PREEMPTED: (GLYPHS["victim"], "victim"),
    HistoryEventKind.EVICTED: (GLYPHS["victim"], "victim"),
    HistoryEventKind.REQUEUED: ("↻", "pending"),
    HistoryEventKind.FINISHED: (GLYPHS["good"], "dim"),
    HistoryEventKind.FAILED: (GLYPHS["fault"], "fault"),
    HistoryEventKind.GANG_WAITING: (GLYPHS["pending"], "pending"),
    HistoryEventKind.PLACES: (GLYPHS["pending"], "pending"),
    HistoryEventKind.DEADLOCK: (GLYPHS["fault"], "fault"),
    HistoryEventKind.COMMAND_REFUSED: (GLYPHS["fault"], "fault"),
}
"""Glyph and role of what happened; anything else is a dim dot."""


def timeline_lines(moments: Iterable[Moment]) -> list[Painted]:
    """A line for each event, oldest first, with the scheduler's message where it adds information."""
    lines: list[Painted] = []
    for moment in moments:
        glyph, role = LOOKS.get(moment.what, ("·", "dim")) if moment.what is not None else ("·", "dim")
        step = f"+{fmt.age(moment.after)}" if moment.after else ""
        head = (f" {fmt.clock(moment.time)} {step:>8} ", "dim")
        cost = f" · {fmt.money(moment.cost)}" if moment.cost else ""
        times = f" {fmt.repeats(moment.count, moment.last - moment.time)}" if moment.count > 1 else ""
        detail = f" {named(moment.detail)}{cost}" if moment.detail or cost else ""
        lines.append((head, (f"{glyph} {moment.title}", role), (f"{times}{detail}", "")))
    return lines

"""How a history event is shown in tables: its role, glyph, object and reason."""

from gpuconsole.insight.timeline import Repeated
from gpuconsole.model.events import HistoryEventKind
from gpuconsole.ui import format as fmt
from gpuconsole.ui.names import called, named
from gpuconsole.ui.paint import Cell

ROLES = {
    HistoryEventKind.ADMITTED: "running",
    HistoryEventKind.STARTED: "running",
    HistoryEventKind.FINISHED: "good",
    HistoryEventKind.PENDING: "pending",
    HistoryEventKind.GANG_WAITING: "pending",
    HistoryEventKind.PLACES: "pending",
    HistoryEventKind.PREEMPTED: "victim",
    HistoryEventKind.EVICTED: "victim",
    HistoryEventKind.POD_EVICTED: "victim",
    HistoryEventKind.FAILED: "fault",
    HistoryEventKind.POD_FAILED: "fault",
    HistoryEventKind.NODE_DOWN: "fault",
    HistoryEventKind.DEADLOCK: "fault",
    HistoryEventKind.COMMAND_REFUSED: "fault",
}
GLYPHS = {"running": "●", "good": "✓", "pending": "◐", "victim": "✖", "fault": "⚠"}
FAULTS = ("victim", "fault")


def event_cell(row: Repeated) -> Cell:
    """The kind of the event, with the glyph of its role."""
    role = ROLES.get(row.line.what, "")
    return ((f"{GLYPHS.get(role, '·')} {row.line.what}", role),)


def subject_of(row: Repeated) -> str:
    """The object that the event is about."""
    line = row.line
    return line.pod or called(line.workload) or line.node or line.queue


def reason_of(row: Repeated) -> str:
    """How often it happened, who caused it, and why."""
    line = row.line
    by = f"by {called(line.by)}: " if line.by else ""
    times = f"{fmt.repeats(row.count, row.span)} " if row.count > 1 else ""
    return f"{times}{by}{named(line.message or line.reason)}"

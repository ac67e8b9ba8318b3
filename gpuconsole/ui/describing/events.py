"""Events of an object, listed as by kubectl describe."""

from collections.abc import Iterable

from gpuconsole.insight.timeline import Repeated, folded
from gpuconsole.model.clock import Time, format_span
from gpuconsole.model.events import HistoryEvent
from gpuconsole.ui import format as fmt
from gpuconsole.ui.names import called
from gpuconsole.ui.paint import Painted
from gpuconsole.ui.widgets.textpane import BLANK, heading, text_line

EVENTS = 30
"""Number of events listed, the newest ones."""


def events(rows: Iterable[HistoryEvent], now: Time, key: str = "") -> list[Painted]:
    """The newest lines of history, oldest first, repeated ones folded.

    With the key of the described object, a line about another workload or pod names that one.
    """
    newest = folded(rows)[-EVENTS:]
    lines = [BLANK, heading("Events")]
    if not newest:
        return [*lines, text_line(("  none recorded", "dim"))]
    return [*lines, *(painted for row in newest for painted in (_event(row, now, key), *_kueue_events(row.line)))]


def _kueue_events(row: HistoryEvent) -> list[Painted]:
    """The Kubernetes Events of the line; a message equal to the line's own is not repeated."""
    return [
        text_line(
            " " * 16,
            (f"{announcement.reason:<16} ", "fault" if announcement.warning else "dim"),
            announcement.message if announcement.message != row.message else "",
        )
        for announcement in row.told
    ]


def _event(repeated: Repeated, now: Time, key: str) -> Painted:
    row = repeated.line
    whose = called(row.workload or row.pod) if key and key not in (row.workload, row.pod) else ""
    times = fmt.repeats(repeated.count, repeated.span)
    by = f"by {called(row.by)}" if row.by else ""
    facts = [whose, times, row.reason, by, f"on {row.node}" if row.node else "", row.message]
    age = format_span(max(0, now - row.time))
    return text_line((f"  {age + ' ago':>12}  ", "dim"), f"{row.what:<16} ", " · ".join(fact for fact in facts if fact))


def about(rows: Iterable[HistoryEvent], table: str, key: str) -> list[HistoryEvent]:
    """The lines of history that concern an object."""
    match table:
        case "pods":
            return [row for row in rows if row.pod == key]
        case "nodes":
            return [row for row in rows if row.node == key]
        case "cluster_queues":
            return [row for row in rows if row.queue == key or row.by_queue == key]
        case "local_queues":
            return [row for row in rows if row.queue == key]
        case _:
            return [row for row in rows if key in (row.workload, row.by)]

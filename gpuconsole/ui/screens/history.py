"""History screen: events, newest first."""

from collections.abc import Sequence

from textual.app import ComposeResult

from gpuconsole.insight.timeline import Repeated, folded
from gpuconsole.model.devices import short_amount
from gpuconsole.model.events import HistoryEvent
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.services.status import ConsoleStatus
from gpuconsole.ui import format as fmt
from gpuconsole.ui.actions import Action, Handlers
from gpuconsole.ui.event_table import FAULTS, ROLES, event_cell, reason_of, subject_of
from gpuconsole.ui.paint import Painted
from gpuconsole.ui.screens.base import ConsoleScreen
from gpuconsole.ui.table_model import Column, with_room_for_units
from gpuconsole.ui.widgets.grid import Grid
from gpuconsole.ui.widgets.painter import Lines
from gpuconsole.ui.widgets.textpane import wrapped

COLUMNS: tuple[Column[Repeated], ...] = (
    Column("TIME", lambda row: fmt.clock(row.line.time), id="age", width=8, sort=lambda row: row.line.time, down=True),
    Column("EVENT", event_cell, id="status", width=17, sort=lambda row: row.line.what),
    Column(
        "OBJECT",
        subject_of,
        id="name",
        width=20,
        flex=2,
        sort=subject_of,
    ),
    Column("QUEUE", lambda row: ((row.line.queue, "dim"),), width=12, rank=2),
    Column(
        "GPUs",
        lambda row: short_amount(row.line.gpus, row.line.unit) if row.line.gpus else "",
        id="usage",
        width=4,
        align="right",
        rank=1,
        sort=lambda row: row.line.gpus,
        down=True,
    ),
    Column("REASON", reason_of, width=16, flex=3),
)


class HistoryScreen(ConsoleScreen):
    """The newest events; repeated ones are folded into one."""

    view = "history"

    def body(self) -> ComposeResult:
        yield Lines(id="unsaved")
        yield Grid(
            COLUMNS,
            key=_key,
            fault=lambda row: ROLES.get(row.line.what, "") in FAULTS,
            empty="No events yet.",
            follow=True,
        )

    def show(self, snapshot: Snapshot) -> None:
        if self.grid is not None:
            lines = folded(in_namespaces(snapshot.recent, self.namespaces))[::-1]
            columns = with_room_for_units(COLUMNS, (one.line.unit for one in lines))
            if columns != self.grid.columns:
                self.grid.columns = columns
            self.grid.show(lines)

    def show_header(self) -> None:
        super().show_header()
        if self.stands:
            told = unrecorded(self.console.status)
            self.query_one("#unsaved", Lines).lines = tuple(wrapped(told, self.size.width)) if told else ()

    def handlers(self) -> Handlers:
        return {**super().handlers(), "object.open": self._open, "object.explain": self._tell}

    def refusal(self, action: Action) -> str:
        if action.id == "object.open" and (self._row is None or not self._row.line.workload):
            return "this event is not about a workload"
        if action.id == "object.explain" and self._row is None:
            return "no event is selected"
        return super().refusal(action)

    @property
    def _row(self) -> Repeated | None:
        row = self.grid.current if self.grid is not None else None
        return row if isinstance(row, Repeated) else None

    def _open(self) -> None:
        if self._row is not None:
            self.console_app.go("workloads", at=self._row.line.workload)

    def _tell(self) -> None:
        """Show the whole event, which the table may cut."""
        row = self._row
        if row is not None:
            self.flash(f"{fmt.date_and_clock(row.line.time)}: {row.line.what} {subject_of(row)} {reason_of(row)}")


def unrecorded(status: ConsoleStatus) -> Painted:
    """Say why this console does not record the history, and what to do; empty if it does."""
    if not status.history:
        return ()
    if not status.reads_history:
        return (("⚠ The history is not recorded", "fault"), (f": {status.history}", ""))
    writer = f"another process ({status.history_writer})"
    change = f" {status.refusal}." if status.read_only else ""
    return ((f"The history of this cluster is recorded by {writer}", "held"), (f", and read here.{change}", ""))


def _key(row: Repeated) -> str:
    line = row.line
    return f"{row.first} {line.what} {line.workload} {line.pod} {line.node} {line.by} {line.message}"


def in_namespaces(lines: Sequence[HistoryEvent], names: frozenset[str]) -> Sequence[HistoryEvent]:
    """Events of these namespaces and of cluster-scoped objects; no names = all."""
    if not names:
        return lines
    return [line for line in lines if not (line.workload or line.pod) or _namespace(line) in names]


def _namespace(line: HistoryEvent) -> str:
    """Namespace of a workload or pod `ns/name`, or of a job `Kind/ns/name`."""
    return (line.workload or line.pod).split("/")[-2] if "/" in (line.workload or line.pod) else ""

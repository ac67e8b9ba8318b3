"""Workloads screen: pending workloads with their position and estimated start, running ones with their quota."""

from collections.abc import Callable, Iterator

from textual.app import ComposeResult

from gpuconsole.insight.forecast.estimates import StartEstimates
from gpuconsole.model.clock import Time
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.model.workloads import WorkloadPhase
from gpuconsole.services.analysis import AnalysisService
from gpuconsole.ui.actions import Handlers
from gpuconsole.ui.paint import Cell
from gpuconsole.ui.screens.background import AnswerPoller, SnapshotWorker
from gpuconsole.ui.screens.objects import Subject
from gpuconsole.ui.screens.workload_actions import WorkloadScreen
from gpuconsole.ui.screens.workload_detail import AHEAD_SHARE, WorkloadDetailScreen
from gpuconsole.ui.table_model import Column
from gpuconsole.ui.widgets.grid import Grid
from gpuconsole.ui.workload_table import Listing, WorkloadRow, WorkloadRows, columns
from gpuconsole.ui.workload_text import forecast_column, moments

_WAITING = (WorkloadPhase.PENDING, WorkloadPhase.QUOTA_RESERVED)


def starts_column(newest: Callable[[], StartEstimates], now: Callable[[], Time]) -> Column[WorkloadRow]:
    """Return the column of estimated starts (80% interval); it shows the `newest` estimates, and no expired ones."""

    def cell(row: WorkloadRow) -> Cell:
        found = newest().estimates.get(row.key)
        if found is None or row.phase not in _WAITING:
            return ""
        left = moments(found, now())
        return f"~{left}" if left and not found.beyond else left

    def order(row: WorkloadRow) -> tuple[bool, Time]:
        found = newest().estimates.get(row.key) if row.phase in _WAITING else None
        return (False, found.horizon if found.beyond else found.median) if found is not None else (True, 0)

    return Column("EST. START", cell, id="starts", width=12, flex=1, sort=order, rank=3)


NO_OUTLOOK = StartEstimates()


class WorkloadsScreen(WorkloadScreen):
    """All workloads in one table, pending ones first, by position."""

    view = "workloads"
    reads = frozenset({"workloads"})

    def __init__(self) -> None:
        super().__init__()
        rows = WorkloadRows()
        self._listing = Listing()
        self._outlooks: AnswerPoller[StartEstimates] = AnswerPoller(self, "", _outlook, self._draw, share=AHEAD_SHARE)
        self._listings = SnapshotWorker(self, lambda snapshot: rows.update(snapshot, self.namespaces), self._list)

    def body(self) -> ComposeResult:
        yield Grid(
            (*columns(lambda: self._listing), *self._start_columns(), *self._forecast_columns()),
            key=lambda row: row.key,
            labels=lambda row: row.workload.labels,
            fault=lambda row: row.phase in (WorkloadPhase.FAILED, WorkloadPhase.EVICTED) or row.workload.evictions > 0,
            empty="No workloads. Press n to submit a job, 0 for all namespaces.",
        )

    def _start_columns(self) -> tuple[Column[WorkloadRow], ...]:
        """The column of estimated starts, if a worker process can run forecasts."""
        if not self.console.answers.foretells:
            return ()
        return (starts_column(lambda: self._outlooks.answer or NO_OUTLOOK, lambda: self._listing.time),)

    def _forecast_columns(self) -> tuple[Column[WorkloadRow], ...]:
        """The column of Kueue's next decision, for clusters that the simulator does not drive."""
        return (forecast_column(lambda: self.console.forecast),) if self.console.foresees else ()

    def show(self, snapshot: Snapshot) -> None:
        self._listings.ask(snapshot)
        if self.console.answers.foretells:
            self._outlooks.ask(self.console.answers)

    def _list(self, listing: Listing) -> None:
        self._listing = listing
        self._draw()

    def _draw(self) -> None:
        self.query_one(Grid).show(self._listing.rows)

    def subject(self) -> Subject | None:
        row = self._row
        return subject_of(row) if row is not None else None

    def subjects(self) -> list[Subject]:
        grid = self.grid
        return [subject_of(row) for row in grid.targets] if grid is not None else []

    @property
    def _row(self) -> WorkloadRow | None:
        return self.grid.current if self.grid is not None else None

    def handlers(self) -> Handlers:
        row = self._row
        if row is None:
            return super().handlers()
        return {
            **super().handlers(),
            "object.open": lambda: self.open(WorkloadDetailScreen(row.key)),
            "object.explain": lambda: self.open(WorkloadDetailScreen(row.key)),
        }


def _outlook(answers: AnalysisService, _: str) -> Iterator[StartEstimates]:
    return answers.outlook()


def subject_of(row: WorkloadRow) -> Subject:
    """Return the object that a row shows: its Workload, or else the job or pod itself."""
    if not row.stands_in:
        return Subject("workloads", row.key)
    return Subject("jobs" if row.stands_in.count("/") > 1 else "pods", row.stands_in)

"""`gpuconsole metrics`: serves Prometheus metrics of a cluster, or of its recorded history."""

import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import click

from gpuconsole.cli.headless import ESTIMATES, Listener, ListenerType, run_headless, say, serve, wait_for_signals
from gpuconsole.cli.options import BUDGETS, OpenRequest, budgets_of, clustered, configured
from gpuconsole.cli.run import ConsoleOptions, log_to, open_console
from gpuconsole.errors import HistoryError, UsageError
from gpuconsole.insight.cost.allocation import CostHour
from gpuconsole.insight.cost.report import Budget
from gpuconsole.insight.forecast.backtest import ForecastDifferences
from gpuconsole.insight.preemption.history import Losses
from gpuconsole.model.clock import Time
from gpuconsole.model.events import HistoryEvent, HistoryEventKind
from gpuconsole.model.prices import Prices
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.services.status import ConsoleMode, ConsoleStatus
from gpuconsole.services.time_travel import recorded_cluster
from gpuconsole.store import queries
from gpuconsole.store.recorder import ENDLESS, newest
from gpuconsole.store.schema import reading

RENEWED = 15.0
"""Minimum seconds between two reads of a history, as rebuilding a cluster takes up to a second."""
ENDED = 180.0
"""Seconds without a write after which nobody records: a recorder writes samples once a minute."""


@click.command()
@clustered
@click.option("--speed", type=click.FloatRange(1, 10_000), help="Simulated seconds per wall-clock second.")
@click.option(
    "--history",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Serve what another process records to this file.",
)
@click.option(
    "--listen",
    type=ListenerType(),
    metavar="ADDRESS",
    default="127.0.0.1:9090",
    show_default=True,
    help="Address to serve on; :PORT for all interfaces.",
)
@ESTIMATES
@BUDGETS
def command(
    request: OpenRequest,
    speed: float | None,
    history: Path | None,
    listen: Listener,
    estimates: bool,
    budgets: tuple[Budget, ...],
) -> int:
    """Serve Prometheus metrics of a cluster at http://ADDRESS/metrics.

    Of FILES, the metrics of their simulation. Costs and counts begin with the start of this command; to keep them, use
    `gpuconsole record --metrics`, or --history beside a console or recorder that runs.
    """
    if history is not None and (request.files or request.live or request.snapshot is not None or estimates):
        raise UsageError("--history reads what was recorded; omit FILES, --live, --snapshot and --estimates")
    request, settings = configured(request, speed=speed, read_only=True, worker=estimates)
    budgets = tuple(budgets_of(budgets, settings.cost))
    if problem := log_to(settings.log_file, settings.log_level):
        say(problem)
    if history is not None:
        return _serve_history(RecordedHistory(history), listen, budgets)
    with tempfile.TemporaryDirectory(prefix="gpuconsole-") as folder:
        options = ConsoleOptions(has_screen=False, forecasts=estimates, history=Path(folder) / "history.db")
        console = open_console(request, settings, options)
        return run_headless(console, None, listen, budgets)


def _serve_history(source: "RecordedHistory", listen: Listener, budgets: Sequence[Budget]) -> int:
    server = serve(source, listen, budgets)
    say(f"serving metrics of {source.status.source} in {source.path} on {server.listener}/metrics")
    try:
        wait_for_signals().wait()
    finally:
        server.close()
    return 0


class RecordedHistory:
    """The newest recording of a history, which another process writes, as a source of metrics. Mutates.

    The newest state is read again at most every RENEWED seconds.
    """

    prices = Prices()
    event_counts: Mapping[tuple[HistoryEventKind, str, str], int] = {}
    """Empty: counters need a process that sees the events."""

    def __init__(self, path: Path) -> None:
        """Read the newest state. Raises HistoryError."""
        self.path = path
        self._read = 0.0
        self._renew()

    @property
    def snapshot(self) -> Snapshot:
        """The newest recorded state; the last one that could be read."""
        if time.monotonic() - self._read >= RENEWED:
            try:
                self._renew()
            except HistoryError as error:
                self._problem, self._read = str(error), time.monotonic()
        return self._cluster.snapshot

    @property
    def status(self) -> ConsoleStatus:
        """The source, the time and the age of the recorded state."""
        recording = self._cluster.recording
        wal = Path(f"{self.path}-wal")
        # A reader creates an empty one.
        files = (self.path, wal) if wal.exists() and wal.stat().st_size else (self.path,)
        written = max(file.stat().st_mtime for file in files)
        age = max(0.0, time.time() - written)  # noqa: TID251 - compared with a file's time
        return ConsoleStatus(
            mode=ConsoleMode(recording.mode),
            source=recording.source,
            time=self._cluster.snapshot.time,
            age=age,
            stalled="nothing is recorded any more" if age > ENDED else "",
            history=self._problem,
        )

    @property
    def compared(self) -> ForecastDifferences:
        """How forecasts differed from Kueue's decisions, in all sessions."""
        with reading(self.path) as db:
            return queries.compared(db, 0)

    def cost_hours(self, since: Time, until: Time) -> list[CostHour]:
        """Return the costs of the hours that overlap [since, until). Raises HistoryError."""
        with reading(self.path) as db:
            return queries.cost_hours(db, self._cluster.recording.id, since, until)

    def losses(self) -> Losses:
        """Return the work lost in the newest session. Raises HistoryError."""
        with reading(self.path) as db:
            session = newest(db)
            return queries.losses(db, session.number, ENDLESS) if session is not None else {}

    def preemptions(self, limit: int) -> tuple[HistoryEvent, ...]:
        """Return the newest preemptions of the newest session, with their outcomes. Raises HistoryError."""
        with reading(self.path) as db:
            session = newest(db)
            return tuple(queries.preemptions(db, session.number, limit).values()) if session is not None else ()

    def _renew(self) -> None:
        with reading(self.path) as db:
            recordings = queries.recordings(db)
            if not recordings:
                raise HistoryError(f"{self.path}: nothing is recorded; start `gpuconsole record` first")
            self._cluster = recorded_cluster(db, recordings[-1], recordings[-1].last)
        self._problem, self._read = "", time.monotonic()

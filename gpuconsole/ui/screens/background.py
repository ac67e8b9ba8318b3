"""Background work of screens: requests to the cluster, external programs, and computations too slow for key presses.

Python runs one thread at a time, so each computing thread slows down the one that handles keys. Therefore at most one
screen computes at a time, and new data wait: with 100,000 workloads one computation takes a quarter of a second.
"""

import logging
import subprocess
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from textual.app import SuspendNotSupported
from textual.worker import Worker, get_current_worker

from gpuconsole.errors import ConsoleError

if TYPE_CHECKING:
    from gpuconsole.ui.screens.base import ConsoleScreen
import threading
import time
from collections.abc import Iterator
from contextlib import nullcontext
from functools import partial
from typing import Generic, Protocol

from textual.timer import Timer

from gpuconsole.insight.series import Samples, SeriesKind, by_hour
from gpuconsole.model.clock import DAY, MINUTE, Span, Time, next_multiple
from gpuconsole.model.cooperative import Progress
from gpuconsole.model.devices import WHOLE_GPU
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.services.analysis import AnalysisService
from gpuconsole.ui.actions import Handlers
from gpuconsole.ui.screens.base import ConsoleScreen
from gpuconsole.ui.widgets.trends import WINDOWS, SeriesName, Trend, TrendWindow, trend_of

LOG = logging.getLogger(__name__)
Answer = TypeVar("Answer")


def run_in_background(screen: "ConsoleScreen", work: Callable[[], Answer], then: Callable[[Answer], object]) -> None:
    """Run `work` in a thread, then call `then` with its result; an error is shown as a toast."""

    def run() -> None:
        try:
            answer = work()
        except ConsoleError as error:
            screen.app.call_later(screen.flash, str(error), "error")
            return
        if not get_current_worker().is_cancelled:
            screen.app.call_later(then, answer)

    screen.run_worker(run, thread=True, group="errands")


def outside(screen: "ConsoleScreen", command: Sequence[str]) -> int | None:
    """Run another program in the terminal; return its exit status, or None if it could not run, which a toast says."""
    try:
        with screen.app.suspend():
            return subprocess.call(command)
    except SuspendNotSupported:
        screen.flash("Cannot start an external program in this terminal", "error")
    except OSError as error:
        LOG.info("%s: %s", command[0], error)
        screen.flash(f"Cannot run {command[0]}: {error.strerror or error}", "error")
    return None


REST = 10.0
"""Minimum pause in seconds between two computations about the same workload."""
POLLING_SHARE = 4.0


class LongAnswer(Generic[Answer]):
    """Runs a long analysis in a thread, and hands its screen one piece after the other.

    A cancelled run delivers nothing more, and neither does one whose screen is closed, or whose time the console does
    not show any more. Not thread-safe: only the screen calls it.
    """

    def __init__(
        self,
        screen: ConsoleScreen,
        steps: Callable[[AnalysisService], Iterator[Progress[Answer]]],
        show: Callable[[Progress[Answer]], object],
        fail: Callable[[ConsoleError], object],
    ) -> None:
        """`steps` begins the analysis in the thread: it may block, and raise ConsoleError.

        `show` gets each piece, `fail` the error in place of the last one; by then the run is not running any more.
        """
        self._screen = screen
        self._steps = steps
        self._show = show
        self._fail = fail
        self._worker: Worker[None] | None = None
        """The run whose pieces are delivered; None if there is none."""
        self._answers: AnalysisService | None = None
        """What it was started with; the console has another one for each time that it shows."""

    @property
    def is_running(self) -> bool:
        return self._worker is not None

    @property
    def is_outdated(self) -> bool:
        """Whether it runs, but for a time that the console does not show any more: start it again."""
        return self.is_running and self._answers is not self._screen.console.answers

    def start(self) -> None:
        """Start the analysis of the shown time, in place of one that runs."""
        self.cancel()
        self._answers = self._screen.console.answers
        work = partial(self._run, self._answers)
        self._worker = self._screen.run_worker(work, thread=True, group=f"long-answer-{id(self)}")

    def cancel(self) -> None:
        """Cancel the run, if there is one."""
        if self._worker is not None:
            self._worker.cancel()
            self._worker = None

    def _run(self, answers: AnalysisService) -> None:
        worker: Worker[None] = get_current_worker()
        try:
            for piece in self._steps(answers):
                # Not requesting the next piece cancels the rest.
                if worker.is_cancelled:
                    return
                self._screen.call_later(self._came, worker, piece)
        except ConsoleError as error:
            self._screen.call_later(self._failed, worker, error)

    def _came(self, worker: Worker[None], piece: Progress[Answer]) -> None:
        self._deliver(worker, partial(self._show, piece), last=piece.last)

    def _failed(self, worker: Worker[None], error: ConsoleError) -> None:
        self._deliver(worker, partial(self._fail, error), last=True)

    def _deliver(self, worker: Worker[None], show: Callable[[], object], *, last: bool) -> None:
        if worker is not self._worker or self.is_outdated or not self._screen.stands:
            return
        if last:
            self._worker = None
        self._screen.safely(show)


class AnswerPoller(Generic[Answer]):
    """Repeats a slow computation about one or all workloads while its screen is open, and keeps the newest result.

    Partial results are shown as they arrive; leaving the page cancels the rest. Not thread-safe: only the screen calls
    it.
    """

    def __init__(
        self,
        screen: ConsoleScreen,
        question: Callable[[AnalysisService], Iterator[Progress[Answer]]],
        show: Callable[[], object],
        *,
        share: float = POLLING_SHARE,
    ) -> None:
        """Create a poller that repeats the long analysis `question`, and calls `show` after each result.

        The pause after a computation is `share` times as long as the computation took, and at least `REST` seconds.
        """
        self._screen = screen
        self._show = show
        self._share = share
        self._run = LongAnswer(screen, question, self._came, self._failed)
        self._began = self._next = 0.0
        self._answers: AnalysisService | None = None
        self._is_first = True
        """Whether partial results are shown; later the last complete result stays until the next one."""
        self.progress: Progress[Answer] | None = None
        """The newest progress with a result."""
        self.problem = ""
        """Why there is no result."""

    @property
    def busy(self) -> bool:
        return self._run.is_running

    @property
    def answer(self) -> Answer | None:
        """The newest result, perhaps a partial one."""
        return self.progress.answer if self.progress is not None else None

    def ask(self, *, now: bool = False) -> None:
        """Start the computation in a thread, unless one runs or the pause is not over; `now` skips the pause."""
        answers = self._screen.console.answers
        if answers is not self._answers:
            # The console shows another time: what was computed about the one before is not true any more.
            self._run.cancel()
            self._answers, self.progress, self.problem, now = answers, None, "", True
        if self.busy or (not now and time.monotonic() < self._next):
            return
        self._is_first, self._began = self.answer is None, time.monotonic()
        self._run.start()

    def _came(self, progress: Progress[Answer]) -> None:
        if progress.last:
            self._rest()
        if progress.answer is not None and (progress.last or self._is_first):
            self.progress, self.problem = progress, ""
            self._show()

    def _failed(self, error: ConsoleError) -> None:
        self._rest()
        self.problem = str(error)
        self._show()

    def _rest(self) -> None:
        now = time.monotonic()
        self._next = now + max(REST, self._share * (now - self._began))


MANY = 1000
"""From this number of workloads, pods or nodes on, a Snapshot is processed in a thread."""
SHARE = 3.0
"""Pause after a computation, as a multiple of its duration: computing takes at most a quarter of the time."""


_TURN = threading.Lock()
GROUP = "background"
"""Textual worker group of these threads."""


class SnapshotWorker(Generic[Answer]):
    """Computes what a screen shows from the newest Snapshot, in the background; skips those that arrive meanwhile.

    The first computation starts immediately, and so does a repeated request for the same Snapshot, as the operator made
    it. Others, caused by new data, start after a pause and when no keys are pressed.
    """

    def __init__(
        self,
        screen: ConsoleScreen,
        answer: Callable[[Snapshot], Answer],
        show: Callable[[Answer], object],
        *,
        reads: bool = False,
    ) -> None:
        """`answer` runs in a thread if the cluster is large, or if it `reads` the store."""
        self._reads = reads
        self._screen = screen
        self._answer = answer
        self._show = show
        self._asked: Snapshot | None = None
        """The Snapshot requested last."""
        self._owed = False
        """Whether its computation has not started yet."""
        self._urgent = False
        self._thinking = False
        self._rested = 0.0
        """End of the pause, by `time.monotonic`."""
        self._since = 0.0
        """Time of the oldest pending request, by the same clock."""
        self._timer: Timer | None = None

    def ask(self, snapshot: Snapshot) -> None:
        """Request that this Snapshot is processed and its result shown, now or later."""
        self._urgent = self._urgent or snapshot is self._asked or self._asked is None
        self._asked = snapshot
        if not self._owed:
            self._owed, self._since = True, time.monotonic()
        self._begin()

    def _begin(self) -> None:
        """Start the pending computation if it is due."""
        if self._timer is not None:
            self._timer.stop()
            self._timer = None
        snapshot = self._asked
        if snapshot is None or not self._owed or self._thinking:
            return
        if not self._reads and max(len(snapshot.workloads), len(snapshot.pods), len(snapshot.nodes)) < MANY:
            self._owed = self._urgent = False
            self._show(self._answer(snapshot))
            return
        if not (self._urgent or self._screen.is_current):
            # The screen is not active; when it is again, it requests the newest Snapshot.
            self._owed = False
            return
        wait = max(self._rested - time.monotonic(), self._screen.console_app.pace.wait(self._since))
        if wait > 0 and not self._urgent:
            self._timer = self._screen.set_timer(wait, self._begin)
            return
        self._owed = self._urgent = False
        self._thinking = True
        self._screen.run_worker(partial(self._think, snapshot), thread=True, group=GROUP)

    def _think(self, snapshot: Snapshot) -> None:
        with nullcontext() if self._reads else _TURN:
            began = time.thread_time()
            answer = self._answer(snapshot)
            # CPU time only: waiting for keys or other programs does not count.
            took = time.thread_time() - began
        if not get_current_worker().is_cancelled:
            self._screen.call_later(self._done, answer, took)

    def _done(self, answer: Answer, took: float) -> None:
        self._thinking = False
        self._rested = time.monotonic() + SHARE * took
        self._screen.safely(partial(self._show, answer))
        self._begin()


class TrendReader:
    """Reads the time series of one queue or the whole cluster from the history, for a window that the user changes.

    It reads again when the series or the window changes, or a new minute or hour begins. Not thread-safe: only the
    screen calls it.
    """

    def __init__(self, screen: ConsoleScreen, show: Callable[[Trend | None], object], window: int = 0) -> None:
        """`window` is an index of WINDOWS. `show` gets None if nothing is to be shown, or the history is unreadable."""
        self._screen = screen
        self._show = show
        self._worker = SnapshotWorker(screen, self._read, self._came, reads=True)
        self._series: SeriesName | None = None
        self._unit = WHOLE_GPU.noun
        self._window = window
        self._asked: tuple[SeriesName | None, TrendWindow, Time] | None = None

    @property
    def window(self) -> TrendWindow:
        """The current window."""
        return WINDOWS[self._window]

    def handlers(self) -> Handlers:
        """Return the actions that change the window; none without a stored history."""
        if not self._screen.console.keeps_history:
            return {}
        return {"window.longer": lambda: self._change(1), "window.shorter": lambda: self._change(-1)}

    def ask(self, snapshot: Snapshot, series: SeriesName | None, unit: str = WHOLE_GPU.noun) -> None:
        """Show the trend of a series that ends with this Snapshot; of none, if `series` is None."""
        if series is None or not self._screen.console.keeps_history:
            self._series = self._asked = None
            self._show(None)
            return
        self._series, self._unit = series, unit
        wanted = series, self.window, snapshot.time // self.window.step
        if wanted != self._asked:
            self._asked = wanted
            self._worker.ask(snapshot)

    def _change(self, steps: int) -> None:
        place = self._window + steps
        if not 0 <= place < len(WINDOWS):
            limit = "are the longest" if steps > 0 else "is the shortest"
            self._screen.flash(f"The {self.window.name} {limit} window")
            return
        self._window = place
        self._screen.redraw()

    def _read(self, snapshot: Snapshot) -> Trend | None:
        series, window = self._series, self.window
        if series is None:
            return None
        try:
            found = read_samples(self._screen.console.samples, series, window, snapshot.time)
        except ConsoleError as error:
            LOG.warning("The trends cannot be read: %s", error)
            return None
        return trend_of(found, series, window, snapshot.time, self._unit)

    def _came(self, trend: Trend | None) -> None:
        if trend is None or (trend.series, trend.window) == (self._series, self.window):
            self._show(trend)


class ReadSamples(Protocol):
    """Reads recorded samples, as `Console.samples` does."""

    def __call__(
        self, since: Time, until: Time, span: Span, *, kind: SeriesKind | None = None, name: str | None = None
    ) -> list[Samples]: ...


def read_samples(read: ReadSamples, series: SeriesName, window: TrendWindow, now: Time) -> list[Samples]:
    """Read the samples of a window, oldest first; hours that are not reduced yet are reduced from their minutes."""
    until = next_multiple(now, window.step)
    since = until - window.span
    found = read(since, until, window.step, kind=series.kind, name=series.name)
    if window.step == MINUTE:
        return found
    begin = max(found[-1].time + window.step if found else since, until - 2 * DAY)
    minutes = read(begin, until, MINUTE, kind=series.kind, name=series.name)
    return [*found, *by_hour(minutes)]

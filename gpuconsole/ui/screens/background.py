"""Background work of screens: requests to the cluster, external programs, and computations too slow for key presses.

Python runs one thread at a time, so each computing thread slows down the one that handles keys. Therefore at most one
screen computes at a time, and new data wait: with 100,000 workloads one computation takes a quarter of a second.
"""

import logging
import subprocess
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from textual.app import SuspendNotSupported
from textual.worker import get_current_worker

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


Question = Callable[[AnalysisService, str], Iterator[Progress[Answer]]]
"""A long analysis: (AnalysisService, workload key) → its progress. It may block, and raise ConsoleError."""


class AnswerPoller(Generic[Answer]):
    """Repeats a slow computation about one or all workloads while its screen is open, and keeps the newest result.

    Partial results are shown as they arrive; leaving the page cancels the rest. Not thread-safe: only the screen calls
    it.
    """

    def __init__(
        self,
        screen: ConsoleScreen,
        key: str,
        question: Question[Answer],
        show: Callable[[], object],
        *,
        share: float = POLLING_SHARE,
    ) -> None:
        """Create a poller that calls `question` with the workload's `key` (empty for all workloads).

        It calls `show` after each result. The pause after a computation is `share` times as long as the computation
        took, and at least `REST` seconds.
        """
        self._screen = screen
        self._key = key
        self._question = question
        self._show = show
        self._share = share
        self._next = 0.0
        self._answers: AnalysisService | None = None
        self._is_superseded = False
        """Whether the console shows another time than that for which a result is being computed."""
        self.busy = False
        self.progress: Progress[Answer] | None = None
        """The newest progress with a result."""
        self.problem = ""
        """Why there is no result."""

    @property
    def answer(self) -> Answer | None:
        """The newest result, perhaps a partial one."""
        return self.progress.answer if self.progress is not None else None

    def ask(self, answers: AnalysisService, *, now: bool = False) -> None:
        """Start the computation in a thread, unless one runs or the pause is not over; `now` skips the pause."""
        if answers is not self._answers:
            # The console shows another time: what was computed about the one before is not true any more.
            self._answers, self.progress, self.problem, now = answers, None, "", True
            self._is_superseded = self.busy
        if self.busy or (not now and time.monotonic() < self._next):
            return
        self.busy = True
        # Partial results are shown only the first time; later the last complete result stays until the next one.
        work = partial(self._try, answers, self.answer is None)
        self._screen.run_worker(work, thread=True, group=f"ask-{id(self)}")

    def _try(self, answers: AnalysisService, in_pieces: bool) -> None:
        began, worker = time.monotonic(), get_current_worker()
        whole: Progress[Answer] | None = None
        problem = ""
        try:
            for progress in self._question(answers, self._key):
                # Not requesting the next piece cancels the rest.
                if worker.is_cancelled:
                    return
                if progress.answer is not None:
                    whole = progress
                    if in_pieces:
                        self._screen.call_later(self._came, progress)
        except ConsoleError as error:
            whole, problem = None, str(error)
        if not worker.is_cancelled:
            self._screen.call_later(self._ended, whole, problem, time.monotonic() - began)

    def _came(self, progress: Progress[Answer]) -> None:
        if not self._is_superseded:
            self.progress, self.problem = progress, ""
            self._screen.safely(self._show)

    def _ended(self, whole: Progress[Answer] | None, problem: str, took: float) -> None:
        self.busy = False
        if self._is_superseded and self._answers is not None:
            self._is_superseded = False
            self.ask(self._answers, now=True)
            return
        self.problem = problem
        self._next = time.monotonic() + max(REST, self._share * took)
        self.progress = whole or self.progress
        self._screen.safely(self._show)


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

"""Time travel: the keys of the time line, which show the whole console at an earlier time.

`TimeTravelControl` belongs to the app, because the time is the same on all screens. A step rebuilds the cluster in a
thread; steps that are made meanwhile are combined, so that a held key does not queue up work.
"""

from collections.abc import Collection
from functools import partial

from msgspec import Struct

from gpuconsole.errors import ConsoleError
from gpuconsole.insight.series import SeriesKind
from gpuconsole.model.clock import DAY, HOUR, MINUTE, Span, Time, next_multiple
from gpuconsole.model.events import HistoryEventKind
from gpuconsole.services.console import Console
from gpuconsole.services.time_travel import RecordedCluster, TimeTravel, parse_moment
from gpuconsole.store.queries import Recording
from gpuconsole.ui.actions import Handler
from gpuconsole.ui.screens.base import AppServices
from gpuconsole.ui.widgets.time_line import MARKED, TimeLineView
from gpuconsole.ui.widgets.trends import WHOLE_CLUSTER, TrendWindow, trend_of

SPANS: tuple[Span, ...] = (HOUR, 2 * HOUR, 4 * HOUR, 8 * HOUR, 12 * HOUR, DAY)
"""Spans of the time line: the shortest one that covers the recording, else the longest."""
PLAY_INTERVAL = 0.5
"""Seconds between two steps of a minute while the recording is played."""
NO_HISTORY = "Time travel needs a recorded history"
ENTRANCES = frozenset({HistoryEventKind.ADMITTED})
PREEMPTIONS = frozenset({HistoryEventKind.PREEMPTED})
FAILURES = frozenset({HistoryEventKind.NODE_DOWN})


class Arrival(Struct, frozen=True):
    """What a step leads to: the cluster at that time (None: the present), and the time line."""

    cluster: RecordedCluster | None
    view: TimeLineView


class TimeTravelControl:
    """Opens the time line, and moves the console through time. Mutates; only the app's thread calls it."""

    def __init__(self, app: AppServices) -> None:
        self._app = app
        self._console: Console | None = None
        """The console that the time line is about; None while it is closed."""
        self._wanted: Time | None = None
        self._is_forward = False
        """Whether the last step was forward: then the present comes after the newest recorded time."""
        self._reading = False
        self._again = False
        self._playing = False
        self.view: TimeLineView | None = None
        """What the time line shows; None while it is closed."""

    def handlers(self) -> dict[str, Handler]:
        """Return the actions that are offered now: action id → function that runs it."""
        if self._console is None:
            return {"time.open": self.open}
        front = self._app.front
        closing = {"time.now": self.close} if front is None or not front.takes_escape else {}
        return {
            **closing,
            "time.open": self.close,
            "time.earlier": partial(self._step, -MINUTE),
            "time.later": partial(self._step, MINUTE),
            "time.hour-earlier": partial(self._step, -HOUR),
            "time.hour-later": partial(self._step, HOUR),
            "time.previous-preemption": partial(self._find, PREEMPTIONS, "preemption", forward=False),
            "time.next-preemption": partial(self._find, PREEMPTIONS, "preemption", forward=True),
            "time.previous-admission": partial(self._find, ENTRANCES, "admission", forward=False),
            "time.next-admission": partial(self._find, ENTRANCES, "admission", forward=True),
            "time.previous-failure": partial(self._find, FAILURES, "node failure", forward=False),
            "time.next-failure": partial(self._find, FAILURES, "node failure", forward=True),
            "time.play": self._play,
        }

    def open(self) -> None:
        """Open the time line at the present."""
        console = self._app.cluster
        if console.time_travel is None:
            reason = console.status.history
            self._app.flash(f"{NO_HISTORY}: {reason}" if reason else NO_HISTORY, "warning")
            return
        self._console, self._wanted = console, None
        self._go()

    def close(self) -> None:
        """Close the time line, and show the present."""
        console, self._console = self._console, None
        self.view, self._wanted, self._playing = None, None, False
        if console is not None and console.is_travelling:
            console.travel_to(None)
        self._refresh()

    def go_to(self, text: str) -> None:
        """Show the time that was typed: `2026-01-05T14:00Z`, or `-2h` for two hours ago."""
        try:
            time = parse_moment(text, self._app.cluster.newest.time)
        except ValueError as error:
            self._app.flash(str(error), "error")
            return
        if self._console is None:
            self.open()
        if self._console is not None:
            self._want(time, forward=False)

    def _want(self, time: Time, *, forward: bool) -> None:
        """Go to a time, or to the present if that is not later."""
        self._is_forward = forward
        self._wanted = time if time < self._app.cluster.newest.time else None
        self._go()

    def _step(self, span: Span) -> None:
        console = self._console
        if console is None:
            return
        present = console.newest.time
        time = (present if self._wanted is None else self._wanted) + span
        if span > 0 and self._wanted is None:
            self._app.flash("This is the present")
            return
        self._want(time, forward=span > 0)

    def _find(self, kinds: Collection[HistoryEventKind], words: str, *, forward: bool) -> None:
        """Go to the next or previous event of these kinds."""
        console = self._console
        journey = console.time_travel if console is not None else None
        if console is None or journey is None:
            return
        start = console.newest.time + 1 if self._wanted is None else self._wanted

        def search() -> None:
            try:
                found = journey.next_mark(kinds, start, forward=forward)
            except ConsoleError as error:
                self._app.call_later(self._app.flash, str(error), "error")
                return
            self._app.call_later(self._found, console, found, f"No {'later' if forward else 'earlier'} {words}")

        self._app.run_worker(search, thread=True, group="time-travel")

    def _found(self, console: Console, time: Time | None, otherwise: str) -> None:
        if console is not self._console:
            return
        if time is None:
            self._app.flash(otherwise)
            return
        self._want(time, forward=False)

    def _play(self) -> None:
        """Step by minutes until the present, or stop that."""
        if self._wanted is None and not self._playing:
            self._app.flash("This is the present; go back first")
            return
        self._playing = not self._playing
        if self._playing:
            self._step(MINUTE)
        else:
            self._go()

    def _continue_playing(self) -> None:
        if self._playing and self._console is not None:
            self._step(MINUTE)

    def _go(self) -> None:
        """Read the cluster at the wanted time in a thread, unless one reads already; then it does so again."""
        console = self._console
        if console is None or console.time_travel is None:
            return
        if self._reading:
            self._again = True
            return
        self._reading, self._again = True, False
        journey, time, playing, forward = console.time_travel, self._wanted, self._playing, self._is_forward

        def read() -> None:
            try:
                arrival = _arrival(console, journey, time, is_forward=forward, is_playing=playing)
            except ConsoleError as error:
                self._app.call_later(self._arrived, console, time, None, str(error))
            else:
                self._app.call_later(self._arrived, console, time, arrival, "")

        self._app.run_worker(read, thread=True, group="time-travel")

    def _arrived(self, console: Console, asked: Time | None, arrival: Arrival | None, problem: str) -> None:
        self._reading = False
        if console is not self._console:
            # It was closed meanwhile, and perhaps opened again for another cluster.
            self._go()
            return
        if arrival is None:
            self._app.flash(problem, "warning")
            self._playing = False
            self._wanted = self.view.shown if self.view is not None else None
            return
        if self._wanted == asked:
            self._wanted = arrival.view.shown
        self.view = arrival.view
        console.travel_to(arrival.cluster)
        self._refresh()
        if self._again:
            self._go()
        elif self._playing and self._wanted is not None:
            self._app.set_timer(PLAY_INTERVAL, self._continue_playing)
        else:
            self._playing = False

    def _refresh(self) -> None:
        """Show the time on the front screen; a report is computed again."""
        front = self._app.front
        if front is None:
            return
        front.refresh_frame()
        if front.is_answer:
            # Also under a dialog, and not as an action of the operator, which would be logged.
            front.handlers()["app.refresh"]()


def _arrival(
    console: Console, journey: TimeTravel, time: Time | None, *, is_forward: bool, is_playing: bool
) -> Arrival:
    """Read the cluster and the time line at a time; None is the present.

    The newest second is not recorded yet, which is many minutes of a fast simulation. A time in it is the present for a
    step forward, else the newest recorded time, so that a step back leads to the past.
    """
    recording = journey.recording()
    if time is None or (is_forward and time > recording.last):
        shown = None
    else:
        shown = max(recording.first, min(time, recording.last))
    cluster = None if shown is None else journey.cluster(shown)
    window, end = _window(recording, shown)
    since = end - window.span
    found = console.samples(since, end, MINUTE, kind=SeriesKind.CLUSTER, name=WHOLE_CLUSTER.name)
    marks = journey.marks(frozenset(MARKED), since, end)
    trend = trend_of(found, WHOLE_CLUSTER, window, end - 1)
    view = TimeLineView(shown=shown, trend=trend, marks=tuple(marks), is_playing=is_playing and shown is not None)
    return Arrival(cluster, view)


def _window(recording: Recording, shown: Time | None) -> tuple[TrendWindow, Time]:
    """The window of the time line and its end: the end of the recording, or later than the shown time."""
    length = recording.last - recording.first
    span = next((span for span in SPANS if span >= length), SPANS[-1])
    end = next_multiple(recording.last, MINUTE)
    if shown is not None and shown < end - span:
        # Whole windows before the end, so that the curve moves only when the cursor leaves it.
        end -= (end - shown - 1) // span * span
    return TrendWindow("", "", span, MINUTE), end

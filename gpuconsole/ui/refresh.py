"""Delivery of Snapshots to the front screen, and preloading of other screens, so that keys are handled fast.

Repaints are throttled, and only the front screen gets new data. The first opening of a screen costs 30 to 250 ms of
styles, layout and computation; therefore unopened screens are imported and mounted one by one while the console is
idle.
"""

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from itertools import takewhile

from textual.timer import Timer

from gpuconsole.model.events import HistoryEvent, HistoryEventKind
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.services.console import Console
from gpuconsole.ui.key_idle_timer import KeyIdleTimer
from gpuconsole.ui.messages import SnapshotReady
from gpuconsole.ui.names import named
from gpuconsole.ui.screens.background import GROUP
from gpuconsole.ui.screens.base import AppServices
from gpuconsole.ui.textual_patches import TunedApp

LOADING_FACTOR = 4
"""While a large cluster is loading, the minimum time between two repaints is multiplied by this."""


class SnapshotSubscriber:
    """Passes a console's Snapshots to the front screen, and shows the outcome of commands. Mutable.

    Repaints are throttled, so that key presses are handled between them.
    """

    def __init__(self, app: AppServices, repaint: float) -> None:
        """`repaint` is the least number of seconds between two repaints; 0 draws everything at once."""
        self._app = app
        self._repaint = repaint
        self._painted = 0.0
        self._useful = False
        """Nodes and queues were drawn."""
        self._waiting: Timer | None = None
        self._last_line: HistoryEvent | None = None

    def begin(self, console: Console) -> None:
        """Subscribe to a console, and show its notices as toasts."""
        self._last_line = None
        self._unsubscribe = console.subscribe(self._published)
        for notice in console.notices:
            self._app.flash(notice)

    def end(self) -> None:
        """Unsubscribe from the console."""
        self._unsubscribe()

    def _published(self, snapshot: Snapshot) -> None:
        """Called in the loop's thread."""
        self._app.post_message(SnapshotReady(snapshot))

    def on_snapshot(self, snapshot: Snapshot) -> None:
        """Draw a Snapshot now, or, if the last repaint is too recent, draw the newest one later."""
        if self._waiting is not None:
            return
        repaint = self._repaint * (LOADING_FACTOR if self._still_reads() else 1)
        wait = max(self._painted + repaint - time.monotonic(), self._app.pace.wait(self._painted))
        if not repaint or wait <= 0:
            self._paint(snapshot)
        else:
            self._waiting = self._app.set_timer(wait, self._paint_newest)

    def _paint_newest(self) -> None:
        self._waiting = None
        self._paint(self._app.cluster.snapshot)

    def _paint(self, snapshot: Snapshot) -> None:
        console = self._app.cluster
        if console.is_travelling:
            # A newer Snapshot may have been on its way when the operator went back.
            snapshot = console.snapshot
        else:
            self._report_outcomes(snapshot.recent)
        screen = self._app.front
        if screen is not None:
            screen.snapshot = snapshot
        # After drawing: a slow screen is drawn less often, which leaves time for keys.
        self._painted = time.monotonic()
        queues = snapshot.cluster_queues, snapshot.volcano_queues, snapshot.kai_queues
        self._useful = bool(len(snapshot.nodes)) and any(len(table) for table in queues)

    def _report_outcomes(self, lines: Sequence[HistoryEvent]) -> None:
        """Report the outcome of commands since the last time: refused, no change, done."""
        seen, self._last_line = self._last_line, lines[-1] if lines else None
        for line in takewhile(lambda line: line is not seen, reversed(lines)):
            if line.what is HistoryEventKind.COMMAND_REFUSED:
                self._app.flash(f"Refused: {line.message or line.reason}", "warning")
            elif line.what is HistoryEventKind.COMMAND_NEEDLESS:
                self._app.flash(f"No change: {named(line.message)}")
            elif line.what is HistoryEventKind.COMMAND_DONE:
                self._app.flash(f"Done: {line.message}")

    def shows_data(self) -> bool:
        """Return whether nodes and queues were drawn, or the cluster is loaded completely."""
        return self._painted > 0 and (self._useful or not self._app.cluster.status.loading)

    def has_data(self) -> bool:
        """Return whether a Snapshot was drawn and the whole cluster is loaded."""
        return self._painted > 0 and not self._app.cluster.status.loading

    def _still_reads(self) -> bool:
        """Whether data is still loading after the first useful drawing; frequent repaints would slow it down."""
        return self.shows_data() and self._app.cluster.status.loading


PRELOAD_PAUSE = 0.15
"""Seconds between the loading of two screens, in which new data and keys are handled."""


class ScreenPreloader:
    """Loads the screens of an app in the background, so that their first opening is fast. Mutable."""

    def __init__(
        self,
        app: TunedApp,
        modes: Iterable[str],
        *,
        load: Callable[[str], object],
        others: Iterable[str],
        shown: Callable[[], bool],
        ready: Callable[[], bool],
        pace: KeyIdleTimer,
    ) -> None:
        """`load` imports a mode in a thread, as soon as the first one was `shown`; it imports `others` last.

        `ready` says whether useful data exists.
        """
        self._app = app
        self._modes = list(modes)
        self._load = load
        self._loaded: set[str] = set()
        self._others = list(others)
        self._importing = False
        self._shown = shown
        self._ready = ready
        self._pace = pace
        self._timer = app.set_interval(PRELOAD_PAUSE, self._next, pause=True)

    def start(self) -> None:
        """Start loading; called again after all screens were recreated."""
        self._left = [*self._modes]
        self._timer.resume()

    def _next(self) -> None:
        if not self._importing and self._shown():
            self._importing = True
            self._import(self._modes)
        if not self._ready() or self._pace.wait() > 0 or self._thinking():
            return
        while self._left and self._app.has_screen_of(self._left[0]):
            self._left.pop(0)
        if not self._left:
            self._timer.pause()
            self._import(self._others)
            return
        if self._left[0] not in self._loaded:
            return
        self._app.create_hidden_screen(self._left.pop(0))

    def _import(self, names: Iterable[str]) -> None:
        def work() -> None:
            for name in names:
                self._load(name)
                self._loaded.add(name)

        threading.Thread(target=work, name="import", daemon=True).start()

    def _thinking(self) -> bool:
        """Whether a hidden screen still computes its first answer: several at once slow down the front screen."""
        front = self._app.screen
        return any(
            worker.group == GROUP and worker.is_running and worker.node is not front for worker in self._app.workers
        )

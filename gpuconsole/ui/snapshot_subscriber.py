"""Passes the console's Snapshots to the front screen, throttles repaints, and reports the outcome of commands."""

import time
from collections.abc import Sequence
from itertools import takewhile
from typing import TYPE_CHECKING

from textual.timer import Timer

from gpuconsole.model.events import HistoryEvent, HistoryEventKind
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.services.console import Console
from gpuconsole.ui.messages import SnapshotReady
from gpuconsole.ui.names import named

if TYPE_CHECKING:
    from gpuconsole.ui.app import ConsoleApp

LOADING_FACTOR = 4
"""Factor for the time between two repaints while a large cluster is being loaded."""


class SnapshotSubscriber:
    """Throttles repaints so that key presses are handled between them. Mutates."""

    def __init__(self, app: "ConsoleApp", repaint: float) -> None:
        """`repaint` is the least number of seconds between two repaints; 0 draws everything at once."""
        self._app = app
        self._repaint = repaint
        self._painted = 0.0
        self._useful = False
        """Nodes and queues were drawn."""
        self._waiting: Timer | None = None
        self._last_line: HistoryEvent | None = None

    def begin(self, console: Console) -> None:
        """Follow a console, and show its first notices."""
        self._last_line = None
        self._unsubscribe = console.subscribe(self._published)
        for notice in console.notices:
            self._app.flash(notice)

    def end(self) -> None:
        """Stop following it."""
        self._unsubscribe()

    def _published(self, snapshot: Snapshot) -> None:
        """Called in the loop's thread."""
        self._app.post_message(SnapshotReady(snapshot))

    def on_snapshot(self, snapshot: Snapshot) -> None:
        """Draw it now, or the newest one in a moment."""
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
        """Whether useful data was drawn."""
        return self._painted > 0 and (self._useful or not self._app.cluster.status.loading)

    def has_data(self) -> bool:
        """Whether all data was loaded and drawn."""
        return self._painted > 0 and not self._app.cluster.status.loading

    def _still_reads(self) -> bool:
        """Whether data is still loading after the first useful drawing; frequent repaints would slow it down."""
        return self.shows_data() and self._app.cluster.status.loading

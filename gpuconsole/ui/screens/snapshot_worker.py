"""Background computation of what a screen shows, so that keys never wait for it on a large cluster.

Python runs one thread at a time, so each computing thread slows down the one that handles keys. Therefore at most one
screen computes at a time, and new data wait: with 100,000 workloads one computation takes a quarter of a second.
"""

import threading
import time
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Generic, TypeVar

from textual.timer import Timer
from textual.worker import get_current_worker

from gpuconsole.model.snapshot import Snapshot
from gpuconsole.ui.screens.base import ConsoleScreen

Answer = TypeVar("Answer")

MANY = 1000
"""Number of workloads, pods or nodes from which a Snapshot is processed in a thread."""
SHARE = 3.0
"""Pause after a computation as a multiple of its duration: it takes at most a quarter of the time."""


_TURN = threading.Lock()
GROUP = "background"
"""Textual worker group of these threads."""


class SnapshotWorker(Generic[Answer]):
    """Processes the newest Snapshot, one at a time; Snapshots that arrive meanwhile are skipped except the last.

    The first computation starts immediately, and so does a repeated request for the same Snapshot: then the user, not
    new data, asked for it. Any other pauses after the last one, and waits until no keys are pressed.
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
        """Process this Snapshot and show the result, now or later."""
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

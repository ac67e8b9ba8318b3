"""Answers that take long on a large cluster: made in a thread, so that keys never wait for them.

Python runs one thread at a time: each that computes takes its share from the one that answers keys. So the answers of
all screens take turns, and keys have to do with one of them at most. And new data can wait: on 100,000 workloads an
answer takes a quarter of a second, and ever new ones would take all the time there is.
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
"""A Snapshot with as many workloads, pods or nodes is answered in a thread; a smaller one at once."""
SHARE = 3.0
"""An answer is followed by so many times as much rest as it worked: beside keys it takes a quarter of the time."""


_TURN = threading.Lock()
GROUP = "background"
"""The workers of these threads, as Textual groups them."""


class Background(Generic[Answer]):
    """Answers the newest Snapshot, one at a time; of those that come meanwhile all but the last are skipped.

    A first answer begins at once, and so does one of a Snapshot that was asked for before: then it is not the data
    that changed, and somebody waits for it. Any other rests after the last one, and waits for keys to pause.
    """

    def __init__(
        self,
        screen: ConsoleScreen,
        answer: Callable[[Snapshot], Answer],
        show: Callable[[Answer], object],
        *,
        reads: bool = False,
    ) -> None:
        """`answer` runs in a thread where the cluster is large, or always if it reads the store."""
        self._reads = reads
        self._screen = screen
        self._answer = answer
        self._show = show
        self._asked: Snapshot | None = None
        """What it was asked for last."""
        self._owed = False
        """Whether that was not begun yet."""
        self._urgent = False
        self._thinking = False
        self._rested = 0.0
        """Until when it rests, by `time.monotonic`."""
        self._since = 0.0
        """Since when it owes an answer, by the same clock."""
        self._timer: Timer | None = None

    def ask(self, snapshot: Snapshot) -> None:
        """Answer this Snapshot and show the answer, now or in a moment."""
        self._urgent = self._urgent or snapshot is self._asked or self._asked is None
        self._asked = snapshot
        if not self._owed:
            self._owed, self._since = True, time.monotonic()
        self._begin()

    def _begin(self) -> None:
        """Begin what is owed, if it is time for that."""
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
            # It was left; coming back, it is asked again.
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
            # What it took from others; the time that it waited itself, beside keys or other programs, does not count.
            took = time.thread_time() - began
        if not get_current_worker().is_cancelled:
            self._screen.call_later(self._done, answer, took)

    def _done(self, answer: Answer, took: float) -> None:
        self._thinking = False
        self._rested = time.monotonic() + SHARE * took
        self._screen.safely(partial(self._show, answer))
        self._begin()

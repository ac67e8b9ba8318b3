"""Answers that take long on a large cluster: made in a thread, so that keys never wait for them.

Python runs one thread at a time: each that computes takes its share from the one that answers keys. So the answers of
all screens take turns, and keys have to do with one of them at most.
"""

import threading
from collections.abc import Callable
from functools import partial
from typing import Generic, TypeVar

from textual.worker import get_current_worker

from gpuconsole.model.snapshot import Snapshot
from gpuconsole.ui.screens.base import ConsoleScreen

Answer = TypeVar("Answer")

MANY = 1000
"""A Snapshot with as many workloads, pods or nodes is answered in a thread; a smaller one at once."""


_TURN = threading.Lock()
GROUP = "background"
"""The workers of these threads, as Textual groups them."""


class Background(Generic[Answer]):
    """Answers the newest Snapshot, one at a time; those that come while it thinks are skipped but for the last."""

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
        self._busy = False
        self._next: Snapshot | None = None

    def ask(self, snapshot: Snapshot) -> None:
        """Answer this Snapshot and show the answer, now or in a moment."""
        if self._busy:
            self._next = snapshot
        elif not self._reads and max(len(snapshot.workloads), len(snapshot.pods), len(snapshot.nodes)) < MANY:
            self._show(self._answer(snapshot))
        else:
            self._busy = True
            self._screen.run_worker(partial(self._think, snapshot), thread=True, group=GROUP)

    def _think(self, snapshot: Snapshot) -> None:
        answer = self._answer(snapshot) if self._reads else self._in_turn(snapshot)
        if not get_current_worker().is_cancelled:
            self._screen.call_later(self._done, answer)

    def _in_turn(self, snapshot: Snapshot) -> Answer:
        with _TURN:
            return self._answer(snapshot)

    def _done(self, answer: Answer) -> None:
        self._busy = False
        self._screen.safely(partial(self._show, answer))
        waiting, self._next = self._next, None
        if waiting is not None and self._screen.is_current:
            self.ask(waiting)

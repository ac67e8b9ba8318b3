"""Why a workload waits, asked in the background: the engine tries it, and what would let it in, in forks."""

import time
from collections.abc import Callable
from functools import partial

from textual.worker import get_current_worker

from gpuconsole.errors import ConsoleError
from gpuconsole.insight.why import Tried
from gpuconsole.services.console import Console
from gpuconsole.ui.screens.base import ConsoleScreen

REST = 10.0
"""Seconds between two trials at least; one is followed by four times its own duration of rest, too."""
SHARE = 4.0


class Trials:
    """The newest answer for one workload. Mutates; only the screen's own thread calls it."""

    def __init__(self, screen: ConsoleScreen, key: str, show: Callable[[], object]) -> None:
        self._screen = screen
        self._key = key
        self._show = show
        self._next = 0.0
        self.busy = False
        self.answer: Tried | None = None
        self.problem = ""
        """Why there is no answer."""

    def ask(self, console: Console, *, now: bool = False) -> None:
        """Have it tried, unless that was done just now; with `now` in any case. Never waits."""
        if self.busy or (not now and time.monotonic() < self._next):
            return
        self.busy = True
        self._screen.run_worker(partial(self._try, console), thread=True, group="why")

    def _try(self, console: Console) -> None:
        began = time.monotonic()
        answer: Tried | ConsoleError
        try:
            answer = console.why(self._key)
        except ConsoleError as error:
            answer = error
        took = time.monotonic() - began
        if not get_current_worker().is_cancelled:
            self._screen.call_later(self._came, answer, took)

    def _came(self, answer: Tried | ConsoleError, took: float) -> None:
        self.busy = False
        self._next = time.monotonic() + max(REST, SHARE * took)
        if isinstance(answer, ConsoleError):
            self.problem = str(answer)
        else:
            self.answer, self.problem = answer, ""
        self._show()

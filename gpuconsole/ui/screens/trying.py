"""A question about one workload that takes long, asked in the background again and again while its page is open."""

import time
from collections.abc import Callable
from functools import partial
from typing import Generic, TypeVar

from textual.worker import get_current_worker

from gpuconsole.errors import ConsoleError
from gpuconsole.services.console import Console
from gpuconsole.ui.screens.base import ConsoleScreen

REST = 10.0
"""Seconds between two trials at least; one is followed by four times its own duration of rest, too."""
SHARE = 4.0


Answer = TypeVar("Answer")
Question = Callable[[Console, str], Answer]
"""From the console and the workload's key; it may wait, in a thread of its own, and raise ConsoleError."""


class Trials(Generic[Answer]):
    """The newest answer for one workload. Mutates; only the screen's own thread calls it."""

    def __init__(
        self,
        screen: ConsoleScreen,
        key: str,
        question: Question[Answer],
        show: Callable[[], object],
        *,
        share: float = SHARE,
    ) -> None:
        """`share`: an answer is followed by so many times its own duration of rest."""
        self._screen = screen
        self._key = key
        self._question = question
        self._show = show
        self._share = share
        self._next = 0.0
        self.busy = False
        self.answer: Answer | None = None
        self.problem = ""
        """Why there is no answer."""

    def ask(self, console: Console, *, now: bool = False) -> None:
        """Have it tried, unless that was done just now; with `now` in any case. Never waits."""
        if self.busy or (not now and time.monotonic() < self._next):
            return
        self.busy = True
        self._screen.run_worker(partial(self._try, console), thread=True, group=f"ask-{id(self)}")

    def _try(self, console: Console) -> None:
        began = time.monotonic()
        answer: Answer | ConsoleError
        try:
            answer = self._question(console, self._key)
        except ConsoleError as error:
            answer = error
        took = time.monotonic() - began
        if not get_current_worker().is_cancelled:
            self._screen.call_later(self._came, answer, took)

    def _came(self, answer: Answer | ConsoleError, took: float) -> None:
        self.busy = False
        self._next = time.monotonic() + max(REST, self._share * took)
        if isinstance(answer, ConsoleError):
            self.problem = str(answer)
        else:
            self.answer, self.problem = answer, ""
        self._show()

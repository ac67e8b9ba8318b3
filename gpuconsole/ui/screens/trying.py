"""A question about one workload that takes long, asked in the background again and again while its page is open.

The answer comes piece by piece, and each piece is shown: who leaves the page has the rest given up.
"""

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Generic, TypeVar

from textual.worker import get_current_worker

from gpuconsole.errors import ConsoleError
from gpuconsole.services.answers import Answers
from gpuconsole.ui.screens.base import ConsoleScreen

REST = 10.0
"""Seconds between two trials at least; one is followed by four times its own duration of rest, too."""
SHARE = 4.0


Answer = TypeVar("Answer")
Question = Callable[[Answers, str], Iterator[Answer]]
"""From whom to ask and the workload's key to pieces; each may wait, in a thread of its own, and raise ConsoleError."""


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

    def ask(self, answers: Answers, *, now: bool = False) -> None:
        """Have it tried, unless that was done just now; with `now` in any case. Never waits."""
        if self.busy or (not now and time.monotonic() < self._next):
            return
        self.busy = True
        # The pieces of a first answer are shown as they come; a whole one stays until the next is whole, too.
        work = partial(self._try, answers, self.answer is None)
        self._screen.run_worker(work, thread=True, group=f"ask-{id(self)}")

    def _try(self, answers: Answers, in_pieces: bool) -> None:
        began, worker = time.monotonic(), get_current_worker()
        whole: list[Answer] = []
        problem = ""
        try:
            for answer in self._question(answers, self._key):
                # Who does not ask for the next piece has given up.
                if worker.is_cancelled:
                    return
                whole = [answer]
                if in_pieces:
                    self._screen.call_later(self._came, answer)
        except ConsoleError as error:
            whole, problem = [], str(error)
        if not worker.is_cancelled:
            self._screen.call_later(self._ended, whole, problem, time.monotonic() - began)

    def _came(self, answer: Answer) -> None:
        self.answer, self.problem = answer, ""
        self._screen.safely(self._show)

    def _ended(self, whole: list[Answer], problem: str, took: float) -> None:
        self.busy, self.problem = False, problem
        self._next = time.monotonic() + max(REST, self._share * took)
        for answer in whole:
            self.answer = answer
        self._screen.safely(self._show)

"""Slow computation about one workload, repeated in the background while its page is open.

Partial results are shown as they arrive; leaving the page cancels the rest.
"""

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Generic, TypeVar

from textual.worker import get_current_worker

from gpuconsole.errors import ConsoleError
from gpuconsole.services.analysis import AnalysisService
from gpuconsole.ui.screens.base import ConsoleScreen

REST = 10.0
"""Minimum seconds between two computations."""
POLLING_SHARE = 4.0


Answer = TypeVar("Answer")
Question = Callable[[AnalysisService, str], Iterator[Answer]]
"""Answers and workload key → partial results; may block, and raise ConsoleError."""


class AnswerPoller(Generic[Answer]):
    """The newest result for one workload. Mutable; called from the screen's thread only."""

    def __init__(
        self,
        screen: ConsoleScreen,
        key: str,
        question: Question[Answer],
        show: Callable[[], object],
        *,
        share: float = POLLING_SHARE,
    ) -> None:
        """`share`: pause after a computation, as a multiple of its duration."""
        self._screen = screen
        self._key = key
        self._question = question
        self._show = show
        self._share = share
        self._next = 0.0
        self.busy = False
        self.answer: Answer | None = None
        self.problem = ""
        """Why there is no result."""

    def ask(self, answers: AnalysisService, *, now: bool = False) -> None:
        """Start the computation unless the pause is not over; `now` ignores the pause. Never blocks."""
        if self.busy or (not now and time.monotonic() < self._next):
            return
        self.busy = True
        # Partial results are shown only the first time; later the last complete result stays until the next one.
        work = partial(self._try, answers, self.answer is None)
        self._screen.run_worker(work, thread=True, group=f"ask-{id(self)}")

    def _try(self, answers: AnalysisService, in_pieces: bool) -> None:
        began, worker = time.monotonic(), get_current_worker()
        whole: list[Answer] = []
        problem = ""
        try:
            for answer in self._question(answers, self._key):
                # Not requesting the next piece cancels the rest.
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

"""A long answer comes piece by piece, until it is complete, cancelled, or about a time that is not shown any more."""

from collections.abc import Callable, Iterator
from pathlib import Path
from queue import SimpleQueue
from threading import Event

import pytest

from gpuconsole.errors import ConsoleError
from gpuconsole.model.cooperative import Progress
from gpuconsole.services.analysis import AnalysisService
from gpuconsole.ui.screens.background import LongAnswer
from gpuconsole.ui.screens.objects import TextScreen
from tests.support.console_clusters import busy_org
from tests.support.console_stage import Stage, staged
from tests.support.recorded_histories import RecordedConsole

FIRST, SECOND = Progress(done=1, answer="some"), Progress(done=2, answer="more")
LAST = Progress(done=3, answer="all", last=True)


class Host:
    """A screen with one long answer, whose pieces the test hands out."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.screen = TextScreen("host", lambda snapshot: ())
        self.shown: list[str | None] = []
        self.failed: list[str] = []
        self.pieces: SimpleQueue[Progress[str] | ConsoleError] = SimpleQueue()
        self.stopped = Event()
        self.run: LongAnswer[str] = LongAnswer(self.screen, self._steps, self._show, self._fail)
        stage.app.open(self.screen)

    def _steps(self, answers: AnalysisService) -> Iterator[Progress[str]]:
        pieces, stopped = self.pieces, self.stopped
        try:
            while isinstance(piece := pieces.get(timeout=10), Progress):
                yield piece
                if piece.last:
                    return
            raise piece
        finally:
            stopped.set()

    def _show(self, piece: Progress[str]) -> None:
        self.shown.append(piece.answer)

    def _fail(self, error: ConsoleError) -> None:
        self.failed.append(str(error))

    def start(self) -> None:
        """Start a run, whose pieces come from a queue of its own."""
        self.pieces, self.stopped = SimpleQueue(), Event()
        self.run.start()

    async def until(self, ready: Callable[[], bool]) -> None:
        for _ in range(200):
            if ready():
                return
            await self.stage.pause()
        raise AssertionError("it did not happen")


async def test_pieces_come_one_after_the_other_until_the_answer_is_complete() -> None:
    async with staged(busy_org()) as stage:
        host = Host(stage)
        await stage.settle()
        host.start()
        host.pieces.put(FIRST)
        await host.until(lambda: host.shown == ["some"])
        assert host.run.is_running
        host.pieces.put(LAST)
        await host.until(lambda: not host.run.is_running)
        assert (host.shown, host.failed) == (["some", "all"], [])


async def test_an_error_takes_the_place_of_the_last_piece() -> None:
    async with staged(busy_org()) as stage:
        host = Host(stage)
        await stage.settle()
        host.start()
        host.pieces.put(FIRST)
        host.pieces.put(ConsoleError("the worker process ended"))
        await host.until(lambda: not host.run.is_running)
        assert (host.shown, host.failed) == (["some"], ["the worker process ended"])


@pytest.mark.parametrize("how", ["cancelled", "started again", "screen closed"])
async def test_what_is_not_wanted_any_more_is_stopped_and_not_shown(how: str) -> None:
    async with staged(busy_org()) as stage:
        host = Host(stage)
        await stage.settle()
        host.start()
        pieces, stopped = host.pieces, host.stopped
        pieces.put(FIRST)
        await host.until(lambda: host.shown == ["some"])
        match how:
            case "cancelled":
                host.run.cancel()
            case "started again":
                host.start()
                host.pieces.put(LAST)
            case _:
                stage.app.up()
        pieces.put(SECOND)
        await host.until(stopped.is_set)
        await stage.settle()
        assert (host.shown, host.failed) == (["some", "all"] if how == "started again" else ["some"], [])


async def test_pieces_about_a_time_that_is_not_shown_any_more_are_dropped(tmp_path: Path) -> None:
    recorded = RecordedConsole(tmp_path / "history.db", minutes=5)
    async with staged(recorded.console) as stage:
        host = Host(stage)
        await stage.settle()
        await stage.press("ctrl+t", "left")
        host.start()
        assert (recorded.console.is_travelling, host.run.is_outdated) == (True, False)
        recorded.console.travel_to(None)
        assert host.run.is_outdated
        host.pieces.put(LAST)
        await host.until(host.stopped.is_set)
        await stage.settle()
        assert (host.shown, host.run.is_outdated) == ([], True)
    recorded.console.stop()

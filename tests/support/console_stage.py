"""A console on a stage: keys go in by hand, time passes by hand, and the screen is read as text."""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from types import SimpleNamespace
from typing import Any, TypeVar

import pytest
from textual import timer
from textual.pilot import Pilot
from textual.screen import Screen

from gpuconsole.services.console import Console
from gpuconsole.ui.app import ConsoleApp

SIZES = ((80, 24), (120, 36))
S = TypeVar("S", bound=Screen[Any])


class Stage:
    """The app with its pilot; every step waits until the screen has settled."""

    def __init__(self, app: ConsoleApp, pilot: Pilot[None]) -> None:
        self.app = app
        self._pilot = pilot

    async def settle(self) -> None:
        await self._pilot.pause()
        await self.app.workers.wait_for_complete()
        await self._pilot.pause()

    async def pause(self) -> None:
        """Let the screen draw, without waiting for what is computed in threads."""
        await self._pilot.pause(0.05)

    async def press(self, *keys: str) -> None:
        for key in keys:
            await self._pilot.press(key)
            await self.settle()

    async def write(self, text: str) -> None:
        await self._pilot.press(*text)
        await self.settle()

    async def tick(self, seconds: float = 1.0, times: int = 1) -> None:
        for _ in range(times):
            self.app.cluster.tick(seconds)
            await self.settle()

    async def wait(self, seconds: float) -> None:
        await self._pilot.pause(seconds)
        await self.settle()

    def screen(self, kind: type[S]) -> S:
        """The screen in front, which has to be of this kind."""
        assert isinstance(self.app.screen, kind), f"{self.app.screen} is in front"
        return self.app.screen

    @property
    def lines(self) -> list[str]:
        """What can be seen, line by line."""
        strips = self.app.screen._compositor.render_strips()
        return ["".join(segment.text for segment in strip).rstrip() for strip in strips]

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    def line(self, words: str) -> str:
        """The first line with these words."""
        return next((line for line in self.lines if words in line), "")


def hold_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each look of a timer at the clock come 10 ms after the one before, as where threads take turns."""
    looks = count()
    monkeypatch.setattr(timer, "_time", SimpleNamespace(get_time=lambda: time.monotonic() + 0.01 * next(looks)))


@asynccontextmanager
async def staged(console: Console, size: tuple[int, int] = (120, 36)) -> AsyncIterator[Stage]:
    """Put a console on the stage."""
    app = ConsoleApp(console, repaint=0)
    async with app.run_test(size=size) as pilot:
        stage = Stage(app, pilot)
        await stage.settle()
        yield stage

"""No key pays for what could be done before or need not be done: screens are made while nobody waits for them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from textual.css.stylesheet import Stylesheet
from textual.pilot import Pilot

from gpuconsole.ui import warming
from gpuconsole.ui.app import ConsoleApp
from gpuconsole.ui.screens.base import ConsoleScreen
from gpuconsole.ui.screens.views import VIEWS
from gpuconsole.ui.widgets.grid import Grid
from tests.ui.worlds import history, org_cohort, recorded


@asynccontextmanager
async def warmed(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[ConsoleApp, Pilot[None]]]:
    """A console that had the time to make all its screens."""
    monkeypatch.setattr(warming, "QUIET", 0.0)
    monkeypatch.setattr(warming, "PAUSE", 0.01)
    app = ConsoleApp(recorded(org_cohort(), history()), repaint=0, warm=True)
    async with app.run_test(size=(120, 36)) as pilot:
        app.cluster.tick(0.1)
        for _ in range(200):
            await pilot.pause(0.01)
            if not any(name not in app._screen_stacks for name in VIEWS):
                break
        await pilot.pause()
        yield app, pilot


def hidden(app: ConsoleApp, view: str) -> ConsoleScreen:
    screen = app._screen_stacks[view][0]
    assert isinstance(screen, ConsoleScreen)
    return screen


async def test_screens_that_nobody_opened_yet_are_made_with_what_they_show(monkeypatch: pytest.MonkeyPatch) -> None:
    async with warmed(monkeypatch) as (app, _):
        assert app.current_mode == "dashboard"
        assert set(app._screen_stacks) >= set(VIEWS)
        grid = hidden(app, "queues").query_one(Grid)
        assert grid.rows
        assert grid.size.width > 100, "it knows its place, too"


async def test_what_is_hidden_hears_of_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async with warmed(monkeypatch) as (app, pilot):
        known = hidden(app, "queues").snapshot
        app.cluster.tick(1.0)
        await pilot.pause()
        assert hidden(app, "queues").snapshot is known
        assert app.cluster.snapshot is not known
        await pilot.press("2")
        await pilot.pause()
        assert hidden(app, "queues").snapshot is app.cluster.snapshot


async def test_the_first_opening_of_a_screen_parses_no_styles(monkeypatch: pytest.MonkeyPatch) -> None:
    app = ConsoleApp(recorded(org_cohort()), repaint=0)
    async with app.run_test(size=(120, 36)) as pilot:
        await pilot.pause()
        parsed: list[str] = []
        monkeypatch.setattr(Stylesheet, "reparse", lambda sheet: parsed.append("again"))
        await pilot.press("2", "3")
        await pilot.pause()
        assert app.current_mode == "workloads"
        assert parsed == []


async def test_a_new_screen_is_painted_once_with_all_it_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    app = ConsoleApp(recorded(org_cohort()), repaint=0)
    async with app.run_test(size=(120, 36)) as pilot:
        await pilot.press("3")
        await pilot.pause()
        painted: list[str] = []

        def noted(renderable: object, *_: object) -> None:
            if renderable is not None and app.screen.query(Grid):
                grid = app.screen.query_one(Grid)
                painted.append(f"{len(grid.rows)} rows, {len(grid._layout)} columns")

        monkeypatch.setattr(app, "_display", lambda screen, renderable: noted(renderable))
        await pilot.press("2")
        await pilot.pause()
        assert app.current_mode == "queues"
        assert painted
        assert not [state for state in painted if "0 rows" in state or " 0 columns" in state]

"""No key pays for what could be done before or need not be done: screens are made while nobody waits for them."""

import threading
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from functools import partial
from types import SimpleNamespace

import pytest
from textual.css.stylesheet import Stylesheet
from textual.pilot import Pilot

from gpuconsole.model.cluster import Node
from gpuconsole.model.queues import ClusterQueue
from gpuconsole.model.snapshot import EMPTY, Snapshot
from gpuconsole.services.console import Console
from gpuconsole.ui import key_idle_timer
from gpuconsole.ui import refresh as screen_preloader
from gpuconsole.ui import refresh as snapshot_subscriber
from gpuconsole.ui.app import ConsoleApp
from gpuconsole.ui.key_idle_timer import KeyIdleTimer
from gpuconsole.ui.screens import background as snapshot_worker
from gpuconsole.ui.screens.background import SnapshotWorker
from gpuconsole.ui.screens.base import ConsoleScreen
from gpuconsole.ui.screens.views import VIEWS
from gpuconsole.ui.widgets.grid import Grid
from tests.support.console_clusters import NOW, history, org_cohort, recorded
from tests.support.console_stage import hold_up
from tests.support.scripted_live_backend import Elsewhere


@asynccontextmanager
async def warmed(
    monkeypatch: pytest.MonkeyPatch, views: Iterable[str] = VIEWS
) -> AsyncIterator[tuple[ConsoleApp, Pilot[None]]]:
    """A console that had the time to make all its screens, or these."""
    monkeypatch.setattr(key_idle_timer, "PAUSE", 0.0)
    monkeypatch.setattr(screen_preloader, "PRELOAD_PAUSE", 0.01)
    app = ConsoleApp(recorded(org_cohort(), history()), repaint=0, warm=True)
    async with app.run_test(size=(120, 36)) as pilot:
        app.cluster.tick(0.1)
        for _ in range(200):
            await pilot.pause(0.01)
            if not any(name not in app._screen_stacks for name in views):
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


async def test_screens_are_made_as_they_are_imported_and_what_opens_no_screen_comes_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    imported: list[str] = []
    slow = threading.Event()

    def load(name: str) -> None:
        if name == "nodes":
            slow.wait(30)
        imported.append(name)

    monkeypatch.setattr("gpuconsole.ui.app.load", load)
    async with warmed(monkeypatch, ["queues", "workloads"]) as (app, pilot):
        await pilot.pause(0.1)
        assert set(app._screen_stacks) == {"dashboard", "queues", "workloads"}
        slow.set()
        for _ in range(500):
            await pilot.pause(0.01)
            if "answers" in imported:
                break
        assert set(app._screen_stacks) == set(VIEWS)
        assert imported == [*VIEWS, "answers"]


QUEUE = ClusterQueue(name="q")


@pytest.mark.parametrize(
    ("loading", "queues", "wait"),
    [(True, [QUEUE], 400), (True, [], 100), (False, [QUEUE], 100)],
    ids=["there is much more to come", "queues are awaited", "all is there"],
)
async def test_what_is_read_for_the_first_time_is_drawn_seldom_once_nodes_and_queues_are_shown(
    loading: bool, queues: list[ClusterQueue], wait: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = Elsewhere((Node(name="a-1"), *queues), NOW)
    cluster.loading = loading
    app = ConsoleApp(Console(cluster), repaint=100)
    async with app.run_test(size=(120, 36)) as pilot:
        waits: list[float] = []
        monkeypatch.setattr(app, "set_timer", lambda delay, callback: waits.append(delay))
        for name in ("b-1", "b-2"):
            cluster.put(Node(name=name))
            app.cluster.tick(0.1)
            await pilot.pause()
        assert [round(wait, -1) for wait in waits] == [wait]


def test_what_can_wait_waits_for_a_pause_and_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(key_idle_timer, "time", SimpleNamespace(monotonic=lambda: now))
    keys = KeyIdleTimer()
    assert keys.wait() < 0, "nobody pressed a key"
    keys.key()
    assert (keys.wait(), keys.wait(99.5), keys.wait(98.0)) == (0.25, 0.25, -1.0)
    now += 0.25
    assert keys.wait() == 0


async def test_new_data_are_drawn_when_keys_pause_and_letters_of_a_text_are_keys(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = Elsewhere((Node(name="a-1"), QUEUE), NOW)
    app = ConsoleApp(Console(cluster), repaint=0.001)
    async with app.run_test(size=(120, 36)) as pilot:
        await pilot.press("3", "slash", "x")
        app.pace.pressed -= 100
        await pilot.press("y")
        pressed = app.pace.pressed
        now = pressed + 0.05
        clock = SimpleNamespace(monotonic=lambda: now)
        for module in (key_idle_timer, snapshot_subscriber):
            monkeypatch.setattr(module, "time", clock)
        app._following._painted = pressed
        waits: list[float] = []
        monkeypatch.setattr(app, "set_timer", lambda delay, callback: waits.append(round(delay, 3)))
        app._following.on_snapshot(app.cluster.snapshot)
        assert waits == [0.2]


async def test_what_is_due_once_is_done_though_the_process_is_held_up(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Elsewhere((Node(name="a-1"), QUEUE), NOW)
    app = ConsoleApp(Console(cluster), repaint=0.001)
    async with app.run_test(size=(120, 36)) as pilot:
        hold_up(monkeypatch)
        await pilot.press("4")
        await pilot.pause()
        assert app._batch_count == 0, "after a change of mode it paints again"
        for name in ("b-1", "b-2", "b-3"):
            cluster.put(Node(name=name))
            app.cluster.tick(0.1)
            app._following._painted = time.monotonic()
            app.pace.pressed -= 100
        assert app.front is not None
        for _ in range(500):
            await pilot.pause(0.01)
            if app.front.snapshot is app.cluster.snapshot:
                break
        assert app.front.snapshot is app.cluster.snapshot, "new data are drawn"


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


async def test_answers_of_several_screens_take_turns_and_what_is_read_from_the_store_waits_for_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(snapshot_worker, "MANY", 0)
    app = ConsoleApp(recorded(org_cohort()), repaint=0)
    at_work: list[str] = []
    met: set[frozenset[str]] = set()
    told: list[str] = []
    reading = threading.Event()

    def answer(name: str) -> str:
        at_work.append(name)
        reading.wait(30)
        met.add(frozenset(at_work))
        at_work.remove(name)
        return name

    async with app.run_test(size=(120, 36)) as pilot:
        screen = app.front
        assert screen is not None
        for name in ("a", "b", "store"):
            asked = partial(lambda name, _: answer(name), name)
            SnapshotWorker(screen, asked, told.append, reads=name == "store").ask(EMPTY)
        for _ in range(500):
            await pilot.pause(0.01)
            if "store" in at_work and len(at_work) > 1:
                break
        reading.set()
        for _ in range(500):
            await pilot.pause(0.01)
            if len(told) == 3:
                break
    assert sorted(told) == ["a", "b", "store"]
    assert not [together for together in met if together >= {"a", "b"}]
    assert [together for together in met if "store" in together and len(together) > 1]


async def test_new_data_are_thought_about_after_a_rest_and_when_keys_pause_but_what_is_asked_again_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(snapshot_worker, "MANY", 0)
    first, second, third, fourth = (Snapshot(0, serial, {}, ()) for serial in range(4))
    app = ConsoleApp(recorded(org_cohort()), repaint=0)
    now, worked, took = 100.0, 0.0, 0.0
    told: list[Snapshot] = []
    waits: list[float] = []

    def answer(snapshot: Snapshot) -> Snapshot:
        nonlocal now, worked
        now += 5 * took
        worked += took
        return snapshot

    def timed(wait: float, _: object) -> SimpleNamespace:
        waits.append(round(wait, 3))
        return SimpleNamespace(stop=lambda: None)

    async with app.run_test(size=(120, 36)) as pilot:
        screen = app.front
        assert screen is not None
        await pilot.pause()

        async def answered() -> list[Snapshot]:
            for _ in range(500):
                await pilot.pause(0.01)
                if not thought._thinking:
                    break
            return told

        for module in (snapshot_worker, key_idle_timer):
            monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now, thread_time=lambda: worked))
        monkeypatch.setattr(screen, "set_timer", timed)
        thought = SnapshotWorker(screen, answer, told.append)

        took, app.pace.pressed = 0.1, now
        thought.ask(first)
        assert await answered() == [first], "a first answer waits for nothing"

        thought.ask(second)
        assert (waits, told) == ([0.3], [first]), "three times as long as the first one worked, however long that took"
        thought.ask(third)
        now += 0.3
        app.pace.pressed = now - 0.05
        thought._begin()
        assert waits[-1] == 0.2, "a key was pressed"
        now += 0.6
        app.pace.pressed = now - 0.05
        thought._begin()
        assert waits[-1] == 0.1, "keys go on, but nobody waits longer than a second"
        now += 0.2
        thought._begin()
        assert await answered() == [first, third], "by now there are newer data"

        app.pace.pressed = now
        thought.ask(fourth)
        assert waits[-1] == 0.3
        thought.ask(fourth)
        assert await answered() == [first, third, fourth], "the data are the same, so a person asks"

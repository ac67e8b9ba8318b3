"""Going deeper: nobody goes round in circles, and what comes late opens nothing over something else."""

import threading
from collections.abc import Callable

import pytest
from textual import events

from gpuconsole.backends.base import KubeEvent
from gpuconsole.ui.screens.base import ConsoleScreen
from gpuconsole.ui.screens.help import HelpScreen
from gpuconsole.ui.widgets.command_line import FilterLine
from gpuconsole.ui.widgets.dialogs import ChoiceDialog, PaletteEntry
from tests.support.console_clusters import busy_org
from tests.support.console_stage import Stage, staged
from tests.support.live_console import FakeCluster, live

DRILL = "afs-without"
"""The first one of the list."""

WAYS = {
    "help is left behind by what is opened from it": (["question_mark", "b"], ["dashboard", "ledger"]),
    "help of an answer, too": (["b", "question_mark", "f", "question_mark", "b"], ["dashboard", "ledger"]),
    "an answer takes the place of another one": (["b", "f", "F"], ["dashboard", "slots"]),
    "an answer that is in front is asked again": (["b", "b"], ["dashboard", "ledger"]),
    "the list of drills is one of them": (["b", "T", "T"], ["dashboard", "drills"]),
    "a drill is not, and stays below": (["T", "enter", "b"], ["dashboard", "drills", DRILL, "ledger"]),
    "from a drill back to the list": (["T", "enter", "T"], ["dashboard", "drills"]),
    "round by an answer": (["T", "enter", "b", "T", "enter", "f", "T"], ["dashboard", "drills"]),
    "rights once": ([*":rights", "enter", *":rights", "enter"], ["dashboard", "permissions"]),
    "port-forwards once, with an answer between": (
        [*":pf", "enter", "b", *":rights", "enter", *":pf", "enter"],
        ["dashboard", "port-forwards"],
    ),
}


def trail(stage: Stage) -> list[str]:
    return [screen.crumb() for screen in stage.app.screen_stack if isinstance(screen, ConsoleScreen)]


def said(stage: Stage) -> list[str]:
    return [notice.message for notice in stage.app._notifications]


@pytest.mark.parametrize("way", WAYS)
async def test_what_is_open_already_is_gone_back_to(way: str) -> None:
    keys, arrived = WAYS[way]
    async with staged(busy_org()) as stage:
        await stage.press(*keys)
        assert trail(stage) == arrived


async def test_a_view_whose_table_is_asked_for_is_found_without_what_lay_on_it() -> None:
    async with staged(busy_org()) as stage:
        await stage.press("6", "b", "3", "w")
        front = stage.app.front
        assert front is not None
        assert (trail(stage), front.query_one(FilterLine).display) == (["preemptions"], True)


async def test_a_view_that_is_only_opened_is_found_as_it_was_left() -> None:
    async with staged(busy_org()) as stage:
        await stage.press("6", "b", "3", "6")
        assert trail(stage) == ["preemptions", "ledger"]


class Slow(FakeCluster):
    """A cluster that answers when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.answers = threading.Event()
        said = self.at.said

        def events(table: str, key: str) -> tuple[KubeEvent, ...]:
            assert self.answers.wait(60)
            return said

        self.at.events = events  # type: ignore[method-assign]


def over_it(stage: Stage) -> bool:
    return isinstance(stage.app.screen, ChoiceDialog)


def elsewhere(stage: Stage) -> bool:
    return stage.app.view == "nodes"


@pytest.mark.parametrize(("key", "gone"), [("m", over_it), ("4", elsewhere)])
async def test_what_comes_late_opens_nothing_over_something_else(key: str, gone: Callable[[Stage], bool]) -> None:
    cluster = Slow()
    async with staged(live(cluster)) as stage:
        await stage.press("3")
        for pressed in ("E", key):
            stage.app.post_message(events.Key(pressed, pressed))
        await stage.pause()
        assert gone(stage)
        before = list(stage.app.screen_stack)
        cluster.answers.set()
        await stage.settle()
        assert stage.app.screen_stack == before
        assert said(stage) == ["events research/rlhf-2 · not opened: another screen is active"]


async def test_a_question_that_comes_late_is_not_asked_over_something_else() -> None:
    async with staged(busy_org()) as stage:
        below = stage.screen(ConsoleScreen)
        await stage.press("question_mark")
        below.dialogs.choose("Context", (), lambda id: None)
        await stage.settle()
        assert isinstance(stage.app.screen, HelpScreen)
        assert said(stage) == ["Context · not opened: another screen is active"]


async def test_what_was_picked_in_help_is_not_done_beneath_a_question_that_came_first() -> None:
    async with staged(busy_org()) as stage:
        below = stage.screen(ConsoleScreen)
        await stage.press("question_mark")
        on_help = stage.screen(HelpScreen)
        picked = on_help.grid.current if on_help.grid is not None else None
        assert isinstance(picked, PaletteEntry)
        on_help.actions.run_id("object.open")
        below.dialogs.choose("Context", (), lambda id: None)
        await stage.settle()
        assert isinstance(stage.app.screen, ChoiceDialog)
        assert said(stage) == [f"{picked.action.label} · not opened: another screen is active"]

"""Dialogs and screens that fingers outrun."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from textual import events

from gpuconsole.ui.answers.cluster_reports import AnswerTable, Part, Row
from gpuconsole.ui.screens.answers import AnswerContext, report_screen
from gpuconsole.ui.screens.base import ConsoleScreen
from gpuconsole.ui.screens.help import HelpScreen
from gpuconsole.ui.screens.pods import LogScreen
from gpuconsole.ui.screens.views import VIEWS
from gpuconsole.ui.widgets.dialogs import ChoiceDialog, Confirm, Dialog, Question
from gpuconsole.ui.widgets.form import Form
from tests.support.console_clusters import busy_org
from tests.support.console_stage import Stage, staged
from tests.support.live_console import FakeLogs


def trail(stage: Stage) -> list[ConsoleScreen]:
    return [screen for screen in stage.app.screen_stack if isinstance(screen, ConsoleScreen)]


@pytest.mark.parametrize(
    "make", [lambda: Confirm(Question("Really?", ("so much",))), lambda: ChoiceDialog("Which?", ())]
)
async def test_a_dialog_that_goes_before_it_is_drawn_fails_nothing(make: Callable[[], Dialog[Any]]) -> None:
    async with staged(busy_org()) as stage:
        dialog = make()
        stage.app.push_screen(dialog)
        stage.app.pop_screen()
        await stage.settle()
        assert len(stage.app.screen_stack) == 1


@pytest.mark.parametrize("make", [HelpScreen, lambda: report_screen("shares", "Shares", lambda asked: ())])
@pytest.mark.parametrize("leave", ["pop", "remove"])
async def test_a_screen_that_goes_before_it_is_drawn_fails_nothing(
    make: Callable[[], ConsoleScreen], leave: str
) -> None:
    async with staged(busy_org()) as stage:
        screen = make()
        stage.app.push_screen(screen)
        if leave == "pop":
            stage.app.pop_screen()
        else:
            screen.remove()
        await stage.settle()
        assert not screen.children


@pytest.mark.parametrize("view", VIEWS)
async def test_a_screen_hides_what_lies_below_it_and_a_dialog_stands_in_its_middle(view: str) -> None:
    """Else each draws all that lie below, which took ever longer, and ended in a circle where one of them was kept."""
    async with staged(busy_org()) as stage:
        stage.app.go(view)
        await stage.press("escape", "question_mark", "ctrl+p")
        below, above, dialog = stage.app.screen_stack
        (frame,) = dialog.query(".dialog")
        screen, room = dialog.region, frame.region
        around = (room.x, screen.right - room.right, room.y, screen.bottom - room.bottom)
        assert [one.styles.background.a for one in (below, above)] == [1.0, 1.0]
        assert stage.app._background_screens == [above], "the dialog lets one screen through"
        assert around == (12, 12, (screen.height - room.height) // 2, (screen.height - room.height + 1) // 2)


async def test_keys_mean_what_they_mean_on_the_screen_that_the_key_before_them_opened() -> None:
    """They come at once: the screens are made, asked and left while the next keys wait already."""
    async with staged(busy_org()) as stage:
        await stage.press("2")
        for key in ["enter", "q", "b", "f", "q", *"3L74d", "question_mark", "escape", "f", "3", "b", *"9q6F1q2", "b"]:
            stage.app.post_message(events.Key(key, key if len(key) == 1 else None))
        await stage.settle()
        assert (stage.app.view, [screen.crumb() for screen in trail(stage)]) == ("queues", ["queues", "ledger"])


async def test_an_answer_takes_the_place_of_another_one() -> None:
    async with staged(busy_org()) as stage:
        await stage.press("b", "f", "f", "F")
        assert [screen.crumb() for screen in trail(stage)] == ["dashboard", "slots"]
        await stage.press("q")
        assert [screen.crumb() for screen in trail(stage)] == ["dashboard"]


async def test_a_dialog_that_goes_with_the_console_fails_nothing() -> None:
    async with staged(busy_org()) as stage:
        dialog = ChoiceDialog("Which?", ())
        stage.app.push_screen(dialog)
        dialog.remove()
        assert dialog in stage.app.screen_stack
        await stage.settle()


async def test_the_header_of_a_screen_that_just_opened_is_let_be_until_it_is_there() -> None:
    async with staged(busy_org()) as stage:
        screen = HelpScreen()
        stage.app.push_screen(screen)
        assert stage.app.front is screen
        stage.app._show_age()
        await stage.settle()
        assert stage.app.screen is screen


async def test_what_comes_late_for_a_screen_that_was_left_is_for_nobody() -> None:
    async with staged(busy_org()) as stage:
        screen = LogScreen("left", ["prod/left-0"])
        await stage.app.push_screen(screen)
        await screen.remove()
        logs = FakeLogs(["prod/left-0"], False)
        screen._began(logs)
        screen.refresh_frame()
        screen.show_header()
        assert logs.closed, "nobody reads them on"


async def test_a_field_that_is_filled_on_the_way_out_fails_nothing() -> None:
    """Screens are made while nothing else happens, and then the console may end at any moment."""
    async with staged(busy_org()) as stage:
        await stage.press("8")
        form = stage.app.screen.query_one(Form)
        screens = stage.app._screen_stack
        kept = [*screens]
        screens.clear()
        form.put("name", "late")
        screens.extend(kept)
        assert form.values["name"] == "late"


async def test_an_answer_that_cannot_be_drawn_is_said_and_ends_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """Answers made in a thread come on their own, not while the screen is drawn."""

    def broken(asked: AnswerContext) -> Sequence[Part]:
        return [AnswerTable(("A HEAD WITHOUT A CELL",), (Row(key="a", cells=()),))]

    async with staged(busy_org()) as stage:
        await stage.app.push_screen(report_screen("shares", "Shares", broken))
        await stage.settle()
        await stage.pause()
        (said,) = stage.app._notifications
        assert said.message.startswith("This screen failed, see the log: ")
        await stage.press("q")
        assert [screen.crumb() for screen in trail(stage)] == ["dashboard"]
    assert "The screen shares failed" in caplog.text

"""The footer: the keys of what is under the cursor first, those of every screen last, and no key to nothing."""

import re

import pytest

from gpuconsole.ui.actions import BY_ID, Scope
from gpuconsole.ui.actions.keys import spell
from gpuconsole.ui.paint import painted
from gpuconsole.ui.screens.base import WIDE_SCOPES, ConsoleScreen
from gpuconsole.ui.widgets.header_footer import Footer
from tests.support.console_clusters import busy_org, org_cohort, simulated
from tests.support.console_stage import Stage, staged

OWN = {
    "4": ("node.layout", "node.colour", "node.cordon", "node.uncordon", "node.drain"),
    "2": ("queue.hold", "queue.quota", "queue.resource"),
    "3": ("workload.stop", "workload.requeue", "workload.scores", "workload.duplicate"),
}
"""Key of a view → the actions on the object under its cursor that its footer has to name."""


def footer(stage: Stage) -> str:
    return stage.lines[-1]


def places(stage: Stage) -> list[tuple[int, str]]:
    """Where each action stands in the footer, by its key and label."""
    text = footer(stage)
    found = []
    for action in stage.screen(ConsoleScreen).actions.offered():
        words = f" {spell(action.keys[0])} {action.label}  " if action.keys else ""
        if words and words in f"{text}  ":
            found.append((text.index(words.rstrip()), action.id))
    return sorted(found)


@pytest.mark.parametrize("view", OWN)
async def test_the_footer_names_the_keys_of_the_object_before_those_of_every_screen(view: str) -> None:
    async with staged(busy_org(), (160, 50)) as stage:
        await stage.press(view)
        shown = [id for _, id in places(stage)]
        assert set(OWN[view]) <= set(shown)
        wide = [BY_ID[id].scope in WIDE_SCOPES for id in shown if id not in ("app.help", "app.palette")]
        assert wide == sorted(wide)
        assert wide[-1], "the keys of every screen come after them"


async def test_a_narrow_footer_names_what_changes_a_queue_before_what_folds_it() -> None:
    async with staged(busy_org(), (80, 24)) as stage:
        await stage.press("2", "j")
        assert {"queue.hold", "queue.quota"} <= {id for _, id in places(stage)}


async def test_the_footer_of_a_page_about_a_workload_names_its_keys_too() -> None:
    async with staged(busy_org(), (160, 50)) as stage:
        await stage.press("3", "enter")
        assert set(OWN["3"]) <= {id for _, id in places(stage)}


async def test_explain_is_offered_where_there_is_something_to_explain_and_nowhere_else() -> None:
    async with staged(busy_org(), (160, 50)) as stage:
        await stage.press("1")
        screen = stage.screen(ConsoleScreen)
        for _ in range(3):
            refused = screen.refusal(BY_ID["object.explain"])
            offered = "object.explain" in {action.id for action in screen.actions.offered()}
            assert offered is not bool(refused)
            assert (" x explain " in footer(stage)) is offered
            await stage.press("question_mark")
            assert (re.search(r"\bx +explain\b", stage.text) is not None) is offered
            await stage.press("escape", "tab")


async def test_the_footer_follows_the_row_under_the_cursor() -> None:
    """What holds no quota cannot be requeued."""
    async with staged(simulated(org_cohort()), (160, 50)) as stage:
        await stage.press("3")
        screen, seen = stage.screen(ConsoleScreen), []
        for _ in range(5):
            pieces = painted(screen.query_one(Footer).left)
            looks = {style for text, style in pieces if text.strip() in ("requeue", "t")}
            assert bool(screen.refusal(BY_ID["workload.requeue"])) is (looks == {"dim"})
            seen.append(looks)
            await stage.press("j")
        assert {"dim"} in seen
        assert {"key", ""} in seen


def test_no_scope_is_both_of_an_object_and_of_every_screen() -> None:
    assert {Scope.OBJECT, Scope.WORKLOAD, Scope.QUEUE, Scope.NODE}.isdisjoint(WIDE_SCOPES)

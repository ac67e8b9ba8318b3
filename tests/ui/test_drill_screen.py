"""Drills in the console: predicted by marks or by name, shown with the reason, scored; on a cluster of their own."""

from pathlib import Path

import pytest
from textual import events
from textual.message import Message

from gpuconsole.insight.drill import DrillSession
from gpuconsole.services.drills import library
from gpuconsole.services.drills import open_drill as open_file
from gpuconsole.ui.drill_console import DrillApp
from gpuconsole.ui.screens.drill import DrillScreen, DrillsScreen
from gpuconsole.ui.screens.help import HelpScreen
from gpuconsole.ui.widgets.dialogs import Prompt
from gpuconsole.ui.widgets.grid import Grid
from gpuconsole.ui.widgets.textpane import TextPane
from tests.support.console_clusters import org_cohort, simulated
from tests.support.console_stage import Stage, staged

SIZES = ((80, 24), (160, 50))
PLATFORM = "inference-spares-research"


async def open_drill(stage: Stage, name: str) -> DrillScreen:
    await stage.press("1", "T")
    grid = stage.screen(DrillsScreen).query_one(Grid)
    grid.move_to(next(number for number, row in enumerate(grid.rows) if row.name == name))
    await stage.press("enter")
    return stage.screen(DrillScreen)


def story(stage: Stage) -> str:
    return stage.screen(DrillScreen).query_one("#drill-story", TextPane).text


def said(stage: Stage) -> str:
    """What is said in passing, all of it."""
    return " ".join(notice.message for notice in stage.app._notifications)


async def mark(stage: Stage, name: str) -> None:
    await stage.press("a")
    assert isinstance(stage.app.screen, Prompt)
    await stage.write(name)
    await stage.press("enter")


@pytest.mark.parametrize("size", SIZES, ids=str)
async def test_a_drill_is_played_from_its_first_step_to_its_score(size: tuple[int, int]) -> None:
    async with staged(simulated(org_cohort()), size) as stage:
        await open_drill(stage, PLATFORM)
        assert "STEP 1 OF 3  at the start: next step" in story(stage)
        assert "Job/research/train-1 · 8 GPUs in 1 pod · queue main · standard, priority 500" in story(stage)
        assert "Which workloads will be evicted? Space marks one. Predicted: none" in story(stage)

        await stage.press("enter")
        assert "✓ correct\n  No workload was evicted." in story(stage)
        await stage.press("enter")
        assert "STEP 2 OF 3  after 10m: next step\n  + Job/inference/serve-1" in story(stage)

        await mark(stage, "notebooks-2")
        assert "Predicted: development/notebooks-2" in story(stage)
        await stage.press("enter")
        told = story(stage)
        assert "✓ development/notebooks-2  8 GPUs, priority 100 ✖ by inference/serve-1, priority 10000" in told
        assert "after 10m, reclaim in cohort: /platform/development ✖ by /platform/inference" in told
        assert "candidates for inference/serve-1 that stayed:\n    development/notebooks-1" in told
        assert "✓ step 2 at 10m: evicted: development/notebooks-2 by inference/serve-1" in told
        assert stage.screen(DrillScreen).query_one(Grid).marked == []
        assert "2 of 2 correct" in stage.text

        await stage.press("enter", "enter")
        score = "SCORE\n  3 of 3 steps predicted correctly\n  1 of 1 victim predicted\n  7 of 7 expectations"
        assert score in story(stage)
        await stage.press("enter")
        assert "the drill is over; press R to restart" in said(stage)
        await stage.press("R")
        assert "STEP 1 OF 3" in story(stage)


async def test_what_a_drill_shows_is_told_in_full_at_its_beginning() -> None:
    async with staged(simulated(org_cohort()), (80, 24)) as stage:
        await open_drill(stage, PLATFORM)
        about = stage.screen(DrillScreen)._play.scenario.description
        assert len(about) > 60
        assert story(stage).splitlines()[:3] == [about, "", "STEP 1 OF 3  at the start: next step"]
        assert stage.text.count(about[:20]) == 1
        await stage.press("enter", "enter")
        assert story(stage).startswith("STEP 2 OF 3")
        assert about[:20] in stage.text


async def test_who_was_named_and_stayed_is_told_why() -> None:
    async with staged(simulated(org_cohort())) as stage:
        await open_drill(stage, PLATFORM)
        await stage.press("enter", "enter")
        grid = stage.screen(DrillScreen).query_one(Grid)
        grid.move_to(
            next(number for number, row in enumerate(grid.rows) if row.workload.name.startswith("job-train-1"))
        )
        await stage.press("space")
        assert "Predicted: research/train-1" in story(stage)
        await stage.press("enter")
        told = story(stage)
        assert "✗ incorrect" in told
        assert "✗ development/notebooks-2  8 GPUs" in told
        assert "not predicted" in told
        assert "✗ research/train-1  not evicted   skipped: its ClusterQueue is within nominal quota" in told


async def test_a_name_that_nothing_running_has_is_not_taken() -> None:
    async with staged(simulated(org_cohort())) as stage:
        await open_drill(stage, PLATFORM)
        await mark(stage, "nobody-knows")
        assert isinstance(stage.app.screen, Prompt)
        assert "no running workload has this name" in stage.text


async def test_the_cluster_behind_the_console_is_not_touched() -> None:
    console = simulated(org_cohort())
    async with staged(console) as stage:
        before = console.snapshot
        await open_drill(stage, PLATFORM)
        await stage.press("enter", "enter", "enter")
        assert console.snapshot is before
        await stage.press("escape", "escape")
        assert not isinstance(stage.app.screen, DrillScreen | DrillsScreen)


async def test_a_file_is_opened_and_one_that_is_no_drill_says_what_is_wrong(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("name: mine\nsteps:\n  - commands: [{type: nonsense}]\n")
    async with staged(simulated(org_cohort())) as stage:
        await stage.press("1", "T", "o")
        await stage.write(str(file))
        await stage.press("enter")
        await stage.wait(0.1)
        assert "steps[0].commands[0].type: 'nonsense' is no command" in said(stage)
        file.write_text("name: mine\nsteps: []\n")
        await stage.press("o")
        await stage.write(str(file))
        await stage.press("enter")
        await stage.wait(0.1)
        assert "it has no steps, so there is nothing to predict" in said(stage)
        assert isinstance(stage.app.screen, DrillsScreen)


async def test_the_command_line_opens_a_drill_by_name_or_file(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("steps: [{advanceSeconds: 60}]\n")
    async with staged(simulated(org_cohort())) as stage:
        for named, first in (("gang", "STEP 1 OF 2"), (str(tmp_path / "mine.yaml"), "STEP 1 OF 1")):
            await stage.press("1", ":")
            await stage.write(f"drill {named}")
            await stage.press("enter")
            await stage.wait(0.1)
            assert first in story(stage)
            await stage.press("escape")
        await stage.press(":")
        await stage.write("drill nobody-knows")
        await stage.press("enter")
        await stage.wait(0.1)
        assert "nobody-knows: " in said(stage)


async def test_keys_typed_before_anything_is_drawn_are_for_the_drill() -> None:
    path = next(drill.path for drill in library() if drill.name == PLATFORM)
    app = DrillApp(simulated(org_cohort()), DrillSession(open_file(path), seed=None))

    def typed(message: Message) -> None:
        if isinstance(message, events.Load):
            app.post_message(events.Key("question_mark", "?"))

    async with app.run_test(message_hook=typed) as pilot:
        await pilot.pause()
        assert [type(screen) for screen in app.screen_stack[1:]] == [DrillScreen, HelpScreen]

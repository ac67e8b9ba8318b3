"""From an answer to the rehearsal: what would unblock a workload, and what a plan proposes, as changes of a what-if."""

from pathlib import Path

import pytest

from gpuconsole.cli.whatif import changes_in
from gpuconsole.insight.unblock.changes import RaiseLimit, change_commands
from gpuconsole.model.commands import Command, Finish, SetQuota, Submit
from gpuconsole.model.manifests import load_text
from gpuconsole.model.queues import Cohort, Quota
from gpuconsole.model.resources import GPU
from gpuconsole.model.workloads import Workload
from gpuconsole.services.console import Console
from gpuconsole.ui import whatif_changes
from gpuconsole.ui.names import called
from gpuconsole.ui.screens.answers import AnswerScreen, PlanOptions
from gpuconsole.ui.screens.whatif import WhatIfScreen
from gpuconsole.ui.screens.workloads import WorkloadDetailScreen
from gpuconsole.ui.whatif_changes import try_out
from gpuconsole.ui.widgets.textpane import MARK
from tests.support.console_clusters import FLAVOR, a_job, busy_org, org_cohort, snapshot_of
from tests.support.console_stage import SIZES, Stage, staged

LLM_FT = "research/job-llm-ft-4364e"


def waiting_org() -> Console:
    """An organisation in which research/late waits for more GPUs than its queue may borrow."""
    console = busy_org()
    console.submit(Submit((a_job("late", 6, "research", "research"),)))
    console.tick(60.0)
    return console


async def opened(stage: Stage) -> WorkloadDetailScreen:
    await stage.press("3", "slash")
    await stage.write("late")
    await stage.press("enter", "enter")
    await stage.settle()
    return stage.screen(WorkloadDetailScreen)


async def chosen(stage: Stage, words: str) -> None:
    """Put the cursor on the suggestion with these words."""
    for _ in range(60):
        if words in stage.line(MARK):
            return
        await stage.press("j")
    raise AssertionError(f"{words!r} is not there:\n{stage.text}")


def taken(stage: Stage) -> list[Command]:
    return [command for change in stage.screen(WhatIfScreen).changes for command in change.commands]


async def suggested(stage: Stage, words: str) -> list[Command]:
    """Take the suggestion with these words into the what-if; what it changes there."""
    await opened(stage)
    await chosen(stage, words)
    await stage.press("u")
    return taken(stage)


async def written(stage: Stage, path: Path) -> tuple[Command, ...]:
    """What W writes, as `gpuconsole whatif -f` reads it."""
    await stage.press("W", "ctrl+u")
    await stage.write(str(path))
    await stage.press("enter")
    return changes_in(path, stage.app.cluster.snapshot.time).commands


@pytest.mark.parametrize("size", SIZES, ids=str)
async def test_a_suggestion_under_the_cursor_becomes_a_change_of_the_what_if(size: tuple[int, int]) -> None:
    async with staged(waiting_org(), size) as stage:
        commands = await suggested(stage, "llm-ft ends")
        assert commands == [Finish(LLM_FT)]
        assert stage.line("1 research/late: research/llm-ft ends (4 GPUs)")
        await stage.press("enter", "G")
        assert stage.line("pending on quota").split() == ["pending", "on", "quota", "1", "0", "-1"]


async def test_the_key_is_in_the_footer_once_there_is_a_suggestion_and_asks_for_one_that_is_chosen() -> None:
    async with staged(waiting_org(), (80, 24)) as stage:
        await opened(stage)
        assert "u try in what-if" in stage.lines[-1]
        await stage.press("u")
        (said,) = stage.app._notifications
        assert said.message == "try in what-if: select a suggestion with j and k first"
        stage.screen(WorkloadDetailScreen)


async def test_enter_on_a_suggestion_changes_nothing() -> None:
    async with staged(waiting_org()) as stage:
        await opened(stage)
        await chosen(stage, "llm-ft ends")
        await stage.press("enter")
        stage.screen(WorkloadDetailScreen)
        assert stage.app.cluster.snapshot.workloads[LLM_FT].reserved


async def test_more_quota_is_written_as_the_command_that_sets_it(tmp_path: Path) -> None:
    async with staged(waiting_org()) as stage:
        commands = await suggested(stage, "nominalQuota of ClusterQueue cq-research")
        assert commands == [SetQuota("cq-research", FLAVOR, GPU, 10)]
        assert await written(stage, tmp_path / "more.yaml") == tuple(commands)


def test_quota_of_a_cohort_has_the_manifest_of_the_cohort_to_be_written() -> None:
    more = RaiseLimit(kind="Cohort", name="org-cohort", limit="nominalQuota", flavor=FLAVOR, resource=GPU, by=2)
    (change,) = whatif_changes.tried(
        "more", change_commands(snapshot_of(org_cohort()), "research/late", (more,))
    ).commands
    assert isinstance(change, Submit)
    (cohort,) = change.objects
    assert isinstance(cohort, Cohort)
    assert cohort.quotas() == {(FLAVOR, GPU): Quota(2)}
    assert load_text(change.documents[0], now=0).objects == (cohort,)


async def test_what_is_asked_for_otherwise_is_submitted_anew_in_the_fork_and_is_not_written(tmp_path: Path) -> None:
    """A job that the console knows has no manifest that says all of it."""
    file = tmp_path / "less.yaml"
    async with staged(waiting_org()) as stage:
        _, submitted = await suggested(stage, "request 4 GPUs per pod instead of 6 GPUs")
        assert isinstance(submitted, Submit)
        (late,) = submitted.objects
        assert isinstance(late, Workload)
        assert (called(late.key), late.pod_sets[0].template.requests[GPU]) == ("research/late", 4)
        await stage.press("enter")
        assert "✓ research/late, 4 GPUs: admitted" in stage.text
        await stage.press("W", "ctrl+u")
        await stage.write(str(file))
        await stage.press("enter")
        assert not file.exists()
        assert "has no manifest that can be written" in list(stage.app._notifications)[-1].message


async def test_who_is_gone_meanwhile_is_said_to_be_gone() -> None:
    async with staged(waiting_org()) as stage:
        screen = await opened(stage)
        await chosen(stage, "nominalQuota of ClusterQueue cq-research")
        screen.set_reactive(WorkloadDetailScreen.snapshot, snapshot_of([]))
        await stage.press("u")
        stage.screen(WorkloadDetailScreen)
        assert list(stage.app._notifications)[-1].message == "cq-research no longer exists; press x to search again"


async def planned(stage: Stage) -> PlanOptions:
    """The plan for one more job than there is room for."""
    await stage.press("7")
    try_out(stage.app, whatif_changes.submit([a_job("late-2", 8, "research", "research")], "research/late-2"))
    await stage.settle()
    await stage.press("p", "enter")
    return next(group for group in stage.screen(AnswerScreen).groups if isinstance(group, PlanOptions))


@pytest.mark.parametrize("size", SIZES, ids=str)
async def test_an_option_of_a_plan_becomes_a_change_of_the_what_if_that_it_is_for(size: tuple[int, int]) -> None:
    async with staged(busy_org(), size) as stage:
        options = await planned(stage)
        assert "u try in what-if" in stage.lines[-1]
        while options.selected is not None and options.selected.kind == "priority":
            await stage.press("j")
        option = options.selected
        assert option is not None
        await stage.press("u")
        words = [change.words for change in stage.screen(WhatIfScreen).changes]
        assert (words, taken(stage)[:-1]) == ([option.words, "submit research/late-2"], list(option.commands))
        await stage.press("enter")
        assert "✓ research/late-2, 8 GPUs: admitted" in stage.text


async def test_a_priority_that_a_plan_proposes_comes_after_the_job_that_gets_it() -> None:
    async with staged(busy_org()) as stage:
        options = await planned(stage)
        assert options.selected is not None
        assert options.selected.kind == "priority"
        await stage.press("u")
        words = [change.words for change in stage.screen(WhatIfScreen).changes]
        assert words == ["submit research/late-2", "priority +501"]


async def test_no_change_is_no_change_to_be_tried() -> None:
    async with staged(busy_org()) as stage:
        await planned(stage)
        await stage.press("G", "u")
        assert stage.screen(AnswerScreen).crumb() == "plan"
        assert list(stage.app._notifications)[-1].message == "try in what-if: this option changes nothing"

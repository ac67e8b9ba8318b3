"""The node scores of a pod: who is chosen, who is refused and why, and how each score came about."""

import pytest

from gpuconsole.model.commands import Cordon, Submit
from gpuconsole.ui.screens.scores import ScoresScreen
from gpuconsole.ui.widgets.grid import Grid
from tests.support.console_clusters import HOSTILE, a_job, busy_org, node, org_cohort, recorded, simulated
from tests.support.console_stage import SIZES, staged


@pytest.mark.parametrize("size", SIZES, ids=str)
async def test_every_node_has_its_verdict_and_its_scores(size: tuple[int, int]) -> None:
    console = busy_org()
    console.submit(Cordon("node-3", True))
    console.tick(1.0)
    async with staged(console, size) as stage:
        await stage.press("3", "slash")
        await stage.write("llm-ft")
        await stage.press("enter", "m", "n")
        screen = stage.screen(ScoresScreen)
        rows = screen.query_one("#scores", Grid).rows
        assert [(row.node, row.chosen, row.fits) for row in rows] == [
            ("node-1", True, True),
            ("node-2", False, False),
            ("node-3", False, False),
        ]
        assert "research/llm-ft" in stage.line("kube-scheduler")
        assert "1/3 nodes feasible" in stage.line("kube-scheduler")
        assert "● chosen" in stage.line("▌")
        assert "NodeResourcesFit" in stage.text
        await stage.press("end")
        assert "node(s) were unschedulable" in stage.line("   NodeUnschedulable")


async def test_of_a_workload_without_pods_its_template_is_asked_about() -> None:
    console = busy_org()
    console.submit(Submit((a_job("huge", 8, "research", "research-default"),)))
    for _ in range(3):
        console.tick(1.0)
    async with staged(console) as stage:
        await stage.press("3", "slash")
        await stage.write("huge")
        await stage.press("enter", "m", "n")
        assert "none of 3 nodes is feasible" in stage.text
        assert "FailedScheduling  0/3 nodes are available" in stage.text


async def test_another_pod_can_be_chosen_and_the_answer_is_renewed_on_demand() -> None:
    async with staged(busy_org()) as stage:
        await stage.press("3", "m", "n")
        before = stage.line("as of")
        await stage.tick(5.0)
        assert stage.line("as of") == before
        await stage.press("ctrl+r")
        assert stage.line("as of") != before
        await stage.press("m", "n", "enter")
        stage.screen(ScoresScreen)
        await stage.press("escape")
        assert stage.app.view == "workloads"


async def test_a_recording_says_that_it_cannot_tell() -> None:
    async with staged(recorded(org_cohort())) as stage:
        await stage.press("3", "m", "n")
        assert "A recording has no what-ifs" in stage.text


@pytest.mark.parametrize("name", [name for name in HOSTILE if name])
async def test_hostile_names_reach_the_screen_clean(name: str) -> None:
    console = simulated([*(thing for thing in org_cohort()[:3]), node(name)])
    async with staged(console, (80, 24)) as stage:
        console.submit(Submit((a_job("one", 1, "research", ""),)))
        await stage.tick(times=3)
        for key in ("3", "m", "n", "end", "m", "n", "escape", "escape"):
            await stage.press(key)
            assert all(line.isprintable() for line in stage.lines), key

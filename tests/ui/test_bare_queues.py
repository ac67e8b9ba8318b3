"""Queues that Kueue does not rule, on the queues screen and on the dashboard: they are seen, and cannot be held."""

import pytest
from msgspec.structs import replace

from gpuconsole.model.job import Job, JobPhase
from gpuconsole.model.objects import Object
from gpuconsole.model.volcano import GroupCondition, PodGroup, VolcanoQueue
from gpuconsole.ui.screens.workload_actions import NO_WORKLOAD
from gpuconsole.ui.screens.workloads import WorkloadDetailScreen, WorkloadsScreen
from gpuconsole.ui.widgets.textpane import TextPane
from tests.support.console_clusters import HOSTILE, NOW, history, pod_set, recorded
from tests.support.console_stage import SIZES, staged
from tests.support.snapshots import node, pod

GROUP = {"scheduling.k8s.io/group-name": "g"}


def volcano(queue: str = "research") -> list[Object]:
    return [
        node("n1"),
        VolcanoQueue(name=queue, weight=3),
        VolcanoQueue(name="product"),
        PodGroup(namespace="team", name="g", queue=queue),
        pod("r-0", "n1", (0, 1, 2), annotations=GROUP),
        pod("r-1", wants=2, annotations=GROUP),
    ]


@pytest.mark.parametrize("size", SIZES, ids=str)
async def test_volcanos_queues_stand_where_kueues_would(size: tuple[int, int]) -> None:
    async with staged(recorded(volcano()), size) as stage:
        assert "research" in stage.line("3 / 5")
        await stage.press("2", "j")
        assert "research" in stage.line("▌")
        assert "deserves 5 · max 8 · weight 3 · reclaimable" in stage.text
        assert "Volcano queue" in stage.text


def waiting_job() -> list[Object]:
    """A job of Volcano whose PodGroup is not let in, and one that runs."""
    text = "queue resource quota insufficient: insufficient nvidia.com/gpu"
    group = PodGroup(
        namespace="team",
        name="g",
        queue="research",
        phase="Pending",
        conditions=(GroupCondition("Unschedulable", True, "NotEnoughResources", text, NOW),),
    )
    one = Job(kind="VolcanoJob", namespace="team", name="train", created=NOW, pod_sets=(pod_set(4, 2),))
    other = replace(one, name="busy", phase=JobPhase.RUNNING, started=NOW)
    return [
        *(thing for thing in volcano() if not isinstance(thing, PodGroup)),
        group,
        one,
        other,
        pod("w-0", wants=4, job=one.key, annotations=GROUP, message="0/1 nodes are unavailable: 1 Insufficient cpu."),
        pod("b-0", "n1", (4,), job=other.key),
    ]


@pytest.mark.parametrize("size", SIZES, ids=str)
async def test_jobs_without_kueue_are_listed_and_say_in_volcanos_words_why_they_wait(size: tuple[int, int]) -> None:
    async with staged(recorded(waiting_job()), size) as stage:
        await stage.press("3")
        assert "◐ pending" in stage.line("team/train")
        assert "● running" in stage.line(" team/busy ")
        assert "VolcanoJob/" not in stage.text, "the kind has a column"
        await stage.press("slash")
        await stage.write("train")
        await stage.press("enter", "enter")
        detail = stage.screen(WorkloadDetailScreen)
        why = detail.query_one("#why", TextPane).text
        assert "Not enqueued by Volcano: its queue would exceed its capability for nvidia.com/gpu." in why
        assert "0/1 nodes are unavailable: 1 Insufficient cpu." in why
        pods = detail.query_one("#pods", TextPane).text
        assert "POD GROUP" in pods
        assert "team/g · Pending · minMember 1 · queue research" in pods
        assert "CONDITIONS" not in pods
        assert detail.subject() == ("jobs", "VolcanoJob/team/train")


async def test_what_kueue_does_not_manage_cannot_be_stopped_but_described() -> None:
    async with staged(recorded(waiting_job())) as stage:
        await stage.press("3")
        offered = {action.id for action in stage.screen(WorkloadsScreen).actions.offered()}
        assert "workload.stop" not in offered
        assert {"object.describe", "object.yaml", "object.delete", "object.open"} <= offered


async def test_what_no_workload_stands_for_says_why_it_cannot_be_tried_and_finds_its_preemptions() -> None:
    async with staged(recorded(waiting_job(), history())) as stage:
        await stage.press("3", "i")
        said = [notice.message for notice in stage.app._notifications]
        assert said == [NO_WORKLOAD]
        await stage.press("w")
        await stage.tick()
        assert stage.app.view == "preemptions"
        assert "was neither victim nor preemptor" in stage.text


async def test_they_cannot_be_held() -> None:
    async with staged(recorded(volcano())) as stage:
        await stage.press("2", "s")
        said = [notice.message for notice in stage.app._notifications]
        assert said == ["hold or resume: only Kueue queues can be held"]
        await stage.press("d")
        assert "Reclaimable" in stage.text


async def test_namespaces_stand_in_where_nothing_queues() -> None:
    async with staged(recorded([node("n1"), pod("p", "n1", (0, 1))])) as stage:
        await stage.press("2")
        assert "2 / 8" in stage.line("team")
        assert "no quota" in stage.text


@pytest.mark.parametrize("name", [name for name in HOSTILE if name])
async def test_hostile_names_reach_the_screen_clean(name: str) -> None:
    async with staged(recorded(volcano(name)), (80, 24)) as stage:
        for key in ("2", "j", "d", "escape", "y", "escape", "1", "3", "enter", "escape"):
            await stage.press(key)
            assert all(line.isprintable() for line in stage.lines), key

"""Workloads that hold quota and wait for checks: seen on the dashboard, answered by a key as their controller would."""

import pytest
from msgspec.structs import replace

from gpuconsole.backends.simulated import SimulatedBackend
from gpuconsole.insight.overview import Waiting
from gpuconsole.insight.pending.reasons import PendingReason
from gpuconsole.model.commands import Submit
from gpuconsole.model.devices import WHOLE_GPU, DeviceUnit, UnitKind
from gpuconsole.model.objects import Object
from gpuconsole.model.queues import AdmissionCheck, CheckRule, ClusterQueue
from gpuconsole.services.console import Console
from gpuconsole.services.status import ConsoleStatus
from gpuconsole.sim.engine import Simulation
from gpuconsole.sim.policy import Checks, SimPolicy
from gpuconsole.ui.paint import painted
from gpuconsole.ui.screens.dashboard import waiting_lines
from gpuconsole.ui.widgets.dialogs import ChoiceDialog, Confirm
from tests.support.console_clusters import KUEUE, NOW, a_job, org_jobs
from tests.support.console_stage import SIZES, Stage, staged


def checked_org(read_only: bool = False) -> Console:
    """The organisation whose research waits for the check `budget`, and a job of 4 GPUs there."""
    things: list[Object] = [AdmissionCheck(name="budget", controller="example.com/budget")]
    for thing in org_jobs():
        if isinstance(thing, ClusterQueue) and thing.name == "cq-research":
            thing = replace(thing, checks=(CheckRule("budget"),))
        things.append(thing)
    simulation = Simulation.from_objects(things, policy=SimPolicy(checks=Checks.WAIT), seed=7, start=NOW)
    simulation.submit(Submit((a_job("llm-ft", 4, "research", "research-default"),)))
    console = Console(
        SimulatedBackend(simulation, speed=1.0), about=ConsoleStatus(source="test", engines=KUEUE), read_only=read_only
    )
    console.tick(1.0)
    return console


def admitted(stage: Stage) -> list[bool]:
    return [workload.admitted for workload in stage.app.cluster.snapshot.workloads.all()]


def test_the_parts_of_who_waits_add_up_to_the_number_above_them() -> None:
    codes = {PendingReason.QUOTA: 9, PendingReason.EXCEEDS_MAX: 1, PendingReason.QUEUED: 2, PendingReason.NODES: 1}
    found = Waiting(
        workloads=12,
        units={WHOLE_GPU: 40},
        oldest="",
        oldest_since=0,
        codes=codes,
        checking=3,
        checking_units={DeviceUnit(UnitKind.MIG, "1g.10gb"): 3},
        by_nodes=1,
    )
    lines = ["".join(text for text, _ in painted(cell)) for cell in waiting_lines(found, 0)]
    assert lines == [
        "◐ 16 workloads, 40 GPUs",
        "⏸ 3 in admission checks: 3 MIG 1g.10gb instances",
        "10 for quota, 1 for nodes, 3 for admission checks, 2 other",
    ]


@pytest.mark.parametrize("size", SIZES, ids=str)
async def test_the_dashboard_shows_who_holds_quota_without_running(size: tuple[int, int]) -> None:
    async with staged(checked_org(), size) as stage:
        assert "⏸ 1 in admission checks: 4 GPUs" in stage.text
        assert "4 GPUs reserved, waiting for budget for 1s" in stage.text


async def test_a_check_is_answered_with_ready_and_the_job_runs() -> None:
    async with staged(checked_org()) as stage:
        await stage.press("3", "m", "c")
        stage.screen(ChoiceDialog)
        assert [line.split("│")[1].split() for line in stage.lines if "budget" in line and "requeued" in line] != []
        await stage.press("enter")
        await stage.tick(times=2)
        assert admitted(stage) == [True]


async def test_what_takes_the_quota_away_asks_first() -> None:
    async with staged(checked_org()) as stage:
        await stage.press("3", "m", "c", "end", "enter")
        stage.screen(Confirm)
        await stage.press("enter")
        await stage.tick(times=2)
        assert [w.reserved for w in stage.app.cluster.snapshot.workloads.all()] == [True]
        await stage.press("m", "c", "end", "enter", "tab", "enter")
        await stage.tick(times=2)
        assert [w.active for w in stage.app.cluster.snapshot.workloads.all()] == [False]


async def test_a_read_only_session_answers_nothing() -> None:
    async with staged(checked_org(read_only=True)) as stage:
        await stage.press("3", "m", "c")
        assert "this session is read-only" in stage.text
        assert admitted(stage) == [False]

"""The cost: pools with their machines, and whose cost it is by queue, team or workload, now and in a recorded time."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from gpuconsole.insight.cost.allocation import CostHour, CostKind, CostOwner
from gpuconsole.insight.cost.report import CostBy, job_cost
from gpuconsole.model.autoscaling import POOL, SPOT, NodeGroup, NodePool, ProvisionedInstance
from gpuconsole.model.clock import HOUR, MINUTE, parse_time
from gpuconsole.model.cluster import Node, Pod
from gpuconsole.model.events import Applied, HistoryEvent, HistoryEventKind
from gpuconsole.model.objects import Object
from gpuconsole.model.workloads import Workload
from gpuconsole.services.console import Console
from gpuconsole.store.recorder import Opening, Recorder
from gpuconsole.ui import format as fmt
from gpuconsole.ui.paint import plain
from gpuconsole.ui.screens.cost import CostScreen
from gpuconsole.ui.widgets.grid import Grid
from gpuconsole.ui.workload_text import WorkloadCost, cost_lines
from tests.support.console_clusters import HOSTILE, NOW, history, node, org_cohort, recorded
from tests.support.console_stage import SIZES, Stage, staged
from tests.support.recorded_backend import RecordedBackend
from tests.support.recorded_histories import RecordedConsole
from tests.ui.test_time_travel import comes


def on_spot(pool: str = "spot") -> list[Object]:
    """The organisation, whose node-3 is a spot machine of a pool."""
    machine = ProvisionedInstance(
        name="node-3",
        type="p4de.24xlarge",
        capacity_type=SPOT,
        price=12.0,
        list_price=40.0,
        gpus=8,
        launched=NOW - 3_600_000_000,
        ready=NOW - 3_500_000_000,
    )
    things = org_cohort()
    for place, thing in enumerate(things):
        if isinstance(thing, Node) and thing.name == "node-3":
            things[place] = replace(thing, labels={**thing.labels, POOL: pool})
    return [*things, NodePool(name=pool), NodeGroup(name=pool, instances=(machine,), interrupted=1)]


@pytest.mark.parametrize("size", SIZES, ids=str)
async def test_pools_show_their_machines_and_queues_their_part(size: tuple[int, int]) -> None:
    async with staged(recorded(on_spot(), history()), size) as stage:
        await stage.press("9")
        assert "$47.36/h now" in stage.text
        assert "spot saves $28.00/h" in stage.text
        assert "1 interruption" in stage.text
        assert "$12.00" in stage.line("▌ spot")
        assert "$35.36" in stage.line("static nodes")
        assert "$17.68" in stage.line("cq-prod")
        assert "○ idle" in stage.text


async def test_the_cost_is_divided_by_queue_team_or_workload() -> None:
    async with staged(recorded(on_spot())) as stage:
        await stage.press("9")
        names = [row.name for row in stage.screen(CostScreen).query_one("#shares", Grid).rows]
        assert names == ["cq-research", "cq-prod", ""]
        await stage.press("B")
        names = [row.name for row in stage.screen(CostScreen).query_one("#shares", Grid).rows]
        assert names == ["research", "prod", ""]
        await stage.press("B")
        names = [row.name for row in stage.screen(CostScreen).query_one("#shares", Grid).rows]
        assert names == ["prod/serve", "research/rlhf", "research/llm-ft", "", "research/embed"]


async def test_borrowed_and_lent_quota_have_their_parts_of_the_cost() -> None:
    # Research uses 4 GPUs of prod's quota, at 2.21 USD an hour.
    async with staged(recorded(org_cohort()), (160, 50)) as stage:
        await stage.press("9")
        assert ["BORROWED/h" in stage.text, "LENT/h" in stage.text] == [True, True]
        assert stage.line("cq-research").split().count("$8.84") == 1
        assert stage.line("cq-prod").split().count("$8.84") == 1
        await stage.press("B", "B")
        assert ["BORROWED/h" in stage.text, "LENT/h" in stage.text] == [True, False]
        assert stage.line("research/rlhf").split().count("$8.84") == 1


async def test_a_lender_without_workloads_has_a_row() -> None:
    idle = [one for one in org_cohort() if not isinstance(one, Workload | Pod) or one.namespace != "prod"]
    async with staged(recorded(idle), (160, 50)) as stage:
        await stage.press("9")
        assert stage.line("cq-prod").split().count("$8.84") == 1


async def test_enter_leads_to_the_nodes_of_a_pool_and_to_who_causes_the_cost() -> None:
    async with staged(recorded(on_spot())) as stage:
        await stage.press("9", "enter")
        assert stage.app.view == "nodes"
        assert "node-3" in stage.text
        assert "node-1 " not in stage.text
        await stage.press("9", "tab", "enter")
        assert stage.app.view == "queues"


async def test_lost_work_is_shown_with_its_price() -> None:
    events = [replace(line, what="evicted") if line.reason == "InCohortReclamation" else line for line in history()]
    async with staged(recorded(on_spot(), events)) as stage:
        await stage.press("9")
        assert "$6.41 of lost work, 2.9 GPU-hours in recent events" in stage.text
        assert "$6.41" in stage.line("cq-research")


async def test_a_cluster_without_nodes_costs_nothing() -> None:
    async with staged(recorded(org_cohort()[:2])) as stage:
        await stage.press("9")
        assert "$0.00/h now" in stage.text
        assert "○ No nodes." in stage.text


@pytest.mark.parametrize("name", [name for name in HOSTILE if name])
async def test_hostile_names_reach_the_screen_clean(name: str) -> None:
    async with staged(recorded([*on_spot(name), node(name)]), (80, 24)) as stage:
        for key in ("9", "end", "d", "escape", "B", "B", "tab", "end", "enter"):
            await stage.press(key)
            assert all(line.isprintable() for line in stage.lines), key


async def test_work_whose_loss_is_unknown_is_no_nought() -> None:
    """It ran before the console looked."""
    gone = HistoryEvent(
        time=NOW - MINUTE,
        what=HistoryEventKind.EVICTED,
        workload="prod/old",
        queue="cq-prod",
        reason="Preempted",
        lost_unknown=True,
    )
    async with staged(recorded(org_cohort(), [gone]), (160, 50)) as stage:
        await stage.press("9")
        assert "✖ lost work unknown" in stage.text
        assert stage.line("cq-prod").split()[-2:] == ["unknown", "unknown"]


async def test_a_sum_with_an_unknown_part_is_at_least_what_is_known() -> None:
    known = HistoryEvent(
        time=NOW - MINUTE,
        what=HistoryEventKind.EVICTED,
        workload="prod/a",
        queue="cq-prod",
        lost_gpu_seconds=7200.0,
        cost=4.0,
    )
    lines = [known, replace(known, workload="prod/old", lost_gpu_seconds=0.0, cost=0.0, lost_unknown=True)]
    async with staged(recorded(org_cohort(), lines), (160, 50)) as stage:
        await stage.press("9")
        assert "at least $4.00 of lost work, at least 2.0 GPU-hours" in stage.text
        assert "≥2.0 GPU-h" in stage.line("cq-prod")
        assert "≥$4.00" in stage.line("cq-prod")


def table(stage: Stage) -> dict[str, float]:
    """Name → cost of the rows of the lower table."""
    rows = stage.screen(CostScreen).query_one("#shares", Grid).rows
    return {row.name: round(row.hourly if hasattr(row, "hourly") else row.cost_usd, 2) for row in rows}


async def test_the_key_for_grouping_shows_every_dimension_of_the_present_rates() -> None:
    labels = {"team": "vision", "project": "faces", "user": "ada"}
    things: list[Object] = [
        replace(one, labels={**one.labels, **labels}) if isinstance(one, Workload) and "rlhf" in one.key else one
        for one in on_spot()
    ]
    async with staged(recorded(things)) as stage:
        await stage.press("9")
        found = {}
        for _ in CostBy:
            found[stage.screen(CostScreen).query_one("#shares", Grid).columns[0].title] = table(stage)
            await stage.press("B")
        assert found == {
            "QUEUE": {"cq-research": 22.26, "cq-prod": 17.68, "": 7.42},
            "TEAM": {"prod": 17.68, "research": 13.26, "vision": 9.0, "": 7.42},
            "WORKLOAD": {"prod/serve": 17.68, "research/rlhf": 9.0, "research/llm-ft": 8.84, "": 7.42}
            | {"research/embed": 4.42},
            "PROJECT": {"(none)": 30.94, "faces": 9.0, "": 7.42},
            "NAMESPACE": {"research": 22.26, "prod": 17.68, "": 7.42},
            "USER": {"(none)": 30.94, "ada": 9.0, "": 7.42},
            "GPU TYPE": {"a100-80gb": 39.94, "": 7.42},
        }
        assert table(stage) == found["QUEUE"]


WORK = CostOwner(kind=CostKind.WORKLOAD, workload="research/gone", namespace="research", team="vision", queue="cq-old")
IDLE = CostOwner(kind=CostKind.IDLE, gpu_type="a100-80gb")
SYSTEM = CostOwner(kind=CostKind.SYSTEM, namespace="kube-system", gpu_type="cpu")


@pytest.fixture
def remembered(tmp_path: Path) -> Iterator[Console]:
    """The organisation, with costs of today, this month and the last month in its history; the work has finished."""
    recorder = Recorder(tmp_path / "history.db", Opening(version="1", mode="LIVE"), wall=lambda: 0, interval=1e6)
    today = NOW // (24 * 60 * MINUTE) * 24 * 60 * MINUTE
    for hour in (today, today - 30 * 60 * MINUTE, parse_time("2025-12-31T23:00:00Z")):
        cost = CostHour(owner=WORK, hour=hour, gpu_seconds=4 * 3600.0, used_usd=6.0, lost_usd=2.0, saved_usd=3.0)
        recorder.add_costs(
            [
                replace(cost, busy_gpu_seconds=3600.0, measured_gpu_seconds=7200.0),
                CostHour(owner=IDLE, hour=hour, gpu_seconds=3600.0, idle_usd=2.0),
                CostHour(owner=SYSTEM, hour=hour, system_usd=0.5),
            ]
        )
    recorder.flush()
    events = [Applied(NOW, thing) for thing in org_cohort()]
    console = Console(RecordedBackend(events, speed=60.0), recorder=recorder)
    console.tick(1)
    yield console
    console.stop()


@pytest.mark.parametrize("size", SIZES, ids=str)
async def test_recorded_costs_of_finished_work_by_day_and_month(remembered: Console, size: tuple[int, int]) -> None:
    async with staged(remembered, size) as stage:
        await stage.press("9", "+")
        assert "$10.50 today  ·  ○ $2.00 idle, 19%  ·  $0.50 system" in stage.text
        assert "$2.00 of lost work  ·  spot saved $3.00  ·  recorded since" in stage.text
        assert table(stage) == {"cq-old": 8.0, " idle": 2.0, " system": 0.5}
        assert "50%" in stage.line("cq-old")
        await stage.press("+")
        assert "$21.00 this month" in stage.text
        await stage.press("+")
        assert "$10.50 last month" in stage.text
        await stage.press("+")
        assert "$10.50 last month" in stage.text
        await stage.press("B")
        assert table(stage) == {"vision": 8.0, " idle": 2.0, " system": 0.5}
        await stage.press("-", "-", "-")
        assert "/h now" in stage.text


async def test_without_a_stored_history_there_is_only_the_present() -> None:
    async with staged(recorded(org_cohort())) as stage:
        await stage.press("9", "+")
        assert "/h now" in stage.text
        assert "longer window" not in stage.text


async def test_a_time_without_recorded_costs_is_not_zero(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "history.db", Opening(version="1", mode="LIVE"), wall=lambda: 0, interval=1e6)
    console = Console(RecordedBackend([Applied(NOW, one) for one in org_cohort()], speed=60.0), recorder=recorder)
    console.tick(1)
    async with staged(console) as stage:
        await stage.press("9", "+", "+", "+")
        assert "No cost is recorded for last month" in stage.text
    console.stop()


async def test_a_workload_has_its_accrued_cost_its_rate_and_the_cost_at_its_expected_end(tmp_path: Path) -> None:
    console = RecordedConsole(tmp_path / "history.db", minutes=20).console
    async with staged(console) as stage:
        await stage.press("3", "/", *"serve", "enter", "enter")
        assert "prod/serve" in stage.lines[1]
        # 8 GPUs at 2.21 USD since 08:10; its duration is 24 hours.
        assert await comes(stage, "$2.95 accrued in 1.3 GPU-hours · $17.68/h")
        assert "$424.32 at its expected end in 23h50m" in stage.text
    console.stop()


def test_a_workload_without_history_has_its_rate_only_and_a_pending_one_no_cost() -> None:
    lines = cost_lines(WorkloadCost(None, 17.68, NOW + MINUTE), NOW)
    assert [plain(line).rstrip() for line in lines] == ["", "COST", "  $17.68/h"]
    assert cost_lines(WorkloadCost(None, 0.0, None), NOW) == []


def test_a_recorded_workload_without_a_duration_has_no_cost_at_its_end() -> None:
    row = CostHour(owner=WORK, hour=NOW, used_usd=3.0, gpu_seconds=7200.0)
    lines = cost_lines(WorkloadCost(job_cost([row], WORK.workload), 17.68, None), NOW)
    assert [plain(line).rstrip() for line in lines] == [
        "",
        "COST",
        "  $3.00 accrued in 2.0 GPU-hours · $17.68/h",
        "  cost at its end unknown: no duration",
    ]


async def test_at_an_earlier_time_the_day_ends_with_the_shown_hour_which_is_said(tmp_path: Path) -> None:
    console = RecordedConsole(tmp_path / "history.db", minutes=125).console
    async with staged(console, (160, 50)) as stage:
        await stage.press("9", "+")
        assert " today  ·" in stage.text
        await stage.press("ctrl+t", "shift+left")
        hour = console.snapshot.time // HOUR * HOUR + HOUR
        total = sum(row.cost_usd for row in console.cost_sums(0, hour))
        assert console.newest.time > hour
        assert await comes(stage, f"${total:,.2f} today until {fmt.date_and_minute(hour)} UTC, by the hour")
        await stage.press("shift+right", "left")
        assert await comes(stage, f"today until {fmt.date_and_minute(console.newest.time)} UTC, by the hour")
    console.stop()

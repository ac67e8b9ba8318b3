"""The cost: pools with their machines, and whose cost it is by queue, team or workload."""

import pytest
from msgspec.structs import replace

from gpuconsole.model.autoscaling import POOL, SPOT, NodeGroup, NodePool, ProvisionedInstance
from gpuconsole.model.clock import MINUTE
from gpuconsole.model.cluster import Node
from gpuconsole.model.events import HistoryEvent, HistoryEventKind
from gpuconsole.model.objects import Object
from gpuconsole.ui.screens.cost import CostScreen
from gpuconsole.ui.widgets.grid import Grid
from tests.support.console_clusters import HOSTILE, NOW, history, node, org_cohort, recorded
from tests.support.console_stage import SIZES, staged


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
        assert "○ unallocated" in stage.text


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

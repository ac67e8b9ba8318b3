"""The topology: a tree of domains with bars and slots; hosts lead to their GPUs, and can be cordoned."""

import pytest
from msgspec.structs import replace

from gpuconsole.model.cluster import Node
from gpuconsole.model.labels import HOSTNAME
from gpuconsole.model.objects import Object
from gpuconsole.model.queues import Topology
from gpuconsole.ui.screens.nodes import NodeDetailScreen
from gpuconsole.ui.screens.topology import TopologyScreen
from tests.support.console_clusters import HOSTILE, busy_org, node, org_cohort, recorded
from tests.support.console_stage import SIZES, staged


def in_racks() -> list[Object]:
    """The organisation's nodes: node-1 and node-2 in rack-a, node-3 in rack-b."""
    racks = {"node-1": "rack-a", "node-2": "rack-a", "node-3": "rack-b"}
    things = [
        replace(thing, labels={**thing.labels, "rack": racks[thing.name]}) if isinstance(thing, Node) else thing
        for thing in org_cohort()
    ]
    return [*things, Topology(name="campus", levels=("rack", HOSTNAME))]


@pytest.mark.parametrize("size", SIZES, ids=str)
async def test_each_domain_shows_what_is_used_and_the_one_under_the_cursor_what_fits(size: tuple[int, int]) -> None:
    async with staged(recorded(in_racks()), size) as stage:
        await stage.press("5")
        assert [line.split()[1] for line in stage.lines if "rack-" in line] == ["rack-a", "rack-b"]
        assert "14/16" in stage.line("rack-a")
        assert "▓▓▓▓▓▓▓▓" in stage.line("rack-b")
        await stage.press("j")
        assert "rack rack-a" in stage.text
        assert "█ 14 nominal quota" in stage.line("16 GPUs:")
        assert "1: 2  2: 1  4: 0  8: 0" in stage.line("free slots")
        assert "prod/serve 8" in stage.line(" workloads  ")


async def test_domains_fold_and_unfold() -> None:
    async with staged(recorded(in_racks())) as stage:
        await stage.press("5", "j", "left")
        assert "node-1" not in stage.text
        await stage.press("enter")
        assert "node-1" in stage.text
        await stage.press("j", "h")
        assert "rack-a" in stage.line("▌")
        await stage.press("left", "left")
        assert "campus" in stage.line("▌")


async def test_a_host_leads_to_its_gpus_and_can_be_cordoned() -> None:
    async with staged(busy_org()) as stage:
        await stage.press("5", "j", "c")
        await stage.tick(times=2)
        assert stage.app.cluster.snapshot.nodes["node-1"].unschedulable
        assert "⏸" in stage.line("▌")
        await stage.press("enter")
        assert stage.screen(NodeDetailScreen).crumb() == "node-1"
        await stage.press("escape")
        assert stage.screen(TopologyScreen).subject() == ("nodes", "node-1")


async def test_a_cluster_without_nodes_says_so() -> None:
    async with staged(recorded(org_cohort()[:2])) as stage:
        await stage.press("5")
        assert "0/0" in stage.line("cluster")


@pytest.mark.parametrize("name", [name for name in HOSTILE if name])
async def test_hostile_names_reach_the_screen_clean(name: str) -> None:
    host = replace(node(name), labels={"rack": name, "block": name})
    objects: list[Object] = [host, Topology(name=name, levels=("block", "rack"))]
    async with staged(recorded(objects), (80, 24)) as stage:
        for keys in ("5", "j", "j", "j", "d", "escape", "y", "escape", "left", "enter"):
            await stage.press(keys)
            assert all(line.isprintable() for line in stage.lines), keys

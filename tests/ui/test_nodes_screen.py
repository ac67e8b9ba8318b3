"""The nodes: map and list share cursor, filter and marks; dangerous actions name their victims first."""

import pytest
from msgspec.structs import replace

from gpuconsole.insight.index.gpu_map import gpu_rows
from gpuconsole.insight.overview import gpu_totals
from gpuconsole.model.cluster import Node, Pod
from gpuconsole.model.documents.pods_and_selectors import format_taint
from gpuconsole.model.gpus.mig import MigInstance
from gpuconsole.model.gpus.mig_reconfiguration import LAYOUT
from gpuconsole.model.gpus.sharing import STRATEGY
from gpuconsole.model.objects import Object
from gpuconsole.model.resources import GPU
from gpuconsole.ui.actions import BY_ID
from gpuconsole.ui.node_columns import NODES
from gpuconsole.ui.paint import Painted, painted
from gpuconsole.ui.screens.dashboard import gpu_lines
from gpuconsole.ui.screens.nodes import NodeDetailScreen, NodesScreen, totals
from gpuconsole.ui.screens.whatif import WhatIfScreen
from gpuconsole.ui.screens.workloads import WorkloadDetailScreen
from gpuconsole.ui.widgets.dialogs import ChoiceDialog, Confirm, Prompt
from gpuconsole.ui.widgets.gpumap import GpuMap
from tests.support.console_clusters import HOSTILE, busy_org, node, org_cohort, pod_on, recorded, running
from tests.support.console_stage import SIZES, Stage, staged
from tests.support.snapshots import node as machine
from tests.support.snapshots import pod, unseen, world


def ready(stage: Stage, name: str) -> bool:
    return bool(stage.app.cluster.snapshot.nodes[name].ready)


def cordoned(stage: Stage) -> list[str]:
    return [node.name for node in stage.app.cluster.snapshot.nodes.all() if node.unschedulable]


def test_where_not_every_pod_is_seen_no_table_calls_a_gpu_idle() -> None:
    """The map, the list, the sums above them and the dashboard: three GPUs are unknown, and at least one is in use."""
    things: list[Object] = [machine("n", 4), pod("p", "n", (0,))]
    snapshot = world(things, seen=unseen(Pod, within=("team",)))
    rows = gpu_rows(snapshot)
    cells = {column.id or column.title: text(painted(column.cell(rows[0]))) for column in NODES}
    assert {name: cells[name] for name in ("GPUS", "usage", "idle")} == {"GPUS": "▣???", "usage": "≥1/4", "idle": "?"}
    assert text(painted(totals(rows))) == " 1 node · at least 1 of 4 GPUs in use"
    in_use, states, fits = (text(painted(line)) for line in gpu_lines(gpu_totals(snapshot)))
    assert in_use.startswith("at least 1 of 4 in use")
    assert (states.split()[:2], fits) == (["?", "3"], "largest gang: unknown")


def text(line: Painted) -> str:
    return "".join(piece for piece, _ in line)


@pytest.mark.parametrize("size", SIZES, ids=str)
async def test_the_map_shows_every_gpu_and_who_owns_those_of_the_node_under_the_cursor(size: tuple[int, int]) -> None:
    async with staged(recorded(org_cohort()), size) as stage:
        await stage.press("4", "right", "right")
        assert "3 nodes · 20 of 24 GPUs in use" in stage.text
        assert "node-1 ▣▣▣▣▣▣▣▣   node-2 ▣▣▣▣▣▣○○  ▌node-3 ▣▣▲▲▲▲○○" in stage.text
        assert "node-3 a100-80gb ×8  ✓ ready" in stage.text
        assert "▣ nominal quota research/rlhf" in stage.line("GPU 0-1")
        assert "▲ borrowed      research/rlhf" in stage.line("GPU 2-5")
        assert "○ idle" in stage.line("GPU 6-7")
        await stage.press("B")
        assert "node-1 AAAAAAAA   node-2 BBBBBB○○  ▌node-3 BBBBBB○○" in stage.text
        assert "B cq-research 12  A cq-prod 8  ○ idle 4" in stage.text
        await stage.press("B")
        assert "node-1 ssssssss   node-2 llllee○○  ▌node-3 rrrrrr○○" in stage.text
        await stage.press("B")
        assert "node-1 66666666   node-2 666611○○  ▌node-3 111111○○" in stage.text


async def test_map_and_list_keep_the_same_node_under_the_cursor() -> None:
    async with staged(recorded(org_cohort())) as stage:
        await stage.press("4", "right", "M")
        screen = stage.screen(NodesScreen)
        assert screen.subject() == ("nodes", "node-2")
        assert "6/8" in stage.line("node-2")
        await stage.press("down", "M")
        assert screen.subject() == ("nodes", "node-3")
        await stage.press("M")
        assert screen.query_one(GpuMap).cursor_key == "node-3"


def divided() -> list[Object]:
    """A node of two A100s, one of them divided, and one that shares its two L4s."""
    labels = {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"}
    room = {GPU: 1, "nvidia.com/mig-1g.10gb": 2, "nvidia.com/mig-3g.40gb": 1}
    notes = {LAYOUT: "- | 1g.10gb@0 1g.10gb@1 3g.40gb@4"}
    shared = {"nvidia.com/gpu.product": "NVIDIA-L4", STRATEGY: "time-slicing", "nvidia.com/gpu.replicas": "4"}
    eval_, tune = running("eval", 0), running("tune", 1)
    return [
        Node(name="a100-1", labels=labels, annotations=notes, capacity=room, allocatable=room),
        Node(name="l4-1", labels=shared, capacity={GPU: 8}, allocatable={GPU: 8}),
        eval_,
        tune,
        replace(pod_on(eval_, "a100-1", 0), slices=(MigInstance(1, "3g.40gb", 4),)),
        pod_on(tune, "l4-1", 3),
    ]


@pytest.mark.parametrize("size", SIZES, ids=str)
async def test_the_layout_shows_slices_and_turns_where_they_lie(size: tuple[int, int]) -> None:
    async with staged(recorded(divided()), size) as stage:
        await stage.press("4", "M", "M")
        rows = [line for line in stage.lines if "a100-1 " in line or "l4-1 " in line]
        assert "○whole─────────────────────────" in rows[0]
        assert "○1g ○1g ·   ·   ▣3g────────────" in rows[1]
        assert "○○○○" in rows[2]
        assert "○▣○○" in rows[3]
        await stage.press("end")
        assert stage.screen(NodesScreen).subject() == ("nodes", "l4-1")
        await stage.press("M")
        assert stage.screen(NodesScreen).query_one(GpuMap).cursor_key == "l4-1"


async def test_a_node_tells_what_is_inside_it() -> None:
    async with staged(recorded(divided())) as stage:
        await stage.press("4", "enter")
        assert "a100-80gb ×2  80 GiB each" in stage.text
        assert "MIG mixed" in stage.text
        assert "3g.40gb" in stage.line("····▣▣▣▣")
        assert "research/eval" in stage.line("····▣▣▣▣")
        assert "NVLink domain 0 (GPU 0-1) · PCIe switch 0 (GPU 0-1) · NUMA node 0 (GPU 0-1)" in stage.text
        await stage.press("escape", "end", "enter")
        assert "time-slicing ×4" in stage.text
        assert "2/4" in stage.line("research/tune")


async def test_a_gang_tells_how_fast_its_gpus_talk() -> None:
    async with staged(recorded(org_cohort())) as stage:
        await stage.press("4", "enter")
        assert "prod/serve  8 GPUs in one NVLink domain, 600 GB/s" in stage.text


async def test_the_filter_narrows_the_map_too() -> None:
    async with staged(recorded(org_cohort())) as stage:
        await stage.press("4", "slash")
        await stage.write("node-2")
        await stage.press("enter")
        assert "node-2 ▣▣▣▣▣▣○○" in stage.text
        assert "node-1 ▣" not in stage.text
        await stage.press("slash", "ctrl+u")
        await stage.write("nothing")
        assert "None of 3 nodes matches the filter" in stage.text
        await stage.press("enter", "escape")
        assert "node-1 ▣" in stage.text


async def test_a_cluster_without_nodes_says_so() -> None:
    async with staged(recorded(org_cohort()[:2])) as stage:
        await stage.press("4")
        assert "○ No nodes." in stage.text


async def test_marked_nodes_are_cordoned_together() -> None:
    async with staged(busy_org()) as stage:
        await stage.press("4", "space", "right", "space", "c")
        assert "Cordon node-1, node-3?" in stage.text
        assert "Changes 2 of 2 objects" in stage.text
        assert "▸ node-3 becomes unschedulable; running pods stay" in stage.text
        await stage.press("tab", "enter")
        await stage.tick(times=2)
        assert cordoned(stage) == ["node-1", "node-3"]
        await stage.press("backslash", "home", "C")
        await stage.tick(times=2)
        assert cordoned(stage) == ["node-3"]


async def test_a_drain_names_its_victims_and_does_nothing_by_enter_alone() -> None:
    async with staged(busy_org()) as stage:
        await stage.press("4", "r")
        stage.screen(Confirm)
        assert "research/llm-ft  4 GPUs here" in stage.text
        assert "research/embed  2 GPUs here" in stage.text
        await stage.press("enter")
        await stage.tick(times=2)
        assert cordoned(stage) == []
        await stage.press("r", "tab", "enter")
        await stage.tick(times=2)
        assert cordoned(stage) == ["node-1"]


def taints(stage: Stage, name: str) -> list[str]:
    return [format_taint(taint) for taint in stage.app.cluster.snapshot.nodes[name].taints]


async def test_a_taint_is_typed_and_checked_as_the_api_server_checks_it() -> None:
    async with staged(busy_org()) as stage:
        await stage.press("4", "m", "t")
        stage.screen(Prompt)
        assert "key=value:Effect" in stage.text
        for wrong, said in (("dedicated", "is not a taint"), ("=a:b c", "the key of a taint cannot be empty")):
            await stage.write(wrong)
            assert said in stage.text
            await stage.press("enter")
            stage.screen(Prompt)
            await stage.press("ctrl+u")
        await stage.write("dedicated=ml:NoSchedule")
        assert "no new pods without a matching toleration" in stage.text
        await stage.press("enter")
        await stage.tick(times=2)
        assert taints(stage, "node-1") == ["nvidia.com/gpu=present:NoSchedule", "dedicated=ml:NoSchedule"]
        assert taints(stage, "node-2") == ["nvidia.com/gpu=present:NoSchedule"]


async def test_a_taint_that_evicts_pods_names_them_and_does_nothing_by_enter_alone() -> None:
    async with staged(busy_org()) as stage:
        before = taints(stage, "node-1")
        await stage.press("4", "m", "t")
        await stage.write("broken:NoExecute")
        assert "⚠ evicts the pods of 2 workloads" in stage.text
        await stage.press("enter")
        stage.screen(Confirm)
        assert "Taint node-1 broken:NoExecute?" in stage.text
        assert "research/llm-ft  4 GPUs here" in stage.text
        await stage.press("enter")
        await stage.tick(times=2)
        assert taints(stage, "node-1") == before
        await stage.press("m", "t")
        await stage.write("broken:NoExecute")
        await stage.press("enter", "tab", "enter")
        await stage.tick(times=2)
        assert taints(stage, "node-1") == [*before, "broken:NoExecute"]
        pods = stage.app.cluster.snapshot.pods.all()
        assert [pod.key for pod in pods if pod.node == "node-1" and not pod.deleted] == []


async def test_who_tolerates_a_taint_is_not_among_its_victims() -> None:
    async with staged(busy_org()) as stage:
        await stage.press("4", "m", "t")
        await stage.write("nvidia.com/gpu=broken:NoExecute")
        assert "⚠ evicts the pods of 0 workloads" in stage.text


async def test_removing_a_taint_lists_those_that_the_node_has() -> None:
    async with staged(busy_org()) as stage:
        await stage.press("4", "m", "t")
        await stage.write("dedicated=ml:PreferNoSchedule")
        await stage.press("enter")
        await stage.tick(times=2)
        await stage.press("m", "T")
        stage.screen(ChoiceDialog)
        assert " 1 " in stage.line("nvidia.com/gpu=present:NoSchedule")
        assert " 2 " in stage.line("dedicated=ml:PreferNoSchedule")
        await stage.press("2")
        stage.screen(Confirm)
        assert "Remove taint dedicated=ml:PreferNoSchedule from node-1?" in stage.text
        await stage.press("enter")
        await stage.tick(times=2)
        assert len(taints(stage, "node-1")) == 2
        await stage.press("m", "T", "2", "tab", "enter")
        await stage.tick(times=2)
        assert taints(stage, "node-1") == ["nvidia.com/gpu=present:NoSchedule"]


async def test_marked_nodes_are_tainted_together_also_by_the_command_line() -> None:
    async with staged(busy_org()) as stage:
        await stage.press("4", "space", "right", "space", ":")
        await stage.write("taint")
        await stage.press("enter")
        await stage.write("spare:NoSchedule")
        await stage.press("enter")
        await stage.tick(times=2)
        tainted = [name for name in ("node-1", "node-2", "node-3") if "spare:NoSchedule" in taints(stage, name)]
        assert tainted == ["node-1", "node-3"]


async def test_a_node_without_a_taint_has_none_to_remove() -> None:
    async with staged(recorded([replace(node("bare"), taints=())])) as stage:
        await stage.press("4")
        assert stage.screen(NodesScreen).refusal(BY_ID["node.untaint"]) == "no taints"


async def test_a_node_fails_and_comes_back() -> None:
    async with staged(busy_org()) as stage:
        await stage.press("4", "m", "k")
        stage.screen(Confirm)
        await stage.press("tab", "enter")
        await stage.tick(times=2)
        assert not ready(stage, "node-1")
        assert "⚠⚠⚠⚠⚠⚠⚠⚠" in stage.line("▌node-1")
        await stage.press("m", "K")
        await stage.tick(times=2)
        assert ready(stage, "node-1")


async def test_a_node_leads_to_its_gpus_and_from_there_to_their_owner() -> None:
    async with staged(recorded(org_cohort())) as stage:
        await stage.press("4", "right", "enter")
        stage.screen(NodeDetailScreen)
        assert "research/llm-ft" in stage.line("▣ nominal quota")
        await stage.press("end")
        assert "○ idle" in stage.line("▌")
        await stage.press("home", "enter")
        assert stage.screen(WorkloadDetailScreen).crumb() == "research/llm-ft"
        await stage.press("escape", "escape")
        assert stage.screen(NodesScreen).query_one(GpuMap).cursor_key == "node-2"


async def test_a_node_can_be_lost_in_a_what_if() -> None:
    async with staged(busy_org()) as stage:
        await stage.press("4", "i")
        stage.screen(ChoiceDialog)
        await stage.press("k")
        screen = stage.screen(WhatIfScreen)
        assert [change.words for change in screen.changes] == ["fail node node-1"]
        await stage.press("enter")
        assert ready(stage, "node-1")
        assert stage.line("GPUs in use").split() == ["GPUs", "in", "use", "20/24", "20", "16", "-4"]


async def test_mig_slices_are_counted_by_name() -> None:
    sliced = node("mig-1", 4)
    room = {**sliced.allocatable, "nvidia.com/mig-1g.10gb": 7}
    sliced = replace(sliced, allocatable=room, capacity=room)
    async with staged(recorded([sliced])) as stage:
        await stage.press("4")
        assert "0 of 4 GPUs in use · 0 of 7 MIG 1g.10gb instances in use" in stage.line("1 node ·")


@pytest.mark.parametrize("name", [name for name in HOSTILE if name])
async def test_hostile_names_reach_no_screen_raw(name: str) -> None:
    owner = replace(running("w", 4), name=name, owner=f"Job/{name}/{name}")
    objects: list[Object] = [node(name), owner, pod_on(owner, name, 0)]
    async with staged(recorded(objects), (80, 24)) as stage:
        for keys in ("4", "B", "B", "B", "enter", "escape M", "M", "r", "escape i", "escape m", "escape d", "escape y"):
            await stage.press(*keys.split())
            assert all(line.isprintable() for line in stage.lines), keys

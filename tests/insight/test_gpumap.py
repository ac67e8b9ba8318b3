"""The GPU map: one cell a GPU, its owner and its state."""

import pytest
from msgspec.structs import replace

from gpuconsole.insight.index.gpu_map import GpuCell, GpuRow, GpuState, MigCount, gpu_rows
from gpuconsole.insight.overview import gpu_totals
from gpuconsole.model.cluster import Node, Pod, PodPhase
from gpuconsole.model.devices import DeviceUnit, UnitKind
from gpuconsole.model.events import Applied
from gpuconsole.model.objects import Object
from gpuconsole.model.pod_template import Container, PodTemplate
from gpuconsole.model.resources import GPU
from gpuconsole.model.state import ClusterState
from gpuconsole.model.telemetry import MeasuredDevice, NodeTelemetry
from tests.support.snapshots import ORG, START, node, pod, running, unseen, world

GLYPHS = {
    GpuState.OWN: "▣",
    GpuState.BORROWED: "▲",
    GpuState.IDLE: "○",
    GpuState.HELD: "⏸",
    GpuState.FAULT: "⚠",
    GpuState.UNKNOWN: "?",
}


SMALL, BIG = (DeviceUnit(UnitKind.MIG, profile) for profile in ("1g.10gb", "3g.40gb"))


def drawn(objects: list[Object]) -> dict[str, str]:
    """Node → its cells as glyphs."""
    return {row.node: "".join(GLYPHS[cell.state] for cell in row.cells) for row in gpu_rows(world(objects))}


def pods_of(workload: str, *places: tuple[str, tuple[int, ...]]) -> list[Pod]:
    name = workload.partition("/")[2]
    return [pod(f"{name}-{n}", place, gpus, workload=workload, index=n) for n, (place, gpus) in enumerate(places)]


def test_org_cohort_reads_as_drawn_and_the_borrower_is_marked() -> None:
    objects = [
        *ORG,
        node("node-1"),
        node("node-2"),
        node("node-3"),
        *pods_of("research/llm-ft", ("node-1", (0, 1, 2, 3))),
        *pods_of("research/embed", ("node-1", (4, 5))),
        *pods_of("prod/serve", ("node-2", tuple(range(8)))),
        *pods_of("research/rlhf", ("node-1", (6, 7)), ("node-3", (0, 1, 2, 3))),
    ]

    assert drawn(objects) == {"node-1": "▣▣▣▣▣▣▣▣", "node-2": "▣▣▣▣▣▣▣▣", "node-3": "▲▲▲▲○○○○"}
    cell = gpu_rows(world(objects))[2].cells[1]
    assert cell == GpuCell(1, GpuState.BORROWED, "team/rlhf-1", "research/rlhf", "cq-research")


MAPS: dict[str, tuple[list[Object], dict[str, str]]] = {
    "a cordoned node's free GPUs are held, its pods run on": (
        [node("n", 4, unschedulable=True), pod("p", "n", (0, 1))],
        {"n": "▣▣⏸⏸"},
    ),
    "a node that is not ready is out, pods and all": ([node("n", 2, ready=False), pod("p", "n", (0,))], {"n": "⚠⚠"}),
    "a nominated preemptor holds what it will get": (
        [node("n", 4), pod("p", "n", (0,)), pod("next", wants=2, nominated_node="n")],
        {"n": "▣⏸⏸○"},
    ),
    "an incomplete gang holds its GPUs and does no work": (
        [node("n", 4), pod("g-0", "n", (0, 1), gang="g"), pod("g-1", wants=2, gang="g")],
        {"n": "⏸⏸○○"},
    ),
    "a complete gang works": (
        [node("n", 4), pod("g-0", "n", (0, 1), gang="g"), pod("g-1", "n", (2, 3), gang="g")],
        {"n": "▣▣▣▣"},
    ),
    "a gang that has as many pods as it needs works, while more of it wait": (
        [
            node("n", 4),
            pod("g-0", "n", (0, 1), gang="g", gang_size=1),
            pod("g-1", wants=2, gang="g", gang_size=1),
        ],
        {"n": "▣▣○○"},
    ),
    "a gang of the same name in another namespace is another gang": (
        [node("n", 4), pod("g-0", "n", (0, 1), gang="g"), replace(pod("g-1", wants=2, gang="g"), namespace="other")],
        {"n": "▣▣○○"},
    ),
    "a bound pod that has not started holds its GPU": (
        [node("n", 2), pod("p", "n", (1,), phase=PodPhase.PENDING)],
        {"n": "○⏸"},
    ),
    "done pods are gone": ([node("n", 2), pod("p", "n", (1,), phase=PodPhase.SUCCEEDED)], {"n": "○○"}),
    "a pod that is being deleted still owns its GPU": ([node("n", 2), pod("p", "n", (1,), deleted=5)], {"n": "○▣"}),
    "a pod that does not name its GPUs gets the lowest that are free": (
        [node("n", 4), pod("live", "n", wants=2), pod("sim", "n", (1,))],
        {"n": "▣▣▣○"},
    ),
    "an index that the node does not have is left out": ([node("n", 2), pod("p", "n", (1, 7))], {"n": "○▣"}),
    "a node without GPUs has no cells": ([node("cpu", 0)], {"cpu": ""}),
}


@pytest.mark.parametrize(("objects", "want"), MAPS.values(), ids=MAPS.keys())
def test_the_state_of_each_gpu(objects: list[Object], want: dict[str, str]) -> None:
    assert drawn(objects) == want


def test_where_not_every_pod_is_seen_nobody_knows_which_gpus_are_idle() -> None:
    objects: list[Object] = [node("n", 4), node("shut", 2, unschedulable=True), pod("p", "n", (0,))]
    everything = gpu_rows(world(objects))
    some = gpu_rows(world(objects, seen=unseen(Pod, within=("team",))))
    again = gpu_rows(world(objects))
    assert ["".join(GLYPHS[cell.state] for cell in row.cells) for row in (*everything, *some, *again)] == [
        *("▣○○○", "⏸⏸"),
        *("▣???", "⏸⏸"),
        *("▣○○○", "⏸⏸"),
    ]
    totals = gpu_totals(world(objects, seen=unseen(Pod, within=("team",))))
    assert (totals.idle, totals.unknown, totals.in_use, totals.held) == (0, 3, 1, 2)


def test_a_guessed_index_says_so() -> None:
    row = gpu_rows(world([node("n", 2), pod("live", "n", wants=1)]))[0]

    assert row.cells == (GpuCell(0, GpuState.OWN, "team/live", assumed=True), GpuCell(1, GpuState.IDLE))


def test_mig_slices_are_counted_by_name() -> None:
    profiles = {GPU: 1, "nvidia.com/mig-1g.10gb": 7, "nvidia.com/mig-3g.40gb": 2}
    machine = Node(
        name="n",
        labels={"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3", "karpenter.sh/capacity-type": "spot"},
        allocatable=profiles,
    )
    template = PodTemplate(containers=(Container(requests={"nvidia.com/mig-1g.10gb": 2}),))
    slices = replace(pod("p", "n"), template=template)

    assert gpu_rows(world([machine, slices])) == (
        GpuRow(
            node="n",
            gpu_type="h100-80gb",
            spot=True,
            cordoned=False,
            ready=True,
            cells=(GpuCell(0, GpuState.IDLE),),
            counts={
                GpuState.OWN: 0,
                GpuState.BORROWED: 0,
                GpuState.IDLE: 1,
                GpuState.HELD: 0,
                GpuState.FAULT: 0,
                GpuState.UNKNOWN: 0,
            },
            devices=(
                *(GpuCell(i, GpuState.OWN, "team/p", assumed=True, unit=SMALL) for i in range(2)),
                *(GpuCell(i, GpuState.IDLE, unit=SMALL) for i in range(2, 7)),
                *(GpuCell(i, GpuState.IDLE, unit=BIG) for i in range(2)),
            ),
            mig=(MigCount("1g.10gb", 7, 2), MigCount("3g.40gb", 2, 0)),
            pods=1,
        ),
    )


def test_a_machine_that_claims_a_billion_gpus_does_not_exhaust_the_memory() -> None:
    assert gpu_rows(world([node("liar", 10**9)]))[0].gpus == 1024


def test_a_pod_without_a_workload_is_owned_by_its_job() -> None:
    row = gpu_rows(world([node("n", 1), pod("p", "n", (0,), job="Job/team/train")]))[0]

    assert (row.cells[0].workload, row.cells[0].queue, row.used) == ("Job/team/train", "", 1)


def test_rows_of_nodes_without_a_change_are_the_same_objects() -> None:
    state = ClusterState(START)
    for thing in (*ORG, node("a", 2), node("b", 2), pod("p", "a", (0,)), pod("q", "b", (0,))):
        state.apply(Applied(START, thing))
    before = gpu_rows(state.freeze())
    state.apply(Applied(START, pod("r", "b", (1,))))
    after = gpu_rows(state.freeze())

    assert after[0] is before[0]
    assert after[1].used == 2


def test_a_row_stays_the_same_object_while_only_the_words_about_its_workload_change() -> None:
    state = ClusterState(START)
    held = running("w", "team/lq", 1, "cq-a")
    for thing in (*ORG, node("a", 1), held, pod("w-0", "a", (0,), workload="team/w")):
        state.apply(Applied(START, thing))
    before = gpu_rows(state.freeze())
    state.apply(Applied(START, replace(held, priority=7)))

    assert gpu_rows(state.freeze())[0] is before[0]


def test_a_gangs_cells_change_on_all_its_nodes_when_one_of_its_pods_does() -> None:
    state = ClusterState(START)
    seen = []
    for thing in (
        node("a", 1),
        node("b", 1),
        pod("g-0", "a", (0,), gang="g"),
        pod("g-1", gang="g", wants=1),
        pod("g-1", "b", (0,), gang="g"),
    ):
        state.apply(Applied(START, thing))
        seen.append("".join(GLYPHS[row.cells[0].state] for row in gpu_rows(state.freeze())))

    assert seen == ["○", "○○", "▣○", "⏸○", "▣▣"]


def test_a_cell_names_the_queue_that_its_workload_moved_to() -> None:
    state = ClusterState(START)
    for thing in (*ORG, node("a", 1), running("w", "team/lq", 1, "cq-a"), pod("w-0", "a", (0,), workload="team/w")):
        state.apply(Applied(START, thing))
    before = gpu_rows(state.freeze())[0].cells[0]
    state.apply(Applied(START, running("w", "team/lq", 1, "cq-b")))
    after = gpu_rows(state.freeze())[0].cells[0]

    assert (before.queue, after.queue) == ("cq-a", "cq-b")


def told(*owners: str, name: str = "n", at: int = START) -> NodeTelemetry:
    """The GPUs of a node by number, with their pods' names."""
    devices = tuple(MeasuredDevice(gpu=gpu, pod=f"team/{pod}" if pod else "") for gpu, pod in enumerate(owners))
    return NodeTelemetry(name=name, time=at, devices=devices)


def seated(*objects: Object) -> list[tuple[int, str, bool]]:
    """Index, pod and whether it is assumed, of the cells with an owner of the first node."""
    return [(cell.index, cell.pod, cell.assumed) for cell in gpu_rows(world(objects))[0].cells if cell.pod]


def test_where_telemetry_names_the_owner_of_a_gpu_that_is_it() -> None:
    guess = pod("a", "n", (0,), guessed=True), pod("b", "n", (1, 2), guessed=True)
    assert seated(node("n", 4), *guess) == [(0, "team/a", True), (1, "team/b", True), (2, "team/b", True)]
    assert seated(node("n", 4), *guess, told("", "b", "", "b")) == [
        (0, "team/a", True),
        (1, "team/b", False),
        (3, "team/b", False),
    ]


def test_a_guess_makes_room_for_what_is_known() -> None:
    guess = pod("a", "n", (0,), guessed=True), pod("b", "n", (1,), guessed=True)
    assert seated(node("n", 3), *guess, told("b")) == [(0, "team/b", False), (1, "team/a", True)]


def test_telemetry_that_names_some_of_a_pods_gpus_is_not_trusted_with_the_rest() -> None:
    assert seated(node("n", 4), pod("a", "n", (0, 1), guessed=True), told("", "", "a")) == [
        (0, "team/a", True),
        (1, "team/a", True),
    ]


def test_what_a_pod_says_itself_counts_more_than_telemetry() -> None:
    assert seated(node("n", 4), pod("a", "n", (2,)), told("a")) == [(2, "team/a", False)]


def test_the_map_is_drawn_anew_when_telemetry_tells_of_other_owners_and_only_then() -> None:
    state = ClusterState(START)
    for thing in (node("n", 2), node("m", 2), pod("a", "n", (0,), guessed=True), told("a", "")):
        state.apply(Applied(START, thing))
    first, measured = gpu_rows(state.freeze()), told("a", "")
    state.apply(Applied(START, replace(measured, devices=state.table("telemetry").get("n").devices, source="later")))
    assert gpu_rows(state.freeze()) is first
    state.apply(Applied(START, told("", "a")))
    moved = gpu_rows(state.freeze())
    assert [cell.pod for cell in moved[0].cells] == ["", "team/a"]
    assert moved[1] is first[1]

"""What idle GPUs are good for: slots, the largest gang, the FGD measure with the cluster's own typical pods."""

import pytest
from msgspec.structs import replace

from gpuconsole.insight.index.fragmentation import FlavorSlots, Fragments, LargestGang, TypicalPod, usefulness
from gpuconsole.model.cluster import Node, Pod
from gpuconsole.model.labels import HOSTNAME
from gpuconsole.model.objects import Object
from gpuconsole.model.pod_template import Container, PodTemplate
from gpuconsole.model.queues import ResourceFlavor, Topology
from gpuconsole.model.resources import CPU, GPU, MEMORY
from tests.support.snapshots import A100, pod, world

T4 = {"nvidia.com/gpu.product": "Tesla-T4"}


def node(name: str, gpus: int, **fields: object) -> Node:
    room = {CPU: 64_000, MEMORY: 2**40, GPU: gpus}
    return Node(name=name, capacity=room, allocatable=room, **fields)  # type: ignore[arg-type]


def filled(*used: int, gpus: int = 8) -> list[Object]:
    """Nodes n1 …, of which so many GPUs are in use."""
    things: list[Object] = [node(f"n{number}", gpus) for number, _ in enumerate(used, 1)]
    return things + [
        pod(f"p{number}", f"n{number}", tuple(range(taken))) for number, taken in enumerate(used, 1) if taken
    ]


def wanting(name: str, gpus: int, cpu: int, place: str = "", **fields: object) -> Pod:
    requests = {CPU: cpu, **({GPU: gpus} if gpus else {})}
    return Pod(name=name, node=place, template=PodTemplate(containers=(Container(requests=requests),), **fields))  # type: ignore[arg-type]


SLOTS: dict[str, tuple[list[Object], dict[int, int], tuple[int, int] | None]] = {
    "two free nodes": (filled(0, 0), {1: 16, 2: 8, 4: 4, 8: 2, 16: 1, 64: 0}, (2, 8)),
    "eight free nodes are one slot of 64": (filled(*[0] * 8), {1: 64, 2: 32, 4: 16, 8: 8, 16: 4, 64: 1}, (8, 8)),
    "eight idle GPUs, but no eight together": (
        filled(5, 3),
        {1: 8, 2: 3, 4: 1, 8: 0, 16: 0, 64: 0},
        (3, 2),
    ),
    "nodes of four GPUs take eight as two pods": (
        filled(0, 0, 1, 0, gpus=4),
        {1: 15, 2: 7, 4: 3, 8: 1, 16: 0, 64: 0},
        (3, 4),
    ),
    "a node of six takes larger sizes as pods of four": (
        filled(0, 0, gpus=6),
        {1: 12, 2: 6, 4: 2, 8: 1, 16: 0, 64: 0},
        (2, 6),
    ),
    "a single idle GPU is no gang": (filled(7), {1: 1, 2: 0, 4: 0, 8: 0, 16: 0, 64: 0}, None),
    "GPUs of a cordoned node are not idle": (
        [node("n", 8, unschedulable=True)],
        dict.fromkeys((1, 2, 4, 8, 16, 64), 0),
        None,
    ),
    "nor are those of a node that is not ready": (
        [node("n", 8, ready=False)],
        dict.fromkeys((1, 2, 4, 8, 16, 64), 0),
        None,
    ),
    "a preemptor's GPUs are kept for it": (
        [node("n", 4), pod("next", wants=3, nominated_node="n")],
        {1: 1, 2: 0, 4: 0, 8: 0, 16: 0, 64: 0},
        None,
    ),
    "no nodes at all": ([], dict.fromkeys((1, 2, 4, 8, 16, 64), 0), None),
}


def sizes(slots: FlavorSlots) -> tuple[int, int] | None:
    """Pods and GPUs of each pod of the largest gang."""
    gang = slots.largest_gang
    return (gang.pods, gang.gpus) if gang is not None else None


@pytest.mark.parametrize("name", SLOTS)
def test_slots_and_the_largest_gang(name: str) -> None:
    objects, slots, gang = SLOTS[name]
    cluster = usefulness(world(objects)).cluster
    assert (cluster.slots, sizes(cluster)) == (slots, gang)


def test_each_flavor_has_its_nodes() -> None:
    other = ResourceFlavor(name="t4", node_labels=T4)
    unused = ResourceFlavor(name="h100", node_labels={"accelerator": "h100"})
    nodes: list[Object] = [
        node("a", 8, labels=A100.node_labels),
        node("b", 4, labels=T4),
        pod("p", "b", (0,)),
        node("c", 2),
    ]
    answer = usefulness(world([A100, other, unused, *nodes]))
    assert [(row.name, row.nodes, row.gpus, row.idle, row.largest_pod) for row in answer.flavors] == [
        ("a100", 1, 8, 8, 8),
        ("t4", 1, 4, 3, 3),
    ]
    assert (answer.cluster.nodes, answer.cluster.gpus, answer.cluster.idle) == (3, 14, 13)


def test_each_domain_of_a_topology_has_its_nodes_and_hosts_are_left_out() -> None:
    def placed(name: str, block: str, rack: str, gpus: int = 8) -> Node:
        return node(name, gpus, labels={"block": block, "rack": rack, HOSTNAME: name})

    topology = Topology(name="site", levels=("block", "rack", HOSTNAME))
    nodes = [placed("a", "b1", "r1"), placed("b", "b1", "r1"), placed("c", "b1", "r2"), placed("d", "b2", "r1", 4)]
    answer = usefulness(world([topology, *nodes, node("elsewhere", 8), pod("p", "a", (0, 1, 2, 3))]))
    assert [(row.level, row.name, row.nodes, row.idle, sizes(row)) for row in answer.domains] == [
        ("block", "b1", 3, 20, (2, 8)),
        ("block", "b2", 1, 4, (2, 2)),
        ("rack", "b1/r1", 2, 12, (3, 4)),
        ("rack", "b1/r2", 1, 8, (2, 4)),
        ("rack", "b2/r1", 1, 4, (2, 2)),
    ]


def test_the_measure_is_the_papers_with_the_clusters_own_pods() -> None:
    """Of four pods three ask for four GPUs and 16 cpu, one for a single GPU of a T4."""
    single = wanting("single", 1, 1_000, node_selector=T4)
    large = [wanting(f"large-{number}", 4, 16_000) for number in range(2)]
    seated = wanting("seated", 4, 16_000, "n1")
    answer = usefulness(world([node("n1", 8), node("n2", 2, labels=T4), seated, *large, single])).fragments
    # n1 has 4 idle: of use to the large ones, not to the single one. n2 has 2 idle: only the single one can use them.
    assert answer == Fragments(
        idle=6,
        fragment=0.25 * 4 + 0.75 * 2,
        typical=(
            TypicalPod(gpus=4, cpu=16_000, model="", percent=75, nodes=1),
            TypicalPod(gpus=1, cpu=1_000, model="t4", percent=25, nodes=1),
        ),
    )
    assert answer.percent == pytest.approx(100 * 2.5 / 6)


def test_gpus_without_cpu_beside_them_are_fragments() -> None:
    hog = wanting("hog", 0, 60_000, "n")
    trainers = [wanting(f"t-{number}", 1, 8_000) for number in range(99)]
    answer = usefulness(world([node("n", 8), hog, *trainers])).fragments
    assert (answer.idle, answer.fragment, answer.typical[0].nodes) == (8, 8.0, 0)


def test_pods_that_ask_for_parts_of_gpus_are_told_with_these_and_the_measure_is_of_the_others() -> None:
    """Slices of a divided node, half GPUs of another one: neither is work without a GPU."""
    slices = {CPU: 64_000, MEMORY: 2**40, "nvidia.com/mig-1g.10gb": 7}
    divided = Node(name="m", capacity=slices, allocatable=slices)

    def asking(name: str, place: str, requests: dict[str, int], gpus: tuple[int, ...] = (), half: bool = False) -> Pod:
        template = PodTemplate(containers=(Container(requests=requests),))
        notes = {"gpu-fraction": "0.5"} if half else {}
        return Pod(name=name, node=place, template=template, gpus=gpus, annotations=notes)

    pods = [
        *(asking(f"slice-{n}", "m", {"nvidia.com/mig-1g.10gb": 2}) for n in range(2)),
        asking("half", "n", {}, (0,), half=True),
        asking("train", "n", {GPU: 7}, tuple(range(1, 8))),
    ]
    answer = usefulness(world([node("n", 8), divided, *pods]))
    assert ([(row.name, row.unit, row.nodes, row.idle) for row in answer.others], answer.fragments) == (
        [("cluster", "MIG 1g.10gb instance", 1, 3)],
        Fragments(
            idle=0,
            fragment=0.0,
            typical=(
                TypicalPod(gpus=0, part="2 × mig-1g.10gb", cpu=0, model="", percent=50, nodes=1),
                TypicalPod(gpus=7, cpu=0, model="", percent=25, nodes=0),
                TypicalPod(gpus=0, part="0.5 GPU", cpu=0, model="", percent=25, nodes=1),
            ),
        ),
    )
    third = asking("slice-3", "m", {"nvidia.com/mig-1g.10gb": 2})
    alone = usefulness(world([node("n", 8), divided, *pods[:2], third, replace(pods[2], node="", gpus=())]))
    assert [(pod.part, pod.nodes) for pod in alone.fragments.typical] == [("2 × mig-1g.10gb", 0), ("0.5 GPU", 1)]
    assert (alone.fragments.known, alone.fragments.fragment) == (False, 0.0)


def test_without_pods_nothing_is_typical_and_nothing_is_called_a_fragment() -> None:
    assert usefulness(world([node("n", 8)])).fragments == Fragments(idle=8, fragment=0.0, typical=())


def test_the_whole_answer_of_a_small_cluster() -> None:
    assert usefulness(world(filled(6))).cluster == FlavorSlots(
        name="cluster",
        nodes=1,
        gpus=8,
        idle=2,
        largest_pod=2,
        largest_gang=LargestGang(flavor="", model="", unit="GPU", pods=2, gpus=1, by_nodes=2, by_quota=None),
        slots={1: 2, 2: 1, 4: 0, 8: 0, 16: 0, 64: 0},
    )

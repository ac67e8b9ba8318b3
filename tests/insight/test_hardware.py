"""What is inside a node: whole GPUs with their links, MIG instances with their spans, turns on shared GPUs."""

from msgspec.structs import replace

from gpuconsole.insight.index.device_layout import NO_PLACE, NodeGpus, all_node_gpus, guessed_uses, pod_group_gpus
from gpuconsole.insight.index.gpu_map import GpuState, gpu_rows
from gpuconsole.model.cluster import Node, Pod
from gpuconsole.model.gpus.mig import MigInstance
from gpuconsole.model.gpus.mig_reconfiguration import LAYOUT
from gpuconsole.model.gpus.models import WIRING
from gpuconsole.model.gpus.sharing import STRATEGY
from gpuconsole.model.objects import Object
from gpuconsole.model.pod_template import Container, PodTemplate
from gpuconsole.model.resources import GPU
from gpuconsole.model.telemetry import MeasuredDevice, NodeTelemetry
from tests.insight.test_device_units import KINDS, cluster
from tests.support.snapshots import pod, world

A100 = {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"}
L4 = {"nvidia.com/gpu.product": "NVIDIA-L4"}


def node(name: str, offers: dict[str, int], labels: dict[str, str], **annotations: str) -> Node:
    return Node(name=name, labels=labels, annotations=annotations, capacity=offers, allocatable=offers)


def parts(one: NodeGpus) -> list[tuple[int, str, int, int, str]]:
    """GPU, part, first slice, slices, owner of each unit."""
    return [(unit.gpu, unit.part, unit.start, unit.span, unit.cell.pod) for unit in one.units]


def look(*objects: Object) -> NodeGpus:
    (found,) = all_node_gpus(world(objects)).values()
    return found


def test_whole_gpus_have_their_model_and_their_links() -> None:
    found = look(node("n1", {GPU: 4}, A100), pod("p", "n1", (0, 1)))
    assert (found.model, found.memory, found.gpus, found.sharing) == ("a100-80gb", 80 * 1024, 4, "")
    assert parts(found) == [
        (0, "whole", 0, 0, "team/p"),
        (1, "whole", 0, 0, "team/p"),
        *((n, "whole", 0, 0, "") for n in (2, 3)),
    ]
    assert found.wiring is not None
    assert (found.wiring.nvlink, found.wiring.switch, found.wiring.numa) == ((0, 0, 0, 0), (0, 0, 1, 1), (0, 0, 1, 1))


def test_an_annotation_says_how_gpus_are_joined() -> None:
    found = look(node("n1", {GPU: 4}, A100, **{WIRING: "nvlink=0-1,2-3"}))
    assert found.wiring is not None
    assert found.wiring.nvlink == (0, 0, 1, 1)


def test_mig_instances_stand_where_they_lie_with_their_owners() -> None:
    offers = {GPU: 1, "nvidia.com/mig-1g.10gb": 1, "nvidia.com/mig-3g.40gb": 1}
    divided = node("n1", offers, A100, **{LAYOUT: "- | 1g.10gb@0 3g.40gb@4"})
    found = look(divided, pod("small", "n1", wants=0, slices=(MigInstance(1, "3g.40gb", 4),)), pod("big", "n1", (0,)))
    assert (found.gpus, found.slices, found.sharing) == (2, 8, "MIG mixed")
    assert parts(found) == [
        (0, "whole", 0, 8, "team/big"),
        (1, "1g.10gb", 0, 1, ""),
        (1, "3g.40gb", 4, 4, "team/small"),
    ]
    assert [unit.cell.state for unit in found.on(1)] == [GpuState.IDLE, GpuState.OWN]


def test_turns_on_shared_gpus_are_numbered_gpu_by_gpu() -> None:
    labels = {**L4, STRATEGY: "time-slicing", "nvidia.com/gpu.replicas": "2"}
    found = look(node("n1", {GPU: 4}, labels), pod("p", "n1", (2,)))
    assert (found.gpus, found.sharing) == (2, "time-slicing ×2")
    assert parts(found) == [
        (0, "1/2", 0, 0, ""),
        (0, "2/2", 0, 0, "team/p"),
        (1, "1/2", 0, 0, ""),
        (1, "2/2", 0, 0, ""),
    ]


def test_mps_tells_what_each_client_gets() -> None:
    labels = {**L4, STRATEGY: "mps", "nvidia.com/gpu.replicas": "4", "nvidia.com/gpu.memory": "24576"}
    assert look(node("n1", {GPU: 4}, labels)).sharing == "mps ×4, 6144 MiB and 25% of the threads each"


def test_a_gang_is_told_how_fast_its_gpus_talk_wherever_its_pods_are() -> None:
    things: list[Object] = [
        node("n1", {GPU: 8}, A100),
        node("n2", {GPU: 8}, A100),
        pod("a", "n1", (0, 1), job="Job/team/one"),
        pod("b-0", "n1", (2,), job="Job/team/two"),
        pod("b-1", "n2", (0,), job="Job/team/two"),
    ]
    assert [(team.owner, team.connection.text) for team in pod_group_gpus(world(things), "n1")] == [
        ("Job/team/one", "2 GPUs in one NVLink domain, 600 GB/s"),
        ("Job/team/two", "2 GPUs on 2 nodes, about 25 GB/s"),
    ]


def test_nodes_where_nothing_happened_are_the_same_objects() -> None:
    things: list[Object] = [node("n1", {GPU: 8}, A100), node("n2", {GPU: 8}, A100)]
    before = all_node_gpus(world(things))
    assert len(gpu_rows(world(things))) == 2
    assert all_node_gpus(world([*things, pod("p", "n2", (0,))]))["n2"] is not before["n2"]


MIG_SMALL, MIG_LARGE = "nvidia.com/mig-1g.10gb", "nvidia.com/mig-3g.40gb"


def live_pod(name: str, **wants: int) -> Pod:
    """A pod of a live cluster: it runs on n1, and nothing says which instances it has."""
    requests = {f"nvidia.com/mig-{profile}": amount for profile, amount in wants.items()}
    template = PodTemplate(containers=(Container(requests=requests, limits=requests),))
    return pod(name, "n1", template=template)


def divided() -> Node:
    """Two GPUs: one of seven small instances, one of two large ones."""
    layout = " ".join(f"1g.10gb@{n}" for n in range(7)) + " | 3g.40gb@0 3g.40gb@4"
    return node("n1", {MIG_SMALL: 7, MIG_LARGE: 2}, A100, **{LAYOUT: layout})


def in_use(one: NodeGpus) -> list[tuple[int, str, str, bool]]:
    """GPU, part, pod, and whether the place is a guess, of each unit that is in use."""
    return [(unit.gpu, unit.part, unit.cell.pod, unit.cell.assumed) for unit in one.units if unit.cell.pod]


def test_instances_of_live_pods_are_in_use_though_nobody_says_which() -> None:
    found = look(divided(), live_pod("a", **{"1g.10gb": 2}), live_pod("b", **{"1g.10gb": 1, "3g.40gb": 1}))
    small = [(0, "1g.10gb", "team/a", True)] * 2 + [(0, "1g.10gb", "team/b", True)]
    assert in_use(found) == [*small, (1, "3g.40gb", "team/b", True)]
    assert [unit.cell.state for unit in found.units].count(GpuState.IDLE) == 4 + 1
    assert [(use.unit.noun, use.total, use.used, dict(use.owners)) for use in guessed_uses(found)] == [
        ("MIG 1g.10gb instance", 7, 3, {"team/a": 2, "team/b": 1}),
        ("MIG 3g.40gb instance", 2, 1, {"team/b": 1}),
    ]


def test_instances_that_a_pod_is_known_to_have_are_no_guess() -> None:
    known = MigInstance(0, "1g.10gb", 5)
    exact = replace(live_pod("a", **{"1g.10gb": 1}), slices=(known,))
    found = look(divided(), exact, live_pod("b", **{"1g.10gb": 1}))
    assert in_use(found) == [(0, "1g.10gb", "team/b", True), (0, "1g.10gb", "team/a", False)]
    assert [unit.start for unit in found.units if unit.cell.pod == "team/a"] == [5]
    assert guessed_uses(look(divided(), exact)) == ()


def test_telemetry_names_the_gpu_of_an_instance() -> None:
    layout = "1g.10gb@0 1g.10gb@1 | 1g.10gb@0 1g.10gb@1"
    two = node("n1", {MIG_SMALL: 4}, A100, **{LAYOUT: layout})
    device = MeasuredDevice(gpu=1, instance=9, profile="1g.10gb", pod="team/b")
    told = NodeTelemetry(name="n1", time=0, devices=(device,))
    found = look(two, live_pod("a", **{"1g.10gb": 1}), live_pod("b", **{"1g.10gb": 1}), told)
    assert in_use(found) == [(0, "1g.10gb", "team/a", True), (1, "1g.10gb", "team/b", False)]


def test_instances_of_a_profile_that_no_known_model_has_are_units_without_a_place() -> None:
    odd = node("n1", {"nvidia.com/mig-9g.999gb": 2}, {})
    found = look(odd, live_pod("a", **{"9g.999gb": 1}))
    assert [(unit.gpu, unit.part, unit.cell.pod, unit.cell.state) for unit in found.units] == [
        (NO_PLACE, "9g.999gb", "team/a", GpuState.OWN),
        (NO_PLACE, "9g.999gb", "", GpuState.IDLE),
    ]


def test_dra_devices_are_units_with_their_names() -> None:
    snapshot = cluster(KINDS["DRA"], kueue=True, jobs=1)
    (found,) = all_node_gpus(snapshot).values()
    (held,) = snapshot.pods.all()
    assert [(unit.gpu, unit.part, unit.cell.pod, unit.cell.assumed) for unit in found.units] == [
        (NO_PLACE, "gpu-0", held.key, False),
        (NO_PLACE, "gpu-1", "", False),
    ]
    assert found.gpus == 0

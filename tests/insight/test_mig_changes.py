"""What it takes to divide GPUs anew, where the GPUs are shared, divided as pods come, or cannot be told apart."""

from gpuconsole.insight.index.device_layout import MigGpuChange, MigNodeChange, mig_changes
from gpuconsole.model.cluster import Node, Pod, PodPhase
from gpuconsole.model.events import Applied
from gpuconsole.model.gpus.mig import MigInstance
from gpuconsole.model.gpus.mig_reconfiguration import DYNAMIC
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.model.state import ClusterState

A100 = {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"}
GPU, SMALL = "nvidia.com/gpu", "nvidia.com/mig-1g.10gb"


def world(node: Node, *pods: Pod) -> Snapshot:
    state = ClusterState()
    state.apply(Applied(0, node))
    for pod in pods:
        state.apply(Applied(0, pod))
    return state.freeze()


def test_everybody_who_takes_turns_on_a_gpu_has_to_leave_it() -> None:
    node = Node(name="n", labels=A100 | {f"{GPU}.replicas": "2"}, allocatable={GPU: 4})
    pods = [Pod(name=f"p{n}", node="n", gpus=(n,), phase=PodPhase.RUNNING) for n in (0, 1, 2)]
    (found,) = mig_changes(world(node, *pods), "all-7g.80gb")
    assert [(gpu.reset, gpu.leavers) for gpu in found.gpus] == [
        (True, ("default/p0", "default/p2")),
        (True, ("default/p1",)),
    ]


def test_gpus_that_are_divided_as_pods_come_have_the_instances_of_their_pods() -> None:
    node = Node(name="n", labels=A100, annotations={DYNAMIC: "2"}, allocatable={SMALL: 14})
    pod = Pod(name="p", node="n", slices=(MigInstance(1, "1g.10gb", 6),), phase=PodPhase.RUNNING)
    assert mig_changes(world(node, pod), "all-7g.80gb") == (
        MigNodeChange(
            node="n",
            gpus=(
                MigGpuChange(gpu=0, now="nothing", then="7g.80gb", reset=False, leavers=()),
                MigGpuChange(gpu=1, now="1g.10gb", then="7g.80gb", reset=False, leavers=("default/p",)),
            ),
        ),
    )


def test_under_the_strategy_single_nothing_is_told() -> None:
    labels = {"nvidia.com/mig.strategy": "single", "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB-MIG-1g.10gb"}
    (found,) = mig_changes(world(Node(name="n", labels=labels, allocatable={GPU: 7})), "all-7g.80gb")
    assert (found.gpus, found.problem) == ((), "MIG strategy single does not show which GPU an instance is on")


def test_nodes_without_mig_are_left_out() -> None:
    assert mig_changes(world(Node(name="n", labels={"accelerator": "nvidia-l4"}, allocatable={GPU: 1})), "x") == ()

"""How fast the GPUs of a job can talk to each other, in words."""

import pytest

from gpuconsole.insight.index.device_layout import connection
from gpuconsole.model.cluster import Node, Pod, PodPhase
from gpuconsole.model.events import Applied
from gpuconsole.model.gpus.models import NETWORK_BANDWIDTH, NVLINK_BANDWIDTH
from gpuconsole.model.state import ClusterState

FAST = {NVLINK_BANDWIDTH: "800", NETWORK_BANDWIDTH: "50"}


def node(name: str, product: str = "NVIDIA-A100-SXM4-80GB", **annotations: str) -> Node:
    labels = {"nvidia.com/gpu.product": product} if product else {}
    return Node(name=name, labels=labels, annotations=annotations, allocatable={"nvidia.com/gpu": 8})


def pod(name: str, node: str, *gpus: int, phase: PodPhase = PodPhase.RUNNING) -> Pod:
    return Pod(name=name, node=node, gpus=gpus, phase=phase)


def told(nodes: list[Node], pods: list[Pod]) -> str | None:
    state = ClusterState()
    for machine in nodes:
        state.apply(Applied(0, machine))
    for each in pods:
        state.apply(Applied(0, each))
    found = connection(state.freeze(), pods)
    return None if found is None else found.text


SHARED = Node(name="n1", labels={"nvidia.com/gpu.replicas": "4"}, allocatable={"nvidia.com/gpu": 8})


@pytest.mark.parametrize(
    ("nodes", "pods", "text"),
    [
        ([node("n1")], [pod("a", "n1", 0, 1), pod("b", "n1", 6)], "3 GPUs in one NVLink domain, 600 GB/s"),
        ([node("n1", **FAST)], [pod("a", "n1", 0, 1)], "2 GPUs in one NVLink domain, 800 GB/s"),
        ([node("n1", "")], [pod("a", "n1", 0, 1)], "2 GPUs in one NVLink domain, 600 GB/s"),
        ([node("n1", "NVIDIA-A30")], [pod("a", "n1", 0, 1)], "2 GPUs in one NVLink domain, 200 GB/s"),
        ([node("n1", "Tesla-V100-SXM2-16GB")], [pod("a", "n1", 0, 1)], "2 GPUs in one NVLink domain, 300 GB/s"),
        ([node("n1", "NVIDIA-H100-80GB-HBM3")], [pod("a", "n1", 0, 1)], "2 GPUs in one NVLink domain, 900 GB/s"),
        ([node("n1", "NVIDIA-H800")], [pod("a", "n1", 0, 1)], "2 GPUs in one NVLink domain, 400 GB/s"),
        ([node("n1", "NVIDIA-H200", **FAST)], [pod("a", "n1", 0, 1)], "2 GPUs in one NVLink domain, 800 GB/s"),
        ([node("n1", "NVIDIA-B200")], [pod("a", "n1", 0, 1)], "2 GPUs in one NVLink domain, 1800 GB/s"),
        ([node("n1", "NVIDIA-A30")], [pod("a", "n1", 1, 2)], "2 GPUs on one node, connected by PCIe, about 32 GB/s"),
        ([node("n1"), node("n2")], [pod("a", "n1", 0), pod("b", "n2", 0)], "2 GPUs on 2 nodes, about 25 GB/s"),
        ([node("n1"), node("n2", **FAST)], [pod("a", "n1", 0), pod("b", "n2", 0)], "2 GPUs on 2 nodes, about 25 GB/s"),
        ([node("n1")], [pod("a", "n1", 0)], None),
        ([node("n1")], [pod("a", "n1", 0), pod("b", "n1", 1, phase=PodPhase.FAILED)], None),
        ([node("n1")], [pod("a", "n1", 0), pod("b", "gone", 1)], None),
        ([SHARED], [pod("a", "n1", 0, 2)], None),
    ],
)
def test_a_job_is_as_fast_as_the_slowest_link_between_its_gpus(
    nodes: list[Node], pods: list[Pod], text: str | None
) -> None:
    assert told(nodes, pods) == text

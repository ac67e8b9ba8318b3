"""Which nodes a pod may use, and what it is told when there is none."""

from typing import Any

import pytest
from msgspec import Struct

from gpuconsole.model.cluster import Node
from gpuconsole.model.labels import NodeTerm, Requirement, Taint, Toleration
from gpuconsole.model.pod_template import PodTemplate
from gpuconsole.model.resources import CPU, GPU, MEMORY
from tests.support.kube_cluster import GIB, Cluster, node, pod, template

PRESENT = Taint("nvidia.com/gpu", "present")
A100 = {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB", "generation": "8"}
H100 = {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3", "generation": "9"}
MIG = "nvidia.com/mig-1g.10gb"


def term(key: str, operator: str, *values: str) -> tuple[NodeTerm, ...]:
    return (NodeTerm(expressions=(Requirement(key, operator, values),)),)


def asking(affinity: tuple[NodeTerm, ...], **fields: Any) -> PodTemplate:
    return template(1, affinity=affinity, **fields)


class Case(Struct, frozen=True, kw_only=True):
    pod: PodTemplate
    nodes: tuple[Node, ...] = (node("a", labels=A100), node("h", labels=H100))
    allowed: tuple[str, ...]


LABELS = {
    "a pod that asks for nothing special may go anywhere": Case(pod=template(1), allowed=("a", "h")),
    "a nodeSelector needs all its labels": Case(pod=template(1, node_selector={"generation": "9"}), allowed=("h",)),
    "a nodeSelector whose label no node has fits nowhere": Case(pod=template(1, node_selector={"x": ""}), allowed=()),
    "In takes any of its values": Case(pod=asking(term("generation", "In", "9", "10")), allowed=("h",)),
    "NotIn takes the others": Case(pod=asking(term("generation", "NotIn", "9")), allowed=("a",)),
    "NotIn takes a node without the label": Case(pod=asking(term("zone", "NotIn", "x")), allowed=("a", "h")),
    "Exists wants the label": Case(pod=asking(term("generation", "Exists")), allowed=("a", "h")),
    "DoesNotExist wants its absence": Case(pod=asking(term("generation", "DoesNotExist")), allowed=()),
    "Gt compares numbers": Case(pod=asking(term("generation", "Gt", "8")), allowed=("h",)),
    "Lt compares numbers": Case(pod=asking(term("generation", "Lt", "9")), allowed=("a",)),
    "Gt is false for what is no number": Case(pod=asking(term("nvidia.com/gpu.product", "Gt", "1")), allowed=()),
    "any of several terms is enough": Case(
        pod=asking((*term("generation", "In", "8"), *term("generation", "In", "9"))), allowed=("a", "h")
    ),
    "all expressions of one term have to hold": Case(
        pod=asking((NodeTerm((Requirement("generation", "Gt", ("7",)), Requirement("generation", "Lt", ("9",)))),)),
        allowed=("a",),
    ),
    "nodeSelector and affinity both have to hold": Case(
        pod=asking(term("generation", "In", "8"), node_selector={"generation": "9"}), allowed=()
    ),
    "an empty term matches nothing": Case(pod=asking((NodeTerm(),)), allowed=()),
    "matchFields names a node": Case(
        pod=asking((NodeTerm(fields=(Requirement("metadata.name", "In", ("h",)),)),)), allowed=("h",)
    ),
}

TAINTED = (node("free"), node("gpu", taints=(PRESENT,)))
TAINTS = {
    "a tainted node is not for everybody": Case(pod=template(1), nodes=TAINTED, allowed=("free",)),
    "an equal toleration opens it": Case(
        pod=template(1, tolerations=(Toleration("nvidia.com/gpu", "Equal", "present", "NoSchedule"),)),
        nodes=TAINTED,
        allowed=("free", "gpu"),
    ),
    "another value does not": Case(
        pod=template(1, tolerations=(Toleration("nvidia.com/gpu", "Equal", "absent", "NoSchedule"),)),
        nodes=TAINTED,
        allowed=("free",),
    ),
    "Exists needs no value": Case(
        pod=template(1, tolerations=(Toleration("nvidia.com/gpu", "Exists"),)), nodes=TAINTED, allowed=("free", "gpu")
    ),
    "another effect is not tolerated": Case(
        pod=template(1, tolerations=(Toleration("nvidia.com/gpu", "Exists", "", "NoExecute"),)),
        nodes=TAINTED,
        allowed=("free",),
    ),
    "Exists without a key tolerates everything": Case(
        pod=template(1, tolerations=(Toleration(operator="Exists"),)), nodes=TAINTED, allowed=("free", "gpu")
    ),
    "NoExecute keeps pods away too": Case(
        pod=template(1), nodes=(node("n", taints=(Taint("down", "", "NoExecute"),)),), allowed=()
    ),
    "PreferNoSchedule does not": Case(
        pod=template(1), nodes=(node("n", taints=(Taint("slow", "", "PreferNoSchedule"),)),), allowed=("n",)
    ),
    "every taint has to be tolerated": Case(
        pod=template(1, tolerations=(Toleration("a", "Exists"),)),
        nodes=(node("n", taints=(Taint("a"), Taint("b"))),),
        allowed=(),
    ),
    "a cordoned node takes nobody": Case(
        pod=template(1), nodes=(node("n", unschedulable=True), node("o")), allowed=("o",)
    ),
    "a node that is not ready takes nobody": Case(
        pod=template(1), nodes=(node("n", ready=False), node("o")), allowed=("o",)
    ),
}

RESOURCES = {
    "all GPUs of a node can be taken": Case(pod=template(4), nodes=(node("n", 4),), allowed=("n",)),
    "one more cannot": Case(pod=template(5), nodes=(node("n", 4),), allowed=()),
    "a node without the resource has none of it": Case(pod=template(1), nodes=(node("n", 0),), allowed=()),
    "cpu has to fit beside the GPUs": Case(
        pod=template(requests={GPU: 1, CPU: 64_001}), nodes=(node("n"), node("big", allocatable={CPU: 65_000})),
        allowed=("big",),
    ),
    "memory has to fit": Case(pod=template(requests={MEMORY: 513 * GIB}), nodes=(node("n"),), allowed=()),
    "a MIG profile is a resource of its own": Case(
        pod=template(requests={MIG: 2}), nodes=(node("n"), node("m", 0, allocatable={MIG: 2})), allowed=("m",)
    ),
    "a node may limit its pods": Case(
        pod=template(0), nodes=(node("n", allocatable={"pods": 0}), node("o")), allowed=("o",)
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", [*LABELS, *TAINTS, *RESOURCES])
def test_a_pod_may_use(name: str) -> None:
    case = {**LABELS, **TAINTS, **RESOURCES}[name]
    allowed: list[str] = []
    for each in case.nodes:
        cluster = Cluster(each).add(pod("p", template=case.pod))
        cluster.run()
        allowed += cluster.where()
    assert tuple(allowed) == case.allowed


def test_the_pods_already_there_count() -> None:
    cluster = Cluster(node("n", 4, allocatable={"pods": 2})).add([pod("a"), pod("b"), pod("c")])
    cluster.run()
    assert cluster.where() == {"n": ["a", "b"]}
    assert cluster.told("c") == (
        "0/1 nodes are available: 1 Too many pods. "
        "preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod."
    )


TEXTS: dict[str, tuple[tuple[Node, ...], PodTemplate, str]] = {
    "no nodes at all": ((), template(1), "no nodes available to schedule pods"),
    "too few GPUs everywhere": (
        (node("a"), node("b")),
        template(8),
        "0/2 nodes are available: 2 Insufficient nvidia.com/gpu. "
        "preemption: 0/2 nodes are available: 2 No preemption victims found for incoming pod.",
    ),
    "a node can lack several things": (
        (node("a"),),
        template(requests={GPU: 8, CPU: 99_000}),
        "0/1 nodes are available: 1 Insufficient cpu, 1 Insufficient nvidia.com/gpu. "
        "preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod.",
    ),
    "each kind of refusal is counted, sorted as text": (
        (
            node("a", unschedulable=True),
            node("b", taints=(PRESENT,)),
            node("c", taints=(PRESENT,)),
            node("d", labels=A100, ready=False),
            node("e", labels=A100),
            node("f", labels=A100, gpus=1),
        ),
        template(2, node_selector={"generation": "9"}),
        "0/6 nodes are available: 1 node(s) had untolerated taint {node.kubernetes.io/not-ready: }, "
        "1 node(s) were unschedulable, 2 node(s) didn't match Pod's node affinity/selector, "
        "2 node(s) had untolerated taint {nvidia.com/gpu: present}. "
        "preemption: 0/6 nodes are available: 6 Preemption is not helpful for scheduling.",
    ),
    "evicting helps against shortage only": (
        (node("a", taints=(PRESENT,)), node("b"), node("c")),
        template(8),
        "0/3 nodes are available: 1 node(s) had untolerated taint {nvidia.com/gpu: present}, "
        "2 Insufficient nvidia.com/gpu. preemption: 0/3 nodes are available: "
        "1 Preemption is not helpful for scheduling, 2 No preemption victims found for incoming pod.",
    ),
    "a pod that may not preempt is told so": (
        (node("a"),),
        template(8, preemption_policy="Never"),
        "0/1 nodes are available: 1 Insufficient nvidia.com/gpu. "
        "preemption: not eligible due to preemptionPolicy=Never.",
    ),
}


@pytest.mark.parametrize("name", TEXTS)
def test_failed_scheduling_reads_as_kube_scheduler_writes_it(name: str) -> None:
    nodes, wanted, text = TEXTS[name]
    cluster = Cluster(*nodes).add(pod("p", template=wanted))
    cluster.run()
    assert cluster.told("p") == text


def test_without_preemption_the_text_ends_with_the_filters() -> None:
    cluster = Cluster(node("a"), preemption=False).add(pod("p", 8))
    cluster.run()
    assert cluster.told("p") == "0/1 nodes are available: 1 Insufficient nvidia.com/gpu."

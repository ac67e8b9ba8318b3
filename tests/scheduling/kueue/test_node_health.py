"""What a node that fails, or keeps pods away, means for the workloads on it."""

from typing import NamedTuple

import pytest
from msgspec.structs import replace

from gpuconsole.model.clock import SECOND
from gpuconsole.model.cluster import Node, Pod, PodPhase
from gpuconsole.model.labels import HOSTNAME, Taint, Toleration
from gpuconsole.model.pod_template import PodSet, PodTemplate
from gpuconsole.model.queues import ResourceFlavor
from gpuconsole.model.workloads import Admission, Condition, PodSetAssignment, TopologyDomain, Workload
from gpuconsole.scheduling.kueue.config import KueueConfig
from gpuconsole.scheduling.kueue.topology.domains import NodeChange, node_changes
from gpuconsole.scheduling.kueue.topology.node_failures import NodeFailureActions, NodeFailureInputs, examine_node

NOW = 1000 * SECOND
TAINT = Taint("broken", effect="NoExecute")
FINE = Node(name="x")
TAINTED = replace(FINE, taints=(TAINT,))
DOWN = replace(FINE, ready=False, not_ready_since=NOW - 10 * SECOND)
LONG_DOWN = replace(FINE, ready=False, not_ready_since=NOW - 30 * SECOND)
MARKS = {"kueue.x-k8s.io/workload": "w", "kueue.x-k8s.io/podset-unconstrained-topology": "true"}
BY_TIME = {"TASReplaceNodeOnPodTermination": False}


def workload(*nodes: str, lost: tuple[str, ...] = (), tolerates: Toleration | None = None) -> Workload:
    """An admitted workload with a pod on each node."""
    domains = tuple(TopologyDomain((node,), 1) for node in nodes)
    template = PodTemplate(tolerations=(tolerates,) if tolerates is not None else ())
    given = PodSetAssignment(flavors={"gpu": "f"}, count=len(nodes), levels=(HOSTNAME,), topology=domains)
    return Workload(
        namespace="team",
        name="w",
        pod_sets=(PodSet(count=len(nodes), template=template),),
        admission=Admission(cluster_queue="q", pod_sets=(given,)),
        conditions=(Condition("QuotaReserved", True), Condition("Admitted", True)),
        unhealthy_nodes=lost,
    )


def pod(node: str = "", *, waits_for: str = "", **facts: object) -> Pod:
    selector = {HOSTNAME: waits_for} if waits_for else {}
    made = Pod(namespace="team", name="p", annotations=MARKS, node=node, template=PodTemplate(node_selector=selector))
    return replace(made, **facts)


RUNS = pod("x", phase=PodPhase.RUNNING)
LEAVES = replace(RUNS, deleted=NOW)
DONE = replace(RUNS, phase=PodPhase.FAILED)
STUCK = pod(waits_for="x")
ONE, TWO = workload("x"), workload("x", "y")
LOST = NodeFailureActions((replace(ONE, unhealthy_nodes=("x",)),))
NOTHING = NodeFailureActions()
FOREVER, A_WHILE = Toleration("broken", "Exists"), Toleration("broken", "Exists", seconds=60)


class Case(NamedTuple):
    node: Node | None
    workload: Workload
    pods: tuple[Pod, ...]
    want: NodeFailureActions
    gates: dict[str, bool] = {}


CASES: dict[str, Case] = {
    "a node that is gone is lost": Case(None, ONE, (RUNS,), LOST),
    "so is one that nothing says to be ready": Case(replace(FINE, ready=False), ONE, (RUNS,), LOST),
    "a node that is fine is none": Case(FINE, ONE, (RUNS,), NOTHING),
    "one that is not ready is left to its pods": Case(LONG_DOWN, ONE, (RUNS,), NOTHING),
    "until they end": Case(DOWN, ONE, (DONE,), LOST),
    "or begin to leave": Case(DOWN, ONE, (LEAVES,), LOST),
    "or until some time has passed": Case(
        LONG_DOWN, ONE, (RUNS,), LOST, {"TASReplaceNodeDueToNotReadyOverFixedTime": True}
    ),
    "without a look at pods only time decides": Case(LONG_DOWN, ONE, (RUNS,), LOST, BY_TIME),
    "and it is waited for": Case(DOWN, ONE, (DONE,), NodeFailureActions(reconcile_after=20 * SECOND), BY_TIME),
    "a taint counts when the pods are gone": Case(TAINTED, ONE, (DONE,), LOST),
    "not while they run": Case(TAINTED, ONE, (RUNS,), NOTHING),
    "at once without a look at pods": Case(TAINTED, ONE, (RUNS,), LOST, BY_TIME),
    "a taint that is tolerated does not count": Case(TAINTED, workload("x", tolerates=FOREVER), (DONE,), NOTHING),
    "one that is tolerated for a while counts with the pods": Case(
        TAINTED,
        workload("x", tolerates=A_WHILE),
        (DONE,),
        NodeFailureActions((replace(workload("x", tolerates=A_WHILE), unhealthy_nodes=("x",)),)),
    ),
    "a mild taint is none": Case(replace(FINE, taints=(Taint("a", effect="PreferNoSchedule"),)), ONE, (), NOTHING),
    "taints may be ignored": Case(TAINTED, ONE, (), NOTHING, {"TASReplaceNodeOnNodeTaints": False}),
    "a pod that waits for a tainted node will not come to it": Case(
        TAINTED, ONE, (STUCK,), NodeFailureActions(LOST.changed, pods_to_fail=(STUCK,))
    ),
    "one that is still gated waits on": Case(TAINTED, ONE, (replace(STUCK, gates=("kueue.x-k8s.io/topology",)),), LOST),
    "a pod that waits for a node which is no place of it any more": Case(
        FINE, workload("y"), (STUCK,), NodeFailureActions(pods_to_fail=(STUCK,))
    ),
    "a node that came back is not lost any more": Case(
        FINE, workload("x", lost=("x",)), (), NodeFailureActions((ONE,))
    ),
    "what is noted is not noted again": Case(None, workload("x", lost=("x",)), (), NOTHING),
    "a second node evicts": Case(
        None,
        workload("x", "y", lost=("y",)),
        (),
        NodeFailureActions(
            evicted={
                "team/w": "Workload eviction triggered due to multiple TAS assigned node failures, including: y, x"
            }
        ),
    ),
    "a finished workload has no places": Case(
        None, replace(ONE, conditions=(*ONE.conditions, Condition("Finished", True))), (), NOTHING
    ),
    "nor one that is being evicted": Case(
        None, replace(ONE, conditions=(*ONE.conditions, Condition("Evicted", True))), (), NOTHING
    ),
    "nor one on other nodes": Case(None, workload("y"), (), NOTHING),
    "nodes are not replaced": Case(None, ONE, (), NOTHING, {"TASFailedNodeReplacement": False}),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_what_is_done_about_a_node(case: Case) -> None:
    known = NodeFailureInputs(
        {case.workload.key: case.workload}, case.pods, {"f": ResourceFlavor(name="f")}, KueueConfig(gates=case.gates)
    )
    assert examine_node("x", case.node, known, NOW) == case.want


def test_a_flavor_tolerates_for_its_pods() -> None:
    flavor = ResourceFlavor(name="f", tolerations=(FOREVER,))
    known = NodeFailureInputs({"team/w": ONE}, (), {"f": flavor}, KueueConfig())
    assert examine_node("x", TAINTED, known, NOW) == NOTHING


def test_only_changes_that_scheduling_looks_at_are_changes() -> None:
    assert node_changes(FINE, replace(FINE, uid="u", created=1)) is NodeChange.NOTHING
    assert node_changes(DOWN, replace(DOWN, not_ready_since=NOW)) is NodeChange.NOTHING
    changed = replace(DOWN, labels={"a": "b"}, annotations={"a": "b"}, allocatable={"cpu": 1}, unschedulable=True)
    assert node_changes(TAINTED, changed) == NodeChange(1 | 2 | 4 | 8 | 16 | 32)

"""Topology-aware scheduling: failed nodes, and the second scheduling pass (Kueue: TAS controllers).

`reconcile_node` examines a failed or tainted node under workloads placed by topology. The second pass finds topology
assignments for workloads that have quota already: later than the quota, or again after a node failure.
"""

from msgspec.structs import replace

from gpuconsole.model.clock import Time
from gpuconsole.model.cluster import Node
from gpuconsole.model.events import Admit, Evict, HistoryEventKind, KeepWaiting
from gpuconsole.model.labels import Taint
from gpuconsole.model.queues import ResourceFlavor
from gpuconsole.model.workloads import Workload
from gpuconsole.scheduling.kueue import conditions
from gpuconsole.scheduling.kueue.topology.node_failures import (
    TERMINATED,
    UNSCHEDULABLE,
    NodeFailureActions,
    NodeFailureInputs,
    examine_node,
)
from gpuconsole.sim.controllers import eviction, nodes, workloads
from gpuconsole.sim.controllers.pod_specs import ungate
from gpuconsole.sim.kernel import ExamineNode
from gpuconsole.sim.world import World

CORDON_TAINT = Taint("node.kubernetes.io/unschedulable")
"""The taint that Kubernetes puts on a cordoned node."""
NODE_UNHEALTHY = "UnhealthyNode"


def reconcile_node(world: World, name: str) -> None:
    """Examine a node, and mark, ungate, evict or fail the workloads and pods that its state affects."""
    session = world.session
    if session is None or not session.uses_topologies:
        return
    known = NodeFailureInputs(
        world.state.table("workloads").freeze(),
        list(world.state.table("pods").all()),
        {flavor.name: flavor for flavor in world.state.table("flavors").all() if isinstance(flavor, ResourceFlavor)},
        session.config,
    )
    node = world.node(name)
    _apply_result(world, name, examine_node(name, _with_cordon_taint(node), known, world.now))


def _with_cordon_taint(node: Node | None) -> Node | None:
    if node is None or not node.unschedulable or CORDON_TAINT in node.taints:
        return node
    return replace(node, taints=(*node.taints, CORDON_TAINT))


def _apply_result(world: World, name: str, result: NodeFailureActions) -> None:
    for workload in result.changed:
        world.put(workload)
        if name in workload.unhealthy_nodes:
            _record_lost_node(world, workload, name)
        else:
            ungate(world, workload)
    for key, message in result.evicted.items():
        victim = world.workload(key)
        if victim is not None:
            eviction.evict(world, victim, conditions.NODE_FAILURES, message)
    for pod in result.pods_to_fail:
        current = world.pod(pod.key)
        if current is not None and not current.done:
            nodes.fail_pod(world, current, UNSCHEDULABLE, TERMINATED)
    if result.reconcile_after:
        world.kernel.set_timer(world.now + result.reconcile_after, ExamineNode(name))


def _record_lost_node(world: World, workload: Workload, name: str) -> None:
    message = f"Node {name} failed; the pods on it wait for another place"
    workloads.record_event(world, HistoryEventKind.PLACES, workload, reason=NODE_UNHEALTHY, message=message, node=name)


SECOND_PASS_FAILED = "SecondPassFailed"
NODE_REPLACED = "NodeReplaced"


def settle_second_pass(world: World, decision: Admit, at: Time) -> bool:
    """Record the topology assignment that a second pass found; False, without effect, if the workload has no quota yet.

    Then the decision is a first admission, which the caller has to carry out. Running pods stay where they are; those
    lost with a node are recreated in the new domains.
    """
    workload = world.workload(decision.workload)
    if workload is None or not workload.reserved:
        return False
    placed = conditions.reserve_quota(workload, decision.admission, at)
    if not workload.admitted:
        workloads.admit_workload(world, placed)
    else:
        world.put(placed)
        nodes = ", ".join(workload.unhealthy_nodes)
        workloads.record_event(
            world, HistoryEventKind.PLACES, placed, reason=NODE_REPLACED, message=f"Replaced unhealthy node(s): {nodes}"
        )
        ungate(world, placed)
    return True


def retry_second_pass(world: World, decision: KeepWaiting) -> None:
    """Record that a second pass found no assignment; the scheduler tries again by itself."""
    workload = world.workload(decision.workload)
    if workload is not None:
        workloads.record_event(
            world, HistoryEventKind.PLACES, workload, reason=SECOND_PASS_FAILED, message=decision.message
        )


def give_up_second_pass(world: World, decision: Evict) -> None:
    """Evict a workload that the scheduler gives up in its second pass."""
    workload = world.workload(decision.workload)
    if workload is not None and workload.reserved and not workload.is_true(conditions.EVICTED):
        if decision.detail:
            workloads.record_event(
                world, HistoryEventKind.PLACES, workload, reason=SECOND_PASS_FAILED, message=decision.detail
            )
        eviction.evict(world, workload, decision.reason, decision.message)

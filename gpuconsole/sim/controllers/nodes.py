"""Nodes: cordon, drain, failure, restoration, and their effect on pods and on workloads placed by topology.

The last functions are Kueue's controllers for topology-aware scheduling. `reconcile_node` examines a failed or tainted
node under workloads placed by topology. The second pass finds topology assignments for workloads that have quota
already: later than the quota, or again after a node failure.
"""

from collections.abc import Iterable

from msgspec.structs import replace

from gpuconsole.model.clock import Span, Time
from gpuconsole.model.cluster import NODE_LOST, Node, Pod
from gpuconsole.model.events import Admit, HistoryEventKind
from gpuconsole.model.labels import Taint
from gpuconsole.model.queues import ResourceFlavor
from gpuconsole.model.workloads import Workload
from gpuconsole.scheduling.kueue import apply_decisions, conditions
from gpuconsole.scheduling.kueue.topology.node_failures import (
    TERMINATED,
    UNSCHEDULABLE,
    NodeFailureActions,
    NodeFailureInputs,
    examine_node,
)
from gpuconsole.sim.controllers import eviction, pods, work, workloads
from gpuconsole.sim.controllers.pod_specs import ungate
from gpuconsole.sim.kernel import ExamineNode
from gpuconsole.sim.world import World, running_group_key

DELETED = "Deleted"


def set_cordoned(world: World, node: Node, cordoned: bool) -> None:
    """Cordon or uncordon a node."""
    if node.unschedulable != cordoned:
        world.put(replace(node, unschedulable=cordoned))
        world.record_event(
            HistoryEventKind.NODE_CHANGED, node=node.name, reason="Cordoned" if cordoned else "Uncordoned"
        )


def drain_node(world: World, node: Node) -> None:
    """Cordon a node and delete its pods; their owners recreate them elsewhere."""
    set_cordoned(world, node, True)
    for pod in pods_on(world, node.name):
        if not pod.deleted:
            evict_pod(world, pod, reason="Drained", message=f"node {node.name} is drained")


def fail_node(world: World, node: Node) -> None:
    """A node stops responding: its pods fail at once, Workloads keep their quota."""
    world.put(replace(node, ready=False, not_ready_since=world.now))
    world.record_event(HistoryEventKind.NODE_DOWN, node=node.name, **world.devices.of_node(node))
    fail_pods_of_lost_node(world, node.name)


def restore_node(world: World, node: Node) -> None:
    """Make a failed node ready again; it has no pods."""
    world.put(replace(node, ready=True, not_ready_since=None))
    world.record_event(HistoryEventKind.NODE_UP, node=node.name, **world.devices.of_node(node))


def remove_node(world: World, node: Node) -> None:
    """Delete a node with everything on it."""
    if node.ready:
        world.put(replace(node, ready=False, not_ready_since=world.now))
    fail_pods_of_lost_node(world, node.name)
    world.drop(Node, node.name)
    world.record_event(HistoryEventKind.NODE_CHANGED, node=node.name, reason="Removed", **world.devices.of_node(node))


def fail_pods_of_lost_node(world: World, name: str) -> None:
    """Fail the pods of a node that is lost; those that were terminating are deleted."""
    for pod in pods_on(world, name):
        if pod.deleted:
            pods.delete_immediately(world, pod)
        else:
            fail_pod(world, pod, NODE_LOST, f"node {name} does not answer")
            _count_failure(world, pod, disrupted=True)


def fail_pod(world: World, pod: Pod, reason: str, message: str) -> None:
    """Fail a pod; the work of its running group stops until the pod is recreated."""
    loss = _interrupt_work(world, pod)
    pods.fail_pod(world, pod, reason, message)
    world.record_event(
        HistoryEventKind.POD_FAILED,
        workload=pods.history_subject(pod),
        pod=pod.key,
        queue=pods.queue_of(world, pod),
        node=pod.node,
        reason=reason,
        message=message,
        priority=pod.priority,
        lost_gpu_seconds=loss.gpu_seconds,
        cost=loss.cost,
        **world.devices.held([pod]),
    )


def evict_pod(
    world: World, pod: Pod, *, reason: str, message: str, by: Pod | None = None, rule: str = "", notice: Span = 0
) -> None:
    """Evict a pod; the work of its running group stops. A pod without a Workload is itself the victim.

    `rule` is the rule by which `by` chose it. `notice` is the time it has to write a checkpoint, if it writes one on
    termination.
    """
    loss = _interrupt_work(world, pod, notice)
    if by is not None:
        world.record_event(HistoryEventKind.PREEMPTED, reason=rule or reason, **_victim_fields(world, pod, by, message))
    world.record_event(
        HistoryEventKind.POD_EVICTED if pod.workload else HistoryEventKind.EVICTED,
        reason=reason,
        lost_gpu_seconds=loss.gpu_seconds,
        cost=loss.cost,
        **_victim_fields(world, pod, by, message),
    )
    pods.delete_pods(world, (world.pod(pod.key) or pod,), reason, message)
    _count_failure(world, pod, disrupted=reason != DELETED)


def _count_failure(world: World, pod: Pod, *, disrupted: bool) -> None:
    """Count a lost pod as a failure of its Job, unless its podFailurePolicy ignores disruptions."""
    verdict = work.count_failure(world, pod, None, disrupted=disrupted)
    group = world.groups.get(running_group_key(pod))
    if verdict is not None and group is not None:
        workloads.end_job(world, group, verdict)


def pods_on(world: World, name: str) -> list[Pod]:
    """Pods that occupy resources of a node."""
    everything: Iterable[Pod] = world.state.table("pods").all()
    return [pod for pod in everything if pod.node == name and not pod.done]


def _interrupt_work(world: World, pod: Pod, notice: Span = 0) -> work.WorkLoss:
    loss = work.interrupt_work(world, running_group_key(pod), notice, pod=pod)
    workload = world.workload(pod.workload) if pod.workload else None
    if workload is not None and not workload.finished:
        waiting = workloads.with_pods_not_ready(workload, world.now)
        if waiting is not workload:
            world.put(waiting)
            workloads.set_requeue_timer(world, waiting)
    return loss


def _victim_fields(world: World, pod: Pod, by: Pod | None, message: str) -> dict[str, object]:
    return {
        "workload": pods.history_subject(pod),
        "pod": pod.key,
        "queue": pods.queue_of(world, pod),
        "node": pod.node,
        "priority": pod.priority,
        "by": pods.history_subject(by) if by is not None else "",
        "by_queue": pods.queue_of(world, by) if by is not None else "",
        "by_priority": by.priority if by is not None else 0,
        "message": message,
        **world.devices.held([pod]),
    }


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
            eviction.evict_for(world, victim, conditions.NODE_FAILURES, message)
    for pod in result.pods_to_fail:
        current = world.pod(pod.key)
        if current is not None and not current.done:
            fail_pod(world, current, UNSCHEDULABLE, TERMINATED)
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
    queue = world.cluster_queue(decision.admission.cluster_queue)
    placed = apply_decisions.with_reservation(workload, decision, queue, at)
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


def record_failed_second_pass(world: World, workload: Workload | None, message: str) -> None:
    """Record that a second pass found no topology assignment: the scheduler tries again by itself, or gives up."""
    if workload is not None:
        workloads.record_event(world, HistoryEventKind.PLACES, workload, reason=SECOND_PASS_FAILED, message=message)

"""Handles failed and tainted nodes for the workloads whose topology assignment uses them.

Kueue 0.19 controller/tas/node_controller.go. One failed node is recorded as unhealthy and replaced in the second pass;
a workload that loses another node before that is evicted. With TASReplaceNodeOnPodTermination, a node that is
tainted or not ready is replaced only after the workload's pods on it have ended, or with
TASReplaceNodeDueToNotReadyOverFixedTime after 30 seconds of not being ready.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain

from msgspec import Struct
from msgspec.structs import replace

from gpuconsole.model.clock import SECOND, Span, Time
from gpuconsole.model.cluster import Node, Pod, PodPhase
from gpuconsole.model.jobs.workloads import WORKLOAD
from gpuconsole.model.labels import HOSTNAME, Taint, Toleration
from gpuconsole.model.queues import ResourceFlavor
from gpuconsole.model.workloads import Workload
from gpuconsole.scheduling.kueue.conditions import on_node, used_nodes
from gpuconsole.scheduling.kueue.config import KueueConfig
from gpuconsole.scheduling.kueue.podset import additions_of, merge
from gpuconsole.scheduling.kueue.topology.layout import placed_by_topology
from gpuconsole.scheduling.kueue.topology.topology_ungater import is_gated, pods_of

FAILURE_DELAY: Span = 30 * SECOND
"""How long a node may be not ready before it counts as failed; TASReplaceNodeOnPodTermination does not wait for it."""
UNSCHEDULABLE = "UnschedulableOnAssignedNode"
TERMINATED = "Pod terminated by Kueue NodeController due to node taint"
_KEEPS_AWAY = ("NoSchedule", "NoExecute")


class NodeFailureResult(Struct, frozen=True):
    """The result for one workload with pods assigned to a node."""

    unhealthy: bool = False
    to_fail: tuple[Pod, ...] = ()
    """Ungated, pending pods that select this node but are not bound; they are to be failed."""


class NodeFailureActions(Struct, frozen=True):
    """The actions for a node: changed workloads, evictions, failed pods."""

    changed: tuple[Workload, ...] = ()
    evicted: Mapping[str, str] = {}
    """Workload → the message of its eviction."""
    to_fail: tuple[Pod, ...] = ()
    again: Span = 0
    """Time until the node must be checked again; 0 if no check is due."""


class NodeFailureInputs(Struct, frozen=True):
    """The objects besides the node that a check reads."""

    workloads: Mapping[str, Workload]
    pods: Sequence[Pod]
    flavors: Mapping[str, ResourceFlavor]
    config: KueueConfig


def examine(name: str, node: Node | None, inputs: NodeFailureInputs, now: Time) -> NodeFailureActions:
    """Decide what a node's failure or recovery changes for workloads assigned to it; `node` is None if deleted."""
    config = inputs.config
    if not config.enabled("TASFailedNodeReplacement"):
        return NodeFailureActions()
    placed = [w for w in inputs.workloads.values() if _lives(w) and name in used_nodes(w)]
    if node is None or (not node.ready and node.not_ready_since is None):
        return _mark(name, placed)
    expired = False
    if not node.ready and node.not_ready_since is not None:
        left = node.not_ready_since + FAILURE_DELAY - now
        expired = left <= 0
        if not expired and not config.enabled("TASReplaceNodeOnPodTermination"):
            return NodeFailureActions(again=left)
    assigned = assigned_pods(name, inputs.pods)
    late = [inputs.workloads[key] for key in assigned if key in inputs.workloads and _lives(inputs.workloads[key])]
    affected = {workload.key: workload for workload in (*placed, *late)}
    judged = {key: judge(node, w, inputs, assigned.get(key, ())) for key, w in affected.items()}
    failed = (
        {w.key for w in placed} if expired and config.enabled("TASReplaceNodeDueToNotReadyOverFixedTime") else set()
    )
    bad = [w for key, w in affected.items() if key in failed or judged[key].unhealthy]
    verdict = _mark(name, bad)
    healed = [w for w in affected.values() if w not in bad and name in w.unhealthy_nodes]
    healed = [replace(w, unhealthy_nodes=tuple(n for n in w.unhealthy_nodes if n != name)) for w in healed]
    to_fail = chain.from_iterable(j.to_fail for key, j in judged.items() if key not in verdict.evicted)
    return NodeFailureActions((*verdict.changed, *healed), verdict.evicted, tuple(to_fail))


def judge(node: Node, workload: Workload, inputs: NodeFailureInputs, assigned: Iterable[Pod]) -> NodeFailureResult:
    """Check one workload on a node; `assigned` are its pods whose node selector names the node."""
    to_fail = tuple(p for p in assigned if not p.node and p.phase is PodPhase.PENDING and not is_gated(p))
    progressing = any(
        pod.node == node.name and not pod.deleted and not pod.done for pod in pods_of(workload, inputs.pods)
    )
    assignments = workload.admission.pod_sets if workload.admission is not None else ()
    if not any(on_node(assignment, node.name) for assignment in assignments):
        return NodeFailureResult(to_fail=to_fail)
    by_pods = inputs.config.enabled("TASReplaceNodeOnPodTermination")
    if not node.ready:
        return NodeFailureResult(not progressing, to_fail) if by_pods else NodeFailureResult(unhealthy=True)
    if not inputs.config.enabled("TASReplaceNodeOnNodeTaints"):
        return NodeFailureResult()
    keeping_away = [taint for taint in node.taints if taint.effect in _KEEPS_AWAY]
    tolerations = _tolerations(node.name, workload, inputs) if keeping_away else []
    if any(not _tolerated(taint, pods) for taint in keeping_away for pods in tolerations):
        return NodeFailureResult(not progressing, to_fail) if by_pods else NodeFailureResult(unhealthy=True)
    lasting = [tuple(t for t in pods if t.seconds is None) for pods in tolerations]
    if any(not _tolerated(taint, pods) for taint in keeping_away for pods in lasting):
        return NodeFailureResult(not progressing, to_fail)
    return NodeFailureResult()


def _lives(workload: Workload) -> bool:
    return not workload.finished and not workload.is_true("Evicted")


def _mark(name: str, workloads: Iterable[Workload]) -> NodeFailureActions:
    """Record the failed node in each workload; evict those that already have another failed node."""
    changed, evicted = [], {}
    for workload in workloads:
        if name in workload.unhealthy_nodes:
            continue
        nodes = (*workload.unhealthy_nodes, name)
        if len(nodes) > 1:
            evicted[workload.key] = (
                f"Workload eviction triggered due to multiple TAS assigned node failures, including: {', '.join(nodes)}"
            )
        else:
            changed.append(replace(workload, unhealthy_nodes=nodes))
    return NodeFailureActions(tuple(changed), evicted)


def assigned_pods(name: str, pods: Iterable[Pod]) -> dict[str, list[Pod]]:
    """Workload → its pods whose node selector names the node."""
    found: dict[str, list[Pod]] = {}
    for pod in pods:
        workload = pod.annotations.get(WORKLOAD)
        if workload and pod.template.node_selector.get(HOSTNAME) == name and placed_by_topology(pod):
            found.setdefault(f"{pod.namespace}/{workload}", []).append(pod)
    return found


def _tolerations(name: str, workload: Workload, inputs: NodeFailureInputs) -> list[tuple[Toleration, ...]]:
    """Return the tolerations of each pod set on the node: its own, its flavors' and its admission checks'."""
    return [
        merge(pod_set.template, added).tolerations
        for pod_set, assignment, added in additions_of(workload, inputs.flavors, inputs.config)
        if on_node(assignment, name)
    ]


def _tolerated(taint: Taint, tolerations: Iterable[Toleration]) -> bool:
    return any(toleration.tolerates(taint) for toleration in tolerations)

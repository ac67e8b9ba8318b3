"""Handles failed and tainted nodes for the workloads assigned to them, and removes the scheduling gates of their pods.

Kueue 0.19 controller/tas/node_controller.go (`examine_node`): one failed node is recorded as unhealthy and replaced in
the second pass; a workload that loses another node before that is evicted. With TASReplaceNodeOnPodTermination, a node
that is tainted or not ready is replaced only after the workload's pods on it have ended, or with
TASReplaceNodeDueToNotReadyOverFixedTime after 30 seconds of not being ready.

Kueue 0.19 controller/tas/topology_ungater.go (`ungate_pods`): gated pods are assigned to the domains of their
workload's topology assignment. Pods with an index label get domains in the order of their index; without one, or with
inconsistent indices, they fill the domains that still lack pods.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from gpuconsole.model.clock import SECOND, Span, Time
from gpuconsole.model.cluster import Node, Pod, PodPhase
from gpuconsole.model.jobs.workloads import POD_SET, WORKLOAD
from gpuconsole.model.labels import HOSTNAME, Taint, Toleration
from gpuconsole.model.pod_template import TopologyRequest
from gpuconsole.model.queues import ResourceFlavor
from gpuconsole.model.workloads import PodSetAssignment, Workload
from gpuconsole.scheduling.kueue.conditions import is_assigned_to_node, node_of, used_nodes
from gpuconsole.scheduling.kueue.config import KueueConfig
from gpuconsole.scheduling.kueue.podset import SLICE_NAME, TOPOLOGY_GATE, additions_by_pod_set, apply_additions
from gpuconsole.scheduling.kueue.topology.domains import Values
from gpuconsole.scheduling.kueue.topology.layout import placed_by_topology

INDEX_OFFSET = "kueue.x-k8s.io/pod-index-offset"
"""Annotation: the first index of a pod set's pods."""
_INDEX_LIMIT = 2**64
"""Indices from here on are invalid: Kueue parses them as unsigned 64-bit numbers."""
Places = dict[str, Mapping[str, str]]
"""Pod → the node labels of its domain."""


class _Ranks(NamedTuple):
    """Valid index labels of a pod set: from `offset`, below `bound`."""

    offset: int
    bound: int


class _Unranked(Exception):
    """Error: the pods' indices do not give every pod its own rank."""


def ungate_pods(workload: Workload, pods: Iterable[Pod]) -> Places:
    """Return the gated pods of an admitted workload that can be ungated, with the node labels of their domains.

    A pod whose domain is a failed node stays gated. Raises ValueError for an offset annotation that is no integer.
    """
    if not workload.admitted or workload.admission is None:
        return {}
    mine = _pods_by_set(workload, pods)
    requests = {pod_set.name: pod_set.topology for pod_set in workload.pod_sets}
    found: Places = {}
    for assignment, ranks in _ranks(workload, requests):
        members = mine.get(assignment.name, [])
        if not assignment.topology or not members:
            continue
        offset = int(members[0].annotations.get(INDEX_OFFSET, "0"))
        shifted = _Ranks(ranks.offset + offset, ranks.bound + offset)
        for key, values in _assign_by_rank(assignment, members, requests.get(assignment.name), shifted).items():
            if node_of(assignment.levels, values) not in workload.unhealthy_nodes:
                found[key] = dict(zip(assignment.levels, values, strict=True))
    return found


def is_gated(pod: Pod) -> bool:
    """True while the pod has the topology scheduling gate."""
    return TOPOLOGY_GATE in pod.gates


def pods_of(workload: Workload, pods: Iterable[Pod]) -> list[Pod]:
    """Return the pods of a workload; for a workload slice, those of all slices of its job."""
    name = workload.annotations.get(SLICE_NAME, workload.name)
    return [
        pod
        for pod in pods
        if pod.namespace == workload.namespace
        and pod.annotations.get(SLICE_NAME, pod.annotations.get(WORKLOAD)) == name
    ]


def _pods_by_set(workload: Workload, pods: Iterable[Pod]) -> dict[str, list[Pod]]:
    """Return the unfinished pods by pod set; finished pods are ignored because they are recreated."""
    found: dict[str, list[Pod]] = {}
    for pod in pods_of(workload, pods):
        if not pod.done and POD_SET in pod.labels:
            found.setdefault(pod.labels[POD_SET], []).append(pod)
    return found


def _ranks(
    workload: Workload, requests: Mapping[str, TopologyRequest | None]
) -> Iterable[tuple[PodSetAssignment, _Ranks]]:
    """Yield the index range of each pod set; in a group the smaller one, the leader, comes before the workers."""
    assert workload.admission is not None
    groups: dict[str | int, list[PodSetAssignment]] = {}
    for index, assignment in enumerate(workload.admission.pod_sets):
        request = requests.get(assignment.name)
        group = request.group if request is not None else ""
        groups.setdefault(group or index, []).append(assignment)
    for members in groups.values():
        if len(members) == 1:
            yield members[0], _Ranks(0, members[0].count)
            continue
        small, large = members[:2]
        if small.count > large.count:
            small, large = large, small
        yield small, _Ranks(0, small.count)
        yield large, _Ranks(small.count, large.count + small.count)


def _assign_by_rank(
    assignment: PodSetAssignment, pods: Sequence[Pod], request: TopologyRequest | None, ranks: _Ranks
) -> dict[str, Values]:
    by_rank = [domain.values for domain in assignment.topology for _ in range(domain.count)]
    try:
        ranked = _ranks_of_pods(assignment, pods, request, ranks)
        for rank, pod in ranked.items():
            if rank >= len(by_rank):
                raise _Unranked
            if not is_gated(pod) and _domain(pod, assignment.levels) != by_rank[rank]:
                raise _Unranked
    except _Unranked:
        return _assign_remaining(assignment, pods)
    return {pod.key: by_rank[rank] for rank, pod in ranked.items() if is_gated(pod)}


def _assign_remaining(assignment: PodSetAssignment, pods: Sequence[Pod]) -> dict[str, Values]:
    """Assign gated pods, in order, to the first domains that have fewer pods than assigned."""
    used: dict[Values, int] = {}
    for pod in pods:
        if not is_gated(pod):
            values = _domain(pod, assignment.levels)
            used[values] = used.get(values, 0) + 1
    waiting = iter([pod.key for pod in pods if is_gated(pod)])
    found: dict[str, Values] = {}
    for domain in assignment.topology:
        for _, key in zip(range(domain.count - used.get(domain.values, 0)), waiting, strict=False):
            found[key] = domain.values
    return found


def _domain(pod: Pod, levels: Sequence[str]) -> Values:
    return tuple(pod.template.node_selector.get(level, "") for level in levels)


def _ranks_of_pods(
    assignment: PodSetAssignment, pods: Sequence[Pod], request: TopologyRequest | None, ranks: _Ranks
) -> dict[int, Pod]:
    """Rank → pod, by the pods' index labels. Raises _Unranked."""
    if request is None or not request.index_label:
        raise _Unranked
    size = assignment.count
    job_size = size
    if request.subgroup_index_label:
        if not request.subgroup_count or request.subgroup_count <= 0:
            raise _Unranked
        job_size = size // request.subgroup_count
    found: dict[int, Pod] = {}
    for pod in pods:
        index = _label_index(pod, request.index_label, ranks.bound)
        rank = index - ranks.offset
        if request.subgroup_index_label:
            rank += _label_index(pod, request.subgroup_index_label, request.subgroup_count or 0) * job_size
            if index >= job_size:
                raise _Unranked
        if not 0 <= rank < size or rank in found:
            raise _Unranked
        found[rank] = pod
    return found


def _label_index(pod: Pod, label: str, bound: int) -> int:
    text = pod.labels.get(label, "")
    if not (text.isascii() and text.isdigit()) or not int(text) < min(bound, _INDEX_LIMIT):
        raise _Unranked
    return int(text)


FAILURE_DELAY: Span = 30 * SECOND
"""How long a node may be not ready before it counts as failed; TASReplaceNodeOnPodTermination does not wait for it."""
UNSCHEDULABLE = "UnschedulableOnAssignedNode"
"""Reason for which a pod is failed; `TERMINATED` is the message."""
TERMINATED = "Pod terminated by Kueue NodeController due to node taint"


class NodeFailureResult(Struct, frozen=True):
    """Result of checking one workload on a node: whether the node counts as failed (`unhealthy`), and pods to fail."""

    unhealthy: bool = False
    pods_to_fail: tuple[Pod, ...] = ()
    """Ungated, pending pods that select this node but are not bound; they are to be failed."""


class NodeFailureActions(Struct, frozen=True):
    """The actions for a node: changed workloads, evictions, failed pods."""

    changed: tuple[Workload, ...] = ()
    evicted: Mapping[str, str] = {}
    """Workload → the message of its eviction."""
    pods_to_fail: tuple[Pod, ...] = ()
    reconcile_after: Span = 0
    """Time until the node must be checked again; 0 if no check is due."""


class NodeFailureInputs(Struct, frozen=True):
    """The objects besides the node that a check reads."""

    workloads: Mapping[str, Workload]
    pods: Sequence[Pod]
    flavors: Mapping[str, ResourceFlavor]
    config: KueueConfig


def examine_node(name: str, node: Node | None, inputs: NodeFailureInputs, now: Time) -> NodeFailureActions:
    """Decide what a node's failure or recovery changes for workloads assigned to it; `node` is None if deleted."""
    config = inputs.config
    if not config.enabled("TASFailedNodeReplacement"):
        return NodeFailureActions()
    placed = [w for w in inputs.workloads.values() if _is_unfinished(w) and name in used_nodes(w)]
    if node is None or (not node.ready and node.not_ready_since is None):
        return _affected_workloads(name, placed)
    expired = False
    if not node.ready and node.not_ready_since is not None:
        left = node.not_ready_since + FAILURE_DELAY - now
        expired = left <= 0
        if not expired and not config.enabled("TASReplaceNodeOnPodTermination"):
            return NodeFailureActions(reconcile_after=left)
    assigned = assigned_pods(name, inputs.pods)
    late = [
        inputs.workloads[key] for key in assigned if key in inputs.workloads and _is_unfinished(inputs.workloads[key])
    ]
    affected = {workload.key: workload for workload in (*placed, *late)}
    judged = {key: examine_workload(node, w, inputs, assigned.get(key, ())) for key, w in affected.items()}
    failed = (
        {w.key for w in placed} if expired and config.enabled("TASReplaceNodeDueToNotReadyOverFixedTime") else set()
    )
    bad = [w for key, w in affected.items() if key in failed or judged[key].unhealthy]
    verdict = _affected_workloads(name, bad)
    healed = [w for w in affected.values() if w not in bad and name in w.unhealthy_nodes]
    healed = [replace(w, unhealthy_nodes=tuple(n for n in w.unhealthy_nodes if n != name)) for w in healed]
    to_fail = chain.from_iterable(j.pods_to_fail for key, j in judged.items() if key not in verdict.evicted)
    return NodeFailureActions((*verdict.changed, *healed), verdict.evicted, tuple(to_fail))


def examine_workload(
    node: Node, workload: Workload, inputs: NodeFailureInputs, assigned: Iterable[Pod]
) -> NodeFailureResult:
    """Check one workload on a node; `assigned` are its pods whose node selector names the node."""
    to_fail = tuple(p for p in assigned if not p.node and p.phase is PodPhase.PENDING and not is_gated(p))
    progressing = any(
        pod.node == node.name and not pod.deleted and not pod.done for pod in pods_of(workload, inputs.pods)
    )
    assignments = workload.admission.pod_sets if workload.admission is not None else ()
    if not any(is_assigned_to_node(assignment, node.name) for assignment in assignments):
        return NodeFailureResult(pods_to_fail=to_fail)
    by_pods = inputs.config.enabled("TASReplaceNodeOnPodTermination")
    if not node.ready:
        return NodeFailureResult(not progressing, to_fail) if by_pods else NodeFailureResult(unhealthy=True)
    if not inputs.config.enabled("TASReplaceNodeOnNodeTaints"):
        return NodeFailureResult()
    keeping_away = [taint for taint in node.taints if taint.keeps_pods_away]
    tolerations = _tolerations(node.name, workload, inputs) if keeping_away else []
    if any(not _tolerated(taint, pods) for taint in keeping_away for pods in tolerations):
        return NodeFailureResult(not progressing, to_fail) if by_pods else NodeFailureResult(unhealthy=True)
    lasting = [tuple(t for t in pods if t.seconds is None) for pods in tolerations]
    if any(not _tolerated(taint, pods) for taint in keeping_away for pods in lasting):
        return NodeFailureResult(not progressing, to_fail)
    return NodeFailureResult()


def _is_unfinished(workload: Workload) -> bool:
    return not workload.finished and not workload.is_true("Evicted")


def _affected_workloads(name: str, workloads: Iterable[Workload]) -> NodeFailureActions:
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
        apply_additions(pod_set.template, added).tolerations
        for pod_set, assignment, added in additions_by_pod_set(workload, inputs.flavors, inputs.config)
        if is_assigned_to_node(assignment, name)
    ]


def _tolerated(taint: Taint, tolerations: Iterable[Toleration]) -> bool:
    return any(toleration.tolerates(taint) for toleration in tolerations)

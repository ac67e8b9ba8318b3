"""kube-scheduler's filters that look at one node, and the messages about pods that fit no node.

Messages about single pods are kube-scheduler's, word for word, so that they match `kubectl describe pod`. Messages
about gangs are this program's own.
"""

from collections.abc import Mapping

from gpuconsole.model.cluster import Node
from gpuconsole.model.gpus.mig_reconfiguration import Division
from gpuconsole.model.labels import NodeTerm, Taint, Toleration
from gpuconsole.model.resources import PODS
from gpuconsole.scheduling.devices import gpu_allocation
from gpuconsole.scheduling.kube.pod_classes import NodeState, PodClass, reserved_from

UNSCHEDULABLE = "node(s) were unschedulable"
NO_AFFINITY = "node(s) didn't match Pod's node affinity/selector"
NO_ADDED_AFFINITY = "node(s) didn't match scheduler-enforced node affinity"
TOO_MANY_PODS = "Too many pods"
NO_NODES = "no nodes available to schedule pods"
NO_VICTIMS = "No preemption victims found for incoming pod"
NO_PREEMPTION_HELPS = "Preemption is not helpful for scheduling"
PREEMPTION_NEVER = "preemption: not eligible due to preemptionPolicy=Never."
PREEMPTED = "default-scheduler: preempting to accommodate a higher priority pod"
"""The message of the DisruptionTarget condition that a preempted pod gets."""


def insufficient_reason(resource: str) -> str:
    """The reason of NodeResourcesFit for a node with too little of a resource."""
    return f"Insufficient {resource}"


def untolerated_reason(key: str, value: str) -> str:
    """The reason of TaintToleration for a node with a taint that the pod does not tolerate."""
    return f"node(s) had untolerated taint {{{key}: {value}}}"


def fit_error_message(nodes: int, reasons: Mapping[str, int]) -> str:
    """The FitError message `0/N nodes are available: …`, from the number of nodes by reason, sorted as texts."""
    if not nodes:
        return NO_NODES
    lines = sorted(f"{count} {reason}" for reason, count in reasons.items() if count)
    return f"0/{nodes} nodes are available: {', '.join(lines)}."


def prefilter_message(nodes: int, reason: str) -> str:
    """The FitError message of a pod that a plugin's PreFilter rejects for all nodes."""
    return f"0/{nodes} nodes are available: {reason}."


def preemption_message(nodes: int, unhelpful: int) -> str:
    """The text that PostFilter adds when no node has victims; `unhelpful` counts nodes that preemption cannot help."""
    return "preemption: " + fit_error_message(nodes, {NO_VICTIMS: nodes - unhelpful, NO_PREEMPTION_HELPS: unhelpful})


def gang_pending_message(gang: str, fitting: int, needed: int, reason: str) -> str:
    """The message of a gang of which too few pods fit; `reason` is that of the first pod that does not fit."""
    return f"gang {gang} not scheduled: {fitting} of {needed} pods fit; {reason}"


def gang_incomplete_message(gang: str, pods: int, size: int) -> str:
    """The message of a gang that is not tried because some of the pods that it needs do not exist yet."""
    return f"gang {gang} waits for its pods: {pods} of {size} exist"


def pod_group_missing_message(gang: str) -> str:
    """The message of a gang whose pods name a PodGroup that does not exist."""
    return f"gang {gang} waits for its PodGroup: it does not exist"


def composite_missing_message(gang: str, parent: str) -> str:
    """The message of a gang that is not tried because `parent`, a CompositePodGroup above it, is missing."""
    return f"gang {gang} waits for CompositePodGroup {parent}: it does not exist"


def min_resources_message(gang: str, resources: tuple[str, ...]) -> str:
    """The message of a gang for whose minResources all nodes together have too little free of these resources."""
    return f"gang {gang} not scheduled: the cluster has less {', '.join(resources)} free than its minResources"


def topology_message(gang: str, fitting: int, needed: int, key: str, placements: int) -> str:
    """The message of a gang that fits in no domain of a topology key; `fitting` is the most pods that fit in one."""
    return (
        f"gang {gang} not scheduled: {fitting} of {needed} pods fit in one domain of {key};"
        f" 0/{placements} placements are available"
    )


def composite_pending_message(gang: str, root: str, least: int, groups: int) -> str:
    """The message of a gang whose CompositePodGroup `root` needs `least` child groups to fit at once, and fewer do."""
    return f"gang {gang} not scheduled: fewer than {least} of the {groups} groups of CompositePodGroup {root} fit"


NOT_READY = Taint("node.kubernetes.io/not-ready")
"""The taint that the node lifecycle controller sets on a node that is not ready."""
CORDONED = Taint("node.kubernetes.io/unschedulable")
UNBOUNDED = 1_000_000
"""Slots for a pod that requests nothing on a node that does not limit its number of pods."""
NO_FIELDS: Mapping[str, str] = {}


def node_refusal(node: Node, pod_class: PodClass) -> str:
    """Why the node can never take the pod, whatever runs on it; empty if it can.

    NodeUnschedulable, TaintToleration and NodeAffinity, in that order; the first that fails gives the reason.
    Preemption cannot resolve these (UnschedulableAndUnresolvable).
    """
    refused = cordon_refusal(node, pod_class) or taint_refusal(node, pod_class)
    return refused or ("" if matches_affinity(node, pod_class) else NO_AFFINITY)


def cordon_refusal(node: Node, pod_class: PodClass) -> str:
    """NodeUnschedulable: the reason if the node is cordoned and the pod does not tolerate that; empty otherwise."""
    return UNSCHEDULABLE if node.unschedulable and not is_tolerated(CORDONED, pod_class.tolerations) else ""


def taint_refusal(node: Node, pod_class: PodClass) -> str:
    """TaintToleration: the reason for the first NoSchedule or NoExecute taint that is not tolerated; empty if none."""
    for taint in node.taints if node.ready else (NOT_READY, *node.taints):
        if taint.effect in ("NoSchedule", "NoExecute") and not is_tolerated(taint, pod_class.tolerations):
            return untolerated_reason(taint.key, taint.value)
    return ""


def is_tolerated(taint: Taint, tolerations: tuple[Toleration, ...]) -> bool:
    """True if one of the tolerations covers the taint."""
    return any(toleration.tolerates(taint) for toleration in tolerations)


def matches_affinity(node: Node, pod_class: PodClass) -> bool:
    """NodeAffinity: True if the node has the nodeSelector's labels and, if there is an affinity, matches one term."""
    if any(node.labels.get(key) != value for key, value in pod_class.node_selector.items()):
        return False
    return pod_class.affinity is None or any(matches_term(term, node) for term in pod_class.affinity)


def matches_term(term: NodeTerm, node: Node) -> bool:
    """True if the node matches all expressions over labels and fields; a term without any matches nothing."""
    if not term.expressions and not term.fields:
        return False
    fields = {"metadata.name": node.name} if term.fields else NO_FIELDS
    return all(expression.matches(node.labels) for expression in term.expressions) and all(
        expression.matches(fields) for expression in term.fields
    )


def free_resources(node_state: NodeState, pod_class: PodClass, priority: int) -> dict[str, int]:
    """Free amounts of each resource that NodeResourcesFit checks for the class, less applicable reservations.

    Resources that allocatable does not name count as 0, except `pods`, which is left out: it then has no limit.
    """
    assert node_state.node is not None
    allocatable, used = node_state.node.allocatable, node_state.used
    held = reserved_from(node_state, priority) if node_state.reserved else {}
    left = {name: allocatable.get(name, 0) - used.get(name, 0) - held.get(name, 0) for name in pod_class.fit_requests}
    if PODS in allocatable:
        left[PODS] = allocatable[PODS] - used.get(PODS, 0) - held.get(PODS, 0)
    if node_state.division is not None and node_state.division.dynamic:
        left.update(_free_mig_instances(node_state, node_state.division, pod_class, priority, left))
    return left


def _free_mig_instances(
    node_state: NodeState, division: Division, pod_class: PodClass, priority: int, left: Mapping[str, int]
) -> dict[str, int]:
    """Free MIG instances of the requested profiles on a node that creates them on demand.

    Instances for pods with reservations are created first; while one of those pods does not fit, no other pod does.
    """
    asked = {name: value for name, value in pod_class.fit_requests.items() if division.profile(name)}
    taken = node_state.taken_instances
    for reservation in node_state.reserved if asked else ():
        if reservation.priority >= priority:
            theirs = gpu_allocation.choose_instances(
                division, taken, gpu_allocation.requested_profiles(division, reservation.pod_class.requests)
            )
            if theirs is None:
                return dict.fromkeys(asked, 0)
            taken.update(theirs)
    most = max(0, min((left[name] // value for name, value in asked.items()), default=0))
    pods = gpu_allocation.count_fitting_pods(division, taken, gpu_allocation.requested_profiles(division, asked), most)
    return {name: pods * value for name, value in asked.items()}


def count_fitting(left: Mapping[str, int], pod_class: PodClass) -> int:
    """How many pods of the class fit into the free capacity `left`, as returned by `free_resources`."""
    count = left.get(PODS, UNBOUNDED)
    for name, value in pod_class.fit_requests.items():
        if left[name] < value * count:
            count = left[name] // value
    return max(count, 0)


def shortages(left: Mapping[str, int], pod_class: PodClass) -> tuple[str, ...]:
    """Why one pod does not fit into this free capacity, one reason per resource; empty if it fits."""
    lines = [TOO_MANY_PODS] if left.get(PODS, 1) < 1 else []
    lines += [insufficient_reason(name) for name, value in pod_class.fit_requests.items() if left[name] < value]
    return tuple(lines)

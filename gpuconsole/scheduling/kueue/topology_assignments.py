"""Reads the topology assignment of a workload's pods, and tests whether it is complete (Kueue 0.19
pkg/workload/workload.go).
"""

from collections.abc import Iterator, Sequence

from gpuconsole.model.labels import HOSTNAME
from gpuconsole.model.workloads import PodSetAssignment, Workload

POD_GROUP = "kueue.x-k8s.io/is-group-workload"


def needs_second_pass(workload: Workload) -> bool:
    """True if a workload with quota still needs a delayed topology assignment, or lost a node."""
    if workload.admission is None or workload.finished or workload.is_true("Evicted") or not workload.reserved:
        return False
    ready = bool(workload.checks) and all(check.state == "Ready" for check in workload.checks)
    return (ready and not workload.admitted and places_pending(workload)) or on_failed_node(workload)


def places_pending(workload: Workload) -> bool:
    """True while some pods get their topology assignment only after the admission checks."""
    admission = workload.admission
    return admission is not None and any(a.delayed == "Pending" and not a.topology for a in admission.pod_sets)


def on_failed_node(workload: Workload) -> bool:
    """True if an admitted workload is assigned to a failed node."""
    if not workload.unhealthy_nodes or not workload.admitted or workload.admission is None:
        return False
    return any(lost_pods(workload, assignment) for assignment in workload.admission.pod_sets)


def lost_pods(workload: Workload, assignment: PodSetAssignment) -> bool:
    """True if the assignment uses a failed node."""
    return any(domain.values[-1] in workload.unhealthy_nodes for domain in assignment.topology)


def on_node(assignment: PodSetAssignment, node: str) -> bool:
    """True if the assignment puts pods on a node and its lowest level is nodes."""
    return any(node_of(assignment.levels, domain.values) == node and domain.count for domain in assignment.topology)


def node_of(levels: Sequence[str], values: Sequence[str]) -> str | None:
    """Return the node of a domain if the lowest level is nodes; None otherwise."""
    return values[-1] if levels and levels[-1] == HOSTNAME else None


def used_nodes(workload: Workload) -> Iterator[str]:
    """Yield the nodes in an admitted workload's topology assignment, if its levels include nodes; each once."""
    if workload.admission is None or not workload.admitted:
        return
    seen: dict[str, None] = {}
    for assignment in workload.admission.pod_sets:
        if assignment.levels and assignment.levels[-1] == HOSTNAME:
            seen.update(dict.fromkeys(domain.values[-1] for domain in assignment.topology if domain.count))
    yield from seen


def owned_by_one_pod(workload: Workload) -> bool:
    """True if the workload represents a single pod, not a pod group: its pod cannot be replaced on another node."""
    return workload.owner.startswith("Pod/") and workload.annotations.get(POD_GROUP) != "true"

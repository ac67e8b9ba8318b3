"""Node matching by labels, taints and conditions, as in kube-scheduler."""

from gpuconsole.model.cluster import Node
from gpuconsole.model.labels import Taint
from gpuconsole.scheduling.kai.api.tasks import Spec

_PRESSURES = ("MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable")


def node_matches(spec: Spec, node: Node) -> bool:
    """True if the node has every label of the selector and, where there is an affinity, matches one of its terms."""
    if any(node.labels.get(key) != value for key, value in spec.node_selector.items()):
        return False
    return spec.affinity is None or any(term.matches(node.labels, node.name) for term in spec.affinity)


def untolerated(spec: Spec, node: Node) -> Taint | None:
    """The first NoSchedule or NoExecute taint that the pod does not tolerate; None if there is none."""
    for taint in node.taints:
        if taint.effect in ("NoSchedule", "NoExecute") and not any(t.tolerates(taint) for t in spec.tolerations):
            return taint
    return None


def ready(node: Node) -> bool:
    """True if the node is ready, not cordoned, and has no pressure or network condition."""
    return node.ready and not node.unschedulable and not (node.conditions and conditions(node))


def conditions(node: Node) -> tuple[str, ...]:
    """Why the node is not ready for any pod; empty if it is ready."""
    reasons = []
    if node.unschedulable:
        reasons.append("node is unschedulable")
    if not node.ready:
        reasons.append("node has NotReady condition")
    reasons += [f"node has {name} condition" for name in _PRESSURES if node.conditions.get(name)]
    return tuple(reasons)

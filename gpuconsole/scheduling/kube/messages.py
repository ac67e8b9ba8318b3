"""Messages of kube-scheduler, word for word, so that they match the output of `kubectl describe pod`."""

from collections.abc import Mapping

UNSCHEDULABLE = "node(s) were unschedulable"
NO_AFFINITY = "node(s) didn't match Pod's node affinity/selector"
NO_ADDED_AFFINITY = "node(s) didn't match scheduler-enforced node affinity"
TOO_MANY_PODS = "Too many pods"
NO_NODES = "no nodes available to schedule pods"
NO_VICTIMS = "No preemption victims found for incoming pod"
NOT_HELPFUL = "Preemption is not helpful for scheduling"
NEVER = "preemption: not eligible due to preemptionPolicy=Never."
PREEMPTED = "default-scheduler: preempting to accommodate a higher priority pod"
"""The message of a victim's DisruptionTarget condition."""


def insufficient(resource: str) -> str:
    """NodeResourcesFit: the node has too little of a resource."""
    return f"Insufficient {resource}"


def untolerated(key: str, value: str) -> str:
    """TaintToleration: the first taint that the pod does not tolerate."""
    return f"node(s) had untolerated taint {{{key}: {value}}}"


def unavailable(nodes: int, reasons: Mapping[str, int]) -> str:
    """FitError: `0/N nodes are available: …`, with the reasons sorted as texts, their counts in front."""
    if not nodes:
        return NO_NODES
    lines = sorted(f"{count} {reason}" for reason, count in reasons.items() if count)
    return f"0/{nodes} nodes are available: {', '.join(lines)}."


def nowhere(nodes: int, reason: str) -> str:
    """FitError where a plugin's PreFilter rejects the pod."""
    return f"0/{nodes} nodes are available: {reason}."


def preemption(nodes: int, unhelpful: int) -> str:
    """What PostFilter adds when no node has victims; on `unhelpful` of the nodes preemption cannot help."""
    return "preemption: " + unavailable(nodes, {NO_VICTIMS: nodes - unhelpful, NOT_HELPFUL: unhelpful})


def gang_waits(gang: str, fitting: int, needed: int, reason: str) -> str:
    """Why a gang is not scheduled: how many of the needed pods fit, and why the next one does not."""
    return f"gang {gang} not scheduled: {fitting} of {needed} pods fit; {reason}"


def gang_incomplete(gang: str, pods: int, size: int) -> str:
    """The gang is not tried because some of the pods that it needs do not exist yet."""
    return f"gang {gang} waits for its pods: {pods} of {size} exist"


def group_missing(gang: str) -> str:
    """The gang's pods name a PodGroup that does not exist."""
    return f"gang {gang} waits for its PodGroup: it does not exist"


def composite_missing(gang: str, parent: str) -> str:
    """A PodGroup, or a composite group above it, names a CompositePodGroup that does not exist."""
    return f"gang {gang} waits for CompositePodGroup {parent}: it does not exist"


def group_short(gang: str, resources: tuple[str, ...]) -> str:
    """A PodGroup's minResources are not free on all nodes together."""
    return f"gang {gang} not scheduled: the cluster has less {', '.join(resources)} free than its minResources"


def placement_waits(gang: str, fitting: int, needed: int, key: str, placements: int) -> str:
    """No domain of a topology key takes as many pods of a gang as it needs; `placements` were tried."""
    return (
        f"gang {gang} not scheduled: {fitting} of {needed} pods fit in one domain of {key};"
        f" 0/{placements} placements are available"
    )


def composite_waits(gang: str, root: str, least: int, groups: int) -> str:
    """Too few child groups of a CompositePodGroup fit at once."""
    return f"gang {gang} not scheduled: fewer than {least} of the {groups} groups of CompositePodGroup {root} fit"

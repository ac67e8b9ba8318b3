"""PodGroups of the Coscheduling plugin (scheduling.x-k8s.io), which pods name by a label, and of scheduling.k8s.io."""

from gpuconsole.model.cluster import Pod
from gpuconsole.model.volcano import PodGroup
from gpuconsole.scheduling.kube import messages
from gpuconsole.scheduling.kube.board import Board
from gpuconsole.scheduling.kube.units import Gang

POD_GROUP_LABELS = ("scheduling.x-k8s.io/pod-group", "pod-group.scheduling.sigs.k8s.io")
"""How pods name their PodGroup of the Coscheduling plugin; the second is what older releases read."""


def gang_of(pod: Pod) -> str:
    """`namespace/gang`, which is also the key of its PodGroup."""
    return group_of(pod) or (f"{pod.namespace}/{pod.gang}" if pod.gang else "")


def group_of(pod: Pod) -> str:
    """The key of the PodGroup that the pod names itself; empty if none."""
    labels = pod.labels
    name = next((labels[label] for label in POD_GROUP_LABELS if labels.get(label)), "") if labels else ""
    name = name or pod.template.scheduling_group
    return f"{pod.namespace}/{name}" if name else ""


def obstacle(gang: Gang, group: PodGroup | None, board: Board) -> str:
    """Why a gang is not tried at all, as things are; empty if it is (the plugin's PreFilter and Permit).

    Only gangs whose pods name their group are looked at. Nothing waits half placed, so there is nothing that
    scheduleTimeoutSeconds could end.
    """
    if not any(one.who is not None and group_of(one.who) == gang.name for one in gang.waiters.values()):
        return ""
    if group is None:
        return messages.group_missing(gang.name)
    short = board.lacking(group.min_resources) if group.min_resources and not gang.seated else ()
    return messages.group_short(gang.name, short) if short else ""

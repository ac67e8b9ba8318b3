"""PodGroups of the Coscheduling plugin (scheduling.x-k8s.io), referenced by a pod label, and of scheduling.k8s.io."""

from collections.abc import Mapping

from gpuconsole.model.cluster import CompositePodGroup, Pod
from gpuconsole.model.volcano import PodGroup
from gpuconsole.scheduling.kube import messages
from gpuconsole.scheduling.kube.node_cache import NodeCache
from gpuconsole.scheduling.kube.pending import PodGang
from gpuconsole.scheduling.kube.placements import GroupTree

POD_GROUP_LABELS = ("scheduling.x-k8s.io/pod-group", "pod-group.scheduling.sigs.k8s.io")
"""Labels that name a pod's PodGroup of the Coscheduling plugin; its older releases read the second."""


def gang_of(pod: Pod) -> str:
    """`namespace/gang` of a pod, which is also the key of its PodGroup; empty without a gang."""
    return group_of(pod) or (f"{pod.namespace}/{pod.gang}" if pod.gang else "")


def group_of(pod: Pod) -> str:
    """The key of the PodGroup that the pod names by a label or in its spec; empty if none."""
    labels = pod.labels
    name = next((labels[label] for label in POD_GROUP_LABELS if labels.get(label)), "") if labels else ""
    name = name or pod.template.scheduling_group
    return f"{pod.namespace}/{name}" if name else ""


def obstacle(
    gang: PodGang, group: PodGroup | None, composites: Mapping[str, CompositePodGroup], board: NodeCache
) -> str:
    """Why a gang is not tried now; empty if it is (the plugin's PreFilter and Permit).

    Checks only gangs whose pods name their group. scheduleTimeoutSeconds has no effect, as gangs never wait partially
    scheduled.
    """
    if not any(one.who is not None and group_of(one.who) == gang.name for one in gang.waiters.values()):
        return ""
    if group is None:
        return messages.group_missing(gang.name)
    if parent := missing_parent(group, composites):
        return messages.composite_missing(gang.name, parent)
    short = board.lacking(group.min_resources) if group.min_resources and not gang.seated else ()
    return messages.group_short(gang.name, short) if short else ""


def missing_parent(group: PodGroup | None, composites: Mapping[str, CompositePodGroup]) -> str:
    """Name of the first missing CompositePodGroup above a PodGroup; empty if all exist."""
    seen: set[str] = set()
    above: PodGroup | CompositePodGroup | None = group
    while above is not None and (name := above.parent_group) and name not in seen:
        seen.add(name)
        above = composites.get(f"{above.namespace}/{name}")
        if above is None:
            return name
    return ""


def tree_of(
    gang: PodGang,
    groups: Mapping[str, PodGroup],
    composites: Mapping[str, CompositePodGroup],
    gangs: Mapping[str, PodGang],
) -> GroupTree:
    """The hierarchy of groups that contains a gang, from its root; the gang's own PodGroup if it has no parent."""
    group = groups.get(gang.name)
    if group is None or not group.parent_group:
        return GroupTree(name=gang.name, topology_key=group.topology_key if group is not None else "", gang=gang)
    root = composites[f"{group.namespace}/{group.parent_group}"]
    seen = {root.key}
    while root.parent_group and (above := f"{root.namespace}/{root.parent_group}") not in seen:
        seen.add(above)
        root = composites[above]
    return _tree(root, groups, composites, gangs)


def _tree(
    root: CompositePodGroup,
    groups: Mapping[str, PodGroup],
    composites: Mapping[str, CompositePodGroup],
    gangs: Mapping[str, PodGang],
    above: frozenset[str] = frozenset(),
) -> GroupTree:
    place = (root.namespace, root.name)
    within = above | {root.key}
    inner = [one for key, one in sorted(composites.items()) if key not in within]
    children = [
        _tree(one, groups, composites, gangs, within) for one in inner if (one.namespace, one.parent_group) == place
    ]
    children += [
        GroupTree(name=key, topology_key=one.topology_key, gang=gangs.get(key))
        for key, one in sorted(groups.items())
        if (one.namespace, one.parent_group) == place
    ]
    return GroupTree(name=root.key, topology_key=root.topology_key, children=tuple(children), least=root.min_groups)

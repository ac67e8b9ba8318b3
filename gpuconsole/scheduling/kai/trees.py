"""Sub-group tree of a pod group in a session (KAI 0.13 subgroup_info FromPodGroup)."""

from gpuconsole.model.kai import KaiPodGroup, KaiSubGroup, KaiTopology
from gpuconsole.scheduling.kai.api.jobs import one_pod_set
from gpuconsole.scheduling.kai.api.pod_sets import PodSetInfo, SubGroup, TopologyConstraint


class BadTree(ValueError):
    """The sub-groups do not form a tree."""


def root_of(group: KaiPodGroup) -> SubGroup:
    """The tree with its pod sets; without sub-groups one pod set with the group's minimum.

    If the sub-groups do not form a tree, one pod set with a minimum of 1.
    """
    try:
        root = tree_of(group)
    except BadTree:
        return one_pod_set(1)
    if not root.all_pod_sets():
        root.add(PodSetInfo("default", max(group.min_member, 1)))
    return root


def tree_of(group: KaiPodGroup) -> SubGroup:
    """The sub-groups as a tree: those that others name as parent hold groups, the others pods. Raises BadTree."""
    constraint = group.constraint if group.constraint is not None and group.constraint.topology else None
    root = SubGroup("", constraint_of(constraint))
    inner = {found.parent.lower() for found in group.sub_groups if found.parent}
    made: dict[str, SubGroup | PodSetInfo] = {}
    for found in group.sub_groups:
        if found.name in made:
            raise BadTree(f"subgroup <{found.name}> already exists")
        made[found.name] = _made(found, found.name in inner)
    for found in sorted(group.sub_groups, key=lambda found: found.name not in inner):
        _parent(found, root, made).add(made[found.name])
    return root


def _made(found: KaiSubGroup, inner: bool) -> SubGroup | PodSetInfo:
    constraint = constraint_of(found.constraint)
    return SubGroup(found.name, constraint) if inner else PodSetInfo(found.name, max(found.min_member, 1), constraint)


def _parent(found: KaiSubGroup, root: SubGroup, made: dict[str, SubGroup | PodSetInfo]) -> SubGroup:
    """The parent of a sub-group, which KAI looks up in lower case. Raises BadTree."""
    name = found.parent.lower()
    parent = made.get(name) if name else root
    if not isinstance(parent, SubGroup):
        raise BadTree(f"parent subgroup <{name}> of <{found.name}> not found")
    return parent


def constraint_of(said: KaiTopology | None) -> TopologyConstraint | None:
    """KAI's topology constraint for one in the PodGroup; None without one."""
    if said is None:
        return None
    return TopologyConstraint(topology=said.topology, required=said.required, preferred=said.preferred)

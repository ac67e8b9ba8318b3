"""Pod groups: PodGroups and CompositePodGroups of gangs, their placement in topology domains, and deadlocks.

PodGroups are those of the Coscheduling plugin (scheduling.x-k8s.io), which pods name by a label, and of
scheduling.k8s.io, which pods name in their spec. A group with a topology key has one placement, a set of nodes, for
each domain of the key; they are tried one by one (KEP-5732). The rules are those of kube-scheduler's
podGroupSchedulingPlacementAlgorithm with its plugins TopologyPlacement, PodGroupPodsCount and NodeResourcesFit. It
chooses at random among equal scores; here the first by name is taken.

`find_deadlock` finds partially scheduled gangs that each hold GPUs and need more than is free.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec import Struct

from gpuconsole.model.clock import Time
from gpuconsole.model.cluster import CompositePodGroup, Pod
from gpuconsole.model.resources import CPU, MEMORY
from gpuconsole.model.volcano import PodGroup
from gpuconsole.scheduling.kube import filters
from gpuconsole.scheduling.kube.node_cache import NodeCache
from gpuconsole.scheduling.kube.placement_plans import Binding, plan_binding
from gpuconsole.scheduling.kube.pod_classes import AssignedPod, NodeState, PodClass
from gpuconsole.scheduling.kube.scheduling_queue import PodGang
from gpuconsole.scheduling.kube.scores import MAX_SCORE, most_allocated
from gpuconsole.scheduling.placement import PartiallyPlacedGang, PlacementDeadlock

Placement = tuple[int, ...]
"""The numbers of the nodes that a group may use, in the order in which they are searched."""


class GroupTree(Struct, frozen=True, kw_only=True):
    """A gang's hierarchy: a PodGroup with its pods, or a CompositePodGroup with its child groups."""

    name: str
    """`namespace/name`"""
    topology_key: str = ""
    """All its pods have to be on nodes that share the value of this label."""
    gang: PodGang | None = None
    """The gang of a PodGroup; None for a composite group, and for a PodGroup without pods."""
    children: tuple["GroupTree", ...] = ()
    min_groups: int = 1
    """How many child groups have to be placed at once (minGroupCount)."""

    @property
    def gangs(self) -> tuple[PodGang, ...]:
        """The gangs of all PodGroups in the hierarchy."""
        own = (self.gang,) if self.gang is not None else ()
        return (*own, *(gang for child in self.children for gang in child.gangs))

    @property
    def is_constrained(self) -> bool:
        """True if placing the group takes more than placing the pods of one PodGroup anywhere."""
        return bool(self.topology_key or self.children)


def plan_group_tree(
    node_cache: NodeCache, tree: GroupTree, now: Time, within: Placement | None = None
) -> list[Binding] | None:
    """Find nodes for as many pods of a group as fit in its best placement; None if none holds its minimum.

    `within` limits the nodes; without a topology key they are the only placement.
    """
    if not tree.topology_key:
        return _place_in_domain(node_cache, tree, now, within)
    found: list[tuple[list[Binding], int]] = []
    start = node_cache.next_start_index
    for domain in candidate_placements(node_cache, tree, within):
        with node_cache.trial():
            steps = _place_in_domain(node_cache, tree, now, domain)
            if steps is not None:
                _assume(node_cache, steps, now)
                found.append((steps, _allocated_score(node_cache, domain)))
        node_cache.next_start_index = start
    return _best_placement(tree, found) if found else None


def candidate_placements(node_cache: NodeCache, tree: GroupTree, within: Placement | None = None) -> list[Placement]:
    """Candidate placements of a group, by value of its topology key; if some of its pods have nodes, only their domain.

    Empty if those pods are in several domains, or on a node without the label.
    """
    nodes: dict[str, list[int]] = defaultdict(list)
    there = {pod for gang in tree.gangs for pod in gang.assigned_gpus}
    taken = set()
    for number in node_cache.order if within is None else within:
        state = node_cache.nodes[number]
        value = state.node.labels.get(tree.topology_key) if state.node is not None else None
        if value is not None:
            nodes[value].append(number)
        if there and not there.isdisjoint(state.pods):
            taken.add(value)
    return [tuple(nodes[value]) for value in sorted(nodes) if not taken or taken == {value}]


def placement_refusal(node_cache: NodeCache, tree: GroupTree, gang: PodGang, now: Time) -> str:
    """The message of a pending gang: how many of its pods fit in the best domain, or that too few child groups fit."""
    if tree.children:
        return filters.composite_pending_message(gang.name, tree.name, tree.min_groups, len(tree.children))
    candidates = candidate_placements(node_cache, tree)
    most = 0
    start = node_cache.next_start_index
    for domain in candidates:
        with node_cache.trial():
            most = max(most, len(_bind_pods(node_cache, gang, now, domain)))
        node_cache.next_start_index = start
    return filters.topology_message(gang.name, most, max(gang.needed, 1), tree.topology_key, len(candidates))


def _place_in_domain(
    node_cache: NodeCache, tree: GroupTree, now: Time, within: Placement | None
) -> list[Binding] | None:
    if not tree.children:
        return _place_gang(node_cache, tree.gang, now, within)
    steps: list[Binding] = []
    placed = 0
    with node_cache.trial():
        for child in tree.children:
            more = plan_group_tree(node_cache, child, now, within)
            if more is not None:
                _assume(node_cache, more, now)
                steps += more
                placed += 1
    return steps if placed >= tree.min_groups else None


def _place_gang(
    node_cache: NodeCache, gang: PodGang | None, now: Time, within: Placement | None
) -> list[Binding] | None:
    if gang is None or not _may_fit(node_cache, gang, within):
        return None
    with node_cache.trial():
        steps = _bind_pods(node_cache, gang, now, within)
    # If all pods of the gang already have nodes, it counts as placed without further steps.
    return steps if len(steps) >= gang.needed and (steps or gang.assigned_gpus) else None


def _may_fit(node_cache: NodeCache, gang: PodGang, within: Placement | None) -> bool:
    """Quick check: False if too few of the gang's pods fit these nodes even when each class is counted alone."""
    fitting_pods = 0
    for pending_pod, count in gang.pending_by_class:
        feasibility = node_cache.feasibility(pending_pod.pod_class, pending_pod.priority)
        slots = feasibility.slots if within is None else sum(feasibility.result(number).slots for number in within)
        fitting_pods += min(count, slots)
    return fitting_pods >= gang.needed


def _bind_pods(node_cache: NodeCache, gang: PodGang, now: Time, within: Placement | None) -> list[Binding]:
    """Place the pods that fit, within the current trial."""
    steps = []
    for pending_pod in gang.pending_by_size:
        found = plan_binding(node_cache, pending_pod, within)
        if found is not None:
            _assume(node_cache, (found,), now)
            steps.append(found)
    return steps


def _assume(node_cache: NodeCache, steps: Sequence[Binding], now: Time) -> None:
    for step in steps:
        pending_pod = step.pod
        node_cache.assign(
            step.number,
            AssignedPod(pending_pod.pod, pending_pod.pod_class, pending_pod.priority, now, obj=pending_pod.obj),
        )
        node_cache.assume_claims(pending_pod.obj, step.number)


def _best_placement(tree: GroupTree, found: Sequence[tuple[list[Binding], int]]) -> list[Binding]:
    """The placement with the highest sum of two scores, the first on ties: pods placed, relative to the most, and
    utilization.
    """
    seated = sum(len(gang.assigned_gpus) for gang in tree.gangs)
    most = max(1, *(seated + len(steps) for steps, _ in found))
    scores = [(seated + len(steps)) * MAX_SCORE // most + allocated for steps, allocated in found]
    return found[scores.index(max(scores))][0]


def _allocated_score(node_cache: NodeCache, domain: Placement) -> int:
    """NodeResourcesFit's score of a placement: MostAllocated over all its nodes."""
    states = [node_cache.nodes[number] for number in domain]
    total = weights = 0
    for name, weight in node_cache.profile.strategy.resources:
        capacity = sum(state.node.allocatable.get(name, 0) for state in states if state.node is not None)
        if capacity:
            total += weight * most_allocated(sum(_requested(state, name) for state in states), capacity)
            weights += weight
    return total // weights if weights else 0


def _requested(state: NodeState, name: str) -> int:
    return state.score_requests[name == MEMORY] if name in (CPU, MEMORY) else state.used.get(name, 0)


POD_GROUP_LABELS = ("scheduling.x-k8s.io/pod-group", "pod-group.scheduling.sigs.k8s.io")
"""Labels that name a pod's PodGroup of the Coscheduling plugin; its older releases read the second."""


def gang_of(pod: Pod) -> str:
    """`namespace/gang` of a pod, which is also the key of its PodGroup; empty without a gang."""
    return pod_group_of(pod) or (f"{pod.namespace}/{pod.gang}" if pod.gang else "")


def pod_group_of(pod: Pod) -> str:
    """The key of the PodGroup that the pod names by a label or in its spec; empty if none."""
    labels = pod.labels
    name = next((labels[label] for label in POD_GROUP_LABELS if labels.get(label)), "") if labels else ""
    name = name or pod.template.scheduling_group
    return f"{pod.namespace}/{name}" if name else ""


def gang_obstacle(
    gang: PodGang, group: PodGroup | None, composites: Mapping[str, CompositePodGroup], node_cache: NodeCache
) -> str:
    """Why a gang is not tried now; empty if it is (the plugin's PreFilter and Permit).

    Checks only gangs whose pods name their group. scheduleTimeoutSeconds has no effect, as gangs never wait partially
    scheduled.
    """
    if not any(one.obj is not None and pod_group_of(one.obj) == gang.name for one in gang.pending_pods.values()):
        return ""
    if group is None:
        return filters.pod_group_missing_message(gang.name)
    if parent := missing_parent(group, composites):
        return filters.composite_missing_message(gang.name, parent)
    short = (
        node_cache.insufficient_resources(group.min_resources) if group.min_resources and not gang.assigned_gpus else ()
    )
    return filters.min_resources_message(gang.name, short) if short else ""


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
    return GroupTree(
        name=root.key, topology_key=root.topology_key, children=tuple(children), min_groups=root.min_groups
    )


CountFitting = Callable[[PodClass, int], int]
"""Function (pod class, priority) → how many such pods would fit now."""


def find_deadlock(partial_gangs: Iterable[PodGang], fitting: CountFitting, free_gpus: int) -> PlacementDeadlock | None:
    """The partially scheduled gangs whose other pods do not fit; None if there are none.

    Call after each pass. With all-or-nothing gangs it happens only if a running gang lost pods that cannot be replaced.
    """
    jobs = tuple(_partially_placed(gang) for gang in partial_gangs if _is_stuck(gang, fitting))
    return PlacementDeadlock(jobs, free_gpus) if jobs else None


def _is_stuck(gang: PodGang, fitting: CountFitting) -> bool:
    if not sum(gang.assigned_gpus.values()) or not gang.needed:
        return False
    kinds = Counter((pending_pod.pod_class, pending_pod.priority) for pending_pod in gang.pending_pods.values())
    fitting_pods = sum(min(count, fitting(pod_class, priority)) for (pod_class, priority), count in kinds.items())
    return fitting_pods < gang.needed


def _partially_placed(gang: PodGang) -> PartiallyPlacedGang:
    missing = sorted((pending_pod.pod_class.gpus for pending_pod in gang.pending_pods.values()), reverse=True)[
        : gang.needed
    ]
    return PartiallyPlacedGang(
        gang=gang.name,
        job=gang.job,
        placed=len(gang.assigned_gpus),
        size=len(gang.assigned_gpus) + gang.needed,
        gpus_held=sum(gang.assigned_gpus.values()),
        gpus_missing=sum(missing),
    )

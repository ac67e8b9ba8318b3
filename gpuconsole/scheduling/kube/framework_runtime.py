"""Plugins of a profile, prepared for one class of pods or for one pod (kube-scheduler framework/runtime).

`NodeLocalPlugins` look at one node at a time; `prepare_node_plugins` prepares them once per pod class for all nodes.
`PodContextPlugins` match pods on any node, or claims of the pod; `prefilter` prepares them for each pod.

They find those pods in a `PodIndex`, by class and node: pods of the same namespace and labels with equal affinity terms
form one class, so that each class is matched once. The index is built when the first pod needs it, and refreshed only
where a node changed.
"""

from collections.abc import Callable, Iterator, Mapping

from msgspec import Struct
from msgspec.structs import replace

from gpuconsole.model.cluster import Node, Pod
from gpuconsole.scheduling.kube.inter_pod_affinity import PodsByNode, has_pod_affinity
from gpuconsole.scheduling.kube.plugins import NODE_FILTERS, NODE_USAGE_SCORES, POD_FILTERS, POD_SCORES
from gpuconsole.scheduling.kube.plugins.framework import (
    NodeFilter,
    NodeRejection,
    PodContext,
    PreFilterRejection,
    PreFilterState,
    PreScoreState,
    UsageScoreFunction,
)
from gpuconsole.scheduling.kube.pod_classes import AssignedPod, NodeState, PodClass
from gpuconsole.scheduling.kube.profile import (
    FIT,
    IMAGES,
    NODE_PORTS,
    NODE_UNSCHEDULABLE,
    TAINT_TOLERATION,
    SchedulerProfile,
)
from gpuconsole.scheduling.kube.scheduling_queue import PendingPod
from gpuconsole.scheduling.kube.scores import (
    Images,
    Packing,
    ScoreWeights,
    pod_demand,
    preferred_weight,
    score_weights,
    untolerated_prefer_no_schedule,
)
from gpuconsole.scheduling.kube.volumes import ClaimsAndVolumes

TAINT_FILTERS = (NODE_UNSCHEDULABLE, TAINT_TOLERATION)
"""Filters that never refuse a node that is ready, not cordoned and without taints."""


class NodeLocalPlugins(Struct, frozen=True):
    """The profile's filters and scores that look at one node at a time, as far as they apply to one pod class."""

    rules: SchedulerProfile
    shape: PodClass
    filters: tuple[tuple[str, NodeFilter], ...]
    filters_without_taints: tuple[tuple[str, NodeFilter], ...]
    """The filters without `TAINT_FILTERS`: enough for a node that is ready, not cordoned and has no taints."""
    scores: tuple[tuple[str, int, UsageScoreFunction], ...]
    """(plugin, weight, score function) of the scores that are not normalised."""
    score: Callable[[NodeState], int]
    """Weighted sum of `scores` for a node."""
    weights: ScoreWeights
    scores_by_amounts: bool
    """True if `scores` depend only on the node's allocatable and requested amounts."""

    def refusal(self, node: Node) -> str:
        """Why the node can never take such a pod, by the first filter that refuses it; empty if none does."""
        has_taints = node.taints or node.unschedulable or not node.ready
        for _, refuse in self.filters if has_taints else self.filters_without_taints:
            text = refuse(node)
            if text:
                return text
        return ""

    def raw_score(self, node: Node) -> tuple[int, int]:
        """(weight of matching preferred terms, number of untolerated PreferNoSchedule taints), not normalised."""
        preferred = self.shape.preferred or self.rules.added_preferred
        weight = preferred_weight(node, self.shape, self.rules.added_preferred) if preferred else 0
        return weight, untolerated_prefer_no_schedule(node, self.shape) if node.taints else 0


def prepare_node_plugins(
    profile: SchedulerProfile, pod_class: PodClass, images: Images, packing: Packing | None
) -> NodeLocalPlugins:
    """The profile's plugins for this class; a packing policy replaces NodeResourcesFit's score."""
    asked = ((name, NODE_FILTERS[name](profile, pod_class)) for name in profile.filters if name in NODE_FILTERS)
    filters = tuple((name, refuse) for name, refuse in asked if refuse is not None)
    scores = tuple(_usage_scores(profile, pod_class, images, packing))
    return NodeLocalPlugins(
        rules=profile,
        shape=pod_class,
        filters=filters,
        filters_without_taints=tuple(one for one in filters if one[0] not in TAINT_FILTERS),
        scores=scores,
        score=_weighted_sum(scores),
        weights=score_weights(profile),
        scores_by_amounts=packing is None and all(name != IMAGES for name, _, _ in scores),
    )


def _usage_scores(
    profile: SchedulerProfile, pod_class: PodClass, images: Images, packing: Packing | None
) -> list[tuple[str, int, UsageScoreFunction]]:
    found = []
    for name, weight in profile.scores:
        if name not in NODE_USAGE_SCORES:
            continue
        if packing is not None and name == FIT:
            found.append((name, weight, _packing_score(packing, pod_class)))
            continue
        score = NODE_USAGE_SCORES[name](profile, pod_class, images)
        if score is not None:
            found.append((name, weight, score))
    return found


def _packing_score(packing: Packing, pod_class: PodClass) -> UsageScoreFunction:
    wanted = pod_demand(pod_class)
    return lambda state: packing.score(state, wanted)


def _weighted_sum(scores: tuple[tuple[str, int, UsageScoreFunction], ...]) -> Callable[[NodeState], int]:
    if len(scores) == 1 and scores[0][1] == 1:
        return scores[0][2]
    return lambda state: sum(weight * score(state) for _, weight, score in scores)


PodGroupKey = tuple[object, ...]


def pod_group_key(pod: Pod) -> PodGroupKey:
    """Key of pods that are equal for affinity and spread; constraints and terms are compared by object identity."""
    template = pod.template
    return (
        pod.namespace,
        tuple(sorted(pod.labels.items())),
        id(template.spread) if template.spread else 0,
        id(template.pod_affinity),
        id(template.pod_anti_affinity),
    )


class PodIndex:
    """Existing pods by class and node; `refresh` reads the nodes in `stale` again. Mutates, but only as a cache."""

    def __init__(self, states: list[NodeState], namespaces: Mapping[str, Mapping[str, str]]) -> None:
        self.namespaces = namespaces
        self.nodes: dict[str, Node] = {}
        self.stale = set(range(len(states)))
        self._states = states
        self._numbers: dict[str, int] = {}
        self._seen: dict[int, Mapping[str, AssignedPod]] = {}
        self._groups: dict[PodGroupKey, tuple[Pod, dict[int, int]]] = {}
        self._with_affinity: dict[PodGroupKey, tuple[Pod, dict[int, int]]] = {}

    def refresh(self) -> "PodIndex":
        """Read the nodes in `stale` again; returns the index itself."""
        for number in self.stale:
            self._refresh_node(number)
        self.stale.clear()
        return self

    def pods_on(self, node: str) -> list[Pod]:
        """The pods of a node."""
        number = self._numbers.get(node)
        assigned_pods = () if number is None else self._states[number].pods.values()
        return [assigned.obj for assigned in assigned_pods if assigned.obj is not None]

    def pod_groups(self) -> Iterator[PodsByNode]:
        """One pod of every class, with the number of such pods by node; nodes without a Node object are left out."""
        return ((pod, self._nodes_with_counts(places)) for pod, places in self._groups.values())

    def pod_groups_with_affinity(self) -> Iterator[PodsByNode]:
        """As `pod_groups`, but only the classes that have affinity terms."""
        return ((pod, self._nodes_with_counts(places)) for pod, places in self._with_affinity.values())

    def _nodes_with_counts(self, places: Mapping[int, int]) -> Iterator[tuple[Node, int]]:
        for number, count in places.items():
            node = self._states[number].node
            if node is not None:
                yield node, count

    def _refresh_node(self, number: int) -> None:
        state = self._states[number]
        self._numbers[state.name] = number
        if state.node is None:
            self.nodes.pop(state.name, None)
        else:
            self.nodes[state.name] = state.node
        before, now = self._seen.get(number, {}), state.pods
        if before is now:
            return
        for key, assigned in before.items():
            if now.get(key) is not assigned:
                self._count(assigned, number, -1)
        for key, assigned in now.items():
            if before.get(key) is not assigned:
                self._count(assigned, number, 1)
        self._seen[number] = now

    def _count(self, assigned: AssignedPod, number: int, by: int) -> None:
        if assigned.obj is None:
            return
        leaving = assigned.terminating or bool(assigned.obj.deleted)
        key = (*pod_group_key(assigned.obj), leaving)
        known = self._groups.get(key)
        if known is None:
            stands_for = replace(assigned.obj, deleted=1) if leaving else assigned.obj
            known = self._groups[key] = (stands_for, {})
            if has_pod_affinity(stands_for):
                self._with_affinity[key] = known
        places = known[1]
        places[number] = places.get(number, 0) + by
        if not places[number]:
            del places[number]
            if not places:
                del self._groups[key]
                self._with_affinity.pop(key, None)


class PodContextPlugins(Struct, frozen=True):
    """The profile's filters and scores that depend on other pods or on claims, prepared for one pod."""

    priority: int = 0
    prefilter_rejection: str = ""
    """Why a plugin's PreFilter rejects the pod for all nodes; the fields below are then empty."""
    filters: tuple[tuple[str, PreFilterState], ...] = ()
    """(plugin, its PreFilter state) of the filters."""
    scores: tuple[tuple[str, int, PreScoreState], ...] = ()
    """(plugin, weight, its PreScore state) of the scores."""

    @property
    def is_empty(self) -> bool:
        """True if no plugin applies to the pod."""
        return not (self.prefilter_rejection or self.filters or self.scores)

    def refusal(self, state: NodeState, *, early: bool = False) -> NodeRejection | None:
        """Why the node is rejected, by the first filter that does so; None if it is not.

        `early` runs only filters that precede NodeResourcesFit.
        """
        for name, filter_state in self.filters:
            if early and name != NODE_PORTS:
                break
            found = run_filter(filter_state, state, self.priority)
            if found is not None:
                return found
        return None

    def refusal_after_preemption(self, state: NodeState, left: NodeState) -> NodeRejection | None:
        """Why the node is rejected once preemption has left only the pods of `left` on it; None if it is not."""
        assert state.node is not None
        removed = [
            assigned.obj for key, assigned in state.pods.items() if key not in left.pods and assigned.obj is not None
        ]
        for _, filter_state in self.filters:
            found = run_filter(filter_state.with_pods_moved(state.node, removed, -1), left, self.priority)
            if found is not None:
                return found
        return None


NO_POD_PLUGINS = PodContextPlugins()


def run_filter(filter_state: PreFilterState, state: NodeState, priority: int) -> NodeRejection | None:
    """Why a filter rejects a node, with or without nominated pods of at least this priority; None if it does not."""
    assert state.node is not None
    to_come = [held.obj for held in state.reserved if held.priority >= priority and held.obj is not None]
    if to_come:
        found = filter_state.with_pods_moved(state.node, to_come, 1).refusal(state.node)
        if found is not None:
            return found
    return filter_state.refusal(state.node)


def prefilter(
    profile: SchedulerProfile, pending_pod: PendingPod, around: PodIndex, claims: ClaimsAndVolumes
) -> PodContextPlugins:
    """Prepare the profile's plugins that depend on other pods or claims for one pod (PreFilter and PreScore)."""
    assert pending_pod.obj is not None
    asker = PodContext(pending_pod.obj, pending_pod.pod_class, claims)
    filters: list[tuple[str, PreFilterState]] = []
    for name in profile.filters:
        found = POD_FILTERS[name](profile, asker, around) if name in POD_FILTERS else None
        if isinstance(found, PreFilterRejection):
            return PodContextPlugins(pending_pod.priority, prefilter_rejection=found.text)
        if found is not None:
            filters.append((name, found))
    scores = (
        (name, weight, POD_SCORES[name](profile, asker, around))
        for name, weight in profile.scores
        if name in POD_SCORES
    )
    return PodContextPlugins(
        pending_pod.priority,
        filters=tuple(filters),
        scores=tuple((name, weight, wish) for name, weight, wish in scores if wish is not None),
    )

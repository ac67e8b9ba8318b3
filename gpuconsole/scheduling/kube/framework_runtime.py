"""Plugins of a profile, prepared for one class of pods or for one pod (kube-scheduler framework/runtime).

`NodeLocalPlugins` look at one node at a time; `lens` prepares them once per pod class for all nodes.
`PodContextPlugins` match pods on any node, or claims of the pod; `prefilter` prepares them for each pod.

They find those pods in a `PodIndex`, by class and node: pods of the same namespace and labels with equal affinity terms
form one class, so that each class is matched once. The index is built when the first pod needs it, and refreshed only
where a node changed.
"""

from collections.abc import Callable, Iterator, Mapping

from msgspec import Struct
from msgspec.structs import replace

from gpuconsole.model.cluster import Node, Pod
from gpuconsole.scheduling.kube.inter_pod_affinity import Group, has_pod_affinity
from gpuconsole.scheduling.kube.plugins import MEETINGS, NODE_FILTERS, NODE_USAGE_SCORES, WISHES
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
from gpuconsole.scheduling.kube.scores import Images, Packing, Weighing, demand, dislikes, preference, weighing
from gpuconsole.scheduling.kube.volumes import ClaimsAndVolumes

MARKS = (NODE_UNSCHEDULABLE, TAINT_TOLERATION)
"""Filters that never refuse a node that is ready, not cordoned and without taints."""


class NodeLocalPlugins(Struct, frozen=True):
    """The profile's filters and scores that look at one node at a time, as far as they apply to one pod class."""

    rules: SchedulerProfile
    shape: PodClass
    filters: tuple[tuple[str, NodeFilter], ...]
    unmarked: tuple[tuple[str, NodeFilter], ...]
    """The filters without `MARKS`: enough for a node that is ready, not cordoned and has no taints."""
    scores: tuple[tuple[str, int, UsageScoreFunction], ...]
    """(plugin, weight, score function) of the scores that are not normalised."""
    score: Callable[[NodeState], int]
    """Weighted sum of `scores` for a node."""
    weights: Weighing
    by_amounts: bool
    """True if `scores` depend only on the node's allocatable and requested amounts."""

    def refusal(self, node: Node) -> str:
        """Why the node can never take such a pod, by the first filter that refuses it; empty if none does."""
        marked = node.taints or node.unschedulable or not node.ready
        for _, refuse in self.filters if marked else self.unmarked:
            text = refuse(node)
            if text:
                return text
        return ""

    def raw_score(self, node: Node) -> tuple[int, int]:
        """(weight of matching preferred terms, number of untolerated PreferNoSchedule taints), not normalised."""
        likes = self.shape.preferred or self.rules.added_preferred
        liked = preference(node, self.shape, self.rules.added_preferred) if likes else 0
        return liked, dislikes(node, self.shape) if node.taints else 0


def lens(rules: SchedulerProfile, shape: PodClass, images: Images, packing: Packing | None) -> NodeLocalPlugins:
    """The profile's plugins for this class; a packing policy replaces NodeResourcesFit's score."""
    asked = ((name, NODE_FILTERS[name](rules, shape)) for name in rules.filters if name in NODE_FILTERS)
    filters = tuple((name, refuse) for name, refuse in asked if refuse is not None)
    scores = tuple(_scores(rules, shape, images, packing))
    return NodeLocalPlugins(
        rules=rules,
        shape=shape,
        filters=filters,
        unmarked=tuple(one for one in filters if one[0] not in MARKS),
        scores=scores,
        score=_together(scores),
        weights=weighing(rules),
        by_amounts=packing is None and all(name != IMAGES for name, _, _ in scores),
    )


def _scores(
    rules: SchedulerProfile, shape: PodClass, images: Images, packing: Packing | None
) -> list[tuple[str, int, UsageScoreFunction]]:
    found = []
    for name, weight in rules.scores:
        if name not in NODE_USAGE_SCORES:
            continue
        if packing is not None and name == FIT:
            found.append((name, weight, _packed(packing, shape)))
            continue
        score = NODE_USAGE_SCORES[name](rules, shape, images)
        if score is not None:
            found.append((name, weight, score))
    return found


def _packed(packing: Packing, shape: PodClass) -> UsageScoreFunction:
    wanted = demand(shape)
    return lambda state: packing.score(state, wanted)


def _together(scores: tuple[tuple[str, int, UsageScoreFunction], ...]) -> Callable[[NodeState], int]:
    if len(scores) == 1 and scores[0][1] == 1:
        return scores[0][2]
    return lambda state: sum(weight * score(state) for _, weight, score in scores)


Key = tuple[object, ...]


def kind_of(pod: Pod) -> Key:
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
    """Existing pods by class and node; `renew` reads the nodes in `stale` again. Mutates, but only as a cache."""

    def __init__(self, states: list[NodeState], namespaces: Mapping[str, Mapping[str, str]]) -> None:
        self.namespaces = namespaces
        self.nodes: dict[str, Node] = {}
        self.stale = set(range(len(states)))
        self._states = states
        self._numbers: dict[str, int] = {}
        self._seen: dict[int, Mapping[str, AssignedPod]] = {}
        self._kinds: dict[Key, tuple[Pod, dict[int, int]]] = {}
        self._picky: dict[Key, tuple[Pod, dict[int, int]]] = {}

    def renew(self) -> "PodIndex":
        """Read the nodes in `stale` again; returns the index itself."""
        for number in self.stale:
            self._look(number)
        self.stale.clear()
        return self

    def on(self, node: str) -> list[Pod]:
        """The pods of a node."""
        number = self._numbers.get(node)
        seats = () if number is None else self._states[number].seats.values()
        return [seat.who for seat in seats if seat.who is not None]

    def groups(self) -> Iterator[Group]:
        """One pod of every class, with the number of such pods by node; nodes without a Node object are left out."""
        return ((pod, self._places(places)) for pod, places in self._kinds.values())

    def with_affinity(self) -> Iterator[Group]:
        """As `groups`, but only the classes that have affinity terms."""
        return ((pod, self._places(places)) for pod, places in self._picky.values())

    def _places(self, places: Mapping[int, int]) -> Iterator[tuple[Node, int]]:
        for number, count in places.items():
            node = self._states[number].node
            if node is not None:
                yield node, count

    def _look(self, number: int) -> None:
        state = self._states[number]
        self._numbers[state.name] = number
        if state.node is None:
            self.nodes.pop(state.name, None)
        else:
            self.nodes[state.name] = state.node
        before, now = self._seen.get(number, {}), state.seats
        if before is now:
            return
        for key, seat in before.items():
            if now.get(key) is not seat:
                self._count(seat, number, -1)
        for key, seat in now.items():
            if before.get(key) is not seat:
                self._count(seat, number, 1)
        self._seen[number] = now

    def _count(self, seat: AssignedPod, number: int, by: int) -> None:
        if seat.who is None:
            return
        leaving = seat.leaving or bool(seat.who.deleted)
        key = (*kind_of(seat.who), leaving)
        known = self._kinds.get(key)
        if known is None:
            stands_for = replace(seat.who, deleted=1) if leaving else seat.who
            known = self._kinds[key] = (stands_for, {})
            if has_pod_affinity(stands_for):
                self._picky[key] = known
        places = known[1]
        places[number] = places.get(number, 0) + by
        if not places[number]:
            del places[number]
            if not places:
                del self._kinds[key]
                self._picky.pop(key, None)


class PodContextPlugins(Struct, frozen=True):
    """The profile's filters and scores that depend on other pods or on claims, prepared for one pod."""

    priority: int = 0
    trouble: str = ""
    """Why a plugin's PreFilter rejects the pod for all nodes; the fields below are then empty."""
    concerns: tuple[tuple[str, PreFilterState], ...] = ()
    """(plugin, its PreFilter state) of the filters."""
    wishes: tuple[tuple[str, int, PreScoreState], ...] = ()
    """(plugin, weight, its PreScore state) of the scores."""

    @property
    def silent(self) -> bool:
        """True if no plugin applies to the pod."""
        return not (self.trouble or self.concerns or self.wishes)

    def refusal(self, state: NodeState, *, early: bool = False) -> NodeRejection | None:
        """Why the node is rejected, by the first filter that does so; None if it is not.

        `early` runs only filters that precede NodeResourcesFit.
        """
        for name, concern in self.concerns:
            if early and name != NODE_PORTS:
                break
            found = judge(concern, state, self.priority)
            if found is not None:
                return found
        return None

    def without(self, state: NodeState, left: NodeState) -> NodeRejection | None:
        """Why the node is rejected once preemption has left only the pods of `left` on it; None if it is not."""
        assert state.node is not None
        gone = [seat.who for key, seat in state.seats.items() if key not in left.seats and seat.who is not None]
        for _, concern in self.concerns:
            found = judge(concern.moved(state.node, gone, -1), left, self.priority)
            if found is not None:
                return found
        return None


NOTHING = PodContextPlugins()


def judge(concern: PreFilterState, state: NodeState, priority: int) -> NodeRejection | None:
    """Why a filter rejects a node, with or without nominated pods of at least this priority; None if it does not."""
    assert state.node is not None
    to_come = [held.who for held in state.reserved if held.priority >= priority and held.who is not None]
    if to_come:
        found = concern.moved(state.node, to_come, 1).refusal(state.node)
        if found is not None:
            return found
    return concern.refusal(state.node)


def prefilter(
    rules: SchedulerProfile, waiter: PendingPod, around: PodIndex, means: ClaimsAndVolumes
) -> PodContextPlugins:
    """Prepare the profile's plugins that depend on other pods or claims for one pod (PreFilter and PreScore)."""
    assert waiter.who is not None
    asker = PodContext(waiter.who, waiter.shape, means)
    concerns: list[tuple[str, PreFilterState]] = []
    for name in rules.filters:
        found = MEETINGS[name](rules, asker, around) if name in MEETINGS else None
        if isinstance(found, PreFilterRejection):
            return PodContextPlugins(waiter.priority, trouble=found.text)
        if found is not None:
            concerns.append((name, found))
    wishes = ((name, weight, WISHES[name](rules, asker, around)) for name, weight in rules.scores if name in WISHES)
    return PodContextPlugins(
        waiter.priority,
        concerns=tuple(concerns),
        wishes=tuple((name, weight, wish) for name, weight, wish in wishes if wish is not None),
    )

"""Plugins that look at one node at a time, prepared once per pod class for all nodes."""

from collections.abc import Callable

from msgspec import Struct

from gpuconsole.model.cluster import Node
from gpuconsole.scheduling.kube.bin_packing import Packing, demand
from gpuconsole.scheduling.kube.images import Images
from gpuconsole.scheduling.kube.nodes import NodeState
from gpuconsole.scheduling.kube.plugins import NODE_FILTERS, NODE_USAGE_SCORES
from gpuconsole.scheduling.kube.plugins.roles import NodeFilter, UsageScoreFunction
from gpuconsole.scheduling.kube.pod_classes import PodClass
from gpuconsole.scheduling.kube.profile import FIT, IMAGES, NODE_UNSCHEDULABLE, TAINT_TOLERATION, SchedulerProfile
from gpuconsole.scheduling.kube.scores import Weighing, dislikes, preference, weighing

MARKS = (NODE_UNSCHEDULABLE, TAINT_TOLERATION)
"""Filters that refuse only nodes that have taints, are cordoned or are not ready."""


class NodeLocalPlugins(Struct, frozen=True):
    """Filters and scores by name, in the profile's order, without those that do not apply to the class."""

    rules: SchedulerProfile
    shape: PodClass
    filters: tuple[tuple[str, NodeFilter], ...]
    unmarked: tuple[tuple[str, NodeFilter], ...]
    """Filters that could refuse a node that is ready, not cordoned and has no taints."""
    scores: tuple[tuple[str, int, UsageScoreFunction], ...]
    """(plugin, weight, score) of scores that are not normalised."""
    score: Callable[[NodeState], int]
    """Weighted sum of these scores."""
    weights: Weighing
    by_amounts: bool
    """These scores depend only on the node's allocatable and requested amounts."""

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

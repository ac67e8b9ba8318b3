"""NodeResourcesFit: filters by free resources, and scores utilization by one of three strategies."""

from gpuconsole.scheduling.kube import filters
from gpuconsole.scheduling.kube.images import Images
from gpuconsole.scheduling.kube.nodes import NodeState
from gpuconsole.scheduling.kube.plugins.roles import UsageFilterFunction, UsageScoreFunction
from gpuconsole.scheduling.kube.pod_classes import PodClass
from gpuconsole.scheduling.kube.profile import SchedulerProfile
from gpuconsole.scheduling.kube.scores import allocation, ratio, scored


def resources_fit_filter(rules: SchedulerProfile, shape: PodClass) -> UsageFilterFunction:
    """The filter for pods of a class; its reasons are the resources of which a node has too little."""

    def refuse(state: NodeState, priority: int) -> tuple[str, ...]:
        left = filters.room(state, shape, priority)
        return () if filters.slots(left, shape) else filters.shortages(left, shape)

    return refuse


def resources_fit_score(rules: SchedulerProfile, shape: PodClass, images: Images) -> UsageScoreFunction:
    """The score for pods of a class: LeastAllocated, MostAllocated or RequestedToCapacityRatio."""
    strategy, lines = rules.strategy, scored(rules.strategy.resources, shape)
    if strategy.type == "RequestedToCapacityRatio":
        return ratio(strategy.shape, lines)
    return allocation(strategy.type, lines)

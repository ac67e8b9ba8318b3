"""NodeResourcesFit: filters by free resources, and scores utilization by one of three strategies."""

from gpuconsole.scheduling.kube import filters
from gpuconsole.scheduling.kube.images import Images
from gpuconsole.scheduling.kube.nodes import NodeState
from gpuconsole.scheduling.kube.plugins.roles import UsageFilterFunction, UsageScoreFunction
from gpuconsole.scheduling.kube.pod_classes import PodClass
from gpuconsole.scheduling.kube.profile import SchedulerProfile
from gpuconsole.scheduling.kube.scores import allocation, ratio, scored


def usage_filter(rules: SchedulerProfile, shape: PodClass) -> UsageFilterFunction:
    def refuse(state: NodeState, priority: int) -> tuple[str, ...]:
        left = filters.room(state, shape, priority)
        return () if filters.slots(left, shape) else filters.shortages(left, shape)

    return refuse


def score(rules: SchedulerProfile, shape: PodClass, images: Images) -> UsageScoreFunction:
    """LeastAllocated and MostAllocated (least_allocated.go, most_allocated.go), or RequestedToCapacityRatio."""
    strategy, lines = rules.strategy, scored(rules.strategy.resources, shape)
    if strategy.type == "RequestedToCapacityRatio":
        return ratio(strategy.shape, lines)
    return allocation(strategy.type, lines)

"""NodeResourcesFit: enough of everything is left; scored by how full the node would be, by one of three formulas."""

from gpuconsole.scheduling.kube import filters
from gpuconsole.scheduling.kube.images import Images
from gpuconsole.scheduling.kube.nodes import NodeState
from gpuconsole.scheduling.kube.plugins.roles import BooksFilter, BooksScore
from gpuconsole.scheduling.kube.profile import Profile
from gpuconsole.scheduling.kube.scores import allocation, ratio, scored
from gpuconsole.scheduling.kube.shapes import Shape


def books_filter(rules: Profile, shape: Shape) -> BooksFilter:
    def refuse(state: NodeState, priority: int) -> tuple[str, ...]:
        left = filters.room(state, shape, priority)
        return () if filters.slots(left, shape) else filters.shortages(left, shape)

    return refuse


def score(rules: Profile, shape: Shape, images: Images) -> BooksScore:
    """LeastAllocated and MostAllocated (least_allocated.go, most_allocated.go), or RequestedToCapacityRatio."""
    strategy, lines = rules.strategy, scored(rules.strategy.resources, shape)
    if strategy.type == "RequestedToCapacityRatio":
        return ratio(strategy.shape, lines)
    return allocation(strategy.type, lines)

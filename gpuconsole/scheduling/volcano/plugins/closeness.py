"""Questions about nodes, hyper nodes and the tasks of a gang that several parts ask (scheduler/util helpers)."""

from collections.abc import Collection, Iterable, Mapping, Sequence, Set

from gpuconsole.scheduling.volcano.api.task import TaskInfo


def lowest_domain(
    node: str, real_nodes: Mapping[str, Collection[str]], tiers: Sequence[int], by_tier: Mapping[int, Set[str]]
) -> str:
    """The hyper node of the lowest tier that holds the node; empty if it is in none of that tier.

    FindHyperNodeForNode: only the lowest tier is looked at.
    """
    names = sorted(by_tier.get(tiers[0], ())) if tiers else ()
    return next((name for name in names if node in real_nodes.get(name, ())), "")


def tasks_within(domain: str, tasks: Iterable[TaskInfo], real_nodes: Mapping[str, Collection[str]]) -> int:
    """How many of the tasks are on nodes of the domain (FindJobTaskNumOfHyperNode)."""
    nodes = real_nodes.get(domain, ())
    return sum(task.node_name in nodes for task in tasks if task.node_name)

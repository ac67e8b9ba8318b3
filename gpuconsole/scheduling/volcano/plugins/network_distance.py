"""Location of a gang's tasks in the network topology."""

from collections.abc import Collection, Iterable, Mapping

from gpuconsole.scheduling.volcano.api.task import TaskInfo


def tasks_within(domain: str, tasks: Iterable[TaskInfo], real_nodes: Mapping[str, Collection[str]]) -> int:
    """How many of the tasks are on nodes of the domain (FindJobTaskNumOfHyperNode)."""
    nodes = real_nodes.get(domain, ())
    return sum(task.node_name in nodes for task in tasks if task.node_name)

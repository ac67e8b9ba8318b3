"""Which pods sit on which nodes while a session goes on, as kube-scheduler's filters and scores count them. Mutates.

A pod that waits for resources that are being released counts, one that is to be evicted does not any more.
"""

from collections.abc import Iterable, Mapping

from gpuconsole.model.cluster import Pod
from gpuconsole.scheduling.volcano.api.node import NodeInfo
from gpuconsole.scheduling.volcano.api.task import TaskInfo

NONE: Mapping[str, Pod] = {}


class Placed:
    """Pods by node and key."""

    def __init__(self, nodes: Iterable[NodeInfo]) -> None:
        self._pods = {node.name: {key: task.pod for key, task in node.tasks.items()} for node in nodes}
        self._versions: dict[str, int] = {}

    def on(self, node: str) -> Mapping[str, Pod]:
        """The pods of a node by key."""
        return self._pods.get(node, NONE)

    def version(self, node: str) -> int:
        """A number that grows whenever the pods of a node change."""
        return self._versions.get(node, 0)

    def add(self, task: TaskInfo) -> None:
        """The task got its node."""
        self._pods.setdefault(task.node_name, {})[task.key] = task.pod
        self._versions[task.node_name] = self.version(task.node_name) + 1

    def remove(self, task: TaskInfo) -> None:
        """The task lost its node, or is about to."""
        self._pods.get(task.node_name, {}).pop(task.key, None)
        self._versions[task.node_name] = self.version(task.node_name) + 1

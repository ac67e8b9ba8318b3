"""Pods by node during a session, as kube-scheduler's filters and scores count them. Mutates.

A pipelined pod counts, one that is to be evicted no longer does.
"""

from collections.abc import Container, Iterable, Mapping

from gpuconsole.model.cluster import Pod
from gpuconsole.scheduling.kube.inter_pod_affinity import StaticPodLister, has_pod_affinity
from gpuconsole.scheduling.volcano.api.node import NodeInfo
from gpuconsole.scheduling.volcano.api.task import TaskInfo

NONE: Mapping[str, Pod] = {}


class NodePods:
    """Pods by node and key, with a log of changes."""

    def __init__(self, nodes: Iterable[NodeInfo]) -> None:
        described = list(nodes)
        self.nodes = {node.name: node.node for node in described if node.node is not None}
        """Node by name; nodes without a Node object are left out."""
        self._pods = {node.name: {key: task.pod for key, task in node.tasks.items()} for node in described}
        self._versions: dict[str, int] = {}
        self.log: list[str] = []
        """Every node whose pods changed, in order; one may be there more than once."""
        self.picky = sum(has_pod_affinity(pod) for pods in self._pods.values() for pod in pods.values())
        """How many pods have pod affinity or anti-affinity."""

    def without(self, gone: Container[str] = ()) -> StaticPodLister:
        """The nodes and pods for kube-scheduler's plugins, without the pods with these keys."""
        return StaticPodLister(self.nodes, lambda node: [pod for key, pod in self.on(node).items() if key not in gone])

    def on(self, node: str) -> Mapping[str, Pod]:
        """The pods of a node by key."""
        return self._pods.get(node, NONE)

    def version(self, node: str) -> int:
        """A number that grows whenever the pods of a node change."""
        return self._versions.get(node, 0)

    @property
    def changes(self) -> int:
        """A number that grows whenever the pods of any node change."""
        return len(self.log)

    def add(self, task: TaskInfo) -> None:
        """Count a task that got its node."""
        pods = self._pods.setdefault(task.node_name, {})
        self.picky += has_pod_affinity(task.pod) and task.key not in pods
        pods[task.key] = task.pod
        self._changed(task.node_name)

    def remove(self, task: TaskInfo) -> None:
        """Stop counting a task that lost its node or is being evicted."""
        pod = self._pods.get(task.node_name, {}).pop(task.key, None)
        self.picky -= pod is not None and has_pod_affinity(pod)
        self._changed(task.node_name)

    def _changed(self, node: str) -> None:
        self._versions[node] = self.version(node) + 1
        self.log.append(node)

"""Nodes in a session: idle, used, releasing and pipelined resources, and the pods that filters and scores count.

In `NodePods`, which kube-scheduler's filters and scores read, a pipelined pod counts, and one that is to be evicted no
longer does.
"""

from collections.abc import Container, Iterable, Mapping

from msgspec import Struct

from gpuconsole.model.clock import Time
from gpuconsole.model.cluster import Node, Pod
from gpuconsole.scheduling.kube.inter_pod_affinity import StaticPodLister, has_pod_affinity
from gpuconsole.scheduling.volcano.api.resource import ZERO, Resource
from gpuconsole.scheduling.volcano.api.task import (
    OFFLINE_JOB_EVICTING,
    OVERSUBSCRIPTION,
    OVERSUBSCRIPTION_CPU,
    OVERSUBSCRIPTION_MEMORY,
    REVOCABLE_ZONE,
    TaskInfo,
    TaskStatus,
)
from gpuconsole.scheduling.volcano.config import parse_flag

NO_UTILIZATION: Mapping[str, float] = {}


class NodeUsage(Struct, frozen=True):
    """Measured utilization of a node, in percent by period (`5m`)."""

    measured: Time = 0
    cpu: Mapping[str, float] = NO_UTILIZATION
    memory: Mapping[str, float] = NO_UTILIZATION


NO_USAGE = NodeUsage()


class NodeInfo:
    """A node with its tasks and the resources that they leave (api.NodeInfo). Mutates: its sums follow its tasks.

    It holds copies of tasks, so that a task's status can change before the node is updated.
    """

    __slots__ = (
        "allocatable",
        "capacity",
        "change_count",
        "idle",
        "ignored",
        "name",
        "node",
        "offline_evicting",
        "oversubscribed",
        "pipelined",
        "releasing",
        "revocable_zone",
        "tasks",
        "usage",
        "used",
    )

    def __init__(self, node: Node | None = None, ignored: Iterable[str] = ()) -> None:
        """A node without tasks; with None it is not ready and its sums stay empty."""
        self.ignored = tuple(ignored)
        """Resources that are not counted because a scheduler plugin allocates them."""
        self.node: Node | None = None
        self.change_count = 0
        """Grows whenever a task is added or removed, or the node changes."""
        self.tasks: dict[str, TaskInfo] = {}
        """Copy of a task by `namespace/name`."""
        self.usage = NO_USAGE
        self._apply_node(node)

    def __repr__(self) -> str:
        return f"NodeInfo({self.name})"

    def set_node(self, node: Node | None) -> None:
        """Apply a Node object and recompute all sums; with None the node is not ready."""
        self.change_count += 1
        if node is None:
            self.node = None
            return
        self._apply_node(node)
        for task in self.tasks.values():
            self._add_to_sums(task)

    def add_task(self, task: TaskInfo) -> str:
        """Add a task; returns the reason, with nothing changed, if that is impossible (AddTask).

        Only a task that is being bound is checked for free resources: the session has checked the others.
        """
        if task.node_name and self.name and task.node_name != self.name:
            return f"task <{task.key}> already on different node <{task.node_name}>"
        if task.key in self.tasks:
            return f"task <{task.key}> already on node <{self.name}>"
        if self.node is not None and task.status is TaskStatus.BINDING:
            lacking = task.request.exceeded_names(self.idle, ZERO)
            if lacking:
                return (
                    f"node {self.name} resources [{' '.join(lacking)}] are not enough to put task <{task.key}>, "
                    f"idle: {self.idle}, req: {task.request}"
                )
        copy = task.copy()
        copy.node_name = task.node_name = self.name
        if self.node is not None:
            self._add_to_sums(copy)
        self.tasks[task.key] = copy
        self.change_count += 1
        return ""

    def remove_task(self, task: TaskInfo) -> None:
        """Remove a task, if it is on the node."""
        copy = self.tasks.pop(task.key, None)
        self.change_count += 1
        if copy is None or self.node is None:
            return
        if copy.status is TaskStatus.PIPELINED:
            self.pipelined.sub(copy.request)
            return
        if copy.status is TaskStatus.RELEASING:
            self.releasing.sub(copy.request)
        self.idle.add(copy.request)
        self.used.sub(copy.request)

    def update_task(self, task: TaskInfo) -> None:
        """Apply the changed status of a task to the node's sums."""
        self.remove_task(task)
        self.add_task(task)

    def future_idle(self) -> Resource:
        """Idle and releasing resources, less what is pipelined."""
        return self.idle.copy().add(self.releasing).sub(self.pipelined)

    def without_tasks(self) -> "NodeInfo":
        """A copy without tasks; its allocatable resources are shared and never changed."""
        copied = NodeInfo.__new__(NodeInfo)
        copied.ignored, copied.node, copied.name = self.ignored, self.node, self.name
        copied.revocable_zone, copied.oversubscribed = self.revocable_zone, self.oversubscribed
        copied.offline_evicting = self.offline_evicting
        copied.allocatable, copied.capacity, copied.idle = self.allocatable, self.capacity, self.allocatable.copy()
        copied.used, copied.releasing, copied.pipelined = Resource(), Resource(), Resource()
        copied.change_count, copied.tasks, copied.usage = 0, {}, NO_USAGE
        return copied

    def copy(self) -> "NodeInfo":
        """A copy with copies of its tasks."""
        copied = NodeInfo(self.node, self.ignored)
        for task in self.tasks.values():
            copied.add_task(task)
        copied.usage = self.usage
        return copied

    def _add_to_sums(self, task: TaskInfo) -> None:
        if task.status is TaskStatus.PIPELINED:
            self.pipelined.add(task.request)
            return
        if task.status is TaskStatus.RELEASING:
            self.releasing.add(task.request)
        self.idle.sub(task.request)
        self.used.add(task.request)

    def _apply_node(self, node: Node | None) -> None:
        self.node = node
        self.name = node.name if node is not None else ""
        labels, annotations = (node.labels, node.annotations) if node is not None else ({}, {})
        self.revocable_zone = labels.get(REVOCABLE_ZONE, "")
        self.oversubscribed = parse_flag(labels.get(OVERSUBSCRIPTION, "")) or False
        self.offline_evicting = parse_flag(annotations.get(OFFLINE_JOB_EVICTING, "")) or False
        lent = Resource(
            _parse_number(annotations.get(OVERSUBSCRIPTION_CPU, "")),
            _parse_number(annotations.get(OVERSUBSCRIPTION_MEMORY, "")),
        )
        self.allocatable = (
            Resource.from_amounts(node.allocatable, self.ignored).add(lent) if node is not None else Resource()
        )
        self.capacity = Resource.from_amounts(node.capacity, self.ignored).add(lent) if node is not None else Resource()
        self.idle = self.allocatable.copy()
        self.used, self.releasing, self.pipelined = Resource(), Resource(), Resource()


def _parse_number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0


NO_PODS: Mapping[str, Pod] = {}


class NodePods:
    """The pods on each node, as kube-scheduler's filters and scores see them, with a log of changes."""

    def __init__(self, nodes: Iterable[NodeInfo]) -> None:
        described = list(nodes)
        self.nodes = {node.name: node.node for node in described if node.node is not None}
        """Node by name; nodes without a Node object are left out."""
        self._pods = {node.name: {key: task.pod for key, task in node.tasks.items()} for node in described}
        self._versions: dict[str, int] = {}
        self.changed_nodes: list[str] = []
        """Every node whose pods changed, in order; one may be there more than once."""
        self.pods_with_anti_affinity = sum(
            has_pod_affinity(pod) for pods in self._pods.values() for pod in pods.values()
        )
        """How many pods have pod affinity or anti-affinity."""

    def lister_without(self, removed: Container[str] = ()) -> StaticPodLister:
        """The nodes and pods for kube-scheduler's plugins, without the pods with these keys."""
        return StaticPodLister(
            self.nodes, lambda node: [pod for key, pod in self.pods_on(node).items() if key not in removed]
        )

    def pods_on(self, node: str) -> Mapping[str, Pod]:
        """The pods of a node by key."""
        return self._pods.get(node, NO_PODS)

    def version(self, node: str) -> int:
        """A number that grows whenever the pods of a node change."""
        return self._versions.get(node, 0)

    @property
    def changes(self) -> int:
        """A number that grows whenever the pods of any node change."""
        return len(self.changed_nodes)

    def add(self, task: TaskInfo) -> None:
        """Count a task that got its node."""
        pods = self._pods.setdefault(task.node_name, {})
        self.pods_with_anti_affinity += has_pod_affinity(task.pod) and task.key not in pods
        pods[task.key] = task.pod
        self._record_change(task.node_name)

    def remove(self, task: TaskInfo) -> None:
        """Stop counting a task that lost its node or is being evicted."""
        pod = self._pods.get(task.node_name, {}).pop(task.key, None)
        self.pods_with_anti_affinity -= pod is not None and has_pod_affinity(pod)
        self._record_change(task.node_name)

    def _record_change(self, node: str) -> None:
        self._versions[node] = self.version(node) + 1
        self.changed_nodes.append(node)

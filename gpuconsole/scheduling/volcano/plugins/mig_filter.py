"""MIG filter: checks that requested instances fit beside existing ones on nodes that create MIG instances on demand.

Not a Kubernetes filter: with the node's counts alone, a scheduler would promise instances that exclude each other.
kube-scheduler's rules here apply the same check.
"""

from typing import TYPE_CHECKING

from gpuconsole.model.cluster import Node
from gpuconsole.model.gpus.mig import MigInstance
from gpuconsole.model.gpus.mig_resources import DYNAMIC, Division, division_of
from gpuconsole.model.resources import is_mig
from gpuconsole.scheduling.devices import gpu_allocation as slices
from gpuconsole.scheduling.kube import messages
from gpuconsole.scheduling.kube.pod_classes import PodClass
from gpuconsole.scheduling.volcano.api.fit_errors import PredicateStatus
from gpuconsole.scheduling.volcano.api.task import TaskInfo
from gpuconsole.scheduling.volcano.plugins.node_filters import NodeFilter, Reserves

if TYPE_CHECKING:
    from gpuconsole.scheduling.volcano.session import VolcanoSession


class MigInstances(NodeFilter, Reserves):
    """Rejects nodes without room for a task's MIG instances, and reserves these for tasks that get a node."""

    name = "MigInstances"

    def __init__(self, session: "VolcanoSession") -> None:
        super().__init__(session)
        self._given = session.instances
        self._infos = session.nodes
        divided = {name: node for name, node in session.placed.nodes.items() if DYNAMIC in node.annotations}
        found = {name: division_of(one.allocatable, one.labels, one.annotations) for name, one in divided.items()}
        self._divisions = {name: one for name, one in found.items() if one is not None and one.dynamic}

    def concerns(self, task: TaskInfo) -> bool:
        return bool(self._divisions) and any(map(is_mig, task.pod.template.requests))

    def refuse(self, task: TaskInfo, shape: PodClass, node: Node) -> PredicateStatus | None:
        division = self._divisions.get(node.name)
        if division is None or self._choice(division, task, node.name) is not None:
            return None
        asked = next(name for name in shape.requests if is_mig(name))
        return self.resolvable(messages.insufficient(asked))

    def reserve(self, task: TaskInfo) -> None:
        division = self._divisions.get(task.node_name)
        if division is not None and task.key not in self._given and self.concerns(task):
            found = self._choice(division, task, task.node_name)
            if found:
                self._given[task.key] = found

    def release(self, task: TaskInfo) -> None:
        self._given.pop(task.key, None)

    def _choice(self, division: Division, task: TaskInfo, node: str) -> tuple[MigInstance, ...] | None:
        """The instances that the task would get beside all held ones, including those of terminating pods."""
        others = (one for one in self._infos[node].tasks.values() if one.key != task.key)
        taken = {one for other in others for one in other.pod.slices or self._given.get(other.key, ())}
        return slices.choose_instances(division, taken, slices.wanted(division, task.pod.template.requests))

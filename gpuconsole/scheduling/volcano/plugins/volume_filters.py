"""kube-scheduler's volume filters in Volcano's predicates, and the binding of a pod's claims."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from gpuconsole.model.cluster import Node
from gpuconsole.scheduling.kube import volumes
from gpuconsole.scheduling.kube import volumes as volume_filters
from gpuconsole.scheduling.kube.pod_classes import PodClass
from gpuconsole.scheduling.kube.volumes import VolumeBindingPlan
from gpuconsole.scheduling.volcano.api.fit_errors import PredicateStatus
from gpuconsole.scheduling.volcano.api.task import TaskInfo
from gpuconsole.scheduling.volcano.arguments import VolcanoArguments
from gpuconsole.scheduling.volcano.plugins.node_filters import NodeFilter, Prepares, Reserves, Scores

if TYPE_CHECKING:
    from gpuconsole.scheduling.volcano.session import VolcanoSession

BIND_TIMEOUT = 600
BIND_TIMEOUT_ARGUMENT = "volumebinding.bindTimeoutSeconds"


class VolumeFilter(NodeFilter):
    """A filter for pods with volumes that are claims."""

    far = True

    def __init__(self, session: "VolcanoSession") -> None:
        super().__init__(session)
        self.storage = session.storage
        self.nodes: Mapping[str, Node] = session.placed.nodes

    def concerns(self, task: TaskInfo) -> bool:
        return bool(task.pod.template.volumes)


class NodeVolumeLimits(VolumeFilter, Prepares):
    """kube-scheduler's NodeVolumeLimits filter."""

    name = "NodeVolumeLimits"

    def refuse(self, task: TaskInfo, shape: PodClass, node: Node) -> PredicateStatus | None:
        others = self.placed.on(node.name).values()
        reason = volume_filters.limit_refusal(task.pod, node, others, self.storage)
        return self.resolvable(reason) if reason else None


class VolumeZone(VolumeFilter, Prepares):
    """kube-scheduler's VolumeZone filter."""

    name = "VolumeZone"

    def prepare(self, task: TaskInfo, shape: PodClass) -> str:
        return volume_filters.zone_trouble(task.pod, self.storage)

    def refuse(self, task: TaskInfo, shape: PodClass, node: Node) -> PredicateStatus | None:
        reason = volume_filters.zone_refusal(task.pod, node, self.storage)
        return self.final(reason) if reason else None


class VolumeBindingArguments(Struct, frozen=True):
    """Arguments of the VolumeBinding filter."""

    weight: int = 1
    """Weight of its score, which exists only with StorageCapacityScoring."""
    bind_timeout: int = BIND_TIMEOUT
    """Seconds until a pod whose claims are not bound gives up its node; in the simulation they are bound at once."""
    shape: tuple[tuple[int, int], ...] = ()
    """(utilization in percent, score of 0 to 10) where volumes are scored (StorageCapacityScoring)."""

    @classmethod
    def of(cls, arguments: VolcanoArguments, *, scores: bool = False) -> "VolumeBindingArguments":
        """Read the plugin's arguments; `scores` is the feature gate StorageCapacityScoring."""
        given = arguments.get("volumebinding.shape")
        points = tuple(_point(one) for one in given) if scores and isinstance(given, list) else ()
        return cls(
            arguments.integer("volumebinding.weight", 1),
            arguments.integer(BIND_TIMEOUT_ARGUMENT, BIND_TIMEOUT),
            (points or ((0, 10), (100, 0))) if scores else (),
        )


def _point(said: object) -> tuple[int, int]:
    """A point of the shape; the case of its keys does not matter."""
    known = {str(key).lower(): value for key, value in said.items()} if isinstance(said, Mapping) else {}
    point = VolcanoArguments(known)
    return point.integer("utilization", 0), point.integer("score", 0)


def on_line(points: Sequence[tuple[int, int]], at: int) -> int:
    """Interpolate between (x, y) points at `at`; constant before the first and after the last one."""
    for number, (place, height) in enumerate(points):
        if at <= place:
            if not number:
                return height
            before, low = points[number - 1]
            return low + int((height - low) * (at - before) / (place - before))
    return points[-1][1]


class VolumeBinding(VolumeFilter, Prepares, Reserves, Scores):
    """kube-scheduler's VolumeBinding: bound claims restrict the nodes, and others are bound when the node is chosen."""

    name = "VolumeBinding"

    def __init__(self, session: "VolcanoSession", arguments: VolumeBindingArguments) -> None:
        super().__init__(session)
        self._promised = session.promised
        self.arguments = arguments

    def prepare(self, task: TaskInfo, shape: PodClass) -> str:
        return volumes.trouble(task.pod, self.storage)

    def refuse(self, task: TaskInfo, shape: PodClass, node: Node) -> PredicateStatus | None:
        lacking = volumes.trouble(task.pod, self.storage)
        reasons = (lacking,) if lacking else volumes.plan(task.pod, node, self.storage).reasons
        return self.final(", ".join(reasons)) if reasons else None

    def reserve(self, task: TaskInfo) -> None:
        node = self.nodes.get(task.node_name)
        if node is None or not task.pod.template.volumes or volumes.trouble(task.pod, self.storage):
            return
        plan = volumes.plan(task.pod, node, self.storage)
        if plan.waits:
            self._promised[task.key] = plan
            self.storage.hold(plan)

    def release(self, task: TaskInfo) -> None:
        plan = self._promised.pop(task.key, None)
        if plan is not None:
            self.storage.release(plan)

    def scores(self, task: TaskInfo, nodes: Sequence[Node]) -> dict[str, float]:
        """How full the volumes of the pod's claims would be, by the shape; empty without StorageCapacityScoring.

        Volumes that have to be provisioned do not count, because the capacity of drivers is unknown.
        """
        if not self.arguments.shape or volumes.trouble(task.pod, self.storage):
            return {}
        plans = {node.name: volumes.plan(task.pod, node, self.storage) for node in nodes}
        return {name: float(self.arguments.weight * self._score(plan)) for name, plan in plans.items() if plan.bindings}

    def _score(self, plan: VolumeBindingPlan) -> int:
        asked: Counter[str] = Counter()
        there: Counter[str] = Counter()
        for key, name in plan.bindings:
            volume = self.storage.volumes[name]
            asked[volume.storage_class] += self.storage.claims[key].storage
            there[volume.storage_class] += volume.storage
        points = [(used, score * 10) for used, score in self.arguments.shape]
        filled = [100 if not there[kind] else min(100, asked[kind] * 100 // there[kind]) for kind in there]
        return math.floor(sum(on_line(points, used) for used in filled) / len(filled) + 0.5)

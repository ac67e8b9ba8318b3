"""predicates plugin: kube-scheduler's filters, each of which an argument can disable."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, ClassVar

from gpuconsole.model.cluster import Node
from gpuconsole.scheduling.kube import inter_pod_affinity
from gpuconsole.scheduling.kube.inter_pod_affinity import has_pod_affinity, nearness
from gpuconsole.scheduling.kube.pod_classes import PodClass, PodClasses
from gpuconsole.scheduling.volcano.api.fit_errors import POD_NUMBER_EXCEEDED, FitError, PredicateCode, PredicateStatus
from gpuconsole.scheduling.volcano.api.node import NodeInfo
from gpuconsole.scheduling.volcano.api.task import TaskInfo
from gpuconsole.scheduling.volcano.config import VolcanoArguments
from gpuconsole.scheduling.volcano.plugins.node_filters import (
    DynamicResourcesFilter,
    InterPodAffinity,
    MigInstances,
    NodeAffinity,
    NodeFilter,
    NodePorts,
    NodeUnschedulable,
    NodeVolumeLimits,
    PodTopologySpread,
    Prepares,
    RemovedPods,
    Reserves,
    Scores,
    TaintToleration,
    VolumeBinding,
    VolumeBindingArguments,
    VolumeZone,
)
from gpuconsole.scheduling.volcano.session_plugins import EventHandler, VolcanoPlugin

if TYPE_CHECKING:
    from gpuconsole.scheduling.volcano.session import VolcanoSession

SWITCHES: tuple[tuple[str, Callable[["VolcanoSession"], NodeFilter]], ...] = (
    ("", NodeUnschedulable),
    ("predicate.NodeAffinityEnable", NodeAffinity),
    ("predicate.NodePortsEnable", NodePorts),
    ("predicate.TaintTolerationEnable", TaintToleration),
    ("predicate.PodAffinityEnable", InterPodAffinity),
    ("predicate.NodeVolumeLimitsEnable", NodeVolumeLimits),
    ("predicate.VolumeZoneEnable", VolumeZone),
    ("predicate.PodTopologySpreadEnable", PodTopologySpread),
)
"""The arguments that switch filters off, and the filters in order of evaluation."""
VOLUMES = "predicate.VolumeBindingEnable"


class PredicatesPlugin(VolcanoPlugin):
    """Volcano 1.15 plugins/predicates.

    An unresolvable rejection ends the evaluation of a node; after others, such as too many pods, the next filters are
    still evaluated.
    """

    name: ClassVar[str] = "predicates"

    def __init__(self, arguments: VolcanoArguments) -> None:
        self._arguments = arguments
        self._shapes = PodClasses()
        self._active: tuple[str, int, list[NodeFilter]] | None = None
        self._refused: dict[PodClass, dict[str, PredicateStatus | None]] = {}
        self._by_wish: dict[tuple[object, ...], dict[str, PredicateStatus | None]] = {}
        self._unprepared: dict[str, str] = {}

    def on_session_open(self, session: "VolcanoSession") -> None:
        self._placed = placed = session.placed
        self._refused, self._by_wish = {}, {}
        self.filters = list(self._make(session))
        self.stable = [one for one in self.filters if one.stable]
        self.passing = [one for one in self.filters if not one.stable]
        self.preparing = [one for one in self.filters if isinstance(one, Prepares)]
        self.reserving = [one for one in self.filters if isinstance(one, Reserves)]
        self.scoring = [one for one in self.filters if isinstance(one, Scores)]
        session.functions.pre_predicates[self.name] = self._prepare
        session.functions.predicates[self.name] = self._predicate
        session.functions.alone[self.name] = lambda task: not any(one.far for one in self._concerned(task))
        session.functions.batch_node_order[self.name] = self._scores
        session.functions.handlers.append(EventHandler(self._allocated, self._deallocated))
        session.functions.handlers.append(EventHandler(placed.add, placed.remove))
        self._simulate(session)

    def _make(self, session: "VolcanoSession") -> Iterator[NodeFilter]:
        for switch, make in SWITCHES:
            if not switch or self._arguments.flag(switch, True):
                yield make(session)
        if self._arguments.flag(VOLUMES, True):
            scores = session.gates.get("StorageCapacityScoring", False)
            yield VolumeBinding(session, VolumeBindingArguments.of(self._arguments, scores=scores))
        if session.gates.get("DynamicResourceAllocation", True):
            yield DynamicResourcesFilter(session)
        yield MigInstances(session)

    def _simulate(self, session: "VolcanoSession") -> None:
        """Predicates in preemption trials: only filters that depend on other pods."""
        placed = self._placed
        near = next((one for one in self.filters if isinstance(one, InterPodAffinity)), None)

        def removed(preemptor: TaskInfo, task: TaskInfo, node: NodeInfo) -> None:
            _trial(session, preemptor).gone.add(task.key)

        def added(preemptor: TaskInfo, task: TaskInfo, node: NodeInfo) -> None:
            _trial(session, preemptor).gone.discard(task.key)

        def simulated(task: TaskInfo, node: NodeInfo) -> FitError | None:
            gone = _trial(session, task).gone
            if near is None or node.node is None or not (placed.picky or has_pod_affinity(task.pod)):
                return None
            found = near.judge(
                inter_pod_affinity.refusal(task.pod, node.node, nearness(task.pod, placed.without(gone)))
            )
            return FitError((found,), task.key, node.name) if found else None

        session.functions.simulate_remove[self.name] = removed
        session.functions.simulate_add[self.name] = added
        session.functions.simulate_predicate[self.name] = simulated

    def _prepare(self, task: TaskInfo) -> FitError | None:
        """Why no node is feasible, by the first filter that rejects all nodes."""
        shape = self._shapes.of(task.pod.template)
        for one in self.preparing:
            if isinstance(one, NodeFilter) and one.concerns(task):
                reason = one.prepare(task, shape)
                if reason:
                    text = f"plugin {one.name} pre-predicates failed {reason}"
                    return FitError.saying(PredicateCode.UNRESOLVABLE, text, plugin=one.name)
        return None

    def _predicate(self, task: TaskInfo, node: NodeInfo) -> FitError | None:
        if node.node is None:
            return FitError(
                (PredicateStatus(PredicateCode.ERROR, "node info not found", self.name),), task.key, node.name
            )
        statuses = []
        if node.allocatable.max_tasks <= len(self._placed.on(node.name)):
            statuses.append(PredicateStatus(PredicateCode.UNSCHEDULABLE, POD_NUMBER_EXCEEDED, self.name))
        shape = self._shapes.of(task.pod.template)
        refused = self._refusal(task, node.node, shape)
        if refused is not None:
            statuses.append(refused)
        else:
            statuses += self._crowded(task, shape, node.node)
        return FitError(tuple(statuses), task.key, node.name) if statuses else None

    def _crowded(self, task: TaskInfo, shape: PodClass, node: Node) -> Iterator[PredicateStatus]:
        """Rejections by filters that are not stable; the first unresolvable one ends the evaluation."""
        for one in self._concerned(task):
            status = one.refuse(task, shape, node)
            if status is not None:
                yield status
                if status.code is PredicateCode.UNRESOLVABLE:
                    return

    def _concerned(self, task: TaskInfo) -> list[NodeFilter]:
        """The filters that are not stable and apply to the task, cached until pods are added or removed."""
        known, now = self._active, self._placed.changes
        if known is None or known[:2] != (task.key, now):
            known = self._active = task.key, now, [one for one in self.passing if one.concerns(task)]
        return known[2]

    def _refusal(self, task: TaskInfo, node: Node, shape: PodClass) -> PredicateStatus | None:
        """A stable filter's rejection of a node, cached by class of pods: nodes do not change in a session.

        Classes with the same node selector, affinity and tolerations share the results.
        """
        known = self._refused.get(shape)
        if known is None:
            wish = tuple(sorted(shape.node_selector.items())), shape.affinity, shape.tolerations
            known = self._refused[shape] = self._by_wish.setdefault(wish, {})
        if node.name not in known:
            found = (one.refuse(task, shape, node) for one in self.stable)
            known[node.name] = next((status for status in found if status is not None), None)
        return known[node.name]

    def _scores(self, task: TaskInfo, nodes: list[NodeInfo]) -> dict[str, float]:
        totals: dict[str, float] = {}
        for one in self.scoring:
            if isinstance(one, NodeFilter) and one.concerns(task):
                for name, score in one.scores(task, [info.node for info in nodes if info.node is not None]).items():
                    totals[name] = totals.get(name, 0.0) + score
        return totals

    def _allocated(self, task: TaskInfo) -> None:
        for one in self.reserving:
            one.reserve(task)

    def _deallocated(self, task: TaskInfo) -> None:
        for one in self.reserving:
            one.release(task)


def _trial(session: "VolcanoSession", task: TaskInfo) -> RemovedPods:
    kept = session.cycle_state(task).setdefault(PredicatesPlugin.name, RemovedPods())
    assert isinstance(kept, RemovedPods)
    return kept

"""kube-scheduler's filters in Volcano's predicates, in its order, with its reasons.

`DynamicResourcesFilter` allocates claims with the node of the first pod that uses them; `VolumeBinding` binds a pod's
volume claims when its node is chosen.

`MigInstances` is no filter of Kubernetes: on nodes that create MIG instances on demand, it checks that the requested
instances fit beside existing ones. With the node's counts alone, a scheduler would promise instances that exclude each
other. kube-scheduler's rules here apply the same check.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import ClassVar

from msgspec import Struct, field

from gpuconsole.model.cluster import Node, Pod
from gpuconsole.model.gpus.mig import MigInstance
from gpuconsole.model.gpus.mig_reconfiguration import DYNAMIC, Division, division_of
from gpuconsole.model.labels import NodeTerm
from gpuconsole.model.resources import is_mig
from gpuconsole.scheduling.devices import allocator
from gpuconsole.scheduling.devices.gpu_allocation import choose_instances, requested_profiles
from gpuconsole.scheduling.kube import inter_pod_affinity, volumes
from gpuconsole.scheduling.kube.filters import (
    CORDONED,
    NO_AFFINITY,
    NOT_READY,
    UNSCHEDULABLE,
    insufficient_reason,
    is_tolerated,
    matches_affinity,
    untolerated_reason,
)
from gpuconsole.scheduling.kube.inter_pod_affinity import InterPodAffinityState, affinity_counts, has_pod_affinity
from gpuconsole.scheduling.kube.plugins import pod_topology_spread
from gpuconsole.scheduling.kube.plugins.framework import host_port_conflict, host_ports
from gpuconsole.scheduling.kube.plugins.pod_topology_spread import TopologySpreadState
from gpuconsole.scheduling.kube.pod_classes import PodClass
from gpuconsole.scheduling.kube.volumes import VolumeBindingPlan
from gpuconsole.scheduling.volcano.api.job import PredicateCode, PredicateStatus
from gpuconsole.scheduling.volcano.api.node import NodePods
from gpuconsole.scheduling.volcano.api.task import TaskInfo
from gpuconsole.scheduling.volcano.config import VolcanoArguments
from gpuconsole.scheduling.volcano.session import VolcanoSession

VOLUME_CONFLICT = "pod affinity terms conflict"


class NodeFilter:
    """One of kube-scheduler's filters in one session.

    A cached result for a task holds until a pod is added or removed anywhere.
    """

    name: ClassVar[str]
    depends_on_node_only: ClassVar[bool] = False
    """True if the result depends only on the node and on the pod's node selector, node affinity and tolerations."""
    depends_on_other_nodes: ClassVar[bool] = False
    """True if the result depends on other nodes, or on the individual pod, such as its claims."""

    def __init__(self, session: VolcanoSession) -> None:
        self.node_pods: NodePods = session.node_pods

    def applies_to(self, task: TaskInfo) -> bool:
        """True if the filter applies to the task."""
        return True

    def refusal(self, task: TaskInfo, pod_class: PodClass, node: Node) -> PredicateStatus | None:
        """Why the node is rejected for the task; None if it is not."""
        raise NotImplementedError

    def resolvable_status(self, reason: str) -> PredicateStatus:
        """The status of a rejection that preemption may resolve."""
        return PredicateStatus(PredicateCode.UNSCHEDULABLE, reason, self.name)

    def unresolvable_status(self, reason: str) -> PredicateStatus:
        """The status of a rejection that preemption cannot resolve."""
        return PredicateStatus(PredicateCode.UNRESOLVABLE, reason, self.name)


class PreFilterMixin:
    """A filter that first checks the task itself, independent of nodes (PreFilter)."""

    def prefilter(self, task: TaskInfo, pod_class: PodClass) -> str:
        """Why no node is feasible for the task; empty if some may be."""
        return ""


class ReserveMixin:
    """A filter that reserves something for a task that got a node (Reserve and PreBind)."""

    def reserve(self, task: TaskInfo) -> None:
        """Reserve what the task needs on its node."""
        raise NotImplementedError

    def release(self, task: TaskInfo) -> None:
        """Release what was reserved for the task."""
        raise NotImplementedError


class ScoreMixin:
    """A filter that also scores nodes."""

    def scores(self, task: TaskInfo, nodes: Sequence[Node]) -> dict[str, float]:
        """The weighted score by node; a node may be left out."""
        raise NotImplementedError


class NodeUnschedulable(NodeFilter):
    """kube-scheduler's NodeUnschedulable filter: rejects cordoned nodes."""

    name, depends_on_node_only = "NodeUnschedulable", True

    def refusal(self, task: TaskInfo, pod_class: PodClass, node: Node) -> PredicateStatus | None:
        out = node.unschedulable and not is_tolerated(CORDONED, pod_class.tolerations)
        return self.unresolvable_status(UNSCHEDULABLE) if out else None


class NodeAffinity(NodeFilter, PreFilterMixin):
    """kube-scheduler's NodeAffinity filter, for node selectors too."""

    name, depends_on_node_only = "NodeAffinity", True

    def prefilter(self, task: TaskInfo, pod_class: PodClass) -> str:
        """Why no node is feasible: every term names nodes, and for each term these exclude each other."""
        named = [_nodes_named_by(term) for term in pod_class.affinity or ()]
        return VOLUME_CONFLICT if named and all(names is not None and not names for names in named) else ""

    def refusal(self, task: TaskInfo, pod_class: PodClass, node: Node) -> PredicateStatus | None:
        return None if matches_affinity(node, pod_class) else self.unresolvable_status(NO_AFFINITY)


def _nodes_named_by(term: NodeTerm) -> set[str] | None:
    """The nodes that a term allows by name; None if it names none."""
    found: set[str] | None = None
    for one in term.fields:
        if one.key == "metadata.name" and one.operator == "In":
            found = set(one.values) if found is None else found & set(one.values)
    return found


class TaintToleration(NodeFilter):
    """kube-scheduler's TaintToleration filter; a node that is not ready counts as tainted."""

    name, depends_on_node_only = "TaintToleration", True

    def refusal(self, task: TaskInfo, pod_class: PodClass, node: Node) -> PredicateStatus | None:
        for taint in node.taints if node.ready else (NOT_READY, *node.taints):
            if taint.effect in ("NoSchedule", "NoExecute") and not is_tolerated(taint, pod_class.tolerations):
                return self.unresolvable_status(untolerated_reason(taint.key, taint.value))
        return None


class NodePorts(NodeFilter, PreFilterMixin):
    """kube-scheduler's NodePorts filter, for host ports."""

    name = "NodePorts"

    def applies_to(self, task: TaskInfo) -> bool:
        return bool(host_ports(task.pod.template))

    def refusal(self, task: TaskInfo, pod_class: PodClass, node: Node) -> PredicateStatus | None:
        reason = host_port_conflict(task.pod, self.node_pods.pods_on(node.name).values())
        return self.resolvable_status(reason) if reason else None


class InterPodAffinity(NodeFilter, PreFilterMixin):
    """kube-scheduler's InterPodAffinity filter."""

    name, depends_on_other_nodes = "InterPodAffinity", True

    def __init__(self, session: VolcanoSession) -> None:
        super().__init__(session)
        self._cached: tuple[str, int, InterPodAffinityState] | None = None

    def applies_to(self, task: TaskInfo) -> bool:
        return bool(self.node_pods.pods_with_anti_affinity) or has_pod_affinity(task.pod)

    def prefilter(self, task: TaskInfo, pod_class: PodClass) -> str:
        self._affinity_counts(task.pod)
        return ""

    def refusal(self, task: TaskInfo, pod_class: PodClass, node: Node) -> PredicateStatus | None:
        return self.status_of_reason(inter_pod_affinity.refusal(task.pod, node, self._affinity_counts(task.pod)))

    def status_of_reason(self, reason: str) -> PredicateStatus | None:
        """The status for a rejection reason, unresolvable for unmet affinity; None without a reason."""
        if not reason:
            return None
        return (
            self.unresolvable_status(reason)
            if reason == inter_pod_affinity.AFFINITY
            else self.resolvable_status(reason)
        )

    def _affinity_counts(self, pod: Pod) -> InterPodAffinityState:
        known, now = self._cached, self.node_pods.changes
        if known is None or known[:2] != (pod.key, now):
            known = self._cached = pod.key, now, affinity_counts(pod, self.node_pods.lister_without())
        return known[2]


class PodTopologySpread(NodeFilter, PreFilterMixin):
    """kube-scheduler's PodTopologySpread filter, for constraints with DoNotSchedule."""

    name, depends_on_other_nodes = "PodTopologySpread", True

    def __init__(self, session: VolcanoSession) -> None:
        super().__init__(session)
        self._cached: tuple[str, int, tuple[TopologySpreadState, ...]] | None = None

    def applies_to(self, task: TaskInfo) -> bool:
        return bool(task.pod.template.spread)

    def prefilter(self, task: TaskInfo, pod_class: PodClass) -> str:
        self._constraint_states(task.pod, pod_class)
        return ""

    def refusal(self, task: TaskInfo, pod_class: PodClass, node: Node) -> PredicateStatus | None:
        reason = pod_topology_spread.refusal(node, self._constraint_states(task.pod, pod_class))
        if not reason:
            return None
        return (
            self.unresolvable_status(reason)
            if reason == pod_topology_spread.MISSING_LABEL
            else self.resolvable_status(reason)
        )

    def _constraint_states(self, pod: Pod, pod_class: PodClass) -> tuple[TopologySpreadState, ...]:
        known, now = self._cached, self.node_pods.changes
        if known is None or known[:2] != (pod.key, now):
            known = self._cached = (
                pod.key,
                now,
                pod_topology_spread.hard_constraint_states(pod, pod_class, self.node_pods.lister_without()),
            )
        return known[2]


class RemovedPods(Struct):
    """Keys of the pods that a preemption trial has removed from their nodes. Mutates."""

    removed: set[str] = field(default_factory=set)

    def copy(self) -> "RemovedPods":
        """An independent copy."""
        return RemovedPods(set(self.removed))


FILTER_TIMEOUT = 10
TIMEOUT_ARGUMENT = "dynamicresources.filterTimeoutSeconds"


def filter_timeout(arguments: VolcanoArguments) -> int:
    """Seconds that the search for a node's devices may take (not simulated); a negative value gives the default."""
    given = arguments.integer(TIMEOUT_ARGUMENT, FILTER_TIMEOUT)
    return given if given >= 0 else FILTER_TIMEOUT


class DynamicResourcesFilter(NodeFilter, PreFilterMixin, ReserveMixin):
    """kube-scheduler's DynamicResources filter for DRA claims."""

    name, depends_on_other_nodes = "DynamicResources", True

    def __init__(self, session: VolcanoSession) -> None:
        super().__init__(session)
        self._inventory = session.inventory
        self._allocations = session.claim_allocations
        self._nodes = session.node_pods.nodes

    def applies_to(self, task: TaskInfo) -> bool:
        return bool(task.pod.template.resource_claims)

    def prefilter(self, task: TaskInfo, pod_class: PodClass) -> str:
        return allocator.prefilter_rejection(task.pod, self._inventory)

    def refusal(self, task: TaskInfo, pod_class: PodClass, node: Node) -> PredicateStatus | None:
        lacking = allocator.prefilter_rejection(task.pod, self._inventory)
        if lacking:
            return self.unresolvable_status(lacking)
        found = allocator.allocate_claims(task.pod, node, self._inventory)
        if not found.reason:
            return None
        return (
            PredicateStatus(PredicateCode.ERROR, found.reason, self.name)
            if found.is_error
            else self.unresolvable_status(found.reason)
        )

    def reserve(self, task: TaskInfo) -> None:
        node = self._nodes.get(task.node_name)
        if node is None or not self.applies_to(task) or allocator.prefilter_rejection(task.pod, self._inventory):
            return
        found = allocator.allocate_claims(task.pod, node, self._inventory)
        if not found.reason:
            self._allocations[task.key] = found
            self._inventory.assume(task.key, found.allocations, found.shared)

    def release(self, task: TaskInfo) -> None:
        if self._allocations.pop(task.key, None) is not None:
            self._inventory.forget_assumed(task.key)


class MigInstances(NodeFilter, ReserveMixin):
    """Rejects nodes without room for a task's MIG instances, and reserves these for tasks that get a node."""

    name = "MigInstances"

    def __init__(self, session: VolcanoSession) -> None:
        super().__init__(session)
        self._assigned = session.assigned_instances
        self._infos = session.nodes
        divided = {name: node for name, node in session.node_pods.nodes.items() if DYNAMIC in node.annotations}
        found = {name: division_of(one.allocatable, one.labels, one.annotations) for name, one in divided.items()}
        self._divisions = {name: one for name, one in found.items() if one is not None and one.dynamic}

    def applies_to(self, task: TaskInfo) -> bool:
        return bool(self._divisions) and any(map(is_mig, task.pod.template.requests))

    def refusal(self, task: TaskInfo, pod_class: PodClass, node: Node) -> PredicateStatus | None:
        division = self._divisions.get(node.name)
        if division is None or self._choose_instances(division, task, node.name) is not None:
            return None
        asked = next(name for name in pod_class.requests if is_mig(name))
        return self.resolvable_status(insufficient_reason(asked))

    def reserve(self, task: TaskInfo) -> None:
        division = self._divisions.get(task.node_name)
        if division is not None and task.key not in self._assigned and self.applies_to(task):
            found = self._choose_instances(division, task, task.node_name)
            if found:
                self._assigned[task.key] = found

    def release(self, task: TaskInfo) -> None:
        self._assigned.pop(task.key, None)

    def _choose_instances(self, division: Division, task: TaskInfo, node: str) -> tuple[MigInstance, ...] | None:
        """The instances that the task would get beside all held ones, including those of terminating pods."""
        others = (one for one in self._infos[node].tasks.values() if one.key != task.key)
        taken = {one for other in others for one in other.pod.slices or self._assigned.get(other.key, ())}
        return choose_instances(division, taken, requested_profiles(division, task.pod.template.requests))


BIND_TIMEOUT = 600
BIND_TIMEOUT_ARGUMENT = "volumebinding.bindTimeoutSeconds"


class VolumeFilter(NodeFilter):
    """A filter for pods with volume claims."""

    depends_on_other_nodes = True

    def __init__(self, session: VolcanoSession) -> None:
        super().__init__(session)
        self.storage = session.storage
        self.nodes: Mapping[str, Node] = session.node_pods.nodes

    def applies_to(self, task: TaskInfo) -> bool:
        return bool(task.pod.template.volumes)


class NodeVolumeLimits(VolumeFilter, PreFilterMixin):
    """kube-scheduler's NodeVolumeLimits filter."""

    name = "NodeVolumeLimits"

    def refusal(self, task: TaskInfo, pod_class: PodClass, node: Node) -> PredicateStatus | None:
        others = self.node_pods.pods_on(node.name).values()
        reason = volumes.volume_limit_refusal(task.pod, node, others, self.storage)
        return self.resolvable_status(reason) if reason else None


class VolumeZone(VolumeFilter, PreFilterMixin):
    """kube-scheduler's VolumeZone filter."""

    name = "VolumeZone"

    def prefilter(self, task: TaskInfo, pod_class: PodClass) -> str:
        return volumes.zone_prefilter_rejection(task.pod, self.storage)

    def refusal(self, task: TaskInfo, pod_class: PodClass, node: Node) -> PredicateStatus | None:
        reason = volumes.zone_refusal(task.pod, node, self.storage)
        return self.unresolvable_status(reason) if reason else None


class VolumeBindingArguments(Struct, frozen=True):
    """Arguments of the VolumeBinding filter."""

    weight: int = 1
    """Weight of its score, which exists only with StorageCapacityScoring."""
    bind_timeout: int = BIND_TIMEOUT
    """Seconds until a pod whose claims are not bound gives up its node; in the simulation they are bound at once."""
    shape: tuple[tuple[int, int], ...] = ()
    """(utilization in percent, score of 0 to 10) by which volumes are scored, with StorageCapacityScoring."""

    @classmethod
    def from_arguments(cls, arguments: VolcanoArguments, *, scores: bool = False) -> "VolumeBindingArguments":
        """Read the plugin's arguments; `scores` is the feature gate StorageCapacityScoring."""
        given = arguments.get("volumebinding.shape")
        points = tuple(_shape_point(one) for one in given) if scores and isinstance(given, list) else ()
        return cls(
            arguments.integer("volumebinding.weight", 1),
            arguments.integer(BIND_TIMEOUT_ARGUMENT, BIND_TIMEOUT),
            (points or ((0, 10), (100, 0))) if scores else (),
        )


def _shape_point(document: object) -> tuple[int, int]:
    """A point of the shape; the case of its keys does not matter."""
    known = {str(key).lower(): value for key, value in document.items()} if isinstance(document, Mapping) else {}
    point = VolcanoArguments(known)
    return point.integer("utilization", 0), point.integer("score", 0)


def interpolate(points: Sequence[tuple[int, int]], at: int) -> int:
    """Interpolate between (x, y) points at `at`; constant before the first and after the last one."""
    for number, (place, height) in enumerate(points):
        if at <= place:
            if not number:
                return height
            before, low = points[number - 1]
            return low + int((height - low) * (at - before) / (place - before))
    return points[-1][1]


class VolumeBinding(VolumeFilter, PreFilterMixin, ReserveMixin, ScoreMixin):
    """kube-scheduler's VolumeBinding: bound claims restrict the nodes, and others are bound when the node is chosen."""

    name = "VolumeBinding"

    def __init__(self, session: VolcanoSession, arguments: VolumeBindingArguments) -> None:
        super().__init__(session)
        self._assumed = session.assumed_volumes
        self.arguments = arguments

    def prefilter(self, task: TaskInfo, pod_class: PodClass) -> str:
        return volumes.prefilter_rejection(task.pod, self.storage)

    def refusal(self, task: TaskInfo, pod_class: PodClass, node: Node) -> PredicateStatus | None:
        lacking = volumes.prefilter_rejection(task.pod, self.storage)
        reasons = (lacking,) if lacking else volumes.plan_volumes(task.pod, node, self.storage).reasons
        return self.unresolvable_status(", ".join(reasons)) if reasons else None

    def reserve(self, task: TaskInfo) -> None:
        node = self.nodes.get(task.node_name)
        if node is None or not task.pod.template.volumes or volumes.prefilter_rejection(task.pod, self.storage):
            return
        plan = volumes.plan_volumes(task.pod, node, self.storage)
        if plan.needs_binding:
            self._assumed[task.key] = plan
            self.storage.assume(plan)

    def release(self, task: TaskInfo) -> None:
        plan = self._assumed.pop(task.key, None)
        if plan is not None:
            self.storage.forget_assumed(plan)

    def scores(self, task: TaskInfo, nodes: Sequence[Node]) -> dict[str, float]:
        """How full the volumes of the pod's claims would be, by the shape; empty without StorageCapacityScoring.

        Volumes that have to be provisioned do not count, because the capacity of drivers is unknown.
        """
        if not self.arguments.shape or volumes.prefilter_rejection(task.pod, self.storage):
            return {}
        plans = {node.name: volumes.plan_volumes(task.pod, node, self.storage) for node in nodes}
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
        return math.floor(sum(interpolate(points, used) for used in filled) / len(filled) + 0.5)

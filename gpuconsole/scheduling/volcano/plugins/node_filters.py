"""kube-scheduler's filters in Volcano's predicates, in its order, with its reasons."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from msgspec import Struct, field

from gpuconsole.model.cluster import Node, Pod
from gpuconsole.model.labels import NodeTerm
from gpuconsole.scheduling.kube import inter_pod_affinity, messages
from gpuconsole.scheduling.kube.filters import CORDONED, NOT_READY, affine, tolerated
from gpuconsole.scheduling.kube.inter_pod_affinity import InterPodAffinityState, has_pod_affinity, nearness
from gpuconsole.scheduling.kube.plugins import pod_plugins as ports
from gpuconsole.scheduling.kube.plugins import pod_topology_spread
from gpuconsole.scheduling.kube.plugins.pod_topology_spread import TopologySpreadState
from gpuconsole.scheduling.kube.pod_classes import PodClass
from gpuconsole.scheduling.volcano.api.fit_errors import PredicateCode, PredicateStatus
from gpuconsole.scheduling.volcano.api.task import TaskInfo
from gpuconsole.scheduling.volcano.node_pods import NodePods

if TYPE_CHECKING:
    from gpuconsole.scheduling.volcano.session import VolcanoSession

CONFLICT = "pod affinity terms conflict"


class NodeFilter:
    """One filter in one session. Its cached result for a task holds until a pod is added or removed anywhere."""

    name: ClassVar[str]
    stable: ClassVar[bool] = False
    """True if the result depends only on the node and on the pod's node selector, node affinity and tolerations."""
    far: ClassVar[bool] = False
    """True if the result depends on other nodes, or on the individual pod, such as its claims."""

    def __init__(self, session: "VolcanoSession") -> None:
        self.placed: NodePods = session.placed

    def concerns(self, task: TaskInfo) -> bool:
        """False if the filter does not apply to the task."""
        return True

    def refuse(self, task: TaskInfo, shape: PodClass, node: Node) -> PredicateStatus | None:
        """Why the task does not fit the node; None if it does."""
        raise NotImplementedError

    def resolvable(self, reason: str) -> PredicateStatus:
        """A refusal that preemption may resolve."""
        return PredicateStatus(PredicateCode.UNSCHEDULABLE, reason, self.name)

    def final(self, reason: str) -> PredicateStatus:
        """A refusal that preemption cannot resolve."""
        return PredicateStatus(PredicateCode.UNRESOLVABLE, reason, self.name)


class Prepares:
    """A filter with a check of the task before any node (PreFilter)."""

    def prepare(self, task: TaskInfo, shape: PodClass) -> str:
        """Why no node is feasible; empty if some may be."""
        return ""


class Reserves:
    """A filter that reserves something for a task that got a node (Reserve and PreBind)."""

    def reserve(self, task: TaskInfo) -> None:
        """Reserve what the task needs on its node."""
        raise NotImplementedError

    def release(self, task: TaskInfo) -> None:
        """Release what was reserved for the task."""
        raise NotImplementedError


class Scores:
    """A filter that also scores nodes."""

    def scores(self, task: TaskInfo, nodes: Sequence[Node]) -> dict[str, float]:
        """The weighted score by node; a node may be left out."""
        raise NotImplementedError


class NodeUnschedulable(NodeFilter):
    """kube-scheduler's NodeUnschedulable filter: rejects cordoned nodes."""

    name, stable = "NodeUnschedulable", True

    def refuse(self, task: TaskInfo, shape: PodClass, node: Node) -> PredicateStatus | None:
        out = node.unschedulable and not tolerated(CORDONED, shape.tolerations)
        return self.final(messages.UNSCHEDULABLE) if out else None


class NodeAffinity(NodeFilter, Prepares):
    """kube-scheduler's NodeAffinity filter, for node selectors too."""

    name, stable = "NodeAffinity", True

    def prepare(self, task: TaskInfo, shape: PodClass) -> str:
        """Why no node is feasible: every term names nodes, and for each term these exclude each other."""
        named = [_named(term) for term in shape.affinity or ()]
        return CONFLICT if named and all(names is not None and not names for names in named) else ""

    def refuse(self, task: TaskInfo, shape: PodClass, node: Node) -> PredicateStatus | None:
        return None if affine(node, shape) else self.final(messages.NO_AFFINITY)


def _named(term: NodeTerm) -> set[str] | None:
    """The nodes that a term allows by name; None if it names none."""
    found: set[str] | None = None
    for one in term.fields:
        if one.key == "metadata.name" and one.operator == "In":
            found = set(one.values) if found is None else found & set(one.values)
    return found


class TaintToleration(NodeFilter):
    """kube-scheduler's TaintToleration filter; a node that is not ready counts as tainted."""

    name, stable = "TaintToleration", True

    def refuse(self, task: TaskInfo, shape: PodClass, node: Node) -> PredicateStatus | None:
        for taint in node.taints if node.ready else (NOT_READY, *node.taints):
            if taint.effect in ("NoSchedule", "NoExecute") and not tolerated(taint, shape.tolerations):
                return self.final(messages.untolerated(taint.key, taint.value))
        return None


class NodePorts(NodeFilter, Prepares):
    """kube-scheduler's NodePorts filter, for host ports."""

    name = "NodePorts"

    def concerns(self, task: TaskInfo) -> bool:
        return bool(ports.host_ports(task.pod.template))

    def refuse(self, task: TaskInfo, shape: PodClass, node: Node) -> PredicateStatus | None:
        reason = ports.host_port_conflict(task.pod, self.placed.on(node.name).values())
        return self.resolvable(reason) if reason else None


class InterPodAffinity(NodeFilter, Prepares):
    """kube-scheduler's InterPodAffinity filter."""

    name, far = "InterPodAffinity", True

    def __init__(self, session: "VolcanoSession") -> None:
        super().__init__(session)
        self._found: tuple[str, int, InterPodAffinityState] | None = None

    def concerns(self, task: TaskInfo) -> bool:
        return bool(self.placed.picky) or has_pod_affinity(task.pod)

    def prepare(self, task: TaskInfo, shape: PodClass) -> str:
        self._near(task.pod)
        return ""

    def refuse(self, task: TaskInfo, shape: PodClass, node: Node) -> PredicateStatus | None:
        return self.judge(inter_pod_affinity.refusal(task.pod, node, self._near(task.pod)))

    def judge(self, reason: str) -> PredicateStatus | None:
        """The status for a reason; unmet affinity is unresolvable. None without a reason."""
        if not reason:
            return None
        return self.final(reason) if reason == inter_pod_affinity.AFFINITY else self.resolvable(reason)

    def _near(self, pod: Pod) -> InterPodAffinityState:
        known, now = self._found, self.placed.changes
        if known is None or known[:2] != (pod.key, now):
            known = self._found = pod.key, now, nearness(pod, self.placed.without())
        return known[2]


class PodTopologySpread(NodeFilter, Prepares):
    """kube-scheduler's PodTopologySpread filter, for constraints with DoNotSchedule."""

    name, far = "PodTopologySpread", True

    def __init__(self, session: "VolcanoSession") -> None:
        super().__init__(session)
        self._found: tuple[str, int, tuple[TopologySpreadState, ...]] | None = None

    def concerns(self, task: TaskInfo) -> bool:
        return bool(task.pod.template.spread)

    def prepare(self, task: TaskInfo, shape: PodClass) -> str:
        self._spreads(task.pod, shape)
        return ""

    def refuse(self, task: TaskInfo, shape: PodClass, node: Node) -> PredicateStatus | None:
        reason = pod_topology_spread.refusal(node, self._spreads(task.pod, shape))
        if not reason:
            return None
        return self.final(reason) if reason == pod_topology_spread.MISSING_LABEL else self.resolvable(reason)

    def _spreads(self, pod: Pod, shape: PodClass) -> tuple[TopologySpreadState, ...]:
        known, now = self._found, self.placed.changes
        if known is None or known[:2] != (pod.key, now):
            known = self._found = pod.key, now, pod_topology_spread.hard_spreads(pod, shape, self.placed.without())
        return known[2]


class RemovedPods(Struct):
    """Pods that a preemption trial has removed from their nodes, by key. Mutates."""

    gone: set[str] = field(default_factory=set)

    def clone(self) -> "RemovedPods":
        """An independent copy."""
        return RemovedPods(set(self.gone))

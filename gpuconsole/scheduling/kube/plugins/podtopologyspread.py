"""PodTopologySpread: spreads matching pods over the domains of a topology key."""

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from gpuconsole.model.cluster import Node, Pod
from gpuconsole.model.labels import LabelSelector
from gpuconsole.model.pod_template import SpreadConstraint
from gpuconsole.scheduling.kube import pod_topology_spread
from gpuconsole.scheduling.kube.inter_pod_affinity import PodLister
from gpuconsole.scheduling.kube.plugins.roles import NodeRejection, PodContext
from gpuconsole.scheduling.kube.pod_classes import PodClass
from gpuconsole.scheduling.kube.pod_topology_spread import HARD, SOFT, TopologySpreadState
from gpuconsole.scheduling.kube.profile import SYSTEM_CONSTRAINTS, SchedulerProfile


class Skew(Struct, frozen=True):
    """PreFilter state for one pod: the spread of the pods that its hard constraints select."""

    pod: Pod
    shape: PodClass
    spreads: tuple[TopologySpreadState, ...]

    def refusal(self, node: Node) -> NodeRejection | None:
        text = pod_topology_spread.refusal(node, self.spreads)
        return NodeRejection((text,), final=text == pod_topology_spread.MISSING_LABEL) if text else None

    def moved(self, node: Node, pods: Iterable[Pod], by: int) -> "Skew":
        if any(one.constraint.topology_key not in node.labels for one in self.spreads):
            return self
        others = list(pods)
        spreads = tuple(pod_topology_spread.moved(one, self.pod, self.shape, node, others, by) for one in self.spreads)
        return replace(self, spreads=spreads)


class Evenness(Struct, frozen=True):
    """PreScore state for one pod: its soft constraints, and existing pods."""

    asker: PodContext
    constraints: tuple[SpreadConstraint, ...]
    around: PodLister
    complete: bool

    def raw(self, nodes: Sequence[Node]) -> Mapping[str, int]:
        pod, shape = self.asker.pod, self.asker.shape
        return pod_topology_spread.raw_scores(pod, shape, nodes, self.around, self.constraints, complete=self.complete)

    def normalised(self, nodes: Sequence[Node], raw: Mapping[str, int]) -> Mapping[str, int]:
        return pod_topology_spread.normalised(nodes, raw)


def topology_spread_filter(rules: SchedulerProfile, asker: PodContext, around: PodLister) -> Skew | None:
    """The filter for a pod; None for a pod without hard constraints."""
    constraints = constraints_of(rules, asker.pod)
    if not any(one.when_unsatisfiable == HARD for one in constraints):
        return None
    return Skew(asker.pod, asker.shape, pod_topology_spread.hard_spreads(asker.pod, asker.shape, around, constraints))


def topology_spread_score(rules: SchedulerProfile, asker: PodContext, around: PodLister) -> Evenness | None:
    """The score for a pod; None for a pod without soft constraints."""
    constraints = tuple(one for one in constraints_of(rules, asker.pod) if one.when_unsatisfiable == SOFT)
    # kube-scheduler's own default constraints also score nodes that lack a label, such as the zone.
    complete = bool(asker.pod.template.spread) or rules.spread is not None
    return Evenness(asker, constraints, around, complete) if constraints else None


def constraints_of(rules: SchedulerProfile, pod: Pod) -> tuple[SpreadConstraint, ...]:
    """The pod's own constraints, else the profile's defaults for pods that a workload controller owns."""
    if pod.template.spread:
        return pod.template.spread
    defaults = SYSTEM_CONSTRAINTS if rules.spread is None else rules.spread
    like = siblings(pod) if defaults else None
    return () if like is None else tuple(replace(one, selector=like) for one in defaults)


def siblings(pod: Pod) -> LabelSelector | None:
    """Selector of the pods of the same Deployment, StatefulSet or similar controller; None for other pods.

    kube-scheduler uses the selectors of Services and of the owner; pods of jobs have neither (DefaultSelector).
    """
    kind = pod.job.partition("/")[0]
    if kind not in ("Deployment", "ReplicaSet", "StatefulSet", "ReplicationController") or not pod.template.labels:
        return None
    return LabelSelector(dict(pod.template.labels))

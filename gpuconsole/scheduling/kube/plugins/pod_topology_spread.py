"""PodTopologySpread: spreads matching pods over the domains of a topology key (kube-scheduler's plugin).

Hard constraints (DoNotSchedule) filter nodes, soft ones (ScheduleAnyway) score them. Volcano uses them as well.
"""

import math
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from gpuconsole.model.cluster import Node, Pod
from gpuconsole.model.labels import HOSTNAME, LabelSelector
from gpuconsole.model.pod_template import SpreadConstraint
from gpuconsole.scheduling.kube.filters import affine, tolerated
from gpuconsole.scheduling.kube.inter_pod_affinity import PodLister
from gpuconsole.scheduling.kube.plugins.framework import NodeRejection, PodContext
from gpuconsole.scheduling.kube.pod_classes import PodClass
from gpuconsole.scheduling.kube.profile import SYSTEM_CONSTRAINTS, SchedulerProfile

MISSING_LABEL = "node(s) didn't match pod topology spread constraints (missing required label)"
TOO_SKEWED = "node(s) didn't match pod topology spread constraints"
MAX_SCORE = 100
HARD, SOFT = "DoNotSchedule", "ScheduleAnyway"


class TopologySpreadState(Struct, frozen=True):
    """Matching pods by domain for one spread constraint of a pod (the plugin's PreFilter state)."""

    constraint: SpreadConstraint
    counts: Mapping[str, int]
    """Matching pods by value of the topology key, for every eligible domain."""
    least: int
    """Fewest matching pods in any domain (global minimum); 0 if there are fewer domains than minDomains."""
    itself: int
    """1 if the pod matches its own constraint, else 0."""


def hard_spreads(
    pod: Pod, shape: PodClass, around: PodLister, defaults: Sequence[SpreadConstraint] = ()
) -> tuple[TopologySpreadState, ...]:
    """Current spread for each hard constraint of the pod; `defaults` apply to a pod without constraints."""
    constraints = [one for one in pod.template.spread or defaults if one.when_unsatisfiable == HARD]
    return tuple(_spread(pod, shape, one, constraints, around) for one in constraints)


def _spread(
    pod: Pod, shape: PodClass, constraint: SpreadConstraint, every: Sequence[SpreadConstraint], around: PodLister
) -> TopologySpreadState:
    counts = _domain_counts(pod, shape, constraint, every, around)
    return TopologySpreadState(constraint, counts, _least(constraint, counts), int(_selects(constraint, pod, pod)))


def _least(constraint: SpreadConstraint, counts: Mapping[str, int]) -> int:
    enough = len(counts) >= (constraint.min_domains or 1)
    return min(counts.values(), default=0) if enough else 0


def moved(
    spread: TopologySpreadState, pod: Pod, shape: PodClass, node: Node, pods: Iterable[Pod], by: int
) -> TopologySpreadState:
    """The spread after these pods are removed from the node (`by` −1) or added to it (1)."""
    value = node.labels.get(spread.constraint.topology_key)
    number = matching(pod, spread.constraint, pods)
    if value is None or value not in spread.counts or not number or not _counts(node, shape, spread.constraint):
        return spread
    counts = {**spread.counts, value: spread.counts[value] + by * number}
    return replace(spread, counts=counts, least=_least(spread.constraint, counts))


def refusal(node: Node, spreads: Iterable[TopologySpreadState]) -> str:
    """Why the pod cannot run on the node; empty if it can. Preemption cannot resolve `MISSING_LABEL`."""
    for spread in spreads:
        value = node.labels.get(spread.constraint.topology_key)
        if value is None:
            return MISSING_LABEL
        if spread.counts.get(value, 0) + spread.itself - spread.least > spread.constraint.max_skew:
            return TOO_SKEWED
    return ""


def scores(pod: Pod, shape: PodClass, nodes: Sequence[Node], around: PodLister) -> dict[str, int]:
    """Score of each node, 0 to 100: higher with fewer matching pods in its domains; empty without soft constraints."""
    constraints = [one for one in pod.template.spread if one.when_unsatisfiable == SOFT]
    return normalised(nodes, raw_scores(pod, shape, nodes, around, constraints)) if constraints else {}


def raw_scores(
    pod: Pod,
    shape: PodClass,
    nodes: Sequence[Node],
    around: PodLister,
    constraints: Sequence[SpreadConstraint],
    *,
    complete: bool = True,
) -> dict[str, int]:
    """Matching pods in the domains of each node, weighted by the log of the number of domains; fewer is better.

    Nodes that lack one of the labels have no score, unless `complete` is False (kube-scheduler's default constraints).
    """
    scored = [node for node in nodes if not complete or all(one.topology_key in node.labels for one in constraints)]
    raw = dict.fromkeys((node.name for node in scored), 0.0)
    for constraint in constraints:
        key = constraint.topology_key
        values = {node.labels.get(key, "") for node in scored}
        weight = math.log((len(scored) if key == HOSTNAME else len(values)) + 2)
        if key == HOSTNAME:
            counts = _node_counts(pod, constraint, around)
        else:
            counts = _domain_counts(pod, shape, constraint, constraints if complete else (), around)
        for node in scored:
            if key in node.labels:
                count = counts.get(node.name if key == HOSTNAME else node.labels[key], 0)
                raw[node.name] += count * weight + (constraint.max_skew - 1)
    return {name: math.floor(score + 0.5) for name, score in raw.items()}


def normalised(nodes: Iterable[Node], raw: Mapping[str, int]) -> dict[str, int]:
    """Raw scores turned into 0 to 100, the highest for the fewest pods; 0 for nodes that were left out."""
    lowest, highest = min(raw.values(), default=0), max(raw.values(), default=0)
    found = dict.fromkeys((node.name for node in nodes), 0)
    for name, score in raw.items():
        found[name] = MAX_SCORE * (highest + lowest - score) // highest if highest else MAX_SCORE
    return found


def _domain_counts(
    pod: Pod, shape: PodClass, constraint: SpreadConstraint, every: Sequence[SpreadConstraint], around: PodLister
) -> dict[str, int]:
    key = constraint.topology_key
    values = {
        name: node.labels.get(key, "")
        for name, node in around.nodes.items()
        if _counts(node, shape, constraint) and all(one.topology_key in node.labels for one in every)
    }
    counts = dict.fromkeys(values.values(), 0)
    for name, number in _node_counts(pod, constraint, around).items():
        if name in values:
            counts[values[name]] += number
    return counts


def _node_counts(pod: Pod, constraint: SpreadConstraint, around: PodLister) -> dict[str, int]:
    """How many matching pods each node has."""
    counts: dict[str, int] = {}
    for other, places in around.groups():
        if matching(pod, constraint, (other,)):
            for node, number in places:
                counts[node.name] = counts.get(node.name, 0) + number
    return counts


def matching(pod: Pod, constraint: SpreadConstraint, others: Iterable[Pod]) -> int:
    """How many of these pods the pod's constraint selects: in its namespace and not terminating."""
    return sum(
        other.namespace == pod.namespace and not other.deleted and _selects(constraint, pod, other) for other in others
    )


def _selects(constraint: SpreadConstraint, owner: Pod, pod: Pod) -> bool:
    if constraint.selector is None or not constraint.selector.matches(pod.labels):
        return False
    own, its = owner.labels, pod.labels
    return all(its.get(key) == own[key] for key in constraint.match_label_keys if key in own)


def _counts(node: Node, shape: PodClass, constraint: SpreadConstraint) -> bool:
    """True if the node's pods count (nodeAffinityPolicy, nodeTaintsPolicy)."""
    if constraint.honors_affinity and not affine(node, shape):
        return False
    if not constraint.honors_taints:
        return True
    return all(
        tolerated(taint, shape.tolerations) for taint in node.taints if taint.effect in ("NoSchedule", "NoExecute")
    )


class Skew(Struct, frozen=True):
    """PreFilter state of PodTopologySpread for one pod: the spread by each of its hard constraints."""

    pod: Pod
    shape: PodClass
    spreads: tuple[TopologySpreadState, ...]

    def refusal(self, node: Node) -> NodeRejection | None:
        text = refusal(node, self.spreads)
        return NodeRejection((text,), final=text == MISSING_LABEL) if text else None

    def moved(self, node: Node, pods: Iterable[Pod], by: int) -> "Skew":
        if any(one.constraint.topology_key not in node.labels for one in self.spreads):
            return self
        others = list(pods)
        spreads = tuple(moved(one, self.pod, self.shape, node, others, by) for one in self.spreads)
        return replace(self, spreads=spreads)


class Evenness(Struct, frozen=True):
    """PreScore state of PodTopologySpread for one pod: its soft constraints, and the existing pods."""

    asker: PodContext
    constraints: tuple[SpreadConstraint, ...]
    around: PodLister
    complete: bool

    def raw(self, nodes: Sequence[Node]) -> Mapping[str, int]:
        pod, shape = self.asker.pod, self.asker.shape
        return raw_scores(pod, shape, nodes, self.around, self.constraints, complete=self.complete)

    def normalised(self, nodes: Sequence[Node], raw: Mapping[str, int]) -> Mapping[str, int]:
        return normalised(nodes, raw)


def topology_spread_filter(rules: SchedulerProfile, asker: PodContext, around: PodLister) -> Skew | None:
    """PodTopologySpread's filter, prepared for a pod; None if the pod has no hard constraints."""
    constraints = constraints_of(rules, asker.pod)
    if not any(one.when_unsatisfiable == HARD for one in constraints):
        return None
    return Skew(asker.pod, asker.shape, hard_spreads(asker.pod, asker.shape, around, constraints))


def topology_spread_score(rules: SchedulerProfile, asker: PodContext, around: PodLister) -> Evenness | None:
    """PodTopologySpread's score, prepared for a pod; None if the pod has no soft constraints."""
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

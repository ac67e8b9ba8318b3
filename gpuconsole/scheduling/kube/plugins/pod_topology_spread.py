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
from gpuconsole.scheduling.kube.filters import is_tolerated, matches_affinity
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
    minimum: int
    """Fewest matching pods in any domain (global minimum); 0 if there are fewer domains than minDomains."""
    self_match: int
    """1 if the pod matches its own constraint, else 0."""


def hard_constraint_states(
    pod: Pod, pod_class: PodClass, existing_pods: PodLister, defaults: Sequence[SpreadConstraint] = ()
) -> tuple[TopologySpreadState, ...]:
    """Current spread for each hard constraint of the pod; `defaults` apply to a pod without constraints."""
    constraints = [one for one in pod.template.spread or defaults if one.when_unsatisfiable == HARD]
    return tuple(_constraint_state(pod, pod_class, one, constraints, existing_pods) for one in constraints)


def _constraint_state(
    pod: Pod,
    pod_class: PodClass,
    constraint: SpreadConstraint,
    every: Sequence[SpreadConstraint],
    existing_pods: PodLister,
) -> TopologySpreadState:
    counts = _domain_counts(pod, pod_class, constraint, every, existing_pods)
    return TopologySpreadState(
        constraint, counts, _global_minimum(constraint, counts), int(_constraint_selects(constraint, pod, pod))
    )


def _global_minimum(constraint: SpreadConstraint, counts: Mapping[str, int]) -> int:
    enough = len(counts) >= (constraint.min_domains or 1)
    return min(counts.values(), default=0) if enough else 0


def with_pods_moved(
    state: TopologySpreadState, pod: Pod, pod_class: PodClass, node: Node, pods: Iterable[Pod], sign: int
) -> TopologySpreadState:
    """The spread after these pods are removed from the node (`sign` −1) or added to it (1)."""
    value = node.labels.get(state.constraint.topology_key)
    number = count_matching(pod, state.constraint, pods)
    if value is None or value not in state.counts or not number or not _is_eligible(node, pod_class, state.constraint):
        return state
    counts = {**state.counts, value: state.counts[value] + sign * number}
    return replace(state, counts=counts, minimum=_global_minimum(state.constraint, counts))


def refusal(node: Node, states: Iterable[TopologySpreadState]) -> str:
    """Why the pod cannot run on the node; empty if it can. Preemption cannot resolve `MISSING_LABEL`."""
    for state in states:
        value = node.labels.get(state.constraint.topology_key)
        if value is None:
            return MISSING_LABEL
        if state.counts.get(value, 0) + state.self_match - state.minimum > state.constraint.max_skew:
            return TOO_SKEWED
    return ""


def scores(pod: Pod, pod_class: PodClass, nodes: Sequence[Node], existing_pods: PodLister) -> dict[str, int]:
    """Score of each node, 0 to 100: higher with fewer matching pods in its domains; empty without soft constraints."""
    constraints = [one for one in pod.template.spread if one.when_unsatisfiable == SOFT]
    return normalised(nodes, raw_scores(pod, pod_class, nodes, existing_pods, constraints)) if constraints else {}


def raw_scores(
    pod: Pod,
    pod_class: PodClass,
    nodes: Sequence[Node],
    existing_pods: PodLister,
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
            counts = _node_counts(pod, constraint, existing_pods)
        else:
            counts = _domain_counts(pod, pod_class, constraint, constraints if complete else (), existing_pods)
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
    pod: Pod,
    pod_class: PodClass,
    constraint: SpreadConstraint,
    every: Sequence[SpreadConstraint],
    existing_pods: PodLister,
) -> dict[str, int]:
    key = constraint.topology_key
    values = {
        name: node.labels.get(key, "")
        for name, node in existing_pods.nodes.items()
        if _is_eligible(node, pod_class, constraint) and all(one.topology_key in node.labels for one in every)
    }
    counts = dict.fromkeys(values.values(), 0)
    for name, number in _node_counts(pod, constraint, existing_pods).items():
        if name in values:
            counts[values[name]] += number
    return counts


def _node_counts(pod: Pod, constraint: SpreadConstraint, existing_pods: PodLister) -> dict[str, int]:
    """How many matching pods each node has."""
    counts: dict[str, int] = {}
    for other, places in existing_pods.pod_groups():
        if count_matching(pod, constraint, (other,)):
            for node, number in places:
                counts[node.name] = counts.get(node.name, 0) + number
    return counts


def count_matching(pod: Pod, constraint: SpreadConstraint, others: Iterable[Pod]) -> int:
    """How many of these pods the pod's constraint selects: in its namespace and not terminating."""
    return sum(
        other.namespace == pod.namespace and not other.deleted and _constraint_selects(constraint, pod, other)
        for other in others
    )


def _constraint_selects(constraint: SpreadConstraint, owner: Pod, pod: Pod) -> bool:
    if constraint.selector is None or not constraint.selector.matches(pod.labels):
        return False
    own, other_labels = owner.labels, pod.labels
    return all(other_labels.get(key) == own[key] for key in constraint.match_label_keys if key in own)


def _is_eligible(node: Node, pod_class: PodClass, constraint: SpreadConstraint) -> bool:
    """True if the node's pods count (nodeAffinityPolicy, nodeTaintsPolicy)."""
    if constraint.honors_affinity and not matches_affinity(node, pod_class):
        return False
    if not constraint.honors_taints:
        return True
    return all(
        is_tolerated(taint, pod_class.tolerations)
        for taint in node.taints
        if taint.effect in ("NoSchedule", "NoExecute")
    )


class TopologySpreadFilterState(Struct, frozen=True):
    """PreFilter state of PodTopologySpread for one pod: the spread by each of its hard constraints."""

    pod: Pod
    shape: PodClass
    states: tuple[TopologySpreadState, ...]

    def refusal(self, node: Node) -> NodeRejection | None:
        text = refusal(node, self.states)
        return NodeRejection((text,), is_unresolvable=text == MISSING_LABEL) if text else None

    def with_pods_moved(self, node: Node, pods: Iterable[Pod], sign: int) -> "TopologySpreadFilterState":
        if any(one.constraint.topology_key not in node.labels for one in self.states):
            return self
        others = list(pods)
        states = tuple(with_pods_moved(one, self.pod, self.shape, node, others, sign) for one in self.states)
        return replace(self, states=states)


class TopologySpreadScoreState(Struct, frozen=True):
    """PreScore state of PodTopologySpread for one pod: its soft constraints, and the existing pods."""

    context: PodContext
    constraints: tuple[SpreadConstraint, ...]
    existing_pods: PodLister
    complete: bool

    def raw(self, nodes: Sequence[Node]) -> Mapping[str, int]:
        pod, pod_class = self.context.pod, self.context.pod_class
        return raw_scores(pod, pod_class, nodes, self.existing_pods, self.constraints, complete=self.complete)

    def normalised(self, nodes: Sequence[Node], raw: Mapping[str, int]) -> Mapping[str, int]:
        return normalised(nodes, raw)


def topology_spread_filter(
    profile: SchedulerProfile, context: PodContext, existing_pods: PodLister
) -> TopologySpreadFilterState | None:
    """PodTopologySpread's filter, prepared for a pod; None if the pod has no hard constraints."""
    constraints = constraints_of(profile, context.pod)
    if not any(one.when_unsatisfiable == HARD for one in constraints):
        return None
    return TopologySpreadFilterState(
        context.pod,
        context.pod_class,
        hard_constraint_states(context.pod, context.pod_class, existing_pods, constraints),
    )


def topology_spread_score(
    profile: SchedulerProfile, context: PodContext, existing_pods: PodLister
) -> TopologySpreadScoreState | None:
    """PodTopologySpread's score, prepared for a pod; None if the pod has no soft constraints."""
    constraints = tuple(one for one in constraints_of(profile, context.pod) if one.when_unsatisfiable == SOFT)
    # kube-scheduler's own default constraints also score nodes that lack a label, such as the zone.
    complete = bool(context.pod.template.spread) or profile.spread is not None
    return TopologySpreadScoreState(context, constraints, existing_pods, complete) if constraints else None


def constraints_of(profile: SchedulerProfile, pod: Pod) -> tuple[SpreadConstraint, ...]:
    """The pod's own constraints, else the profile's defaults for pods that a workload controller owns."""
    if pod.template.spread:
        return pod.template.spread
    defaults = SYSTEM_CONSTRAINTS if profile.spread is None else profile.spread
    like = controller_selector(pod) if defaults else None
    return () if like is None else tuple(replace(one, selector=like) for one in defaults)


def controller_selector(pod: Pod) -> LabelSelector | None:
    """Selector of the pods of the same Deployment, StatefulSet or similar controller; None for other pods.

    kube-scheduler uses the selectors of Services and of the owner; pods of jobs have neither (DefaultSelector).
    """
    kind = pod.job.partition("/")[0]
    if kind not in ("Deployment", "ReplicaSet", "StatefulSet", "ReplicationController") or not pod.template.labels:
        return None
    return LabelSelector(dict(pod.template.labels))

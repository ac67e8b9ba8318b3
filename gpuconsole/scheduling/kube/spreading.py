"""PodTopologySpread: pods of one kind spread over the domains of a node's label."""

import math
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from gpuconsole.model.cluster import HOSTNAME, Node, Pod, SpreadConstraint
from gpuconsole.scheduling.kube.filters import affine, tolerated
from gpuconsole.scheduling.kube.neighbours import Surroundings
from gpuconsole.scheduling.kube.shapes import Shape

MISSING_LABEL = "node(s) didn't match pod topology spread constraints (missing required label)"
TOO_SKEWED = "node(s) didn't match pod topology spread constraints"
MAX_SCORE = 100
HARD, SOFT = "DoNotSchedule", "ScheduleAnyway"


class Spread(Struct, frozen=True):
    """How the pods that one constraint counts are spread (the plugin's PreFilter)."""

    constraint: SpreadConstraint
    counts: Mapping[str, int]
    """Pods by value of the label, of every domain that counts."""
    least: int
    """In the emptiest domain; 0 as long as there are fewer domains than there should be."""
    itself: int
    """1 if the pod counts for its own constraint."""


def hard_spreads(pod: Pod, shape: Shape, around: Surroundings) -> tuple[Spread, ...]:
    """How what the pod's hard constraints count is spread now."""
    constraints = [one for one in pod.template.spread if one.when_unsatisfiable == HARD]
    return tuple(_spread(pod, shape, one, constraints, around) for one in constraints)


def _spread(
    pod: Pod, shape: Shape, constraint: SpreadConstraint, every: Sequence[SpreadConstraint], around: Surroundings
) -> Spread:
    counts = _domain_counts(pod, shape, constraint, every, around)
    enough = len(counts) >= (constraint.min_domains or 1)
    least = min(counts.values(), default=0) if enough else 0
    return Spread(constraint, counts, least, int(_selects(constraint, pod)))


def refusal(node: Node, spreads: Iterable[Spread]) -> str:
    """Why the pod may not be on the node; empty if it may. No eviction could change `MISSING_LABEL`."""
    for spread in spreads:
        value = node.labels.get(spread.constraint.topology_key)
        if value is None:
            return MISSING_LABEL
        if spread.counts.get(value, 0) + spread.itself - spread.least > spread.constraint.max_skew:
            return TOO_SKEWED
    return ""


def scores(pod: Pod, shape: Shape, nodes: Sequence[Node], around: Surroundings) -> dict[str, int]:
    """The better, the fewer pods of its kind are in a node's domains, 0 to 100; empty without soft constraints.

    A domain of many counts for more than one of few; a node that lacks a label gets nothing.
    """
    constraints = [one for one in pod.template.spread if one.when_unsatisfiable == SOFT]
    if not constraints:
        return {}
    complete = [node for node in nodes if all(one.topology_key in node.labels for one in constraints)]
    raw = dict.fromkeys((node.name for node in complete), 0.0)
    for constraint in constraints:
        key = constraint.topology_key
        values = {node.labels[key] for node in complete}
        weight = math.log((len(complete) if key == HOSTNAME else len(values)) + 2)
        counts = _domain_counts(pod, shape, constraint, constraints, around)
        for node in complete:
            count = counts.get(node.labels[key], 0)
            if key == HOSTNAME:
                count = matching(pod, constraint, around.on(node.name))
            raw[node.name] += count * weight + (constraint.max_skew - 1)
    rounded = {name: math.floor(score + 0.5) for name, score in raw.items()}
    lowest, highest = min(rounded.values(), default=0), max(rounded.values(), default=0)
    found = dict.fromkeys((node.name for node in nodes), 0)
    for name, score in rounded.items():
        found[name] = MAX_SCORE * (highest + lowest - score) // highest if highest else MAX_SCORE
    return found


def _domain_counts(
    pod: Pod, shape: Shape, constraint: SpreadConstraint, every: Sequence[SpreadConstraint], around: Surroundings
) -> dict[str, int]:
    counts: dict[str, int] = {}
    for name, node in around.nodes.items():
        if _counts(node, shape, constraint) and all(one.topology_key in node.labels for one in every):
            value = node.labels[constraint.topology_key]
            counts[value] = counts.get(value, 0) + matching(pod, constraint, around.on(name))
    return counts


def matching(pod: Pod, constraint: SpreadConstraint, others: Iterable[Pod]) -> int:
    """How many of these pods the pod's constraint counts: of its namespace, and not on their way out."""
    return sum(
        other.namespace == pod.namespace and not other.deleted and _selects(constraint, other) for other in others
    )


def _selects(constraint: SpreadConstraint, pod: Pod) -> bool:
    return constraint.selector is not None and constraint.selector.matches(pod.labels)


def _counts(node: Node, shape: Shape, constraint: SpreadConstraint) -> bool:
    """True if the node is one of those over which is spread."""
    if constraint.honors_affinity and not affine(node, shape):
        return False
    if not constraint.honors_taints:
        return True
    return all(
        tolerated(taint, shape.tolerations) for taint in node.taints if taint.effect in ("NoSchedule", "NoExecute")
    )

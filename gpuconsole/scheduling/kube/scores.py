"""Which of the nodes that fit is best: kube-scheduler's integer arithmetic.

NodeResourcesFit (MostAllocated for binpack, LeastAllocated for spread), NodeAffinity (preferred terms) and
TaintToleration (PreferNoSchedule), each 0 to 100, summed with the policy's weights.
"""

from collections.abc import Callable, Iterable

from gpuconsole.model.cluster import Node
from gpuconsole.model.quantity import CPU, MEMORY
from gpuconsole.model.resources import is_mig
from gpuconsole.scheduling.kube.filters import term_matches, tolerated
from gpuconsole.scheduling.kube.nodes import NodeState
from gpuconsole.scheduling.kube.packed import Packing, demand
from gpuconsole.scheduling.kube.policy import ANY_MIG, Formula, PlacementPolicy
from gpuconsole.scheduling.kube.shapes import Shape

MAX_SCORE = 100

Scored = tuple[tuple[str, int, int], ...]
"""(resource, weight, what the pod counts for) of each resource that scores for a shape."""


def most_allocated(requested: int, capacity: int) -> int:
    """⌊min(requested, capacity) · 100 / capacity⌋, 0 without capacity (mostRequestedScore)."""
    return min(requested, capacity) * MAX_SCORE // capacity if capacity else 0


def least_allocated(requested: int, capacity: int) -> int:
    """⌊(capacity − requested) · 100 / capacity⌋, 0 without capacity or beyond it (leastRequestedScore)."""
    return (capacity - requested) * MAX_SCORE // capacity if capacity and requested <= capacity else 0


FORMULAS = {"binpack": most_allocated, "spread": least_allocated}


def scored(policy: PlacementPolicy, shape: Shape) -> Scored:
    """What scores for pods of this shape: cpu and memory always, anything else only if the pod asks for it."""
    weights = dict(policy.resources)
    lines = [(name, weights.get(name, 0), shape.counted[name]) for name in (CPU, MEMORY)]
    for name, value in shape.requests.items():
        if name not in (CPU, MEMORY):
            weight = weights.get(name, weights.get(ANY_MIG, 0) if is_mig(name) else 0)
            lines.append((name, weight, value))
    return tuple(line for line in lines if line[1])


def fit_score(state: NodeState, lines: Scored, score: Formula) -> int:
    """⌊Σ weight · score / Σ weight⌋ over the resources that the node has at all (resource_allocation.go)."""
    assert state.node is not None
    allocatable, used, formula = state.node.allocatable, state.used, FORMULAS[score]
    total = weights = 0
    for name, weight, value in lines:
        capacity = allocatable.get(name, 0)
        if capacity:
            before = state.counted[name == MEMORY] if name in (CPU, MEMORY) else used.get(name, 0)
            total += weight * formula(before + value, capacity)
            weights += weight
    return total // weights if weights else 0


def scorer(policy: PlacementPolicy, shape: Shape, packing: Packing | None) -> Callable[[NodeState], int]:
    """The score that stands for NodeResourcesFit: of its own, or of the packing policy that was chosen."""
    if policy.score == "binpack" or policy.score == "spread":
        formula, lines = policy.score, scored(policy, shape)
        return lambda state: fit_score(state, lines, formula)
    assert packing is not None
    wanted = demand(shape)
    return lambda state: packing.score(state, wanted)


def preference(node: Node, shape: Shape) -> int:
    """Sum of the weights of the preferred terms that the node matches (NodeAffinity, before it is normalised)."""
    return sum(preferred.weight for preferred in shape.preferred if term_matches(preferred.term, node))


def dislikes(node: Node, shape: Shape) -> int:
    """How many PreferNoSchedule taints the pod does not tolerate (TaintToleration, before it is normalised)."""
    # Only tolerations of that effect, or of any, count here (getAllTolerationPreferNoSchedule).
    tolerations = tuple(t for t in shape.tolerations if t.effect in ("", "PreferNoSchedule"))
    return sum(taint.effect == "PreferNoSchedule" and not tolerated(taint, tolerations) for taint in node.taints)


def total(policy: PlacementPolicy, fit: int, liking: tuple[int, int], highest: tuple[int, int]) -> int:
    """The final score; `liking` is (preference, dislikes), `highest` the greatest of each among the nodes that fit."""
    affinity = liking[0] * MAX_SCORE // highest[0] if highest[0] else 0
    taints = MAX_SCORE - (liking[1] * MAX_SCORE // highest[1] if highest[1] else 0)
    return policy.fit_weight * fit + policy.affinity_weight * affinity + policy.taint_weight * taints


def highest(likings: Iterable[tuple[int, int]]) -> tuple[int, int]:
    """The greatest preference and the greatest number of dislikes."""
    pairs = tuple(likings)
    return max(pair[0] for pair in pairs), max(pair[1] for pair in pairs)

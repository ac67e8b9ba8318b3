"""Node scores in kube-scheduler's integer arithmetic, each 0 to 100; the total is their sum with the profile's weights.

NodeResourcesFit has three formulas. NodeAffinity (preferred terms) and TaintToleration (PreferNoSchedule) are
normalised over the feasible nodes. `Images` scores nodes for ImageLocality.

`Packing` replaces NodeResourcesFit's score by a packing policy: GPUs are always whole there, and FGD's typical pods are
those of the cluster itself, running and pending.
"""

import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise

from gpuconsole.model.cluster import Node, Pod
from gpuconsole.model.labels import PreferredTerm
from gpuconsole.model.prices import gpu_type
from gpuconsole.model.resources import CPU, MEMORY, is_mig
from gpuconsole.scheduling.kube.filters import is_tolerated, matches_term
from gpuconsole.scheduling.kube.packing.policies import (
    MILLI,
    POLICIES,
    Fragmentation,
    FreeCapacity,
    PodDemand,
    PolicyName,
    TypicalPods,
    typical_pods_of,
)
from gpuconsole.scheduling.kube.pod_classes import NO_OWNER, NodeState, PodClass
from gpuconsole.scheduling.kube.profile import (
    ANY_MIG,
    NODE_AFFINITY,
    TAINT_TOLERATION,
    PlacementPolicy,
    SchedulerProfile,
    Weights,
)

MAX_SCORE = 100
SCALE = 10
"""The scores of `ScoringStrategy.shape` are 0 to 10; times this they are 0 to 100."""

ScoredResources = tuple[tuple[str, int, int], ...]
"""(resource, weight, the pod's request) of each resource that is scored for a pod class."""


def most_allocated(requested: int, capacity: int) -> int:
    """⌊min(requested, capacity) · 100 / capacity⌋, 0 without capacity (mostRequestedScore)."""
    return min(requested, capacity) * MAX_SCORE // capacity if capacity else 0


def least_allocated(requested: int, capacity: int) -> int:
    """⌊(capacity − requested) · 100 / capacity⌋, 0 without capacity or beyond it (leastRequestedScore)."""
    return (capacity - requested) * MAX_SCORE // capacity if capacity and requested <= capacity else 0


ALLOCATION_FORMULAS: dict[str, Callable[[int, int], int]] = {
    "MostAllocated": most_allocated,
    "LeastAllocated": least_allocated,
}


def scored_resources(resources: Weights, pod_class: PodClass) -> ScoredResources:
    """The resources that are scored for pods of this class: cpu and memory always, others only if requested."""
    weights = dict(resources)
    lines = [(name, weights.get(name, 0), pod_class.score_requests[name]) for name in (CPU, MEMORY)]
    for name, value in pod_class.requests.items():
        if name not in (CPU, MEMORY):
            weight = weights.get(name, weights.get(ANY_MIG, 0) if is_mig(name) else 0)
            lines.append((name, weight, value))
    return tuple(line for line in lines if line[1])


def allocation_score(formula: str, lines: ScoredResources) -> Callable[[NodeState], int]:
    """Make a node's score function ⌊Σ weight · score / Σ weight⌋ over its resources ({least,most}_allocated.go)."""
    of = ALLOCATION_FORMULAS[formula]

    def score(state: NodeState) -> int:
        assert state.node is not None
        allocatable, used = state.node.allocatable, state.used
        total = weights = 0
        for name, weight, value in lines:
            capacity = allocatable.get(name, 0)
            if capacity:
                before = state.score_requests[name == MEMORY] if name in (CPU, MEMORY) else used.get(name, 0)
                total += weight * of(before + value, capacity)
                weights += weight
        return total // weights if weights else 0

    return score


def ratio_score(pod_class: tuple[tuple[int, int], ...], lines: ScoredResources) -> Callable[[NodeState], int]:
    """Make a node's score function Σ weight · score / Σ weight over resources that score above 0, rounded.

    Each resource is scored by utilization with `broken_line` (requested_to_capacity_ratio.go).
    """

    def score(state: NodeState) -> int:
        assert state.node is not None
        total = weights = 0
        for name, weight, value in lines:
            capacity = state.node.allocatable.get(name, 0)
            before = state.score_requests[name == MEMORY] if name in (CPU, MEMORY) else state.used.get(name, 0)
            one = broken_line(pod_class, min(before + value, capacity) * 100 // capacity) if capacity else 0
            if one > 0:
                total += weight * one
                weights += weight
        return (2 * total + weights) // (2 * weights) if weights else 0

    return score


def broken_line(pod_class: tuple[tuple[int, int], ...], at: int) -> int:
    """The score of a utilization by linear interpolation between the points (BuildBrokenLinearFunction)."""
    if not pod_class or at <= pod_class[0][0]:
        return pod_class[0][1] * SCALE if pod_class else 0
    for (left, low), (right, high) in pairwise(pod_class):
        if at <= right:
            rise = (high - low) * SCALE * (at - left)
            # Go rounds towards zero, also where the line falls.
            return low * SCALE + (rise // (right - left) if rise >= 0 else -(-rise // (right - left)))
    return pod_class[-1][1] * SCALE


def preferred_weight(node: Node, pod_class: PodClass, added: Iterable[PreferredTerm] = ()) -> int:
    """Sum of the weights of the preferred terms that the node matches (NodeAffinity, before it is normalised).

    `added` are those that the scheduler prefers for every pod.
    """
    return sum(preferred.weight for preferred in (*added, *pod_class.preferred) if matches_term(preferred.term, node))


def untolerated_prefer_no_schedule(node: Node, pod_class: PodClass) -> int:
    """How many PreferNoSchedule taints of the node the pod does not tolerate (TaintToleration, not normalised)."""
    # Only tolerations of that effect, or of any, count here (getAllTolerationPreferNoSchedule).
    tolerations = tuple(t for t in pod_class.tolerations if t.effect in ("", "PreferNoSchedule"))
    return sum(taint.effect == "PreferNoSchedule" and not is_tolerated(taint, tolerations) for taint in node.taints)


def normalised_scores(raw_score: tuple[int, int], highest: tuple[int, int]) -> tuple[int, int]:
    """NodeAffinity's and TaintToleration's scores, 0 to 100, from (preference, dislikes) and the highest of each."""
    affinity = raw_score[0] * MAX_SCORE // highest[0] if highest[0] else 0
    taints = MAX_SCORE - (raw_score[1] * MAX_SCORE // highest[1] if highest[1] else 0)
    return affinity, taints


ScoreWeights = tuple[int, int]
"""(weight of NodeAffinity's score, weight of TaintToleration's score)."""


def score_weights(profile: SchedulerProfile) -> ScoreWeights:
    """The profile's weights of NodeAffinity and TaintToleration; 0 for one that does not score."""
    return profile.weight(NODE_AFFINITY), profile.weight(TAINT_TOLERATION)


def total_score(weights: ScoreWeights, fit: int, raw_score: tuple[int, int], highest: tuple[int, int]) -> int:
    """A node's final score; `fit` is the weighted sum of the scores that are not normalised."""
    affinity, taints = normalised_scores(raw_score, highest)
    return fit + weights[0] * affinity + weights[1] * taints


def highest_raw_scores(raw_scores: Iterable[tuple[int, int]]) -> tuple[int, int]:
    """The greatest preference and the greatest number of dislikes."""
    pairs = tuple(raw_scores)
    return max(pair[0] for pair in pairs), max(pair[1] for pair in pairs)


MEGABYTE = 1024 * 1024
MIN_IMAGE_SIZE = 23 * MEGABYTE
"""Total image size up to which a node scores 0 (minThreshold)."""
MAX_CONTAINER_IMAGE_SIZE = 1000 * MEGABYTE
"""Image size per container from which a node scores 100 (maxContainerThreshold)."""


class Images:
    """ImageLocality's scores: higher for nodes that hold large images of a pod, especially if many nodes hold them."""

    def __init__(self, nodes: Iterable[Node]) -> None:
        listed = list(nodes)
        self._total = len(listed)
        self._holders = Counter(image for node in listed for image in node.images)

    @property
    def has_images(self) -> bool:
        """True if any node reports images."""
        return bool(self._holders)

    def score(self, pod: Pod, node: Node) -> int:
        """Score of the node, 0 to 100: the sizes of the pod's images on it, times the share of nodes that hold each."""
        containers = (*pod.template.containers, *pod.template.init_containers)
        return self.score_images([container.image for container in containers], node)

    def score_images(self, images: Sequence[str], node: Node) -> int:
        """As `score`, for the images of a pod, one for each container."""
        held = (_normalised_image_name(image) for image in images)
        total = sum(
            int(node.images[image] * (self._holders[image] / self._total)) for image in held if image in node.images
        )
        most = MAX_CONTAINER_IMAGE_SIZE * len(images)
        bounded = min(max(total, MIN_IMAGE_SIZE), most)
        return MAX_SCORE * (bounded - MIN_IMAGE_SIZE) // (most - MIN_IMAGE_SIZE) if most > MIN_IMAGE_SIZE else 0


def _normalised_image_name(image: str) -> str:
    """An image's name with a tag, as nodes list it."""
    return image if image.rfind(":") > image.rfind("/") else f"{image}:latest"


class Packing:
    """Scores nodes by one packing policy. Mutates: it stores the typical pods and caches free capacities."""

    def __init__(self, policy: PolicyName) -> None:
        self._policy = POLICIES[policy]
        self._pods: TypicalPods = ()
        self._measure = Fragmentation(())
        self._capacities: dict[str, tuple[NodeState, FreeCapacity]] = {}
        self._models: dict[str, tuple[Node, str]] = {}

    def set_typical_pods(self, pods: TypicalPods) -> bool:
        """Set the typical pods; True if they changed."""
        if pods == self._pods:
            return False
        self._pods, self._measure = pods, Fragmentation(pods)
        return True

    def score(self, state: NodeState, demand: PodDemand) -> int:
        """The policy's score of a node for the pod; the higher the better."""
        known = self._capacities.get(state.name)
        if known is None or known[0] is not state:
            known = self._capacities[state.name] = (state, free_capacity(state, self._model(state)))
        return self._policy.score(known[1], demand, self._measure)

    def _model(self, state: NodeState) -> str:
        node = state.node
        if node is None:
            return ""
        known = self._models.get(node.name)
        if known is None or known[0] is not node:
            # Labels change rarely, and finding the GPU model in them is slow.
            known = self._models[node.name] = (node, gpu_type(node.labels))
        return known[1]


def packing_scorer(policy: PlacementPolicy) -> Packing | None:
    """The scorer of the packing policy that `policy` names; None if it names none."""
    return None if policy.packing is None else Packing(policy.packing)


def free_capacity(state: NodeState, model: str) -> FreeCapacity:
    """Free capacity of a node with GPUs of this model; each GPU is either free or taken as a whole."""
    allocatable = state.node.allocatable if state.node is not None else {}
    return FreeCapacity(
        allocatable.get(CPU, 0) - state.used.get(CPU, 0),
        allocatable.get(MEMORY, 0) - state.used.get(MEMORY, 0),
        tuple(MILLI if owner == NO_OWNER else 0 for owner in state.owners),
        model,
        frozenset(f"{assigned.pod_class.gpus}-gpu" for assigned in state.pods.values() if assigned.pod_class.gpus),
    )


def pod_demand(pod_class: PodClass) -> PodDemand:
    """Requests of a pod; the GPU model comes from its nodeSelector."""
    model = gpu_type(pod_class.node_selector) if pod_class.gpus else ""
    return PodDemand(
        cpu=pod_class.requests.get(CPU, 0),
        memory=pod_class.requests.get(MEMORY, 0),
        gpus=pod_class.gpus,
        milli=MILLI if pod_class.gpus else 0,
        models=(model,) if model else (),
    )


def typical_pods(pod_classes: Iterable[PodClass]) -> TypicalPods:
    """The typical pods of a cluster with their shares in whole percents, at least 1.

    Rounding keeps them, and the cached scores, stable while pods come and go.
    """
    counts: Counter[PodDemand] = Counter()
    for pod_class, count in Counter(pod_classes).items():
        counts[pod_demand(pod_class)] += count
    found = typical_pods_of(counts)
    total = sum(count for _, count in found)
    return tuple((pod, max(1, (100 * count + total // 2) // total)) for pod, count in found)


def random_choice(pod: str, names: Sequence[str]) -> str:
    """Choose one of the named nodes pseudo-randomly by the pod's key, so that repeated runs agree."""
    return sorted(names)[zlib.crc32(pod.encode()) % len(names)]

"""nodeorder plugin: kube-scheduler's scores with Volcano's weights. GPUs count only in the balanced allocation."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

from gpuconsole.model.cluster import Node, Pod
from gpuconsole.model.resources import CPU, GPU, MEMORY, add
from gpuconsole.scheduling.kube import inter_pod_affinity
from gpuconsole.scheduling.kube.inter_pod_affinity import has_pod_affinity
from gpuconsole.scheduling.kube.plugins import pod_topology_spread
from gpuconsole.scheduling.kube.pod_classes import PodClass, PodClasses
from gpuconsole.scheduling.kube.scores import MAX_SCORE, Images, dislikes, least_allocated, most_allocated, preference
from gpuconsole.scheduling.volcano.api.node import NodeInfo, NodePods
from gpuconsole.scheduling.volcano.api.task import TaskInfo
from gpuconsole.scheduling.volcano.config import VolcanoArguments
from gpuconsole.scheduling.volcano.session_plugins import VolcanoPlugin

if TYPE_CHECKING:
    from gpuconsole.scheduling.volcano.session import VolcanoSession

WEIGHTS = {
    "NodeResourcesFit_LeastAllocated": ("leastrequested", 1),
    "NodeResourcesFit_MostAllocated": ("mostrequested", 0),
    "NodeResourcesBalancedAllocation": ("balancedresource", 1),
    "NodeAffinity": ("nodeaffinity", 2),
    "ImageLocality": ("imagelocality", 1),
    "InterPodAffinity": ("podaffinity", 2),
    "TaintToleration": ("tainttoleration", 3),
    "PodTopologySpread": ("podtopologyspread", 2),
}
"""kube-scheduler's score → the argument `NAME.weight`, and the default weight."""
BALANCED = (CPU, MEMORY, GPU)
AVOIDED = "PreferNoSchedule"
Amounts = tuple[int | None, ...]


class NodeorderPlugin(VolcanoPlugin):
    """Volcano 1.15 plugins/nodeorder."""

    name: ClassVar[str] = "nodeorder"

    def __init__(self, arguments: VolcanoArguments) -> None:
        given = {score: arguments.integer(f"{name}.weight", weight) for score, (name, weight) in WEIGHTS.items()}
        self.weights = {score: weight for score, weight in given.items() if weight}
        """The scores that count, with their weights."""
        self._shapes = PodClasses()

    def on_session_open(self, session: "VolcanoSession") -> None:
        self._placed, self._around = session.placed, session.placed.without()
        self._node_requests = NodeRequests(session.placed, self._shapes)
        self._shunned = any(taint.effect == AVOIDED for node in session.placed.nodes.values() for taint in node.taints)
        """True if some node has a PreferNoSchedule taint."""
        self._disliked: dict[PodClass, dict[str, int]] = {}
        """Untolerated PreferNoSchedule taints of each node, by class of pods: nodes do not change in a session."""
        self._images = Images(session.placed.nodes.values())
        session.functions.batch_node_order[self.name] = self.scores

    def scores(self, task: TaskInfo, nodes: Iterable[NodeInfo]) -> dict[str, float]:
        """The weighted sum of the scores, each 0 to 100, of each node."""
        described = [node.node for node in nodes if node.node is not None]
        shape = self._shapes.of(task.pod.template)
        alone = [
            (weight, formula) for score, weight in self.weights.items() if (formula := self._formula(score, shape))
        ]
        totals = self._node_requests.each(
            described, shape, lambda node: sum(weight * formula(node) for weight, formula in alone)
        )
        level = 0
        for score, weight in self.weights.items():
            values = self._score(score, task.pod, shape, described)
            if isinstance(values, int):
                level += weight * values
            else:
                for name, value in values.items():
                    totals[name] += weight * value
        return {name: float(total + level) for name, total in totals.items()}

    def score(self, name: str, task: TaskInfo, nodes: Iterable[NodeInfo]) -> dict[str, float]:
        """One of kube-scheduler's scores, 0 to 100, of each node."""
        described = [node.node for node in nodes if node.node is not None]
        shape = self._shapes.of(task.pod.template)
        formula = self._formula(name, shape)
        if formula is not None:
            return {node.name: float(formula(node)) for node in described}
        values = self._score(name, task.pod, shape, described)
        if isinstance(values, int):
            return {node.name: float(values) for node in described}
        return {name: float(value) for name, value in values.items()}

    def _formula(self, score: str, shape: PodClass) -> Callable[[Node], int] | None:
        """The formula of a score that depends only on the node and its pods; None for other scores."""
        match score:
            case "NodeResourcesFit_LeastAllocated":
                return lambda node: self._node_requests.allocation(node, shape, least_allocated)
            case "NodeResourcesFit_MostAllocated":
                return lambda node: self._node_requests.allocation(node, shape, most_allocated)
            case "NodeResourcesBalancedAllocation" if any(shape.requests.get(name) for name in BALANCED):
                return lambda node: self._node_requests.balance(node, shape)
        return None

    def _score(self, score: str, pod: Pod, shape: PodClass, nodes: Sequence[Node]) -> Mapping[str, int] | int:
        """A score that depends on more than the node, by node; one number if it is the same for all."""
        match score:
            case "NodeAffinity" if shape.preferred:
                return _scaled({node.name: preference(node, shape) for node in nodes})
            case "ImageLocality" if self._images.known:
                return {node.name: self._images.score(pod, node) for node in nodes}
            case "InterPodAffinity" if self._placed.picky or has_pod_affinity(pod):
                return inter_pod_affinity.scores(pod, nodes, self._around, hard_weight=0)
            case "TaintToleration":
                return self._tolerance(shape, nodes)
            case "PodTopologySpread" if pod.template.spread:
                return pod_topology_spread.scores(pod, shape, nodes, self._around)
        return 0

    def _tolerance(self, shape: PodClass, nodes: Sequence[Node]) -> Mapping[str, int] | int:
        if not self._shunned:
            return MAX_SCORE
        known = self._disliked.get(shape)
        if known is None:
            every = {name: dislikes(node, shape) for name, node in self._placed.nodes.items()}
            known = self._disliked[shape] = every if any(every.values()) else {}
        if not known:
            return MAX_SCORE
        disliked = _scaled({node.name: known[node.name] for node in nodes})
        return {name: MAX_SCORE - value for name, value in disliked.items()}


def _scaled(scores: Mapping[str, int]) -> dict[str, int]:
    """Scores as a percentage of the highest (DefaultNormalizeScore)."""
    top = max(scores.values(), default=0)
    return {name: score * MAX_SCORE // top if top else 0 for name, score in scores.items()}


class NodeRequests:
    """The requests of the pods on each node, as kube-scheduler counts them; sums are cached until the pods change."""

    def __init__(self, placed: NodePods, shapes: PodClasses) -> None:
        self._placed = placed
        self._shapes = shapes
        self._known: dict[str, tuple[int, dict[str, int], dict[str, int], Amounts]] = {}
        self._scored: dict[PodClass, tuple[int, dict[str, int], dict[Amounts, int]]] = {}
        """By class of pods: (length of the change log, score by node, score by amounts)."""

    def each(self, nodes: Sequence[Node], shape: PodClass, measure: Callable[[Node], int]) -> dict[str, int]:
        """A score of every node, recomputed only if the node's pods have changed: the pods of a gang score equally.

        Nodes with the same amounts are measured once.
        """
        log = self._placed.log
        seen, known, equal_pods = self._scored.get(shape, (0, {}, {}))
        for number in range(seen, len(log)):
            known.pop(log[number], None)
        self._scored[shape] = len(log), known, equal_pods
        for node in nodes:
            if node.name not in known:
                amounts = self._sums(node)[3]
                score = equal_pods.get(amounts)
                if score is None:
                    score = equal_pods[amounts] = measure(node)
                known[node.name] = score
        return {node.name: known[node.name] for node in nodes}

    def allocation(self, node: Node, shape: PodClass, measure: Callable[[int, int], int]) -> int:
        """The mean for cpu and memory of a formula of (used with the pod, capacity)."""
        counted = self._sums(node)[2]
        found = [
            measure(counted.get(name, 0) + shape.counted[name], node.allocatable[name])
            for name in (CPU, MEMORY)
            if node.allocatable.get(name)
        ]
        return sum(found) // len(found) if found else 0

    def balance(self, node: Node, shape: PodClass) -> int:
        """100 · (1 − standard deviation of the used fractions of cpu, memory and, if requested, GPUs)."""
        requested = self._sums(node)[1]
        names = [name for name in BALANCED if name != GPU or shape.requests.get(GPU)]
        parts = [
            min(1.0, (requested.get(name, 0) + shape.requests.get(name, 0)) / node.allocatable[name])
            for name in names
            if node.allocatable.get(name)
        ]
        if len(parts) == 2:
            deviation = abs((parts[0] - parts[1]) / 2)
        else:
            mean = sum(parts) / len(parts) if parts else 0.0
            deviation = math.sqrt(sum((part - mean) ** 2 for part in parts) / len(parts)) if len(parts) > 2 else 0.0
        return int((1 - deviation) * MAX_SCORE)

    def _sums(self, node: Node) -> tuple[int, dict[str, int], dict[str, int], Amounts]:
        """(version of the pods, requests, requests with defaults, all amounts that the formulas use)."""
        version = self._placed.version(node.name)
        known = self._known.get(node.name)
        if known is None or known[0] != version:
            shapes = [self._shapes.of(pod.template) for pod in self._placed.on(node.name).values()]
            requested, counted = add(*(s.requests for s in shapes)), add(*(s.counted for s in shapes))
            offered, asked = map(node.allocatable.get, BALANCED), map(requested.get, BALANCED)
            amounts = (*offered, *asked, *map(counted.get, BALANCED))
            known = self._known[node.name] = version, requested, counted, amounts
        return known

"""Plugins that score nodes by their resources: nodeorder, binpack, resource-strategy-fit, usage and rescheduling.

nodeorder has kube-scheduler's scores with Volcano's weights; GPUs count only in the balanced allocation. binpack
prefers the node that a task leaves fullest; GPUs count only if the configuration lists them. resource-strategy-fit
packs or spreads each resource by its own strategy, and keeps scarce ones free.

usage filters and scores nodes by their measured utilization. rescheduling scores nothing: it periodically evicts tasks
from overutilized nodes so that they can run on underutilized ones.
"""

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import ClassVar

from msgspec import Struct

from gpuconsole.model.clock import MINUTE
from gpuconsole.model.cluster import Node, Pod
from gpuconsole.model.resources import CPU, GPU, MEMORY, add
from gpuconsole.scheduling.kube import inter_pod_affinity
from gpuconsole.scheduling.kube.inter_pod_affinity import has_pod_affinity
from gpuconsole.scheduling.kube.plugins import pod_topology_spread
from gpuconsole.scheduling.kube.pod_classes import PodClass, PodClasses
from gpuconsole.scheduling.kube.scores import (
    MAX_SCORE,
    Images,
    least_allocated,
    most_allocated,
    preferred_weight,
    untolerated_prefer_no_schedule,
)
from gpuconsole.scheduling.volcano.api.job import FitError, PredicateCode
from gpuconsole.scheduling.volcano.api.node import NodeInfo, NodePods
from gpuconsole.scheduling.volcano.api.task import TaskInfo, qos_of
from gpuconsole.scheduling.volcano.config import VolcanoArguments, parse_duration, resource_weights
from gpuconsole.scheduling.volcano.session import VolcanoPlugin, VolcanoSession
from gpuconsole.scheduling.volcano.session_plugins import depends_on_node_and_class

SCORE_WEIGHT_ARGUMENTS = {
    "NodeResourcesFit_LeastAllocated": ("leastrequested", 1),
    "NodeResourcesFit_MostAllocated": ("mostrequested", 0),
    "NodeResourcesBalancedAllocation": ("balancedresource", 1),
    "NodeAffinity": ("nodeaffinity", 2),
    "ImageLocality": ("imagelocality", 1),
    "InterPodAffinity": ("podaffinity", 2),
    "TaintToleration": ("tainttoleration", 3),
    "PodTopologySpread": ("podtopologyspread", 2),
}
"""kube-scheduler's score → (the argument `NAME.weight` that sets its weight, the default weight)."""
BALANCED_RESOURCES = (CPU, MEMORY, GPU)
AVOIDED_TAINT = "PreferNoSchedule"
BalancedAmounts = tuple[int | None, ...]
"""What a node offers and what its pods request of `BALANCED_RESOURCES`; nodes with equal ones score equally."""


class NodeorderPlugin(VolcanoPlugin):
    """nodeorder plugin: kube-scheduler's node scores with Volcano's weights (Volcano 1.15)."""

    name: ClassVar[str] = "nodeorder"

    def __init__(self, arguments: VolcanoArguments) -> None:
        parameters = {
            score: arguments.integer(f"{name}.weight", weight)
            for score, (name, weight) in SCORE_WEIGHT_ARGUMENTS.items()
        }
        self.weights = {score: weight for score, weight in parameters.items() if weight}
        """The scores that count, with their weights."""
        self._pod_classes = PodClasses()

    def on_session_open(self, session: VolcanoSession) -> None:
        self._node_pods, self._pod_lister = session.node_pods, session.node_pods.lister_without()
        self._node_requests = NodeRequests(session.node_pods, self._pod_classes)
        self._tainted_nodes = any(
            taint.effect == AVOIDED_TAINT for node in session.node_pods.nodes.values() for taint in node.taints
        )
        """True if some node has a PreferNoSchedule taint."""
        self._untolerated_counts: dict[PodClass, dict[str, int]] = {}
        """Untolerated PreferNoSchedule taints of each node, by class of pods: nodes do not change in a session."""
        self._images = Images(session.node_pods.nodes.values())
        session.functions.batch_node_order[self.name] = self.scores

    def scores(self, task: TaskInfo, nodes: Iterable[NodeInfo]) -> dict[str, float]:
        """The weighted sum of kube-scheduler's scores, each 0 to 100, by node."""
        described = [node.node for node in nodes if node.node is not None]
        pod_class = self._pod_classes.of(task.pod.template)
        alone = [
            (weight, formula)
            for score, weight in self.weights.items()
            if (formula := self._node_formula(score, pod_class))
        ]
        totals = self._node_requests.score_nodes(
            described, pod_class, lambda node: sum(weight * formula(node) for weight, formula in alone)
        )
        level = 0
        for score, weight in self.weights.items():
            values = self._score(score, task.pod, pod_class, described)
            if isinstance(values, int):
                level += weight * values
            else:
                for name, value in values.items():
                    totals[name] += weight * value
        return {name: float(total + level) for name, total in totals.items()}

    def score(self, name: str, task: TaskInfo, nodes: Iterable[NodeInfo]) -> dict[str, float]:
        """One of kube-scheduler's scores, by its `name`, of each node by node name: 0 to 100."""
        described = [node.node for node in nodes if node.node is not None]
        pod_class = self._pod_classes.of(task.pod.template)
        formula = self._node_formula(name, pod_class)
        if formula is not None:
            return {node.name: float(formula(node)) for node in described}
        values = self._score(name, task.pod, pod_class, described)
        if isinstance(values, int):
            return {node.name: float(values) for node in described}
        return {name: float(value) for name, value in values.items()}

    def _node_formula(self, score: str, pod_class: PodClass) -> Callable[[Node], int] | None:
        """The formula of a score that depends only on the node and its pods; None for other scores."""
        match score:
            case "NodeResourcesFit_LeastAllocated":
                return lambda node: self._node_requests.allocation_score(node, pod_class, least_allocated)
            case "NodeResourcesFit_MostAllocated":
                return lambda node: self._node_requests.allocation_score(node, pod_class, most_allocated)
            case "NodeResourcesBalancedAllocation" if any(pod_class.requests.get(name) for name in BALANCED_RESOURCES):
                return lambda node: self._node_requests.balanced_score(node, pod_class)
        return None

    def _score(self, score: str, pod: Pod, pod_class: PodClass, nodes: Sequence[Node]) -> Mapping[str, int] | int:
        """A score that depends on more than the node, by node; one number if it is the same for all."""
        match score:
            case "NodeAffinity" if pod_class.preferred:
                return _normalise({node.name: preferred_weight(node, pod_class) for node in nodes})
            case "ImageLocality" if self._images.has_images:
                return {node.name: self._images.score(pod, node) for node in nodes}
            case "InterPodAffinity" if self._node_pods.pods_with_anti_affinity or has_pod_affinity(pod):
                return inter_pod_affinity.scores(pod, nodes, self._pod_lister, hard_weight=0)
            case "TaintToleration":
                return self._taint_toleration_scores(pod_class, nodes)
            case "PodTopologySpread" if pod.template.spread:
                return pod_topology_spread.scores(pod, pod_class, nodes, self._pod_lister)
        return 0

    def _taint_toleration_scores(self, pod_class: PodClass, nodes: Sequence[Node]) -> Mapping[str, int] | int:
        if not self._tainted_nodes:
            return MAX_SCORE
        known = self._untolerated_counts.get(pod_class)
        if known is None:
            every = {
                name: untolerated_prefer_no_schedule(node, pod_class) for name, node in self._node_pods.nodes.items()
            }
            known = self._untolerated_counts[pod_class] = every if any(every.values()) else {}
        if not known:
            return MAX_SCORE
        disliked = _normalise({node.name: known[node.name] for node in nodes})
        return {name: MAX_SCORE - value for name, value in disliked.items()}


def _normalise(scores: Mapping[str, int]) -> dict[str, int]:
    """Scores as a percentage of the highest (DefaultNormalizeScore)."""
    top = max(scores.values(), default=0)
    return {name: score * MAX_SCORE // top if top else 0 for name, score in scores.items()}


class NodeRequests:
    """Requests of the pods on each node, as kube-scheduler's scores count them; cached until the node's pods change."""

    def __init__(self, placed: NodePods, pod_classes: PodClasses) -> None:
        self._node_pods = placed
        self._pod_classes = pod_classes
        self._requests: dict[str, tuple[int, dict[str, int], dict[str, int], BalancedAmounts]] = {}
        self._scores: dict[PodClass, tuple[int, dict[str, int], dict[BalancedAmounts, int]]] = {}
        """By class of pods: (length of the change log, score by node, score by amounts)."""

    def score_nodes(self, nodes: Sequence[Node], pod_class: PodClass, formula: Callable[[Node], int]) -> dict[str, int]:
        """A score of every node by `formula`, recomputed only where pods changed; pods of a class share results.

        Nodes with the same amounts are measured once.
        """
        log = self._node_pods.changed_nodes
        seen, known, equal_pods = self._scores.get(pod_class, (0, {}, {}))
        for number in range(seen, len(log)):
            known.pop(log[number], None)
        self._scores[pod_class] = len(log), known, equal_pods
        for node in nodes:
            if node.name not in known:
                amounts = self._requests_of(node)[3]
                score = equal_pods.get(amounts)
                if score is None:
                    score = equal_pods[amounts] = formula(node)
                known[node.name] = score
        return {node.name: known[node.name] for node in nodes}

    def allocation_score(self, node: Node, pod_class: PodClass, formula: Callable[[int, int], int]) -> int:
        """The mean of a score formula for cpu and memory; `formula` gets (used with the pod, capacity)."""
        counted = self._requests_of(node)[2]
        found = [
            formula(counted.get(name, 0) + pod_class.score_requests[name], node.allocatable[name])
            for name in (CPU, MEMORY)
            if node.allocatable.get(name)
        ]
        return sum(found) // len(found) if found else 0

    def balanced_score(self, node: Node, pod_class: PodClass) -> int:
        """The balanced-allocation score: 100 · (1 − standard deviation of the used fractions of cpu, memory, GPUs).

        GPUs count only if the pod requests them.
        """
        requested = self._requests_of(node)[1]
        names = [name for name in BALANCED_RESOURCES if name != GPU or pod_class.requests.get(GPU)]
        parts = [
            min(1.0, (requested.get(name, 0) + pod_class.requests.get(name, 0)) / node.allocatable[name])
            for name in names
            if node.allocatable.get(name)
        ]
        if len(parts) == 2:
            deviation = abs((parts[0] - parts[1]) / 2)
        else:
            mean = sum(parts) / len(parts) if parts else 0.0
            deviation = math.sqrt(sum((part - mean) ** 2 for part in parts) / len(parts)) if len(parts) > 2 else 0.0
        return int((1 - deviation) * MAX_SCORE)

    def _requests_of(self, node: Node) -> tuple[int, dict[str, int], dict[str, int], BalancedAmounts]:
        """(version of the pods, requests, requests with defaults, all amounts that the formulas use)."""
        version = self._node_pods.version(node.name)
        known = self._requests.get(node.name)
        if known is None or known[0] != version:
            pod_classes = [self._pod_classes.of(pod.template) for pod in self._node_pods.pods_on(node.name).values()]
            requested, counted = add(*(s.requests for s in pod_classes)), add(*(s.score_requests for s in pod_classes))
            offered, asked = map(node.allocatable.get, BALANCED_RESOURCES), map(requested.get, BALANCED_RESOURCES)
            amounts = (*offered, *asked, *map(counted.get, BALANCED_RESOURCES))
            known = self._requests[node.name] = version, requested, counted, amounts
        return known


class BinpackPlugin(VolcanoPlugin):
    """binpack plugin: prefers the node that a task leaves fullest (Volcano 1.15)."""

    name: ClassVar[str] = "binpack"

    def __init__(self, arguments: VolcanoArguments) -> None:
        self.weight = arguments.integer("binpack.weight", 1)
        self.weights = resource_weights(arguments, "binpack")
        self._scored_task: TaskInfo | None = None
        self._scored_resources: list[tuple[str, int, float]] = []
        """Its requests for resources that have a weight: name, weight, amount."""

    def on_session_open(self, session: VolcanoSession) -> None:
        if self.weight:
            session.functions.node_order[self.name] = self.score
            session.functions.cacheable_tasks[self.name] = depends_on_node_and_class

    def score(self, task: TaskInfo, node: NodeInfo) -> float:
        """The node's score: 100 · weight · Σ w·(requested + used)/allocatable / Σ w; 0 if the task does not fit.

        Only resources that the task requests count.
        """
        if self._scored_task is not task:
            request = task.request
            names = [name for name in request.names() if name in self.weights]
            self._scored_task, self._scored_resources = (
                task,
                [(name, self.weights[name], request.get(name)) for name in names],
            )
        total, weights = 0.0, 0
        for name, weight, wanted in self._scored_resources:
            capacity = node.allocatable.get(name)
            weights += weight
            if capacity and weight:
                used = wanted + node.used.get(name)
                if used > capacity:
                    return 0.0
                total += used * weight / capacity
        return (total / weights if weights else total) * (MAX_SCORE * self.weight)


DEFAULT_WEIGHT = 10
LEAST, MOST = "LeastAllocated", "MostAllocated"
TYPE_ANNOTATION = "volcano.sh/resource-strategy-scoring-type"
WEIGHT_ANNOTATION = "volcano.sh/resource-strategy-weight"


class ResourceScoringStrategy(Struct, frozen=True):
    """How one resource is scored: packed or spread, and its weight."""

    type: str = LEAST
    weight: int = 1


class SpareProportion(Struct, frozen=True):
    """How much must stay free for each free unit of a scarce resource: cores, and GB of memory."""

    cpu: float = 1.0
    memory: float = 1.0


class ResourceStrategyFitPlugin(VolcanoPlugin):
    """resource-strategy-fit plugin: packs or spreads each resource by its own strategy (Volcano 1.15)."""

    name: ClassVar[str] = "resource-strategy-fit"

    def __init__(self, arguments: VolcanoArguments) -> None:
        weight = arguments.integer("resourceStrategyFitWeight", DEFAULT_WEIGHT)
        self.weight = weight if weight >= 0 else DEFAULT_WEIGHT
        self.strategies = parse_strategies(arguments.get("resources"))
        sra = _mapping_or_empty(arguments.get("sra"))
        self.scarce = _scarce_weights(sra) if sra.get("enable") is True else {}
        self.scarce_weight = _integer_or(sra.get("weight"), 0) if sra.get("enable") is True else 0
        proportional = _mapping_or_empty(arguments.get("proportional"))
        self.proportions = _parse_proportions(proportional) if proportional.get("enable") is True else None

    def on_session_open(self, session: VolcanoSession) -> None:
        if self.proportions is not None:
            session.functions.predicates[self.name] = self._predicate
        if self.weight > 0 or self.scarce_weight > 0:
            session.functions.node_order[self.name] = self._score
            session.functions.cacheable_tasks[self.name] = depends_on_node_and_class

    def _predicate(self, task: TaskInfo, node: NodeInfo) -> FitError | None:
        return proportion_refusal(task, node, self.proportions or {})

    def _score(self, task: TaskInfo, node: NodeInfo) -> float:
        total = resource_fit_score(task, node, self.strategies, self.weight) if self.weight > 0 else 0.0
        return total + (self._scarce_resource_score(task, node) if self.scarce_weight > 0 else 0.0)

    def _scarce_resource_score(self, task: TaskInfo, node: NodeInfo) -> float:
        """Higher for nodes with fewer scarce resources; 0 if the node lacks a resource that the task requests."""
        if any(node.allocatable.get(name) == 0 for name in task.request.names()):
            return 0.0
        score = float(sum(weight for name, weight in self.scarce.items() if node.allocatable.get(name) > 0))
        total = sum(self.scarce.values())
        return (1.0 - score / total if total > 0 else score) * (MAX_SCORE * self.scarce_weight)


def parse_strategies(parameters: object) -> dict[str, ResourceScoringStrategy]:
    """The strategy of each resource or pattern (`nvidia.com/*`); for cpu and memory LeastAllocated if none are given.

    A pattern has one star, at its end and not alone; others are left out.
    """
    listed = _mapping_or_empty(parameters)
    if not listed:
        return {"cpu": ResourceScoringStrategy(), "memory": ResourceScoringStrategy()}
    result = {}
    for name, value in listed.items():
        if isinstance(name, str) and (name.count("*") == 0 or (len(name) > 1 and name.find("*") == len(name) - 1)):
            asked = _mapping_or_empty(value)
            weight, kind = _integer_or(asked.get("weight"), 1), asked.get("type")
            result[name] = ResourceScoringStrategy(MOST if kind == MOST else LEAST, weight if weight > 0 else 1)
    return result


def strategy_of(name: str, listed: Mapping[str, ResourceScoringStrategy]) -> ResourceScoringStrategy | None:
    """The strategy of a resource: by its name, else by the longest pattern that matches it; None if there is none."""
    if name in listed:
        return listed[name]
    fitting = [pattern for pattern in listed if pattern.endswith("*") and name.startswith(pattern[:-1])]
    return listed[max(fitting, key=len)] if fitting else None


def most_requested(requested: float, used: float, capacity: float, weight: int) -> float | None:
    """Score that prefers full nodes: weight · (used + requested)/capacity; None if the request does not fit.

    0 without weight or capacity.
    """
    if not weight or not capacity:
        return 0.0
    return None if requested + used > capacity else (requested + used) * weight / capacity


def least_requested(requested: float, used: float, capacity: float, weight: int) -> float | None:
    """Score that prefers empty nodes: weight · (capacity − used − requested)/capacity; None if it does not fit.

    0 without weight or capacity.
    """
    if not weight or not capacity:
        return 0.0
    return None if requested + used > capacity else (capacity - (requested + used)) * weight / capacity


FORMULAS = {MOST: most_requested, LEAST: least_requested}


def resource_fit_score(
    task: TaskInfo, node: NodeInfo, listed: Mapping[str, ResourceScoringStrategy], weight: int
) -> float:
    """The node's score: 100 · weight · weighted mean over the requested resources; 0 if the task does not fit.

    A pod's annotations can replace the strategies by one with its own weights; if they are invalid the score is 0.
    """
    own = _pod_strategies(task)
    if own is None:
        return 0.0
    total, weights = 0.0, 0
    for name in task.request.names():
        strategy = own.get(name) if own else strategy_of(name, listed)
        if strategy is None:
            continue
        score: float | None = 0.0
        if strategy.type in FORMULAS:
            amounts = (task.request.get(name), node.used.get(name), node.allocatable.get(name))
            score = FORMULAS[strategy.type](*amounts, strategy.weight)
        if score is None:
            return 0.0
        total += score
        weights += strategy.weight
    return (total / weights if weights > 0 else total) * (MAX_SCORE * weight)


def _pod_strategies(task: TaskInfo) -> Mapping[str, ResourceScoringStrategy] | None:
    """The strategies in the pod's annotations; empty without any, None if they are invalid."""
    kind = task.pod.annotations.get(TYPE_ANNOTATION, "")
    if not kind:
        return {}
    try:
        weights = json.loads(task.pod.annotations.get(WEIGHT_ANNOTATION, ""))
    except ValueError:
        return None
    if not isinstance(weights, dict) or not all(type(value) is int for value in weights.values()):
        return None
    # A pod with empty weights scores no resource, unlike one without the annotations.
    return {name: ResourceScoringStrategy(kind, value) for name, value in weights.items()} or {
        "": ResourceScoringStrategy(kind, 0)
    }


def proportion_refusal(task: TaskInfo, node: NodeInfo, shares: Mapping[str, SpareProportion]) -> FitError | None:
    """Why a task without scarce resources would leave too little cpu or memory for free scarce ones; None if not."""
    if any(task.request.get(name) > 0 for name in shares):
        return None
    for name, share in shares.items():
        free = (node.idle.scalars or {}).get(name)
        if free is None:
            continue
        cpu, memory = free * share.cpu, free * share.memory * 1000 * 1000
        if node.idle.cpu - task.request.cpu < cpu or node.idle.memory - task.request.memory < memory:
            reason = f"proportional of resource {name} check failed"
            return FitError.from_reasons(PredicateCode.UNRESOLVABLE, reason, plugin=ResourceStrategyFitPlugin.name)
    return None


def _scarce_names(parameters: Mapping[object, object]) -> list[str]:
    text = parameters.get("resources")
    return [name.strip() for name in text.split(",") if name.strip()] if isinstance(text, str) else []


def _scarce_weights(parameters: Mapping[object, object]) -> dict[str, int]:
    listed = _mapping_or_empty(parameters.get("resourceWeight"))
    weights = {name: _integer_or(listed.get(name), 1) for name in _scarce_names(parameters)}
    return {name: weight if weight >= 0 else 1 for name, weight in weights.items()}


def _parse_proportions(parameters: Mapping[object, object]) -> dict[str, SpareProportion]:
    listed = _mapping_or_empty(parameters.get("resourceProportion"))
    return {
        name: SpareProportion(
            _non_negative_or_one(listed.get(f"{name}.cpu")), _non_negative_or_one(listed.get(f"{name}.memory"))
        )
        for name in _scarce_names(parameters)
    }


def _non_negative_or_one(value: object) -> float:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) and value >= 0 else 1.0


def _mapping_or_empty(value: object) -> Mapping[object, object]:
    return value if isinstance(value, Mapping) else {}


def _integer_or(value: object, base: int) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else base


METRICS_PERIOD = "10m"
"""Period over which a node's load is averaged (NODE_METRICS_PERIOD)."""
MAX_MEASUREMENT_AGE = 5 * MINUTE
"""Age from which measurements are ignored."""
CPU_EXCEEDED = "the CPU load of the node exceeds the upper limit."
MEMORY_EXCEEDED = "the memory load of the node exceeds the upper limit."


class UsagePlugin(VolcanoPlugin):
    """usage plugin: filters and scores nodes by their measured utilization (Volcano 1.15)."""

    name: ClassVar[str] = "usage"

    def __init__(self, arguments: VolcanoArguments) -> None:
        self.weight = arguments.integer("usage.weight", 5)
        self.cpu_weight = arguments.integer("cpu.weight", 1)
        self.memory_weight = arguments.integer("memory.weight", 1)
        parameters = arguments.get("thresholds")
        thresholds = parameters if isinstance(parameters, Mapping) else {}
        self.max_cpu = _threshold(thresholds, "cpu")
        self.max_memory = _threshold(thresholds, "mem")

    def on_session_open(self, session: VolcanoSession) -> None:
        self._session = session
        session.functions.predicates[self.name] = self._predicate
        session.functions.node_order[self.name] = self._score
        session.functions.cacheable_tasks[self.name] = depends_on_node_and_class

    def _is_fresh(self, node: NodeInfo) -> bool:
        return self._session.now - node.usage.measured <= MAX_MEASUREMENT_AGE

    def _predicate(self, task: TaskInfo, node: NodeInfo) -> FitError | None:
        if not self._is_fresh(node):
            return None
        if node.usage.cpu.get(METRICS_PERIOD, 0.0) > self.max_cpu:
            return FitError.from_reasons(PredicateCode.UNRESOLVABLE, CPU_EXCEEDED, plugin=self.name)
        if node.usage.memory.get(METRICS_PERIOD, 0.0) > self.max_memory:
            return FitError.from_reasons(PredicateCode.UNRESOLVABLE, MEMORY_EXCEEDED, plugin=self.name)
        return None

    def _score(self, task: TaskInfo, node: NodeInfo) -> float:
        """100 · weight · weighted mean of the free fractions of cpu and memory; 0 if they are unknown or stale."""
        cpu, memory = node.usage.cpu.get(METRICS_PERIOD), node.usage.memory.get(METRICS_PERIOD)
        weights = self.cpu_weight + self.memory_weight
        if not self._is_fresh(node) or cpu is None or memory is None or not weights:
            return 0.0
        free = (100 - cpu) / 100 * self.cpu_weight + (100 - memory) / 100 * self.memory_weight
        return free / weights * (MAX_SCORE * self.weight)


def _threshold(thresholds: Mapping[object, object], name: str) -> float:
    """80 if it is missing; 0 for anything but a whole number."""
    value = thresholds.get(name, 80)
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else 0.0


EVICTION_INTERVAL = 5 * MINUTE
"""Default time between two evictions by the rescheduling plugin."""
RESCHEDULING_PERIOD = "5m"
"""Default period over which the rescheduling plugin averages load."""
LOW_NODE_UTILIZATION = "lowNodeUtilization"
LOAD_NAMES = (CPU, MEMORY)


class ReschedulingPlugin(VolcanoPlugin):
    """rescheduling plugin: names tasks on overutilized nodes as victims for the shuffle action (Volcano 1.15).

    Its only strategy is lowNodeUtilization, by loads that monitoring measures. A node is idle if all loads are below
    `thresholds`, busy if one is above `targetThresholds`; both are 100% by default, so that nothing is evicted.
    """

    name: ClassVar[str] = "rescheduling"

    def __init__(self, arguments: VolcanoArguments) -> None:
        interval = parse_duration(arguments.text("interval", ""))
        self.interval = EVICTION_INTERVAL if interval is None else interval
        self.period = arguments.text("metricsPeriod", RESCHEDULING_PERIOD) or RESCHEDULING_PERIOD
        self.strategies = _read_strategies(arguments.get("strategies"))

    def on_session_open(self, session: VolcanoSession) -> None:
        self._session = session
        last = session.last_runs.setdefault(self.name, session.now)
        if last + self.interval >= session.now:
            return
        session.last_runs[self.name] = session.now
        session.functions.victim_tasks[self.name] = [
            self._victim_function(parameters) for parameters in self.strategies
        ]

    def _victim_function(self, parameters: Mapping[object, object]) -> Callable[[list[TaskInfo]], list[TaskInfo]]:
        return lambda tasks: self._find_victims(tasks, parameters)

    def _find_victims(self, tasks: list[TaskInfo], parameters: Mapping[object, object]) -> list[TaskInfo]:
        """Victims on the busiest nodes first, the least important first, until a node is no longer busy."""
        low, target_load = _read_thresholds(parameters, "thresholds"), _read_thresholds(parameters, "targetThresholds")
        loads = {name: self._loads(info) for name, info in self._session.nodes.items() if info.node is not None}
        idle = [name for name, load in loads.items() if self._is_idle(name, load, low)]
        busy = [name for name, load in loads.items() if name not in idle and _is_above(load, target_load)]
        if not idle or not busy:
            return []
        room = dict.fromkeys(LOAD_NAMES, 0.0)
        for name in idle:
            for one in LOAD_NAMES:
                room[one] += (
                    (target_load[one] - loads[name][one]) * self._session.nodes[name].allocatable.get(one) / 100
                )
        candidates = {task.key: task for task in tasks}
        victims: list[TaskInfo] = []
        for name in sorted(busy, key=lambda name: (-sum(loads[name].values()), name)):
            victims += _node_victims(self._session.nodes[name], loads[name], target_load, room, candidates)
        return victims

    def _loads(self, info: NodeInfo) -> dict[str, float]:
        return {CPU: info.usage.cpu.get(self.period, 0.0), MEMORY: info.usage.memory.get(self.period, 0.0)}

    def _is_idle(self, name: str, load: Mapping[str, float], low: Mapping[str, float]) -> bool:
        node = self._session.nodes[name].node
        return node is not None and not node.unschedulable and all(load[one] < low[one] for one in LOAD_NAMES)


def _node_victims(
    info: NodeInfo,
    load: dict[str, float],
    target_load: Mapping[str, float],
    room: dict[str, float],
    candidates: Mapping[str, TaskInfo],
) -> Iterable[TaskInfo]:
    """Victims on one node; each reduces the node's load and the room elsewhere."""
    order = sorted(info.tasks.values(), key=lambda one: (one.pod.priority, qos_of(one.pod.template), one.key))
    for task in order:
        if not any(load[name] >= target_load[name] for name in LOAD_NAMES) or not all(room.values()):
            return
        if task.key in candidates:
            for name in LOAD_NAMES:
                amount = task.request.get(name)
                room[name] -= amount
                load[name] -= amount * 100 / info.capacity.get(name)
            yield candidates[task.key]


def _is_above(load: Mapping[str, float], target_load: Mapping[str, float]) -> bool:
    return any(load[name] > target_load[name] for name in LOAD_NAMES)


def _read_thresholds(parameters: Mapping[object, object], key: str) -> dict[str, float]:
    listed = parameters.get(key)
    known = listed if isinstance(listed, Mapping) else {}
    return {name: float(known[name]) if isinstance(known.get(name), int) else 100.0 for name in LOAD_NAMES}


def _read_strategies(parameters: object) -> list[Mapping[object, object]]:
    """Parameters of the known strategies; the default one if none are listed."""
    if not isinstance(parameters, list) or not parameters:
        return [{}]
    known = [one for one in parameters if isinstance(one, Mapping) and one.get("name") == LOW_NODE_UTILIZATION]
    return [one["params"] if isinstance(one.get("params"), Mapping) else {} for one in known]

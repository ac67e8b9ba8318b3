"""binpack and resource-strategy-fit plugins: pack tasks onto few nodes, or pack or spread each resource.

binpack plugin: prefers the node that a task leaves fullest. GPUs count only if the configuration lists them.

resource-strategy-fit plugin: packs or spreads each resource by its own strategy, and keeps scarce ones free.
"""

from typing import TYPE_CHECKING, ClassVar

from gpuconsole.scheduling.volcano.api.node import NodeInfo
from gpuconsole.scheduling.volcano.api.task import TaskInfo
from gpuconsole.scheduling.volcano.config import VolcanoArguments, resource_weights
from gpuconsole.scheduling.volcano.session_plugins import VolcanoPlugin, always

if TYPE_CHECKING:
    from gpuconsole.scheduling.volcano.session import VolcanoSession
import json
from collections.abc import Mapping

from msgspec import Struct

from gpuconsole.scheduling.volcano.api.fit_errors import FitError, PredicateCode

BINPACK_MAX_SCORE = 100


class BinpackPlugin(VolcanoPlugin):
    """Volcano 1.15 plugins/binpack."""

    name: ClassVar[str] = "binpack"

    def __init__(self, arguments: VolcanoArguments) -> None:
        self.weight = arguments.integer("binpack.weight", 1)
        self.weights = resource_weights(arguments, "binpack")
        self._asking: TaskInfo | None = None
        self._asked: list[tuple[str, int, float]] = []
        """Its requests for resources that have a weight: name, weight, amount."""

    def on_session_open(self, session: "VolcanoSession") -> None:
        if self.weight:
            session.functions.node_order[self.name] = self.score
            session.functions.alone[self.name] = always

    def score(self, task: TaskInfo, node: NodeInfo) -> float:
        """100 · weight · Σ w·(requested + used)/allocatable / Σ w over what is requested; 0 if it does not fit."""
        if self._asking is not task:
            request = task.request
            names = [name for name in request.names() if name in self.weights]
            self._asking, self._asked = task, [(name, self.weights[name], request.get(name)) for name in names]
        total, weights = 0.0, 0
        for name, weight, wanted in self._asked:
            capacity = node.allocatable.get(name)
            weights += weight
            if capacity and weight:
                used = wanted + node.used.get(name)
                if used > capacity:
                    return 0.0
                total += used * weight / capacity
        return (total / weights if weights else total) * (BINPACK_MAX_SCORE * self.weight)


MAX_SCORE = 100
DEFAULT_WEIGHT = 10
LEAST, MOST = "LeastAllocated", "MostAllocated"
TYPE_ANNOTATION = "volcano.sh/resource-strategy-scoring-type"
WEIGHT_ANNOTATION = "volcano.sh/resource-strategy-weight"


class ResourceScoringStrategy(Struct, frozen=True):
    """How one resource is scored."""

    type: str = LEAST
    weight: int = 1


class SpareShare(Struct, frozen=True):
    """Cores, and GB of memory, that must stay free for each free unit of a scarce resource."""

    cpu: float = 1.0
    memory: float = 1.0


class ResourceStrategyFitPlugin(VolcanoPlugin):
    """Volcano 1.15 plugins/resource-strategy-fit."""

    name: ClassVar[str] = "resource-strategy-fit"

    def __init__(self, arguments: VolcanoArguments) -> None:
        weight = arguments.integer("resourceStrategyFitWeight", DEFAULT_WEIGHT)
        self.weight = weight if weight >= 0 else DEFAULT_WEIGHT
        self.strategies = strategies(arguments.get("resources"))
        sra = _mapping(arguments.get("sra"))
        self.scarce = _weights(sra) if sra.get("enable") is True else {}
        self.scarce_weight = _whole(sra.get("weight"), 0) if sra.get("enable") is True else 0
        proportional = _mapping(arguments.get("proportional"))
        self.shares = _shares(proportional) if proportional.get("enable") is True else None

    def on_session_open(self, session: "VolcanoSession") -> None:
        if self.shares is not None:
            session.functions.predicates[self.name] = self._predicate
        if self.weight > 0 or self.scarce_weight > 0:
            session.functions.node_order[self.name] = self._score
            session.functions.alone[self.name] = always

    def _predicate(self, task: TaskInfo, node: NodeInfo) -> FitError | None:
        return unproportional(task, node, self.shares or {})

    def _score(self, task: TaskInfo, node: NodeInfo) -> float:
        total = fit_score(task, node, self.strategies, self.weight) if self.weight > 0 else 0.0
        return total + (self._spared(task, node) if self.scarce_weight > 0 else 0.0)

    def _spared(self, task: TaskInfo, node: NodeInfo) -> float:
        """Higher for nodes with fewer scarce resources; 0 if the node lacks a resource that the task requests."""
        if any(node.allocatable.get(name) == 0 for name in task.request.names()):
            return 0.0
        score = float(sum(weight for name, weight in self.scarce.items() if node.allocatable.get(name) > 0))
        total = sum(self.scarce.values())
        return (1.0 - score / total if total > 0 else score) * (MAX_SCORE * self.scarce_weight)


def strategies(given: object) -> dict[str, ResourceScoringStrategy]:
    """The strategy of each resource or pattern (`nvidia.com/*`); for cpu and memory LeastAllocated if none are given.

    A pattern has one star, at its end and not alone; others are left out.
    """
    listed = _mapping(given)
    if not listed:
        return {"cpu": ResourceScoringStrategy(), "memory": ResourceScoringStrategy()}
    result = {}
    for name, value in listed.items():
        if isinstance(name, str) and (name.count("*") == 0 or (len(name) > 1 and name.find("*") == len(name) - 1)):
            asked = _mapping(value)
            weight, kind = _whole(asked.get("weight"), 1), asked.get("type")
            result[name] = ResourceScoringStrategy(MOST if kind == MOST else LEAST, weight if weight > 0 else 1)
    return result


def strategy_of(name: str, listed: Mapping[str, ResourceScoringStrategy]) -> ResourceScoringStrategy | None:
    """The strategy of a resource: by its name, else by the longest pattern that matches it; None if there is none."""
    if name in listed:
        return listed[name]
    fitting = [pattern for pattern in listed if pattern.endswith("*") and name.startswith(pattern[:-1])]
    return listed[max(fitting, key=len)] if fitting else None


def most_requested(requested: float, used: float, capacity: float, weight: int) -> float | None:
    """weight · (used + requested)/capacity; 0 without weight or capacity, None if it does not fit."""
    if not weight or not capacity:
        return 0.0
    return None if requested + used > capacity else (requested + used) * weight / capacity


def least_requested(requested: float, used: float, capacity: float, weight: int) -> float | None:
    """weight · (capacity − used − requested)/capacity; 0 without weight or capacity, None if it does not fit."""
    if not weight or not capacity:
        return 0.0
    return None if requested + used > capacity else (capacity - (requested + used)) * weight / capacity


FORMULAS = {MOST: most_requested, LEAST: least_requested}


def fit_score(task: TaskInfo, node: NodeInfo, listed: Mapping[str, ResourceScoringStrategy], weight: int) -> float:
    """100 · weight · weighted mean over the requested resources; 0 if the task does not fit.

    A pod's annotations can replace the strategies by one with its own weights; if they are invalid the score is 0.
    """
    own = _own_strategies(task)
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


def _own_strategies(task: TaskInfo) -> Mapping[str, ResourceScoringStrategy] | None:
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


def unproportional(task: TaskInfo, node: NodeInfo, shares: Mapping[str, SpareShare]) -> FitError | None:
    """Why a task without scarce resources leaves too little cpu or memory for those that are free; None if it
    does not.
    """
    if any(task.request.get(name) > 0 for name in shares):
        return None
    for name, share in shares.items():
        free = (node.idle.scalars or {}).get(name)
        if free is None:
            continue
        cpu, memory = free * share.cpu, free * share.memory * 1000 * 1000
        if node.idle.cpu - task.request.cpu < cpu or node.idle.memory - task.request.memory < memory:
            reason = f"proportional of resource {name} check failed"
            return FitError.saying(PredicateCode.UNRESOLVABLE, reason, plugin=ResourceStrategyFitPlugin.name)
    return None


def _names(given: Mapping[object, object]) -> list[str]:
    text = given.get("resources")
    return [name.strip() for name in text.split(",") if name.strip()] if isinstance(text, str) else []


def _weights(given: Mapping[object, object]) -> dict[str, int]:
    listed = _mapping(given.get("resourceWeight"))
    weights = {name: _whole(listed.get(name), 1) for name in _names(given)}
    return {name: weight if weight >= 0 else 1 for name, weight in weights.items()}


def _shares(given: Mapping[object, object]) -> dict[str, SpareShare]:
    listed = _mapping(given.get("resourceProportion"))
    return {
        name: SpareShare(_rate(listed.get(f"{name}.cpu")), _rate(listed.get(f"{name}.memory")))
        for name in _names(given)
    }


def _rate(value: object) -> float:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) and value >= 0 else 1.0


def _mapping(value: object) -> Mapping[object, object]:
    return value if isinstance(value, Mapping) else {}


def _whole(value: object, base: int) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else base

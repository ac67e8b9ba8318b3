"""usage plugin: filters and scores nodes by their measured utilization."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from gpuconsole.model.clock import MINUTE
from gpuconsole.scheduling.volcano.api.fit_errors import FitError, PredicateCode
from gpuconsole.scheduling.volcano.api.node import NodeInfo
from gpuconsole.scheduling.volcano.api.task import TaskInfo
from gpuconsole.scheduling.volcano.arguments import VolcanoArguments
from gpuconsole.scheduling.volcano.functions import always
from gpuconsole.scheduling.volcano.plugin import VolcanoPlugin

if TYPE_CHECKING:
    from gpuconsole.scheduling.volcano.session import VolcanoSession

METRICS_PERIOD = "10m"
"""Period over which load is averaged (NODE_METRICS_PERIOD)."""
FRESH = 5 * MINUTE
"""Older measurements are ignored."""
MAX_SCORE = 100
CPU_EXCEEDED = "the CPU load of the node exceeds the upper limit."
MEMORY_EXCEEDED = "the memory load of the node exceeds the upper limit."


class UsagePlugin(VolcanoPlugin):
    """Volcano 1.15 plugins/usage."""

    name: ClassVar[str] = "usage"

    def __init__(self, arguments: VolcanoArguments) -> None:
        self.weight = arguments.integer("usage.weight", 5)
        self.cpu_weight = arguments.integer("cpu.weight", 1)
        self.memory_weight = arguments.integer("memory.weight", 1)
        given = arguments.get("thresholds")
        thresholds = given if isinstance(given, Mapping) else {}
        self.cpu_most = _percent(thresholds, "cpu")
        self.memory_most = _percent(thresholds, "mem")

    def on_session_open(self, session: "VolcanoSession") -> None:
        self._session = session
        session.functions.predicates[self.name] = self._predicate
        session.functions.node_order[self.name] = self._score
        session.functions.alone[self.name] = always

    def _fresh(self, node: NodeInfo) -> bool:
        return self._session.now - node.usage.measured <= FRESH

    def _predicate(self, task: TaskInfo, node: NodeInfo) -> FitError | None:
        if not self._fresh(node):
            return None
        if node.usage.cpu.get(METRICS_PERIOD, 0.0) > self.cpu_most:
            return FitError.saying(PredicateCode.UNRESOLVABLE, CPU_EXCEEDED, plugin=self.name)
        if node.usage.memory.get(METRICS_PERIOD, 0.0) > self.memory_most:
            return FitError.saying(PredicateCode.UNRESOLVABLE, MEMORY_EXCEEDED, plugin=self.name)
        return None

    def _score(self, task: TaskInfo, node: NodeInfo) -> float:
        """100 · weight · weighted mean of the free fractions of cpu and memory; 0 if they are unknown or stale."""
        cpu, memory = node.usage.cpu.get(METRICS_PERIOD), node.usage.memory.get(METRICS_PERIOD)
        weights = self.cpu_weight + self.memory_weight
        if not self._fresh(node) or cpu is None or memory is None or not weights:
            return 0.0
        free = (100 - cpu) / 100 * self.cpu_weight + (100 - memory) / 100 * self.memory_weight
        return free / weights * (MAX_SCORE * self.weight)


def _percent(thresholds: Mapping[object, object], name: str) -> float:
    """80 if it is missing; 0 for anything but a whole number."""
    value = thresholds.get(name, 80)
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else 0.0

"""usage and rescheduling plugins: avoid highly utilized nodes, and evict tasks from them.

usage plugin: filters and scores nodes by their measured utilization.

rescheduling plugin: periodically evicts tasks from overutilized nodes so that they can run on underutilized ones.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from gpuconsole.model.clock import MINUTE
from gpuconsole.scheduling.volcano.api.fit_errors import FitError, PredicateCode
from gpuconsole.scheduling.volcano.api.node import NodeInfo
from gpuconsole.scheduling.volcano.api.task import TaskInfo
from gpuconsole.scheduling.volcano.config import VolcanoArguments
from gpuconsole.scheduling.volcano.session_plugins import VolcanoPlugin, always

if TYPE_CHECKING:
    from gpuconsole.scheduling.volcano.session import VolcanoSession
from collections.abc import Callable, Iterable

from gpuconsole.model.resources import CPU, MEMORY
from gpuconsole.scheduling.volcano.api.task import qos_of
from gpuconsole.scheduling.volcano.config import span_of

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


INTERVAL = 5 * MINUTE
RESCHEDULING_PERIOD = "5m"
STRATEGY = "lowNodeUtilization"
NAMES = (CPU, MEMORY)


class ReschedulingPlugin(VolcanoPlugin):
    """Volcano 1.15 plugins/rescheduling with its only strategy, lowNodeUtilization; used by the shuffle action.

    Loads are measured by monitoring. A node is idle if all loads are below `thresholds`, busy if one is above
    `targetThresholds`; both are 100% by default, so that nothing is evicted.
    """

    name: ClassVar[str] = "rescheduling"

    def __init__(self, arguments: VolcanoArguments) -> None:
        interval = span_of(arguments.text("interval", ""))
        self.interval = INTERVAL if interval is None else interval
        self.period = arguments.text("metricsPeriod", RESCHEDULING_PERIOD) or RESCHEDULING_PERIOD
        self.strategies = _strategies(arguments.get("strategies"))

    def on_session_open(self, session: "VolcanoSession") -> None:
        self._session = session
        last = session.kept.setdefault(self.name, session.now)
        if last + self.interval >= session.now:
            return
        session.kept[self.name] = session.now
        session.functions.victim_tasks[self.name] = [self._chooser(given) for given in self.strategies]

    def _chooser(self, given: Mapping[object, object]) -> Callable[[list[TaskInfo]], list[TaskInfo]]:
        return lambda tasks: self._moved(tasks, given)

    def _moved(self, tasks: list[TaskInfo], given: Mapping[object, object]) -> list[TaskInfo]:
        """Victims on the busiest nodes first, the least important first, until a node is no longer busy."""
        low, target = _thresholds(given, "thresholds"), _thresholds(given, "targetThresholds")
        loads = {name: self._loads(info) for name, info in self._session.nodes.items() if info.node is not None}
        idle = [name for name, load in loads.items() if self._is_idle(name, load, low)]
        busy = [name for name, load in loads.items() if name not in idle and _exceeds(load, target)]
        if not idle or not busy:
            return []
        room = dict.fromkeys(NAMES, 0.0)
        for name in idle:
            for one in NAMES:
                room[one] += (target[one] - loads[name][one]) * self._session.nodes[name].allocatable.get(one) / 100
        candidates = {task.key: task for task in tasks}
        victims: list[TaskInfo] = []
        for name in sorted(busy, key=lambda name: (-sum(loads[name].values()), name)):
            victims += _relieved(self._session.nodes[name], loads[name], target, room, candidates)
        return victims

    def _loads(self, info: NodeInfo) -> dict[str, float]:
        return {CPU: info.usage.cpu.get(self.period, 0.0), MEMORY: info.usage.memory.get(self.period, 0.0)}

    def _is_idle(self, name: str, load: Mapping[str, float], low: Mapping[str, float]) -> bool:
        node = self._session.nodes[name].node
        return node is not None and not node.unschedulable and all(load[one] < low[one] for one in NAMES)


def _relieved(
    info: NodeInfo,
    load: dict[str, float],
    target: Mapping[str, float],
    room: dict[str, float],
    candidates: Mapping[str, TaskInfo],
) -> Iterable[TaskInfo]:
    """Victims on one node; each reduces the node's load and the room elsewhere."""
    order = sorted(info.tasks.values(), key=lambda one: (one.pod.priority, qos_of(one.pod.template), one.key))
    for task in order:
        if not any(load[name] >= target[name] for name in NAMES) or not all(room.values()):
            return
        if task.key in candidates:
            for name in NAMES:
                amount = task.request.get(name)
                room[name] -= amount
                load[name] -= amount * 100 / info.capacity.get(name)
            yield candidates[task.key]


def _exceeds(load: Mapping[str, float], target: Mapping[str, float]) -> bool:
    return any(load[name] > target[name] for name in NAMES)


def _thresholds(given: Mapping[object, object], key: str) -> dict[str, float]:
    listed = given.get(key)
    known = listed if isinstance(listed, Mapping) else {}
    return {name: float(known[name]) if isinstance(known.get(name), int) else 100.0 for name in NAMES}


def _strategies(given: object) -> list[Mapping[object, object]]:
    """Parameters of the known strategies; the default one if none are listed."""
    if not isinstance(given, list) or not given:
        return [{}]
    known = [one for one in given if isinstance(one, Mapping) and one.get("name") == STRATEGY]
    return [one["params"] if isinstance(one.get("params"), Mapping) else {} for one in known]

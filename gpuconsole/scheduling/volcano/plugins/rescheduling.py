"""rescheduling plugin: periodically evicts tasks from overutilized nodes so that they can run on underutilized ones."""

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, ClassVar

from gpuconsole.model.clock import MINUTE
from gpuconsole.model.resources import CPU, MEMORY
from gpuconsole.scheduling.volcano.api.node import NodeInfo
from gpuconsole.scheduling.volcano.api.qos import qos_of
from gpuconsole.scheduling.volcano.api.spans import span_of
from gpuconsole.scheduling.volcano.api.task import TaskInfo
from gpuconsole.scheduling.volcano.arguments import VolcanoArguments
from gpuconsole.scheduling.volcano.plugin import VolcanoPlugin

if TYPE_CHECKING:
    from gpuconsole.scheduling.volcano.session import VolcanoSession

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

"""Cache of node results for tasks of one class; only nodes that got or lost a task are evaluated again. Mutates.

Volcano itself evaluates every task, with the same results.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from gpuconsole.scheduling.kube.pod_classes import PodClasses
from gpuconsole.scheduling.volcano.api.fit_errors import FitError
from gpuconsole.scheduling.volcano.api.node import NodeInfo
from gpuconsole.scheduling.volcano.api.resource import ZERO
from gpuconsole.scheduling.volcano.api.task import TaskInfo
from gpuconsole.scheduling.volcano.jobs.labels import PARTITION, TASK_INDEX

if TYPE_CHECKING:
    from gpuconsole.scheduling.volcano.session import VolcanoSession

OWN = (TASK_INDEX, PARTITION)
"""Labels and annotations that differ between pods of one task and that no plugin reads when it evaluates a node."""
Kind = tuple[object, ...]
NONE, SOON, NOW = 0, 1, 2
"""Room for a task: none, once releasing resources are free, or now."""


class PredicateCache:
    """Predicate results, room and scores by class of tasks and node, valid until the node changes."""

    def __init__(self, session: "VolcanoSession") -> None:
        self._session = session
        self._shapes = PodClasses()
        self._kinds: dict[str, Kind | None] = {}
        self._verdicts: dict[Kind, dict[str, tuple[int, FitError | None]]] = {}
        self._rooms: dict[Kind, dict[str, tuple[int, int]]] = {}
        self._scores: dict[Kind, dict[str, tuple[int, float]]] = {}

    def kind(self, task: TaskInfo) -> Kind | None:
        """Key of a task's class for cached results; None if a plugin's result depends on more than the node and the
        class.
        """
        if task.uid not in self._kinds:
            self._kinds[task.uid] = self._kind(task)
        return self._kinds[task.uid]

    def verdicts(self, kind: Kind) -> dict[str, tuple[int, FitError | None]]:
        """By node: (the node's `changes`, why tasks of the class do not fit, None if they do). The caller adds
        entries.
        """
        return self._verdicts.setdefault(kind, {})

    def by_room(self, task: TaskInfo, nodes: Sequence[NodeInfo]) -> Mapping[int, list[NodeInfo]]:
        """The nodes grouped by NONE, SOON and NOW."""
        kind = self.kind(task)
        known = {} if kind is None else self._rooms.setdefault(kind, {})
        found: dict[int, list[NodeInfo]] = {NONE: [], SOON: [], NOW: []}
        for node in nodes:
            entry = known.get(node.name)
            if entry is None or entry[0] != node.changes:
                entry = known[node.name] = node.changes, room(task, node)
            found[entry[1]].append(node)
        return found

    def scores(self, task: TaskInfo) -> dict[str, tuple[int, float]] | None:
        """By node: (the node's `changes`, sum of per-node scores), to which the caller adds; None if nothing may be
        cached.
        """
        kind = self.kind(task)
        return None if kind is None else self._scores.setdefault(kind, {})

    def _kind(self, task: TaskInfo) -> Kind | None:
        functions = self._session.functions
        for name in (*functions.predicates, *functions.node_order):
            alone = functions.alone.get(name)
            if alone is None or not alone(task):
                return None
        pod = task.pod
        marks = ((key, value) for held in (pod.labels, pod.annotations) for key, value in held.items())
        shape = self._shapes.of(pod.template)
        return task.job, task.role, id(shape), task.priority, frozenset(mark for mark in marks if mark[0] not in OWN)


def room(task: TaskInfo, node: NodeInfo) -> int:
    """Whether the node has room for the task: NOW, SOON or NONE."""
    if task.init_request.less_equal(node.idle, ZERO):
        return NOW
    return SOON if task.init_request.less_equal(node.future_idle(), ZERO) else NONE

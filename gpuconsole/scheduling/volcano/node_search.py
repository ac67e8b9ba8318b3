"""Node search of a session: the nodes to evaluate, the feasible ones, and the best of them.

Predicate results and scores are cached for tasks of one class; only nodes that got or lost a task are evaluated again.
Volcano evaluates every task, with the same results.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain, islice

from gpuconsole.scheduling.kube.pod_classes import PodClasses
from gpuconsole.scheduling.volcano.api.job import FitError, FitErrors, PredicateCode, insufficient
from gpuconsole.scheduling.volcano.api.node import NodeInfo
from gpuconsole.scheduling.volcano.api.resource import ZERO
from gpuconsole.scheduling.volcano.api.task import TaskInfo
from gpuconsole.scheduling.volcano.jobs.states import PARTITION, TASK_INDEX
from gpuconsole.scheduling.volcano.session import VolcanoSession

OWN = (TASK_INDEX, PARTITION)
"""Labels and annotations that differ between pods of one task and do not affect whether a node fits."""
Kind = tuple[object, ...]
"""Key of a class of tasks; each node gives all tasks of the class the same results."""
NONE, SOON, NOW = 0, 1, 2
"""Room for a task: none, once releasing resources are free, or now."""


class PredicateCache:
    """Caches predicate results, room and scores by class of tasks and node, until the node changes."""

    def __init__(self, session: VolcanoSession) -> None:
        self._session = session
        self._shapes = PodClasses()
        self._kinds: dict[str, Kind | None] = {}
        self._verdicts: dict[Kind, dict[str, tuple[int, FitError | None]]] = {}
        self._rooms: dict[Kind, dict[str, tuple[int, int]]] = {}
        self._scores: dict[Kind, dict[str, tuple[int, float]]] = {}

    def kind(self, task: TaskInfo) -> Kind | None:
        """Key of a task's cached results; None if they depend on more than the node and the task's class."""
        if task.uid not in self._kinds:
            self._kinds[task.uid] = self._kind(task)
        return self._kinds[task.uid]

    def verdicts(self, kind: Kind) -> dict[str, tuple[int, FitError | None]]:
        """The cached predicate results of a class by node, to which the caller adds.

        Each is (the node's `changes`, why tasks of the class do not fit, None if they do).
        """
        return self._verdicts.setdefault(kind, {})

    def by_room(self, task: TaskInfo, nodes: Sequence[NodeInfo]) -> Mapping[int, list[NodeInfo]]:
        """Group the nodes by their room for the task: NONE, SOON and NOW."""
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
        """The cached scores of a task's class by node, to which the caller adds; None if nothing may be cached.

        Each is (the node's `changes`, sum of per-node scores).
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


Predicate = Callable[[TaskInfo, NodeInfo], FitError | None]


class Finder:
    """Searches feasible nodes for tasks. Mutates: nodes that rejected a task are skipped for its job and role."""

    def __init__(self, session: VolcanoSession, *, remembers: bool = True, memo: PredicateCache | None = None) -> None:
        self._session = session
        self._memo = memo
        self._remembers = remembers
        self._failed: dict[tuple[str, str], dict[str, FitError]] = {}

    def fitting(self, task: TaskInfo, nodes: Sequence[NodeInfo], fits: Predicate) -> tuple[list[NodeInfo], FitErrors]:
        """Search enough feasible nodes, starting where the last search ended; returns them, by name, and errors."""
        session = self._session
        errors = FitErrors()
        failed = self._failed.setdefault((task.job, task.role), {})
        known = failed if self._remembers and task.role else {}
        enough = session.sampling.enough(len(nodes))
        found: list[NodeInfo] = []
        kind = None if self._memo is None else self._memo.kind(task)
        judged = {} if self._memo is None or kind is None else self._memo.verdicts(kind)
        start, looked = session.search_start % max(len(nodes), 1), 0
        for node in chain(islice(nodes, start, None), islice(nodes, start)):
            looked += 1
            if node.name in known:
                errors.put(node.name, known[node.name])
                continue
            entry = judged.get(node.name)
            if entry is None or entry[0] != node.changes:
                entry = judged[node.name] = node.changes, session.out_of_shard(node) or fits(task, node)
            error = entry[1]
            if error is None:
                found.append(node)
                if len(found) == enough:
                    break
                continue
            failed[node.name] = error
            errors.put(node.name, error)
        if len(nodes) > session.sampling.minimum_nodes:
            session.search_start = (start + looked) % len(nodes)
        return sorted(found, key=lambda node: node.name), errors


def resource_fit(task: TaskInfo, node: NodeInfo) -> FitError | None:
    """Why the node's idle and releasing resources do not suffice for the task; None if they do."""
    if task.init_request.less_equal(node.idle, ZERO) and node.pipelined.untouched:
        return None
    missing = task.init_request.exceeding(node.future_idle(), ZERO)
    return FitError.saying(PredicateCode.UNSCHEDULABLE, insufficient(missing)) if missing else None


def by_score(scores: Mapping[str, float], nodes: Iterable[NodeInfo]) -> list[NodeInfo]:
    """The nodes by score, the highest first; equal ones keep their order."""
    return sorted(nodes, key=lambda node: -scores[node.name])


def best_of(scores: Mapping[str, float]) -> str:
    """The node name with the highest score, the first by name among equals; empty if there are no scores."""
    return min(scores, key=lambda name: (-scores[name], name), default="")


def best_node(
    session: VolcanoSession, task: TaskInfo, nodes: Sequence[NodeInfo], memo: PredicateCache | None = None
) -> NodeInfo | None:
    """The node that a plugin picks, else the first by name of those with the highest score; None without nodes."""
    if not nodes:
        return None
    scores = session.node_scores(task, nodes, None if memo is None else memo.scores(task))
    if session.functions.best_node:
        groups: dict[float, list[NodeInfo]] = {}
        for node in nodes:
            groups.setdefault(scores[node.name], []).append(node)
        picked = session.best_node(task, groups)
        if picked is not None:
            return picked
    best = best_of(scores)
    return next(node for node in nodes if node.name == best)


def choose_node(
    session: VolcanoSession, task: TaskInfo, nodes: Sequence[NodeInfo], memo: PredicateCache | None = None
) -> NodeInfo | None:
    """The best node with room now, else the best with room once resources are released; its own shard before others."""
    by_room = (memo or PredicateCache(session)).by_room(task, nodes)
    idle, soon = by_room[NOW], by_room[SOON]
    for candidates in (*session.by_shard(idle), *session.by_shard(soon)):
        if len(candidates) == 1:
            return candidates[0]
        best = best_node(session, task, candidates, memo)
        if best is not None:
            return best
    return None


def victims_suffice(task: TaskInfo, node: NodeInfo, victims: Iterable[TaskInfo]) -> bool:
    """True if the task would fit on the node once all these victims are gone (ValidateVictims).

    An empty list can suffice: earlier evictions may have freed enough for this task too.
    """
    room = node.future_idle()
    for victim in victims:
        room.add(victim.request)
    return task.init_request.less_equal(room, ZERO)

"""Node search of a session: the nodes to evaluate, the feasible ones, and the best of them.

Predicate results and scores are cached for tasks of one class; only nodes that got or lost a task are evaluated again.
Volcano evaluates every task, with the same results.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain, islice

from gpuconsole.scheduling.kube.pod_classes import PodClasses
from gpuconsole.scheduling.volcano.api.job import FitError, FitErrors, PredicateCode, insufficient_reason
from gpuconsole.scheduling.volcano.api.node import NodeInfo
from gpuconsole.scheduling.volcano.api.resource import ZERO
from gpuconsole.scheduling.volcano.api.task import TaskInfo
from gpuconsole.scheduling.volcano.jobs.states import PARTITION, TASK_INDEX
from gpuconsole.scheduling.volcano.session import VolcanoSession

POD_SPECIFIC_KEYS = (TASK_INDEX, PARTITION)
"""Labels and annotations that differ between pods of one task and do not affect whether a node fits."""
TaskClassKey = tuple[object, ...]
"""Key of a class of tasks; each node gives all tasks of the class the same results."""
NO_ROOM, ROOM_AFTER_RELEASE, ROOM_NOW = 0, 1, 2
"""Room for a task: none, once releasing resources are free, or now."""


class PredicateCache:
    """Caches predicate results, room and scores by class of tasks and node, until the node changes."""

    def __init__(self, session: VolcanoSession) -> None:
        self._session = session
        self._pod_classes = PodClasses()
        self._class_keys: dict[str, TaskClassKey | None] = {}
        self._predicate_results: dict[TaskClassKey, dict[str, tuple[int, FitError | None]]] = {}
        self._rooms: dict[TaskClassKey, dict[str, tuple[int, int]]] = {}
        self._scores: dict[TaskClassKey, dict[str, tuple[int, float]]] = {}

    def class_key(self, task: TaskInfo) -> TaskClassKey | None:
        """Key of a task's cached results; None if they depend on more than the node and the task's class."""
        if task.uid not in self._class_keys:
            self._class_keys[task.uid] = self._compute_class_key(task)
        return self._class_keys[task.uid]

    def predicate_results(self, class_key: TaskClassKey) -> dict[str, tuple[int, FitError | None]]:
        """The cached predicate results of a class by node, to which the caller adds.

        Each is (the node's `change_count`, why tasks of the class do not fit, None if they do).
        """
        return self._predicate_results.setdefault(class_key, {})

    def nodes_by_room(self, task: TaskInfo, nodes: Sequence[NodeInfo]) -> Mapping[int, list[NodeInfo]]:
        """Group the nodes by their room for the task: NO_ROOM, ROOM_AFTER_RELEASE or ROOM_NOW."""
        class_key = self.class_key(task)
        known = {} if class_key is None else self._rooms.setdefault(class_key, {})
        found: dict[int, list[NodeInfo]] = {NO_ROOM: [], ROOM_AFTER_RELEASE: [], ROOM_NOW: []}
        for node in nodes:
            entry = known.get(node.name)
            if entry is None or entry[0] != node.change_count:
                entry = known[node.name] = node.change_count, room_for(task, node)
            found[entry[1]].append(node)
        return found

    def scores(self, task: TaskInfo) -> dict[str, tuple[int, float]] | None:
        """The cached scores of a task's class by node, to which the caller adds; None if nothing may be cached.

        Each is (the node's `change_count`, sum of per-node scores).
        """
        class_key = self.class_key(task)
        return None if class_key is None else self._scores.setdefault(class_key, {})

    def _compute_class_key(self, task: TaskInfo) -> TaskClassKey | None:
        functions = self._session.functions
        for name in (*functions.predicates, *functions.node_order):
            alone = functions.cacheable_tasks.get(name)
            if alone is None or not alone(task):
                return None
        pod = task.pod
        marks = ((key, value) for held in (pod.labels, pod.annotations) for key, value in held.items())
        pod_class = self._pod_classes.of(pod.template)
        return (
            task.job,
            task.role,
            id(pod_class),
            task.priority,
            frozenset(mark for mark in marks if mark[0] not in POD_SPECIFIC_KEYS),
        )


def room_for(task: TaskInfo, node: NodeInfo) -> int:
    """Whether the node has room for the task: NOW, SOON or NONE."""
    if task.init_request.less_equal(node.idle, ZERO):
        return ROOM_NOW
    return ROOM_AFTER_RELEASE if task.init_request.less_equal(node.future_idle(), ZERO) else NO_ROOM


Predicate = Callable[[TaskInfo, NodeInfo], FitError | None]


class NodeFinder:
    """Searches feasible nodes for tasks. Mutates: nodes that rejected a task are skipped for its job and role."""

    def __init__(
        self, session: VolcanoSession, *, remembers: bool = True, predicate_cache: PredicateCache | None = None
    ) -> None:
        self._session = session
        self._predicate_cache = predicate_cache
        self._caches_rejections = remembers
        self._rejections: dict[tuple[str, str], dict[str, FitError]] = {}

    def find_feasible(
        self, task: TaskInfo, nodes: Sequence[NodeInfo], fits: Predicate
    ) -> tuple[list[NodeInfo], FitErrors]:
        """Search enough feasible nodes, starting where the last search ended; returns them, by name, and errors."""
        session = self._session
        errors = FitErrors()
        failed = self._rejections.setdefault((task.job, task.role), {})
        known = failed if self._caches_rejections and task.role else {}
        enough = session.sampling.nodes_to_find(len(nodes))
        found: list[NodeInfo] = []
        class_key = None if self._predicate_cache is None else self._predicate_cache.class_key(task)
        judged = (
            {}
            if self._predicate_cache is None or class_key is None
            else self._predicate_cache.predicate_results(class_key)
        )
        start, looked = session.search_start % max(len(nodes), 1), 0
        for node in chain(islice(nodes, start, None), islice(nodes, start)):
            looked += 1
            if node.name in known:
                errors.set_error(node.name, known[node.name])
                continue
            entry = judged.get(node.name)
            if entry is None or entry[0] != node.change_count:
                entry = judged[node.name] = node.change_count, session.out_of_shard_error(node) or fits(task, node)
            error = entry[1]
            if error is None:
                found.append(node)
                if len(found) == enough:
                    break
                continue
            failed[node.name] = error
            errors.set_error(node.name, error)
        if len(nodes) > session.sampling.minimum_nodes:
            session.search_start = (start + looked) % len(nodes)
        return sorted(found, key=lambda node: node.name), errors


def resource_fit(task: TaskInfo, node: NodeInfo) -> FitError | None:
    """Why the node's idle and releasing resources do not suffice for the task; None if they do."""
    if task.init_request.less_equal(node.idle, ZERO) and node.pipelined.is_unset:
        return None
    missing = task.init_request.exceeded_names(node.future_idle(), ZERO)
    return FitError.from_reasons(PredicateCode.UNSCHEDULABLE, insufficient_reason(missing)) if missing else None


def nodes_by_score(scores: Mapping[str, float], nodes: Iterable[NodeInfo]) -> list[NodeInfo]:
    """The nodes by score, the highest first; equal ones keep their order."""
    return sorted(nodes, key=lambda node: -scores[node.name])


def highest_scored_name(scores: Mapping[str, float]) -> str:
    """The node name with the highest score, the first by name among equals; empty if there are no scores."""
    return min(scores, key=lambda name: (-scores[name], name), default="")


def best_node(
    session: VolcanoSession, task: TaskInfo, nodes: Sequence[NodeInfo], predicate_cache: PredicateCache | None = None
) -> NodeInfo | None:
    """The node that a plugin picks, else the first by name of those with the highest score; None without nodes."""
    if not nodes:
        return None
    scores = session.node_scores(task, nodes, None if predicate_cache is None else predicate_cache.scores(task))
    if session.functions.best_node:
        groups: dict[float, list[NodeInfo]] = {}
        for node in nodes:
            groups.setdefault(scores[node.name], []).append(node)
        picked = session.best_node(task, groups)
        if picked is not None:
            return picked
    best = highest_scored_name(scores)
    return next(node for node in nodes if node.name == best)


def choose_node(
    session: VolcanoSession, task: TaskInfo, nodes: Sequence[NodeInfo], predicate_cache: PredicateCache | None = None
) -> NodeInfo | None:
    """The best node with room now, else the best with room once resources are released; its own shard before others."""
    by_room = (predicate_cache or PredicateCache(session)).nodes_by_room(task, nodes)
    idle, soon = by_room[ROOM_NOW], by_room[ROOM_AFTER_RELEASE]
    for candidates in (*session.split_by_shard(idle), *session.split_by_shard(soon)):
        if len(candidates) == 1:
            return candidates[0]
        best = best_node(session, task, candidates, predicate_cache)
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

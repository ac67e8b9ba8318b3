"""A KAI scheduling session: cluster, plugin functions, job order, node rankings, decisions (KAI 0.13 framework).

Decisions change the session's cluster at once; the caller carries them out afterwards. `JobsByQueue` orders jobs down
the tree of queues, then by the plugins' job order; victims in reverse, first the last job of the queue that is served
last.

`Rankings` order nodes as KAI does, by score, then by name. KAI scores every node for every task; here equal nodes are
scored once, only changed nodes are scored again, and scores that are relative to all nodes are computed once for nodes
with equal values.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from math import floor
from typing import Protocol, TypeVar, Union, cast

from msgspec import Struct

from gpuconsole.model.clock import Time
from gpuconsole.scheduling.heap import Heap
from gpuconsole.scheduling.kai.api.jobs import (
    PodGroupInfo,
    PodSetInfo,
    SubGroup,
    TopologyInfo,
    request_to_allocate,
    tasks_to_allocate,
)
from gpuconsole.scheduling.kai.api.nodes import DEFAULT_GPU_MEMORY, KaiNodeInfo, fits_shared
from gpuconsole.scheduling.kai.api.tasks import ClaimIndex, KaiPodStatus, PodInfo, ResourceAmounts
from gpuconsole.scheduling.kai.config import KaiConfiguration, SchedulerFlags
from gpuconsole.scheduling.kai.fair_share.division import QueueState
from gpuconsole.scheduling.kai.fair_share.reclaimable import OverCapacity
from gpuconsole.scheduling.kai.functions import CannotScore, KaiFunctions, NodeSet, RelativeNodeScorer, SolverScenario
from gpuconsole.scheduling.kai.messages import NodeError, TaskErrors, node_misfit
from gpuconsole.scheduling.kube.inter_pod_affinity import has_pod_affinity
from gpuconsole.scheduling.kube.volumes import Storage, VolumeBindingPlan

MAX_RANKINGS = 16
"""Most rankings, and most groupings of nodes, that a session caches."""
_Class = tuple[float, tuple[float | None, ...]]
"""Sum of a node's scores that do not depend on other nodes, and its measures."""


class _Outcome(Struct, frozen=True):
    """Result of a node for a task; a node without `base_score` is left out of the ranking."""

    measures: tuple[float | None, ...]
    lacking: bool = False
    """Its idle and releasing resources are too few."""
    refused: bool = False
    """A fixed predicate excludes it."""
    base_score: float | None = None


class Rankings:
    """Caches node rankings of a session, by set of nodes and shape of task. Mutates."""

    def __init__(self, session: KaiSession) -> None:
        self._session = session
        self._rankings: dict[Hashable, Ranking] = {}
        self._groups: dict[int, NodeGroups] = {}

    def ranking_of(self, task: PodInfo, nodes: NodeSet) -> Ranking:
        """The ranking of these nodes for the task, up to date."""
        functions = self._session.functions
        key = (id(nodes), task.equivalence_key, tuple(ask(task) for ask in functions.score_keys))
        found = self._rankings.get(key)
        if found is None:
            if len(self._rankings) >= MAX_RANKINGS:
                del self._rankings[next(iter(self._rankings))]
            found = self._rankings[key] = Ranking(self._session, task, self._grouped(nodes))
        found.refresh(task)
        return found

    def _grouped(self, nodes: NodeSet) -> NodeGroups:
        found = self._groups.get(id(nodes))
        if found is None:
            if len(self._groups) >= MAX_RANKINGS:
                del self._groups[next(iter(self._groups))]
            found = self._groups[id(nodes)] = NodeGroups(nodes, self._session.changes)
        found.refresh()
        return found


class NodeGroups:
    """Groups a set of nodes by kind (`KaiNodeInfo.equivalence_key`), so that equal nodes are scored once. Mutates."""

    def __init__(self, nodes: NodeSet, changes: Sequence[str]) -> None:
        self._nodes = nodes
        """Held so that its id, a key of groupings and rankings, is not reused."""
        self._changes, self._changes_seen = changes, len(changes)
        self.by_name = {node.name: node for node in sorted(nodes, key=lambda node: node.name)}
        self._group_numbers: dict[Hashable, int] = {}
        """Kind of nodes → its number, which is quicker to look up."""
        self._group_by_node: dict[str, tuple[Hashable, int]] = {}
        self.names: dict[int, list[str]] = {}
        """The nodes of each kind, by name."""
        self._is_listed = {name: self.group_of(name) for name in self.by_name}
        """The kind under which `names` lists each node; `group_of` may already be newer."""
        for name, kind in self._is_listed.items():
            self.names.setdefault(kind, []).append(name)

    def refresh(self) -> None:
        """Regroup the nodes that changed."""
        if self._changes_seen == len(self._changes):
            return
        changed = dict.fromkeys(self._changes[self._changes_seen :])
        self._changes_seen = len(self._changes)
        for name in changed:
            if name in self.by_name:
                self._regroup(name)

    def group_of(self, name: str) -> int:
        """The number of the node's kind as it is now."""
        kind = self.by_name[name].equivalence_key
        known = self._group_by_node.get(name)
        if known is None or known[0] is not kind:
            known = self._group_by_node[name] = (kind, self._group_numbers.setdefault(kind, len(self._group_numbers)))
        return known[1]

    def _regroup(self, name: str) -> None:
        """List the node under its current kind."""
        before, kind = self._is_listed[name], self.group_of(name)
        if before != kind:
            names = self.names[before]
            del names[bisect_left(names, name)]
            insort(self.names.setdefault(kind, []), name)
            self._is_listed[name] = kind


class Ranking:
    """Order of a set of nodes by score, for tasks of one shape. Mutates."""

    def __init__(self, session: KaiSession, task: PodInfo, groups: NodeGroups) -> None:
        self._functions, self._changes, self._changes_seen = session.functions, session.changes, len(session.changes)
        self._groups, self._by_name = groups, groups.by_name
        self._evaluations: dict[int, _Outcome] = {}
        """Result by kind of node."""
        self._selects_nodes = task.selects_nodes or any(ask(task) is not None for ask in session.functions.score_keys)
        self._classes: dict[_Class, list[str]] = {}
        self._class_of: dict[str, _Class] = {}
        self._measured: dict[str, tuple[float | None, ...]] = {}
        self._counts: list[Counter[float]] = [Counter() for _ in self._functions.relative_scores]
        self._lacking: dict[str, dict[bool, NodeError | None]] = {}
        """Nodes that have too little for the task → fit error by whether the job is a gang, once worded."""
        self._refused: dict[str, None] = {}
        """Nodes that a fixed predicate excludes, in order."""
        self._rank_all(task)

    def refresh(self, task: PodInfo) -> None:
        """Score the nodes that changed again."""
        if self._changes_seen == len(self._changes):
            return
        changed = dict.fromkeys(self._changes[self._changes_seen :])
        self._changes_seen = len(self._changes)
        for name in changed:
            node = self._by_name.get(name)
            if node is not None:
                self._remove_node(name)
                self._rank_one(self._cached_evaluation(task, node), name, insort)

    def _rank_all(self, task: PodInfo) -> None:
        if self._selects_nodes:
            for name, node in self._by_name.items():
                self._rank_one(self._evaluate(task, node), name, list.append)
            return
        for names in self._groups.names.values():
            if names:
                self._rank_many(self._cached_evaluation(task, self._by_name[names[0]]), names)
        self._lacking = {name: {} for name in sorted(self._lacking)}
        self._refused = dict.fromkeys(sorted(self._refused))
        for names in self._classes.values():
            names.sort()

    def _rank_one(self, evaluation: _Outcome, name: str, insert: Callable[[list[str], str], None]) -> None:
        measures = self._measured[name] = evaluation.measures
        for counts, value in zip(self._counts, measures, strict=True):
            if value is not None:
                counts[value] += 1
        if evaluation.lacking:
            self._lacking[name] = {}
        elif evaluation.refused:
            self._refused[name] = None
        elif evaluation.base_score is not None:
            found = self._class_of[name] = (evaluation.base_score, measures)
            insert(self._classes.setdefault(found, []), name)

    def _rank_many(self, evaluation: _Outcome, names: Sequence[str]) -> None:
        """`_rank_one` for many equal nodes; the caller sorts the lists."""
        measures = evaluation.measures
        self._measured.update(dict.fromkeys(names, measures))
        for counts, value in zip(self._counts, measures, strict=True):
            if value is not None:
                counts[value] += len(names)
        if evaluation.lacking:
            self._lacking.update((name, {}) for name in names)
        elif evaluation.refused:
            self._refused.update(dict.fromkeys(names))
        elif evaluation.base_score is not None:
            found = (evaluation.base_score, measures)
            self._class_of.update(dict.fromkeys(names, found))
            self._classes.setdefault(found, []).extend(names)

    def _cached_evaluation(self, task: PodInfo, node: KaiNodeInfo) -> _Outcome:
        """The node's result, shared by nodes of its kind unless the task selects nodes by name or label."""
        if self._selects_nodes:
            return self._evaluate(task, node)
        kind = self._groups.group_of(node.name)
        known = self._evaluations.get(kind)
        if known is None:
            known = self._evaluations[kind] = self._evaluate(task, node)
        return known

    def _evaluate(self, task: PodInfo, node: KaiNodeInfo) -> _Outcome:
        functions = self._functions
        measures = tuple(m.measure(task, node) for m in functions.relative_scores)
        if not node.is_allocatable_or_pipelinable(task):
            return _Outcome(measures, lacking=True)
        if not all(allows(task, node) for allows in functions.node_only_predicates):
            return _Outcome(measures, refused=True)
        try:
            return _Outcome(measures, base_score=sum(scorer.score(task, node) for scorer in functions.node_order))
        except CannotScore:
            return _Outcome(measures)

    def _remove_node(self, name: str) -> None:
        for counts, value in zip(self._counts, self._measured[name], strict=True):
            if value is not None:
                counts[value] -= 1
                if not counts[value]:
                    del counts[value]
        self._lacking.pop(name, None)
        self._refused.pop(name, None)
        found = self._class_of.pop(name, None)
        if found is not None:
            names = self._classes[found]
            del names[bisect_left(names, name)]
            if not names:
                del self._classes[found]

    def nodes_in_order(self) -> Iterator[KaiNodeInfo]:
        """The nodes that could take the task, best first."""
        ranges = [value_range(counts) for counts in self._counts]
        by_total: dict[float, list[list[str]]] = {}
        for found, names in self._classes.items():
            by_total.setdefault(_total_score(found, self._functions.relative_scores, ranges), []).append(names)
        for total in sorted(by_total, reverse=True):
            equal_class = by_total[total]
            for name in equal_class[0] if len(equal_class) == 1 else heapq.merge(*equal_class):
                yield self._by_name[name]

    def lacking_nodes(self, task: PodInfo, gang: bool) -> Mapping[str, NodeError]:
        """The nodes with insufficient resources, and what each lacks; for gangs without numbers."""
        found: dict[str, NodeError] = {}
        for name, known in self._lacking.items():
            if gang not in known:
                node = self._by_name[name]
                known[gang] = None if node.is_allocatable(task) else node_misfit(task, node, gang)
            error = known[gang]
            if error is not None:
                found[name] = error
        return found

    def refused_nodes(self) -> Iterator[KaiNodeInfo]:
        """The nodes that cannot take the task whatever is free on them."""
        return (self._by_name[name] for name in self._refused)


def value_range(values: Collection[float]) -> tuple[float, float]:
    """(lowest, highest) of the values, the latter at least 0; (infinity, 0) without values."""
    return (min(values), max(0.0, *values)) if values else (float("inf"), 0.0)


def _total_score(found: _Class, measures: Sequence[RelativeNodeScorer], ranges: Sequence[tuple[float, float]]) -> float:
    base, values = found
    return base + sum(m.score(value, *span) for m, value, span in zip(measures, values, ranges, strict=True))


WHOLE_GPU = "-2"
"""Stands for an unused GPU in lists of GPUs that a task could share."""
T = TypeVar("T")
_CONFIGURATION = KaiConfiguration()
_PARAMETERS = SchedulerFlags()


class BoundTask(Struct, frozen=True):
    """Decision: the task is bound to its node."""

    task: PodInfo


class EvictedTask(Struct, frozen=True, kw_only=True):
    """Decision: an action evicts the task for the job `by` (`namespace/name`, empty if for none).

    `gang` is the number of tasks that are evicted together with it, itself included.
    """

    task: PodInfo
    message: str
    action: str
    by: str = ""
    gang: int = 0


class PipelinedTask(Struct, frozen=True):
    """Decision: the task waits for releasing resources of its node."""

    task: PodInfo


Decision = Union[BoundTask, EvictedTask, PipelinedTask]


class KaiSession:
    """One scheduling session: jobs, nodes and queues, the plugins' functions, and the decisions so far. Mutates."""

    def __init__(
        self,
        *,
        jobs: Iterable[PodGroupInfo] = (),
        nodes: Iterable[KaiNodeInfo] = (),
        queues: Iterable[QueueState] = (),
        topologies: Sequence[TopologyInfo] = (),
        claims: ClaimIndex | None = None,
        storage: Storage | None = None,
        now: Time = 0,
        configuration: KaiConfiguration = _CONFIGURATION,
        parameters: SchedulerFlags = _PARAMETERS,
        least_gpu_memory: int = DEFAULT_GPU_MEMORY,
    ) -> None:
        self.jobs = {job.uid: job for job in sorted(jobs, key=lambda job: job.uid)}
        self.nodes = {node.name: node for node in sorted(nodes, key=lambda node: node.name)}
        self.queues = {queue.uid: queue for queue in sorted(queues, key=lambda queue: queue.uid)}
        self.topologies, self.now = topologies, now
        self.claims = claims or ClaimIndex()
        self.storage = storage or Storage()
        self.assumed_volumes: dict[str, VolumeBindingPlan] = {}
        """Task → volumes assumed for its claims on its node."""
        self.configuration, self.parameters = configuration, parameters
        self.least_gpu_memory = least_gpu_memory
        self.functions = KaiFunctions()
        self.decisions: list[Decision] = []
        self._groups = 0
        self.changes: list[str] = []
        """Names of nodes, one entry for each change of their accounting, in order."""
        for node in self.nodes.values():
            node.changes = self.changes
        self.all_nodes = list(self.nodes.values())
        self._rankings = Rankings(self)

    def new_gpu_group(self) -> str:
        """A new sharing group name, for a GPU that starts to be shared."""
        self._groups += 1
        return f"new-gpu-{self._groups}"

    # Decisions

    def bind(self, task: PodInfo) -> None:
        """Decide to bind a task to the node that it is allocated on."""
        self.jobs[task.job].update_status(task, KaiPodStatus.BINDING)
        self.decisions.append(BoundTask(task))

    def evict(self, evicted: EvictedTask) -> None:
        """Decide to evict a task outside of any statement."""
        task = evicted.task
        self.decisions.append(evicted)
        self.jobs[task.job].update_status(task, KaiPodStatus.RELEASING)
        self.nodes[task.node].update_task(task)
        self.call_handlers(self.functions.on_deallocate, task)

    def call_handlers(self, handlers: Sequence[Callable[[PodInfo], None]], task: PodInfo) -> None:
        """Call plugins' handlers, `functions.on_allocate` or `functions.on_deallocate`, for a task."""
        for handler in handlers:
            handler(task)

    # Orders

    def job_before(self, one: PodGroupInfo, other: PodGroupInfo) -> bool:
        """True if the first job comes first: by the plugins, then by creation time and uid."""
        order = _first_nonzero(self.functions.job_order, one, other)
        return order < 0 if order else (one.created, one.uid) < (other.created, other.uid)

    def task_before(self, one: PodInfo, other: PodInfo) -> bool:
        """True if the first task comes first: by the plugins, then by creation time and uid."""
        order = _first_nonzero(self.functions.task_order, one, other)
        return order < 0 if order else (one.spec.created, one.uid) < (other.spec.created, other.uid)

    def pod_set_before(self, one: PodSetInfo, other: PodSetInfo) -> bool:
        """True if the first pod set comes first: by the plugins, then by name."""
        order = _first_nonzero(self.functions.pod_set_order, one, other)
        return order < 0 if order else one.name < other.name

    def queue_before(
        self,
        one: QueueState,
        other: QueueState,
        jobs: tuple[PodGroupInfo | None, PodGroupInfo | None],
        victims: tuple[Sequence[PodGroupInfo], Sequence[PodGroupInfo]],
    ) -> bool:
        """True if the first queue comes first, with the next jobs and victims of both: by plugins, then age and uid."""
        for compare in self.functions.queue_order:
            order = compare(one, other, *jobs, *victims)
            if order:
                return order < 0
        return (one.created, one.uid) < (other.created, other.uid)

    # Requests of a job

    def tasks_to_allocate(self, job: PodGroupInfo, only_pending: bool) -> list[PodInfo]:
        """The tasks that must be placed together next (`tasks_to_allocate`)."""
        return tasks_to_allocate(job, self.pod_set_before, self.task_before, only_pending)

    def request_to_allocate(self, job: PodGroupInfo | None, only_pending: bool = False) -> ResourceAmounts:
        """Total request of the tasks that `tasks_to_allocate` returns; nothing without a job."""
        return request_to_allocate(job, self.pod_set_before, self.task_before, only_pending, self.least_gpu_memory)

    # Votes: for queues the first registered function decides; victims need the consent of all functions

    def may_reclaim(self, job: PodGroupInfo) -> bool:
        """True if the job may reclaim from other queues: only the first plugin with a function for this decides."""
        return bool(self.functions.may_reclaim) and self.functions.may_reclaim[0](job)

    def is_reclaim_victim(self, reclaimer: PodGroupInfo, victim: PodGroupInfo) -> bool:
        """True if all plugins let the reclaimer take resources from the victim."""
        return all(allows(reclaimer, victim) for allows in self.functions.reclaim_victims)

    def is_preempt_victim(self, preemptor: PodGroupInfo, victim: PodGroupInfo) -> bool:
        """True if all plugins let the preemptor preempt the victim."""
        return all(allows(preemptor, victim) for allows in self.functions.preempt_victims)

    def is_reclaim_allowed(self, scenario: SolverScenario) -> bool:
        """True if all plugins let the victims of the scenario be reclaimed together."""
        return all(allows(scenario) for allows in self.functions.reclaim_scenarios)

    def is_preempt_allowed(self, scenario: SolverScenario) -> bool:
        """True if all plugins let the victims of the scenario be preempted together."""
        return all(allows(scenario) for allows in self.functions.preempt_scenarios)

    def notify_solution_start(self) -> None:
        """Tell plugins that the search for victims of a job begins."""
        for start in self.functions.on_solution_start:
            start()

    def find_exceeded_quota(self, job: PodGroupInfo, tasks: Sequence[PodInfo]) -> OverCapacity | None:
        """The queue whose quota the tasks of a non-preemptible job would exceed; None if there is none."""
        return self.functions.over_quota[0](job, tasks) if self.functions.over_quota else None

    def find_exceeded_capacity(self, job: PodGroupInfo, tasks: Sequence[PodInfo]) -> OverCapacity | None:
        """The queue whose limit or quota the tasks would exceed; None if there is none."""
        return self.functions.over_capacity[0](job, tasks) if self.functions.over_capacity else None

    def find_exceeded_capacity_on_node(
        self, task: PodInfo, job: PodGroupInfo, node: KaiNodeInfo
    ) -> OverCapacity | None:
        """The queue whose limit or quota the task would exceed on this node; None if there is none."""
        functions = self.functions.over_capacity_on_node
        return functions[0](task, job, node) if functions else None

    def queue_usage_text(self, queue: QueueState) -> str:
        """Usage and quota of a queue as text."""
        return self.functions.queue_use[0](queue) if self.functions.queue_use else ""

    def queue_depth(self, action: str) -> int:
        """How many jobs of each queue an action tries at most; -1 means all."""
        return self.configuration.queue_depth.get(action, -1)

    # Nodes for a task

    def subset_nodes(
        self,
        job: PodGroupInfo,
        group: SubGroup | PodSetInfo,
        pod_sets: Mapping[str, PodSetInfo],
        tasks: Sequence[PodInfo],
        nodes: NodeSet,
    ) -> list[NodeSet]:
        """The sets of nodes that a group may be placed on, best first. Raises NoNodes."""
        sets = [nodes]
        for split in self.functions.subsets:
            sets = [part for whole in sets for part in split(job, group, pod_sets, tasks, whole)]
        return sets

    def prefilter_refusal(self, task: PodInfo, job: PodGroupInfo) -> str | None:
        """Why the task fits no node at all; None if it may fit one."""
        for ask in self.functions.pre_predicates:
            reason = ask(task, job)
            if reason is not None:
                return reason
        return None

    def ranking(self, task: PodInfo, nodes: NodeSet) -> Ranking:
        """The nodes ordered for the task, best first, equal ones by name; without those that a plugin cannot score."""
        return self._rankings.ranking_of(task, nodes)

    def record_lacking_nodes(self, task: PodInfo, ranking: Ranking) -> None:
        """Record in the task's job why nodes that the ranking leaves out do not fit the task."""
        job = self.jobs[task.job]
        errors = TaskErrors()
        errors.nodes.update(ranking.lacking_nodes(task, _is_gang(job)))
        if errors.nodes:
            job.add_task_errors(task, errors)
        for node in ranking.refused_nodes():
            self.fits_node(task, node, True)

    def fits_node(self, task: PodInfo, node: KaiNodeInfo, record_reason: bool) -> bool:
        """True if the node fits the task, perhaps after a release; with `record_reason`, the job records why not."""
        job = self.jobs[task.job]
        error = None
        if not node.is_allocatable_or_pipelinable(task):
            error = node_misfit(task, node, _is_gang(job)) if record_reason and not node.is_allocatable(task) else None
        else:
            error = self._predicate_error(task, job, node)
            if error is None:
                return True
        if record_reason and error is not None:
            errors = TaskErrors()
            errors.nodes[node.name] = error
            job.add_task_errors(task, errors)
        return False

    def _predicate_error(self, task: PodInfo, job: PodGroupInfo, node: KaiNodeInfo) -> NodeError | None:
        for ask in self.functions.predicates:
            error = ask(task, job, node)
            if error is not None:
                return error
        return None

    def gpus_for_sharing(self, task: PodInfo, node: KaiNodeInfo) -> list[str]:
        """GPUs of the node that the task could share, best first; `WHOLE_GPU` for each idle or releasing GPU."""
        groups = [group for group in sorted(node.shared.used) if fits_shared(node, task.request, group)]
        free = floor(node.idle.gpus) + floor(node.releasing.gpus)
        if node.idle.gpus > 0 or node.releasing.gpus > 0:
            groups += [WHOLE_GPU] * free
        scored = [(sum(score(task, node, group) for score in self.functions.gpu_order), group) for group in groups]
        return [group for _, group in sorted(scored, key=lambda item: -item[0])]

    @cached_property
    def has_pod_affinity(self) -> bool:
        """True if a task of the session has pod affinity."""
        return any(has_pod_affinity(task.spec.pod) for job in self.jobs.values() for task in job.tasks())


class KaiPlugin(Protocol):
    """A plugin of KAI: made with its arguments, it registers functions when a session opens."""

    def open(self, session: KaiSession) -> None:
        """Register the plugin's functions with the session."""


def _is_gang(job: PodGroupInfo) -> bool:
    return sum(len(pod_set.tasks) for pod_set in job.pod_sets.values()) > 1


def _first_nonzero(compares: Sequence[Callable[[T, T], int]], one: T, other: T) -> int:
    for compare in compares:
        order = compare(one, other)
        if order:
            return order
    return 0


class JobFilter(Struct, frozen=True, kw_only=True):
    """Which jobs a `JobsByQueue` takes, and how many per queue (`depth`, -1: all); `victims`: in reverse order."""

    ready: bool = False
    pending: bool = False
    preemptible: bool = False
    with_allocated: bool = False
    victims: bool = False
    depth: int = -1


class _QueueNode:
    """A queue that has jobs, or queues with jobs, below it. Mutates."""

    def __init__(self, queue: QueueState, jobs: Heap[PodGroupInfo] | None, children: Heap[_QueueNode] | None) -> None:
        self.queue, self.jobs, self.children = queue, jobs, children
        self.needs_reorder = False
        self.parent: _QueueNode | None = None

    @property
    def is_empty(self) -> bool:
        return not (self.jobs if self.jobs is not None else self.children)


class JobsByQueue:
    """Priority queue of jobs: ordered down the tree of queues, then by the plugins' job order. Mutates."""

    def __init__(self, session: KaiSession, job_filter: JobFilter, jobs: Iterable[PodGroupInfo] = ()) -> None:
        self._session, self._filter = session, job_filter
        self._roots: Heap[_QueueNode] = Heap(self._queue_before)
        self._nodes: dict[str, _QueueNode] = {}
        self._popped: dict[str, list[PodGroupInfo]] = {}
        for job in jobs:
            if self._accepts(job):
                self.push(job)

    def __bool__(self) -> bool:
        return bool(self._roots)

    def __len__(self) -> int:
        return sum(len(queue_node.jobs) for queue_node in self._nodes.values() if queue_node.jobs is not None)

    def _accepts(self, job: PodGroupInfo) -> bool:
        job_filter, queues = self._filter, self._session.queues
        queue = queues.get(job.queue)
        return (
            queue is not None
            and queue.is_leaf
            and (not queue.parent or queue.parent in queues)
            and (not job_filter.pending or KaiPodStatus.PENDING in job.by_status)
            and (not job_filter.ready or job.is_ready)
            and (not job_filter.preemptible or job.preemptible)
            and (not job_filter.with_allocated or job.active_allocated_tasks > 0)
        )

    def push(self, job: PodGroupInfo) -> None:
        """Add a job to its queue; ignored if the queue has child queues."""
        queue = self._session.queues[job.queue]
        if not queue.is_leaf:
            return
        queue_node = self._nodes.get(job.queue)
        new = queue_node is None
        if queue_node is None:
            queue_node = self._nodes[job.queue] = _QueueNode(
                queue, Heap(self._job_before, depth=self._filter.depth), None
            )
        cast(Heap[PodGroupInfo], queue_node.jobs).push(job)
        if new:
            self._attach(queue_node)
        self._mark_for_reorder(queue_node)

    def _attach(self, queue_node: _QueueNode) -> None:
        """Attach a node of the tree below its parent, up to the root."""
        if not queue_node.queue.parent:
            self._roots.push(queue_node)
            return
        above = self._session.queues.get(queue_node.queue.parent)
        if above is None:
            return
        parent = self._nodes.get(above.uid)
        new = parent is None
        if parent is None:
            parent = self._nodes[above.uid] = _QueueNode(above, None, Heap(self._queue_before))
        queue_node.parent = parent
        cast(Heap[_QueueNode], parent.children).push(queue_node)
        if new:
            self._attach(parent)

    def pop(self) -> PodGroupInfo:
        """Remove and return the next job."""
        queue_node = self._first_child(self._roots)
        while queue_node.children is not None:
            queue_node = self._first_child(queue_node.children)
        job = cast(Heap[PodGroupInfo], queue_node.jobs).pop()
        if self._filter.victims:
            self._popped.setdefault(queue_node.queue.uid, []).append(job)
        self._after_pop(queue_node)
        return job

    def _first_child(self, children: Heap[_QueueNode]) -> _QueueNode:
        """The tree node that is served first; changed nodes are reordered as they reach the top."""
        queue_node = children.peek()
        while queue_node.needs_reorder:
            children.restore_order()
            queue_node.needs_reorder = False
            queue_node = children.peek()
        return queue_node

    def _after_pop(self, queue_node: _QueueNode) -> None:
        current: _QueueNode | None = queue_node
        while current is not None and current.is_empty:
            (cast(Heap[_QueueNode], current.parent.children) if current.parent else self._roots).pop()
            del self._nodes[current.queue.uid]
            current = current.parent
        if current is not None:
            self._mark_for_reorder(current)

    def _mark_for_reorder(self, queue_node: _QueueNode) -> None:
        current: _QueueNode | None = queue_node
        while current is not None:
            current.needs_reorder = True
            current = current.parent

    def _job_before(self, one: PodGroupInfo, other: PodGroupInfo) -> bool:
        first = self._session.job_before(one, other)
        return not first if self._filter.victims else first

    def _queue_before(self, one: _QueueNode, other: _QueueNode) -> bool:
        if one.is_empty:
            return not self._filter.victims
        if other.is_empty:
            return self._filter.victims
        mine, my_victims = self._next_job_and_victims(one)
        theirs, their_victims = self._next_job_and_victims(other)
        first = self._session.queue_before(one.queue, other.queue, (mine, theirs), (my_victims, their_victims))
        return not first if self._filter.victims else first

    def _next_job_and_victims(self, queue_node: _QueueNode) -> tuple[PodGroupInfo | None, Sequence[PodGroupInfo]]:
        """The next job below a tree node, or as victims the jobs that would be evicted with it."""
        while queue_node.children is not None:
            queue_node = queue_node.children.peek()
        jobs = cast(Heap[PodGroupInfo], queue_node.jobs)
        if not self._filter.victims:
            return (jobs.peek() if jobs else None), ()
        return None, [*self._popped.get(queue_node.queue.uid, ()), *([jobs.peek()] if jobs else ())]


def pending_jobs(session: KaiSession, action: str, *, preemptible: bool = False) -> JobsByQueue:
    """The pending jobs that an action tries, in order: those with enough tasks for the minimum of every pod set."""
    job_filter = JobFilter(ready=True, pending=True, preemptible=preemptible, depth=session.queue_depth(action))
    return JobsByQueue(session, job_filter, session.jobs.values())

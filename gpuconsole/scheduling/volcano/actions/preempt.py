"""The actions that evict tasks one by one: preempt, reclaim and shuffle.

Volcano 1.15 actions/preempt: a starving job preempts jobs of its own queue, then tasks preempt others of their own job.
The node is chosen by score before its victims; with `enableTopologyAwarePreemption` nodes are compared by their
victims, as in kube-scheduler: victims are found on copies of nodes, and the node with the least important ones is
chosen, on ties the first by name. That comparison ignores disruption budgets.

Volcano 1.15 actions/reclaim: a starving job reclaims its queue's deserved resources from jobs of other queues. Nodes
are tried by name; Volcano's order is that of its parallel search.

Volcano 1.15 actions/shuffle: evicts running tasks that plugins name as victims.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from msgspec import Struct

from gpuconsole.scheduling.heap import Heap
from gpuconsole.scheduling.volcano.api.job import JobInfo, PredicateCode
from gpuconsole.scheduling.volcano.api.node import NodeInfo
from gpuconsole.scheduling.volcano.api.queue import QueueInfo
from gpuconsole.scheduling.volcano.api.resource import ZERO
from gpuconsole.scheduling.volcano.api.task import PREEMPTABLE_STATUSES, TaskInfo, TaskStatus
from gpuconsole.scheduling.volcano.config import VolcanoArguments
from gpuconsole.scheduling.volcano.node_search import NodeFinder, nodes_by_score, victims_suffice
from gpuconsole.scheduling.volcano.session import PlacementRejected, VolcanoSession, VolcanoStatement

PRIORITY_OFFSET = 2**31
"""Added to each priority so that each further victim raises the sum, even with a negative priority."""


class CandidateLimits(Struct, frozen=True, kw_only=True):
    """Limits of the number of candidate nodes for preemption: a percentage of all, between `minimum` and `maximum`."""

    percentage: int = 10
    minimum: int = 1
    maximum: int = 100

    def candidates_to_find(self, nodes: int) -> int:
        """The number of candidates after which the search stops, in a cluster of this many nodes."""
        return min(max(nodes * self.percentage // 100, self.minimum), self.maximum, nodes)


class NodeCandidate(Struct, frozen=True):
    """A node on which preemption helps, and the victims there, the most important first."""

    node: str
    victims: tuple[TaskInfo, ...]


def select_candidate(
    session: VolcanoSession,
    task: TaskInfo,
    nodes: Sequence[NodeInfo],
    is_candidate: Callable[[TaskInfo], bool],
    limits: CandidateLimits,
) -> NodeCandidate | None:
    """The node with the least important victims, among the first candidates; None if there is none.

    `is_candidate` says which tasks may be evicted.
    """
    found: list[NodeCandidate] = []
    enough = limits.candidates_to_find(len(nodes))
    for node in nodes:
        if len(found) >= enough:
            break
        victims = _find_victims(session, task, node.copy(), is_candidate)
        if victims:
            found.append(NodeCandidate(node.name, tuple(victims)))
    return min(found, key=lambda candidate: _candidate_rank(session, candidate), default=None)


def _candidate_rank(session: VolcanoSession, candidate: NodeCandidate) -> tuple[int, int, int, int, str]:
    """Sort key: priority of the first victim, sum of priorities, number of victims, start of the most important ones,
    name.
    """
    priorities = [victim.pod.priority for victim in candidate.victims]
    highest = max(priorities)
    started = min(victim.pod.started or session.now for victim in candidate.victims if victim.pod.priority == highest)
    total = sum(priority + PRIORITY_OFFSET for priority in priorities)
    return priorities[0], total, len(priorities), -started, candidate.node


def _find_victims(
    session: VolcanoSession, task: TaskInfo, node: NodeInfo, is_candidate: Callable[[TaskInfo], bool]
) -> list[TaskInfo] | None:
    """The victims on the copy of a node, less those that can stay; None if the task does not fit even without
    them all.
    """
    candidates = [other.copy() for _, other in sorted(node.tasks.items()) if is_candidate(other)]
    allowed = session.preemptable(task, candidates) or []
    if not victims_suffice(task, node, allowed):
        return None
    with session.cycle_trial(task):
        gone = list(_remove_victims(session, task, node, allowed))
        if not gone or session.simulate_predicate(task, node) is not None:
            return None
        return [victim for victim in reversed(gone) if not _reprieve(session, task, node, victim)]


def _remove_victims(
    session: VolcanoSession, task: TaskInfo, node: NodeInfo, allowed: list[TaskInfo]
) -> Iterator[TaskInfo]:
    """Remove victims, the least important first, until the task fits."""
    order = session.victims_heap(allowed, task)
    while order:
        victim = order.pop()
        session.simulate_remove(task, victim, node)
        node.remove_task(victim)
        yield victim
        if _fits_in_trial(session, task, node):
            return


def _reprieve(session: VolcanoSession, task: TaskInfo, node: NodeInfo, victim: TaskInfo) -> bool:
    """Restore a victim; False, with the victim removed again, if the task does not fit beside it."""
    session.simulate_add(task, victim, node)
    node.add_task(victim)
    if _fits_in_trial(session, task, node):
        return True
    session.simulate_remove(task, victim, node)
    node.remove_task(victim)
    return False


def _fits_in_trial(session: VolcanoSession, task: TaskInfo, node: NodeInfo) -> bool:
    queue = session.queues[session.jobs[task.job].queue]
    if not session.simulate_allocatable(queue, task) or not task.init_request.less_equal(node.future_idle(), ZERO):
        return False
    return session.simulate_predicate(task, node) is None


PREEMPT = "preempt"
VictimFilter = Callable[[TaskInfo], bool]


class PreemptOptions(Struct, frozen=True, kw_only=True):
    """Arguments of the preempt action."""

    caches_rejections: bool = True
    """True if nodes that rejected a task are skipped for tasks of the same role (predicateErrorCacheEnable)."""
    topology_aware: bool = False
    candidates: CandidateLimits = CandidateLimits()

    @classmethod
    def from_arguments(cls, arguments: VolcanoArguments) -> "PreemptOptions":
        """Read the action's arguments; those that are missing take Volcano's defaults."""
        return cls(
            caches_rejections=arguments.flag("predicateErrorCacheEnable", True),
            topology_aware=arguments.flag("enableTopologyAwarePreemption", False),
            candidates=CandidateLimits(
                percentage=arguments.integer("minCandidateNodesPercentage", 10),
                minimum=arguments.integer("minCandidateNodesAbsolute", 1),
                maximum=arguments.integer("maxCandidateNodesAbsolute", 100),
            ),
        )


def preempt(session: VolcanoSession) -> None:
    """Let starving jobs preempt others of their queue, then let tasks preempt others of their own job."""
    _Preemption(session, PreemptOptions.from_arguments(session.configuration.arguments_of(PREEMPT))).run()


class _Preemption:
    def __init__(self, session: VolcanoSession, options: PreemptOptions) -> None:
        self._session = session
        self._options = options
        self._finder = NodeFinder(session, remembers=options.caches_rejections)

    def run(self) -> None:
        session = self._session
        starving: dict[str, list[JobInfo]] = {}
        tasks: dict[str, Heap[TaskInfo]] = {}
        for job in session.jobs.values():
            if self._may_preempt(job):
                starving.setdefault(job.queue, []).append(job)
                tasks[job.uid] = self._pending_tasks(job)
        queues = Heap(session.queue_precedes, (session.queues[uid] for uid in starving))
        while queues:
            queue = queues.pop()
            jobs = Heap(session.job_precedes, starving[queue.uid])
            while jobs:
                job = jobs.pop()
                if self._preempt_other_jobs(job, tasks[job.uid]):
                    jobs.push(job)
            for job in starving[queue.uid]:
                self._preempt_within_job(job)

    def _may_preempt(self, job: JobInfo) -> bool:
        session = self._session
        if job.is_not_enqueued or session.job_valid(job) is not None or job.queue not in session.queues:
            return False
        return session.job_starving(job) and not job.contains_network_topology

    def _pending_tasks(self, job: JobInfo) -> Heap[TaskInfo]:
        pending = (task for _, task in sorted(job.tasks_with_status(TaskStatus.PENDING).items()) if not task.gated)
        return Heap(self._session.task_precedes, pending)

    def _preempt_other_jobs(self, job: JobInfo, tasks: Heap[TaskInfo]) -> bool:
        """Preempt other jobs until this one no longer starves; True if its last task was placed."""
        session = self._session
        statement = VolcanoStatement(session)
        placed = False
        while session.job_starving(job) and tasks:
            task = tasks.pop()
            placed = self._preempt_for_task(statement, task, partial(self._is_victim_of_other_job, task, job.queue))
        if not session.job_pipelined(job):
            statement.discard()
            return False
        statement.commit()
        return placed

    def _preempt_within_job(self, job: JobInfo) -> None:
        """Let tasks of a job preempt its other tasks, until one finds no victims."""
        tasks = self._pending_tasks(job)
        while tasks:
            task = tasks.pop()
            statement = VolcanoStatement(self._session)
            if not self._preempt_for_task(statement, task, partial(self._is_victim_of_same_job, task)):
                statement.discard()
                return
            statement.commit()

    def _is_victim_of_other_job(self, preemptor: TaskInfo, queue: str, task: TaskInfo) -> bool:
        job = self._session.jobs.get(task.job)
        return _is_candidate(preemptor, task) and job is not None and job.queue == queue and job.uid != preemptor.job

    def _is_victim_of_same_job(self, preemptor: TaskInfo, task: TaskInfo) -> bool:
        return _is_candidate(preemptor, task) and task.job == preemptor.job

    def _preempt_for_task(self, statement: VolcanoStatement, task: TaskInfo, is_candidate: VictimFilter) -> bool:
        """Find a node and victims on it for one task; True if it is pipelined there."""
        session = self._session
        if not self._is_eligible(task) or session.pre_predicate(task) is not None:
            return False
        nodes, _ = self._finder.find_feasible(
            task, session.nodes_where_preemption_may_help(task), session.predicate_for_preempt
        )
        attempt = self._preempt_topology_aware if self._options.topology_aware else self._preempt_on_best_node
        return any(attempt(statement, task, is_candidate, candidates) for candidates in session.split_by_shard(nodes))

    def _preempt_on_best_node(
        self, statement: VolcanoStatement, task: TaskInfo, is_candidate: VictimFilter, nodes: Sequence[NodeInfo]
    ) -> bool:
        """Choose the best node with enough victims, and evict the least important first."""
        session = self._session
        queue = session.queues[session.jobs[task.job].queue]
        for node in nodes_by_score(session.node_scores(task, nodes), nodes):
            candidates = [other.copy() for _, other in sorted(node.tasks.items()) if is_candidate(other)]
            victims = session.preemptable(task, candidates) or []
            if not victims_suffice(task, node, victims):
                continue
            trial = VolcanoStatement(session)
            has_evicted = False
            order = session.victims_heap(victims, task)
            # A full queue needs evictions of its own, even if the node has room.
            while order and not (session.allocatable(queue, task) and _fits_future_idle(task, node)):
                trial.evict(order.pop(), PREEMPT, task.key)
                has_evicted = True
            if (
                session.allocatable(queue, task)
                and _fits_future_idle(task, node)
                and _pipeline(trial, task, node, has_evicted)
            ):
                statement.merge_from(trial)
                return True
            trial.discard()
        return False

    def _preempt_topology_aware(
        self, statement: VolcanoStatement, task: TaskInfo, is_candidate: VictimFilter, nodes: Sequence[NodeInfo]
    ) -> bool:
        """Choose the node with the least important victims."""
        session = self._session
        chosen = select_candidate(session, task, nodes, is_candidate, self._options.candidates)
        if chosen is None:
            return False
        trial = VolcanoStatement(session)
        for victim in chosen.victims:
            trial.evict(victim, PREEMPT, task.key)
        if not _pipeline(trial, task, session.nodes[chosen.node], True):
            trial.discard()
            return False
        statement.merge_from(trial)
        return True

    def _is_eligible(self, task: TaskInfo) -> bool:
        """False if the preemption policy forbids it, or its earlier victims are still terminating on its node."""
        session, pod = self._session, task.pod
        if pod.template.preemption_policy == "Never":
            return False
        if not pod.nominated_node:
            return True
        node = session.nodes.get(pod.nominated_node)
        error = None if node is None else session.predicate(task, node)
        if node is None or error is None:
            return False
        if error.has_code(PredicateCode.UNRESOLVABLE):
            return True
        others = (other.pod for other in node.tasks.values())
        return not any(
            other.priority < pod.priority and other.deleted and other.reason == "Preempted" for other in others
        )


def _is_candidate(preemptor: TaskInfo, task: TaskInfo) -> bool:
    """True if the task runs and can be evicted; best-effort tasks preempt only best-effort tasks."""
    if task.status not in PREEMPTABLE_STATUSES or not task.preemptable:
        return False
    return task.best_effort or not preemptor.best_effort


def _fits_future_idle(task: TaskInfo, node: NodeInfo) -> bool:
    return task.init_request.less_equal(node.future_idle(), ZERO)


def _pipeline(statement: VolcanoStatement, task: TaskInfo, node: NodeInfo, has_evicted: bool) -> bool:
    try:
        statement.pipeline(task, node.name, eviction_occurred=has_evicted)
    except PlacementRejected:
        return False
    return True


def starving_jobs_by_queue(session: VolcanoSession) -> tuple[Heap[QueueInfo], dict[str, Heap[JobInfo]]]:
    """The queues with valid enqueued jobs, and the starving jobs of each, as heaps in queue and job order."""
    queues = Heap(session.queue_precedes)
    starving: dict[str, Heap[JobInfo]] = {}
    seen = set()
    for job in session.jobs.values():
        if job.is_not_enqueued or session.job_valid(job) is not None or job.queue not in session.queues:
            continue
        if job.queue not in seen:
            seen.add(job.queue)
            queues.push(session.queues[job.queue])
        if session.job_starving(job):
            starving.setdefault(job.queue, Heap(session.job_precedes)).push(job)
    return queues, starving


RECLAIM = "reclaim"


def reclaim(session: VolcanoSession) -> None:
    """Let the starving jobs of queues that are not overused evict tasks of other queues, in queue order."""
    queues, starving = starving_jobs_by_queue(session)
    while queues:
        queue = queues.pop()
        if session.overused(queue):
            continue
        jobs = starving.get(queue.uid)
        while jobs:
            _reclaim_for_job(session, queue, jobs.pop())


def _reclaim_for_job(session: VolcanoSession, queue: QueueInfo, job: JobInfo) -> None:
    """Reclaim task by task until the job no longer starves; everything is undone if that does not start it."""
    pending = (task for _, task in sorted(job.tasks_with_status(TaskStatus.PENDING).items()) if not task.gated)
    tasks = Heap(session.task_precedes, pending)
    statement = VolcanoStatement(session)
    finder_remembers = session.configuration.arguments_of(RECLAIM).flag("predicateErrorCacheEnable", True)
    while session.job_starving(job) and tasks:
        task = tasks.pop()
        if task.pod.template.preemption_policy == "Never" or not session.preemptive(queue, [task]):
            continue
        if session.pre_predicate(task) is None:
            _reclaim_for_task(session, statement, task, job, NodeFinder(session, remembers=finder_remembers))
    if session.job_pipelined(job):
        statement.commit()
    else:
        statement.discard()


def _reclaim_for_task(
    session: VolcanoSession, statement: VolcanoStatement, task: TaskInfo, job: JobInfo, finder: NodeFinder
) -> None:
    """Pipeline the task to the first node with enough victims of other queues."""
    nodes, _ = finder.find_feasible(task, session.nodes_where_preemption_may_help(task), session.predicate_for_preempt)
    own, others = session.split_by_shard(nodes)
    for node in (*own, *others):
        candidates = _reclaimees(session, node, job)
        if not candidates:
            continue
        victims = session.reclaimable(task, candidates) or []
        if not victims_suffice(task, node, victims):
            continue
        trial = VolcanoStatement(session)
        order = session.victims_heap(victims, task)
        room, evicted = node.future_idle(), False
        while order and not task.init_request.less_equal(room, ZERO):
            victim = order.pop()
            trial.evict(victim, RECLAIM, task.key)
            room.add(victim.request)
            evicted = True
        if task.init_request.less_equal(room, ZERO):
            try:
                trial.pipeline(task, node.name, eviction_occurred=evicted)
            except PlacementRejected:
                pass
            else:
                statement.merge_from(trial)
                return
        trial.discard()


def _reclaimees(session: VolcanoSession, node: NodeInfo, job: JobInfo) -> list[TaskInfo]:
    """Running tasks of reclaimable queues other than the job's."""
    found = []
    for _, task in sorted(node.tasks.items()):
        other = session.jobs.get(task.job)
        if other is None or task.status is not TaskStatus.RUNNING or not task.preemptable:
            continue
        if other.queue != job.queue and session.queues[other.queue].is_reclaimable:
            found.append(task.copy())
    return found


SHUFFLE = "shuffle"


def shuffle(session: VolcanoSession) -> None:
    """Evict the running tasks that plugins name as victims: those of the first tier that names any."""
    running = [
        task for job in session.jobs.values() for _, task in sorted(job.tasks_with_status(TaskStatus.RUNNING).items())
    ]
    for victim in session.victim_tasks(running):
        session.evict(victim, SHUFFLE)

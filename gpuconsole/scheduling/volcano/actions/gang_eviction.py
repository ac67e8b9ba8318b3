"""gangpreempt and gangreclaim actions: evict bundles of victims so that a whole gang fits one domain.

Volcano 1.15 actions/gangpreempt, gangreclaim and utils/bundle.go. Bundles are added one by one, and after each a trial
checks whether the gang fits the domain (BuildNominationPlanInDomain). A job's tasks above its gang's minimum are
bundled apart from those whose eviction breaks its gang, and come first. The sub-jobs of the gang are then nominated to
the domains where they fitted, which `allocate` uses in a later session.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cmp_to_key
from math import inf

from msgspec import Struct
from msgspec.structs import replace

from gpuconsole.scheduling.volcano.actions.allocate import JobWorksheet, new_worksheet, tasks_in_order
from gpuconsole.scheduling.volcano.actions.preempt import starving_jobs_by_queue
from gpuconsole.scheduling.volcano.api.hyper_nodes import ROOT_NAME
from gpuconsole.scheduling.volcano.api.job import FitError, JobInfo, SubJobInfo
from gpuconsole.scheduling.volcano.api.node import NodeInfo
from gpuconsole.scheduling.volcano.api.queue import QueueInfo
from gpuconsole.scheduling.volcano.api.resource import ZERO, Resource
from gpuconsole.scheduling.volcano.api.task import (
    PREEMPTABLE,
    PREEMPTABLE_STATUSES,
    READY_STATUSES,
    TaskInfo,
    TaskStatus,
)
from gpuconsole.scheduling.volcano.config import VolcanoArguments
from gpuconsole.scheduling.volcano.node_search import NodeFinder, choose_node, resource_fit
from gpuconsole.scheduling.volcano.session import (
    PlacementRejected,
    StatementStep,
    VolcanoSession,
    VolcanoStatement,
    save_steps,
)
from gpuconsole.scheduling.volcano.session_plugins import EvictionContext, Purpose, VictimRequester


class Bundle(Struct, frozen=True, kw_only=True):
    """Tasks of one job in one domain that are evicted together."""

    job: JobInfo
    tasks: tuple[TaskInfo, ...]
    breaks_gang: bool = False
    """True if evicting them breaks the job's gang, so that the whole job is lost."""

    @property
    def released(self) -> Resource:
        """The resources that evicting its tasks releases."""
        return Resource.sum(task.request for task in self.tasks)

    @property
    def lost(self) -> Resource:
        """The resources lost beyond its tasks: the request of the whole job if its gang breaks, otherwise nothing."""
        return Resource.sum(task.request for task in self.job.tasks.values()) if self.breaks_gang else Resource()


def split_into_bundles(job: JobInfo, tasks: Iterable[TaskInfo]) -> list[Bundle]:
    """Split tasks of a job into those above its gang's minimum and the rest, each with the least important first.

    If the gang is below its minimum already, all are in one bundle that does not break it.
    """
    ordered = sorted(tasks, key=lambda task: (task.priority, task.uid))
    if not ordered:
        return []
    spare = _SpareTasks(job)
    if spare.job < 0:
        # Its gang is broken already.
        return [Bundle(job=job, tasks=tuple(ordered))]
    safe: list[TaskInfo] = []
    rest: list[TaskInfo] = []
    for task in ordered:
        (safe if spare.take(task) else rest).append(task)
    found = [Bundle(job=job, tasks=tuple(safe))] if safe else []
    return [*found, Bundle(job=job, tasks=tuple(rest), breaks_gang=True)] if rest else found


class _SpareTasks:
    """How many tasks a job, its roles and its groups of sub-jobs can lose. Mutates as they are taken."""

    def __init__(self, job: JobInfo) -> None:
        self._job = job
        self.job = job.ready_task_num - job.min_available
        self._roles: dict[str, int] = {}
        if job.min_available >= job.task_min_available_total:
            ready = Counter(task.role for status in READY_STATUSES for task in job.tasks_with_status(status).values())
            pending = job.tasks_with_status(TaskStatus.PENDING).values()
            ready.update(task.role for task in pending if task.init_request.is_empty())
            self._roles = {role: ready[role] - least for role, least in job.task_min_available.items()}
        self._broken = {uid for uid, sub_job in job.sub_jobs.items() if not sub_job.is_ready()}
        self._groups = Counter(sub_job.gid for sub_job in job.sub_jobs.values() if sub_job.is_ready())
        self._groups.subtract(job.min_sub_jobs)

    def take(self, task: TaskInfo) -> bool:
        """True if the task is above the gang's minimum; it is then taken."""
        if self.job <= 0 or self._roles.get(task.role, 1) <= 0:
            return False
        if self._job.min_sub_jobs:
            sub_job = self._job.sub_jobs.get(self._job.task_to_sub_job.get(task.uid, ""))
            if sub_job is None or (sub_job.uid not in self._broken and self._groups[sub_job.gid] <= 0):
                return False
            if sub_job.uid not in self._broken:
                self._broken.add(sub_job.uid)
                self._groups[sub_job.gid] -= 1
        self.job -= 1
        if task.role in self._roles:
            self._roles[task.role] -= 1
        return True


def restrict_bundles(bundles: Iterable[Bundle], allowed: Iterable[TaskInfo]) -> list[Bundle]:
    """The bundles restricted to these tasks; one that breaks its gang is kept complete or dropped."""
    uids = {task.uid for task in allowed}
    left = []
    for bundle in bundles:
        tasks = tuple(task for task in bundle.tasks if task.uid in uids)
        if tasks and (not bundle.breaks_gang or len(tasks) == len(bundle.tasks)):
            left.append(replace(bundle, tasks=tasks))
    return left


def sort_bundles(
    bundles: Sequence[Bundle], need: Resource, bundle_order: Callable[[Bundle, Bundle], int]
) -> list[Bundle]:
    """Bundles in order of eviction: those that keep their gang first, then by `bundle_order` and gain per loss."""

    def compare(left: Bundle, right: Bundle) -> int:
        if left.breaks_gang != right.breaks_gang:
            return 1 if left.breaks_gang else -1
        if said := bundle_order(left, right):
            return said
        gains = _gain_per_loss(left, need), _gain_per_loss(right, need)
        if gains[0] != gains[1]:
            return -1 if gains[0] > gains[1] else 1
        keys = [(bundle.job.uid, bundle.tasks[0].uid, len(bundle.tasks)) for bundle in (left, right)]
        return -1 if keys[0] < keys[1] else 1

    return sorted(bundles, key=cmp_to_key(compare))


def _gain_per_loss(bundle: Bundle, need: Resource) -> float:
    frees, costs = bundle.released, bundle.lost
    names = [name for name in need.names() if need.get(name) > 0]
    lost = sum(costs.get(name) / need.get(name) for name in names)
    return sum(min(frees.get(name), need.get(name)) / need.get(name) for name in names) / lost if lost else inf


class NominationPlan(Struct, frozen=True):
    """How a gang can be placed in a domain after evictions: the steps, and the hyper node of each sub-job."""

    operations: list[StatementStep]
    hyper_nodes: dict[str, str]


def plan_nominations(
    session: VolcanoSession,
    queue: QueueInfo,
    job: JobInfo,
    domain: str,
    victims: Sequence[TaskInfo],
    reason: str,
    *,
    caches_rejections: bool,
) -> NominationPlan | None:
    """Try whether the job's gang fits the domain once `victims` are evicted; None if not. Changes nothing."""
    sheet = new_worksheet(session, job, lambda task: not task.gated and not task.request.is_empty())
    if not sheet or not session.real_node_list.get(domain):
        return None
    was_ready = session.job_ready(job)
    chain = [VolcanoStatement(session)]
    for victim in victims:
        chain[0].evict(victim, reason)
    places: dict[str, str] = {}
    enough = False
    try:
        while sheet.sub_jobs and not enough:
            sub_job = sheet.sub_jobs.pop()
            won = _place_sub_job(
                session, queue, job, sub_job, sheet, domain, bool(victims), caches_rejections=caches_rejections
            )
            if won is None:
                return None
            statement, places[sub_job.uid] = won
            chain.append(statement)
            enough = session.job_pipelined(job)
            if was_ready:
                break
        return NominationPlan(save_steps(chain), places) if enough else None
    finally:
        for statement in reversed(chain):
            statement.discard()


def _place_sub_job(
    session: VolcanoSession,
    queue: QueueInfo,
    job: JobInfo,
    sub_job: SubJobInfo,
    sheet: JobWorksheet,
    domain: str,
    has_evicted: bool,
    *,
    caches_rejections: bool,
) -> tuple[VolcanoStatement, str] | None:
    """Pipeline a sub-job in the first hyper node that fits it."""
    for name in _candidate_hyper_nodes(session, job, sub_job, domain):
        trial = VolcanoStatement(session)
        finder = NodeFinder(session, remembers=caches_rejections)
        tasks = sheet.tasks[sub_job.uid].copy()
        placed = True
        while tasks and placed:
            placed = _pipeline(session, queue, finder, trial, tasks.pop(), name, has_evicted)
        done = session.sub_job_ready(job, sub_job) or session.sub_job_pipelined(job, sub_job)
        if placed and trial.operations and done:
            return trial, name
        trial.discard()
    return None


def _candidate_hyper_nodes(session: VolcanoSession, job: JobInfo, sub_job: SubJobInfo, domain: str) -> Iterator[str]:
    if not job.contains_hard_topology:
        yield domain
        return
    for gradient in session.sub_job_gradients(sub_job, session.hyper_nodes[domain], Purpose.EVICT):
        yield from (info.name for info in gradient)


def _pipeline(
    session: VolcanoSession,
    queue: QueueInfo,
    finder: NodeFinder,
    trial: VolcanoStatement,
    task: TaskInfo,
    hyper_node: str,
    has_evicted: bool,
) -> bool:
    """Pipeline a task to the best node; False if none fits."""
    if not session.allocatable(queue, task):
        return False
    resolvable = {node.name for node in session.nodes_where_preemption_may_help(task)}
    nodes = [node for node in session.real_node_list.get(hyper_node, ()) if node.name in resolvable]
    if not nodes or session.pre_predicate(task) is not None:
        return False

    def fits(task: TaskInfo, node: NodeInfo) -> FitError | None:
        return resource_fit(task, node) or session.predicate_for_preempt(task, node)

    best = choose_node(session, task, finder.find_feasible(task, nodes, fits)[0])
    if best is None or not task.init_request.less_equal(best.future_idle(), ZERO):
        return False
    try:
        trial.pipeline(task, best.name, eviction_occurred=has_evicted)
    except PlacementRejected:
        return False
    return True


MAX_DOMAINS = 8


class GangOptions(Struct, frozen=True, kw_only=True):
    """Arguments of the gangpreempt and gangreclaim actions."""

    max_domains: int = MAX_DOMAINS
    """How many domains are tried for each job (maxDomains)."""
    allow_whole_bundles: bool = True
    """True if bundles that break a victim's gang are allowed (allowWholeBundle)."""

    @classmethod
    def from_arguments(cls, arguments: VolcanoArguments) -> "GangOptions":
        """Read the action's arguments; maxDomains below 1 is the default."""
        said = arguments.integer("maxDomains", MAX_DOMAINS)
        return cls(
            max_domains=said if said > 0 else MAX_DOMAINS, allow_whole_bundles=arguments.flag("allowWholeBundle", True)
        )


def gangpreempt(session: VolcanoSession) -> None:
    """Evict jobs of lower priority in the same queue so that starving gangs fit, domain by domain."""
    _GangEviction(session, "gangpreempt", VictimRequester.GANG_PREEMPT).run()


def gangreclaim(session: VolcanoSession) -> None:
    """Evict jobs of other queues so that starving gangs fit, domain by domain."""
    _GangEviction(session, "gangreclaim", VictimRequester.GANG_RECLAIM).run()


class _GangEviction:
    def __init__(self, session: VolcanoSession, name: str, kind: VictimRequester) -> None:
        self._session = session
        self._name = name
        self._kind = kind
        self._options = GangOptions.from_arguments(session.configuration.arguments_of(name))
        self._remembers = session.configuration.arguments_of("allocate").flag("predicateErrorCacheEnable", True)

    def run(self) -> None:
        session = self._session
        queues, starving = starving_jobs_by_queue(session)
        while queues:
            queue = queues.pop()
            if self._kind is VictimRequester.GANG_RECLAIM and session.overused(queue):
                continue
            jobs = starving.get(queue.uid)
            while jobs:
                self._evict_for_job(queue, jobs.pop())

    def _evict_for_job(self, queue: QueueInfo, job: JobInfo) -> None:
        """Evict for a job; nothing happens unless everything that must start fits."""
        session = self._session
        statement = VolcanoStatement(session)
        places = self._find_evictions(statement, queue, job)
        if not session.job_pipelined(job):
            statement.discard()
            return
        statement.commit()
        for uid, hyper_node in places.items():
            job.sub_jobs[uid].nominated_hyper_node = hyper_node

    def _find_evictions(self, statement: VolcanoStatement, queue: QueueInfo, job: JobInfo) -> dict[str, str]:
        session = self._session
        pending = self._pending_tasks(job)
        if not pending or (self._kind is VictimRequester.GANG_RECLAIM and not session.preemptive(queue, pending)):
            return {}
        need = Resource.sum(task.init_request for task in pending)
        for domain in self._candidate_domains(job):
            idle = Resource()
            for node in session.real_node_list[domain]:
                idle.add(node.idle).add(node.releasing)
            victims: list[TaskInfo] = []
            for bundle in self._bundles(job, need, domain):
                victims += bundle.tasks
                if not need.less_equal(idle.copy().add(Resource.sum(victim.request for victim in victims)), ZERO):
                    continue
                found = plan_nominations(
                    session, queue, job, domain, victims, self._name, caches_rejections=self._remembers
                )
                if found is None:
                    continue
                try:
                    statement.repeat(found.operations)
                except PlacementRejected:
                    continue
                return found.hyper_nodes
        return {}

    def _pending_tasks(self, job: JobInfo) -> list[TaskInfo]:
        """Tasks that the job still has to place; of a running job only those of its next sub-job."""
        sheet = new_worksheet(self._session, job, lambda task: not task.gated and not task.request.is_empty())
        sub_jobs = sheet.sub_jobs
        found: list[TaskInfo] = []
        while sub_jobs:
            found += tasks_in_order(sheet.tasks[sub_jobs.pop().uid])
            if self._session.job_ready(job):
                break
        return found

    def _candidate_domains(self, job: JobInfo) -> list[str]:
        """Domains to try, the closest first."""
        session = self._session
        gradients = session.job_gradients(job, session.hyper_nodes[ROOT_NAME], Purpose.EVICT)
        names = list(dict.fromkeys(info.name for gradient in gradients for info in gradient))
        if not names and not job.contains_hard_topology:
            names = [ROOT_NAME]
        return [name for name in names[: self._options.max_domains] if session.real_node_list.get(name)]

    def _bundles(self, job: JobInfo, need: Resource, domain: str) -> list[Bundle]:
        """Bundles of victims in a domain, in eviction order."""
        session = self._session
        candidates: dict[str, list[TaskInfo]] = {}
        for node in session.real_node_list[domain]:
            for _, task in sorted(node.tasks.items()):
                if self._is_candidate(job, task):
                    candidates.setdefault(task.job, []).append(task.copy())
        bundles = [
            bundle for uid in sorted(candidates) for bundle in split_into_bundles(session.jobs[uid], candidates[uid])
        ]
        bundles = sort_bundles(bundles, need, self._bundle_order(job))
        context = EvictionContext(self._kind, job, hyper_node=domain)
        allowed = session.unified_evictable(context, [task for bundle in bundles for task in bundle.tasks])
        left = sort_bundles(restrict_bundles(bundles, allowed or ()), need, self._bundle_order(job))
        return [bundle for bundle in left if self._options.allow_whole_bundles or not bundle.breaks_gang]

    def _is_candidate(self, job: JobInfo, task: TaskInfo) -> bool:
        session = self._session
        victim = session.jobs.get(task.job)
        if victim is None or not task.preemptable or not _is_preemptable_group(victim):
            return False
        if self._kind is VictimRequester.GANG_RECLAIM:
            running = task.status is TaskStatus.RUNNING
            return running and victim.queue != job.queue and session.queues[victim.queue].is_reclaimable
        if task.status not in PREEMPTABLE_STATUSES or victim.queue != job.queue:
            return False
        return job.priority > victim.priority

    def _bundle_order(self, job: JobInfo) -> Callable[[Bundle, Bundle], int]:
        """Eviction order of bundles: by job order in reverse, or by the order of victim queues."""
        session = self._session

        def by_job(left: Bundle, right: Bundle) -> int:
            if left.job.uid == right.job.uid:
                return 0
            return 1 if session.job_precedes(left.job, right.job) else -1

        def by_queue(left: Bundle, right: Bundle) -> int:
            ours, theirs = session.queues[left.job.queue], session.queues[right.job.queue]
            if ours.uid == theirs.uid:
                return 0
            mine = session.queues[job.queue]
            one, other = (
                session.victim_queue_precedes(ours, theirs, mine),
                session.victim_queue_precedes(theirs, ours, mine),
            )
            return 0 if one == other else -1 if one else 1

        return by_queue if self._kind is VictimRequester.GANG_RECLAIM else by_job


def _is_preemptable_group(job: JobInfo) -> bool:
    """False if the PodGroup is marked as not preemptable; the default is preemptable."""
    group = job.pod_group
    said = group is not None and (PREEMPTABLE in group.annotations or PREEMPTABLE in group.labels)
    return job.preemptable if said else True

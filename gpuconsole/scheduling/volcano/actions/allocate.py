"""The actions that place tasks without evictions: allocate, backfill and enqueue (Volcano 1.15 actions).

enqueue lets a job's pods be scheduled if its queue and the cluster may have capacity for its minResources. allocate
places pending tasks, queue by queue, job by job, and starts a job once its gang is ready; jobs with a network topology
or sub-jobs are tried domain by domain (`DomainSearch`). backfill places best-effort tasks wherever they fit.

The domain search tries every domain and keeps the best (Volcano 1.15 actions/allocate): domains come in gradients, the
closest first; the first gradient in which a domain fits the job decides, and inside it the score of the plugins.

`JobWorksheet` has the tasks that a job still has to place, `TaskPlacement` places those of one sub-job on the nodes of
one hyper node in one statement, and `DomainRecorder` keeps the hyper nodes chosen in a trial until it is committed.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cmp_to_key

from msgspec.structs import replace

from gpuconsole.scheduling.heap import Heap
from gpuconsole.scheduling.volcano.api.hyper_nodes import ROOT_NAME, HyperNodeDomains, HyperNodeInfo
from gpuconsole.scheduling.volcano.api.job import FitError, FitErrors, JobInfo, SubJobInfo
from gpuconsole.scheduling.volcano.api.node import NodeInfo
from gpuconsole.scheduling.volcano.api.resource import ZERO
from gpuconsole.scheduling.volcano.api.task import TaskInfo, TaskStatus
from gpuconsole.scheduling.volcano.node_search import (
    NodeFinder,
    PredicateCache,
    best_node,
    choose_node,
    highest_scored_name,
    resource_fit,
)
from gpuconsole.scheduling.volcano.session import (
    PlacementRejected,
    StatementStep,
    VolcanoSession,
    VolcanoStatement,
    save_steps,
)
from gpuconsole.scheduling.volcano.session_plugins import Purpose


class DomainRecorder:
    """Records the hyper nodes chosen in trials, until a job's placement is committed (allocate's Recorder). Mutates."""

    def __init__(self, domains: HyperNodeDomains) -> None:
        self._domains = domains
        self._job_domains: dict[str, str] = {}
        self._sub_job_domains: dict[tuple[str, str], dict[str, str]] = {}
        """(job, hyper node tried for the job) → hyper node by sub-job."""
        self._saved: dict[str, dict[str, str]] = {}

    def save_sub_job_domains(self, job: JobInfo, sub_jobs: Iterable[str]) -> None:
        """Save the hyper nodes of a job's sub-jobs before it is tried."""
        known = [uid for uid in sub_jobs if uid in job.sub_jobs]
        self._saved[job.uid] = {uid: job.sub_jobs[uid].allocated_hyper_node for uid in known}

    def restore_sub_job_domains(self, job: JobInfo) -> None:
        """Restore the saved hyper nodes of the sub-jobs."""
        for uid, hyper_node in self._saved.get(job.uid, {}).items():
            if uid in job.sub_jobs:
                job.sub_jobs[uid].allocated_hyper_node = hyper_node

    def record_job_domain(self, job: str, hyper_node: str) -> None:
        """Record the hyper node chosen for a job."""
        self._job_domains[job] = hyper_node

    def record_sub_job_domain(self, job: str, tried_hyper_node: str, sub_job: str, hyper_node: str) -> None:
        """Record the hyper node chosen for a sub-job while the hyper node `tried_hyper_node` is tried for its job."""
        self._sub_job_domains.setdefault((job, tried_hyper_node), {})[sub_job] = hyper_node

    def apply_to_job(self, job: JobInfo) -> None:
        """Set the recorded hyper nodes on the job and its sub-jobs, after their placement was committed."""
        chosen = self._job_domains.get(job.uid)
        if not chosen:
            return
        common = self._domains.lowest_common
        job.allocated_hyper_node = common(job.allocated_hyper_node, chosen)
        for uid, hyper_node in self._sub_job_domains.get((job.uid, chosen), {}).items():
            sub_job = job.sub_jobs.get(uid)
            if sub_job is not None:
                sub_job.allocated_hyper_node = common(sub_job.allocated_hyper_node, hyper_node)
                sub_job.nominated_hyper_node = ""


class TaskPlacement:
    """Places tasks on nodes in one session, with a shared cache of predicate results."""

    def __init__(self, session: VolcanoSession, *, remembers: bool) -> None:
        self.session = session
        self._caches_rejections = remembers
        self.predicate_cache = PredicateCache(session)

    def finder(self) -> NodeFinder:
        """A node finder that uses the session's predicate cache."""
        return NodeFinder(self.session, remembers=self._caches_rejections, predicate_cache=self.predicate_cache)

    def place_tasks(self, sub_job: SubJobInfo, tasks: Heap[TaskInfo], hyper_node: str) -> VolcanoStatement | None:
        """Place a sub-job's tasks in a hyper node until it is ready; None, with placements undone, if it gets neither
        ready nor pipelined.

        Tasks are taken out of the heap as they are tried (allocateResourcesForTasks).
        """
        session = self.session
        nodes = session.real_node_list.get(hyper_node)
        if not nodes:
            return None
        job = session.jobs[sub_job.job]
        statement, finder = VolcanoStatement(session), self.finder()
        place = sub_job.allocated_hyper_node
        while tasks:
            task = tasks.pop()
            if not self._should_try(sub_job, task):
                continue
            found, errors = self._feasible_nodes(finder, task, nodes, hyper_node)
            if not found:
                if hyper_node != ROOT_NAME and errors.nodes:
                    errors.hyper_node = hyper_node
                job.node_fit_errors[task.uid] = errors
                if job.role_minimums.may_become_ready(sub_job.uid):
                    continue
                break
            if sub_job.network_topology is not None:
                task.hyper_node = place
            best = choose_node(session, task, found, self.predicate_cache)
            if best is None or not self.place_task(statement, task, best):
                continue
            if sub_job.network_topology is not None:
                place = session.domains.lowest_common(session.domains.lowest_domain_of(best.name), place)
            if session.sub_job_ready(job, sub_job):
                break
        if session.sub_job_ready(job, sub_job) or session.sub_job_pipelined(job, sub_job):
            return statement
        statement.discard()
        return None

    def place_task(self, statement: VolcanoStatement, task: TaskInfo, node: NodeInfo) -> bool:
        """Allocate the task to idle resources of the node, or else pipeline it to releasing ones.

        False if the node rejects the task; nothing happens if the node has neither.
        """
        try:
            if task.init_request.less_equal(node.idle, ZERO):
                statement.allocate(task, node)
            elif task.init_request.less_equal(node.future_idle(), ZERO):
                statement.pipeline(task, node.name, eviction_occurred=False)
        except PlacementRejected:
            return False
        return True

    def predicate(self, task: TaskInfo, node: NodeInfo) -> FitError | None:
        """Why the task cannot be put on the node; None if it can."""
        return resource_fit(task, node) or self.session.predicate_for_allocate(task, node)

    def _should_try(self, sub_job: SubJobInfo, task: TaskInfo) -> bool:
        """False if the queue cannot take the task, or a task of its role was rejected already."""
        session = self.session
        job = session.jobs[sub_job.job]
        if not session.allocatable(session.queues[job.queue], task):
            return False
        if job.task_has_fit_errors(sub_job.uid, task):
            text = f"Task {task.name} with role spec {task.role} has already predicated failed, skip"
            job.node_fit_errors[task.uid] = FitErrors(text)
            return False
        return True

    def _feasible_nodes(
        self, finder: NodeFinder, task: TaskInfo, nodes: Sequence[NodeInfo], hyper_node: str
    ) -> tuple[list[NodeInfo], FitErrors]:
        """Feasible nodes: the nominated one if it fits, else any."""
        error = self.session.pre_predicate(task)
        if error is not None:
            errors = FitErrors()
            for node in nodes:
                errors.set_error(node.name, error)
            return [], errors
        nominated = task.pod.nominated_node
        if nominated and nominated in self.session.real_nodes[hyper_node]:
            node = self.session.nodes[nominated]
            if task.init_request.less_equal(node.future_idle(), ZERO):
                found, errors = finder.find_feasible(task, [node], self.predicate)
                if found:
                    return found, errors
        return finder.find_feasible(task, nodes, self.predicate)


class JobWorksheet:
    """The tasks of one job that are still to place, by sub-job. Mutates as they are taken out."""

    def __init__(self, sub_jobs: Heap[SubJobInfo], tasks: dict[str, Heap[TaskInfo]]) -> None:
        self.sub_jobs = sub_jobs
        self.tasks = tasks

    def __bool__(self) -> bool:
        return bool(self.sub_jobs)

    def copy(self) -> "JobWorksheet":
        """An independent copy."""
        return JobWorksheet(self.sub_jobs.copy(), {uid: tasks.copy() for uid, tasks in self.tasks.items()})

    def replace_tasks(self, other: "JobWorksheet") -> None:
        """Take over the remaining tasks of another worksheet, which a trial has reduced."""
        self.sub_jobs, self.tasks = other.sub_jobs, other.tasks


def new_worksheet(session: VolcanoSession, job: JobInfo, is_wanted: Callable[[TaskInfo], bool]) -> JobWorksheet:
    """Create the worksheet of a job from those of its pending tasks that are `is_wanted`.

    The sub-jobs that the job still needs to run come first (organizeJobWorksheet).
    """
    required = _required_sub_jobs(session, job)

    def first(left: SubJobInfo, right: SubJobInfo) -> bool:
        if (left.uid in required) != (right.uid in required):
            return left.uid in required
        return session.sub_job_precedes(left, right)

    sub_jobs: Heap[SubJobInfo] = Heap(first)
    tasks: dict[str, Heap[TaskInfo]] = {}
    for uid, sub_job in sorted(job.sub_jobs.items()):
        pending = [task for _, task in sorted(sub_job.tasks_with_status(TaskStatus.PENDING).items()) if is_wanted(task)]
        if pending:
            sub_jobs.push(sub_job)
            tasks[uid] = Heap(session.task_precedes, pending)
    return JobWorksheet(sub_jobs, tasks)


def tasks_in_order(tasks: Heap[TaskInfo]) -> Iterator[TaskInfo]:
    """The tasks in order, without removing them."""
    copy = tasks.copy()
    while copy:
        yield copy.pop()


def _required_sub_jobs(session: VolcanoSession, job: JobInfo) -> set[str]:
    ready: Counter[str] = Counter()
    open_ones = []
    for _, sub_job in sorted(job.sub_jobs.items()):
        if session.sub_job_ready(job, sub_job):
            ready[sub_job.gid] += 1
        else:
            open_ones.append(sub_job)
    open_ones.sort(key=cmp_to_key(lambda left, right: -1 if session.sub_job_precedes(left, right) else 1))
    required = set()
    for sub_job in open_ones:
        if ready[sub_job.gid] < job.min_sub_jobs.get(sub_job.gid, 0):
            required.add(sub_job.uid)
            ready[sub_job.gid] += 1
    return required


class DomainSearch:
    """Finds the domain (hyper node) for each job of one action, by trying to place the job in it."""

    def __init__(self, session: VolcanoSession, placing: TaskPlacement) -> None:
        self._session = session
        self.task_placement = placing
        self.recorder = DomainRecorder(session.domains)

    def allocate_job(self, job: JobInfo, sheet: JobWorksheet, top: HyperNodeInfo) -> VolcanoStatement | None:
        """Place a job in its best domain at or below `top`; None if it fits in none.

        The first gradient that has a domain for the job decides.
        """
        session = self._session
        if not sheet:
            return None
        self.recorder.save_sub_job_domains(job, sheet.tasks)
        for gradient in session.job_gradients(job, top, Purpose.ALLOCATE):
            tries: dict[str, tuple[float, list[StatementStep], JobWorksheet]] = {}
            for hyper_node in gradient:
                job.reset_fit_errors()
                copy = sheet.copy()
                statements, score = self._allocate_sub_jobs(job, copy, hyper_node)
                self.recorder.restore_sub_job_domains(job)
                steps = save_steps(statements)
                if steps and (session.job_ready(job) or session.job_pipelined(job)):
                    tries[hyper_node.name] = score, steps, copy
                for trial in statements:
                    trial.discard()
            if not tries:
                continue
            best = min(tries, key=lambda name: (-tries[name][0], name))
            _, steps, rest = tries[best]
            statement = self._repeat_steps(steps)
            if statement is not None:
                sheet.replace_tasks(rest)
                self.recorder.record_job_domain(job.uid, best)
            return statement
        return None

    def allocate_sub_job(
        self, sub_job: SubJobInfo, sheet: JobWorksheet, top: HyperNodeInfo
    ) -> tuple[VolcanoStatement | None, float]:
        """Place a sub-job in its best domain at or below `top`; returns the placement and the domain's score.

        (None, 0.0) if no domain fits; a placement by nomination scores 0.
        """
        session, tasks = self._session, sheet.tasks[sub_job.uid]
        if not tasks:
            return None, 0.0
        if sub_job.nominated_hyper_node:
            statement = self.allocate_nominated(sub_job, tasks, top)
            if statement is not None:
                return statement, 0.0
        job = session.jobs[sub_job.job]
        for gradient in session.sub_job_gradients(sub_job, top, Purpose.ALLOCATE):
            tries: dict[str, tuple[list[StatementStep], Heap[TaskInfo]]] = {}
            for hyper_node in gradient:
                job.reset_fit_errors(sub_job.uid)
                copy = tasks.copy()
                trial = self.task_placement.place_tasks(sub_job, copy, hyper_node.name)
                if trial is not None and trial.operations:
                    tries[hyper_node.name] = save_steps([trial]), copy
                    trial.discard()
            if not tries:
                continue
            scores = session.hyper_node_scores(sub_job, {name: session.real_node_list[name] for name in tries})
            best = highest_scored_name(scores)
            steps, rest = tries[best]
            statement = self._repeat_steps(steps)
            if statement is None:
                return None, 0.0
            sheet.tasks[sub_job.uid] = rest
            self._record_domain(sub_job, top, best)
            return statement, scores[best]
        return None, 0.0

    def allocate_nominated(
        self, sub_job: SubJobInfo, tasks: Heap[TaskInfo], top: HyperNodeInfo
    ) -> VolcanoStatement | None:
        """Place a sub-job's tasks on their nominated nodes; None, with all nominations dropped, if one does not fit."""
        pinned = sub_job.nominated_hyper_node
        statement = self._allocate_from_nomination(sub_job, tasks)
        if statement is None:
            sub_job.nominated_hyper_node = ""
            for task in tasks_in_order(tasks):
                task.pod = replace(task.pod, nominated_node="")
            return None
        while tasks:
            tasks.pop()
        self._record_domain(sub_job, top, pinned)
        return statement

    def nominated_nodes(
        self, sub_job: SubJobInfo, tasks: Heap[TaskInfo], names: set[str]
    ) -> list[tuple[TaskInfo, NodeInfo]] | None:
        """Each task with its nominated node; None if one does not fit there (validateNomination)."""
        session, finder = self._session, self.task_placement.finder()
        queue = session.queues[session.jobs[sub_job.job].queue]
        plan = []
        for task in tasks_in_order(tasks):
            node = session.nodes.get(task.pod.nominated_node)
            if node is None or node.name not in names or not session.allocatable(queue, task):
                return None
            if (
                session.pre_predicate(task) is not None
                or not finder.find_feasible(task, [node], self.task_placement.predicate)[0]
            ):
                return None
            plan.append((task, node))
        return plan

    def _allocate_from_nomination(self, sub_job: SubJobInfo, tasks: Heap[TaskInfo]) -> VolcanoStatement | None:
        pinned = sub_job.nominated_hyper_node
        names = self._session.real_nodes.get(pinned)
        plan = self.nominated_nodes(sub_job, tasks, names) if names else None
        if plan is None:
            return None
        statement = VolcanoStatement(self._session)
        for task, node in plan:
            if sub_job.network_topology is not None:
                task.hyper_node = pinned
            if not self.task_placement.place_task(statement, task, node):
                statement.discard()
                return None
        return statement

    def _allocate_sub_jobs(
        self, job: JobInfo, sheet: JobWorksheet, hyper_node: HyperNodeInfo
    ) -> tuple[list[VolcanoStatement], float]:
        """Place sub-jobs in one domain until the job is ready or none is left; returns also the sum of their scores."""
        statements: list[VolcanoStatement] = []
        total = 0.0
        while sheet.sub_jobs:
            sub_job = sheet.sub_jobs.pop()
            statement, score = self.allocate_sub_job(sub_job, sheet, hyper_node)
            if statement is None or not statement.operations:
                continue
            statements.append(statement)
            total += score
            if sheet.tasks[sub_job.uid]:
                sheet.sub_jobs.push(sub_job)
            if self._session.job_ready(job):
                break
        return statements, total

    def _record_domain(self, sub_job: SubJobInfo, top: HyperNodeInfo, hyper_node: str) -> None:
        sub_job.allocated_hyper_node = self._session.domains.lowest_common(sub_job.allocated_hyper_node, hyper_node)
        self.recorder.record_sub_job_domain(sub_job.job, top.name, sub_job.uid, sub_job.allocated_hyper_node)

    def _repeat_steps(self, steps: list[StatementStep]) -> VolcanoStatement | None:
        statement = VolcanoStatement(self._session)
        try:
            statement.repeat(steps)
        except PlacementRejected:
            return None
        return statement


ALLOCATE = "allocate"


def allocate(session: VolcanoSession) -> None:
    """Place pending tasks, job by job in queue and job order, and bind those of jobs whose gang is ready.

    A queue found overused gets nothing more in this action.
    """
    sheets = {job.uid: sheet for job, sheet in _jobs_with_pending_tasks(session)}
    jobs: dict[str, Heap[JobInfo]] = {}
    queues = Heap(session.queue_precedes)
    for uid in sheets:
        job = session.jobs[uid]
        if job.queue not in jobs:
            jobs[job.queue] = Heap(session.job_precedes)
            queues.push(session.queues[job.queue])
        jobs[job.queue].push(job)
    remembers = session.configuration.arguments_of(ALLOCATE).flag("predicateErrorCacheEnable", True)
    search = DomainSearch(session, TaskPlacement(session, remembers=remembers))
    while queues:
        queue = queues.pop()
        if session.overused(queue) or not jobs[queue.uid]:
            continue
        job = jobs[queue.uid].pop()
        if _allocate_job(session, search, job, sheets[job.uid]):
            jobs[queue.uid].push(job)
        queues.push(queue)


def _jobs_with_pending_tasks(session: VolcanoSession) -> Iterator[tuple[JobInfo, JobWorksheet]]:
    """Jobs to try, with their tasks to place."""
    for job in session.jobs.values():
        if job.is_not_enqueued:
            if session.is_configured("enqueue"):
                continue
            # Without the enqueue action nothing else enqueues the job.
            job.phase = "Inqueue"
        if not job.tasks_with_status(TaskStatus.PENDING):
            continue
        if session.job_valid(job) is not None or job.queue not in session.queues:
            continue
        if not session.domains.ready and job.contains_network_topology:
            continue
        sheet = new_worksheet(session, job, _is_allocatable)
        if sheet:
            yield job, sheet


def _is_allocatable(task: TaskInfo) -> bool:
    return not task.gated and not task.request.is_empty()


def _allocate_job(session: VolcanoSession, search: DomainSearch, job: JobInfo, sheet: JobWorksheet) -> bool:
    """Place a job; True if it started or progressed and has tasks left."""
    if job.contains_hard_topology or job.contains_sub_job_policy:
        statement = search.allocate_job(job, sheet, session.hyper_nodes[ROOT_NAME])
        if statement is None or not session.job_ready(job):
            return False
        statement.commit()
        search.recorder.apply_to_job(job)
        return bool(sheet)
    sub_job, tasks = job.sub_jobs.get(job.uid), sheet.tasks.get(job.uid)
    if sub_job is None or tasks is None:
        return False
    statement = None
    if sub_job.nominated_hyper_node:
        statement = search.allocate_nominated(sub_job, tasks, session.hyper_nodes[ROOT_NAME])
    if statement is None:
        statement = search.task_placement.place_tasks(sub_job, tasks, ROOT_NAME)
    if statement is None or not session.job_ready(job):
        # Reservations are not undone: later jobs of this session see them.
        return False
    statement.commit()
    sub_job.nominated_hyper_node = ""
    return bool(tasks)


BACKFILL = "backfill"

WAITING = (TaskStatus.PENDING, TaskStatus.PIPELINED)


def backfill(session: VolcanoSession) -> None:
    """Place best-effort tasks one by one, also those that were pipelined before."""
    remembers = session.configuration.arguments_of(BACKFILL).flag("predicateErrorCacheEnable", True)
    for task in pending_tasks(session):
        job = session.jobs[task.job]
        error = session.pre_predicate(task)
        if error is not None:
            errors = FitErrors()
            for node in session.node_list:
                errors.set_error(node.name, error)
            job.node_fit_errors[task.uid] = errors
            continue
        finder = NodeFinder(session, remembers=remembers)
        nodes, errors = finder.find_feasible(task, session.node_list, session.predicate_for_allocate)
        if not nodes:
            job.node_fit_errors[task.uid] = errors
            continue
        own, others = session.split_by_shard(nodes)
        chosen = best_node(session, task, own) or best_node(session, task, others)
        if chosen is not None:
            session.allocate(task, chosen)


def pending_tasks(session: VolcanoSession) -> list[TaskInfo]:
    """The best-effort tasks to place, in order; pipelined ones are taken off their node and included."""
    queues = Heap(session.queue_precedes)
    jobs: dict[str, Heap[JobInfo]] = {}
    tasks: dict[str, Heap[TaskInfo]] = {}
    for job in session.jobs.values():
        if not any(task.best_effort for status in WAITING for task in job.tasks_with_status(status).values()):
            continue
        if job.is_not_enqueued or job.queue not in session.queues or session.job_valid(job) is not None:
            continue
        waiting = [task for task in _by_uid(job, TaskStatus.PENDING) if task.best_effort and not task.gated]
        for task in [task for task in _by_uid(job, TaskStatus.PIPELINED) if task.best_effort]:
            VolcanoStatement(session).undo_placement(task)
            waiting.append(task)
        if not waiting:
            continue
        tasks[job.uid] = Heap(session.task_precedes, waiting)
        if job.queue not in jobs:
            jobs[job.queue] = Heap(session.job_precedes)
            queues.push(session.queues[job.queue])
        jobs[job.queue].push(job)
    result = []
    while queues:
        queue = queues.pop()
        while jobs[queue.uid]:
            job = jobs[queue.uid].pop()
            while tasks[job.uid]:
                result.append(tasks[job.uid].pop())
    return result


def _by_uid(job: JobInfo, status: TaskStatus) -> list[TaskInfo]:
    return [task for _, task in sorted(job.tasks_with_status(status).items())]


def enqueue(session: VolcanoSession) -> None:
    """Let pending jobs be scheduled if queue and cluster may have capacity, one at a time in queue and job order."""
    jobs: dict[str, Heap[JobInfo]] = {}
    queues = Heap(session.queue_precedes)
    seen = set()
    for job in session.jobs.values():
        if job.queue not in session.queues:
            continue
        if job.queue not in seen:
            seen.add(job.queue)
            queues.push(session.queues[job.queue])
        if job.is_not_enqueued:
            jobs.setdefault(job.queue, Heap(session.job_precedes)).push(job)
    while queues:
        queue = queues.pop()
        if not jobs.get(queue.uid):
            continue
        job = jobs[queue.uid].pop()
        group = job.pod_group
        if group is None or group.min_resources is None or session.job_enqueueable(job):
            session.job_enqueued(job)
            job.phase = "Inqueue"
        queues.push(queue)

"""Placement of a sub-job's tasks on the nodes of one hyper node, in one statement."""

from collections.abc import Sequence

from gpuconsole.scheduling.heap import Heap
from gpuconsole.scheduling.volcano.api.fit_errors import FitError, FitErrors
from gpuconsole.scheduling.volcano.api.node import NodeInfo
from gpuconsole.scheduling.volcano.api.resource import ZERO
from gpuconsole.scheduling.volcano.api.sub_job import SubJobInfo
from gpuconsole.scheduling.volcano.api.task import TaskInfo
from gpuconsole.scheduling.volcano.domains import TOP
from gpuconsole.scheduling.volcano.predicate_cache import PredicateCache
from gpuconsole.scheduling.volcano.search import Finder, choose_node, resource_fit
from gpuconsole.scheduling.volcano.session import VolcanoSession
from gpuconsole.scheduling.volcano.statement import CannotPlace, VolcanoStatement


class TaskPlacement:
    """Places tasks on nodes in one session."""

    def __init__(self, session: VolcanoSession, *, remembers: bool) -> None:
        self.session = session
        self._remembers = remembers
        self.memo = PredicateCache(session)

    def finder(self) -> Finder:
        """A node finder that uses the session's predicate cache."""
        return Finder(self.session, remembers=self._remembers, memo=self.memo)

    def tasks(self, sub_job: SubJobInfo, tasks: Heap[TaskInfo], hyper_node: str) -> VolcanoStatement | None:
        """Place tasks until the sub-job is ready; None, with placements undone, if it is neither ready nor pipelined.

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
            if not self._may_try(sub_job, task):
                continue
            found, errors = self._fitting(finder, task, nodes, hyper_node)
            if not found:
                if hyper_node != TOP and errors.nodes:
                    errors.hyper_node = hyper_node
                job.node_fit_errors[task.uid] = errors
                if job.roles.continue_allocating(sub_job.uid):
                    continue
                break
            if sub_job.network_topology is not None:
                task.hyper_node = place
            best = choose_node(session, task, found, self.memo)
            if best is None or not self.place(statement, task, best):
                continue
            if sub_job.network_topology is not None:
                place = session.domains.common(session.domains.lowest_of(best.name), place)
            if session.sub_job_ready(job, sub_job):
                break
        if session.sub_job_ready(job, sub_job) or session.sub_job_pipelined(job, sub_job):
            return statement
        statement.discard()
        return None

    def place(self, statement: VolcanoStatement, task: TaskInfo, node: NodeInfo) -> bool:
        """Allocate idle resources, or else pipeline to releasing ones; False if the node rejects the task.

        Does nothing if the node has neither.
        """
        try:
            if task.init_request.less_equal(node.idle, ZERO):
                statement.allocate(task, node)
            elif task.init_request.less_equal(node.future_idle(), ZERO):
                statement.pipeline(task, node.name, eviction_occurred=False)
        except CannotPlace:
            return False
        return True

    def fits(self, task: TaskInfo, node: NodeInfo) -> FitError | None:
        """Why the task cannot be put on the node; None if it can."""
        return resource_fit(task, node) or self.session.predicate_for_allocate(task, node)

    def _may_try(self, sub_job: SubJobInfo, task: TaskInfo) -> bool:
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

    def _fitting(
        self, finder: Finder, task: TaskInfo, nodes: Sequence[NodeInfo], hyper_node: str
    ) -> tuple[list[NodeInfo], FitErrors]:
        """Feasible nodes: the nominated one if it fits, else any."""
        error = self.session.pre_predicate(task)
        if error is not None:
            errors = FitErrors()
            for node in nodes:
                errors.put(node.name, error)
            return [], errors
        nominated = task.pod.nominated_node
        if nominated and nominated in self.session.real_nodes[hyper_node]:
            node = self.session.nodes[nominated]
            if task.init_request.less_equal(node.future_idle(), ZERO):
                found, errors = finder.fitting(task, [node], self.fits)
                if found:
                    return found, errors
        return finder.fitting(task, nodes, self.fits)

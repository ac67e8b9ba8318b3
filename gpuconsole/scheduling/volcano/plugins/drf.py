"""drf plugin: jobs with the smaller dominant share of the cluster come first; with hierarchy, queues likewise."""

from typing import TYPE_CHECKING, ClassVar

from gpuconsole.scheduling.volcano.api.job import JobInfo
from gpuconsole.scheduling.volcano.api.queue import QueueInfo
from gpuconsole.scheduling.volcano.api.resource import Resource
from gpuconsole.scheduling.volcano.api.status import ALLOCATED_STATUS
from gpuconsole.scheduling.volcano.api.task import TaskInfo
from gpuconsole.scheduling.volcano.arguments import VolcanoArguments
from gpuconsole.scheduling.volcano.functions import PERMIT, EventHandler, Victims
from gpuconsole.scheduling.volcano.plugins.drf_tree import DrfTree
from gpuconsole.scheduling.volcano.plugins.queue_attributes import dominant_share

if TYPE_CHECKING:
    from gpuconsole.scheduling.volcano.session import VolcanoSession

SAME = 0.000001
"""Shares that differ by no more are equal."""


class DrfPlugin:
    """Volcano 1.15 plugins/drf."""

    name: ClassVar[str] = "drf"

    def __init__(self, arguments: VolcanoArguments) -> None:
        self.shares: dict[str, float] = {}
        """By job."""
        self._allocated: dict[str, Resource] = {}

    def on_session_open(self, session: "VolcanoSession") -> None:
        self._session = session
        self.tree = DrfTree(session.total) if session.hierarchy_enabled(self.name) else None
        for job in session.jobs.values():
            allocated = Resource()
            for status in ALLOCATED_STATUS:
                for task in job.of_status(status).values():
                    allocated.add(task.request)
            self._allocated[job.uid] = allocated
            self._weigh(job)
            if self.tree is not None:
                self.tree.allocated.add(allocated)
                self.tree.set_job(session.queues[job.queue], job, allocated)
        functions, name = session.functions, self.name
        functions.preemptable[name] = self._preemptable
        functions.job_order[name] = self._order
        if self.tree is not None:
            functions.queue_order[name] = self._queue_order
            functions.reclaimable[name] = self._reclaimable
        functions.handlers.append(EventHandler(allocate=self._gained, deallocate=self._lost))

    def on_session_close(self, session: "VolcanoSession") -> None:
        pass

    def _weigh(self, job: JobInfo) -> None:
        self.shares[job.uid] = dominant_share(self._allocated[job.uid], self._session.total)

    def _order(self, left: JobInfo, right: JobInfo) -> int:
        ours, theirs = self.shares[left.uid], self.shares[right.uid]
        return (ours > theirs) - (ours < theirs)

    def _preemptable(self, preemptor: TaskInfo, candidates: list[TaskInfo]) -> Victims:
        """Tasks whose job keeps at least the share that the preemptor's would have."""
        if preemptor.job not in self._allocated:
            return [], PERMIT
        total = self._session.total
        ours = dominant_share(self._allocated[preemptor.job].clone().add(preemptor.request), total)
        left: dict[str, Resource] = {}
        victims = []
        for task in candidates:
            if task.job not in self._allocated:
                continue
            rest = left.setdefault(task.job, self._allocated[task.job].clone()).sub(task.request)
            theirs = dominant_share(rest, total)
            if ours < theirs or abs(ours - theirs) <= SAME:
                victims.append(task)
        return victims, PERMIT

    def _queue_order(self, left: QueueInfo, right: QueueInfo) -> int:
        said = self.tree.compare(left, right) if self.tree is not None else 0.0
        return (said > 0) - (said < 0)

    def _reclaimable(self, reclaimer: TaskInfo, candidates: list[TaskInfo]) -> Victims:
        """Tasks of queues that come after the reclaimer's even without them."""
        session, job = self._session, self._session.jobs.get(reclaimer.job)
        if self.tree is None or job is None or job.uid not in self._allocated:
            return [], PERMIT
        tree, mine = self.tree.clone(), session.queues[job.queue]
        tree.allocated.add(reclaimer.request)
        tree.set_job(mine, job, self._allocated[job.uid].clone().add(reclaimer.request))
        victims = []
        for task in candidates:
            other = session.jobs.get(task.job)
            if other is None or other.uid not in self._allocated:
                continue
            queue, rest = session.queues[other.queue], self._allocated[other.uid].clone()
            tree.allocated.sub(task.request)
            tree.set_job(queue, other, rest.sub(task.request))
            goes = tree.compare(mine, queue) < 0
            tree.allocated.add(task.request)
            tree.set_job(queue, other, rest.add(task.request))
            if goes:
                victims.append(task)
        return victims, PERMIT

    def _gained(self, task: TaskInfo) -> None:
        self._moved(task, gains=True)

    def _lost(self, task: TaskInfo) -> None:
        self._moved(task, gains=False)

    def _moved(self, task: TaskInfo, *, gains: bool) -> None:
        job = self._session.jobs.get(task.job)
        allocated = self._allocated.get(task.job)
        if job is None or allocated is None:
            return
        for sums in (allocated,) if self.tree is None else (allocated, self.tree.allocated):
            if gains:
                sums.add(task.request)
            else:
                sums.sub(task.request)
        self._weigh(job)
        if self.tree is not None:
            self.tree.set_job(self._session.queues[job.queue], job, allocated)

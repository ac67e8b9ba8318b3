"""proportion plugin: divides the cluster among queues by weight, up to their requests.

A queue can reclaim what others have above their part.
"""

from typing import ClassVar

from gpuconsole.scheduling.volcano.api.job import JobInfo
from gpuconsole.scheduling.volcano.api.node import NodeInfo
from gpuconsole.scheduling.volcano.api.queue import (
    QueueAttributes,
    QueueInfo,
    divide_among_queues,
    dominant_share,
)
from gpuconsole.scheduling.volcano.api.resource import ZERO, Resource
from gpuconsole.scheduling.volcano.api.task import TaskInfo
from gpuconsole.scheduling.volcano.config import VolcanoArguments
from gpuconsole.scheduling.volcano.plugins.job_enqueueing import overused_message
from gpuconsole.scheduling.volcano.session import VolcanoPlugin, VolcanoSession
from gpuconsole.scheduling.volcano.session_plugins import PERMIT, REJECT, EventHandler, VictimsVote

OPEN_STATE = "Open"


class ProportionQueues:
    """What the queues with jobs deserve and use, by name. Mutates as tasks come and go."""

    def __init__(self, attrs: dict[str, QueueAttributes]) -> None:
        self.attributes = attrs

    def copy(self) -> "ProportionQueues":
        """A copy whose allocated resources are independent."""
        twins = {}
        for name, attr in self.attributes.items():
            twins[name] = copied = QueueAttributes.__new__(QueueAttributes)
            attr.copy_into(copied)
        return ProportionQueues(twins)

    def update_allocation(self, queue: str, request: Resource, *, allocates: bool) -> None:
        """Count a task's request in a queue if it `allocates` the task, or subtract it if it loses the task."""
        attr = self.attributes[queue]
        if allocates:
            attr.allocated.add(request)
        else:
            attr.allocated.sub(request)
        attr.share = dominant_share(attr.allocated, attr.deserved)


class ProportionPlugin(VolcanoPlugin):
    """proportion plugin: divides the cluster among queues by weight, up to their requests (Volcano 1.15)."""

    name: ClassVar[str] = "proportion"

    def __init__(self, arguments: VolcanoArguments) -> None:
        self.queues: dict[str, QueueAttributes] = {}

    def on_session_open(self, session: VolcanoSession) -> None:
        self._session = session
        self._count_jobs(session)
        divide_among_queues(session.total, self.queues)
        functions, name = session.functions, self.name
        functions.queue_order[name] = self._compare_queues
        functions.reclaimable[name] = self._reclaimable
        functions.overused[name] = self._overused
        functions.allocatable[name] = lambda queue, task: self._may_allocate(queue, task.request)
        functions.preemptive[name] = self._preemptive
        functions.job_enqueueable[name] = self._enqueueable
        functions.pre_predicates[name] = self._save_state
        functions.simulate_allocatable[name] = self._simulate_allocatable
        functions.simulate_add[name] = self._simulate_add
        functions.simulate_remove[name] = self._simulate_remove
        attrs = ProportionQueues(self.queues)
        functions.handlers.append(
            EventHandler(
                allocate=lambda task: self._update_queue(attrs, task, allocates=True),
                deallocate=lambda task: self._update_queue(attrs, task, allocates=False),
            )
        )

    def _count_jobs(self, session: VolcanoSession) -> None:
        guaranteed = Resource.sum(Resource.from_amounts(queue.queue.guarantee) for queue in session.queues.values())
        for job in session.jobs.values():
            queue = session.queues[job.queue]
            if queue.uid not in self.queues:
                self.queues[queue.uid] = attr = QueueAttributes(queue)
                attr.set_limit(session.total, guaranteed, queue.queue.capability)
            self.queues[queue.uid].add_job(job)

    def _update_queue(self, attrs: ProportionQueues, task: TaskInfo, *, allocates: bool) -> None:
        job = self._session.jobs.get(task.job)
        if job is not None and job.queue in attrs.attributes:
            attrs.update_allocation(job.queue, task.request, allocates=allocates)

    def _compare_queues(self, left: QueueInfo, right: QueueInfo) -> int:
        if left.queue.priority != right.queue.priority:
            return right.queue.priority - left.queue.priority
        ours, theirs = self.queues[left.uid].share, self.queues[right.uid].share
        return (ours > theirs) - (ours < theirs)

    def _reclaimable(self, _: TaskInfo, candidates: list[TaskInfo]) -> VictimsVote:
        """Tasks of queues that, after earlier victims, still have more of any resource than they deserve."""
        left: dict[str, Resource] = {}
        victims = []
        for task in candidates:
            job = self._session.jobs.get(task.job)
            attr = self.queues.get(job.queue) if job is not None else None
            if attr is None:
                continue
            allocated = left.setdefault(attr.name, attr.allocated.copy())
            if not allocated.less_equal(attr.deserved, ZERO):
                allocated.sub(task.request)
                victims.append(task)
        return victims, PERMIT

    def _overused(self, queue: QueueInfo) -> bool:
        attr = self.queues[queue.uid]
        return attr.deserved.less_equal(attr.allocated, ZERO)

    def _may_allocate(self, queue: QueueInfo, request: Resource) -> bool:
        return queue.queue.state == OPEN_STATE and _stays_within_deserved(self.queues[queue.uid], request)

    def _preemptive(self, queue: QueueInfo, tasks: list[TaskInfo]) -> bool:
        return self._may_allocate(queue, Resource.sum(task.request for task in tasks))

    def _enqueueable(self, job: JobInfo) -> int:
        attr, queue = self.queues[job.queue], self._session.queues[job.queue]
        if queue.queue.state != OPEN_STATE:
            return REJECT
        if job.pod_group is None or job.pod_group.min_resources is None:
            return PERMIT
        least = job.min_resources()
        lacking = attr.need_with(least).exceeded_requested_names(attr.real_capability, least)
        if not lacking:
            attr.inqueue.add(job.without_gated(least))
            return PERMIT
        message = overused_message("queue resource quota insufficient", "insufficient", lacking)
        self._session.events.append((job, message))
        return REJECT

    def _save_state(self, task: TaskInfo) -> None:
        self._session.cycle_state(task)[self.name] = ProportionQueues(self.queues).copy()

    def _saved_state(self, task: TaskInfo) -> ProportionQueues | None:
        saved = self._session.cycle_state(task).get(self.name)
        return saved if isinstance(saved, ProportionQueues) else None

    def _simulate_allocatable(self, queue: QueueInfo, task: TaskInfo) -> bool:
        saved = self._saved_state(task)
        return (
            saved is not None
            and queue.uid in saved.attributes
            and _stays_within_deserved(saved.attributes[queue.uid], task.request)
        )

    def _simulate_add(self, preemptor: TaskInfo, task: TaskInfo, _: NodeInfo) -> None:
        self._simulate_change(preemptor, task, allocates=True)

    def _simulate_remove(self, preemptor: TaskInfo, task: TaskInfo, _: NodeInfo) -> None:
        self._simulate_change(preemptor, task, allocates=False)

    def _simulate_change(self, preemptor: TaskInfo, task: TaskInfo, *, allocates: bool) -> None:
        saved = self._saved_state(preemptor)
        if saved is not None:
            self._update_queue(saved, task, allocates=allocates)


def _stays_within_deserved(attr: QueueAttributes, request: Resource) -> bool:
    """True if with the request the queue has no more than it deserves of the requested resources."""
    return not attr.allocated.copy().add(request).exceeded_requested_names(attr.deserved, request)

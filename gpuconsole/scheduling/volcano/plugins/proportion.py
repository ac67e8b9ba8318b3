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
from gpuconsole.scheduling.volcano.plugins.job_enqueueing import overused
from gpuconsole.scheduling.volcano.session import VolcanoSession
from gpuconsole.scheduling.volcano.session_plugins import PERMIT, REJECT, EventHandler, Victims

OPEN = "Open"


class ProportionQueues:
    """What the queues with jobs deserve and use, by name. Mutates as tasks come and go."""

    def __init__(self, attrs: dict[str, QueueAttributes]) -> None:
        self.attributes = attrs

    def clone(self) -> "ProportionQueues":
        """A copy whose allocated resources are independent."""
        twins = {}
        for name, attr in self.attributes.items():
            twins[name] = twin = QueueAttributes.__new__(QueueAttributes)
            attr.copy_into(twin)
        return ProportionQueues(twins)

    def move(self, queue: str, request: Resource, *, gains: bool) -> None:
        """Count a task's request in a queue if it `gains` the task, or subtract it if it loses the task."""
        attr = self.attributes[queue]
        if gains:
            attr.allocated.add(request)
        else:
            attr.allocated.sub(request)
        attr.share = dominant_share(attr.allocated, attr.deserved)


class ProportionPlugin:
    """proportion plugin: divides the cluster among queues by weight, up to their requests (Volcano 1.15)."""

    name: ClassVar[str] = "proportion"

    def __init__(self, arguments: VolcanoArguments) -> None:
        self.queues: dict[str, QueueAttributes] = {}

    def on_session_open(self, session: VolcanoSession) -> None:
        self._session = session
        self._count(session)
        divide_among_queues(session.total, self.queues)
        functions, name = session.functions, self.name
        functions.queue_order[name] = self._order
        functions.reclaimable[name] = self._reclaimable
        functions.overused[name] = self._overused
        functions.allocatable[name] = lambda queue, task: self._may_take(queue, task.request)
        functions.preemptive[name] = self._preemptive
        functions.job_enqueueable[name] = self._enqueueable
        functions.pre_predicates[name] = self._keep
        functions.simulate_allocatable[name] = self._simulate_allocatable
        functions.simulate_add[name] = self._simulate_add
        functions.simulate_remove[name] = self._simulate_remove
        attrs = ProportionQueues(self.queues)
        functions.handlers.append(
            EventHandler(
                allocate=lambda task: self._tell(attrs, task, gains=True),
                deallocate=lambda task: self._tell(attrs, task, gains=False),
            )
        )

    def on_session_close(self, session: VolcanoSession) -> None:
        pass

    def _count(self, session: VolcanoSession) -> None:
        guaranteed = Resource()
        for queue in session.queues.values():
            guaranteed.add(Resource.of(queue.queue.guarantee))
        for job in session.jobs.values():
            queue = session.queues[job.queue]
            if queue.uid not in self.queues:
                self.queues[queue.uid] = attr = QueueAttributes(queue)
                attr.limit(session.total, guaranteed, queue.queue.capability)
            self.queues[queue.uid].count(job)

    def _tell(self, attrs: ProportionQueues, task: TaskInfo, *, gains: bool) -> None:
        job = self._session.jobs.get(task.job)
        if job is not None and job.queue in attrs.attributes:
            attrs.move(job.queue, task.request, gains=gains)

    def _order(self, left: QueueInfo, right: QueueInfo) -> int:
        if left.queue.priority != right.queue.priority:
            return right.queue.priority - left.queue.priority
        ours, theirs = self.queues[left.uid].share, self.queues[right.uid].share
        return (ours > theirs) - (ours < theirs)

    def _reclaimable(self, _: TaskInfo, candidates: list[TaskInfo]) -> Victims:
        """Tasks of queues that, after earlier victims, still have more of any resource than they deserve."""
        left: dict[str, Resource] = {}
        victims = []
        for task in candidates:
            job = self._session.jobs.get(task.job)
            attr = self.queues.get(job.queue) if job is not None else None
            if attr is None:
                continue
            allocated = left.setdefault(attr.name, attr.allocated.clone())
            if not allocated.less_equal(attr.deserved, ZERO):
                allocated.sub(task.request)
                victims.append(task)
        return victims, PERMIT

    def _overused(self, queue: QueueInfo) -> bool:
        attr = self.queues[queue.uid]
        return attr.deserved.less_equal(attr.allocated, ZERO)

    def _may_take(self, queue: QueueInfo, request: Resource) -> bool:
        return queue.queue.state == OPEN and _within(self.queues[queue.uid], request)

    def _preemptive(self, queue: QueueInfo, tasks: list[TaskInfo]) -> bool:
        request = Resource()
        for task in tasks:
            request.add(task.request)
        return self._may_take(queue, request)

    def _enqueueable(self, job: JobInfo) -> int:
        attr, queue = self.queues[job.queue], self._session.queues[job.queue]
        if queue.queue.state != OPEN:
            return REJECT
        if job.pod_group is None or job.pod_group.min_resources is None:
            return PERMIT
        least = job.min_resources()
        lacking = attr.wanting(least).exceeding_where_requested(attr.real_capability, least)
        if not lacking:
            attr.inqueue.add(job.without_gated(least))
            return PERMIT
        message = overused("queue resource quota insufficient", "insufficient", lacking)
        self._session.events.append((job, message))
        return REJECT

    def _keep(self, task: TaskInfo) -> None:
        self._session.cycle_state(task)[self.name] = ProportionQueues(self.queues).clone()

    def _kept(self, task: TaskInfo) -> ProportionQueues | None:
        kept = self._session.cycle_state(task).get(self.name)
        return kept if isinstance(kept, ProportionQueues) else None

    def _simulate_allocatable(self, queue: QueueInfo, task: TaskInfo) -> bool:
        kept = self._kept(task)
        return kept is not None and queue.uid in kept.attributes and _within(kept.attributes[queue.uid], task.request)

    def _simulate_add(self, preemptor: TaskInfo, task: TaskInfo, _: NodeInfo) -> None:
        self._simulate(preemptor, task, gains=True)

    def _simulate_remove(self, preemptor: TaskInfo, task: TaskInfo, _: NodeInfo) -> None:
        self._simulate(preemptor, task, gains=False)

    def _simulate(self, preemptor: TaskInfo, task: TaskInfo, *, gains: bool) -> None:
        kept = self._kept(preemptor)
        if kept is not None:
            self._tell(kept, task, gains=gains)


def _within(attr: QueueAttributes, request: Resource) -> bool:
    """True if with the request the queue has no more than it deserves of the requested resources."""
    return not attr.allocated.clone().add(request).exceeding_where_requested(attr.deserved, request)

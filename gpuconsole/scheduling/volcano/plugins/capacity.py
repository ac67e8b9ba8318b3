"""capacity plugin: deserved resources and capability of each queue; with hierarchy, queues form a tree."""

from typing import TYPE_CHECKING, ClassVar

from gpuconsole.scheduling.volcano.api.job import JobInfo
from gpuconsole.scheduling.volcano.api.node import NodeInfo
from gpuconsole.scheduling.volcano.api.queue import QueueInfo
from gpuconsole.scheduling.volcano.api.resource import Resource
from gpuconsole.scheduling.volcano.api.task import TaskInfo
from gpuconsole.scheduling.volcano.arguments import VolcanoArguments
from gpuconsole.scheduling.volcano.functions import PERMIT, REJECT, EventHandler
from gpuconsole.scheduling.volcano.plugins.capacity_devices import least_devices, merge
from gpuconsole.scheduling.volcano.plugins.capacity_reclaim import Reclaiming, above
from gpuconsole.scheduling.volcano.plugins.capacity_tree import (
    ROOT,
    CapacityQueueAttributes,
    CapacityQueues,
    grow,
    side_by_side,
)
from gpuconsole.scheduling.volcano.plugins.overcommit import overused

if TYPE_CHECKING:
    from gpuconsole.scheduling.volcano.session import VolcanoSession

OPEN = "Open"


class CapacityPlugin:
    """Volcano 1.15 plugins/capacity, without gate SchedulingGatesQueueAdmission, which is off by default."""

    name: ClassVar[str] = "capacity"

    def __init__(self, arguments: VolcanoArguments) -> None:
        self._level = max(arguments.integer("ancestorReclaimLevel", 0), 0)
        self._devices = arguments.flag("capacity.DynamicResourceAllocationEnable", True)
        self._by_amount = arguments.flag("capacity.DRAConsumableCapacityEnable", False)
        self.queues = CapacityQueues({}, tree=False)
        self.ready = True
        """False if hierarchy is enabled and the queues form no tree; nothing is enqueued or allocated then."""

    def on_session_open(self, session: "VolcanoSession") -> None:
        self._session = session
        tree = session.hierarchy_enabled(self.name)
        attrs = {uid: self._attributes(queue) for uid, queue in session.queues.items()}
        self.queues = CapacityQueues(attrs, tree=tree)
        arrange = grow if tree else side_by_side
        self.ready = arrange(attrs, session.queues, session.jobs.values(), session.total) is not False
        functions, name = session.functions, self.name
        reclaiming = Reclaiming(session, self.queues, self._level, ready=self.ready)
        functions.reclaimable[name] = reclaiming.reclaimable
        functions.unified_evictable[name] = reclaiming.evictable
        functions.preemptive[name] = self._preemptive
        functions.allocatable[name] = self._allocatable
        functions.job_enqueueable[name] = self._enqueueable
        functions.pre_predicates[name] = self._keep
        functions.simulate_allocatable[name] = self._simulate_allocatable
        functions.simulate_add[name] = self._simulate_add
        functions.simulate_remove[name] = self._simulate_remove
        if self.ready:
            functions.queue_order[name] = self._order
            if tree:
                functions.victim_queue_order[name] = self._victim_order
        functions.handlers.append(EventHandler(allocate=self._gained, deallocate=self._lost))

    def on_session_close(self, session: "VolcanoSession") -> None:
        pass

    def _attributes(self, queue: QueueInfo) -> CapacityQueueAttributes:
        said = queue.queue
        counted = self._devices and any(
            "deviceclass/" in name for name in {**said.capability, **said.deserved, **said.guarantee}
        )
        return CapacityQueueAttributes(queue, devices=counted, by_amount=self._by_amount)

    def _gained(self, task: TaskInfo) -> None:
        job = self._session.jobs.get(task.job)
        if job is not None and job.queue in self.queues.attributes:
            self.queues.gain(job.queue, task)

    def _lost(self, task: TaskInfo) -> None:
        job = self._session.jobs.get(task.job)
        if job is not None and job.queue in self.queues.attributes:
            self.queues.lose(job.queue, task)

    # Orders.

    def _order(self, left: QueueInfo, right: QueueInfo) -> int:
        """By priority, then leaves first, then by share; leaves by that of their ancestors just below the
        common one.
        """
        if left.queue.priority != right.queue.priority:
            return right.queue.priority - left.queue.priority
        ours, theirs = self.queues.attributes[left.uid], self.queues.attributes[right.uid]
        if not self.queues.tree:
            return _by_share(ours, theirs)
        if bool(ours.children) != bool(theirs.children):
            return 1 if ours.children else -1
        if ours.children:
            return _by_share(ours, theirs)
        level = _common_level(ours, theirs)
        return _by_share(self._below(ours, level), self._below(theirs, level))

    def _below(self, attr: CapacityQueueAttributes, level: int) -> CapacityQueueAttributes:
        return self.queues.attributes[attr.ancestors[level + 1]] if level + 1 < len(attr.ancestors) else attr

    def _victim_order(self, left: QueueInfo, right: QueueInfo, preemptor: QueueInfo) -> int:
        """Victims come first from the queue that is closer to the preemptor's in the tree."""
        attrs = self.queues.attributes
        mine = attrs[preemptor.uid]
        return _common_level(attrs[right.uid], mine) - _common_level(attrs[left.uid], mine)

    # Votes.

    def _preemptive(self, queue: QueueInfo, tasks: list[TaskInfo]) -> bool:
        """True if the queue stays within its limit, and for some resource within what it or an ancestor deserves."""
        if not self.ready or queue.queue.state != OPEN:
            return False
        request = Resource()
        for task in tasks:
            request.add(task.request)
        attr = self.queues.attributes[queue.uid]
        future = attr.allocated.clone().add(request)
        if future.exceeding_where_requested(attr.real_capability, request):
            return False
        line = [attr]
        if self.queues.tree:
            names = [above(attr, level) for level in range(1, self._level + 1)]
            line += [self.queues.attributes[name] for name in names if name and name != ROOT]
        return any(one.allocated.clone().add(request).within_where_used(one.deserved, request) for one in line)

    def _allocatable(self, queue: QueueInfo, task: TaskInfo) -> bool:
        if queue.queue.state != OPEN or not self.ready:
            return False
        return self._takes(self.queues, queue, task)

    def _takes(self, attrs: CapacityQueues, queue: QueueInfo, task: TaskInfo) -> bool:
        """True if the queue is a leaf, and it and all its ancestors have room for the task."""
        if attrs.attributes[queue.uid].children:
            return False
        return all(_has_room(attr, task) for attr in attrs.line(queue.uid))

    def _enqueueable(self, job: JobInfo) -> int:
        if not self.ready:
            return REJECT
        attr, queue = self.queues.attributes[job.queue], self._session.queues[job.queue]
        if attr.children or queue.queue.state != OPEN:
            return REJECT
        devices = least_devices(job) if attr.devices is not None else {}
        if (job.pod_group is None or job.pod_group.min_resources is None) and not devices:
            return PERMIT
        least = job.min_resources()
        for one in self.queues.line(job.queue):
            lacking = one.wanting(least).exceeding_where_requested(one.real_capability, least)
            if not lacking and one.devices is not None and not one.devices.has_room(devices, promised=True):
                lacking = ["dra-resource-exceeded"]
            if lacking:
                message = overused("queue resource quota insufficient", "insufficient", lacking)
                self._session.events.append((job, message))
                return REJECT
        for one in self.queues.line(job.queue):
            one.inqueue.add(job.without_gated(least))
            if one.devices is not None:
                merge(one.devices.inqueue, devices)
        return PERMIT

    # Topology-aware preemption, which tries evictions on copies of nodes.

    def _keep(self, task: TaskInfo) -> None:
        self._session.cycle_state(task)[self.name] = self.queues.clone()

    def _kept(self, task: TaskInfo) -> CapacityQueues | None:
        kept = self._session.cycle_state(task).get(self.name)
        return kept if isinstance(kept, CapacityQueues) else None

    def _simulate_allocatable(self, queue: QueueInfo, task: TaskInfo) -> bool:
        kept = self._kept(task)
        return self.ready and kept is not None and self._takes(kept, queue, task)

    def _simulate_add(self, preemptor: TaskInfo, task: TaskInfo, _: NodeInfo) -> None:
        kept, job = self._kept(preemptor), self._session.jobs.get(task.job)
        if kept is not None and job is not None:
            kept.gain(job.queue, task)

    def _simulate_remove(self, preemptor: TaskInfo, task: TaskInfo, _: NodeInfo) -> None:
        kept, job = self._kept(preemptor), self._session.jobs.get(task.job)
        if kept is not None and job is not None:
            kept.lose(job.queue, task)


def _has_room(attr: CapacityQueueAttributes, task: TaskInfo) -> bool:
    if attr.devices is not None and task.dra and not attr.devices.takes(task):
        return False
    future = attr.allocated.clone().add(task.request)
    return not future.exceeding_where_requested(attr.real_capability, task.request)


def _by_share(left: CapacityQueueAttributes, right: CapacityQueueAttributes) -> int:
    """The smaller share first; among equals a queue that deserves something."""
    if left.share != right.share:
        return -1 if left.share < right.share else 1
    return int(left.deserved.is_empty()) - int(right.deserved.is_empty())


def _common_level(left: CapacityQueueAttributes, right: CapacityQueueAttributes) -> int:
    """Level of the lowest common ancestor; 0 is the root."""
    level = 0
    for number, (ours, theirs) in enumerate(zip(left.ancestors, right.ancestors, strict=False)):
        if ours != theirs:
            break
        level = number
    return level

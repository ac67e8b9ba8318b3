"""Queues in a session: their resources as the plugins proportion, capacity and overcommit count them.

`QueueAttributes` holds deserved, allocated, requested and maximum resources. `divide_among_queues` divides the cluster
by weight, as the proportion plugin does. `unallocated_min_resources` is the part of minResources that enqueued jobs
have not used yet.
"""

import sys

from gpuconsole.model.resources import CPU, MEMORY, PODS, Resources
from gpuconsole.model.volcano import VolcanoQueue
from gpuconsole.scheduling.volcano.api.job import JobInfo
from gpuconsole.scheduling.volcano.api.resource import INFINITY, ZERO, Resource, excess, is_scalar
from gpuconsole.scheduling.volcano.api.task import ALLOCATED_STATUSES, HIERARCHY, HIERARCHY_WEIGHTS, TaskStatus


class QueueInfo:
    """A queue of the session (api.QueueInfo). `hierarchy` and `weights` are paths from the root to the queue (hdrf)."""

    __slots__ = ("hierarchy", "name", "queue", "uid", "weight", "weights")

    def __init__(self, queue: VolcanoQueue) -> None:
        self.queue = queue
        self.uid = self.name = queue.name
        self.weight = queue.weight
        self.hierarchy = queue.annotations.get(HIERARCHY, "")
        self.weights = queue.annotations.get(HIERARCHY_WEIGHTS, "")

    def __repr__(self) -> str:
        return f"QueueInfo({self.name})"

    @property
    def is_reclaimable(self) -> bool:
        """True if other queues may reclaim resources from this one."""
        return self.queue.reclaimable


def unallocated_min_resources(job: JobInfo) -> Resource:
    """The part of a job's minResources that it has not allocated (GetInqueueResource)."""
    result = Resource()
    group = job.pod_group
    if group is None or group.min_resources is None:
        return result
    min_resources = Resource.from_amounts(group.min_resources)
    for name in group.min_resources:
        missing = min_resources.get(name) - job.allocated.get(name)
        if missing <= 0:
            continue
        if name == CPU:
            result.cpu = missing
        elif name == MEMORY:
            result.memory = missing
        elif name == PODS or is_scalar(name):
            result.set_scalar(name, missing)
    return result


def reserves_min_resources(job: JobInfo) -> bool:
    """True if the part of its minResources that a running job has not allocated counts as inqueue resources.

    Volcano reserves that part for the job's further tasks while at least minMember of its tasks are allocated.
    """
    group = job.pod_group
    if group is None or job.phase != "Running" or group.min_resources is None:
        return False
    return job.allocated_task_num >= group.min_member


class QueueAttributes:
    """What one queue deserves, may have, requests and has allocated. Mutates as tasks come and go."""

    __slots__ = (
        "allocated",
        "capability",
        "deserved",
        "elastic",
        "guarantee",
        "inqueue",
        "name",
        "real_capability",
        "request",
        "share",
        "weight",
    )

    def __init__(self, queue: QueueInfo) -> None:
        self.name = queue.uid
        self.weight = queue.weight
        self.share = 0.0
        self.deserved, self.allocated, self.request = Resource(), Resource(), Resource()
        self.elastic = Resource()
        """What its jobs have allocated above their minResources."""
        self.inqueue = Resource()
        """The minResources that its enqueued jobs have not used yet."""
        self.guarantee = Resource.from_amounts(queue.queue.guarantee)
        self.capability = Resource.from_amounts(queue.queue.capability)
        self.real_capability = Resource()
        """The most that it can get, without what is guaranteed to other queues."""

    def set_limit(self, total: Resource, guaranteed: Resource, capability: Resources) -> None:
        """Set the most that the queue can get; `guaranteed` is the sum of what all queues are guaranteed.

        A capability without cpu or memory does not limit these.
        """
        self.real_capability = excess(total, guaranteed).add(self.guarantee)
        if capability:
            self.capability.cpu = self.capability.cpu if self.capability.cpu > 0 else sys.float_info.max
            self.capability.memory = self.capability.memory if self.capability.memory > 0 else sys.float_info.max
            self.real_capability.set_min(self.capability, INFINITY)

    def add_job(self, job: JobInfo) -> None:
        """Add a job's allocated, requested, inqueue and elastic resources to the queue's."""
        for status, tasks in job.task_status_index.items():
            for task in tasks.values():
                if status in ALLOCATED_STATUSES:
                    self.allocated.add(task.request)
                if status in ALLOCATED_STATUSES or status is TaskStatus.PENDING:
                    self.request.add(task.request)
        if job.phase == "Inqueue" or reserves_min_resources(job):
            self.inqueue.add(job.without_gated(unallocated_min_resources(job)))
        self.elastic.add(job.elastic_resources())

    def need_with(self, min_resources: Resource) -> Resource:
        """The queue's need with a further job of these minResources: allocated and inqueue, less elastic resources."""
        return min_resources.copy().add(self.allocated).add(self.inqueue).sub(self.elastic)

    def copy_into(self, other: "QueueAttributes") -> None:
        """Copy the attributes to `other`, which shares them except `allocated`."""
        other.name, other.weight, other.share = self.name, self.weight, self.share
        other.deserved, other.allocated, other.request = self.deserved, self.allocated.copy(), self.request
        other.elastic, other.inqueue, other.guarantee = self.elastic, self.inqueue, self.guarantee
        other.capability, other.real_capability = self.capability, self.real_capability


def share_of(part: float, whole: float) -> float:
    """The part as a fraction of the whole; for a whole of 0 it is 0 if the part is 0, else 1."""
    if whole == 0:
        return 0.0 if part == 0 else 1.0
    return part / whole


def dominant_share(part: Resource, whole: Resource) -> float:
    """The largest share of the resources that the whole has; at least 0."""
    return max([0.0, *(share_of(part.get(name), whole.get(name)) for name in whole.names())])


def maximum_of(left: Resource, right: Resource) -> Resource:
    """The larger amount of each dimension; scalars below zero count as unnamed."""
    result = Resource(max(left.cpu, right.cpu), max(left.memory, right.memory))
    if left.scalars is not None or right.scalars is not None:
        result.scalars = {name: value for name, value in (left.scalars or {}).items() if value >= 0}
        for name, value in (right.scalars or {}).items():
            if value >= 0:
                result.scalars[name] = max(value, result.scalars.get(name, 0.0))
    return result


def divide_among_queues(total: Resource, attrs: dict[str, QueueAttributes]) -> None:
    """Divide the total among queues by weight, in rounds, until each has what it requests or may have.

    Sets `deserved` and `share_of` of the queues.
    """
    remaining = total.copy()
    met: set[str] = set()
    while weights := sum(attr.weight for attr in attrs.values() if attr.name not in met):
        before = remaining.copy()
        given, taken = Resource(), Resource()
        for attr in (attr for attr in attrs.values() if attr.name not in met):
            old = attr.deserved.copy()
            attr.deserved.add(remaining.copy().multiply(attr.weight / weights))
            attr.deserved.set_min(attr.real_capability, INFINITY).set_min(attr.request, ZERO)
            attr.deserved = maximum_of(attr.deserved, attr.guarantee)
            attr.share = dominant_share(attr.allocated, attr.deserved)
            if attr.request.less_equal(attr.deserved, ZERO) or attr.deserved == old:
                met.add(attr.name)
            more, less = attr.deserved.diff(old, ZERO)
            given.add(more)
            taken.add(less)
        remaining = excess(remaining.copy().add(taken), given)
        if remaining.is_empty() or remaining == before:
            return

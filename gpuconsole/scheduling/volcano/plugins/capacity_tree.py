"""Queues of the capacity plugin: flat, or as a tree whose parents sum up their children."""

from collections.abc import Iterable, Mapping

from gpuconsole.model.resources import MAX
from gpuconsole.scheduling.volcano.api.job import JobInfo
from gpuconsole.scheduling.volcano.api.queue import QueueInfo
from gpuconsole.scheduling.volcano.api.resource import INFINITY, Resource, exceeded_part
from gpuconsole.scheduling.volcano.api.status import ALLOCATED_STATUS
from gpuconsole.scheduling.volcano.api.task import TaskInfo
from gpuconsole.scheduling.volcano.plugins.capacity_devices import DeviceQuota, merge
from gpuconsole.scheduling.volcano.plugins.queue_attributes import QueueAttributes, dominant_share, larger

ROOT = "root"


class CapacityQueueAttributes(QueueAttributes):
    """A queue with its place in the tree. Mutates as tasks come and go."""

    __slots__ = ("ancestors", "children", "devices")

    def __init__(self, queue: QueueInfo, *, devices: bool, by_amount: bool) -> None:
        super().__init__(queue)
        self.deserved = Resource.of(queue.queue.deserved)
        self.ancestors: tuple[str, ...] = ()
        """From the root down to the parent."""
        self.children: list[str] = []
        self.devices = DeviceQuota(queue.queue.capability, by_amount=by_amount) if devices else None
        """None if claims are not counted, or the queue names no device class."""

    def clone(self) -> "CapacityQueueAttributes":
        """A copy whose allocated resources and device claims are independent."""
        twin = CapacityQueueAttributes.__new__(CapacityQueueAttributes)
        self.copy_into(twin)
        twin.ancestors, twin.children = self.ancestors, self.children
        twin.devices = None if self.devices is None else self.devices.clone()
        return twin

    def weigh(self) -> None:
        """Set the share; 1 if the queue deserves nothing, so that it comes after queues below what they deserve."""
        self.share = 1.0 if self.deserved.is_empty() else dominant_share(self.allocated, self.deserved)

    def gain(self, task: TaskInfo) -> None:
        """Count a task that got a node."""
        self.allocated.add(task.request)
        if self.devices is not None:
            self.devices.add(task)

    def lose(self, task: TaskInfo) -> None:
        """Stop counting a task that lost its node."""
        self.allocated.sub(task.request)
        if self.devices is not None:
            self.devices.sub(task)


class CapacityQueues:
    """All queues by name. Mutates as tasks come and go."""

    def __init__(self, attrs: dict[str, CapacityQueueAttributes], *, tree: bool) -> None:
        self.attributes = attrs
        self.tree = tree

    def clone(self) -> "CapacityQueues":
        """Copies of all queues, for a trial."""
        return CapacityQueues({name: attr.clone() for name, attr in self.attributes.items()}, tree=self.tree)

    def line(self, queue: str) -> list[CapacityQueueAttributes]:
        """The queue and its ancestors, up to the root."""
        attr = self.attributes[queue]
        return [attr, *(self.attributes[name] for name in reversed(attr.ancestors))]

    def gain(self, queue: str, task: TaskInfo) -> None:
        """Count a task that got a node in its queue and all ancestors."""
        for attr in self.line(queue):
            attr.gain(task)
        self.attributes[queue].weigh()

    def lose(self, queue: str, task: TaskInfo) -> None:
        """Stop counting a task that lost its node in its queue and all ancestors."""
        for attr in self.line(queue):
            attr.lose(task)
        self.attributes[queue].weigh()


def side_by_side(
    attrs: dict[str, CapacityQueueAttributes], queues: Mapping[str, QueueInfo], jobs: Iterable[JobInfo], total: Resource
) -> None:
    """Set the attributes of queues without hierarchy; queues without jobs are removed."""
    guaranteed = Resource()
    for queue in queues.values():
        guaranteed.add(Resource.of(queue.queue.guarantee))
    used = set()
    for job in jobs:
        attr = attrs[job.queue]
        if job.queue not in used:
            used.add(job.queue)
            attr.limit(total, guaranteed, queues[job.queue].queue.capability)
        _count(attr, job)
    for name in attrs.keys() - used:
        del attrs[name]
    for attr in attrs.values():
        attr.deserved = larger(attr.deserved.set_min(attr.real_capability, INFINITY), attr.guarantee)
        attr.weigh()


def grow(
    attrs: dict[str, CapacityQueueAttributes], queues: Mapping[str, QueueInfo], jobs: Iterable[JobInfo], total: Resource
) -> bool:
    """Arrange the queues as a tree and set their attributes; False if that is impossible, and nothing is scheduled
    then.

    It is impossible without a root, with a missing parent or a cycle, and if a queue with children has jobs.
    """
    placed: set[str] = set()
    if not all(_place(attrs, queues, name, placed, ()) for name in sorted(queues)):
        return False
    for job in jobs:
        attr = attrs[job.queue]
        if attr.children:
            return False
        _count_upwards(attrs, attr, job)
    root = attrs.get(ROOT)
    if root is None:
        return False
    # The root limits nothing unless its capability is set.
    if root.capability.is_empty():
        root.capability = Resource.infinite()
        for name in total.scalars or ():
            root.capability.set_scalar(name, float(MAX))
    root.real_capability = root.capability
    _inherit(attrs, root)
    for attr in attrs.values():
        attr.weigh()
    return True


def _count(attr: CapacityQueueAttributes, job: JobInfo) -> None:
    attr.count(job)
    if attr.devices is not None:
        for task in job.tasks.values():
            if task.status in ALLOCATED_STATUS and task.dra:
                attr.devices.add(task)


def _count_upwards(attrs: dict[str, CapacityQueueAttributes], attr: CapacityQueueAttributes, job: JobInfo) -> None:
    """Count a job in its queue, and add the difference to all ancestors."""
    fields = ("allocated", "request", "inqueue", "elastic")
    before = {field: getattr(attr, field).clone() for field in fields}
    had = {} if attr.devices is None else attr.devices.clone().allocated
    _count(attr, job)
    for name in attr.ancestors:
        for field in fields:
            getattr(attrs[name], field).add(getattr(attr, field).clone().sub(before[field]))
        above = attrs[name].devices
        if above is None or attr.devices is None:
            continue
        for device_class, now in attr.devices.allocated.items():
            if device_class in above.capability:
                more = now.clone()
                if device_class in had:
                    more.sub(had[device_class])
                merge(above.allocated, {device_class: more})


def _place(
    attrs: dict[str, CapacityQueueAttributes],
    queues: Mapping[str, QueueInfo],
    name: str,
    placed: set[str],
    chain: tuple[str, ...],
) -> bool:
    """Add a queue below its parent; False if there is no such parent, or it would be its own ancestor."""
    if name in chain:
        return False
    if name in placed or name == ROOT:
        return True
    placed.add(name)
    parent = queues[name].queue.parent or ROOT
    if parent not in queues or parent in (*chain, name) or not _place(attrs, queues, parent, placed, (*chain, name)):
        return False
    attrs[parent].children.append(name)
    attrs[name].ancestors = (*attrs[parent].ancestors, parent)
    return True


def _inherit(attrs: dict[str, CapacityQueueAttributes], attr: CapacityQueueAttributes) -> None:
    """Set deserved resources, capability and limit of a queue's children, and of all below them."""
    children = [attrs[name] for name in sorted(attr.children)]
    guaranteed, deserved = Resource(), Resource()
    for child in children:
        child.deserved = larger(child.deserved, child.guarantee)
        deserved.add(child.deserved)
        guaranteed.add(child.guarantee)
        capability = child.capability
        capability.cpu = capability.cpu if capability.cpu > 0 else attr.capability.cpu
        capability.memory = capability.memory if capability.memory > 0 else attr.capability.memory
        for name, value in (attr.capability.scalars or {}).items():
            if name not in (capability.scalars or {}):
                capability.set_scalar(name, value)
    if attr.name == ROOT:
        attr.guarantee, attr.deserved = guaranteed, deserved
    for child in children:
        limit = exceeded_part(attr.real_capability, guaranteed).add(child.guarantee)
        child.real_capability = limit.set_min(child.capability, INFINITY)
    for child in children:
        _inherit(attrs, child)

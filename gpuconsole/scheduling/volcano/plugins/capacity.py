"""capacity plugin: deserved resources and capability of each queue; with hierarchy, queues form a tree.

`CapacityQueues` are the queues, flat or as a tree whose parents sum up their children. `DeviceQuota` limits how many
devices of each class a queue may claim. `ReclaimVictimSelector` selects the victims when a queue below its deserved
resources reclaims from others.
"""

from collections.abc import Iterable, Mapping
from typing import ClassVar

from gpuconsole.model.resources import MAX, Resources
from gpuconsole.scheduling.volcano.api.job import JobInfo
from gpuconsole.scheduling.volcano.api.node import NodeInfo
from gpuconsole.scheduling.volcano.api.queue import QueueAttributes, QueueInfo, dominant_share, maximum_of
from gpuconsole.scheduling.volcano.api.resource import INFINITY, ZERO, Resource, common_names, excess, without_ignored
from gpuconsole.scheduling.volcano.api.task import ALLOCATED_STATUSES, Devices, DraResource, TaskInfo
from gpuconsole.scheduling.volcano.config import VolcanoArguments
from gpuconsole.scheduling.volcano.plugins.job_enqueueing import overused_message
from gpuconsole.scheduling.volcano.session import VolcanoPlugin, VolcanoSession
from gpuconsole.scheduling.volcano.session_plugins import (
    PERMIT,
    REJECT,
    EventHandler,
    EvictionContext,
    VictimRequester,
    VictimsVote,
)

DEVICE_COUNT_PREFIX = "deviceclass/"
"""Prefix of a device quota: `deviceclass/CLASS` limits the number of devices of a class."""
DEVICE_CAPACITY_INFIX = ".deviceclass/"
"""Infix of a capacity quota: `DIMENSION.deviceclass/CLASS` limits the total of a dimension over a class's devices."""


class DeviceQuota:
    """How many devices of each class one queue may claim, and has claimed. Mutates as tasks come and go."""

    __slots__ = ("allocated", "by_amount", "capability", "inqueue", "references")

    def __init__(self, capability: Resources, *, by_amount: bool) -> None:
        self.capability = parse_device_quotas(capability)
        self.by_amount = by_amount
        """True if capacity dimensions count besides the number of devices (DRAConsumableCapacity)."""
        self.allocated: dict[str, DraResource] = {}
        self.inqueue: dict[str, DraResource] = {}
        """Devices that enqueued jobs will claim."""
        self.references: dict[str, int] = {}
        """How many tasks use each claim, which counts only once."""

    def copy(self) -> "DeviceQuota":
        """An independent copy; `inqueue` is shared."""
        copied = DeviceQuota({}, by_amount=self.by_amount)
        copied.capability = self.capability
        copied.allocated = {name: request.copy() for name, request in self.allocated.items()}
        copied.inqueue, copied.references = self.inqueue, dict(self.references)
        return copied

    def add(self, task: TaskInfo) -> None:
        """Count the claims of a task that got a node."""
        if not task.claim_dra:
            merge_devices(self.allocated, task.dra)
            return
        for key in task.claim_keys:
            devices = task.claim_dra.get(key)
            if devices:
                if not self.references.get(key):
                    merge_devices(self.allocated, devices)
                self.references[key] = self.references.get(key, 0) + 1

    def sub(self, task: TaskInfo) -> None:
        """Stop counting the claims of a task that lost its node."""
        if not task.claim_dra:
            self._release(task.dra)
            return
        for key in task.claim_keys:
            devices = task.claim_dra.get(key)
            if not devices:
                continue
            left = self.references.get(key, 0) - 1
            if left > 0:
                self.references[key] = left
            else:
                self.references.pop(key, None)
                self._release(devices)

    def _release(self, devices: Devices) -> None:
        for name, request in devices.items():
            if name in self.allocated:
                self.allocated[name].sub(request)

    def fits_task(self, task: TaskInfo) -> bool:
        """True if the quota has capacity for the task's claims, except those that a counted task uses already."""
        if not task.claim_dra:
            return self.fits_devices(task.dra, with_inqueue=False)
        new: dict[str, DraResource] = {}
        for key in task.claim_keys:
            if not self.references.get(key):
                merge_devices(new, task.claim_dra.get(key, {}))
        return self.fits_devices(new, with_inqueue=False)

    def fits_devices(self, devices: Devices, *, with_inqueue: bool) -> bool:
        """True if no quota is exceeded; with `with_inqueue`, devices that enqueued jobs will claim count as used."""
        return all(
            self._fits(name, request, with_inqueue) for name, request in devices.items() if name in self.capability
        )

    def _fits(self, name: str, request: DraResource, with_inqueue: bool) -> bool:
        limit, used = self.capability[name], self.allocated.get(name, DraResource()).copy()
        if with_inqueue:
            used.add(self.inqueue.get(name, DraResource()))
        used.add(request)
        if 0 < limit.count < used.count:
            return False
        return not self.by_amount or all(
            dimension in limit.capacity and used.capacity[dimension] <= limit.capacity[dimension]
            for dimension in request.capacity
        )


def parse_device_quotas(amounts: Resources) -> dict[str, DraResource]:
    """Parse the device quotas in a list of resources, by device class."""
    found: dict[str, DraResource] = {}
    for name, amount in amounts.items():
        dimension, separator, device_class = name.partition(DEVICE_CAPACITY_INFIX)
        if separator and dimension:
            if device_class:
                found.setdefault(device_class, DraResource()).capacity[dimension] = amount
        elif name.startswith(DEVICE_COUNT_PREFIX) and name != DEVICE_COUNT_PREFIX:
            found.setdefault(name.removeprefix(DEVICE_COUNT_PREFIX), DraResource()).count = amount
    return found


def merge_devices(into: dict[str, DraResource], devices: Devices, times: int = 1) -> None:
    """Add claimed devices, multiplied by `times`, to those in `into`."""
    for name, request in devices.items():
        into.setdefault(name, DraResource()).add(request, times)


def min_gang_devices(job: JobInfo) -> Devices:
    """The devices that a job's gang needs: for each role its first task's claims times its minimum.

    Without minimums by role, those of the job's first minAvailable tasks by name (GetMinDRAResources).
    """
    found: dict[str, DraResource] = {}
    tasks = sorted(
        (task for task in job.tasks.values() if task.dra), key=lambda task: (task.namespace, task.name, task.uid)
    )
    if not job.task_min_available:
        for task in tasks[: max(job.min_available, 0)]:
            merge_devices(found, task.dra)
        return found
    first_of = {task.role: task for task in reversed(tasks)}
    for role, task in sorted(first_of.items()):
        merge_devices(found, task.dra, max(job.task_min_available.get(role, 0), 0))
    return {name: request for name, request in found.items() if request.count or request.capacity}


ROOT = "root"


class CapacityQueueAttributes(QueueAttributes):
    """What one queue deserves, may have and uses, and its place in the tree. Mutates as tasks come and go."""

    __slots__ = ("ancestors", "children", "devices")

    def __init__(self, queue: QueueInfo, *, devices: bool, by_amount: bool) -> None:
        super().__init__(queue)
        self.deserved = Resource.from_amounts(queue.queue.deserved)
        self.ancestors: tuple[str, ...] = ()
        """From the root down to the parent."""
        self.children: list[str] = []
        self.devices = DeviceQuota(queue.queue.capability, by_amount=by_amount) if devices else None
        """None if claims are not counted, or the queue names no device class."""

    def copy(self) -> "CapacityQueueAttributes":
        """A copy whose allocated resources and device claims are independent."""
        copied = CapacityQueueAttributes.__new__(CapacityQueueAttributes)
        self.copy_into(copied)
        copied.ancestors, copied.children = self.ancestors, self.children
        copied.devices = None if self.devices is None else self.devices.copy()
        return copied

    def update_share(self) -> None:
        """Set the share, allocated per deserved; 1 if the queue deserves nothing, so that needier queues come first."""
        self.share = 1.0 if self.deserved.is_empty() else dominant_share(self.allocated, self.deserved)

    def add_task(self, task: TaskInfo) -> None:
        """Count a task that got a node."""
        self.allocated.add(task.request)
        if self.devices is not None:
            self.devices.add(task)

    def remove_task(self, task: TaskInfo) -> None:
        """Stop counting a task that lost its node."""
        self.allocated.sub(task.request)
        if self.devices is not None:
            self.devices.sub(task)


class CapacityQueues:
    """The attributes of all queues by name. Mutates as tasks come and go."""

    def __init__(self, attrs: dict[str, CapacityQueueAttributes], *, tree: bool) -> None:
        self.attributes = attrs
        self.tree = tree

    def copy(self) -> "CapacityQueues":
        """Copies of all queues, for a trial."""
        return CapacityQueues({name: attr.copy() for name, attr in self.attributes.items()}, tree=self.tree)

    def queue_and_ancestors(self, queue: str) -> list[CapacityQueueAttributes]:
        """The attributes of the queue and of its ancestors, up to the root."""
        attr = self.attributes[queue]
        return [attr, *(self.attributes[name] for name in reversed(attr.ancestors))]

    def add_task(self, queue: str, task: TaskInfo) -> None:
        """Count a task that got a node, in its queue and in all ancestors."""
        for attr in self.queue_and_ancestors(queue):
            attr.add_task(task)
        self.attributes[queue].update_share()

    def remove_task(self, queue: str, task: TaskInfo) -> None:
        """Stop counting a task that lost its node, in its queue and in all ancestors."""
        for attr in self.queue_and_ancestors(queue):
            attr.remove_task(task)
        self.attributes[queue].update_share()


def set_flat_attributes(
    attrs: dict[str, CapacityQueueAttributes], queues: Mapping[str, QueueInfo], jobs: Iterable[JobInfo], total: Resource
) -> None:
    """Set the attributes of all queues where there is no hierarchy; queues without jobs are removed."""
    guaranteed = Resource.sum(Resource.from_amounts(queue.queue.guarantee) for queue in queues.values())
    used = set()
    for job in jobs:
        attr = attrs[job.queue]
        if job.queue not in used:
            used.add(job.queue)
            attr.set_limit(total, guaranteed, queues[job.queue].queue.capability)
        _count_job(attr, job)
    for name in attrs.keys() - used:
        del attrs[name]
    for attr in attrs.values():
        attr.deserved = maximum_of(attr.deserved.set_min(attr.real_capability, INFINITY), attr.guarantee)
        attr.update_share()


def build_queue_tree(
    attrs: dict[str, CapacityQueueAttributes], queues: Mapping[str, QueueInfo], jobs: Iterable[JobInfo], total: Resource
) -> bool:
    """Arrange the queues as a tree and set their attributes; False if they form none: nothing is scheduled then.

    It is impossible without a root, with a missing parent or a cycle, and if a queue with children has jobs.
    """
    placed: set[str] = set()
    if not all(_add_to_tree(attrs, queues, name, placed, ()) for name in sorted(queues)):
        return False
    for job in jobs:
        attr = attrs[job.queue]
        if attr.children:
            return False
        _count_job_in_ancestors(attrs, attr, job)
    root = attrs.get(ROOT)
    if root is None:
        return False
    # The root limits nothing unless its capability is set.
    if root.capability.is_empty():
        root.capability = Resource.infinite()
        for name in total.scalars or ():
            root.capability.set_scalar(name, float(MAX))
    root.real_capability = root.capability
    _set_inherited_limits(attrs, root)
    for attr in attrs.values():
        attr.update_share()
    return True


def _count_job(attr: CapacityQueueAttributes, job: JobInfo) -> None:
    attr.add_job(job)
    if attr.devices is not None:
        for task in job.tasks.values():
            if task.status in ALLOCATED_STATUSES and task.dra:
                attr.devices.add(task)


def _count_job_in_ancestors(
    attrs: dict[str, CapacityQueueAttributes], attr: CapacityQueueAttributes, job: JobInfo
) -> None:
    """Count a job in its queue, and add the difference to all ancestors."""
    fields = ("allocated", "request", "inqueue", "elastic")
    before = {field: getattr(attr, field).copy() for field in fields}
    had = {} if attr.devices is None else attr.devices.copy().allocated
    _count_job(attr, job)
    for name in attr.ancestors:
        for field in fields:
            getattr(attrs[name], field).add(getattr(attr, field).copy().sub(before[field]))
        above = attrs[name].devices
        if above is None or attr.devices is None:
            continue
        for device_class, now in attr.devices.allocated.items():
            if device_class in above.capability:
                more = now.copy()
                if device_class in had:
                    more.sub(had[device_class])
                merge_devices(above.allocated, {device_class: more})


def _add_to_tree(
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
    if (
        parent not in queues
        or parent in (*chain, name)
        or not _add_to_tree(attrs, queues, parent, placed, (*chain, name))
    ):
        return False
    attrs[parent].children.append(name)
    attrs[name].ancestors = (*attrs[parent].ancestors, parent)
    return True


def _set_inherited_limits(attrs: dict[str, CapacityQueueAttributes], attr: CapacityQueueAttributes) -> None:
    """Set deserved resources, capability and limit of a queue's children, and of all below them."""
    children = [attrs[name] for name in sorted(attr.children)]
    guaranteed, deserved = Resource(), Resource()
    for child in children:
        child.deserved = maximum_of(child.deserved, child.guarantee)
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
        limit = excess(attr.real_capability, guaranteed).add(child.guarantee)
        child.real_capability = limit.set_min(child.capability, INFINITY)
    for child in children:
        _set_inherited_limits(attrs, child)


class ReclaimVictimSelector:
    """Selects the victims when a queue below its deserved resources reclaims from other queues."""

    def __init__(self, session: VolcanoSession, attrs: CapacityQueues, level: int, *, ready: bool) -> None:
        self._session = session
        self._queues = attrs
        self._level = level if attrs.tree else 0
        """How many ancestors of a victim's queue must exceed their deserved resources, too."""
        self._is_ready = ready

    def reclaimable(self, reclaimer: TaskInfo, candidates: list[TaskInfo]) -> VictimsVote:
        """Victims for one task, in order of eviction; each reduces what its queue counts as allocated."""
        mine = self._attributes_of(reclaimer)
        if not self._is_ready or mine is None:
            return [], REJECT
        left: dict[str, Resource] = {}
        victims = []
        order = self._session.victims_heap(candidates, reclaimer)
        while order:
            task = order.pop()
            attr = self._attributes_of(task)
            if attr is None or not without_ignored(common_names(task.request, reclaimer.init_request)):
                continue
            chain = self._queues_to_check(reclaimer, mine, task, attr)
            if chain is None or not _keeps_guarantee(_allocated_after_victims(left, attr), task, attr):
                continue
            if all(_exceeds_deserved(_allocated_after_victims(left, one), task, one) for one in chain):
                for one in chain:
                    _allocated_after_victims(left, one).sub(task.request)
                victims.append(task)
        return victims, PERMIT

    def evictable(self, context: EvictionContext, candidates: list[TaskInfo]) -> VictimsVote:
        """Victims for a gang that reclaims from other queues; if it preempts in its own queue, all candidates."""
        if context.kind is VictimRequester.GANG_PREEMPT:
            return candidates, PERMIT
        if not self._is_ready:
            return [], REJECT
        left: dict[str, Resource] = {}
        victims = []
        for task in candidates:
            attr = self._queues.attributes[self._session.jobs[task.job].queue]
            allocated = _allocated_after_victims(left, attr)
            if _keeps_guarantee(allocated, task, attr) and _exceeds_deserved(allocated, task, attr):
                allocated.sub(task.request)
                victims.append(task)
        return victims, PERMIT

    def _queues_to_check(
        self, reclaimer: TaskInfo, mine: CapacityQueueAttributes, task: TaskInfo, attr: CapacityQueueAttributes
    ) -> list[CapacityQueueAttributes] | None:
        """The queues that must exceed what they deserve before the task can be a victim.

        None if it is no victim: the queues are related, and neither deserves any of the resources in question.
        """
        if (
            self._level
            and not _deserves_requested(task, attr)
            and not _deserves_requested(reclaimer, mine)
            and self._share_ancestor(mine, attr)
        ):
            return None
        names = [ancestor_name(attr, level) for level in range(1, self._level + 1)]
        others = [ancestor_name(mine, level) for level in range(1, self._level + 1)]
        wanted = [name for name, other in zip(names, others, strict=True) if name not in ("", ROOT, other)]
        return [attr, *(self._queues.attributes[name] for name in wanted)]

    def _share_ancestor(self, left: CapacityQueueAttributes, right: CapacityQueueAttributes) -> bool:
        """True if they share an ancestor other than the root within the level."""
        ours, theirs = ({ancestor_name(attr, level) for level in range(1, self._level + 1)} for attr in (left, right))
        return bool(ours & theirs - {"", ROOT})

    def _attributes_of(self, task: TaskInfo) -> CapacityQueueAttributes | None:
        job = self._session.jobs.get(task.job)
        return None if job is None else self._queues.attributes.get(job.queue)


def ancestor_name(attr: CapacityQueueAttributes, level: int) -> str:
    """Name of the ancestor `level` steps above a queue; empty if there is none."""
    return attr.ancestors[-level] if level <= len(attr.ancestors) else ""


def _allocated_after_victims(left: dict[str, Resource], attr: CapacityQueueAttributes) -> Resource:
    """What a queue has allocated after the victims so far."""
    if attr.name not in left:
        left[attr.name] = attr.allocated.copy()
    return left[attr.name]


def _keeps_guarantee(allocated: Resource, task: TaskInfo, attr: CapacityQueueAttributes) -> bool:
    return attr.guarantee.less_equal(allocated.copy().sub(task.request), ZERO)


def _deserves_requested(task: TaskInfo, attr: CapacityQueueAttributes) -> bool:
    """True if the queue deserves anything of what the task requests."""
    return bool(common_names(task.request, attr.deserved))


def _exceeds_deserved(allocated: Resource, task: TaskInfo, attr: CapacityQueueAttributes) -> bool:
    """True if the queue deserves nothing of what the task requests, or exceeds what it deserves of some of it."""
    return not _deserves_requested(task, attr) or bool(allocated.relevant_names_above(attr.deserved, task.request))


OPEN_STATE = "Open"


class CapacityPlugin(VolcanoPlugin):
    """capacity plugin: limits queues to their capability and lets them reclaim what they deserve (Volcano 1.15).

    Without gate SchedulingGatesQueueAdmission, which is off by default.
    """

    name: ClassVar[str] = "capacity"

    def __init__(self, arguments: VolcanoArguments) -> None:
        self._level = max(arguments.integer("ancestorReclaimLevel", 0), 0)
        self._devices = arguments.flag("capacity.DynamicResourceAllocationEnable", True)
        self._by_amount = arguments.flag("capacity.DRAConsumableCapacityEnable", False)
        self.queues = CapacityQueues({}, tree=False)
        self.is_ready = True
        """False if hierarchy is enabled and the queues form no tree; nothing is enqueued or allocated then."""

    def on_session_open(self, session: VolcanoSession) -> None:
        self._session = session
        tree = session.hierarchy_enabled(self.name)
        attrs = {uid: self._attributes(queue) for uid, queue in session.queues.items()}
        self.queues = CapacityQueues(attrs, tree=tree)
        arrange = build_queue_tree if tree else set_flat_attributes
        self.is_ready = arrange(attrs, session.queues, session.jobs.values(), session.total) is not False
        functions, name = session.functions, self.name
        reclaiming = ReclaimVictimSelector(session, self.queues, self._level, ready=self.is_ready)
        functions.reclaimable[name] = reclaiming.reclaimable
        functions.unified_evictable[name] = reclaiming.evictable
        functions.preemptive[name] = self._preemptive
        functions.allocatable[name] = self._allocatable
        functions.job_enqueueable[name] = self._enqueueable
        functions.pre_predicates[name] = self._save_state
        functions.simulate_allocatable[name] = self._simulate_allocatable
        functions.simulate_add[name] = self._simulate_add
        functions.simulate_remove[name] = self._simulate_remove
        if self.is_ready:
            functions.queue_order[name] = self._compare_queues
            if tree:
                functions.victim_queue_order[name] = self._compare_victim_queues
        functions.handlers.append(EventHandler(allocate=self._task_allocated, deallocate=self._task_deallocated))

    def _attributes(self, queue: QueueInfo) -> CapacityQueueAttributes:
        said = queue.queue
        counted = self._devices and any(
            "deviceclass/" in name for name in {**said.capability, **said.deserved, **said.guarantee}
        )
        return CapacityQueueAttributes(queue, devices=counted, by_amount=self._by_amount)

    def _task_allocated(self, task: TaskInfo) -> None:
        job = self._session.jobs.get(task.job)
        if job is not None and job.queue in self.queues.attributes:
            self.queues.add_task(job.queue, task)

    def _task_deallocated(self, task: TaskInfo) -> None:
        job = self._session.jobs.get(task.job)
        if job is not None and job.queue in self.queues.attributes:
            self.queues.remove_task(job.queue, task)

    # Orders.

    def _compare_queues(self, left: QueueInfo, right: QueueInfo) -> int:
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
        return _by_share(self._ancestor_below(ours, level), self._ancestor_below(theirs, level))

    def _ancestor_below(self, attr: CapacityQueueAttributes, level: int) -> CapacityQueueAttributes:
        return self.queues.attributes[attr.ancestors[level + 1]] if level + 1 < len(attr.ancestors) else attr

    def _compare_victim_queues(self, left: QueueInfo, right: QueueInfo, preemptor: QueueInfo) -> int:
        """Victims come first from the queue that is closer to the preemptor's in the tree."""
        attrs = self.queues.attributes
        mine = attrs[preemptor.uid]
        return _common_level(attrs[right.uid], mine) - _common_level(attrs[left.uid], mine)

    # Votes.

    def _preemptive(self, queue: QueueInfo, tasks: list[TaskInfo]) -> bool:
        """True if the queue stays within its limit, and for some resource within what it or an ancestor deserves."""
        if not self.is_ready or queue.queue.state != OPEN_STATE:
            return False
        request = Resource.sum(task.request for task in tasks)
        attr = self.queues.attributes[queue.uid]
        future = attr.allocated.copy().add(request)
        if future.exceeded_requested_names(attr.real_capability, request):
            return False
        line = [attr]
        if self.queues.tree:
            names = [ancestor_name(attr, level) for level in range(1, self._level + 1)]
            line += [self.queues.attributes[name] for name in names if name and name != ROOT]
        return any(one.allocated.copy().add(request).used_names_within(one.deserved, request) for one in line)

    def _allocatable(self, queue: QueueInfo, task: TaskInfo) -> bool:
        if queue.queue.state != OPEN_STATE or not self.is_ready:
            return False
        return self._fits_queue(self.queues, queue, task)

    def _fits_queue(self, attrs: CapacityQueues, queue: QueueInfo, task: TaskInfo) -> bool:
        """True if the queue is a leaf, and it and all its ancestors have room for the task."""
        if attrs.attributes[queue.uid].children:
            return False
        return all(_has_capacity_for(attr, task) for attr in attrs.queue_and_ancestors(queue.uid))

    def _enqueueable(self, job: JobInfo) -> int:
        if not self.is_ready:
            return REJECT
        attr, queue = self.queues.attributes[job.queue], self._session.queues[job.queue]
        if attr.children or queue.queue.state != OPEN_STATE:
            return REJECT
        devices = min_gang_devices(job) if attr.devices is not None else {}
        if (job.pod_group is None or job.pod_group.min_resources is None) and not devices:
            return PERMIT
        least = job.min_resources()
        for one in self.queues.queue_and_ancestors(job.queue):
            lacking = one.need_with(least).exceeded_requested_names(one.real_capability, least)
            if not lacking and one.devices is not None and not one.devices.fits_devices(devices, with_inqueue=True):
                lacking = ["dra-resource-exceeded"]
            if lacking:
                message = overused_message("queue resource quota insufficient", "insufficient", lacking)
                self._session.events.append((job, message))
                return REJECT
        for one in self.queues.queue_and_ancestors(job.queue):
            one.inqueue.add(job.without_gated(least))
            if one.devices is not None:
                merge_devices(one.devices.inqueue, devices)
        return PERMIT

    # Topology-aware preemption, which tries evictions on copies of nodes.

    def _save_state(self, task: TaskInfo) -> None:
        self._session.cycle_state(task)[self.name] = self.queues.copy()

    def _saved_state(self, task: TaskInfo) -> CapacityQueues | None:
        saved = self._session.cycle_state(task).get(self.name)
        return saved if isinstance(saved, CapacityQueues) else None

    def _simulate_allocatable(self, queue: QueueInfo, task: TaskInfo) -> bool:
        saved = self._saved_state(task)
        return self.is_ready and saved is not None and self._fits_queue(saved, queue, task)

    def _simulate_add(self, preemptor: TaskInfo, task: TaskInfo, _: NodeInfo) -> None:
        saved, job = self._saved_state(preemptor), self._session.jobs.get(task.job)
        if saved is not None and job is not None:
            saved.add_task(job.queue, task)

    def _simulate_remove(self, preemptor: TaskInfo, task: TaskInfo, _: NodeInfo) -> None:
        saved, job = self._saved_state(preemptor), self._session.jobs.get(task.job)
        if saved is not None and job is not None:
            saved.remove_task(job.queue, task)


def _has_capacity_for(attr: CapacityQueueAttributes, task: TaskInfo) -> bool:
    if attr.devices is not None and task.dra and not attr.devices.fits_task(task):
        return False
    future = attr.allocated.copy().add(task.request)
    return not future.exceeded_requested_names(attr.real_capability, task.request)


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

"""A job of a session: a pod group with its tasks by status, its gang, and fit errors (KAI 0.13 api/podgroup_info).

The gang is a tree of sub-groups whose leaves are pod sets, with a minimum each; sub-groups and pod sets may have a
topology constraint. `tasks_to_allocate` and `tasks_to_evict` select the tasks that are placed or evicted next
(allocation_info, eviction_info).
"""

from collections.abc import Callable, Iterable, Iterator, Sequence

from msgspec import Struct

from gpuconsole.model.clock import Time
from gpuconsole.scheduling.heap import heap_sorted
from gpuconsole.scheduling.kai.api.tasks import (
    ACTIVE_ALLOCATED,
    ACTIVE_USED,
    ALIVE,
    ALLOCATED,
    DEFAULT_POD_SET,
    GpuRequestType,
    KaiPodStatus,
    PodInfo,
    ResourceAmounts,
    mig_profile,
)
from gpuconsole.scheduling.kai.messages import JobError, TaskErrors


class TopologyConstraint(Struct, frozen=True, kw_only=True):
    """Levels of a topology in one domain of which pods must (`required`) or should (`preferred`) be; empty: none."""

    topology: str = ""
    required: str = ""
    preferred: str = ""


class PodSetInfo:
    """A leaf of a job's gang: tasks of which at least `minimum` run together. Mutates."""

    def __init__(self, name: str, minimum: int, constraint: TopologyConstraint | None = None) -> None:
        self.name, self.minimum, self.constraint = name, minimum, constraint
        self.parent: SubGroup | None = None
        self.tasks: dict[str, PodInfo] = {}
        self._counted_status: dict[str, KaiPodStatus] = {}

    def add_task(self, task: PodInfo) -> None:
        """Add a task to the pod set, or record its new status."""
        self.tasks[task.uid] = task
        self._counted_status[task.uid] = task.status

    @property
    def active_allocated_tasks(self) -> int:
        """Number of tasks that count towards the minimum."""
        return sum(status in ACTIVE_ALLOCATED for status in self._counted_status.values())

    @property
    def active_used_tasks(self) -> int:
        """Number of tasks that hold resources of a node."""
        return sum(status in ACTIVE_USED for status in self._counted_status.values())

    @property
    def alive_tasks(self) -> int:
        return sum(status in ALIVE for status in self._counted_status.values())

    @property
    def gated_tasks(self) -> int:
        return sum(status is KaiPodStatus.GATED for status in self._counted_status.values())

    @property
    def is_ready(self) -> bool:
        """True if enough tasks for the minimum are alive and not gated."""
        return self.alive_tasks - self.gated_tasks >= self.minimum

    @property
    def is_satisfied(self) -> bool:
        """True if enough tasks for the minimum hold resources."""
        return self.active_used_tasks >= self.minimum

    @property
    def is_elastic(self) -> bool:
        """True if it has more tasks than its minimum."""
        return self.minimum < len(self.tasks)


class SubGroup:
    """An inner node of a job's gang tree: it has sub-groups and pod sets; the root's name is empty. Mutates."""

    def __init__(self, name: str = "", constraint: TopologyConstraint | None = None) -> None:
        self.name, self.constraint = name, constraint
        self.parent: SubGroup | None = None
        self.groups: list[SubGroup] = []
        self.pod_sets: list[PodSetInfo] = []

    def add(self, child: "SubGroup | PodSetInfo") -> None:
        """Add a sub-group or a pod set below this one."""
        child.parent = self
        if isinstance(child, PodSetInfo):
            self.pod_sets.append(child)
        else:
            self.groups.append(child)

    def all_pod_sets(self) -> dict[str, PodSetInfo]:
        """The pod sets anywhere below, by name, in the order of their names."""
        return dict(sorted((pod_set.name, pod_set) for pod_set in self._iterate_pod_sets()))

    def _iterate_pod_sets(self) -> Iterator[PodSetInfo]:
        yield from self.pod_sets
        for group in self.groups:
            yield from group._iterate_pod_sets()

    def without_tasks(self) -> "SubGroup":
        """The same tree without tasks."""
        copied = SubGroup(self.name, self.constraint)
        for group in self.groups:
            copied.add(group.without_tasks())
        for pod_set in self.pod_sets:
            copied.add(PodSetInfo(pod_set.name, pod_set.minimum, pod_set.constraint))
        return copied


class PodGroupInfo:
    """A job: tasks of a pod group, which start once every pod set has its minimum. Mutates."""

    def __init__(
        self,
        uid: str,
        *,
        name: str = "",
        namespace: str = "",
        queue: str = "",
        priority: int = 0,
        preemptible: bool = True,
        created: Time = 0,
        started: Time | None = None,
        stale_since: Time | None = None,
        root: SubGroup | None = None,
        tasks: Iterable[PodInfo] = (),
    ) -> None:
        self.uid, self.name, self.namespace, self.queue = uid, name or uid, namespace, queue
        self.priority, self.preemptible, self.created = priority, preemptible, created
        self.started = started
        """When the first of its allocated tasks was bound, or when this session started it; None if neither."""
        self.stale_since = stale_since
        self.root = root if root is not None else single_pod_set_tree(1)
        self.pod_sets = self.root.all_pod_sets()
        self.by_status: dict[KaiPodStatus, dict[str, PodInfo]] = {}
        self.allocated = ResourceAmounts()
        self.errors: list[JobError] = []
        self.task_errors: dict[str, TaskErrors] = {}
        self.selected_tasks: list[PodInfo] | None = None
        """The tasks to allocate next, until a status changes."""
        self.selected_request: ResourceAmounts | None = None
        for task in tasks:
            self.add_task(task)

    def add_task(self, task: PodInfo) -> None:
        """Index a task by its status; tasks of a pod set that the job does not have are ignored."""
        pod_set = self.pod_sets.get(task.set_name)
        if pod_set is None:
            return
        pod_set.add_task(task)
        self.by_status.setdefault(task.status, {})[task.uid] = task
        self._forget_selected()
        if task.status in ALLOCATED:
            self.allocated.add_request(task.request)

    def update_status(self, task: PodInfo, status: KaiPodStatus) -> None:
        """Give a task another status."""
        if task.status in ALLOCATED:
            self.allocated.add_request(task.request, -1)
        indexed = self.by_status.get(task.status, {})
        indexed.pop(task.uid, None)
        if not indexed:
            self.by_status.pop(task.status, None)
        task.status = status
        self.add_task(task)

    def _forget_selected(self) -> None:
        self.selected_tasks = self.selected_request = None

    def tasks(self) -> Iterator[PodInfo]:
        """All tasks, pod set by pod set."""
        for pod_set in self.pod_sets.values():
            yield from pod_set.tasks.values()

    def partial_job(self, tasks: Sequence[PodInfo]) -> "PodGroupInfo":
        """A partial job: a copy of the job with only these tasks, and not started."""
        return PodGroupInfo(
            self.uid,
            name=self.name,
            namespace=self.namespace,
            queue=self.queue,
            priority=self.priority,
            preemptible=self.preemptible,
            created=self.created,
            root=self.root.without_tasks(),
            tasks=tasks,
        )

    def count_with_status(self, statuses: frozenset[KaiPodStatus]) -> int:
        """Number of tasks with one of these statuses."""
        return sum(len(tasks) for status, tasks in self.by_status.items() if status in statuses)

    @property
    def active_allocated_tasks(self) -> int:
        return self.count_with_status(ACTIVE_ALLOCATED)

    @property
    def active_used_tasks(self) -> int:
        return self.count_with_status(ACTIVE_USED)

    @property
    def alive_tasks(self) -> int:
        return self.count_with_status(ALIVE)

    @property
    def pending_tasks(self) -> list[PodInfo]:
        return [task for task in self.tasks() if task.status is KaiPodStatus.PENDING]

    @property
    def is_ready(self) -> bool:
        """True if every pod set has enough tasks for its minimum that are alive and not gated."""
        return all(pod_set.is_ready for pod_set in self.pod_sets.values())

    @property
    def is_elastic(self) -> bool:
        return any(pod_set.is_elastic for pod_set in self.pod_sets.values())

    @property
    def is_satisfied(self) -> bool:
        return all(pod_set.is_satisfied for pod_set in self.pod_sets.values())

    @property
    def is_stale(self) -> bool:
        """True if it runs with fewer tasks than its minimum and none of it has succeeded."""
        return KaiPodStatus.SUCCEEDED not in self.by_status and self.active_used_tasks > 0 and not self.is_satisfied

    @property
    def must_pipeline(self) -> bool:
        """True if the job cannot start before its pipelined tasks: without them a pod set is below its minimum."""
        return any(
            any(task.status is KaiPodStatus.PIPELINED for task in pod_set.tasks.values())
            and sum(
                task.status in ACTIVE_ALLOCATED and task.status is not KaiPodStatus.PIPELINED
                for task in pod_set.tasks.values()
            )
            < pod_set.minimum
            for pod_set in self.pod_sets.values()
        )

    def add_task_errors(self, task: PodInfo, errors: TaskErrors) -> None:
        """Record why a task does not fit nodes."""
        known = self.task_errors.get(task.uid)
        if known is None:
            self.task_errors[task.uid] = errors
        else:
            known.nodes.update(errors.nodes)


def single_pod_set_tree(minimum: int) -> SubGroup:
    """The tree of a job without sub-groups: a single pod set with this minimum."""
    root = SubGroup()
    root.add(PodSetInfo(DEFAULT_POD_SET, minimum))
    return root


class TopologyInfo(Struct, frozen=True):
    """A topology, with the node labels of its levels, widest first (kai.scheduler/v1alpha1 Topology)."""

    name: str
    levels: tuple[str, ...] = ()


PodSetOrder = Callable[[PodSetInfo, PodSetInfo], bool]
TaskOrder = Callable[[PodInfo, PodInfo], bool]


def tasks_to_allocate(job: PodGroupInfo, pod_sets: PodSetOrder, tasks: TaskOrder, only_pending: bool) -> list[PodInfo]:
    """The tasks that must be placed together next: those that the gang's minimums lack, else one more task.

    Cached until a task changes. Unless `only_pending`, tasks that a trial evicted count as pending too.
    """
    if job.selected_tasks is None:
        job.selected_tasks = _select_tasks(job, pod_sets, tasks, only_pending)
    return job.selected_tasks


def _select_tasks(job: PodGroupInfo, pod_sets: PodSetOrder, tasks: TaskOrder, only_pending: bool) -> list[PodInfo]:
    lacking = sum(pod_set.active_allocated_tasks < pod_set.minimum for pod_set in job.pod_sets.values())
    groups_left = lacking or 1
    chosen: list[PodInfo] = []
    for pod_set in heap_sorted(list(job.pod_sets.values()), pod_sets):
        if groups_left == 0:
            break
        waiting = [task for task in pod_set.tasks.values() if task.should_allocate(only_pending)]
        if not waiting:
            continue
        placed = pod_set.active_allocated_tasks
        most = 1 if placed >= pod_set.minimum else pod_set.minimum - placed
        chosen += heap_sorted(waiting, tasks)[:most]
        groups_left -= 1
    return chosen


def request_to_allocate(
    job: PodGroupInfo | None, pod_sets: PodSetOrder, tasks: TaskOrder, only_pending: bool, least_gpu_memory: int
) -> ResourceAmounts:
    """Total request of `tasks_to_allocate`, cached like them; nothing without a job.

    GPU memory counts as a fraction of the cluster's smallest GPU (`least_gpu_memory` in MiB).
    """
    if job is None:
        return ResourceAmounts()
    if job.selected_request is None:
        job.selected_request = _total_request(
            tasks_to_allocate(job, pod_sets, tasks, only_pending), only_pending, least_gpu_memory
        )
    return job.selected_request


def _total_request(tasks: list[PodInfo], only_pending: bool, least_gpu_memory: int) -> ResourceAmounts:
    total = ResourceAmounts()
    for task in tasks:
        if task.should_allocate(only_pending):
            total.add_request(task.request)
            if task.gpu_request_type is GpuRequestType.MEMORY and least_gpu_memory > 0:
                total.gpus += task.request.count * (task.request.gpu_memory / least_gpu_memory)
    return total


def requested_gpus(tasks: list[PodInfo]) -> tuple[float, int]:
    """(GPUs, GPU memory in MiB) that tasks request; a MIG slice counts as one GPU, and its memory in GB."""
    gpus, memory = 0.0, 0
    for task in tasks:
        gpus += task.request.gpus + task.request.dra_gpus
        memory += task.request.gpu_memory
        for name, count in task.request.mig.items():
            if profile := mig_profile(name):
                gpus += profile[0] * count
                memory += profile[1] * count
    return gpus, memory


def tasks_to_evict(job: PodGroupInfo, pod_sets: PodSetOrder, tasks: TaskOrder) -> tuple[list[PodInfo], bool]:
    """The tasks to evict first, and whether the job has more: one task above a minimum, else the whole gang."""
    sets = list(job.pod_sets.values())
    spare = any(pod_set.active_allocated_tasks > pod_set.minimum for pod_set in sets)
    chosen: list[PodInfo] = []
    for pod_set in heap_sorted(sets, lambda one, other: pod_sets(other, one))[: 1 if spare else len(sets)]:
        placed = [task for task in pod_set.tasks.values() if task.status in ACTIVE_ALLOCATED]
        most = 1 if pod_set.active_allocated_tasks > pod_set.minimum else pod_set.active_allocated_tasks
        chosen += heap_sorted(placed, lambda one, other: tasks(other, one))[:most]
    return chosen, len(chosen) < job.active_allocated_tasks

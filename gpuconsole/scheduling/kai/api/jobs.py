"""A pod group in a session: its tasks by status, its gang, and fit errors (KAI 0.13 api/podgroup_info)."""

from collections.abc import Iterable, Iterator, Sequence

from gpuconsole.model.clock import Time
from gpuconsole.scheduling.kai.api.amounts import ResourceAmounts
from gpuconsole.scheduling.kai.api.errors import JobError, TaskErrors
from gpuconsole.scheduling.kai.api.pod_sets import PodSetInfo, SubGroup
from gpuconsole.scheduling.kai.api.statuses import ACTIVE_ALLOCATED, ACTIVE_USED, ALIVE, ALLOCATED, KaiPodStatus
from gpuconsole.scheduling.kai.api.tasks import DEFAULT_POD_SET, PodInfo


class PodGroupInfo:
    """Tasks that are scheduled as one: they start once every pod set has its minimum. Mutates."""

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
        self.root = root if root is not None else one_pod_set(1)
        self.pod_sets = self.root.all_pod_sets()
        self.by_status: dict[KaiPodStatus, dict[str, PodInfo]] = {}
        self.allocated = ResourceAmounts()
        self.errors: list[JobError] = []
        self.task_errors: dict[str, TaskErrors] = {}
        self.chosen: list[PodInfo] | None = None
        """The tasks to allocate next, until a status changes."""
        self.chosen_sum: ResourceAmounts | None = None
        for task in tasks:
            self.take_in(task)

    def take_in(self, task: PodInfo) -> None:
        """Index a task by its status; tasks of a pod set that the job does not have are ignored."""
        pod_set = self.pod_sets.get(task.set_name)
        if pod_set is None:
            return
        pod_set.assign(task)
        self.by_status.setdefault(task.status, {})[task.uid] = task
        self._forget_choice()
        if task.status in ALLOCATED:
            self.allocated.add_request(task.request)

    def update(self, task: PodInfo, status: KaiPodStatus) -> None:
        """Give a task another status."""
        if task.status in ALLOCATED:
            self.allocated.add_request(task.request, -1)
        indexed = self.by_status.get(task.status, {})
        indexed.pop(task.uid, None)
        if not indexed:
            self.by_status.pop(task.status, None)
        task.status = status
        self.take_in(task)

    def _forget_choice(self) -> None:
        self.chosen = self.chosen_sum = None

    def tasks(self) -> Iterator[PodInfo]:
        """All tasks, pod set by pod set."""
        for pod_set in self.pod_sets.values():
            yield from pod_set.tasks.values()

    def part(self, tasks: Sequence[PodInfo]) -> "PodGroupInfo":
        """A copy of the job with only these tasks, and not started."""
        return PodGroupInfo(
            self.uid,
            name=self.name,
            namespace=self.namespace,
            queue=self.queue,
            priority=self.priority,
            preemptible=self.preemptible,
            created=self.created,
            root=self.root.bare(),
            tasks=tasks,
        )

    def count(self, statuses: frozenset[KaiPodStatus]) -> int:
        """Number of tasks with one of these statuses."""
        return sum(len(tasks) for status, tasks in self.by_status.items() if status in statuses)

    @property
    def active_allocated(self) -> int:
        return self.count(ACTIVE_ALLOCATED)

    @property
    def active_used(self) -> int:
        return self.count(ACTIVE_USED)

    @property
    def alive(self) -> int:
        return self.count(ALIVE)

    @property
    def pending(self) -> list[PodInfo]:
        return [task for task in self.tasks() if task.status is KaiPodStatus.PENDING]

    @property
    def ready(self) -> bool:
        """True if every pod set has enough tasks for its minimum that are alive and not gated."""
        return all(pod_set.ready for pod_set in self.pod_sets.values())

    @property
    def elastic(self) -> bool:
        return any(pod_set.elastic for pod_set in self.pod_sets.values())

    @property
    def satisfied(self) -> bool:
        return all(pod_set.satisfied for pod_set in self.pod_sets.values())

    @property
    def stale(self) -> bool:
        """True if it runs with fewer tasks than its minimum and none of it has succeeded."""
        return KaiPodStatus.SUCCEEDED not in self.by_status and self.active_used > 0 and not self.satisfied

    @property
    def must_pipeline(self) -> bool:
        """True if a pod set has pipelined tasks, and without them fewer than its minimum."""
        return any(
            any(task.status is KaiPodStatus.PIPELINED for task in pod_set.tasks.values())
            and sum(
                task.status in ACTIVE_ALLOCATED and task.status is not KaiPodStatus.PIPELINED
                for task in pod_set.tasks.values()
            )
            < pod_set.minimum
            for pod_set in self.pod_sets.values()
        )

    def note(self, task: PodInfo, errors: TaskErrors) -> None:
        """Record why nodes do not fit a task."""
        known = self.task_errors.get(task.uid)
        if known is None:
            self.task_errors[task.uid] = errors
        else:
            known.nodes.update(errors.nodes)


def one_pod_set(minimum: int) -> SubGroup:
    """The tree of a job without sub-groups: a single pod set with this minimum."""
    root = SubGroup()
    root.add(PodSetInfo(DEFAULT_POD_SET, minimum))
    return root

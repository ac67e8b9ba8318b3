"""The tasks of a Volcano Job: equal pods, and the rules for them."""

from msgspec import Struct

from gpuconsole.model.cluster import Pod
from gpuconsole.model.job import Job
from gpuconsole.model.pod_template import PodTemplate
from gpuconsole.model.volcano_jobs import DependsOn, LifecyclePolicy, PartitionPolicy, TaskSpec, VolcanoSpec
from gpuconsole.scheduling.volcano.jobs.labels import DEFAULT_TASK, TASK_INDEX, TASK_SPEC

NOTHING = VolcanoSpec()


class JobTask(Struct, frozen=True):
    """A task with its pods' template and their number."""

    name: str
    replicas: int
    template: PodTemplate
    spec: TaskSpec

    @property
    def policies(self) -> tuple[LifecyclePolicy, ...]:
        return self.spec.policies

    @property
    def depends_on(self) -> DependsOn | None:
        return self.spec.depends_on

    @property
    def partition(self) -> PartitionPolicy | None:
        return self.spec.partition

    @property
    def least(self) -> int:
        """How many of its pods have to run; all if nothing is said."""
        return self.replicas if self.spec.min_available is None else self.spec.min_available


def spec_of(job: Job) -> VolcanoSpec:
    """What a job says as a Volcano Job; one of another kind says nothing."""
    return job.volcano or NOTHING


def tasks_of(job: Job) -> tuple[JobTask, ...]:
    """The tasks of a job, in their order."""
    rules = spec_of(job).tasks
    known = (*rules, *(TaskSpec() for _ in job.pod_sets[len(rules) :]))
    return tuple(
        JobTask(pods.name, pods.count, pods.template, spec) for pods, spec in zip(job.pod_sets, known, strict=True)
    )


def task_index(job: Job, name: str) -> int:
    """The place of a task in its job; -1 if it has none of that name."""
    return next((n for n, pods in enumerate(job.pod_sets) if pods.name == name), -1)


def task_replicas(job: Job, name: str) -> int:
    """How many pods a task is to have; none if there is no such task."""
    at = task_index(job, name)
    return job.pod_sets[at].count if at >= 0 else 0


def pod_name(job: str, task: str, index: int) -> str:
    """The name of a task's pod."""
    return f"{job}-{task}-{index}"


def pod_names(job: Job, task: str) -> list[str]:
    """The names of all pods that a task is to have."""
    return [pod_name(job.name, task, index) for index in range(task_replicas(job, task))]


def total_replicas(job: Job) -> int:
    """How many pods a job is to have."""
    return sum(pods.count for pods in job.pod_sets)


def total_least(job: Job) -> int:
    """How many pods its tasks need."""
    return sum(task.least for task in tasks_of(job))


def task_of_pod(pod: Pod) -> str:
    """The task that a pod belongs to, as its annotation says."""
    return pod.annotations.get(TASK_SPEC) or DEFAULT_TASK


def index_of_pod(pod: Pod) -> int:
    """A pod's number in its task, by its label. Raises ValueError where that says none."""
    text = pod.labels.get(TASK_INDEX)
    if text is None:
        raise ValueError(f"pod {pod.name} doesn't have {TASK_INDEX} label")
    return int(text)


def index_in_name(name: str) -> str:
    """What stands at the end of a pod's name; nothing if the name has fewer than three parts."""
    parts = name.split("-")
    return parts[-1] if len(parts) >= 3 else ""


def comes_before(first: Pod, second: Pod) -> bool:
    """Whether a pod's task comes first: by the numbers at the end of their names, else by age, else by uid.

    Of equal numbers the older one comes first (Volcano 1.15 helpers.CompareTask).
    """
    one, other = _number(first), _number(second)
    if one is None or other is None or one == other:
        return (first.created, first.uid) < (second.created, second.uid)
    return one < other


def _number(pod: Pod) -> int | None:
    text = index_in_name(pod.name)
    return int(text) if text.removeprefix("+").isdecimal() else None

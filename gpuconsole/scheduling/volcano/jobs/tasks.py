"""Tasks of a Volcano Job, each a number of pods with one template, and the names and indices of their pods.

Labels and annotations that Volcano's controllers set on pods.
"""

from msgspec import Struct

from gpuconsole.model.cluster import Pod
from gpuconsole.model.job import Job
from gpuconsole.model.pod_template import PodTemplate
from gpuconsole.model.volcano import DependsOn, LifecyclePolicy, PartitionPolicy, TaskSpec, VolcanoSpec

JOB_NAME = "volcano.sh/job-name"
JOB_NAMESPACE = "volcano.sh/job-namespace"
JOB_VERSION = "volcano.sh/job-version"
JOB_RETRY_COUNT = "volcano.sh/job-retry-count"
QUEUE_NAME = "volcano.sh/queue-name"
TASK_SPEC = "volcano.sh/task-spec"
TASK_INDEX = "volcano.sh/task-index"
TEMPLATE = "volcano.sh/template-uid"
PARTITION = "volcano.sh/partition-id"
OUT_OF_SYNC = "volcano.sh/controller-out-of-sync"
"""Annotation of a pod that will be deleted or recreated; its events are ignored."""
GROUP_NAME = "scheduling.k8s.io/group-name"
NUMA_POLICY = "volcano.sh/numa-topology-policy"
PREEMPTABLE = "volcano.sh/preemptable"
COOLDOWN = "volcano.sh/cooldown-time"
REVOCABLE_ZONE = "volcano.sh/revocable-zone"
BUDGET_LEAST = "volcano.sh/jdb-min-available"
BUDGET_MOST = "volcano.sh/jdb-max-unavailable"
DEFAULT_TASK = "default"


NOTHING = VolcanoSpec()


class JobTask(Struct, frozen=True):
    """A task with its number of pods and their template."""

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
        """Its minAvailable, or all replicas if that is not set."""
        return self.replicas if self.spec.min_available is None else self.spec.min_available


def spec_of(job: Job) -> VolcanoSpec:
    """The Volcano part of a job; an empty one for other kinds of jobs."""
    return job.volcano or NOTHING


def tasks_of(job: Job) -> tuple[JobTask, ...]:
    """The tasks of a job, in their order."""
    rules = spec_of(job).tasks
    known = (*rules, *(TaskSpec() for _ in job.pod_sets[len(rules) :]))
    return tuple(
        JobTask(pods.name, pods.count, pods.template, spec) for pods, spec in zip(job.pod_sets, known, strict=True)
    )


def task_index(job: Job, name: str) -> int:
    """The index of a task in its job; -1 if there is none of that name."""
    return next((n for n, pods in enumerate(job.pod_sets) if pods.name == name), -1)


def task_replicas(job: Job, name: str) -> int:
    """The replicas of a task; 0 if there is no such task."""
    at = task_index(job, name)
    return job.pod_sets[at].count if at >= 0 else 0


def pod_name(job: str, task: str, index: int) -> str:
    """The name of a task's pod."""
    return f"{job}-{task}-{index}"


def pod_names(job: Job, task: str) -> list[str]:
    """The names of a task's pods, one for each replica."""
    return [pod_name(job.name, task, index) for index in range(task_replicas(job, task))]


def total_replicas(job: Job) -> int:
    """The sum of the tasks' replicas."""
    return sum(pods.count for pods in job.pod_sets)


def total_least(job: Job) -> int:
    """The sum of the tasks' minAvailable; a task without one counts with all replicas."""
    return sum(task.least for task in tasks_of(job))


def task_of_pod(pod: Pod) -> str:
    """The task that a pod belongs to, by its annotation; `default` without one."""
    return pod.annotations.get(TASK_SPEC) or DEFAULT_TASK


def index_of_pod(pod: Pod) -> int:
    """A pod's index in its task, by its label.

    Raises:
        ValueError: the label is missing or no number.
    """
    text = pod.labels.get(TASK_INDEX)
    if text is None:
        raise ValueError(f"pod {pod.name} doesn't have {TASK_INDEX} label")
    return int(text)


def index_in_name(name: str) -> str:
    """The last part of a pod's name, after a dash; empty if the name has fewer than three parts."""
    parts = name.split("-")
    return parts[-1] if len(parts) >= 3 else ""

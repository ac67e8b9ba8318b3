"""Jobs of all kinds, reduced to their pod sets and the rules of their kind.

The rules say when a job is complete, what a failed pod causes, and which jobs it creates. A TrainJob gets its pods from
a `TrainingRuntime` (Kubeflow Trainer); those that the trainer installs are in `SHIPPED`.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Union

from msgspec import Struct
from msgspec.structs import replace

from gpuconsole.model.clock import Span, Time
from gpuconsole.model.labels import NO_LABELS, Toleration
from gpuconsole.model.pod_template import Container, PodSet, PodTemplate
from gpuconsole.model.resources import EMPTY, GPU, Resources
from gpuconsole.model.volcano import NO_STATUS, RayGroup, VolcanoSpec, VolcanoStatus


class FailureRule(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One rule of a podFailurePolicy: the action when a pod fails with these exit codes or conditions."""

    action: str
    """FailJob, FailIndex, Ignore or Count."""
    exit_codes: tuple[int, ...] = ()
    excluded: bool = False
    """The rule matches all other exit codes (NotIn)."""
    conditions: tuple[str, ...] = ()
    """Conditions of the pod, one of which must be true; DisruptionTarget is true for an evicted pod."""


class SuccessRule(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One rule of a successPolicy: the job succeeds when enough of these indexes have."""

    indexes: str = ""
    """Indexes of the Job, such as `0-3,7`; empty means all of them."""
    count: int | None = None
    """How many of them must succeed; None for all."""


class BatchRules(Struct, frozen=True, kw_only=True, omit_defaults=True, tag="batch"):
    """Rules of a batch/v1 Job: when it succeeds or fails, and how its pods are replaced."""

    completions: int | None = None
    """Number of pods that must succeed. None: the Job ends when all its pods have, and replaces none after a success.
    """
    indexed: bool = False
    deadline: Span | None = None
    """activeDeadlineSeconds."""
    ttl: Span | None = None
    """Time for which it is kept after it has ended (ttlSecondsAfterFinished)."""
    limit_per_index: int | None = None
    most_failed: int | None = None
    """maxFailedIndexes."""
    failure_rules: tuple[FailureRule, ...] = ()
    success_rules: tuple[SuccessRule, ...] = ()
    pod_duration: Span | None = None
    """Duration of one pod; None to divide that of the whole job."""
    synced: bool = False
    """With partial admission, completions are reduced with parallelism."""
    replaces_failed: bool = False
    """True if no pod is created while one terminates (`podReplacementPolicy: Failed`, or a podFailurePolicy)."""
    together: bool = False
    """True if all its pods are needed at the same time: they are a gang, or the job is elastic."""


class BatchStatus(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Progress of a Job. Its units of work are numbered like the indexes of an Indexed Job."""

    completed: str = ""
    """Indexes that succeeded: `0-3,7`."""
    failed: str = ""
    """Indexes that failed permanently."""
    failures: Mapping[str, int] = {}
    """Index → number of failures of its pod, if they count (backoffLimitPerIndex)."""
    saved: Mapping[str, Span] = {}
    """Index → work that was checkpointed before its pod was lost."""
    since: Time | None = None
    """Start of the time that activeDeadlineSeconds limits; None without a limit."""


NO_PROGRESS = BatchStatus()


class ReplicaRules(Struct, frozen=True, kw_only=True, omit_defaults=True, tag="replicas"):
    """Rules of a service: its pods run until it is deleted, and a lost pod is replaced alone."""

    ordered: bool = False
    """Each pod is created when the previous one runs (a StatefulSet's podManagementPolicy OrderedReady)."""


class GroupRules(Struct, frozen=True, kw_only=True, omit_defaults=True, tag="groups"):
    """Rules of a LeaderWorkerSet: its number of groups; its pod sets are those of one group."""

    replicas: int = 1
    recreate: bool = True
    """All pods of a group are recreated when one fails (RecreateGroupOnPodRestart)."""


class MemberRules(Struct, frozen=True, kw_only=True, omit_defaults=True, tag="member"):
    """Rules of one group of a LeaderWorkerSet, or one replica of a Deployment that Kueue admits on its own."""

    index: int = 0
    recreate: bool = False
    """All its pods are recreated when one fails."""


class LaunchRules(Struct, frozen=True, kw_only=True, omit_defaults=True, tag="launch"):
    """Rules of a job that ends with some of its pod sets, such as a launcher; the other pods are then removed."""

    deciders: tuple[str, ...] = ()
    """Names of the pod sets that decide whether the job succeeds; empty if all do."""
    ttl: Span | None = None
    deadline: Span | None = None


class TrainRules(Struct, frozen=True, kw_only=True, omit_defaults=True, tag="train"):
    """Rules of a TrainJob: the name of its runtime, and its own changes to the runtime's pods."""

    kind: str = "ClusterTrainingRuntime"
    runtime: str
    nodes: int | None = None
    image: str = ""
    requests: Resources | None = None
    limits: Resources = EMPTY
    patches: tuple["PodPatch", ...] = ()
    deadline: Span | None = None


class PodPatch(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a TrainJob adds to the pods of the named jobs of its runtime; of all jobs if none are named."""

    jobs: tuple[str, ...] = ()
    labels: Mapping[str, str] = NO_LABELS
    annotations: Mapping[str, str] = NO_LABELS
    node_selector: Mapping[str, str] = NO_LABELS
    tolerations: tuple[Toleration, ...] = ()


class Concurrency(StrEnum):
    """Concurrency policy of a CronJob: its action while an earlier Job still runs."""

    ALLOW = "Allow"
    FORBID = "Forbid"
    REPLACE = "Replace"


class CronRules(Struct, frozen=True, kw_only=True, omit_defaults=True, tag="cron"):
    """Rules of a CronJob: its schedule, the jobs that it creates, and how it handles earlier ones."""

    schedule: str
    makes: str = "Job"
    """Kind of the jobs that it creates: `Job`, `RayJob`, `VolcanoJob` or `SparkApplication`."""
    time_zone: str = ""
    concurrency: Concurrency = Concurrency.ALLOW
    starting_deadline: Span | None = None
    keep_succeeded: int = 3
    keep_failed: int = 1
    queue: str = ""
    """LocalQueue of the jobs that it creates."""
    priority_class: str = ""
    """WorkloadPriorityClass of the jobs that it creates."""
    max_execution_time: Span | None = None
    labels: Mapping[str, str] = NO_LABELS
    annotations: Mapping[str, str] = NO_LABELS
    batch: BatchRules = BatchRules()
    """Rules of the batch/v1 Jobs that it creates."""
    volcano: VolcanoSpec | None = None
    """Fields, beyond their pods, of the Volcano Jobs that it creates."""
    last: Time | None = None
    """Time of the last job that it created."""


class TemplateRules(Struct, frozen=True, kw_only=True, omit_defaults=True, tag="template"):
    """Marks a Volcano JobTemplate, which runs nothing itself: JobFlows create Volcano Jobs from it."""

    volcano: VolcanoSpec


class Flow(Struct, frozen=True, omit_defaults=True):
    """One Job of a JobFlow."""

    template: str
    """Name of its JobTemplate."""
    targets: tuple[str, ...] = ()
    """Flows that must be completed before it begins."""


class FlowRules(Struct, frozen=True, kw_only=True, omit_defaults=True, tag="flow"):
    """Rules of a Volcano JobFlow: the Jobs it creates, each after those it depends on have completed."""

    flows: tuple[Flow, ...] = ()
    deletes: bool = False
    """The Jobs are deleted once all of them are completed (jobRetainPolicy: delete)."""


JobRules = Union[
    BatchRules, ReplicaRules, GroupRules, MemberRules, LaunchRules, TrainRules, CronRules, TemplateRules, FlowRules
]


class JobPhase(StrEnum):
    """Phase of a job of any kind."""

    SUSPENDED = "Suspended"
    PENDING = "Pending"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


class Job(Struct, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """Anything that creates pods: a Job, JobSet, RayJob, PyTorchJob, Deployment, pod group …, reduced to its pod
    sets.
    """

    kind: str = "Job"
    namespace: str = "default"
    name: str
    uid: str = ""
    created: Time = 0
    labels: Mapping[str, str] = NO_LABELS
    annotations: Mapping[str, str] = NO_LABELS
    queue: str = ""
    """LocalQueue by label; empty if Kueue does not manage it."""
    workload_priority_class: str = ""
    pod_sets: tuple[PodSet, ...] = ()
    owner: str = ""
    """`Kind/namespace/name` of the job that created it."""
    rules: JobRules | None = None
    """Rules of its kind; None for a kind whose pods work together."""
    batch: BatchStatus = NO_PROGRESS
    """Progress of a batch/v1 Job."""
    min_available: int | None = None
    suspended: bool = False
    duration: Span | None = None
    """Duration of its work (`gpuconsole.io/duration`); None to sample it from the scenario's distribution."""
    checkpoint_interval: Span | None = None
    """An eviction loses at most this much work (`gpuconsole.io/checkpoint-interval`); None for all work."""
    max_execution_time: Span | None = None
    backoff_limit: int = 6
    phase: JobPhase = JobPhase.PENDING
    started: Time = 0
    finished: Time = 0
    done: Span = 0
    """Work that was checkpointed before the last eviction, and is not lost."""
    failures: int = 0
    volcano: VolcanoSpec | None = None
    """Fields of a Volcano Job beyond its pods; None for other kinds."""
    volcano_status: VolcanoStatus = NO_STATUS
    ray_group: RayGroup | None = None
    """PodGroup that KubeRay's operator creates for its pods, or None."""

    @property
    def key(self) -> str:
        return f"{self.kind}/{self.namespace}/{self.name}"

    @property
    def ended(self) -> bool:
        return self.phase in (JobPhase.SUCCEEDED, JobPhase.FAILED)

    @property
    def solo(self) -> bool:
        """True if each pod works on its own; False if the job needs all its pods at the same time."""
        if isinstance(self.rules, BatchRules):
            return not self.rules.together
        return isinstance(self.rules, ReplicaRules)

    @property
    def endless(self) -> bool:
        """True if it runs until it is deleted."""
        return isinstance(self.rules, ReplicaRules | GroupRules | MemberRules | CronRules | TemplateRules)

    @property
    def makes_jobs(self) -> bool:
        """True if it has no pods of its own, but creates jobs."""
        return isinstance(self.rules, GroupRules | CronRules | TemplateRules | FlowRules)


def again(job: Job, name: str) -> Job:
    """Return a new job like this one, under another name: without status, as before its start."""
    return replace(
        job,
        name=name,
        uid="",
        created=0,
        owner="",
        batch=NO_PROGRESS,
        suspended=bool(job.queue),
        phase=JobPhase.SUSPENDED if job.queue else JobPhase.PENDING,
        started=0,
        finished=0,
        done=0,
        failures=0,
        volcano_status=NO_STATUS,
    )


CLUSTER_WIDE = "ClusterTrainingRuntime"
NODE, LAUNCHER = "node", "launcher"
"""Names of replicated jobs in a TrainingRuntime; the container that trains is also named `node`."""


class TrainingRuntime(Struct, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """TrainingRuntime of a namespace, or a ClusterTrainingRuntime, which has no namespace."""

    namespace: str = ""
    name: str
    nodes: int | None = None
    """mlPolicy.numNodes."""
    mpi: bool = False
    launcher_is_node: bool = False
    """The launcher trains, too (runLauncherAsNode)."""
    pod_sets: tuple[PodSet, ...] = ()
    """Its replicated jobs, with the pod counts that the runtime states."""
    trainers: tuple[str, ...] = ()
    """Names of the pod sets that train; the others fetch data and models first."""

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name

    @property
    def kind(self) -> str:
        return "TrainingRuntime" if self.namespace else CLUSTER_WIDE


_DATASET, _MODEL = "dataset-initializer", "model-initializer"
_IMAGES = "ghcr.io/kubeflow/trainer"
_TUNE = f"{_IMAGES}/torchtune-trainer"


def _pods(name: str, image: str, container: str = NODE, gpus: int = 0) -> PodSet:
    asked = {GPU: gpus} if gpus else {}
    part = Container(name=container, image=image, limits=asked)
    return PodSet(name=name, template=PodTemplate(containers=(part,), restart_policy="OnFailure"))


def _initializer(name: str) -> PodSet:
    return _pods(name, f"{_IMAGES}/{name}", name)


def _mpi(name: str, image: str) -> TrainingRuntime:
    pod_sets = (_pods(NODE, image), _pods(LAUNCHER, image))
    return TrainingRuntime(name=name, nodes=1, mpi=True, launcher_is_node=True, pod_sets=pod_sets, trainers=(LAUNCHER,))


def _plain(name: str, *pod_sets: PodSet) -> TrainingRuntime:
    return TrainingRuntime(name=name, nodes=1, pod_sets=pod_sets, trainers=(NODE,))


SHIPPED: dict[str, TrainingRuntime] = {
    runtime.name: runtime
    for runtime in (
        _plain("torch-distributed", _pods(NODE, "pytorch/pytorch")),
        _plain("torch-distributed-with-cache", _initializer(_DATASET), _pods(NODE, "pytorch/pytorch")),
        _plain("jax-distributed", _pods(NODE, "nvcr.io/nvidia/jax")),
        _plain("xgboost-distributed", _pods(NODE, f"{_IMAGES}/xgboost-runtime")),
        _mpi("deepspeed-distributed", f"{_IMAGES}/deepspeed-runtime"),
        _mpi("mlx-distributed", f"{_IMAGES}/mlx-runtime"),
        *(
            _plain(f"torchtune-{model}", _initializer(_DATASET), _initializer(_MODEL), _pods(NODE, _TUNE, gpus=2))
            for model in ("llama3.2-1b", "llama3.2-3b", "qwen2.5-1.5b")
        ),
    )
}
"""ClusterTrainingRuntimes that the trainer's Helm chart installs; TrainJobs may use them without a manifest."""

"""Jobs of all kinds, reduced to their pod sets."""

from collections.abc import Mapping
from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

from gpuconsole.model.clock import Span, Time
from gpuconsole.model.job_rules import (
    NO_PROGRESS,
    BatchRules,
    BatchStatus,
    CronRules,
    FlowRules,
    GroupRules,
    JobRules,
    MemberRules,
    ReplicaRules,
    TemplateRules,
)
from gpuconsole.model.labels import NO_LABELS
from gpuconsole.model.pod_sets import PodSet
from gpuconsole.model.volcano import RayGroup
from gpuconsole.model.volcano_jobs import NO_STATUS, VolcanoSpec, VolcanoStatus


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
        """True if its pods work independently; False if they work together."""
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
    """Return a copy of a job under another name, as it was before it started."""
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

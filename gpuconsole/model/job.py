"""Jobs of every kind, reduced to their pod sets."""

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
    SUSPENDED = "Suspended"
    PENDING = "Pending"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


class Job(Struct, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """Anything that makes pods: a Job, JobSet, RayJob, PyTorchJob, Deployment, pod group …, reduced to its pod sets."""

    kind: str = "Job"
    namespace: str = "default"
    name: str
    uid: str = ""
    created: Time = 0
    labels: Mapping[str, str] = NO_LABELS
    annotations: Mapping[str, str] = NO_LABELS
    queue: str = ""
    """LocalQueue by label; empty means that Kueue does not manage it."""
    workload_priority_class: str = ""
    pod_sets: tuple[PodSet, ...] = ()
    owner: str = ""
    """`Kind/namespace/name` of the job that made it."""
    rules: JobRules | None = None
    """What its kind says beyond its pods; None for a kind whose pods do one work together."""
    batch: BatchStatus = NO_PROGRESS
    """How far a batch/v1 Job is."""
    min_available: int | None = None
    suspended: bool = False
    duration: Span | None = None
    """How long its work takes (`gpuconsole.io/duration`); None is drawn from the scenario's distribution."""
    checkpoint_interval: Span | None = None
    """An eviction loses at most this much work (`gpuconsole.io/checkpoint-interval`); None loses all."""
    max_execution_time: Span | None = None
    backoff_limit: int = 6
    phase: JobPhase = JobPhase.PENDING
    started: Time = 0
    finished: Time = 0
    done: Span = 0
    """Work that is safe: checkpointed before the last eviction."""
    failures: int = 0
    volcano: VolcanoSpec | None = None
    """What a Volcano Job says beyond its pods; None for every other kind."""
    volcano_status: VolcanoStatus = NO_STATUS
    ray_group: RayGroup | None = None
    """The PodGroup that KubeRay's operator makes for its pods; None where it makes none."""

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
    """Return a copy of a job that has not started."""
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

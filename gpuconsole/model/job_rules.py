"""Rules of each kind of job: when it is complete, the effect of a failure, and the jobs that it creates."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Union

from msgspec import Struct

from gpuconsole.model.clock import Span, Time
from gpuconsole.model.labels import NO_LABELS, Toleration
from gpuconsole.model.resources import EMPTY, Resources
from gpuconsole.model.volcano_jobs import VolcanoSpec


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
    """As `0-3,7`; empty means all of them."""
    count: int | None = None
    """How many of them must succeed; None for all."""


class BatchRules(Struct, frozen=True, kw_only=True, omit_defaults=True, tag="batch"):
    """Rules of a batch/v1 Job: parallelism, and the number of pods that must succeed."""

    completions: int | None = None
    """None: it is complete when all its pods have ended, and no pod is replaced after the first success."""
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
    """Completions follow parallelism when fewer pods are admitted."""
    replaces_failed: bool = False
    """It creates no new pod while one terminates (`podReplacementPolicy: Failed`, or a podFailurePolicy)."""
    together: bool = False
    """Its pods work together after all: they are a gang, or the job is elastic."""


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
    """Start of the time that the job is active, if that time is limited."""


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
    """Rules of a job whose success some pod sets decide; the other pods are then removed."""

    deciders: tuple[str, ...] = ()
    ttl: Span | None = None
    deadline: Span | None = None


class TrainRules(Struct, frozen=True, kw_only=True, omit_defaults=True, tag="train"):
    """Rules of a TrainJob: its runtime, and its changes to the runtime's pods."""

    kind: str = "ClusterTrainingRuntime"
    runtime: str
    nodes: int | None = None
    image: str = ""
    requests: Resources | None = None
    limits: Resources = EMPTY
    patches: tuple["PodPatch", ...] = ()
    deadline: Span | None = None


class PodPatch(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Additions of a TrainJob to the pods of the named jobs of its runtime; of all jobs if none are named."""

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
    """Rules of a CronJob: its schedule, and how it handles earlier Jobs."""

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
    """Their WorkloadPriorityClass."""
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
    """Rules of a Volcano JobTemplate: it runs nothing itself; JobFlows create Volcano Jobs from it."""

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

"""Rules of each kind of job: when it is complete, what follows a failure, and which jobs it creates."""

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
    """The exit codes are those that do not match (NotIn)."""
    conditions: tuple[str, ...] = ()
    """Conditions of the pod, any of them: DisruptionTarget is true of one that was evicted."""


class SuccessRule(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One rule of a successPolicy: the job succeeds when enough of these indexes have."""

    indexes: str = ""
    """As `0-3,7`; empty means all of them."""
    count: int | None = None
    """How many of them; None means each."""


class BatchRules(Struct, frozen=True, kw_only=True, omit_defaults=True, tag="batch"):
    """Rules of a batch/v1 Job: parallelism, and the number of pods that must succeed."""

    completions: int | None = None
    """None: it is done when all its pods have ended, and none is made again after the first success."""
    indexed: bool = False
    deadline: Span | None = None
    """activeDeadlineSeconds."""
    ttl: Span | None = None
    """How long it is kept when it has ended (ttlSecondsAfterFinished)."""
    limit_per_index: int | None = None
    most_failed: int | None = None
    """maxFailedIndexes."""
    failure_rules: tuple[FailureRule, ...] = ()
    success_rules: tuple[SuccessRule, ...] = ()
    pod_duration: Span | None = None
    """How long one pod takes; None shares out what the whole job takes."""
    synced: bool = False
    """Completions follow parallelism when fewer pods are admitted."""
    replaces_failed: bool = False
    """It makes no new pod beside one that terminates (`podReplacementPolicy: Failed`, or a podFailurePolicy)."""
    together: bool = False
    """Its pods do one work all together after all: they form a gang, or the job is elastic."""


class BatchStatus(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Progress of a Job. Its units of work are numbered like the indexes of an Indexed Job."""

    completed: str = ""
    """Pieces that succeeded: `0-3,7`."""
    failed: str = ""
    """Pieces that failed for good."""
    failures: Mapping[str, int] = {}
    """Piece → how often its pod failed, where that matters (backoffLimitPerIndex)."""
    saved: Mapping[str, Span] = {}
    """Piece → work that is safe: checkpointed before its pod was lost."""
    since: Time | None = None
    """Since when the job is active, where it may be so for a limited time only."""


NO_PROGRESS = BatchStatus()


class ReplicaRules(Struct, frozen=True, kw_only=True, omit_defaults=True, tag="replicas"):
    """Rules of a service: its pods run until it is deleted, and a lost pod is replaced alone."""

    ordered: bool = False
    """A pod is made when the one before it runs (a StatefulSet's podManagementPolicy OrderedReady)."""


class GroupRules(Struct, frozen=True, kw_only=True, omit_defaults=True, tag="groups"):
    """Rules of a LeaderWorkerSet: its number of groups; its pod sets are those of one group."""

    replicas: int = 1
    recreate: bool = True
    """A group whose pod fails is made again as a whole (RecreateGroupOnPodRestart)."""


class MemberRules(Struct, frozen=True, kw_only=True, omit_defaults=True, tag="member"):
    """Rules of one group of a LeaderWorkerSet, or one replica of a Deployment that Kueue admits on its own."""

    index: int = 0
    recreate: bool = False
    """All its pods are made again when one fails."""


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
    """Kind of the jobs that it makes: `Job`, `RayJob`, `VolcanoJob` or `SparkApplication`."""
    time_zone: str = ""
    concurrency: Concurrency = Concurrency.ALLOW
    starting_deadline: Span | None = None
    keep_succeeded: int = 3
    keep_failed: int = 1
    queue: str = ""
    """LocalQueue of the Jobs that it makes."""
    priority_class: str = ""
    """Their WorkloadPriorityClass."""
    max_execution_time: Span | None = None
    labels: Mapping[str, str] = NO_LABELS
    annotations: Mapping[str, str] = NO_LABELS
    batch: BatchRules = BatchRules()
    """Of the Jobs of batch/v1."""
    volcano: VolcanoSpec | None = None
    """What the Volcano Jobs that it makes say beyond their pods."""
    last: Time | None = None
    """When it made a Job last."""


class TemplateRules(Struct, frozen=True, kw_only=True, omit_defaults=True, tag="template"):
    """Rules of a Volcano JobTemplate: it runs nothing itself; JobFlows create Volcano Jobs from it."""

    volcano: VolcanoSpec


class Flow(Struct, frozen=True, omit_defaults=True):
    """One Job of a JobFlow."""

    template: str
    """Name of its JobTemplate."""
    targets: tuple[str, ...] = ()
    """Flows that are completed before it begins."""


class FlowRules(Struct, frozen=True, kw_only=True, omit_defaults=True, tag="flow"):
    """Rules of a Volcano JobFlow: the Jobs it creates, each after those it depends on have completed."""

    flows: tuple[Flow, ...] = ()
    deletes: bool = False
    """Once all are completed it deletes them (jobRetainPolicy: delete)."""


JobRules = Union[
    BatchRules, ReplicaRules, GroupRules, MemberRules, LaunchRules, TrainRules, CronRules, TemplateRules, FlowRules
]

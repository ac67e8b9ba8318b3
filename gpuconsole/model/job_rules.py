"""What kinds of jobs say beyond their pods: when one is done, what never ends, who decides, what a timer makes."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Union

from msgspec import Struct

from gpuconsole.model.clock import Span, Time
from gpuconsole.model.labels import NO_LABELS, Toleration
from gpuconsole.model.resources import EMPTY, Resources
from gpuconsole.model.volcano_jobs import VolcanoSpec


class FailureRule(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One rule of a podFailurePolicy: what follows when a pod fails with these exit codes, or of this cause."""

    action: str
    """FailJob, FailIndex, Ignore or Count."""
    exit_codes: tuple[int, ...] = ()
    excluded: bool = False
    """The exit codes are those that do not match (NotIn)."""
    conditions: tuple[str, ...] = ()
    """Conditions of the pod, any of them: DisruptionTarget is true of one that was evicted."""


class SuccessRule(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One rule of a successPolicy: the job is done when enough of these indexes are."""

    indexes: str = ""
    """As `0-3,7`; empty means all of them."""
    count: int | None = None
    """How many of them; None means each."""


class BatchRules(Struct, frozen=True, kw_only=True, omit_defaults=True, tag="batch"):
    """A batch/v1 Job: each pod works for itself, so many at once, until enough of them have succeeded."""

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
    """How far a Job is. Its pieces of work are numbered as the indexes of an Indexed Job are."""

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
    """Pods that serve until they are deleted: a lost one is replaced, the others go on."""

    ordered: bool = False
    """A pod is made when the one before it runs (a StatefulSet's podManagementPolicy OrderedReady)."""


class GroupRules(Struct, frozen=True, kw_only=True, omit_defaults=True, tag="groups"):
    """A LeaderWorkerSet: so many groups of a leader and its workers; its pod sets are those of one group."""

    replicas: int = 1
    recreate: bool = True
    """A group whose pod fails is made again as a whole (RecreateGroupOnPodRestart)."""


class MemberRules(Struct, frozen=True, kw_only=True, omit_defaults=True, tag="member"):
    """One group of a LeaderWorkerSet, or one replica of a Deployment that Kueue admits by itself."""

    index: int = 0
    recreate: bool = False
    """All its pods are made again when one fails."""


class LaunchRules(Struct, frozen=True, kw_only=True, omit_defaults=True, tag="launch"):
    """A job whose success some pod sets decide; the other pods are removed then."""

    deciders: tuple[str, ...] = ()
    ttl: Span | None = None
    deadline: Span | None = None


class TrainRules(Struct, frozen=True, kw_only=True, omit_defaults=True, tag="train"):
    """A TrainJob: which runtime says what its pods are, and what it changes of that."""

    kind: str = "ClusterTrainingRuntime"
    runtime: str
    nodes: int | None = None
    image: str = ""
    requests: Resources | None = None
    limits: Resources = EMPTY
    patches: tuple["PodPatch", ...] = ()
    deadline: Span | None = None


class PodPatch(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a TrainJob adds to the pods of some jobs of its runtime; without names, to all of them."""

    jobs: tuple[str, ...] = ()
    labels: Mapping[str, str] = NO_LABELS
    annotations: Mapping[str, str] = NO_LABELS
    node_selector: Mapping[str, str] = NO_LABELS
    tolerations: tuple[Toleration, ...] = ()


class Concurrency(StrEnum):
    """What a CronJob does at its time while an earlier Job still runs."""

    ALLOW = "Allow"
    FORBID = "Forbid"
    REPLACE = "Replace"


class CronRules(Struct, frozen=True, kw_only=True, omit_defaults=True, tag="cron"):
    """A CronJob: when it makes a Job of its pods, and what becomes of earlier ones."""

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
    """A JobTemplate of Volcano: it runs nothing itself; JobFlows make Volcano Jobs of it."""

    volcano: VolcanoSpec


class Flow(Struct, frozen=True, omit_defaults=True):
    """One Job of a JobFlow."""

    template: str
    """Name of its JobTemplate."""
    targets: tuple[str, ...] = ()
    """Flows that are completed before it begins."""


class FlowRules(Struct, frozen=True, kw_only=True, omit_defaults=True, tag="flow"):
    """A JobFlow of Volcano: the Jobs that it makes, each when those that it depends on are completed."""

    flows: tuple[Flow, ...] = ()
    deletes: bool = False
    """Once all are completed it deletes them (jobRetainPolicy: delete)."""


JobRules = Union[
    BatchRules, ReplicaRules, GroupRules, MemberRules, LaunchRules, TrainRules, CronRules, TemplateRules, FlowRules
]

"""Commands: every change that a user or a scenario can request, as data.

A command names its object by key. Its effect comes back as events; a command that cannot be carried out comes back as
`HistoryEvent(what=COMMAND_REFUSED)` with the reason, and one that changes nothing as `COMMAND_NEEDLESS`.
"""

from collections.abc import Mapping
from typing import Any, Literal, Union

from msgspec import UNSET, Struct, UnsetType

from gpuconsole.model.clock import Span
from gpuconsole.model.objects import Object
from gpuconsole.model.queues import PreemptionPolicy, StopPolicy

NOTHING: Mapping[str, Any] = {}


class Submit(Struct, frozen=True, tag="submit", omit_defaults=True):
    """Create these objects in this order: jobs, workloads, pods, or any configuration."""

    objects: tuple[Object, ...]
    documents: tuple[str, ...] = ()
    """The same objects as complete manifests in JSON, for a live API server."""


class Delete(Struct, frozen=True, tag="delete"):
    """Delete an object and what it owns.

    `table` is the table of its kind (`objects.TABLES`); empty for the workload, job or pod with this key.
    """

    table: str
    key: str


class Copy(Struct, frozen=True, tag="copy"):
    """Submit a copy of an existing object under another name: its spec, without its status."""

    of: str
    """Key of a job (`Kind/namespace/name`), or a workload or job as `namespace/name`."""
    name: str
    """Name of the copy, in the same namespace."""


class SetActive(Struct, frozen=True, tag="set-active"):
    """Deactivate (False) or reactivate a workload: spec.active."""

    workload: str
    active: bool
    cause: str = ""
    """Cause of a deactivation in one word; `why` is a sentence."""
    why: str = ""


class InCluster(Struct, frozen=True, tag="in-cluster"):
    """Run a command in a worker cluster (MultiKueue)."""

    cluster: str
    command: "Command"


class LoseCluster(Struct, frozen=True, tag="lose-cluster"):
    """Disconnect a worker cluster from the MultiKueue manager; the worker keeps running."""

    cluster: str


class RestoreCluster(Struct, frozen=True, tag="restore-cluster"):
    """Reconnect a lost worker cluster to the MultiKueue manager."""

    cluster: str


class Requeue(Struct, frozen=True, tag="requeue"):
    """Evict a workload and put it back in its queue."""

    workload: str


class SetPriority(Struct, frozen=True, tag="set-priority", omit_defaults=True):
    """Set the priority of a workload."""

    workload: str
    priority: int
    priority_class: str = ""
    """WorkloadPriorityClass with this value; empty for a number without class."""


class MoveToQueue(Struct, frozen=True, tag="move-to-queue"):
    """Move a pending workload to another LocalQueue (a name in its namespace)."""

    workload: str
    queue: str


class SetStopPolicy(Struct, frozen=True, tag="set-stop-policy"):
    """Set the stop policy of a queue: a ClusterQueue by name, or a LocalQueue by `namespace/name`."""

    queue: str
    policy: StopPolicy


class SetQuota(Struct, frozen=True, tag="set-quota"):
    """Change one quota of a ClusterQueue; amounts in base units. An omitted limit is unchanged; None removes it."""

    cluster_queue: str
    flavor: str
    resource: str
    nominal: int
    borrowing_limit: int | UnsetType | None = UNSET
    lending_limit: int | UnsetType | None = UNSET


class SetWeight(Struct, frozen=True, tag="set-weight", omit_defaults=True):
    """Change the fair-sharing weight of a queue or cohort."""

    queue: str
    """Name of the queue or cohort; for a LocalQueue `namespace/name`."""
    weight: float
    kind: Literal["ClusterQueue", "LocalQueue", "Cohort"] = "ClusterQueue"


class SetCohort(Struct, frozen=True, tag="set-cohort", omit_defaults=True):
    """Move a ClusterQueue, or a cohort with its subtree, into a cohort; out of any if `cohort` is empty."""

    queue: str
    cohort: str
    kind: Literal["ClusterQueue", "Cohort"] = "ClusterQueue"


class SetPreemption(Struct, frozen=True, tag="set-preemption", omit_defaults=True):
    """Change the preemption policies of a ClusterQueue; None leaves a policy unchanged."""

    cluster_queue: str
    within_cluster_queue: PreemptionPolicy | None = None
    reclaim_within_cohort: PreemptionPolicy | None = None
    borrow_within_cohort: PreemptionPolicy | None = None
    max_priority_threshold: int | None = None
    """maxPriorityThreshold of borrowWithinCohort."""


class SetTaint(Struct, frozen=True, tag="set-taint", omit_defaults=True):
    """Add a taint to a node, or (`removed`) remove the one with this key and effect."""

    node: str
    key: str
    value: str = ""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] = "NoSchedule"
    removed: bool = False


class AddNodes(Struct, frozen=True, tag="add-nodes", omit_defaults=True):
    """Add nodes that are copies of an existing one."""

    like: str
    count: int = 1


class Divide(Struct, frozen=True, tag="divide", omit_defaults=True):
    """Reconfigure MIG on a node with a mig-parted configuration; pods on affected GPUs fail."""

    node: str
    config: str
    strategy: Literal["single", "mixed"] = "mixed"


class Reconfigure(Struct, frozen=True, tag="reconfigure", omit_defaults=True):
    """Restart the schedulers with other settings; omitted settings are unchanged."""

    kueue_config: Mapping[str, Any] = NOTHING
    """Complete Configuration of Kueue, which replaces all its settings."""
    feature_gates: Mapping[str, bool] = NOTHING
    fair_sharing: bool | None = None
    placement: Mapping[str, Any] = NOTHING
    """Settings for the placement of pods, as `engine.placement` of a scenario."""


class Later(Struct, frozen=True, tag="later"):
    """Run a command after a delay."""

    after: Span
    command: "Command"


class Cordon(Struct, frozen=True, tag="cordon"):
    """Cordon (True) or uncordon a node."""

    node: str
    cordoned: bool


class Drain(Struct, frozen=True, tag="drain", omit_defaults=True):
    """Cordon a node and evict its pods. A simulation ignores the options and evicts all pods with their grace
    period.
    """

    node: str
    grace: int | None = None
    """Grace period of the pods in seconds; None for the one of each pod."""
    sparing: bool = False
    """Keep pods that no controller would recreate, and report them."""
    forced: bool = False
    """Delete pods instead of evicting them, which ignores disruption budgets."""


class Edit(Struct, frozen=True, tag="edit"):
    """Change an object of a live cluster to its edited manifest, unless it was changed in the meantime."""

    table: str
    key: str
    version: str
    """resourceVersion that was edited."""
    change: str
    """Difference, as a JSON merge patch."""


class FailNode(Struct, frozen=True, tag="fail-node"):
    """Fail a node: it stops answering, and its pods fail."""

    node: str


class RestoreNode(Struct, frozen=True, tag="restore-node"):
    """Recover a failed node."""

    node: str


class InterruptSpot(Struct, frozen=True, tag="interrupt-spot"):
    """Interrupt a spot node: the cloud gives notice now, and reclaims the machine when the notice ends."""

    node: str


class AnswerCheck(Struct, frozen=True, tag="answer-check"):
    """Set the state of a workload's admission check, as its controller would."""

    workload: str
    check: str
    state: Literal["Pending", "Ready", "Retry", "Rejected"]
    message: str = ""


class FailPod(Struct, frozen=True, tag="fail-pod"):
    """Fail a pod."""

    pod: str


class Scale(Struct, frozen=True, tag="scale"):
    """Set the number of pods of a service or an elastic job (annotation `kueue.x-k8s.io/elastic-job: "true"`).

    `job` is `Kind/namespace/name`, or `namespace/name`. An empty `pod_set` is the job's only one. For a
    LeaderWorkerSet, `count` is the number of groups.
    """

    job: str
    count: int
    pod_set: str = ""


class Finish(Struct, frozen=True, tag="finish"):
    """Finish a job now, whatever its duration (used by scenarios)."""

    workload: str


Command = Union[
    Submit,
    Copy,
    Delete,
    SetActive,
    Requeue,
    SetPriority,
    MoveToQueue,
    SetStopPolicy,
    SetQuota,
    SetWeight,
    SetCohort,
    SetPreemption,
    SetTaint,
    AddNodes,
    Divide,
    Reconfigure,
    Later,
    Cordon,
    Drain,
    Edit,
    FailNode,
    RestoreNode,
    InterruptSpot,
    InCluster,
    LoseCluster,
    RestoreCluster,
    AnswerCheck,
    FailPod,
    Scale,
    Finish,
]

"""Workloads that Kueue creates for jobs, their names and labels, and the release of their quota (Kueue 0.19).

Kueue suspends the job of an evicted Workload and clears its quota reservation as soon as the job is no longer active
(Kueue: pkg/controller/jobframework/reconciler.go, "handle eviction"). Each integration has its own `IsActive`, which
reads what the job's controller has written; `quota_release` returns the condition by the kind of job.
docs/explanation/quota-release.md describes each integration.
"""

from collections.abc import Mapping
from enum import StrEnum
from hashlib import sha1

from msgspec import Struct
from msgspec.structs import replace

from gpuconsole.model.clock import SECOND, Span, Time
from gpuconsole.model.job import Job, MemberRules
from gpuconsole.model.pod_template import PodSet
from gpuconsole.model.text import MAX_NAME
from gpuconsole.model.workloads import Workload

HASH = 5
"""Number of hex digits of the hash at the end of a Workload's name."""
GROUPS = {
    "Job": "batch",
    "JobSet": "jobset.x-k8s.io",
    **dict.fromkeys(("RayJob", "RayCluster", "RayService"), "ray.io"),
    **dict.fromkeys(("PyTorchJob", "TFJob", "XGBoostJob", "PaddleJob", "JAXJob", "MPIJob"), "kubeflow.org"),
    "TrainJob": "trainer.kubeflow.org",
    **dict.fromkeys(("Deployment", "StatefulSet"), "apps"),
    "LeaderWorkerSet": "leaderworkerset.x-k8s.io",
    "VolcanoJob": "batch.volcano.sh",
    **dict.fromkeys(("SparkApplication", "ScheduledSparkApplication"), "sparkoperator.k8s.io"),
    "AppWrapper": "workload.codeflare.dev",
    "Pod": "",
}
"""Kind → API group, which is part of the hash in the name."""
API_GROUPS = {
    **GROUPS,
    "CronJob": "batch",
    "ReplicaSet": "apps",
    "RayCronJob": "ray.io",
    "VolcanoCronJob": "batch.volcano.sh",
    **dict.fromkeys(("JobTemplate", "JobFlow"), "flow.volcano.sh"),
}
"""Kind → API group, also of kinds that no Workload is named after."""

OWNER_KINDS = {("batch.volcano.sh", "Job"): "VolcanoJob", ("batch.volcano.sh", "CronJob"): "VolcanoCronJob"}
"""(group, kind) → name of the kind in this program, where Kubernetes has another kind of the same name."""
CRON_KINDS = ("CronJob", "RayCronJob", "VolcanoCronJob", "ScheduledSparkApplication")
"""Kinds that create jobs on a schedule; VolcanoCronJob is the CronJob of batch.volcano.sh."""
MAKERS = (*CRON_KINDS, "JobFlow")
"""Kinds that create independent jobs, each counted by itself; jobs of other owners count as parts of their owner."""
_SUSPENDABLE = ("Job", "JobSet", "RayJob", "RayCluster", "TrainJob", *CRON_KINDS, "SparkApplication", "AppWrapper")
SUSPENDED_BY = {
    **dict.fromkeys(_SUSPENDABLE, ("suspend",)),
    **dict.fromkeys(("PyTorchJob", "TFJob", "XGBoostJob", "PaddleJob", "JAXJob", "MPIJob"), ("runPolicy", "suspend")),
}
"""Kind → path below `spec` of the field that suspends a job which no queue manages."""

POD_GROUP = "PodGroup"
LWS_GROUP = "LeaderWorkerSetGroup"
"""Kind of the job that is one group of a LeaderWorkerSet; Kueue names its Workload after the LeaderWorkerSet."""
POD = "Pod"
MAIN = "main"


def workload_name(kind: str, name: str, uid: str, generation: int = 0) -> str:
    """Name the Workload of a job: `job-NAME-HASH`, cut to 253 characters, with 5 hex digits of a SHA-1.

    A pod group's Workload has the group's name (Kueue 0.19 jobframework GetWorkloadNameForOwnerWithGVK, pod
    integration workloadName). A later slice of an elastic job has the generation of the job in its hash.
    """
    if kind == POD_GROUP:
        return name
    if kind == LWS_GROUP:
        kind = "LeaderWorkerSet"
    parts = (kind, GROUPS.get(kind, ""), name, uid, *((str(generation),) if generation else ()))
    digest = sha1("\n".join(parts).encode(), usedforsecurity=False).hexdigest()
    prefix = f"{kind.lower()}-{name}"[: MAX_NAME - 1 - HASH]
    return f"{prefix}-{digest[:HASH]}"


def pod_name(job: Job, pod_set: str, index: int) -> str:
    """Name a job's pod: `NAME-INDEX`, or `NAME-PODSET-INDEX` if the pod set is not named `main`.

    The same pod of a job always has the same name (Kubernetes adds a random suffix). Plain pods keep their own names.
    """
    if job.kind == POD:
        return job.name
    names = next((pods.pod_names for pods in job.pod_sets if pods.name == pod_set), ())
    if index < len(names):
        return names[index]
    middle = "" if pod_set == MAIN else f"-{pod_set}"
    suffix = f"{middle}-{index}"
    return f"{job.name[: MAX_NAME - len(suffix)]}{suffix}"


JOB_UID = "kueue.x-k8s.io/job-uid"
PREBUILT = "kueue.x-k8s.io/prebuilt-workload-name"
OWNER_KIND, OWNER_NAME = "kueue.x-k8s.io/job-owner-gvk", "kueue.x-k8s.io/job-owner-name"
COMPONENT = "kueue.x-k8s.io/component-workload-index"
"""Annotation of a Workload with the index of its group in a LeaderWorkerSet."""
_COPIED = "provreq.kueue.x-k8s.io/"


def workload_of(job: Job, *, now: Time, priority: int = 0, priority_class: str = "") -> Workload:
    """Build the Workload that Kueue creates for a job (0.19 jobframework NewWorkload, ConstructWorkload).

    The caller resolves the priority and gives the Workload its uid. A job's Workload always has the same name.
    """
    return Workload(
        namespace=job.namespace,
        name=job.labels.get(PREBUILT) or workload_name(job.kind, job.name, job.uid),
        created=now,
        labels={JOB_UID: job.uid} if job.uid else {},
        annotations={**_copied(job), **_owner_notes(job)},
        owner=job.key,
        job_uid=job.uid,
        queue=job.queue,
        priority=priority,
        priority_class=priority_class,
        priority_kind=_class_kind(job, priority_class),
        pod_sets=job.pod_sets,
        max_execution_time=job.max_execution_time,
    )


def without_topology(pod_sets: tuple[PodSet, ...]) -> tuple[PodSet, ...]:
    """Return the pod sets without topology requests (feature gate TopologyAwareScheduling off)."""
    return tuple(pods if pods.topology is None else replace(pods, topology=None) for pods in pod_sets)


def _copied(job: Job) -> dict[str, str]:
    return {key: value for key, value in job.annotations.items() if key.startswith(_COPIED)}


def _owner_notes(job: Job) -> dict[str, str]:
    """Return the annotations that name the Workload's owner, for kinds that Kueue turns into pod groups
    (StatefulSet, LeaderWorkerSet).
    """
    if job.kind == "StatefulSet":
        return {OWNER_KIND: "apps/v1, Kind=StatefulSet", OWNER_NAME: job.name}
    if job.kind == LWS_GROUP and isinstance(job.rules, MemberRules):
        kind, name = "leaderworkerset.x-k8s.io/v1, Kind=LeaderWorkerSet", job.owner.rpartition("/")[2]
        return {OWNER_KIND: kind, OWNER_NAME: name, COMPONENT: str(job.rules.index)}
    return {}


def _class_kind(job: Job, priority_class: str) -> str:
    if job.workload_priority_class:
        return "WorkloadPriorityClass"
    return "PriorityClass" if priority_class else ""


QUEUE = "kueue.x-k8s.io/queue-name"
PRIORITY_CLASS = "kueue.x-k8s.io/priority-class"
MAX_EXECUTION = "kueue.x-k8s.io/max-exec-time-seconds"
WORKLOAD = "kueue.x-k8s.io/workload"
"""Annotation of a pod: the name of its Workload."""
POD_SET = "kueue.x-k8s.io/podset"
"""Label of a pod: its pod set in that Workload."""
DURATION = "gpuconsole.io/duration"
"""Duration of the work in the simulator: `90s`, `1h30m`."""
CHECKPOINT = "gpuconsole.io/checkpoint-interval"
"""Interval between checkpoints: an eviction loses at most this much work."""
ON_NOTICE = "gpuconsole.io/checkpoint-on-notice"
"""Time that the work needs to write a checkpoint on SIGTERM; if it has this time, nothing is lost."""
GANG = "gpuconsole.io/gang"
"""`true`: the pods of a Job are a gang, of which all or none are placed."""


FAST_RELEASE_GATE = "FastQuotaReleaseInPodIntegration"
"""Kueue's feature gate (alpha, off by default) that `quota_release` takes as `fast_release`."""


class QuotaRelease(StrEnum):
    """Condition for which Kueue waits before it clears the quota reservation of an evicted workload."""

    WITHOUT_ACTIVE_PODS = "WithoutActivePods"
    """The job's controller has deleted the pods; terminating pods do not count."""
    PODS_STOPPED = "PodsStopped"
    """No pod is in phase Running; terminating pods count until they end, pending pods never count.

    A terminating pod stops counting one grace period after its `deletionTimestamp`, which the API server sets to the
    end of the grace period: two grace periods after the deletion.
    """
    LAUNCHER_STOPPED = "LauncherStopped"
    """The launcher pod is not in phase Running; terminating workers do not count."""
    PODS_DELETED = "PodsDeleted"
    """All pods are gone from the API server, pending and stuck ones included."""


class ControllerDelay(Struct, frozen=True, kw_only=True):
    """Fixed waits that a job's controller adds between the eviction and the release of the quota."""

    deletion: Span = 0
    """From the suspension until the controller deletes the pods."""
    polling: Span = 0
    """Interval, from the suspension, at which the controller checks whether the job has stopped; 0 if it watches."""


NO_DELAY = ControllerDelay()

_RULES: Mapping[str, QuotaRelease] = {
    # kubernetes pkg/controller/job/job_controller.go, manageJob: status.active is 0 once the pods are deleted.
    "Job": QuotaRelease.WITHOUT_ACTIVE_PODS,
    # jobset pkg/controllers/jobset_controller.go, calculateReplicatedJobStatuses: counts Jobs with status.active > 0.
    "JobSet": QuotaRelease.WITHOUT_ACTIVE_PODS,
    # trainer pkg/runtime/framework/plugins/jobset/jobset.go, Status: copies the counts of the JobSet.
    "TrainJob": QuotaRelease.WITHOUT_ACTIVE_PODS,
    # training-operator pkg/controller.v1/common/job.go, ReconcileJobs: sets `active` to 0 when the job is suspended.
    **dict.fromkeys(("PyTorchJob", "TFJob", "XGBoostJob", "PaddleJob", "JAXJob"), QuotaRelease.WITHOUT_ACTIVE_PODS),
    # mpi-operator pkg/controller/mpi_job_controller.go, updateMPIJobStatus: counts launcher pods in phase Running, and
    # no workers while the job is suspended.
    "MPIJob": QuotaRelease.LAUNCHER_STOPPED,
    # kuberay ray-operator/controllers/ray/rayjob_controller.go: Suspended once the RayCluster and the submitter Job are
    # deleted; both are deleted in the background, so their pods are not waited for.
    "RayJob": QuotaRelease.WITHOUT_ACTIVE_PODS,
    # kuberay ray-operator/controllers/ray/raycluster_controller.go, calculateStatus: `ready` until no pod is left.
    "RayCluster": QuotaRelease.PODS_DELETED,
    # kuberay ray-operator/controllers/ray/rayservice_controller.go, calculateConditions: Ready while the Service has
    # ready endpoints; terminating pods are not ready endpoints.
    "RayService": QuotaRelease.WITHOUT_ACTIVE_PODS,
    # appwrapper internal/controller/appwrapper/resource_management.go, deleteComponents: waits until no pod is left.
    "AppWrapper": QuotaRelease.PODS_DELETED,
    # spark-operator internal/controller/sparkapplication/controller.go, transitionToSuspending: leaves RUNNING first.
    "SparkApplication": QuotaRelease.WITHOUT_ACTIVE_PODS,
    # kueue pkg/controller/jobs/pod/pod_controller.go, IsActive: false for a pod that is in no group.
    **dict.fromkeys((POD, "Deployment"), QuotaRelease.WITHOUT_ACTIVE_PODS),
    # The same function: pods of a group count while in phase Running. Kueue makes each StatefulSet and each group of a
    # LeaderWorkerSet a pod group.
    **dict.fromkeys((POD_GROUP, "StatefulSet", "LeaderWorkerSet", LWS_GROUP), QuotaRelease.PODS_STOPPED),
}

CONTROLLER_DELAYS: Mapping[str, ControllerDelay] = {
    # kuberay raycluster_controller.go, DefaultRequeueDuration: deletes the pods in the reconciliation after the one
    # that sets the condition RayClusterSuspending.
    "RayCluster": ControllerDelay(deletion=2 * SECOND),
    # kuberay rayservice_controller.go, ServiceDefaultRequeueDuration: does not watch the endpoints.
    "RayService": ControllerDelay(deletion=2 * SECOND, polling=2 * SECOND),
    # appwrapper appwrapper_controller.go (AppWrapperSuspending); ForcefulDeletionGracePeriod is not simulated.
    "AppWrapper": ControllerDelay(polling=5 * SECOND),
}
"""Kind → the waits of its controller; other kinds have none."""

_MADE_OF_JOBS = frozenset({"Job", "JobSet", "TrainJob"})
_STARTS_BEFORE_OLD_PODS_END = _MADE_OF_JOBS | {"RayJob", "Deployment", POD}


def quota_release(kind: str, *, fast_release: bool = False, was_ready: bool = True) -> QuotaRelease:
    """Return the condition for the release of the quota of an evicted job of this kind.

    `fast_release` is the feature gate `FAST_RELEASE_GATE`. `was_ready` says whether all pods of the job have been
    running and ready at the same time since it started; a RayCluster counts as active only from then on.

    For a kind without an integration, or a Workload without a job (""), Kueue leaves the reservation to the owner of
    the Workload, who is assumed to wait for its pods.
    """
    if kind == "RayCluster" and not was_ready:
        return QuotaRelease.WITHOUT_ACTIVE_PODS
    rule = _RULES.get(kind, QuotaRelease.PODS_STOPPED)
    if fast_release and kind in _RULES and rule is QuotaRelease.PODS_STOPPED:
        return QuotaRelease.WITHOUT_ACTIVE_PODS
    return rule


def starts_before_old_pods_end(kind: str, *, replaces_failed_only: bool = False) -> bool:
    """Return True if a job that is admitted again creates new pods while its old pods still terminate.

    `replaces_failed_only` is True where the batch/v1 Jobs have `podReplacementPolicy: Failed` or a `podFailurePolicy`;
    such a Job creates one pod for each old pod that has ended (Kubernetes: job_controller.go, onlyReplaceFailedPods).
    The other kinds give the new pods the names of the old ones, or wait until the old ones are deleted. A Deployment
    replaces an evicted pod at once, by a pod with its own Workload; a plain pod is not started again.
    """
    return kind in _STARTS_BEFORE_OLD_PODS_END and not (kind in _MADE_OF_JOBS and replaces_failed_only)

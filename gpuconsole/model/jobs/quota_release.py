"""Time at which the quota of an evicted workload becomes free, by the kind of its job (Kueue 0.19).

Kueue suspends the job of an evicted Workload and clears its quota reservation as soon as the job is no longer active
(Kueue: pkg/controller/jobframework/reconciler.go, "handle eviction"). Each integration has its own `IsActive`, which
reads what the job's controller has written. docs/explanation/quota-release.md describes each integration.
"""

from collections.abc import Mapping
from enum import StrEnum

from msgspec import Struct

from gpuconsole.model.clock import MINUTE, SECOND, Span
from gpuconsole.model.jobs.naming import LWS_GROUP, POD, POD_GROUP

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
    forced_deletion: Span | None = None
    """From the suspension until the controller deletes remaining pods without a grace period; None for never."""


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
    # appwrapper appwrapper_controller.go (AppWrapperSuspending), pkg/config/config.go (ForcefulDeletionGracePeriod).
    "AppWrapper": ControllerDelay(polling=5 * SECOND, forced_deletion=10 * MINUTE),
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

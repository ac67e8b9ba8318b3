"""Decides whether a workload without quota may be queued, and the reason and message of its condition if it may not.

Kueue 0.19 workload.IsAdmissible, queue.Manager.AddOrUpdateWorkload, and the workload controller's writes to the
condition (syncQuotaReservedFalseCondition, mayUpdateConditionForAdmissionGatedBy, reconcileOn…QueueActiveState).
"""

from enum import StrEnum

from msgspec import Struct

from gpuconsole.model.queues import ClusterQueue, LocalQueue, StopPolicy
from gpuconsole.model.workloads import Condition, Workload
from gpuconsole.scheduling.kueue import messages
from gpuconsole.scheduling.kueue.cluster_queue_status import ClusterQueueConfig, CompiledConfig
from gpuconsole.scheduling.kueue.conditions import DEACTIVATED, INADMISSIBLE, QUOTA_RESERVED, is_on_hold
from gpuconsole.scheduling.kueue.config import KueueConfig
from gpuconsole.scheduling.kueue.messages import PENDING, GranularReason
from gpuconsole.scheduling.kueue.pod_resources import WorkloadRequest, limits_violation
from gpuconsole.scheduling.kueue.state import KueueState

ADMISSION_GATED_BY = "kueue.x-k8s.io/admission-gated-by"
WAITING_FOR_REPLACEMENT = "WaitingForReplacementPods"
"""Condition of a pod group that lacks pods."""
GATE_CLEARED = "AdmissionGatedBy cleared, waiting for quota reservation"
EVALUATION_PENDING = "Workload is pending evaluation in the scheduling queue"
BYPASSED = "Bypassed scheduling evaluation because an equivalent workload recently failed"
"""Message of a workload whose equivalence class is inadmissible."""

_SCHEDULER_REASONS = (
    GranularReason.WAITING_FOR_QUOTA,
    GranularReason.NO_MATCHING_FLAVOR,
    GranularReason.EXCEEDS_MAX_QUOTA,
    GranularReason.TOPOLOGY_PLACEMENT_FAILED,
    GranularReason.WAITING_FOR_PREEMPTED_WORKLOADS,
    GranularReason.WAITING_FOR_PODS_READY,
    GranularReason.PENDING_EVALUATION,
)
"""Reasons that stay until the scheduler evaluates the workload again; all others end with their cause."""
_BYPASSABLE_REASONS = ("", DEACTIVATED, GranularReason.PENDING_EVALUATION, GranularReason.SUSPENDED, PENDING)


class InadmissibleReason(StrEnum):
    """Reason why a workload cannot be queued."""

    NOT_WAITING = "it does not wait for quota"
    NO_LOCAL_QUEUE = "its LocalQueue does not exist"
    LOCAL_QUEUE_STOPPED = "its LocalQueue is stopped"
    NO_CLUSTER_QUEUE = "its LocalQueue leads to no ClusterQueue"


def is_gated(workload: Workload, config: KueueConfig) -> bool:
    """True if the admission-gated-by annotation keeps the workload out of the queues (gate AdmissionGatedBy)."""
    return bool(workload.annotations.get(ADMISSION_GATED_BY)) and config.enabled("AdmissionGatedBy")


def queue_inadmissible_reason(
    setup: CompiledConfig, workload: Workload, config: KueueConfig
) -> InadmissibleReason | None:
    """Return the reason that keeps the workload out of the queues; None if it can be queued."""
    stopped = workload.finished or not workload.active or workload.is_true(WAITING_FOR_REPLACEMENT)
    if stopped or workload.reserved or is_on_hold(workload) or is_gated(workload, config):
        return InadmissibleReason.NOT_WAITING
    queue = setup.objects.local_queues.get(workload.local_queue)
    if queue is None:
        return InadmissibleReason.NO_LOCAL_QUEUE
    if queue.stop_policy != StopPolicy.NONE:
        return InadmissibleReason.LOCAL_QUEUE_STOPPED
    return None if queue.cluster_queue in setup.queues else InadmissibleReason.NO_CLUSTER_QUEUE


class QueueLookup(Struct, frozen=True, kw_only=True):
    """The state of a workload's queues that explains why it is not queued; decides its QuotaReserved condition."""

    local_queue: LocalQueue | None = None
    cluster_queue: ClusterQueue | None = None
    """The LocalQueue's ClusterQueue; None if it is missing or the LocalQueue is stopped (ClusterQueueForWorkload)."""
    active: bool = True
    """True if the ClusterQueue is active."""
    misfit_message: str = ""
    """Message if quota cannot help: namespace mismatch, or requests that violate limits; empty if none."""
    class_refusal: str | None = None
    """Granular reason of the equivalent workload whose refusal made this one inadmissible; None if there is none."""


def look_up_queues(state: KueueState, workload: Workload) -> QueueLookup:
    """Look up the workload's queues; `misfit_message` and `class_refusal` are only filled in for granular reasons."""
    objects = state.setup.objects
    local_queue = objects.local_queues.get(workload.local_queue)
    rules = state.setup.queues.get(state.setup.cluster_queue_of(workload.local_queue))
    granular = state.config.has_granular_reasons and rules is not None
    return QueueLookup(
        local_queue=local_queue,
        cluster_queue=rules.queue if rules is not None else None,
        active=rules is not None and rules.active,
        misfit_message=_misfit_message(state.setup, rules, workload) if granular and rules is not None else "",
        class_refusal=_class_refusal_reason(state, workload) if granular else None,
    )


def inadmissible_reason(workload: Workload, lookup: QueueLookup, config: KueueConfig) -> tuple[str, str]:
    """Return reason and message for QuotaReserved=False; two empty strings leave the condition unchanged.

    With granular reasons the condition becomes PendingEvaluation once the previous obstacle is gone.
    """
    current_reason = workload.condition(QUOTA_RESERVED)
    if is_gated(workload, config):
        if current_reason is None or current_reason.reason != GranularReason.ADMISSION_GATED:
            return _gated_reason(workload)
    elif (
        current_reason is not None
        and current_reason.reason == GranularReason.ADMISSION_GATED
        and config.enabled("AdmissionGatedBy")
    ):
        return GranularReason.PENDING_EVALUATION if config.has_granular_reasons else PENDING, GATE_CLEARED
    if config.has_granular_reasons:
        return _granular_reason(workload, lookup, config, current_reason)
    found = _queue_blocker(workload, lookup)
    return (INADMISSIBLE, found[1]) if found else ("", "")


def _granular_reason(
    workload: Workload, lookup: QueueLookup, config: KueueConfig, current_reason: Condition | None
) -> tuple[str, str]:
    if not workload.active:
        return DEACTIVATED, "The workload is deactivated"
    if current_reason is not None and is_on_hold(workload):
        return current_reason.reason, current_reason.message
    found = _queue_blocker(workload, lookup)
    if found:
        return found
    if lookup.misfit_message:
        return GranularReason.MISCONFIGURED, lookup.misfit_message
    if is_gated(workload, config):
        return _gated_reason(workload)
    explicit = config.enabled("UnadmittedWorkloadsExplicitStatus")
    may_be_bypassed = explicit if current_reason is None else current_reason.reason in _BYPASSABLE_REASONS
    if lookup.class_refusal is not None and may_be_bypassed:
        return lookup.class_refusal, BYPASSED
    if current_reason is not None and current_reason.reason in _SCHEDULER_REASONS:
        return current_reason.reason, current_reason.message
    return (
        (GranularReason.PENDING_EVALUATION, EVALUATION_PENDING) if current_reason is not None or explicit else ("", "")
    )


def _gated_reason(workload: Workload) -> tuple[str, str]:
    return GranularReason.ADMISSION_GATED, f"Admission is gated by: {workload.annotations[ADMISSION_GATED_BY]}"


def _queue_blocker(workload: Workload, lookup: QueueLookup) -> tuple[str, str] | None:
    local_queue, queue = lookup.local_queue, lookup.cluster_queue
    if local_queue is None:
        return GranularReason.MISCONFIGURED, f"LocalQueue {workload.queue} doesn't exist"
    if local_queue.stop_policy != StopPolicy.NONE:
        return GranularReason.SUSPENDED, f"LocalQueue {workload.queue} is inactive"
    if queue is None:
        return GranularReason.MISCONFIGURED, f"ClusterQueue {local_queue.cluster_queue} doesn't exist"
    return None if lookup.active else (GranularReason.SUSPENDED, messages.inactive_message(queue.name))


def _misfit_message(setup: CompiledConfig, rules: ClusterQueueConfig, workload: Workload) -> str:
    if not setup.matches_namespace(rules.queue, workload.namespace):
        return messages.NAMESPACE_MISMATCH
    return limits_violation([pod_set.template for pod_set in workload.pod_sets], setup.limits_of(workload.namespace))


def _class_refusal_reason(state: KueueState, workload: Workload) -> str | None:
    record = state.workload_index.get(workload.key)
    if not state.gates.hashing or not isinstance(record, WorkloadRequest):
        return None
    queue = state.workload_index.read_queue(record.cluster_queue)
    return queue.class_refusal(record.id) if queue is not None else None


def quota_loss_reason(workload: Workload, lookup: QueueLookup, config: KueueConfig) -> tuple[str, str] | None:
    """Decide whether a workload that has quota, but is not admitted yet, must release it.

    Returns the reason and message of QuotaReserved=False if its LocalQueue or ClusterQueue is stopped or gone, else
    None: the workload keeps its quota.
    """
    local_queue, queue = lookup.local_queue, lookup.cluster_queue
    if local_queue is None:
        reason, message = GranularReason.MISCONFIGURED, f"LocalQueue {workload.queue} is terminating or missing"
    elif local_queue.stop_policy != StopPolicy.NONE:
        reason, message = GranularReason.SUSPENDED, f"LocalQueue {workload.queue} is stopped"
    elif queue is None:
        reason, message = (
            GranularReason.MISCONFIGURED,
            f"ClusterQueue {local_queue.cluster_queue} is terminating or missing",
        )
    elif queue.stop_policy != StopPolicy.NONE:
        reason, message = GranularReason.SUSPENDED, f"ClusterQueue {queue.name} is stopped"
    else:
        return None
    return reason if config.has_granular_reasons else INADMISSIBLE, message

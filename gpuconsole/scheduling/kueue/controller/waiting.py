"""Reconciles workloads that must not be scheduled yet: deactivation, backoff, stopped queues.

Kueue 0.19 workload controller, Reconcile.
"""

from msgspec.structs import replace

from gpuconsole.model.clock import Span, Time
from gpuconsole.model.queues import StopPolicy
from gpuconsole.model.workloads import Condition, RequeueState, Workload
from gpuconsole.scheduling.kueue import conditions
from gpuconsole.scheduling.kueue.admissibility import QueueLookup
from gpuconsole.scheduling.kueue.controller.reconcile_result import PlannedEviction, ReconcileResult, evicted
from gpuconsole.scheduling.kueue.requeueing import awaited, wait_until

DEACTIVATION_TARGET = "DeactivationTarget"
BY_KUEUE = "DeactivatedDueTo"
DEACTIVATED = "The workload is deactivated"
_RESTARTED = {
    "LocalQueueStopped": ("LocalQueueRestarted", "The LocalQueue was restarted after being stopped"),
    "ClusterQueueStopped": ("ClusterQueueRestarted", "The ClusterQueue was restarted after being stopped"),
}


def target_deactivation(workload: Workload, reason: str, message: str, now: Time) -> Workload:
    """Mark a workload that Kueue is about to deactivate; the same object if it is marked already."""
    return workload.with_condition(Condition(DEACTIVATION_TARGET, True, reason, message, now))


def wait_for_checks(workload: Workload, now: Time) -> ReconcileResult | None:
    """Set the requeue time that checks in state Retry require; None if no action is due."""
    moment = awaited(workload, now)
    return None if moment is None else ReconcileResult(wait_until(workload, moment))


def active(workload: Workload, now: Time) -> ReconcileResult | None:
    """Reconcile an active workload before its queue is evaluated; None if no action is due."""
    if workload.is_true(DEACTIVATION_TARGET):
        return ReconcileResult(replace(workload, active=False))
    at = workload.requeue.at
    if at is not None and at > now:
        return ReconcileResult(workload, again=at - now)
    if at is not None and conditions.admission_status(workload) is conditions.AdmissionStatus.PENDING:
        return ReconcileResult(_rested(workload))
    waits = workload.condition(conditions.REQUEUED)
    if waits is None or waits.status:
        return None
    if waits.reason == conditions.DEACTIVATED:
        return ReconcileResult(conditions.requeue(workload, "Reactivated", "The workload was reactivated", now))
    if waits.reason in (conditions.PODS_READY_TIMEOUT, conditions.ADMISSION_CHECK):
        rested = _rested(workload)
        return ReconcileResult(conditions.requeue(rested, "BackoffFinished", "The workload backoff was finished", now))
    return None


def _rested(workload: Workload) -> Workload:
    return replace(workload, requeue=replace(workload.requeue, at=None))


def inactive(workload: Workload) -> ReconcileResult | None:
    """Evict a deactivated workload and reset its requeue state; None when both are done."""
    target = workload.condition(DEACTIVATION_TARGET)
    kept = tuple(condition for condition in workload.conditions if condition.type != DEACTIVATION_TARGET)
    forgotten = replace(workload, conditions=kept, requeue=RequeueState())
    if not workload.is_true(conditions.EVICTED):
        message = DEACTIVATED if target is None else f"{DEACTIVATED} due to {target.message}"
        cause = "" if target is None else target.reason
        return evicted(forgotten, PlannedEviction(conditions.DEACTIVATED, message, cause))
    return ReconcileResult(forgotten) if workload.requeue != RequeueState() else None


def deactivation_left(workload: Workload, kept: Span, now: Time) -> Span | None:
    """Return the remaining retention of a workload that Kueue deactivated; None for others."""
    gone = workload.condition(conditions.EVICTED)
    if workload.active or gone is None or not gone.status or not gone.reason.startswith(BY_KUEUE):
        return None
    return max(0, gone.since + kept - now)


def restarted(workload: Workload, outlook: QueueLookup, now: Time) -> ReconcileResult | None:
    """Requeue a workload that was evicted by a stopped queue once the queue runs again; None if no action is due."""
    waits = workload.condition(conditions.REQUEUED)
    if waits is None or waits.status or waits.reason not in _RESTARTED:
        return None
    queue = outlook.local_queue if waits.reason == "LocalQueueStopped" else outlook.cluster_queue
    if queue is None or queue.stop_policy is not StopPolicy.NONE:
        return None
    return ReconcileResult(conditions.requeue(workload, *_RESTARTED[waits.reason], now))

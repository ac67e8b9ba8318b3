"""Kueue's workload controller: takes the first action that is due for one Workload, one per call.

Kueue 0.19 pkg/controller/core/workload_controller.go, in the order of its Reconcile. `reconcile` first looks at
workloads that must not be scheduled yet (`activate`, `deactivate`: deactivation, backoff, stopped queues), then at
those that hold quota (`eviction_of_holder`): it evicts them for checks, stopped queues, slow pods or exceeded execution
time. Whether pods are ready, and how long they may take, follows jobframework generatePodsReadyCondition
(waitForPodsReady).
"""

from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

from gpuconsole.model.clock import SECOND, Span, Time
from gpuconsole.model.events import Evict, KueueEvent
from gpuconsole.model.queues import StopPolicy
from gpuconsole.model.workloads import Condition, RequeueState, Workload
from gpuconsole.scheduling.kueue import conditions
from gpuconsole.scheduling.kueue.admissibility import QueueLookup, inadmissible_reason, is_gated, quota_loss_reason
from gpuconsole.scheduling.kueue.apply_decisions import admitted_event, evicted_event, with_eviction
from gpuconsole.scheduling.kueue.conditions import (
    ADMITTED,
    REJECTED,
    RETRY,
    checks_in_state,
    count_retry,
    required_checks,
    retry_delay_end,
    set_requeue_time,
    state_messages,
    sync_checks,
)
from gpuconsole.scheduling.kueue.config import KueueConfig, ObjectRetention, WaitForPodsReady

PODS_READY = "PodsReady"


class Wait(StrEnum):
    """The kind of readiness an admitted workload waits for; the cause of its eviction after the timeout."""

    START = "WaitForStart"
    RECOVERY = "WaitForRecovery"


_NOT_READY_TEXTS = {
    Wait.START: "Not all pods are ready or succeeded",
    Wait.RECOVERY: "At least one pod has failed, waiting for recovery",
}
_STARTED, _RECOVERED = "Started", "Recovered"
_READY_TEXT = "All pods reached readiness and the workload is running"


def with_pods_ready_condition(workload: Workload, ready: bool, now: Time) -> Workload:
    """Set the PodsReady condition; the same object if nothing changes."""
    said = workload.condition(PODS_READY)
    if not workload.admitted:
        return _with_pods_ready(workload, Condition(PODS_READY, False, Wait.START, _NOT_READY_TEXTS[Wait.START], now))
    if ready:
        again = said is not None and said.reason in (Wait.RECOVERY, _RECOVERED)
        return _with_pods_ready(
            workload, Condition(PODS_READY, True, _RECOVERED if again else _STARTED, _READY_TEXT, now)
        )
    lost = said is not None and (said.status or said.reason == Wait.RECOVERY)
    wait = Wait.RECOVERY if lost else Wait.START
    return _with_pods_ready(workload, Condition(PODS_READY, False, wait, _NOT_READY_TEXTS[wait], now))


def _with_pods_ready(workload: Workload, condition: Condition) -> Workload:
    said = workload.condition(PODS_READY)
    if said is not None and (said.status, said.reason) == (condition.status, condition.reason):
        return workload
    return workload.with_condition(condition)


def pods_ready_timeout(workload: Workload, settings: WaitForPodsReady | None, now: Time) -> tuple[Wait, Span] | None:
    """Return the kind of wait and the time left (0: timed out); None without a timeout."""
    admitted = workload.condition(ADMITTED)
    if settings is None or admitted is None or not admitted.status:
        return None
    said = workload.condition(PODS_READY)
    if said is not None and said.status:
        return None
    if said is None or said.reason in (Wait.START, PODS_READY):
        return Wait.START, max(0, admitted.since + settings.timeout - now)
    if said.reason == Wait.RECOVERY and settings.effective_recovery_timeout:
        return Wait.RECOVERY, max(0, said.since + settings.effective_recovery_timeout - now)
    return None


class ReconcileResult(Struct, frozen=True):
    """The Workload after a reconciliation, its events, and the time until the next one."""

    workload: Workload | None
    """None: it is deleted."""
    events: tuple[KueueEvent, ...] = ()
    reconcile_after: Span = 0
    """Time until the next reconciliation; 0 = only after a change."""
    eviction: Evict | None = None
    """Eviction of `workload`; it is not marked yet, because its job must be stopped first. None = no eviction."""

    def with_deactivation(self, now: Time) -> Workload | None:
        """Return the Workload with the conditions of its eviction, if there is one."""
        if self.workload is None or self.eviction is None:
            return self.workload
        return with_eviction(self.workload, self.eviction, now)


def _evict(workload: Workload, reason: str, message: str, cause: str = "") -> ReconcileResult:
    """The result for a workload to evict, with an event if it has an admission."""
    eviction = Evict(workload.key, reason, message, cause=cause)
    events = (evicted_event(workload, eviction),) if workload.admission is not None else ()
    return ReconcileResult(workload, events, eviction=eviction)


DEACTIVATION_TARGET = "DeactivationTarget"
"""Condition of a workload that Kueue is about to deactivate."""
BY_KUEUE = "DeactivatedDueTo"
"""Prefix of the eviction reason of a workload that Kueue, not its owner, deactivated."""
DEACTIVATED = "The workload is deactivated"
"""Message of an eviction; the reason is `conditions.DEACTIVATED`."""
_RESTART_REASONS = {
    "LocalQueueStopped": ("LocalQueueRestarted", "The LocalQueue was restarted after being stopped"),
    "ClusterQueueStopped": ("ClusterQueueRestarted", "The ClusterQueue was restarted after being stopped"),
}


def target_deactivation(workload: Workload, reason: str, message: str, now: Time) -> Workload:
    """Mark a workload that Kueue is about to deactivate; the same object if it is marked already."""
    return workload.with_condition(Condition(DEACTIVATION_TARGET, True, reason, message, now))


def set_retry_wait(workload: Workload, now: Time) -> ReconcileResult | None:
    """Set the requeue time that checks in state Retry require; None if no action is due."""
    moment = retry_delay_end(workload, now)
    return None if moment is None else ReconcileResult(set_requeue_time(workload, moment))


def activate(workload: Workload, now: Time) -> ReconcileResult | None:
    """Reconcile an active workload before its queue is evaluated; None if no action is due."""
    if workload.is_true(DEACTIVATION_TARGET):
        return ReconcileResult(replace(workload, active=False))
    at = workload.requeue.at
    if at is not None and at > now:
        return ReconcileResult(workload, reconcile_after=at - now)
    if at is not None and conditions.admission_status(workload) is conditions.AdmissionStatus.PENDING:
        return ReconcileResult(replace(workload, requeue=replace(workload.requeue, at=None)))
    waits = workload.condition(conditions.REQUEUED)
    if waits is None or waits.status:
        return None
    if waits.reason == conditions.DEACTIVATED:
        return ReconcileResult(conditions.mark_reactivated(workload, now))
    if waits.reason in conditions.RETRIED_AFTER_BACKOFF:
        return ReconcileResult(conditions.end_backoff(workload, now))
    return None


def deactivate(workload: Workload) -> ReconcileResult | None:
    """Evict a deactivated workload and reset its requeue state; None when both are done."""
    target = workload.condition(DEACTIVATION_TARGET)
    retention = tuple(condition for condition in workload.conditions if condition.type != DEACTIVATION_TARGET)
    forgotten = replace(workload, conditions=retention, requeue=RequeueState())
    if not workload.is_true(conditions.EVICTED):
        message = DEACTIVATED if target is None else f"{DEACTIVATED} due to {target.message}"
        cause = "" if target is None else target.reason
        return _evict(forgotten, conditions.DEACTIVATED, message, cause)
    return ReconcileResult(forgotten) if workload.requeue != RequeueState() else None


def time_until_deletion(workload: Workload, retention: Span, now: Time) -> Span | None:
    """Return the remaining retention of a workload that Kueue deactivated; None for others."""
    gone = workload.condition(conditions.EVICTED)
    if workload.active or gone is None or not gone.status or not gone.reason.startswith(BY_KUEUE):
        return None
    return max(0, gone.since + retention - now)


def reactivate(workload: Workload, queue_lookup: QueueLookup, now: Time) -> ReconcileResult | None:
    """Requeue a workload that was evicted by a stopped queue once the queue runs again; None if no action is due."""
    waits = workload.condition(conditions.REQUEUED)
    if waits is None or waits.status or waits.reason not in _RESTART_REASONS:
        return None
    queue = queue_lookup.local_queue if waits.reason == "LocalQueueStopped" else queue_lookup.cluster_queue
    if queue is None or queue.stop_policy is not StopPolicy.NONE:
        return None
    return ReconcileResult(conditions.mark_requeued(workload, *_RESTART_REASONS[waits.reason], now))


LIMIT_EXCEEDED = "RequeuingLimitExceeded"
TIME_EXCEEDED = "MaximumExecutionTimeExceeded"
"""Cause of a deactivation, like `LIMIT_EXCEEDED`."""


def eviction_of_holder(
    workload: Workload, queue_lookup: QueueLookup, config: KueueConfig, now: Time
) -> ReconcileResult:
    """Reconcile a workload that holds quota."""
    outcome = _check_eviction(workload, now) or _stop_eviction(workload, queue_lookup, config, now)
    if outcome is not None:
        return outcome
    slow = _pods_ready_eviction(workload, config, now)
    if slow is not None and slow.workload is not workload:
        return slow
    long = _execution_time_eviction(workload, now)
    if long is not None and long.workload is not workload:
        return long
    spans = [found.reconcile_after for found in (slow, long) if found is not None and found.reconcile_after]
    return ReconcileResult(workload, reconcile_after=min(spans, default=0))


def _check_eviction(workload: Workload, now: Time) -> ReconcileResult | None:
    """Deactivate a workload with a rejected check; evict one with a check in state Retry."""
    if workload.is_true(conditions.EVICTED):
        return None
    rejected, again = checks_in_state(workload, REJECTED), checks_in_state(workload, RETRY)
    if rejected:
        reason = state_messages(rejected, REJECTED)
        marked = target_deactivation(workload, conditions.ADMISSION_CHECK, reason, now)
        said = KueueEvent(workload.key, "AdmissionCheckRejected", f"Deactivated due to {reason}", warning=True)
        return ReconcileResult(marked, (said,))
    if again:
        return _evict(workload, conditions.ADMISSION_CHECK, f"Evicted due to {state_messages(again, RETRY)}")
    return None


def _stop_eviction(
    workload: Workload, queue_lookup: QueueLookup, config: KueueConfig, now: Time
) -> ReconcileResult | None:
    """Handle a stopped queue: HoldAndDrain evicts admitted workloads; others lose their quota."""
    if not workload.admitted:
        lost = quota_loss_reason(workload, queue_lookup, config)
        return (
            None
            if lost is None
            else ReconcileResult(
                conditions.set_pending_reason(workload, *lost, now, granular=config.has_granular_reasons)
            )
        )
    if workload.is_true(conditions.EVICTED):
        return None
    for kind, found in (("LocalQueue", queue_lookup.local_queue), ("ClusterQueue", queue_lookup.cluster_queue)):
        if found is not None and found.stop_policy is StopPolicy.HOLD_AND_DRAIN:
            return _evict(workload, f"{kind}Stopped", f"The {kind} is stopped")
    return None


def _pods_ready_eviction(workload: Workload, config: KueueConfig, now: Time) -> ReconcileResult | None:
    """Evict a workload whose pods are not ready in time; deactivate it after too many retries."""
    settings = config.pods_ready_settings
    waits = pods_ready_timeout(workload, settings, now)
    if settings is None or waits is None or not workload.active or workload.is_true(conditions.EVICTED):
        return None
    wait, left = waits
    if left:
        return ReconcileResult(workload, reconcile_after=left)
    limit = settings.requeuing_strategy.backoff_limit_count
    if limit is not None and workload.requeue.count + 1 > limit:
        reason = "exceeding the maximum number of re-queuing retries"
        return ReconcileResult(target_deactivation(workload, LIMIT_EXCEEDED, reason, now))
    return _is_timed_out(workload, settings, wait, now)


def _is_timed_out(workload: Workload, settings: WaitForPodsReady, wait: str, now: Time) -> ReconcileResult:
    message = f"Exceeded the PodsReady timeout {workload.key}"
    counted = count_retry(workload, settings.requeuing_strategy, now)
    return _evict(counted, conditions.PODS_READY_TIMEOUT, message, wait)


def _execution_time_eviction(workload: Workload, now: Time) -> ReconcileResult | None:
    """Deactivate a workload that used up its maximum execution time, earlier admissions included."""
    admitted = workload.condition(conditions.ADMITTED)
    if admitted is None or not admitted.status or workload.max_execution_time is None:
        return None
    left: Span = workload.max_execution_time - workload.past_execution - (now - admitted.since)
    if left > 0:
        return ReconcileResult(workload, reconcile_after=left)
    if workload.is_true(DEACTIVATION_TARGET):
        return None
    marked = target_deactivation(workload, TIME_EXCEEDED, "exceeding the maximum execution time", now)
    message = f"The maximum execution time ({workload.max_execution_time // SECOND}s) exceeded"
    return ReconcileResult(
        replace(marked, past_execution=0), (KueueEvent(workload.key, TIME_EXCEEDED, message, warning=True),)
    )


GATE_EVENTS = {
    True: ("AdmissionGated", "Workload admission is gated by: {}"),
    False: ("AdmissionGateCleared", "Admission gate cleared, workload is now admissible"),
}


def reconcile(workload: Workload, queue_lookup: QueueLookup, config: KueueConfig, now: Time) -> ReconcileResult:
    """Return the result of one reconciliation; its workload is the same object if no action is due."""
    if workload.finished:
        return _reconcile_finished(workload, config.object_retention, now)
    outcome = (
        set_retry_wait(workload, now)
        or (activate(workload, now) if workload.active else deactivate(workload))
        or reactivate(workload, queue_lookup, now)
        or _reconcile_gated(workload, queue_lookup, config, now)
        or _with_synced_checks(workload, queue_lookup, now)
    )
    if outcome is not None:
        return outcome
    if workload.admitted:
        return eviction_of_holder(workload, queue_lookup, config, now)
    brought, said = _reconcile_admission(workload, queue_lookup, config, now)
    if not workload.reserved:
        return ReconcileResult(brought, said)
    outcome = eviction_of_holder(brought, queue_lookup, config, now)
    return ReconcileResult(outcome.workload, (*said, *outcome.events), outcome.reconcile_after, outcome.eviction)


def _reconcile_finished(workload: Workload, retention: ObjectRetention, now: Time) -> ReconcileResult:
    """Delete a finished workload when its retention has elapsed."""
    done = workload.condition(conditions.FINISHED)
    if retention.after_finished is None or done is None:
        return ReconcileResult(workload)
    left = done.since + retention.after_finished - now
    if left > 0:
        return ReconcileResult(workload, reconcile_after=left)
    return ReconcileResult(
        None, (KueueEvent(workload.key, "Deleted", "Deleted finished workload due to elapsed retention"),)
    )


def _reconcile_gated(
    workload: Workload, queue_lookup: QueueLookup, config: KueueConfig, now: Time
) -> ReconcileResult | None:
    """Report that the admission-gated-by annotation appeared or was cleared."""
    said = workload.condition(conditions.QUOTA_RESERVED)
    was = said is not None and said.reason == "AdmissionGated"
    gated = is_gated(workload, config)
    if was == gated or not config.enabled("AdmissionGatedBy"):
        return None
    reason, message = inadmissible_reason(workload, queue_lookup, config)
    changed = conditions.set_pending_reason(workload, reason, message, now, granular=config.has_granular_reasons)
    event, text = GATE_EVENTS[gated]
    by = message.removeprefix("Admission is gated by: ")
    return ReconcileResult(changed, (KueueEvent(workload.key, event, text.format(by)),))


def _with_synced_checks(workload: Workload, queue_lookup: QueueLookup, now: Time) -> ReconcileResult | None:
    """Sync the admission checks with those that the ClusterQueue requires."""
    if queue_lookup.cluster_queue is None:
        return None
    names = required_checks(workload, queue_lookup.cluster_queue)
    if {check.name for check in workload.checks} == set(names):
        return None
    return ReconcileResult(replace(workload, checks=sync_checks(workload.checks, names, now)))


def _reconcile_admission(
    workload: Workload, queue_lookup: QueueLookup, config: KueueConfig, now: Time
) -> tuple[Workload, tuple[KueueEvent, ...]]:
    """Update the conditions of a workload that is not admitted, which may admit it."""
    granular = config.has_granular_reasons
    if not workload.reserved:
        reason, message = inadmissible_reason(workload, queue_lookup, config)
        if not message:
            return conditions.sync_admitted(workload, now, granular=granular), ()
        return conditions.set_pending_reason(workload, reason, message, now, granular=granular), ()
    changed = conditions.sync_admitted(workload, now, granular=granular)
    reserved = workload.condition(conditions.QUOTA_RESERVED)
    if not changed.admitted or reserved is None:
        return changed, ()
    return changed, (admitted_event(changed, now - reserved.since),)

"""Kueue's workload controller: takes the first action that is due for one Workload, one per call.

Kueue 0.19 pkg/controller/core/workload_controller.go, in the order of its Reconcile. `reconcile` first looks at
workloads that must not be scheduled yet (`active`, `inactive`: deactivation, backoff, stopped queues), then at those
that hold quota (`holding`): it evicts them for checks, stopped queues, slow pods or exceeded execution time. Whether
pods are ready, and how long they may take, follows jobframework generatePodsReadyCondition (waitForPodsReady).
"""

from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

from gpuconsole.model.clock import SECOND, Span, Time
from gpuconsole.model.events import KueueEvent
from gpuconsole.model.queues import StopPolicy
from gpuconsole.model.workloads import Condition, RequeueState, Workload
from gpuconsole.scheduling.kueue import conditions
from gpuconsole.scheduling.kueue.admissibility import QueueLookup, inadmissible_reason, is_gated, loses_quota
from gpuconsole.scheduling.kueue.apply_decisions import admitted_event, evicted_event
from gpuconsole.scheduling.kueue.conditions import (
    ADMITTED,
    REJECTED,
    RETRY,
    awaited,
    checks_for,
    count_retry,
    in_state,
    state_messages,
    synced,
    wait_until,
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


def with_readiness(workload: Workload, ready: bool, now: Time) -> Workload:
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
    if said.reason == Wait.RECOVERY and settings.recovery:
        return Wait.RECOVERY, max(0, said.since + settings.recovery - now)
    return None


class PlannedEviction(Struct, frozen=True):
    """Reason and message of an eviction; `cause` is the underlying cause."""

    reason: str
    message: str
    cause: str = ""


class ReconcileResult(Struct, frozen=True):
    """The Workload after a reconciliation, its events, and the time until the next one."""

    workload: Workload | None
    """None: it is deleted."""
    events: tuple[KueueEvent, ...] = ()
    again: Span = 0
    """Time until the next reconciliation; 0 = only after a change."""
    eviction: PlannedEviction | None = None
    """Eviction of `workload`; it is not marked yet, because its job must be stopped first. None = no eviction."""

    def marked(self, now: Time) -> Workload | None:
        """Return the Workload with the conditions of its eviction, if there is one."""
        if self.workload is None or self.eviction is None:
            return self.workload
        why = self.eviction
        return conditions.evict(self.workload, why.reason, why.message, now, cause=why.cause)


def evicted(workload: Workload, why: PlannedEviction) -> ReconcileResult:
    """Return the result for a workload to evict, with an event if it has an admission."""
    said = evicted_event(workload, why.reason, why.message, why.cause)
    return ReconcileResult(workload, (said,) if workload.admission is not None else (), eviction=why)


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
    if waits is None or waits.status or waits.reason not in _RESTART_REASONS:
        return None
    queue = outlook.local_queue if waits.reason == "LocalQueueStopped" else outlook.cluster_queue
    if queue is None or queue.stop_policy is not StopPolicy.NONE:
        return None
    return ReconcileResult(conditions.requeue(workload, *_RESTART_REASONS[waits.reason], now))


LIMIT_EXCEEDED = "RequeuingLimitExceeded"
TIME_EXCEEDED = "MaximumExecutionTimeExceeded"
"""Cause of a deactivation, like `LIMIT_EXCEEDED`."""


def holding(workload: Workload, outlook: QueueLookup, config: KueueConfig, now: Time) -> ReconcileResult:
    """Reconcile a workload that holds quota."""
    outcome = _checked(workload, now) or _stopped(workload, outlook, config, now)
    if outcome is not None:
        return outcome
    slow = _too_slow(workload, config, now)
    if slow is not None and slow.workload is not workload:
        return slow
    long = _too_long(workload, now)
    if long is not None and long.workload is not workload:
        return long
    spans = [found.again for found in (slow, long) if found is not None and found.again]
    return ReconcileResult(workload, again=min(spans, default=0))


def _checked(workload: Workload, now: Time) -> ReconcileResult | None:
    """Deactivate a workload with a rejected check; evict one with a check in state Retry."""
    if workload.is_true(conditions.EVICTED):
        return None
    rejected, again = in_state(workload, REJECTED), in_state(workload, RETRY)
    if rejected:
        why = state_messages(rejected, REJECTED)
        marked = target_deactivation(workload, conditions.ADMISSION_CHECK, why, now)
        said = KueueEvent(workload.key, "AdmissionCheckRejected", f"Deactivated due to {why}", warning=True)
        return ReconcileResult(marked, (said,))
    if again:
        return evicted(
            workload, PlannedEviction(conditions.ADMISSION_CHECK, f"Evicted due to {state_messages(again, RETRY)}")
        )
    return None


def _stopped(workload: Workload, outlook: QueueLookup, config: KueueConfig, now: Time) -> ReconcileResult | None:
    """Handle a stopped queue: HoldAndDrain evicts admitted workloads; others lose their quota."""
    if not workload.admitted:
        lost = loses_quota(workload, outlook, config)
        return (
            None if lost is None else ReconcileResult(conditions.refuse(workload, *lost, now, granular=config.granular))
        )
    if workload.is_true(conditions.EVICTED):
        return None
    for kind, found in (("LocalQueue", outlook.local_queue), ("ClusterQueue", outlook.cluster_queue)):
        if found is not None and found.stop_policy is StopPolicy.HOLD_AND_DRAIN:
            return evicted(workload, PlannedEviction(f"{kind}Stopped", f"The {kind} is stopped"))
    return None


def _too_slow(workload: Workload, config: KueueConfig, now: Time) -> ReconcileResult | None:
    """Evict a workload whose pods are not ready in time; deactivate it after too many retries."""
    settings = config.pods_ready
    waits = pods_ready_timeout(workload, settings, now)
    if settings is None or waits is None or not workload.active or workload.is_true(conditions.EVICTED):
        return None
    wait, left = waits
    if left:
        return ReconcileResult(workload, again=left)
    limit = settings.requeuing_strategy.backoff_limit_count
    if limit is not None and workload.requeue.count + 1 > limit:
        why = "exceeding the maximum number of re-queuing retries"
        return ReconcileResult(target_deactivation(workload, LIMIT_EXCEEDED, why, now))
    return _timed_out(workload, settings, wait, now)


def _timed_out(workload: Workload, settings: WaitForPodsReady, wait: str, now: Time) -> ReconcileResult:
    message = f"Exceeded the PodsReady timeout {workload.key}"
    counted = count_retry(workload, settings.requeuing_strategy, now)
    return evicted(counted, PlannedEviction(conditions.PODS_READY_TIMEOUT, message, wait))


def _too_long(workload: Workload, now: Time) -> ReconcileResult | None:
    """Deactivate a workload that used up its maximum execution time, earlier admissions included."""
    admitted = workload.condition(conditions.ADMITTED)
    if admitted is None or not admitted.status or workload.max_execution_time is None:
        return None
    left: Span = workload.max_execution_time - workload.past_execution - (now - admitted.since)
    if left > 0:
        return ReconcileResult(workload, again=left)
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


def reconcile(workload: Workload, outlook: QueueLookup, config: KueueConfig, now: Time) -> ReconcileResult:
    """Return the result of one reconciliation; its workload is the same object if no action is due."""
    if workload.finished:
        return _finished(workload, config.object_retention, now)
    outcome = (
        wait_for_checks(workload, now)
        or (active(workload, now) if workload.active else inactive(workload))
        or restarted(workload, outlook, now)
        or _gated(workload, outlook, config, now)
        or _checks_synced(workload, outlook, now)
    )
    if outcome is not None:
        return outcome
    if workload.admitted:
        return holding(workload, outlook, config, now)
    brought, said = _admission(workload, outlook, config, now)
    if not workload.reserved:
        return ReconcileResult(brought, said)
    outcome = holding(brought, outlook, config, now)
    return ReconcileResult(outcome.workload, (*said, *outcome.events), outcome.again, outcome.eviction)


def _finished(workload: Workload, retention: ObjectRetention, now: Time) -> ReconcileResult:
    """Delete a finished workload when its retention has elapsed."""
    done = workload.condition(conditions.FINISHED)
    if retention.after_finished is None or done is None:
        return ReconcileResult(workload)
    left = done.since + retention.after_finished - now
    if left > 0:
        return ReconcileResult(workload, again=left)
    return ReconcileResult(
        None, (KueueEvent(workload.key, "Deleted", "Deleted finished workload due to elapsed retention"),)
    )


def _gated(workload: Workload, outlook: QueueLookup, config: KueueConfig, now: Time) -> ReconcileResult | None:
    """Report that the admission-gated-by annotation appeared or was cleared."""
    said = workload.condition(conditions.QUOTA_RESERVED)
    was = said is not None and said.reason == "AdmissionGated"
    gated = is_gated(workload, config)
    if was == gated or not config.enabled("AdmissionGatedBy"):
        return None
    reason, message = inadmissible_reason(workload, outlook, config)
    changed = conditions.refuse(workload, reason, message, now, granular=config.granular)
    event, text = GATE_EVENTS[gated]
    by = message.removeprefix("Admission is gated by: ")
    return ReconcileResult(changed, (KueueEvent(workload.key, event, text.format(by)),))


def _checks_synced(workload: Workload, outlook: QueueLookup, now: Time) -> ReconcileResult | None:
    """Sync the admission checks with those that the ClusterQueue requires."""
    if outlook.cluster_queue is None:
        return None
    names = checks_for(workload, outlook.cluster_queue)
    if {check.name for check in workload.checks} == set(names):
        return None
    return ReconcileResult(replace(workload, checks=synced(workload.checks, names, now)))


def _admission(
    workload: Workload, outlook: QueueLookup, config: KueueConfig, now: Time
) -> tuple[Workload, tuple[KueueEvent, ...]]:
    """Update the conditions of a workload that is not admitted, which may admit it."""
    granular = config.granular
    if not workload.reserved:
        reason, message = inadmissible_reason(workload, outlook, config)
        if not message:
            return conditions.admit(workload, now, granular=granular), ()
        return conditions.refuse(workload, reason, message, now, granular=granular), ()
    changed = conditions.admit(workload, now, granular=granular)
    reserved = workload.condition(conditions.QUOTA_RESERVED)
    if not changed.admitted or reserved is None:
        return changed, ()
    return changed, (admitted_event(changed, now - reserved.since),)

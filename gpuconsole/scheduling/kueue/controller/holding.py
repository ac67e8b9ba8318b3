"""Reconciles workloads that hold quota: evicts them for checks, stopped queues, slow pods or exceeded execution time.

Kueue 0.19 workload controller: reconcileCheckBasedEviction, reconcileOn…QueueActiveState, reconcileNotReadyTimeout,
reconcileMaxExecutionTime.
"""

from msgspec.structs import replace

from gpuconsole.model.clock import SECOND, Span, Time
from gpuconsole.model.events import KueueEvent
from gpuconsole.model.queues import StopPolicy
from gpuconsole.model.workloads import Workload
from gpuconsole.scheduling.kueue import conditions
from gpuconsole.scheduling.kueue.admissibility import QueueLookup, loses_quota
from gpuconsole.scheduling.kueue.checks import REJECTED, RETRY, in_state, state_messages
from gpuconsole.scheduling.kueue.config import KueueConfig, WaitForPodsReady
from gpuconsole.scheduling.kueue.controller.pods_ready import pods_ready_timeout
from gpuconsole.scheduling.kueue.controller.reconcile_result import PlannedEviction, ReconcileResult, evicted
from gpuconsole.scheduling.kueue.controller.waiting import DEACTIVATION_TARGET, target_deactivation
from gpuconsole.scheduling.kueue.requeueing import count_retry

LIMIT_EXCEEDED = "RequeuingLimitExceeded"
TIME_EXCEEDED = "MaximumExecutionTimeExceeded"


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

"""Reconciles a Workload as Kueue's workload controller does: takes the first action that is due, one per call.

Kueue 0.19 pkg/controller/core/workload_controller.go: Reconcile.
"""

from msgspec.structs import replace

from gpuconsole.model.clock import Time
from gpuconsole.model.events import KueueEvent
from gpuconsole.model.workloads import Workload
from gpuconsole.scheduling.kueue import conditions
from gpuconsole.scheduling.kueue.admissibility import QueueLookup, inadmissible_reason, is_gated
from gpuconsole.scheduling.kueue.checks import checks_for, synced
from gpuconsole.scheduling.kueue.config import KueueConfig, ObjectRetention
from gpuconsole.scheduling.kueue.controller import waiting
from gpuconsole.scheduling.kueue.controller.holding import holding
from gpuconsole.scheduling.kueue.controller.reconcile_result import ReconcileResult
from gpuconsole.scheduling.kueue.recorder_events import admitted_event

GATE_EVENTS = {
    True: ("AdmissionGated", "Workload admission is gated by: {}"),
    False: ("AdmissionGateCleared", "Admission gate cleared, workload is now admissible"),
}


def reconcile(workload: Workload, outlook: QueueLookup, config: KueueConfig, now: Time) -> ReconcileResult:
    """Return the result of one reconciliation; its workload is the same object if no action is due."""
    if workload.finished:
        return _finished(workload, config.object_retention, now)
    outcome = (
        waiting.wait_for_checks(workload, now)
        or (waiting.active(workload, now) if workload.active else waiting.inactive(workload))
        or waiting.restarted(workload, outlook, now)
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

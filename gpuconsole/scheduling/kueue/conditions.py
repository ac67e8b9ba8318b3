"""How a Workload's conditions change through its life (Kueue 0.19 pkg/workload, pkg/workload/evict, jobframework).

Every function is pure: it takes a Workload and returns the changed one. Quota is held from `reserve` to `release`; an
eviction first marks the workload, its quota is free only when its pods are gone and the caller releases it.
"""

from msgspec.structs import replace

from gpuconsole.model.clock import Time
from gpuconsole.model.decisions import Rule
from gpuconsole.model.workloads import Admission, CheckState, Condition, Workload

QUOTA_RESERVED = "QuotaReserved"
ADMITTED = "Admitted"
EVICTED = "Evicted"
PREEMPTED = "Preempted"
REQUEUED = "Requeued"
FINISHED = "Finished"

_STAYS_READY = ("Preempted", "NodeFailures")
"""Evictions after which the workload may be tried again at once; after all others it waits to be requeued."""


def reserve(workload: Workload, admission: Admission, now: Time) -> Workload:
    """Give the workload its quota; what an earlier eviction left is marked as past (SetQuotaReservation)."""
    workload = replace(workload, admission=admission)
    message = f"Quota reserved in ClusterQueue {admission.cluster_queue}"
    workload = workload.with_condition(Condition(QUOTA_RESERVED, True, QUOTA_RESERVED, message, now))
    for kind in (EVICTED, PREEMPTED):
        past = workload.condition(kind)
        if past is not None and past.status:
            message = f"Previously: {past.message}"
            workload = workload.with_condition(Condition(kind, False, QUOTA_RESERVED, message, now))
    return workload


def admit(workload: Workload, now: Time) -> Workload:
    """Set Admitted to what reservation and checks say (SyncAdmittedCondition).

    Time spent admitted is added to `past_execution` when the workload stops being so.
    """
    reserved = workload.reserved
    ready = all(check.state == "Ready" for check in workload.checks)
    if workload.admitted == (reserved and ready):
        return workload
    past = workload.condition(ADMITTED)
    if past is not None and past.status:
        workload = replace(workload, past_execution=workload.past_execution + max(0, now - past.since))
    return workload.with_condition(_admitted(reserved, ready, now))


def _admitted(reserved: bool, ready: bool, now: Time) -> Condition:
    if reserved and ready:
        return Condition(ADMITTED, True, ADMITTED, "The workload is admitted", now)
    if reserved:
        return Condition(ADMITTED, False, "UnsatisfiedChecks", "The workload has not all checks ready", now)
    if ready:
        return Condition(ADMITTED, False, "NoReservation", "The workload has no reservation", now)
    message = "The workload has no reservation and not all checks ready"
    return Condition(ADMITTED, False, "NoReservationUnsatisfiedChecks", message, now)


def refuse(workload: Workload, reason: str, message: str, now: Time) -> Workload:
    """Say why the workload holds no quota; returns the same object if that is what it says already."""
    changed = workload.with_condition(Condition(QUOTA_RESERVED, False, reason, message, now))
    if changed.admission is not None:
        changed = replace(changed, admission=None)
    return admit(changed, now)


def evict(workload: Workload, reason: str, message: str, now: Time, rule: Rule | None = None) -> Workload:
    """Mark the workload as evicted; it holds its quota until `release`. `rule` says why a preemptor chose it."""
    if rule is not None:
        workload = workload.with_condition(Condition(PREEMPTED, True, rule.value, message, now))
    workload = workload.with_condition(Condition(EVICTED, True, reason, message, now))
    return replace(
        workload,
        checks=tuple(_reset(check) for check in workload.checks),
        unhealthy_nodes=(),
        evictions=workload.evictions + 1,
    )


def _reset(check: CheckState) -> CheckState:
    if check.state == "Pending":
        return check
    return replace(
        check,
        state="Pending",
        message=f"Reset to Pending after eviction. Previously: {check.state}",
        retry_count=check.retry_count + 1 if check.state == "Retry" else 0,
    )


def release(workload: Workload, now: Time) -> Workload:
    """Take the quota back from an evicted workload whose pods are gone.

    After a preemption or a node failure it may be tried again at once (Requeued=True), else it waits until somebody
    requeues it.
    """
    evicted = workload.condition(EVICTED)
    reason, message = (evicted.reason, evicted.message) if evicted is not None else ("Pending", "")
    workload = workload.with_condition(Condition(REQUEUED, reason in _STAYS_READY, reason, message, now))
    return refuse(workload, "Pending", message, now)


def requeue(workload: Workload, reason: str, message: str, now: Time) -> Workload:
    """Let a workload that waited after its eviction be tried again (Requeued=True)."""
    return workload.with_condition(Condition(REQUEUED, True, reason, message, now))


def finish(workload: Workload, reason: str, message: str, now: Time) -> Workload:
    """Mark the workload as done. The first finish stands."""
    if workload.finished:
        return workload
    return workload.with_condition(Condition(FINISHED, True, reason, message, now))

"""How a Workload's conditions change through its life (Kueue 0.19 pkg/workload, pkg/workload/evict, jobframework).

Every function is pure: it takes a Workload and returns the changed one. Quota is held from `reserve` to `release`; an
eviction first marks the workload, its quota is free only when its pods are gone and the caller releases it.
"""

from msgspec.structs import replace

from gpuconsole.model.clock import Time
from gpuconsole.model.decisions import Refuse, Rule
from gpuconsole.model.workloads import Admission, CheckState, Condition, PreemptionGate, Workload

QUOTA_RESERVED = "QuotaReserved"
ADMITTED = "Admitted"
EVICTED = "Evicted"
PREEMPTED = "Preempted"
REQUEUED = "Requeued"
FINISHED = "Finished"
BLOCKED_ON_GATES = "BlockedOnPreemptionGates"
FLAVOR_MIGRATION = "FlavorMigration"
"""Reason of the eviction of a variant that makes way for one on a more favorable flavor."""

_STAYS_READY = ("Preempted", "NodeFailures")
"""Evictions after which the workload may be tried again at once; after all others it waits to be requeued."""


def reserve(workload: Workload, admission: Admission, now: Time) -> Workload:
    """Give the workload its quota; what an earlier eviction left is marked as past (SetQuotaReservation)."""
    workload = replace(workload, admission=admission)
    message = f"Quota reserved in ClusterQueue {admission.cluster_queue}"
    workload = workload.with_condition(Condition(QUOTA_RESERVED, True, QUOTA_RESERVED, message, now))
    for kind in (EVICTED, PREEMPTED, BLOCKED_ON_GATES):
        past = workload.condition(kind)
        if past is not None and past.status:
            message = f"Previously: {past.message}"
            workload = workload.with_condition(Condition(kind, False, QUOTA_RESERVED, message, now))
    return workload


def admit(workload: Workload, now: Time, *, granular: bool = False) -> Workload:
    """Set Admitted to what reservation and checks say (SyncAdmittedCondition).

    Time spent admitted is added to `past_execution` when the workload stops being so. `granular`, the gate
    UnadmittedWorkloadsObservability: Admitted is False also for a workload that never was admitted.
    """
    reserved = workload.reserved
    ready = all(check.state == "Ready" for check in workload.checks)
    past = workload.condition(ADMITTED)
    if granular:
        if past is None and workload.condition(QUOTA_RESERVED) is None:
            return workload
    elif workload.admitted == (reserved and ready):
        return workload
    if past is not None and past.status and not (reserved and ready):
        workload = replace(workload, past_execution=workload.past_execution + max(0, now - past.since))
    return workload.with_condition(_admitted(reserved, ready, now, granular))


def _admitted(reserved: bool, ready: bool, now: Time, granular: bool) -> Condition:
    if reserved and ready:
        return Condition(ADMITTED, True, ADMITTED, "The workload is admitted", now)
    if reserved:
        reason = "UnsatisfiedAdmissionChecks" if granular else "UnsatisfiedChecks"
        return Condition(ADMITTED, False, reason, "The workload has not all checks ready", now)
    if ready or granular:
        return Condition(ADMITTED, False, "NoReservation", "The workload has no reservation", now)
    message = "The workload has no reservation and not all checks ready"
    return Condition(ADMITTED, False, "NoReservationUnsatisfiedChecks", message, now)


def refuse(workload: Workload, reason: str, message: str, now: Time, *, granular: bool = False) -> Workload:
    """Say why the workload holds no quota; returns the same object if that is what it says already."""
    changed = workload.with_condition(Condition(QUOTA_RESERVED, False, reason, message, now))
    if changed.admission is not None:
        changed = replace(changed, admission=None)
    return admit(changed, now, granular=granular)


def take_refusal(workload: Workload, refusal: Refuse, now: Time, *, granular: bool = False) -> Workload:
    """Write down a scheduler's refusal; one for closed preemption gates is a condition of its own, too."""
    workload = refuse(workload, refusal.reason, refusal.message, now, granular=granular)
    if refusal.requeue == "PreemptionGated":
        blocked = Condition(BLOCKED_ON_GATES, True, refusal.requeue, refusal.message, now)
        workload = workload.with_condition(blocked)
    return workload


def evict(workload: Workload, reason: str, message: str, now: Time, rule: Rule | None = None) -> Workload:
    """Mark the workload as evicted; it holds its quota until `release`. `rule` says why a preemptor chose it."""
    if rule is not None:
        workload = workload.with_condition(Condition(PREEMPTED, True, rule.value, message, now))
    workload = workload.with_condition(Condition(EVICTED, True, reason, message, now))
    if workload.is_true(BLOCKED_ON_GATES):
        workload = workload.with_condition(Condition(BLOCKED_ON_GATES, False, reason, message, now))
    return replace(
        workload,
        preemption_gates=tuple(_closed(gate, now) for gate in workload.preemption_gates),
        checks=tuple(_reset(check) for check in workload.checks),
        unhealthy_nodes=(),
        evictions=workload.evictions + 1,
    )


def _closed(gate: PreemptionGate, now: Time) -> PreemptionGate:
    return gate if gate.since is None else replace(gate, open=False, since=now)


def _reset(check: CheckState) -> CheckState:
    if check.state == "Pending":
        return check
    return replace(
        check,
        state="Pending",
        message=f"Reset to Pending after eviction. Previously: {check.state}",
        retry_count=check.retry_count + 1 if check.state == "Retry" else 0,
    )


def release(workload: Workload, now: Time, *, granular: bool = False) -> Workload:
    """Take the quota back from an evicted workload whose pods are gone.

    After a preemption or a node failure it may be tried again at once (Requeued=True), else it waits until somebody
    requeues it.
    """
    evicted = workload.condition(EVICTED)
    reason, message = (evicted.reason, evicted.message) if evicted is not None else ("Pending", "")
    workload = workload.with_condition(Condition(REQUEUED, reason in _STAYS_READY, reason, message, now))
    return refuse(workload, "PendingEvaluation" if granular else "Pending", message, now, granular=granular)


def requeue(workload: Workload, reason: str, message: str, now: Time) -> Workload:
    """Let a workload that waited after its eviction be tried again (Requeued=True)."""
    return workload.with_condition(Condition(REQUEUED, True, reason, message, now))


def finish(workload: Workload, reason: str, message: str, now: Time) -> Workload:
    """Mark the workload as done. The first finish stands."""
    if workload.finished:
        return workload
    return workload.with_condition(Condition(FINISHED, True, reason, message, now))

"""Transitions of a Workload's status: its conditions, admission checks and requeue state.

Every function is pure: it takes a Workload, or a part of its status, and returns the changed one. Quota is held from
`reserve_quota` to `release_quota`: an eviction only marks the workload, and its caller releases the quota when the pods
are gone. The time before which an evicted workload is not retried never moves back. Kueue adds a random jitter of up to
0.01% to a backoff; here it is exact.

Kueue 0.19 pkg/workload (workload.go, admissionchecks.go), pkg/workload/evict, pkg/workload/patching, pkg/util/wait, the
workload controller's syncAdmissionCheckConditions, and jobframework.
"""

import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

from gpuconsole.model.clock import SECOND, Span, Time
from gpuconsole.model.events import PreemptionRule, Refuse
from gpuconsole.model.labels import HOSTNAME
from gpuconsole.model.queues import ClusterQueue
from gpuconsole.model.workloads import (
    Admission,
    CheckState,
    Condition,
    EvictionCount,
    PodSetAssignment,
    PodSetNeeds,
    PreemptionGate,
    RequeueState,
    SchedulingStats,
    Workload,
)
from gpuconsole.scheduling.kueue.config import RequeuingStrategy

PENDING = "Pending"
"""State of an admission check, like the next three."""
READY = "Ready"
RETRY = "Retry"
REJECTED = "Rejected"


def required_checks(workload: Workload, queue: ClusterQueue) -> list[str]:
    """Return the sorted names of the checks that the queue requires for this workload.

    With an admission: those of its flavors; without: only those that apply to every flavor of the queue.
    """
    flavors = {flavor.name for group in queue.resource_groups for flavor in group.flavors}
    asked = {rule.name: set(rule.on_flavors) or flavors for rule in queue.checks}
    if workload.admission is None:
        return sorted(name for name, where in asked.items() if where >= flavors)
    given = _assigned_flavors(workload.admission)
    return sorted(name for name, where in asked.items() if where & given)


def _assigned_flavors(admission: Admission) -> set[str]:
    return {flavor for assignment in admission.pod_sets for flavor in assignment.flavors.values()}


def sync_checks(checks: Sequence[CheckState], names: Collection[str], now: Time) -> tuple[CheckState, ...]:
    """Return the states of these checks by name: known ones unchanged, new ones Pending, others dropped."""
    known = {check.name: check for check in checks}
    return tuple(known.get(name) or CheckState(name=name, since=now) for name in sorted(names))


def with_check(checks: Sequence[CheckState], new: CheckState, now: Time) -> tuple[CheckState, ...]:
    """Return the states after an update from a check's controller.

    The transition time changes only with the state; the retry count stays.
    """
    old = next((check for check in checks if check.name == new.name), None)
    if old is None:
        return (*checks, new if new.since is not None else replace(new, since=now))
    since = old.since if old.state == new.state else new.since if new.since is not None else now
    changed = replace(new, since=since, retry_count=old.retry_count)
    return tuple(changed if check.name == new.name else check for check in checks)


def reset_check(check: CheckState, now: Time) -> CheckState:
    """Reset a check to Pending after an eviction; the retry count grows by 1 after Retry and becomes 0 after
    other states.
    """
    if check.state == PENDING:
        return check
    return CheckState(
        name=check.name,
        message=f"Reset to Pending after eviction. Previously: {check.state}",
        retry_count=check.retry_count + 1 if check.state == RETRY else 0,
        requeue_after=check.requeue_after,
        since=now,
    )


def checks_in_state(workload: Workload, state: str) -> list[CheckState]:
    """Return the workload's checks in this state."""
    return [check for check in workload.checks if check.state == state]


def all_checks_ready(workload: Workload) -> bool:
    """True if every check of the workload is Ready."""
    return all(check.state == READY for check in workload.checks)


def state_messages(checks: Iterable[CheckState], state: str) -> str:
    """Return the list of checks in a state, with their messages, as conditions and events show it."""
    named = sorted(checks, key=lambda check: check.name)
    parts = [
        f"{json.dumps(check.name)} ({check.message})" if check.message else json.dumps(check.name) for check in named
    ]
    noun = "AdmissionCheck" if len(named) == 1 else "AdmissionChecks"
    return f"{noun} in {state} state: {'; '.join(parts)}"


def retry_at(workload: Workload) -> Time | None:
    """Return the time from which all checks in state Retry allow another attempt; None if none delays it
    (GetMaxRetryTime).
    """
    return max(
        (
            check.since + check.requeue_after * SECOND
            for check in checks_in_state(workload, RETRY)
            if check.requeue_after is not None and check.since is not None
        ),
        default=None,
    )


_BACKOFF_FACTOR = 2


def backoff(first: Span, maximum: Span, attempt: int, factor: int = _BACKOFF_FACTOR) -> Span:
    """Return the backoff after an attempt, counted from 1: `first`, then `factor` times the previous one, at most
    `maximum`.

    `first` itself may exceed `maximum`. The backoff before any attempt is 0.
    """
    if attempt <= 1:
        return first if attempt == 1 else 0
    span = first
    for _ in range(attempt - 1):
        if span >= maximum:
            break
        span *= factor
    return min(span, maximum)


def set_requeue_time(workload: Workload, moment: Time, *, count: bool = False) -> Workload:
    """Set the time before which the workload is not retried; a later time that is already set stays.

    `count` adds 1 to the number of retries. Returns the same object if nothing changes.
    """
    state = workload.requeue
    at = moment if state.at is None or state.at < moment else state.at
    changed = RequeueState(state.count + 1 if count else state.count, at)
    return workload if changed == state else replace(workload, requeue=changed)


def count_retry(workload: Workload, strategy: RequeuingStrategy, now: Time) -> Workload:
    """Count a PodsReady timeout: one more retry, after a backoff that grows with their number."""
    base, maximum = strategy.backoff_base_seconds * SECOND, strategy.backoff_max_seconds * SECOND
    return set_requeue_time(workload, now + backoff(base, maximum, workload.requeue.count + 1), count=True)


def retry_delay_end(workload: Workload, now: Time) -> Time | None:
    """Return the time until which checks in state Retry delay the workload (NeedsRequeueAtUpdate).

    None if that time is past, or not later than the requeue time that the workload already has.
    """
    moment = retry_at(workload)
    if moment is None or moment <= now:
        return None
    return moment if workload.requeue.at is None or workload.requeue.at < moment else None


POD_GROUP = "kueue.x-k8s.io/is-group-workload"
"""Annotation of a Workload: `true` if it represents a pod group."""


def needs_second_pass(workload: Workload) -> bool:
    """True if a workload with quota still needs a delayed topology assignment, or lost a node."""
    if workload.admission is None or workload.finished or workload.is_true(EVICTED) or not workload.reserved:
        return False
    ready = bool(workload.checks) and all_checks_ready(workload)
    return (ready and not workload.admitted and has_delayed_topology(workload)) or is_on_failed_node(workload)


def has_delayed_topology(workload: Workload) -> bool:
    """True while some pods get their topology assignment only after the admission checks."""
    admission = workload.admission
    return admission is not None and any(a.delayed == "Pending" and not a.topology for a in admission.pod_sets)


def is_on_failed_node(workload: Workload) -> bool:
    """True if an admitted workload is assigned to a failed node."""
    if not workload.unhealthy_nodes or not workload.admitted or workload.admission is None:
        return False
    return any(uses_failed_node(workload, assignment) for assignment in workload.admission.pod_sets)


def uses_failed_node(workload: Workload, assignment: PodSetAssignment) -> bool:
    """True if the pod set's topology assignment uses a failed node of the workload."""
    return any(domain.values[-1] in workload.unhealthy_nodes for domain in assignment.topology)


def is_assigned_to_node(assignment: PodSetAssignment, node: str) -> bool:
    """True if the assignment puts pods on a node and its lowest level is nodes."""
    return any(node_of(assignment.levels, domain.values) == node and domain.count for domain in assignment.topology)


def node_of(levels: Sequence[str], values: Sequence[str]) -> str | None:
    """Return the node of a domain if the lowest level is nodes; None otherwise."""
    return values[-1] if levels and levels[-1] == HOSTNAME else None


def used_nodes(workload: Workload) -> Iterator[str]:
    """Yield the nodes in an admitted workload's topology assignment, if its levels include nodes; each once."""
    if workload.admission is None or not workload.admitted:
        return
    seen: dict[str, None] = {}
    for assignment in workload.admission.pod_sets:
        if assignment.levels and assignment.levels[-1] == HOSTNAME:
            seen.update(dict.fromkeys(domain.values[-1] for domain in assignment.topology if domain.count))
    yield from seen


def is_owned_by_single_pod(workload: Workload) -> bool:
    """True if the workload represents a single pod, not a pod group: its pod cannot be replaced on another node."""
    return workload.owner.startswith("Pod/") and workload.annotations.get(POD_GROUP) != "true"


QUOTA_RESERVED = "QuotaReserved"
"""Type of a condition, like those that follow; `INADMISSIBLE` is a reason."""
ADMITTED = "Admitted"
EVICTED = "Evicted"
PREEMPTED = "Preempted"
REQUEUED = "Requeued"
INADMISSIBLE = "Inadmissible"
FINISHED = "Finished"
BLOCKED_ON_GATES = "BlockedOnPreemptionGates"
NODE_FAILURES = "NodeFailures"
"""Reason of an eviction, like those that follow."""
DEACTIVATED = "Deactivated"
PODS_READY_TIMEOUT = "PodsReadyTimeout"
ADMISSION_CHECK = "AdmissionCheck"
FLAVOR_MIGRATION = "FlavorMigration"
"""Eviction reason of a variant that is replaced by one on a more preferred flavor."""

TOPOLOGY_PENDING = "PendingDelayedTopologyRequests"
"""Reason of Admitted=False while only topology assignments are missing."""
_RETRIED_AT_ONCE = (PREEMPTED, NODE_FAILURES)
"""Eviction reasons after which the workload is retried at once; after all others it waits for Requeued=True."""
RETRIED_AFTER_BACKOFF = (ADMISSION_CHECK, PODS_READY_TIMEOUT)
"""Eviction reasons after which the workload waits for its backoff."""


class AdmissionStatus(StrEnum):
    """Admission status of a workload, in Kueue's words."""

    PENDING = "pending"
    QUOTA_RESERVED = "quotaReserved"
    ADMITTED = "admitted"
    FINISHED = "finished"


def admission_status(workload: Workload) -> AdmissionStatus:
    """Return the admission status that follows from the workload's conditions."""
    if workload.finished:
        return AdmissionStatus.FINISHED
    if workload.admitted:
        return AdmissionStatus.ADMITTED
    return AdmissionStatus.QUOTA_RESERVED if workload.reserved else AdmissionStatus.PENDING


class Unadmitted(Struct, frozen=True):
    """Reason for which a workload is not admitted, as Kueue's metric unadmitted_workloads counts it."""

    reason: str
    cause: str = ""
    """Reason of QuotaReserved=False, PendingEvaluation without the condition; empty if quota is reserved."""


def unadmitted_reason(workload: Workload) -> Unadmitted | None:
    """Return the reason for which a workload is not admitted; None if it is admitted, finished or a variant."""
    if workload.admitted or workload.finished or workload.parent:
        return None
    admitted, reserved = workload.condition(ADMITTED), workload.condition(QUOTA_RESERVED)
    reason = admitted.reason if admitted is not None else "NoReservation"
    if reserved is None:
        return Unadmitted(reason, "PendingEvaluation")
    return Unadmitted(reason, "" if reserved.status else reserved.reason)


def lost_quota(before: AdmissionStatus, after: AdmissionStatus) -> bool:
    """True if the change from `before` to `after` is that a workload lost its quota and is pending again."""
    return before in (AdmissionStatus.QUOTA_RESERVED, AdmissionStatus.ADMITTED) and after is AdmissionStatus.PENDING


def reserve_quota(workload: Workload, admission: Admission, now: Time) -> Workload:
    """Reserve quota for the workload and reset the conditions of an earlier eviction (SetQuotaReservation)."""
    workload = replace(workload, admission=admission, unhealthy_nodes=(), resource_requests=())
    message = f"Quota reserved in ClusterQueue {admission.cluster_queue}"
    workload = workload.with_condition(Condition(QUOTA_RESERVED, True, QUOTA_RESERVED, message, now))
    for kind in (EVICTED, PREEMPTED, BLOCKED_ON_GATES):
        past = workload.condition(kind)
        if past is not None and past.status:
            message = f"Previously: {past.message}"
            workload = workload.with_condition(Condition(kind, False, QUOTA_RESERVED, message, now))
    return workload


def sync_admitted(workload: Workload, now: Time, *, granular: bool = False) -> Workload:
    """Set the Admitted condition from the reservation and the checks (SyncAdmittedCondition).

    When the workload stops being admitted, the time it was is added to `past_execution`, in whole seconds. With
    `granular` (gate UnadmittedWorkloadsObservability) a workload that never was admitted gets Admitted=False, too.
    """
    reserved = workload.reserved
    ready = all_checks_ready(workload)
    placed = not has_delayed_topology(workload)
    past = workload.condition(ADMITTED)
    if granular:
        if past is None and workload.condition(QUOTA_RESERVED) is None:
            return workload
    elif workload.admitted == (reserved and ready and placed):
        return workload
    if past is not None and past.status and not (reserved and ready and placed):
        stay = max(0, now - past.since) // SECOND * SECOND
        workload = replace(workload, past_execution=workload.past_execution + stay)
    return workload.with_condition(_admitted_condition(reserved, ready, placed, now, granular))


def _admitted_condition(reserved: bool, ready: bool, placed: bool, now: Time, granular: bool) -> Condition:
    if reserved and ready and not placed:
        message = "There are pending delayed topology requests"
        return Condition(ADMITTED, False, TOPOLOGY_PENDING, message, now)
    if reserved and ready:
        return Condition(ADMITTED, True, ADMITTED, "The workload is admitted", now)
    if reserved:
        reason = "UnsatisfiedAdmissionChecks" if granular else "UnsatisfiedChecks"
        return Condition(ADMITTED, False, reason, "The workload has not all checks ready", now)
    if ready or granular:
        return Condition(ADMITTED, False, "NoReservation", "The workload has no reservation", now)
    message = "The workload has no reservation and not all checks ready"
    return Condition(ADMITTED, False, "NoReservationUnsatisfiedChecks", message, now)


def set_pending_reason(workload: Workload, reason: str, message: str, now: Time, *, granular: bool = False) -> Workload:
    """Set QuotaReserved to False with a reason; returns the same object if nothing changes."""
    said = workload.condition(QUOTA_RESERVED)
    same = said is not None and not said.status and said.reason == reason and said.message == message
    if same and workload.admission is None and not (granular or workload.admitted):
        # Most refusals repeat the last one.
        return workload
    changed = workload.with_condition(Condition(QUOTA_RESERVED, False, reason, message, now))
    if changed.admission is not None:
        changed = replace(changed, admission=None)
    return sync_admitted(changed, now, granular=granular)


def apply_refusal(workload: Workload, refusal: Refuse, now: Time, *, granular: bool = False) -> Workload:
    """Apply a scheduler's refusal; closed preemption gates also set a condition of their own."""
    workload = with_resource_requests(
        set_pending_reason(workload, refusal.reason, refusal.message, now, granular=granular), refusal.requests
    )
    if refusal.gated:
        workload = workload.with_condition(Condition(BLOCKED_ON_GATES, True, "PreemptionGated", refusal.message, now))
    if refusal.requeued:
        workload = workload.with_condition(Condition(REQUEUED, False, INADMISSIBLE, refusal.requeued, now))
    return workload


def with_resource_requests(workload: Workload, requests: tuple[PodSetNeeds, ...]) -> Workload:
    """Set status.resourceRequests to the scheduler's requests; same object if unchanged (PropagateResourceRequests)."""
    return replace(workload, resource_requests=requests) if workload.resource_requests != requests else workload


def is_on_hold(workload: Workload) -> bool:
    """True if the workload's job needs no quota now, such as a StatefulSet without replicas."""
    refused = workload.condition(QUOTA_RESERVED)
    return refused is not None and not refused.status and refused.reason == "OnHold"


def mark_evicted(
    workload: Workload, reason: str, message: str, now: Time, rule: PreemptionRule | None = None, *, cause: str = ""
) -> Workload:
    """Mark the workload as evicted; it holds its quota until `release_quota` (Kueue 0.19 pkg/workload/evict).

    Its checks are reset and its preemption gates closed. `rule` is the rule by which it was preempted; None for other
    evictions. `cause` is the underlying cause; for a deactivation it becomes part of the condition's reason.
    """
    if rule is not None:
        workload = workload.with_condition(Condition(PREEMPTED, True, rule.value, message, now))
    shown = f"{reason}DueTo{cause}" if reason == DEACTIVATED and cause else reason
    workload = workload.with_condition(Condition(EVICTED, True, shown, message, now))
    if workload.is_true(BLOCKED_ON_GATES):
        workload = workload.with_condition(Condition(BLOCKED_ON_GATES, False, shown, message, now))
    return replace(
        workload,
        preemption_gates=tuple(_closed_gate(gate, now) for gate in workload.preemption_gates),
        checks=tuple(reset_check(check, now) for check in workload.checks),
        cluster="",
        nominated_clusters=(),
        unhealthy_nodes=(),
        scheduling_stats=_with_eviction(workload.scheduling_stats, reason, cause),
    )


def _closed_gate(gate: PreemptionGate, now: Time) -> PreemptionGate:
    return gate if gate.since is None else replace(gate, open=False, since=now)


def _with_eviction(stats: SchedulingStats, reason: str, cause: str) -> SchedulingStats:
    """The statistics with one more eviction of this reason and cause."""
    known = stats.evictions
    if not any((one.reason, one.underlying_cause) == (reason, cause) for one in known):
        known = (*known, EvictionCount(reason=reason, underlying_cause=cause))
    return SchedulingStats(
        tuple(
            replace(one, count=one.count + 1) if (one.reason, one.underlying_cause) == (reason, cause) else one
            for one in known
        )
    )


def eviction_condition(workload: Workload, reason: str) -> Condition | None:
    """Return the workload's Evicted condition if it is true with this reason."""
    evicted = workload.condition(EVICTED)
    return evicted if evicted is not None and evicted.status and evicted.reason == reason else None


def is_deactivated(workload: Workload) -> bool:
    """True if the workload is evicted because it was deactivated."""
    evicted = workload.condition(EVICTED)
    return evicted is not None and evicted.status and evicted.reason.startswith(DEACTIVATED)


def release_quota(workload: Workload, now: Time, *, granular: bool = False) -> Workload:
    """Release the quota of an evicted workload whose pods are gone.

    After a preemption or a node failure it is retried at once (Requeued=True), otherwise it waits until it is requeued.
    """
    evicted = workload.condition(EVICTED)
    reason, message = (evicted.reason, evicted.message) if evicted is not None else ("Pending", "")
    workload = workload.with_condition(Condition(REQUEUED, reason in _RETRIED_AT_ONCE, reason, message, now))
    return set_pending_reason(workload, "PendingEvaluation" if granular else "Pending", message, now, granular=granular)


def eviction_latency(before: Workload, after: Workload, now: Time) -> tuple[str, str, Span] | None:
    """Return (ClusterQueue, reason, time since eviction) of an eviction whose quota this change released, else None."""
    evicted = after.condition(EVICTED)
    if not lost_quota(admission_status(before), admission_status(after)) or evicted is None or not evicted.status:
        return None
    queue = before.cluster_queue
    return (queue, evicted.reason, now - evicted.since) if queue else None


def mark_requeued(workload: Workload, reason: str, message: str, now: Time) -> Workload:
    """Requeue an evicted workload (Requeued=True)."""
    return workload.with_condition(Condition(REQUEUED, True, reason, message, now))


def mark_reactivated(workload: Workload, now: Time) -> Workload:
    """Requeue a workload that was deactivated and is active again."""
    return mark_requeued(workload, "Reactivated", "The workload was reactivated", now)


def end_backoff(workload: Workload, now: Time) -> Workload:
    """End the backoff of a workload: it is requeued if it waited for that."""
    rested = replace(workload, requeue=replace(workload.requeue, at=None))
    waits = rested.condition(REQUEUED)
    if waits is None or waits.status or waits.reason not in RETRIED_AFTER_BACKOFF:
        return rested
    return mark_requeued(rested, "BackoffFinished", "The workload backoff was finished", now)


def mark_finished(workload: Workload, reason: str, message: str, now: Time) -> Workload:
    """Mark the workload as finished; a second finish changes nothing."""
    if workload.finished:
        return workload
    return workload.with_condition(Condition(FINISHED, True, reason, message, now))

"""Admission checks of a workload: their states, and the requeue state after an eviction by one of them.

Admission checks: lists the checks that a workload must pass, and combines their states.

Kueue 0.19 pkg/workload/admissionchecks.go, pkg/workload/workload.go (AdmissionChecksForWorkload), the workload
controller's syncAdmissionCheckConditions, and pkg/workload/patching (SetAdmissionCheckState).

The requeue state of evicted workloads: the number of retries, and the time before which they are not retried.

The time never moves back. Kueue 0.19 pkg/workload/workload.go (SetRequeueState, UpdateRequeueState), pkg/util/wait
(Backoff). Kueue adds a random jitter of up to 0.01%; here a backoff is exact.
"""

import json
from collections.abc import Collection, Iterable, Sequence

from msgspec.structs import replace

from gpuconsole.model.clock import SECOND, Span, Time
from gpuconsole.model.queues import ClusterQueue
from gpuconsole.model.workloads import Admission, CheckState, RequeueState, Workload
from gpuconsole.scheduling.kueue.config import RequeuingStrategy

PENDING = "Pending"
READY = "Ready"
RETRY = "Retry"
REJECTED = "Rejected"


def checks_for(workload: Workload, queue: ClusterQueue) -> list[str]:
    """Return the sorted names of the checks that the queue requires for this workload.

    With an admission: those of its flavors; without: only those that apply to every flavor of the queue.
    """
    flavors = {flavor.name for group in queue.resource_groups for flavor in group.flavors}
    asked = {rule.name: set(rule.on_flavors) or flavors for rule in queue.checks}
    if workload.admission is None:
        return sorted(name for name, where in asked.items() if where >= flavors)
    given = _flavors(workload.admission)
    return sorted(name for name, where in asked.items() if where & given)


def _flavors(admission: Admission) -> set[str]:
    return {flavor for assignment in admission.pod_sets for flavor in assignment.flavors.values()}


def synced(checks: Sequence[CheckState], names: Collection[str], now: Time) -> tuple[CheckState, ...]:
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


def reset(check: CheckState, now: Time) -> CheckState:
    """Reset a check to Pending after an eviction; the retry count grows after Retry, and starts again after other
    states.
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


def in_state(workload: Workload, state: str) -> list[CheckState]:
    """Return the workload's checks in this state."""
    return [check for check in workload.checks if check.state == state]


def all_ready(workload: Workload) -> bool:
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
            for check in in_state(workload, RETRY)
            if check.requeue_after is not None and check.since is not None
        ),
        default=None,
    )


_FACTOR = 2


def backoff(first: Span, most: Span, attempt: int, factor: int = _FACTOR) -> Span:
    """Return the backoff after an attempt, counted from 1: `first`, then `factor` times the previous one, at most
    `most`.

    `first` itself may exceed `most`. The backoff before any attempt is 0.
    """
    if attempt <= 1:
        return first if attempt == 1 else 0
    span = first
    for _ in range(attempt - 1):
        if span >= most:
            break
        span *= factor
    return min(span, most)


def wait_until(workload: Workload, moment: Time, *, count: bool = False) -> Workload:
    """Set the time before which the workload is not retried; a later time that is already set stays.

    With `count` it is one more retry. Returns the same object if nothing changes.
    """
    state = workload.requeue
    at = moment if state.at is None or state.at < moment else state.at
    changed = RequeueState(state.count + 1 if count else state.count, at)
    return workload if changed == state else replace(workload, requeue=changed)


def count_retry(workload: Workload, strategy: RequeuingStrategy, now: Time) -> Workload:
    """Count a PodsReady timeout: one more retry, after a backoff that grows with their number."""
    base, most = strategy.backoff_base_seconds * SECOND, strategy.backoff_max_seconds * SECOND
    return wait_until(workload, now + backoff(base, most, workload.requeue.count + 1), count=True)


def awaited(workload: Workload, now: Time) -> Time | None:
    """Return the time until which checks in state Retry delay the workload, if it is later than its present one
    (NeedsRequeueAtUpdate).
    """
    moment = retry_at(workload)
    if moment is None or moment <= now:
        return None
    return moment if workload.requeue.at is None or workload.requeue.at < moment else None

"""Admission checks: lists the checks that a workload must pass, and combines their states.

Kueue 0.19 pkg/workload/admissionchecks.go, pkg/workload/workload.go (AdmissionChecksForWorkload), the workload
controller's syncAdmissionCheckConditions, and pkg/workload/patching (SetAdmissionCheckState).
"""

import json
from collections.abc import Collection, Iterable, Sequence

from msgspec.structs import replace

from gpuconsole.model.clock import SECOND, Time
from gpuconsole.model.queues import ClusterQueue
from gpuconsole.model.workloads import Admission, CheckState, Workload

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

"""What each action does to a Volcano Job in each of its phases."""

from typing import Any

import pytest

from gpuconsole.model.cluster import PodPhase
from gpuconsole.model.volcano import JobAction, TaskSpec, VolcanoPhase, VolcanoStatus
from gpuconsole.scheduling.volcano.jobs.states import (
    FINISHED_PHASES,
    NO_PHASES,
    ControllerCall,
    PodTarget,
    TargetType,
    plan_action,
)
from tests.support.volcano_jobs import job

SYNC, KILL, PART = ControllerCall.SYNC, ControllerCall.KILL, ControllerCall.KILL_TARGET
P, A = VolcanoPhase, JobAction
SILENT = VolcanoStatus()
BUSY = VolcanoStatus(running=2)
BEGIN, RUN = (P.NEW, P.PENDING), (P.RUNNING,)

# Phases, action → what is done, which pods are retained, the phase afterwards (none is alive, one is).
TABLE = [
    ((*BEGIN, *RUN), A.RESTART_JOB, KILL, NO_PHASES, P.RESTARTING, P.RESTARTING),
    ((*BEGIN, *RUN), A.RESTART_TASK, PART, NO_PHASES, P.RESTARTING, P.RESTARTING),
    ((*BEGIN, *RUN), A.RESTART_POD, PART, NO_PHASES, P.RESTARTING, P.RESTARTING),
    ((*BEGIN, *RUN), A.RESTART_PARTITION, PART, NO_PHASES, P.RESTARTING, P.RESTARTING),
    ((*BEGIN, *RUN), A.ABORT_JOB, KILL, FINISHED_PHASES, P.ABORTING, P.ABORTING),
    ((*BEGIN, *RUN), A.TERMINATE_JOB, KILL, FINISHED_PHASES, P.TERMINATING, P.TERMINATING),
    ((*BEGIN, *RUN), A.COMPLETE_JOB, KILL, FINISHED_PHASES, P.COMPLETING, P.COMPLETING),
    (BEGIN, A.SYNC_JOB, SYNC, NO_PHASES, None, P.RUNNING),
    (BEGIN, A.RESUME_JOB, SYNC, NO_PHASES, None, P.RUNNING),
    (RUN, A.SYNC_JOB, SYNC, NO_PHASES, None, None),
    ((P.RESTARTING,), A.SYNC_JOB, SYNC, NO_PHASES, P.PENDING, P.PENDING),
    ((P.RESTARTING,), A.RESTART_TASK, PART, NO_PHASES, P.PENDING, P.PENDING),
    ((P.RESTARTING,), A.ABORT_JOB, KILL, NO_PHASES, P.PENDING, P.PENDING),
    ((P.ABORTING,), A.SYNC_JOB, KILL, FINISHED_PHASES, P.ABORTED, None),
    ((P.ABORTING,), A.RESUME_JOB, KILL, FINISHED_PHASES, P.RESTARTING, P.RESTARTING),
    ((P.ABORTED,), A.SYNC_JOB, KILL, FINISHED_PHASES, None, None),
    ((P.ABORTED,), A.RESUME_JOB, KILL, FINISHED_PHASES, P.RESTARTING, P.RESTARTING),
    ((P.TERMINATING,), A.RESTART_JOB, KILL, FINISHED_PHASES, P.TERMINATED, None),
    ((P.COMPLETING,), A.RESTART_JOB, KILL, FINISHED_PHASES, P.COMPLETED, None),
    ((P.COMPLETED, P.FAILED, P.TERMINATED), A.RESTART_JOB, KILL, FINISHED_PHASES, None, None),
]


@pytest.mark.parametrize(
    ("phase", "row"),
    [(phase, row) for row in TABLE for phase in row[0]],
    ids=[f"{row[1]} while {phase or 'new'}" for row in TABLE for phase in row[0]],
)
def test_an_action_does_in_each_phase(
    phase: VolcanoPhase, row: tuple[object, JobAction, ControllerCall, frozenset[PodPhase], VolcanoPhase, VolcanoPhase]
) -> None:
    _, action, call, retain, if_gone, if_busy = row
    one = job(("w", 2), status=VolcanoStatus(phase=phase))
    target = PodTarget(TargetType.TASK, "w")
    found = plan_action(one, action, target)
    assert (found.call, found.retain) == (call, retain)
    assert found.target == (target if call is PART else None)
    for status, after in ((SILENT, if_gone), (BUSY, if_busy)):
        before = VolcanoStatus(phase=phase, running=status.running)
        assert found.update(one, before).phase is (after or phase)


def test_a_restart_counts_as_a_retry() -> None:
    one = job(("w", 2))
    assert plan_action(one, A.RESTART_JOB).update(one, VolcanoStatus(retry_count=1)).retry_count == 2
    assert plan_action(one, A.ABORT_JOB).update(one, VolcanoStatus(retry_count=1)).retry_count == 1


@pytest.mark.parametrize(
    ("retries", "leaving", "after"),
    [(3, 0, P.FAILED), (2, 0, P.PENDING), (2, 1, P.PENDING), (2, 2, P.RESTARTING)],
    ids=["no retries left", "all gone", "enough gone", "too many leave yet"],
)
def test_a_restarting_job_waits_for_its_pods_to_leave(retries: int, leaving: int, after: VolcanoPhase) -> None:
    status = VolcanoStatus(phase=P.RESTARTING, retry_count=retries, terminating=leaving, min_available=2)
    one = job(("w", 3), min_available=2, status=status)
    assert plan_action(one, A.SYNC_JOB).update(one, status).phase is after


def counts(succeeded: int = 0, failed: int = 0, pending: int = 0, **tasks: int) -> VolcanoStatus:
    by_task = {name: {"Succeeded": count} for name, count in tasks.items()}
    return VolcanoStatus(phase=P.RUNNING, succeeded=succeeded, failed=failed, pending=pending, tasks=by_task)


TWO = (("a", 2, TaskSpec(min_available=1)), ("b", 2, TaskSpec(min_available=2)))


@pytest.mark.parametrize(
    ("spec", "status", "after"),
    [
        ({"min_available": 4}, counts(4, a=2, b=2), P.COMPLETED),
        ({"min_available": 3}, counts(3, 1, a=1, b=2), P.COMPLETED),
        ({"min_available": 3}, counts(3, 1, a=2, b=1), P.FAILED),
        ({"min_available": 2}, counts(2, 2, a=2, b=0), P.COMPLETED),
        ({"min_available": 2}, counts(1, 3, a=1, b=0), P.FAILED),
        ({"min_available": 4, "min_success": 1}, counts(1), P.COMPLETED),
        ({"min_available": 2, "min_success": 4}, counts(3, 1, a=1, b=2), P.FAILED),
        ({"min_available": 3}, counts(pending=2), P.PENDING),
        ({"min_available": 3}, counts(pending=1), P.RUNNING),
    ],
    ids=[
        "all succeeded",
        "each task has enough",
        "one task has too few",
        "tasks are not asked where the job needs less than they do",
        "too few succeeded",
        "enough have succeeded already",
        "fewer than must succeed",
        "too few run",
        "enough run",
    ],
)
def test_a_running_job_ends_by_what_succeeded(spec: dict[str, Any], status: VolcanoStatus, after: VolcanoPhase) -> None:
    one = job(*TWO, status=status, **spec)
    assert plan_action(one, A.SYNC_JOB).update(one, status).phase is after


def test_a_job_that_was_scaled_to_nothing_stays_what_it_is() -> None:
    one = job(("w", 0), min_available=0)
    assert plan_action(one, A.SYNC_JOB).update(one, counts()).phase is P.RUNNING

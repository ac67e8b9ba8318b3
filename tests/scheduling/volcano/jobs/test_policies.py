"""Which action follows from an event: commands, tasks before jobs, exit codes, timeouts, old pods."""

import pytest
from msgspec.structs import replace

from gpuconsole.model.clock import SECOND
from gpuconsole.model.volcano import JobAction, JobEvent, LifecyclePolicy, TaskSpec, VolcanoPhase, VolcanoStatus
from gpuconsole.scheduling.volcano.jobs.states import (
    DelayedAction,
    DelayedActions,
    JobRequest,
    PodTarget,
    PolicyAction,
    TargetType,
    add_delayed,
    cancel_obsolete,
    cancel_replaced,
    choose_action,
    event_of_change,
    request_of,
    target_of,
)
from tests.support.volcano_jobs import job, pods

A, E = JobAction, JobEvent


def policy(action: JobAction, *events: JobEvent, code: int | None = None, after: int | None = None) -> LifecyclePolicy:
    return LifecyclePolicy(
        action=action, events=events, exit_code=code, timeout=None if after is None else after * SECOND
    )


MINE = TaskSpec(policies=(policy(A.RESTART_TASK, E.POD_FAILED, after=30), policy(A.ABORT_JOB, code=137)))
JOB = job(
    ("w", 2, MINE),
    ("other", 1),
    policies=(
        policy(A.RESTART_JOB, E.POD_FAILED, E.POD_EVICTED),
        policy(A.COMPLETE_JOB, E.TASK_COMPLETED),
        policy(A.TERMINATE_JOB, code=3),
        policy(A.RESTART_POD, E.POD_PENDING),
    ),
    status=VolcanoStatus(phase=VolcanoPhase.RUNNING, version=2),
)


def about(
    event: JobEvent | None, task: str = "other", *, code: int = 0, uid: str = "uid", version: int = 2
) -> JobRequest:
    return JobRequest(job=JOB.key, job_uid=uid, task=task, event=event, exit_code=code, version=version)


EVENTS = {
    "a command's own action": (JobRequest(job=JOB.key, action=A.ABORT_JOB), PolicyAction(A.ABORT_JOB)),
    "the task's policy comes before the job's": (
        about(E.POD_FAILED, "w"),
        PolicyAction(A.RESTART_TASK, 30 * SECOND),
    ),
    "the job's where the task has none": (about(E.POD_FAILED), PolicyAction(A.RESTART_JOB)),
    "the job's where the task's do not fit": (about(E.POD_EVICTED, "w"), PolicyAction(A.RESTART_JOB)),
    "an exit code of the task": (about(E.OUT_OF_SYNC, "w", code=137), PolicyAction()),
    "an exit code of the task with its event": (about(E.TASK_FAILED, "w", code=137), PolicyAction(A.ABORT_JOB)),
    "an exit code of the job": (about(E.TASK_FAILED, code=3), PolicyAction(A.TERMINATE_JOB)),
    "a task is completed": (about(E.TASK_COMPLETED), PolicyAction(A.COMPLETE_JOB)),
    "a pending pod needs a timeout": (about(E.POD_PENDING), PolicyAction()),
    "a pod that runs is nothing to act on": (about(E.POD_RUNNING), PolicyAction()),
    "no event": (about(None), PolicyAction()),
    "another job of the same name": (about(E.POD_FAILED, uid="old"), PolicyAction()),
    "a pod from before the job was killed": (about(E.POD_FAILED, version=1), PolicyAction()),
}


@pytest.mark.parametrize(("asked", "wanted"), EVENTS.values(), ids=EVENTS)
def test_an_event_is_followed_by(asked: JobRequest, wanted: PolicyAction) -> None:
    assert choose_action(JOB, asked) == wanted


def test_any_event_fits_the_star_but_a_pending_pod_only_with_a_timeout() -> None:
    star = job(("w", 1), policies=(policy(A.RESTART_JOB, E.ANY),))
    late = job(("w", 1), policies=(policy(A.RESTART_JOB, E.ANY, after=5),))
    pending = JobRequest(job=star.key, event=E.POD_PENDING)
    assert choose_action(star, JobRequest(job=star.key, event=E.UNKNOWN)) == PolicyAction(A.RESTART_JOB)
    assert (choose_action(star, pending), choose_action(late, pending)) == (
        PolicyAction(),
        PolicyAction(A.RESTART_JOB, 5 * SECOND),
    )


def test_an_action_is_about_what_its_event_was_about() -> None:
    asked = JobRequest(job="j", task="w", pod="p", partition="1")
    assert target_of(A.RESTART_TASK, asked) == PodTarget(TargetType.TASK, "w")
    assert target_of(A.RESTART_POD, asked) == PodTarget(TargetType.POD, "w", "p")
    assert target_of(A.RESTART_PARTITION, asked) == PodTarget(TargetType.PARTITION, "w", "p", "1")
    assert target_of(A.RESTART_JOB, asked) is None


def waiting(pod: str, action: JobAction, event: JobEvent = E.POD_FAILED, task: str = "w") -> DelayedAction:
    return DelayedAction(
        request=JobRequest(job="j", task=task, pod=pod, pod_uid="1", event=event), action=action, due=9
    )


def those(*delayed: DelayedAction) -> DelayedActions:
    return {one.request.pod: one for one in delayed}


def test_the_same_action_for_a_pod_keeps_its_first_deadline() -> None:
    first, again = (
        waiting("p", A.RESTART_JOB),
        DelayedAction(request=JobRequest(job="j", pod="p"), action=A.RESTART_JOB, due=99),
    )
    assert add_delayed(those(first), again) == those(first)
    assert add_delayed(those(first), waiting("p", A.ABORT_JOB)) == those(waiting("p", A.ABORT_JOB))


@pytest.mark.parametrize(
    ("event", "by", "left"),
    [
        (E.POD_FAILED, E.POD_RUNNING, False),
        (E.POD_EVICTED, E.POD_RUNNING, False),
        (E.POD_FAILED, E.POD_EVICTED, True),
        (E.POD_PENDING, E.POD_RUNNING, False),
        (E.POD_PENDING, E.POD_PENDING, True),
        (E.POD_PENDING, E.TASK_COMPLETED, True),
    ],
)
def test_what_happens_to_a_pod_makes_its_delayed_action_pointless(event: JobEvent, by: JobEvent, left: bool) -> None:
    before = those(waiting("p", A.RESTART_POD, event), waiting("q", A.RESTART_POD, event))
    after = cancel_obsolete(before, JobRequest(job="j", pod="p", pod_uid="1", event=by))
    assert list(after) == (["p", "q"] if left else ["q"])


def test_a_pod_made_anew_does_not_end_the_wait_of_the_old_one() -> None:
    before = those(waiting("p", A.RESTART_POD, E.POD_PENDING))
    assert cancel_obsolete(before, JobRequest(job="j", pod="p", pod_uid="2", event=E.POD_FAILED)) == before


@pytest.mark.parametrize(
    ("done", "left"),
    [
        (A.ABORT_JOB, ["task w", "task x", "pod a"]),
        (A.RESTART_TASK, ["job", "task x", "pod a"]),
        (A.RESTART_POD, ["job", "task w", "task x"]),
        (A.SYNC_JOB, ["job", "task w", "task x", "pod a"]),
    ],
)
def test_one_action_settles_the_others_of_its_kind(done: JobAction, left: list[str]) -> None:
    before = those(
        waiting("job", A.RESTART_JOB),
        waiting("task w", A.RESTART_TASK),
        waiting("task x", A.RESTART_TASK, task="x"),
        waiting("pod a", A.RESTART_POD),
    )
    assert list(cancel_replaced(before, done, JobRequest(job="j", task="w", pod="pod a"))) == left


def test_a_task_is_completed_when_its_last_pod_succeeds() -> None:
    one = job(("w", 2))
    ((old, _), half, whole) = pods(one, w="RR"), pods(one, w="SR"), pods(one, w="SS")
    assert event_of_change(old, half[0], one, half) is E.OUT_OF_SYNC
    assert event_of_change(old, whole[0], one, whole) is E.TASK_COMPLETED
    failed = pods(one, w="FR")
    assert event_of_change(old, failed[0], one, failed) is E.POD_FAILED
    assert event_of_change(failed[0], failed[0], one, failed) is E.OUT_OF_SYNC


def test_only_pods_that_say_their_job_and_version_are_looked_at() -> None:
    one = job(("w", 1), status=VolcanoStatus(version=4))
    (pod,) = pods(one, w="R")
    asked = request_of(pod, one, E.POD_FAILED, 7)
    assert asked == JobRequest(
        job=one.key, job_uid="uid", task="w", pod="train-w-0", event=E.POD_FAILED, exit_code=7, version=4
    )
    assert request_of(replace(pod, annotations={}), one, E.POD_FAILED) is None
    marked = replace(pod, annotations={**pod.annotations, "volcano.sh/controller-out-of-sync": "true"})
    outdated = request_of(marked, one, E.POD_FAILED)
    assert outdated is not None
    assert outdated.event is E.OUT_OF_SYNC

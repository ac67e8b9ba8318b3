"""A Kueue that does nothing though it could is noticed; one that has nothing to do is not."""

import pytest
from msgspec.structs import replace

from gpuconsole.insight.health.engines import KueueProblem, KueueWatch
from gpuconsole.model.job import Job, JobPhase
from gpuconsole.model.jobs.workloads import PREBUILT
from gpuconsole.model.queues import WorkloadPriorityClass
from gpuconsole.model.workloads import Condition, RequeueState
from tests.support.snapshots import ORG_QUEUES, START, running, waiting, world

FIRST, SECOND = waiting("first", "prod/lq", 4), waiting("second", "prod/lq", 4)
STUCK = {"prod/first", "prod/second"}


def watched(*looks: tuple[float, tuple[object, ...], set[str] | None]) -> KueueProblem | None:
    """The problem after looks: when, at which workloads, and which of them are admissible."""
    watch = KueueWatch()
    for now, workloads, admissible in looks:
        watch.observe(world((*ORG_QUEUES, *workloads)), admissible, now)  # type: ignore[arg-type]
    return watch.problem


BOTH = (FIRST, SECOND)


def test_admissible_workloads_that_stay_pending_for_half_a_minute_are_a_problem() -> None:
    assert watched((0, BOTH, STUCK), (29, BOTH, STUCK)) is None
    assert watched((0, BOTH, STUCK), (10, BOTH, STUCK), (45, BOTH, STUCK)) == KueueProblem(
        "Kueue: no admissions for 45s",
        "2 admissible workloads pending for 45s, and no Workload status changed: "
        "check that Kueue's controller is running.",
    )


def test_a_workload_that_came_later_is_given_its_own_half_minute() -> None:
    assert watched((0, (), set()), (40, BOTH, STUCK), (69, BOTH, STUCK)) is None
    found = watched((0, (), set()), (40, BOTH, STUCK), (70, BOTH, STUCK))
    assert found is not None
    assert found.mark == "Kueue: no admissions for 30s"


def test_new_workloads_are_no_sign_of_life_but_any_changed_status_is() -> None:
    third = waiting("third", "prod/lq", 4)
    assert watched((0, BOTH, STUCK), (31, (*BOTH, third), STUCK)) is not None
    refused = replace(third, conditions=(Condition("QuotaReserved", False, "Pending", "no quota", START),))
    requeued = replace(third, requeue=RequeueState(count=1))
    admitted = running("third", "prod/lq", 4, "cq-prod")
    for changed in (refused, requeued, admitted):
        assert watched((0, (*BOTH, third), STUCK), (20, (*BOTH, changed), STUCK), (45, (*BOTH, changed), STUCK)) is None
        late = watched((0, (*BOTH, third), STUCK), (20, (*BOTH, changed), STUCK), (50, (*BOTH, changed), STUCK))
        assert late is not None
    labelled = replace(third, labels={"team": "a"})
    assert watched((0, (*BOTH, third), STUCK), (31, (*BOTH, labelled), STUCK)) is not None


def test_an_idle_kueue_with_nothing_admissible_is_no_problem() -> None:
    assert watched((0, BOTH, set()), (1000, BOTH, set())) is None
    assert watched((0, (), set()), (1000, (), set())) is None


def test_what_is_admissible_now_and_then_is_no_problem() -> None:
    looks = tuple((float(20 * number), BOTH, STUCK if number % 2 else set[str]()) for number in range(9))
    assert watched(*looks) is None


def test_where_nobody_can_know_what_is_admissible_nothing_is_said_and_counting_begins_anew() -> None:
    assert watched((0, BOTH, None), (100, BOTH, None)) is None
    assert watched((0, BOTH, STUCK), (40, BOTH, None)) is None
    assert watched((0, BOTH, STUCK), (40, BOTH, None), (50, BOTH, STUCK)) is None
    assert watched((0, BOTH, STUCK), (40, BOTH, None), (50, BOTH, STUCK), (80, BOTH, STUCK)) is not None


def test_what_was_stopped_or_admitted_meanwhile_is_not_counted() -> None:
    stopped = replace(FIRST, active=False)
    assert watched((0, (FIRST,), STUCK), (40, (stopped,), STUCK)) is None


def a_job(name: str, **fields: object) -> Job:
    """A suspended job of LocalQueue prod/lq."""
    given = {"namespace": "prod", "queue": "lq", "uid": f"uid-{name}", "suspended": True, "phase": JobPhase.SUSPENDED}
    return Job(name=name, **{**given, **fields})  # type: ignore[arg-type]


def made_for(job: Job, name: str = "") -> object:
    """The Workload that Kueue makes of a job, with a condition that was there from the start."""
    return waiting(name or f"job-{job.name}", "prod/lq", 4, "no quota", owner=job.key, job_uid=job.uid)


THREE = (a_job("a"), a_job("b"), a_job("c"))


def test_jobs_for_which_kueue_makes_no_workload_are_a_problem_after_half_a_minute() -> None:
    assert watched((0, THREE, set()), (29, THREE, set())) is None
    assert watched((0, THREE, set()), (20, THREE, set()), (40, THREE, set())) == KueueProblem(
        "Kueue: no Workloads created for 40s",
        "3 jobs without a Workload for 40s: check that Kueue's controller is running.",
    )


def test_jobs_that_come_later_are_given_their_own_half_minute() -> None:
    assert watched((0, (), set()), (40, THREE, set()), (69, THREE, set())) is None
    found = watched((0, (), set()), (40, THREE[:1], set()), (60, THREE, set()), (80, THREE, set()))
    assert found == KueueProblem(
        "Kueue: no Workloads created for 40s",
        "1 job without a Workload for 40s: check that Kueue's controller is running.",
    )


def test_the_problem_ends_when_kueue_makes_the_workloads() -> None:
    made = tuple(made_for(job) for job in THREE)
    looks = ((0, THREE, set[str]()), (40, THREE, set[str]()))
    assert watched(*looks, (41, (*THREE, *made), set())) is None
    assert watched(*looks, (41, (*THREE, made[0]), set())) is None, "it begins to work"
    assert watched(*looks, (41, (*THREE, made[0]), set()), (80, (*THREE, made[0]), set())) is not None


@pytest.mark.parametrize(
    "job",
    [
        a_job("a", queue=""),
        a_job("a", suspended=False, phase=JobPhase.RUNNING),
        a_job("a", phase=JobPhase.SUCCEEDED),
        a_job("a", owner="JobSet/prod/set"),
        a_job("a", labels={PREBUILT: "mine"}),
        a_job("a", annotations={PREBUILT: "mine"}),
        a_job("a", queue="no-such-queue"),
        a_job("a", kind="RayJob"),
        a_job("a", workload_priority_class="no-such-class"),
    ],
    ids=["no queue", "runs", "ended", "part of another", "label", "annotation", "no queue there", "kind", "priority"],
)
def test_jobs_that_need_no_workload_or_cannot_get_one_are_no_problem(job: Job) -> None:
    assert watched((0, (job,), set()), (40, (job,), set())) is None


def test_kinds_of_which_there_are_workloads_count_as_well_and_classes_that_are_there() -> None:
    known = made_for(a_job("known", kind="RayJob"))
    there = (a_job("a", kind="RayJob"), known)
    assert watched((0, there, set()), (40, there, set())) is not None
    classed = (a_job("a", workload_priority_class="high"), WorkloadPriorityClass(name="high", value=1))
    assert watched((0, classed, set()), (40, classed, set())) is not None


def test_every_job_with_a_workload_is_no_problem_whatever_the_workload_waits_for() -> None:
    held = tuple(made_for(job) for job in THREE)
    assert watched((0, (*THREE, *held), set()), (40, (*THREE, *held), set())) is None
    by_name = tuple(replace(one, job_uid="") for one in held)  # type: ignore[type-var]
    assert watched((0, (*THREE, *by_name), set()), (40, (*THREE, *by_name), set())) is None
    elsewhere = tuple(replace(one, cluster="worker") for one in held)  # type: ignore[type-var]
    assert watched((0, (*THREE, *elsewhere), set()), (40, (*THREE, *elsewhere), set())) is None


def test_a_workload_of_an_earlier_job_of_the_same_name_does_not_count() -> None:
    old, new = a_job("a", uid="old"), a_job("a", uid="new")
    there = (new, made_for(old))
    assert watched((0, there, set()), (40, there, set())) is not None


def test_after_a_minute_in_which_nobody_looked_counting_begins_anew() -> None:
    assert watched((0, THREE, set()), (100, THREE, set())) is None
    assert watched((0, BOTH, STUCK), (100, BOTH, STUCK)) is None
    assert watched((0, THREE, set()), (100, THREE, set()), (131, THREE, set())) is not None

"""A Kueue that does nothing though it could is noticed; one that has nothing to do is not."""

from msgspec.structs import replace

from gpuconsole.insight.kueue_liveness import AdmissionWatch, KueueProblem
from gpuconsole.model.workloads import Condition, RequeueState
from tests.insight.world import ORG_QUEUES, START, running, waiting, world

FIRST, SECOND = waiting("first", "prod/lq", 4), waiting("second", "prod/lq", 4)
STUCK = {"prod/first", "prod/second"}


def watched(*looks: tuple[float, tuple[object, ...], set[str] | None]) -> KueueProblem | None:
    """The problem after looks: when, at which workloads, and which of them are admissible."""
    watch = AdmissionWatch()
    for now, workloads, admissible in looks:
        watch.observe(world((*ORG_QUEUES, *workloads)), admissible, now)  # type: ignore[arg-type]
    return watch.problem


BOTH = (FIRST, SECOND)


def test_admissible_workloads_that_stay_pending_for_half_a_minute_are_a_problem() -> None:
    assert watched((0, BOTH, STUCK), (29, BOTH, STUCK)) is None
    assert watched((0, BOTH, STUCK), (10, BOTH, STUCK), (45, BOTH, STUCK)) == KueueProblem(
        "Kueue admits nothing for 45s",
        "Kueue does not admit: 2 admissible workloads pending for 45s, and no Workload's status changed; "
        "is its controller up?",
    )


def test_a_workload_that_came_later_is_given_its_own_half_minute() -> None:
    assert watched((0, (), set()), (40, BOTH, STUCK), (69, BOTH, STUCK)) is None
    found = watched((0, (), set()), (40, BOTH, STUCK), (70, BOTH, STUCK))
    assert found is not None
    assert found.mark == "Kueue admits nothing for 30s"


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

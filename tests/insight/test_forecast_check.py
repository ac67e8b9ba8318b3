"""What Kueue did is held against what was foreseen, and each difference gets its cause."""

from collections.abc import Iterable

import pytest
from msgspec.structs import replace

from gpuconsole.insight.forecast.backtest import (
    KEPT,
    DifferenceCause,
    ForecastChecker,
    ForecastDifference,
    ForecastDifferences,
    compare,
)
from gpuconsole.insight.forecast.decisions import facts
from gpuconsole.insight.forecast.forecast import forecast
from gpuconsole.model.clock import MINUTE, SECOND, Time
from gpuconsole.model.objects import Object
from gpuconsole.model.queues import ClusterQueue, QueueingStrategy, Quota
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.model.workloads import Admission, Condition, PodSetAssignment, Workload
from gpuconsole.sim.policy import SimPolicy
from tests.support.snapshots import A100, ORG_QUEUES, START, cluster_queue, group, running, waiting, world

POLICY = SimPolicy()
FULL = running("full", "prod/lq", 16, "cq-prod", minutes_ago=60)
WAITS = waiting("waits", "prod/lq", 8, minutes_ago=5)
NEXT = waiting("next", "prod/lq", 16, minutes_ago=3)


def later(objects: Iterable[Object], seconds: int = 2) -> Snapshot:
    return world(objects, now=START + seconds * SECOND)


def admitted(workload: Workload, flavor: str = "a100", at: Time = START + SECOND) -> Workload:
    """The workload as Kueue writes it when it is let in."""
    given = PodSetAssignment(flavors={"nvidia.com/gpu": flavor}, usage={"nvidia.com/gpu": workload.gpus})
    conditions = (Condition("QuotaReserved", True, "QuotaReserved", "", at), Condition("Admitted", True, "", "", at))
    queue = "cq-prod" if workload.namespace == "prod" else "cq-research"
    return replace(workload, admission=Admission(cluster_queue=queue, pod_sets=(given,)), conditions=conditions)


def preempted(workload: Workload, by: str, at: Time = START + SECOND) -> Workload:
    message = f"Preempted to accommodate a workload (UID: {by}, JobUID: UNKNOWN) due to prioritization"
    condition = Condition("Evicted", True, "Preempted", message, at)
    return replace(workload, conditions=(*workload.conditions, condition))


def finished(workload: Workload, at: Time = START + SECOND) -> Workload:
    return replace(workload, conditions=(*workload.conditions, Condition("Finished", True, "Succeeded", "", at)))


def compared(before: Snapshot, after: Snapshot, unseen: tuple[str, ...] = ()) -> ForecastDifferences:
    return compare(forecast(before, POLICY), before, after, facts(before, after), POLICY, unseen)


def test_nothing_decided_is_full_agreement() -> None:
    said = compared(world([*ORG_QUEUES, FULL, WAITS]), later([*ORG_QUEUES, FULL, WAITS]))
    assert (said, said.agreement) == (ForecastDifferences(), 1.0)


def test_differences_that_are_not_kept_in_mind_still_count() -> None:
    def said(number: int, cause: DifferenceCause) -> ForecastDifferences:
        one = ForecastDifference(
            time=number, workload="a/b", queue="q", forecast="pending", fact="admitted", cause=cause
        )
        return ForecastDifferences(decisions=1, differences=(one,))

    total = ForecastDifferences(decisions=50, agreed=50)
    for number in range(350):
        total = (total + said(number, DifferenceCause.TIMING)).recent()
    for number in range(350, 450):
        total = (total + said(number, DifferenceCause.ORDER)).recent()
    assert (total.decisions, len(total.differences), total.differences[0].time) == (500, KEPT, 250)
    assert (total.of(DifferenceCause.TIMING), total.of(DifferenceCause.ORDER), total.agreement) == (350, 100, 0.8)


def test_an_admission_as_foreseen_agrees() -> None:
    said = compared(world([*ORG_QUEUES, WAITS]), later([*ORG_QUEUES, admitted(WAITS)]))
    assert said == ForecastDifferences(decisions=1, agreed=1)


def test_who_came_and_was_admitted_between_two_looks_agrees_in_hindsight() -> None:
    said = compared(world(ORG_QUEUES), later([*ORG_QUEUES, admitted(WAITS)]))
    assert said == ForecastDifferences(decisions=1, agreed=1)


def test_a_change_that_came_between_is_timing() -> None:
    said = compared(world([*ORG_QUEUES, FULL, WAITS]), later([*ORG_QUEUES, finished(FULL), admitted(WAITS)]))
    [difference] = said.differences
    assert (said.decisions, said.agreed, said.agreement) == (1, 0, 1.0)
    assert (difference.cause, difference.detail) == (
        DifferenceCause.TIMING,
        "the cluster had changed before the decision",
    )
    assert difference.forecast.startswith("pending: couldn't assign flavors")
    assert difference.fact == "admitted: main×1 nvidia.com/gpu=a100"


def test_one_that_came_later_does_not_spoil_an_earlier_decision() -> None:
    first = max(WAITS.created, START) + SECOND
    urgent = waiting("urgent", "prod/lq", 16, priority=1000, created=START + 2 * SECOND)
    before = world([*ORG_QUEUES, FULL, WAITS])
    said = compared(before, later([*ORG_QUEUES, finished(FULL, first), admitted(WAITS, at=first), urgent], seconds=3))
    assert [(one.workload, one.cause, one.detail) for one in said.differences] == [
        ("prod/waits", DifferenceCause.TIMING, "other changes came after the decision")
    ]


def test_another_flavor_than_foreseen_is_a_disagreement() -> None:
    said = compared(world([*ORG_QUEUES, WAITS]), later([*ORG_QUEUES, admitted(WAITS, flavor="h100")]))
    assert said.differences == (
        ForecastDifference(
            time=START + SECOND,
            workload="prod/waits",
            queue="cq-prod",
            forecast="admitted in cycle 1 on a100",
            fact="admitted: main×1 nvidia.com/gpu=h100",
            cause=DifferenceCause.DISAGREEMENT,
        ),
    )
    assert said.agreement == 0


def test_what_may_not_be_read_is_blamed_before_the_engine() -> None:
    after = later([*ORG_QUEUES, admitted(WAITS, flavor="h100")])
    said = compared(world([*ORG_QUEUES, WAITS]), after, ("cannot list nodes at the cluster scope",))
    assert [(one.cause, one.detail) for one in said.differences] == [
        (DifferenceCause.UNSEEN, "cannot list nodes at the cluster scope")
    ]


@pytest.mark.parametrize(
    ("age", "cause"),
    [(3 * MINUTE, DifferenceCause.ORDER), (4 * MINUTE, DifferenceCause.DISAGREEMENT)],
    ids=["equals", "the older one"],
)
def test_of_two_equals_kueue_may_take_the_other_one(age: Time, cause: DifferenceCause) -> None:
    one = replace(NEXT, name="a-next", created=START - age)
    before = world([*ORG_QUEUES, one, NEXT])
    assert forecast(before, POLICY).prospects["prod/a-next"].cycle == 1
    said = compared(before, later([*ORG_QUEUES, one, admitted(NEXT)]))
    assert [(difference.workload, difference.cause) for difference in said.differences] == [("prod/next", cause)]


class TestMemory:
    """What was refused before may be parked, and its search for flavors may go on anywhere: nobody can read that."""

    REFUSED = replace(WAITS, conditions=(Condition("QuotaReserved", False, "Pending", "it was refused", START),))

    TWO_FLAVORS = (
        *(one for one in ORG_QUEUES if one is not ORG_QUEUES[4]),
        replace(A100, name="h100"),
        cluster_queue("cq-prod", resource_groups=(group({"a100": Quota(16), "h100": Quota(16)}),)),
    )

    @pytest.mark.parametrize(
        ("one", "cause"), [(REFUSED, DifferenceCause.MEMORY), (WAITS, DifferenceCause.DISAGREEMENT)]
    )
    def test_the_search_of_one_that_was_refused_may_go_on_from_any_flavor(
        self, one: Workload, cause: DifferenceCause
    ) -> None:
        before, after = [*self.TWO_FLAVORS, one], [*self.TWO_FLAVORS, admitted(one, flavor="h100")]
        said = compared(world(before), later(after))
        assert [(found.forecast, found.cause) for found in said.differences] == [("admitted in cycle 1 on a100", cause)]
        assert said.agreement == 0

    @pytest.mark.parametrize(
        ("refused", "cause"), [(True, DifferenceCause.MEMORY), (False, DifferenceCause.DISAGREEMENT)]
    )
    def test_an_older_one_that_was_refused_may_be_parked(self, refused: bool, cause: DifferenceCause) -> None:
        older = replace(NEXT, name="older", created=START - 4 * MINUTE)
        older = replace(older, conditions=self.REFUSED.conditions) if refused else older
        said = compared(world([*ORG_QUEUES, older, NEXT]), later([*ORG_QUEUES, older, admitted(NEXT)]))
        assert [(one.workload, one.cause) for one in said.differences] == [("prod/next", cause)]

    def test_in_a_strict_queue_nobody_is_parked(self) -> None:
        older = replace(NEXT, name="older", created=START - 4 * MINUTE, conditions=self.REFUSED.conditions)
        strict = QueueingStrategy.STRICT_FIFO
        queues = [
            replace(one, queueing_strategy=strict) if isinstance(one, ClusterQueue) else one for one in ORG_QUEUES
        ]
        said = compared(world([*queues, older, NEXT]), later([*queues, older, admitted(NEXT)]))
        assert [(one.workload, one.cause) for one in said.differences] == [("prod/next", DifferenceCause.DISAGREEMENT)]

    @pytest.mark.parametrize(
        ("strategy", "gpus", "cause", "detail"),
        [
            pytest.param(
                QueueingStrategy.STRICT_FIFO,
                4,
                DifferenceCause.MEMORY,
                "behind prod/waits",
                id="a strict queue keeps its head",
            ),
            pytest.param(
                QueueingStrategy.BEST_EFFORT_FIFO,
                8,
                DifferenceCause.MEMORY,
                "behind prod/waits",
                id="look-alikes are parked",
            ),
            pytest.param(
                QueueingStrategy.BEST_EFFORT_FIFO, 4, DifferenceCause.DISAGREEMENT, "", id="another one is tried next"
            ),
        ],
    )
    def test_who_is_behind_one_whom_that_keeps_out_waits_only_where_the_engine_has_it_wait_then(
        self, strategy: QueueingStrategy, gpus: int, cause: DifferenceCause, detail: str
    ) -> None:
        groups = (group({"a100": Quota(16), "h100": Quota(0)}),)
        queue = cluster_queue("cq-prod", resource_groups=groups, queueing_strategy=strategy)
        queues = (*self.TWO_FLAVORS[:-1], queue)
        behind, observer = waiting("behind", "prod/lq", gpus), ForecastChecker(patience=10 * SECOND)
        looks = [observer.look(later([*queues, self.REFUSED, behind], at), POLICY)[1] for at in (0, 10)]
        assert [(one.workload, one.cause, one.detail) for one in looks[1].differences] == [
            (
                "prod/waits",
                DifferenceCause.MEMORY,
                "if others were inadmissible, or its search resumed at another flavor",
            ),
            ("prod/behind", cause, detail),
        ]


class TestPreemption:
    LOW = running("low", "prod/lq", 16, "cq-prod", minutes_ago=60)
    HIGH = waiting("high", "prod/lq", 8, priority=1000, minutes_ago=1)

    def test_a_victim_as_foreseen_agrees(self) -> None:
        before = world([*ORG_QUEUES, self.LOW, self.HIGH])
        said = compared(before, later([*ORG_QUEUES, preempted(self.LOW, "high"), self.HIGH]))
        assert said == ForecastDifferences(decisions=1, agreed=1)

    def test_a_victim_of_somebody_else_is_a_disagreement(self) -> None:
        other = waiting("other", "research/lq", 64)
        before = world([*ORG_QUEUES, self.LOW, self.HIGH, other])
        said = compared(before, later([*ORG_QUEUES, preempted(self.LOW, "other"), self.HIGH, other]))
        assert [(one.fact, one.cause) for one in said.differences] == [("preempted", DifferenceCause.DISAGREEMENT)]

    def test_an_admission_after_its_victims_left_agrees(self) -> None:
        gone = replace(self.LOW, admission=None, conditions=())
        before = world([*ORG_QUEUES, self.LOW, self.HIGH])
        assert compared(before, later([*ORG_QUEUES, gone, admitted(self.HIGH)])).agreed == 1


class TestRaces:
    """What changed just before or after a decision, between two looks, is named; neither look shows it."""

    SECOND_LATER = START + SECOND
    LOW = running("low", "prod/lq", 8, "cq-prod", minutes_ago=60)
    REST = running("rest", "prod/lq", 8, "cq-prod", minutes_ago=60, priority=1000)
    HIGH = waiting("high", "prod/lq", 8, priority=500, created=SECOND_LATER)
    SPAN = 2 * SECOND

    def found(
        self, before: Iterable[Object], after: Iterable[Object]
    ) -> list[tuple[str, DifferenceCause, str, str, Time]]:
        said = compared(world([*ORG_QUEUES, *before]), later([*ORG_QUEUES, *after]))
        return [(one.workload, one.cause, one.detail, one.object, one.span) for one in said.differences]

    def test_a_workload_created_within_the_same_second_as_the_admission_that_it_would_have_prevented(self) -> None:
        urgent = waiting("urgent", "prod/lq", 16, priority=1000, created=self.SECOND_LATER)
        came = waiting("came", "prod/lq", 8, created=self.SECOND_LATER)
        assert self.found([], [urgent, admitted(came)]) == [
            (
                "prod/came",
                DifferenceCause.RACE,
                "Workload prod/urgent was created within the 2s between two observations",
                "Workload prod/urgent",
                self.SPAN,
            )
        ]

    def test_quota_that_was_released_within_the_same_second_as_a_preemption(self) -> None:
        before = [self.LOW, self.REST]
        ended = finished(self.REST, self.SECOND_LATER)
        after = [preempted(self.LOW, "high", self.SECOND_LATER), ended, self.HIGH]
        assert self.found(before, after) == [
            (
                "prod/low",
                DifferenceCause.RACE,
                "Workload prod/rest finished within the 2s between two observations",
                "Workload prod/rest",
                self.SPAN,
            )
        ]

    def test_a_queue_that_changed_between_the_looks(self) -> None:
        less = cluster_queue("cq-prod", "org-cohort", Quota(0, borrowing_limit=0))
        came = waiting("came", "prod/lq", 8, created=self.SECOND_LATER)
        found = self.found([], [admitted(came), less])
        assert [(cause, thing) for _, cause, _, thing, _ in found] == [(DifferenceCause.RACE, "ClusterQueue cq-prod")]

    def test_what_changed_before_the_first_look_is_no_race(self) -> None:
        urgent = waiting("urgent", "prod/lq", 16, priority=1000, created=START)
        came = waiting("came", "prod/lq", 8, created=self.SECOND_LATER)
        assert self.found([urgent], [urgent, admitted(came)]) == [
            ("prod/came", DifferenceCause.DISAGREEMENT, "", "", 0)
        ]

    def test_a_change_that_does_not_explain_the_decision_is_no_race(self) -> None:
        other = waiting("other", "prod/lq", 64, created=self.SECOND_LATER)
        came = waiting("came", "prod/lq", 8, created=self.SECOND_LATER)
        assert self.found([], [other, admitted(came, flavor="h100")]) == [
            ("prod/came", DifferenceCause.DISAGREEMENT, "", "", 0)
        ]


class TestObserver:
    def test_what_stays_foreseen_and_does_not_come_is_told_once(self) -> None:
        observer = ForecastChecker(patience=10 * SECOND)
        looks = [observer.look(later([*ORG_QUEUES, WAITS], seconds), POLICY)[1] for seconds in (0, 4, 9, 10, 14, 30)]
        assert [said.decisions for said in looks] == [0, 0, 0, 1, 0, 0]
        [difference] = looks[3].differences
        assert (difference.forecast, difference.fact) == ("admitted in cycle 1 on a100", "still pending")
        assert difference.cause is DifferenceCause.DISAGREEMENT

    def test_what_comes_in_time_agrees(self) -> None:
        observer = ForecastChecker()
        observer.look(later([*ORG_QUEUES, WAITS], 0), POLICY)
        foreseen, said = observer.look(later([*ORG_QUEUES, admitted(WAITS)], 9), POLICY)
        assert (foreseen.prospects, said) == ({}, ForecastDifferences(decisions=1, agreed=1))

    def test_patience_begins_anew_where_something_else_is_foreseen(self) -> None:
        observer, other = ForecastChecker(patience=10 * SECOND), cluster_queue("cq-prod", "", Quota(0))
        for seconds, queues in ((0, ORG_QUEUES), (6, (*ORG_QUEUES, other)), (12, ORG_QUEUES), (18, ORG_QUEUES)):
            assert observer.look(later([*queues, WAITS], seconds), POLICY)[1].decisions == 0


def test_a_workload_of_the_same_name_is_another_one() -> None:
    again = admitted(replace(WAITS, uid="again"))
    [fact] = facts(world([FULL, admitted(WAITS, at=START)]), later([FULL, again]))
    assert (fact.workload, fact.time) == ("prod/waits", START + SECOND)

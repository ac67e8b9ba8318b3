"""How Kueue's victims were chosen, by our engine in hindsight; and only where it takes the same ones."""

from msgspec.structs import replace

from gpuconsole.insight.forecast.decisions import facts, replayed_choices
from gpuconsole.insight.forecast.forecast import Forecaster
from gpuconsole.insight.preemption.history import rows
from gpuconsole.model.clock import SECOND
from gpuconsole.model.events import (
    CandidateVerdict,
    ConsideredCandidate,
    HistoryEvent,
    HistoryEventKind,
    PreemptionTrace,
)
from gpuconsole.model.objects import Object
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.model.workloads import Workload
from gpuconsole.sim.policy import SimPolicy
from tests.insight.test_forecast_check import later, preempted
from tests.support.snapshots import ORG, ORG_QUEUES, ORG_WORKLOADS, START, waiting, world

WANTS = waiting("serve-more", "prod/lq", 8, minutes_ago=1)
AT = START + SECOND


def after(*victims: str, by: Workload = WANTS) -> Snapshot:
    """Two seconds later, when these had to make room."""
    ran = [w for w in ORG_WORKLOADS if isinstance(w, Workload)]
    return later([*ORG_QUEUES, *(preempted(w, by.uid) if w.key in victims else w for w in ran), by])


def told(before: list[Object], then: Snapshot, policy: SimPolicy | None = None) -> tuple[HistoryEvent, ...]:
    earlier = world(before)
    return replayed_choices(earlier, then, facts(earlier, then), policy or SimPolicy(), Forecaster())


WHOLE = PreemptionTrace(
    share="166.666667",
    considered=(
        ConsideredCandidate("research/rlhf", "cq-research", CandidateVerdict.CHOSEN, 500),
        ConsideredCandidate("research/embed", "cq-research", CandidateVerdict.NOT_NEEDED, 500),
        ConsideredCandidate("research/llm-ft", "cq-research", CandidateVerdict.NOT_NEEDED, 500),
        ConsideredCandidate("prod/serve", "cq-prod", CandidateVerdict.PRIORITY, 10_000),
    ),
    as_of=AT,
)
LINE = HistoryEvent(
    time=AT,
    what=HistoryEventKind.RECONSTRUCTED,
    workload="research/rlhf",
    queue="cq-research",
    by="prod/serve-more",
    choice=WHOLE,
)


def test_the_candidates_are_those_of_the_cluster_as_it_stood_before() -> None:
    assert told([*ORG, WANTS], after("research/rlhf")) == (LINE,)


def test_a_preemptor_that_came_after_the_last_look_is_known_in_hindsight() -> None:
    late = replace(WANTS, created=START + SECOND // 2)
    (line,) = told([*ORG], after("research/rlhf", by=late))
    assert line == LINE


def test_where_the_engine_takes_others_it_only_says_that() -> None:
    (line,) = told([*ORG, WANTS], after("research/embed"))
    assert line == replace(LINE, workload="research/embed", choice=PreemptionTrace(as_of=AT, differs=True))


def test_of_a_preemptor_that_nobody_knows_nothing_is_told() -> None:
    unknown = replace(WANTS, name="else", uid="else")
    then = after("research/rlhf", by=unknown)
    gone = [thing for thing in then.objects() if thing != unknown]
    assert told([*ORG], later(gone)) == ()


def test_without_kueue_there_is_nobody_to_ask() -> None:
    assert told([*ORG, WANTS], after("research/rlhf"), SimPolicy(kueue=None)) == ()


def preemption(victim: str = "research/rlhf", at: int = AT, choice: PreemptionTrace | None = None) -> HistoryEvent:
    return HistoryEvent(time=at, what=HistoryEventKind.PREEMPTED, workload=victim, by="prod/serve-more", choice=choice)


def test_the_newest_preemption_of_the_victim_gets_what_was_found() -> None:
    again = preemption(at=AT + 60 * SECOND)
    found = rows([preemption(), preemption("research/embed"), LINE, again])
    assert [(row.victim, row.choice) for row in found] == [
        ("research/rlhf", None),
        ("research/embed", None),
        ("research/rlhf", WHOLE),
    ]


def test_what_the_one_who_decided_told_stays() -> None:
    own = PreemptionTrace(
        "1", "0", (ConsideredCandidate("research/rlhf", "cq-research", CandidateVerdict.CHOSEN, 500),)
    )
    (row,) = rows([preemption(choice=own), LINE])
    assert row.choice == own


def test_what_was_found_about_another_preemptor_is_left_out() -> None:
    (row,) = rows([preemption(), replace(LINE, by="prod/other")])
    assert row.choice is None

"""Expected starts: one GPU-wide queue, where each wait can be worked out by hand."""

import pytest
from msgspec.structs import replace

from gpuconsole.insight.forecast.estimates import Calibration, CoverageRecord, Estimate, Interval
from gpuconsole.insight.forecast.eta import (
    PastSubmission,
    SimulatedStarts,
    WorkloadHistory,
    again,
    starts,
    workload_history,
)
from gpuconsole.insight.forecast.expected_start import (
    TAIL,
    CohortPosition,
    StartProbability,
    corrected,
    current_position,
    expected_start,
)
from gpuconsole.insight.index.queues import Position
from gpuconsole.model.clock import DAY, HOUR, MINUTE, SECOND
from gpuconsole.model.commands import Submit
from gpuconsole.model.events import HistoryEvent, HistoryEventKind
from gpuconsole.model.job import CronRules, Job
from gpuconsole.model.objects import Object
from gpuconsole.model.queues import Cohort, LocalQueue, Quota
from gpuconsole.model.workloads import Workload, WorkloadPhase
from gpuconsole.sim.engine import Simulation
from gpuconsole.sim.policy import SimPolicy
from gpuconsole.sim.run_times import ObservedRun, WorkKind
from tests.support.snapshots import A100, START, cluster_queue, node, waiting, world

LAG = 31 * SECOND
"""Thirty-one jobs went before, each a second after there was room."""


def cluster(*workloads: Workload) -> Simulation:
    """Eight GPUs in one queue of cohort org; what is given comes first."""
    objects: list[Object] = [
        A100,
        cluster_queue("a", "org", Quota(8)),
        LocalQueue(namespace="a", name="lq", cluster_queue="a"),
        node("n1"),
    ]
    simulation = Simulation.from_objects(objects, policy=SimPolicy(), seed=1, start=START)
    for workload in workloads:
        simulation.submit(Submit((replace(workload, uid="", created=simulation.now),)))
    return simulation


def lasting(name: str, span: str, gpus: int = 8, **fields: object) -> Workload:
    return replace(waiting(name, "a/lq", gpus, annotations={"gpuconsole.io/duration": span}), **fields)


def after(jobs: int, length: str) -> Simulation:
    """So many equal jobs one after another, then the next runs for half an hour, and one waits behind it."""
    simulation = cluster(*(lasting(f"past-{n}", length) for n in range(jobs)))
    simulation.advance(START + jobs * HOUR)
    simulation.submit(Submit((lasting("now", "100h", created=simulation.now),)))
    simulation.submit(Submit((lasting("next", "1h", created=simulation.now + 1),)))
    simulation.advance(simulation.now + 30 * MINUTE)
    return simulation


def only(known: WorkloadHistory) -> WorkloadHistory:
    """The same run times, and nothing submitted anew."""
    return replace(known, arrivals=())


def test_who_waits_starts_when_work_like_what_runs_has_ended() -> None:
    # Its word of 100 hours is not believed: thirty jobs of this queue took an hour each.
    simulation = after(30, "1h")
    known = only(workload_history(simulation.snapshot()))
    found = starts(simulation, ("a/next",), known, runs=5, seed=1, horizon=DAY)["a/next"]
    assert found.times == (simulation.now + 30 * MINUTE + LAG,) * 5


def test_an_estimate_leaves_the_cluster_alone_and_repeats_itself() -> None:
    simulation = after(30, "1h")
    before = simulation.save()
    known = workload_history(simulation.snapshot())
    first, second = (starts(simulation, ("a/next",), known, runs=3, seed=4, horizon=DAY) for _ in range(2))
    assert first == second
    assert simulation.save() == before


def test_what_is_planned_is_not_foreseen() -> None:
    simulation = after(30, "1h")
    simulation.schedule_commands(
        simulation.now, Submit((lasting("urgent", "1h", priority=100, created=simulation.now),))
    )
    known = only(workload_history(simulation.snapshot()))
    found = starts(simulation, ("a/next",), known, runs=1, seed=1, horizon=DAY)["a/next"]
    assert found.at(0.5) == simulation.now + 30 * MINUTE + LAG


@pytest.mark.parametrize(("there", "again"), [(True, 0), (False, 1)], ids=["it is there", "it is gone"])
def test_what_a_cron_job_made_comes_again_by_itself(there: bool, again: int) -> None:
    cron = Job(kind="CronJob", namespace="a", name="nightly", rules=CronRules(schedule="30 3 * * *"))
    made = Job(namespace="a", name="nightly-1", owner=cron.key)
    first, nightly = waiting("first", "a/lq", 8), waiting("job-nightly-1", "a/lq", 8, owner=made.key, created=START + 1)
    known = workload_history(world([first, nightly, made, *([cron] if there else [])], START + 1))
    assert len(known.arrivals) == again


def test_what_was_submitted_before_comes_again_and_pushes_in_by_priority() -> None:
    simulation = after(30, "1h")
    urgent = lasting("urgent", "1h", priority=100)
    known = workload_history(simulation.snapshot())
    day = tuple(PastSubmission(simulation.now - DAY * n + 10 * MINUTE, urgent) for n in (3, 2, 1))
    crowded = replace(known, arrivals=day, since=simulation.now - 3 * DAY)
    alone, beside = (
        starts(simulation, ("a/next",), one, runs=2, seed=1, horizon=DAY)["a/next"].at(0.5)
        for one in (only(known), crowded)
    )
    assert alone is not None
    assert beside is not None
    # The eight GPUs are the victim's at once, for the one that pushes in may preempt in its queue.
    assert beside - alone >= 30 * MINUTE


def test_days_come_again_with_their_hours() -> None:
    now = START + 3 * DAY
    job = lasting("j", "1h")
    mornings = tuple(PastSubmission(START + DAY * n + 9 * HOUR, job) for n in range(3))
    known = WorkloadHistory(time=now, arrivals=mornings, since=START)
    coming = [(one.time - now, one.workload.name) for one in again(known, now + 2 * DAY, 1)]
    assert coming == [(9 * HOUR, "j-again-0"), (DAY + 9 * HOUR, "j-again-1")]


def test_where_little_is_known_it_follows_upon_itself() -> None:
    now = START + 2 * HOUR
    known = WorkloadHistory(time=now, arrivals=(PastSubmission(START + HOUR, lasting("j", "1h")),), since=START)
    coming = [one.time - now for one in again(known, now + 6 * HOUR, 1)]
    assert len(coming) == 3
    assert all(2 * n * HOUR <= time < 2 * (n + 1) * HOUR for n, time in enumerate(coming))


def test_quantiles_lie_between_runs() -> None:
    found = SimulatedStarts(workload="a/w", asked=0, horizon=100, past=DAY, times=(10, 20, 30, None))
    assert [found.at(part) for part in (0.1, 0.2, 0.3, 0.5, 0.6)] == [10, 10, 15, 25, 30]
    assert [found.by(time) for time in (9, 10, 35)] == [0.0, 0.25, 0.75]


def test_of_what_waits_beyond_the_horizon_half_waits_1_4_times_as_long() -> None:
    found = SimulatedStarts(
        workload="a/w", asked=0, horizon=100, past=DAY, times=(10, 20, 30, None, None, None, None, None, None)
    )
    # Seven of ten wait longer than to the horizon: five of these sqrt(7/5) times as long, one sqrt(7) times.
    assert [found.at(part) for part in (0.5, 0.9)] == [118, 265]
    assert SimulatedStarts(workload="a/w", asked=0, horizon=100, past=DAY, times=(None,) * 9).at(0.1) == 105


def test_the_past_is_what_ended_what_runs_and_what_history_tells_of_what_is_gone() -> None:
    simulation = after(2, "1h")
    gone = (
        HistoryEvent(time=START, what=HistoryEventKind.STARTED, workload="b/old", queue="b", gpus=2),
        HistoryEvent(time=START + HOUR, what=HistoryEventKind.EVICTED, workload="b/old", queue="b", gpus=2),
        HistoryEvent(time=START + 2 * HOUR, what=HistoryEventKind.STARTED, workload="b/old", queue="b", gpus=2),
        HistoryEvent(time=START + 5 * HOUR, what=HistoryEventKind.FINISHED, workload="b/old", queue="b", gpus=2),
    )
    known = workload_history(simulation.snapshot(), gone)
    here = WorkKind("a", "a", 8)
    assert known.runs == (
        ObservedRun(here, HOUR),
        ObservedRun(here, HOUR),
        ObservedRun(WorkKind("b", "b", 2), 3 * HOUR),
        ObservedRun(here, 30 * MINUTE - 2 * SECOND, ended=False),
    )
    assert [one.workload.name for one in known.arrivals] == ["now", "next"]
    assert all(not one.workload.conditions and one.workload.admission is None for one in known.arrivals)


def test_arrivals_are_known_since_the_oldest_end_that_is_left_for_older_work_may_be_gone() -> None:
    simulation = after(2, "1h")
    finished = simulation.snapshot().workloads["a/past-0"].condition("Finished")
    assert finished is not None
    assert workload_history(simulation.snapshot()).since == finished.since


def test_where_nothing_has_ended_all_arrivals_after_the_first_are_known() -> None:
    """What a cluster begins with says nothing of how much comes in how long."""
    simulation = cluster(lasting("first", "100h"))
    simulation.advance(START + 14 * MINUTE)
    simulation.submit(Submit((lasting("second", "1h", created=simulation.now),)))
    simulation.advance(simulation.now + SECOND)
    known = workload_history(simulation.snapshot())
    assert (known.since, [one.workload.name for one in known.arrivals]) == (START, ["second"])


def test_of_less_than_an_hour_no_arrivals_come_again() -> None:
    simulation = cluster(lasting("first", "100h"))
    simulation.advance(START + 10 * MINUTE)
    simulation.submit(Submit((lasting("second", "1h", created=simulation.now),)))
    simulation.advance(START + 59 * MINUTE)
    short = workload_history(simulation.snapshot())
    simulation.advance(START + 60 * MINUTE)
    long_enough = workload_history(simulation.snapshot())
    assert (short.repeats, long_enough.repeats) == (False, True)
    assert list(again(short, short.time + DAY, 1)) == []
    assert len(list(again(long_enough, long_enough.time + 4 * HOUR, 1))) == 4


def test_the_few_jobs_of_a_scenario_that_has_just_begun_do_not_come_again_and_again() -> None:
    """With these coming anew each quarter of an hour, no run would see the second one start."""
    simulation = cluster(lasting("first", "1h"), lasting("second", "4h"))
    simulation.advance(START + 15 * MINUTE)
    answer = expected_start(simulation, "a/second", runs=5, horizon=8 * HOUR)
    assert answer.start is not None
    assert answer.start.never == 0
    assert answer.assumptions[1:] == (
        "no new arrivals",
        "quotas, nodes and priorities do not change",
        "no controller latencies (latencies: none)",
    )


def test_position_and_start_of_a_waiting_workload() -> None:
    answer = expected_start(after(30, "1h"), "a/next", runs=4, seed=1, horizon=DAY)
    assert (answer.phase, answer.queue, answer.gpus) == (WorkloadPhase.PENDING, "a", 8)
    assert answer.position == Position("a/next", "a", 1, 1, 1, 1, 0)
    assert answer.cohort == CohortPosition("org", 1, 1)
    then = answer.time + 30 * MINUTE + LAG
    assert answer.start == Estimate(
        workload="a/next",
        asked=answer.time,
        horizon=answer.time + DAY,
        runs=4,
        never=0,
        median=then,
        raw=Interval(then, then),
        past=answer.arrivals_span,
        # No run differs from another: a tenth of the wait, three times, as little of the past is known.
        interval=Interval(then - round(0.3 * (then - answer.time)), then + round(0.3 * (then - answer.time))),
        stretch=3.0,
    )
    assert answer.trust == (
        "only 1d5h of history: with less than 4d, estimates tend to be far too early",
        "uncalibrated: not enough past estimates; the interval is 3.0 times as wide as in the runs",
    )


def test_where_cohorts_lead_in_a_circle_nobody_has_a_place_in_one() -> None:
    """Kueue admits nothing there; in which of its cohorts all others wait as well is no question."""
    ring = [Cohort(name=name, parent=above) for name, above in (("red", "green"), ("green", "blue"), ("blue", "red"))]
    queues = [cluster_queue("a", "red", Quota(8)), cluster_queue("b", "green", Quota(8))]
    doors = [LocalQueue(namespace=name, name="lq", cluster_queue=name) for name in "ab"]
    snapshot = world([A100, *ring, *queues, *doors, waiting("one", "a/lq", 8), waiting("two", "b/lq", 8)])
    answer = current_position(snapshot, "a/one")
    assert (answer.position is not None, answer.cohort) == (True, None)


def test_earlier_estimates_and_how_good_they_were_are_named() -> None:
    answer = expected_start(after(30, "1h"), "a/next", runs=4, seed=1, horizon=DAY)
    assert answer.start is not None
    taught = corrected(
        replace(answer, start=replace(answer.start, past=7 * DAY)), Calibration(0.5, 9, 200), CoverageRecord(143, 116)
    )
    assert taught.trust == (
        "calibrated with 200 past estimates; the interval is 0.7 times as wide as in the runs",
        "coverage of 143 past intervals: 81% (target: 80%)",
    )
    assert taught.start is not None
    assert (taught.assumptions, taught.record, taught.start.calibrated_by) == (
        answer.assumptions,
        CoverageRecord(143, 116),
        200,
    )
    assert answer.within == (
        StartProbability(HOUR, 1.0),
        StartProbability(6 * HOUR, 1.0),
        StartProbability(24 * HOUR, 1.0),
    )
    assert (answer.goes_by, answer.samples, answer.past_runs) == ("owner a, queue a, 8 to 15 GPUs", 30, 30)


def test_nothing_is_foretold_of_what_runs() -> None:
    answer = expected_start(after(1, "1h"), "a/now")
    assert (answer.phase, answer.start, answer.position, answer.cohort) == (WorkloadPhase.RUNNING, None, None, None)


def test_a_workload_that_is_not_there() -> None:
    with pytest.raises(KeyError):
        expected_start(after(1, "1h"), "a/nobody")


def test_the_tail_is_assumed_only_where_a_range_rests_on_it() -> None:
    """What runs ends after one hour, or after two: some runs see no start within an hour."""
    simulation = cluster(*(lasting(f"past-{n}", f"{1 + n % 2}h") for n in range(30)))
    simulation.advance(START + 45 * HOUR)
    simulation.submit(Submit((lasting("now", "100h", created=simulation.now),)))
    simulation.submit(Submit((lasting("next", "1h", created=simulation.now + 1),)))
    simulation.advance(simulation.now + 30 * MINUTE)
    told = {span: expected_start(simulation, "a/next", runs=9, horizon=span) for span in (MINUTE, HOUR, DAY)}
    assert [found.start is not None and 0 < found.start.never < 9 for found in told.values()] == [False, True, False]
    assert [TAIL in found.assumptions for found in told.values()] == [False, True, False]

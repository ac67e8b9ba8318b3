"""Preemption risk against what then happens: arrivals and spot interruptions are drawn, and the work is bounded."""

from collections.abc import Callable
from itertools import count
from random import Random

import pytest
from msgspec.structs import replace

from gpuconsole.insight.preemption.risk import Risk, eviction_risk_steps, risk, spot_interruptions
from gpuconsole.model.clock import HOUR, MINUTE, SECOND, Span
from gpuconsole.model.cluster import Node
from gpuconsole.model.commands import InterruptSpot, Submit
from gpuconsole.model.events import HistoryEvent, HistoryEventKind
from gpuconsole.model.labels import LabelSelector
from gpuconsole.model.objects import Object
from gpuconsole.model.queues import ClusterQueuePreemption, LocalQueue, PreemptionPolicy, Quota, WorkloadPriorityClass
from gpuconsole.model.resources import GPU
from gpuconsole.sim.engine import Simulation
from gpuconsole.sim.policy import SimPolicy
from gpuconsole.sim.run_times import ArrivalStream, JobSize, LogNormal, draw_run_time, stream_job
from tests.support.snapshots import A100, START, cluster_queue, node, waiting

LEND, BORROW = "lender", "borrower"


def objects(nodes: int = 2, **labels: str) -> list[Object]:
    """A lender that owns all GPUs of some nodes, and a borrower without quota, in one cohort."""
    found: list[Object] = [A100, *(_node(f"n{number}", labels) for number in range(nodes))]
    for name, gpus in ((BORROW, 0), (LEND, 8 * nodes)):
        found += [
            replace(
                cluster_queue(name, "org", Quota(gpus)),
                preemption=ClusterQueuePreemption(PreemptionPolicy.LOWER_PRIORITY, PreemptionPolicy.ANY),
                namespace_selector=LabelSelector(),
            ),
            LocalQueue(namespace=name, name="lq", cluster_queue=name),
            WorkloadPriorityClass(name=name, value=0),
        ]
    return found


def _node(name: str, labels: dict[str, str]) -> Node:
    made = node(name)
    return replace(made, labels={**made.labels, **labels})


def busy(seed: int) -> Simulation:
    """A lender that often takes its quota back from a borrower, warm after two hours."""
    streams = (
        ArrivalStream(
            name="lend",
            namespace=LEND,
            queue="lq",
            per_hour=4,
            shapes=(JobSize(gpus=8, resources={GPU: 8}),),
            duration=_spread(12),
        ),
        ArrivalStream(
            name="borrow",
            namespace=BORROW,
            queue="lq",
            per_hour=6,
            shapes=(JobSize(gpus=4, resources={GPU: 4}),),
            duration=_spread(40),
        ),
    )
    policy = SimPolicy(arrivals=streams)
    simulation = Simulation.from_objects(objects(), policy=policy, seed=seed, start=START)
    simulation.advance(START + 2 * HOUR)
    simulation.drain()
    return simulation


def _spread(minutes: int) -> LogNormal:
    return LogNormal(median=minutes * MINUTE, sigma=0.5)


def ranked(seed: int) -> Simulation:
    """Three nodes of one queue, whose important jobs preempt the others; warm after three hours."""
    queue = replace(
        cluster_queue("all", "", Quota(24)),
        preemption=ClusterQueuePreemption(PreemptionPolicy.LOWER_PRIORITY, PreemptionPolicy.NEVER),
        namespace_selector=LabelSelector(),
    )
    classes = [WorkloadPriorityClass(name=name, value=value) for name, value in (("low", 0), ("high", 10))]
    nodes = [node(f"n{number}") for number in range(3)]
    door = LocalQueue(namespace="a", name="lq", cluster_queue="all")
    things: list[Object] = [A100, *nodes, queue, *classes, door]
    shapes = tuple(JobSize(gpus=4, resources={GPU: 4}, duration=_spread(minutes)) for minutes in (10, 90))
    low = ArrivalStream(
        name="low", namespace="a", queue="lq", per_hour=9, shapes=shapes, at_start=3, priorities={"low": 1.0}
    )
    high = replace(low, name="high", per_hour=3, priorities={"high": 1.0})
    policy = SimPolicy(arrivals=(low, high))
    simulation = Simulation.from_objects(things, policy=policy, seed=seed, start=START)
    simulation.advance(START + 3 * HOUR)
    simulation.drain()
    return simulation


def evicted_in(simulation: Simulation, horizon: Span) -> set[str]:
    """Who is preempted before the horizon: the truth."""
    fork = simulation.fork()
    fork.drain()
    fork.advance(fork.now + horizon)
    return {e.workload for e in fork.drain() if isinstance(e, HistoryEvent) and e.what is HistoryEventKind.PREEMPTED}


@pytest.mark.parametrize("fixture", [busy, ranked])
def test_predicted_probabilities_correspond_to_what_then_happens(fixture: Callable[[int], Simulation]) -> None:
    """Of all that runs in a hundred clusters, about as much is preempted within 20 minutes as was predicted."""
    predicted: list[tuple[float, bool]] = []
    for seed in range(100):
        simulation = fixture(seed)
        truth = evicted_in(simulation, 20 * MINUTE)
        answer = risk(simulation, runs=12, seed=seed, horizon=20 * MINUTE)
        predicted += [(one.probability or 0.0, one.workload in truth) for one in answer.workloads]

    def compare(least: float, most: float) -> tuple[float, float]:
        """The mean of the probabilities between these, and the part of them that came true."""
        some = [(chance, fell) for chance, fell in predicted if least <= chance < most]
        assert len(some) > 20
        return sum(chance for chance, _ in some) / len(some), sum(fell for _, fell in some) / len(some)

    expected, happened = compare(0.0, 1.1)
    assert happened > 0.05, "preemptions are frequent here"
    assert expected == pytest.approx(happened, abs=0.04)
    assert compare(0.0, 0.001)[1] < 0.05, "what is never evicted in a run is hardly ever evicted"
    low, high = compare(0.001, 0.4), compare(0.4, 1.1)
    assert low[0] == pytest.approx(low[1], abs=0.15)
    assert high[0] == pytest.approx(high[1], abs=0.15)
    assert low[1] < high[1]


def test_what_was_preempted_outlasts_its_longest_attempt() -> None:
    """Jobs take 10 minutes or 10 hours: one that has run for half an hour is still there when the lender comes back."""
    shapes = tuple(JobSize(gpus=8, resources={GPU: 8}, duration=LogNormal(median=m * MINUTE)) for m in (10, 600))
    borrow = ArrivalStream(name="borrow", namespace=BORROW, queue="lq", shapes=shapes, per_hour=0.0)
    lend = ArrivalStream(
        name="lend", namespace=LEND, queue="lq", shapes=(JobSize(gpus=8, resources={GPU: 8}),), per_hour=0.2
    )
    policy = SimPolicy(arrivals=(borrow, lend))
    simulation = Simulation.from_objects(objects(nodes=1), policy=policy, seed=1, start=START)
    simulation.submit(Submit((stream_job(replace(borrow, shapes=shapes[1:]), 1, 7),)))
    simulation.advance(START + 30 * MINUTE)
    _submit(simulation, "preemptor", LEND, 8, "5m")
    simulation.advance(START + 37 * MINUTE)
    lines = [event for event in simulation.drain() if isinstance(event, HistoryEvent)]
    (victim,) = (line.workload for line in lines if line.what is HistoryEventKind.PREEMPTED)
    (one,) = risk(simulation, lines, runs=40, horizon=20 * HOUR, effort=None).workloads
    (unknown,) = risk(simulation, lines[-1:], runs=40, horizon=20 * HOUR, effort=None).workloads
    assert {one.workload, unknown.workload} == {victim}
    assert (unknown.probability or 0) < 0.7 < 0.75 < (one.probability or 0)


@pytest.mark.parametrize(("known", "number"), [(0, 1), (25, 1), (70, 1), (0, 0), (25, 0)])
def test_run_times_of_a_stream_are_those_of_its_jobs_that_outlast_what_is_known(known: int, number: int) -> None:
    """Of a mix of shapes; job 0 stands for those that were in the middle of their work at the start."""
    shapes = (JobSize(gpus=4, duration=_spread(20)), JobSize(gpus=2, pods=2, duration=_spread(60)), JobSize(gpus=8))
    stream = ArrivalStream(name="s", namespace="a", shapes=shapes)
    first = replace(stream, at_start=0 if number else 1)
    jobs = (stream_job(first, seed, 1) for seed in range(9_999))
    of_size = (one.duration or 0 for one in jobs if sum(part.requests.get(GPU, 0) for part in one.pod_sets) == 4)
    wanted = sorted(length for length in of_size if length > known * MINUTE)
    drawn = sorted(draw_run_time(stream, number, 4, known * MINUTE, Random(seed)) for seed in range(4_000))
    for part in (0.1, 0.5, 0.9):
        assert drawn[int(part * len(drawn))] == pytest.approx(wanted[int(part * len(wanted))], rel=0.1)


def test_the_runs_do_not_know_what_the_simulation_has_planned() -> None:
    """Whatever the seed of the runs, also the simulation's own, arrivals are drawn anew: the runs differ."""
    simulation = busy(3)
    chances = {one.probability for one in risk(simulation, runs=20, seed=3, horizon=20 * MINUTE).workloads}
    assert chances - {0.0, 1.0}


def test_where_new_work_and_spot_interruptions_come_from_is_said() -> None:
    assert risk(busy(1), runs=1, horizon=MINUTE).assumptions[1:] == (
        "arrivals are drawn from the simulation's 2 arrival streams, 10 jobs per hour at this time of day",
        "no spot interruptions: the cluster has no spot nodes",
        "quotas, nodes and priorities do not change",
        "no controller latencies (latencies: none)",
    )


def test_arrivals_of_half_an_hour_are_drawn_again_where_no_stream_is_known() -> None:
    """Lender and borrower took turns on eight GPUs; the lender will come again while a borrower runs."""
    simulation = Simulation.from_objects(objects(nodes=1), policy=SimPolicy(), seed=1, start=START)
    turns = ((0, BORROW, "20m"), (21, LEND, "4m"), (26, BORROW, "19m"), (46, LEND, "3m"), (50, BORROW, "10h"))
    for minute, queue, span in turns:
        simulation.advance(START + minute * MINUTE + SECOND)
        _submit(simulation, f"w{minute}", queue, 8, span)
    simulation.advance(START + 51 * MINUTE)
    answer = risk(simulation, runs=20, horizon=HOUR)
    assert [one.workload for one in answer.workloads] == ["borrower/w50"]
    assert 0.15 < (answer.workloads[0].probability or 0) < 0.85
    assert answer.workloads[0].causes[0].by_queue == LEND
    assert answer.assumptions[1] == "arrivals are drawn from the recorded ones: 4 workloads in the last 30m59s"


def _submit(simulation: Simulation, name: str, queue: str, gpus: int, span: str) -> None:
    work = waiting(name, f"{queue}/lq", gpus, annotations={"gpuconsole.io/duration": span})
    simulation.submit(Submit((replace(work, uid="", created=simulation.now),)))


def spot(interrupted: int) -> Simulation:
    """Two spot nodes with work on both; some more were interrupted in the last hour."""
    labels = {"karpenter.sh/capacity-type": "spot"}
    made = [_node(f"gone{number}", labels) for number in range(interrupted)]
    things = [*objects(nodes=2, **labels), *made]
    simulation = Simulation.from_objects(things, policy=SimPolicy(), seed=1, start=START)
    for number in range(interrupted):
        simulation.advance(simulation.now + 10 * MINUTE)
        simulation.submit(InterruptSpot(f"gone{number}"))
    simulation.advance(START + HOUR)
    for number in range(2):
        _submit(simulation, f"w{number}", LEND, 8, "100h")
    simulation.advance(simulation.now + MINUTE)
    return simulation


def test_recorded_spot_interruptions_are_drawn_again_and_are_a_cause() -> None:
    simulation = spot(interrupted=3)
    lines = [event for event in simulation.drain() if isinstance(event, HistoryEvent)]
    answer = risk(simulation, lines, runs=10, horizon=6 * HOUR)
    assert {cause.reason for one in answer.workloads for cause in one.causes} == {"spot interruption"}
    assert all(0.15 < (one.probability or 0) < 0.85 for one in answer.workloads)
    assert answer.assumptions[2] == (
        "spot interruptions are drawn for 2 spot nodes, 1.2 per hour in total (3 interruptions recorded in the last 1h)"
    )


def test_without_a_record_a_spot_node_has_the_rate_of_its_kind() -> None:
    simulation = spot(interrupted=0)
    found = spot_interruptions(simulation.snapshot(), simulation.policy)
    assert found.per_hour == {"n0": pytest.approx(0.1 / 730), "n1": pytest.approx(0.1 / 730)}
    assert "(the rates of the instance-type catalogue)" in found.assumption
    drawn = [found.sample(seed, 0, 730 * HOUR) for seed in range(2000)]
    assert sum(map(len, drawn)) / 4000 == pytest.approx(0.095, abs=0.015)


def test_effort_bounds_the_runs_and_the_answer_says_how_far_it_looked() -> None:
    simulation = busy(2)
    pieces = [piece.answer for piece in eviction_risk_steps(simulation, effort=300) if piece.answer is not None]
    last = pieces[-1]
    assert 2 <= last.runs < 20
    assert [one.runs for one in pieces] == [*range(1, last.runs + 1), last.runs], "an answer after each run"
    assert {one.horizon for one in pieces} == {last.horizon}
    assert START + 2 * HOUR < last.horizon < last.wanted_horizon == START + 8 * HOUR
    assert last.wanted_runs == 20
    assert last == risk(simulation, effort=300), "the same again"


def test_a_clock_bounds_the_runs_as_well_and_a_run_that_it_cuts_off_does_not_count() -> None:
    simulation = busy(2)

    def bounded(seconds_a_step: float) -> Risk:
        ticks = count()
        *_, piece = eviction_risk_steps(simulation, clock=lambda: next(ticks) * seconds_a_step)
        assert piece.last
        assert piece.answer is not None
        return piece.answer

    quick, slow = bounded(0.0), bounded(0.01)
    assert (quick.runs, quick.horizon) == (20, START + 8 * HOUR)
    assert 1 <= slow.runs < 20
    assert START + 2 * HOUR < slow.horizon < START + 8 * HOUR
    assert bounded(1000.0).horizon == START + 2 * HOUR + MINUTE, "the first minute is always run"


def test_without_a_bound_all_runs_look_to_the_horizon() -> None:
    answer = risk(busy(2), runs=3, horizon=HOUR, effort=None)
    assert (answer.runs, answer.horizon) == (3, START + 3 * HOUR)


def test_the_cause_of_an_eviction_is_named_with_its_queue() -> None:
    answer = risk(busy(5), runs=10, horizon=2 * HOUR)
    causes = {(cause.reason, cause.by_queue) for one in answer.workloads for cause in one.causes}
    assert ("reclaim in cohort", LEND) in causes

"""Arrivals: the rate by the hour, the mix, and the same jobs for the same seed."""

from collections import Counter

import pytest

from gpuconsole.model.clock import DAY, HOUR, MINUTE, parse_time
from gpuconsole.model.events import HistoryEvent, HistoryEventKind
from gpuconsole.model.job import Job
from gpuconsole.model.resources import GPU
from gpuconsole.scheduling.kueue.config import KueueConfig
from gpuconsole.sim.engine import Simulation
from gpuconsole.sim.policy import SimPolicy
from gpuconsole.sim.run_times import ArrivalStream, JobSize, LogNormal, next_arrival, stream_job
from tests.support import sim_cluster
from tests.support.sim_cluster import START, submit, two_teams

MIDNIGHT = parse_time("2026-01-05T00:00:00Z")
STREAM = ArrivalStream(
    name="train",
    namespace="red",
    queue="lq",
    per_hour=30,
    kinds={"PyTorchJob": 3, "RayJob": 1},
    shapes=(JobSize(pods=2, gpus=1, weight=3), JobSize(pods=1, gpus=2)),
    duration=LogNormal(median=20 * MINUTE, sigma=0.7, least=MINUTE, most=2 * HOUR),
    checkpoint=LogNormal(median=5 * MINUTE),
    checkpointed=0.5,
    priorities={"high": 1, "low": 4},
)


def times(stream: ArrivalStream, days: int = 10) -> list[int]:
    found: list[int] = []
    time = MIDNIGHT
    while True:
        after = next_arrival(stream, 1, len(found) + 1, time)
        if after is None or after > MIDNIGHT + days * DAY:
            return found
        found.append(after)
        time = after


def sample(count: int = 800) -> list[Job]:
    return [stream_job(STREAM, 1, number) for number in range(1, count + 1)]


def test_the_rate_follows_the_hour_of_the_day() -> None:
    office = tuple(2.0 if 8 <= hour < 16 else 0.5 for hour in range(24))
    stream = ArrivalStream(name="x", namespace="red", per_hour=30, by_hour=office)
    by_hour = Counter((time - MIDNIGHT) // HOUR % 24 for time in times(stream))
    day, night = sum(by_hour[h] for h in range(8, 16)) / 80, sum(by_hour[h] for h in range(16, 24)) / 80
    assert 55 < day < 65
    assert 13 < night < 17


def test_a_stream_without_a_rate_never_arrives() -> None:
    assert next_arrival(ArrivalStream(name="x", namespace="red", per_hour=0), 1, 1, MIDNIGHT) is None
    assert next_arrival(ArrivalStream(name="x", namespace="red", by_hour=(0.0,) * 24), 1, 1, MIDNIGHT) is None


def test_kinds_sizes_classes_and_checkpoints_are_mixed_by_their_weights() -> None:
    jobs = sample()
    assert 0.70 < sum(j.kind == "PyTorchJob" for j in jobs) / len(jobs) < 0.80
    assert 0.70 < sum(sum(p.count for p in j.pod_sets if p.requests.get(GPU)) == 2 for j in jobs) / len(jobs) < 0.80
    assert 0.16 < sum(j.workload_priority_class == "high" for j in jobs) / len(jobs) < 0.24
    assert 0.45 < sum(j.checkpoint_interval is not None for j in jobs) / len(jobs) < 0.55


def test_every_job_asks_for_the_gpus_of_its_shape_whatever_its_kind() -> None:
    assert {sum(p.requests.get(GPU, 0) for p in j.pod_sets) for j in sample()} == {2}
    assert {tuple(p.name for p in j.pod_sets) for j in sample()} == {
        ("master", "worker"),
        ("master",),
        ("head", "workers"),
    }


def test_durations_lie_around_their_median_within_their_bounds() -> None:
    durations = sorted(j.duration or 0 for j in sample())
    assert 18 * MINUTE < durations[len(durations) // 2] < 22 * MINUTE
    assert durations[0] >= MINUTE
    assert durations[-1] <= 2 * HOUR


def test_the_same_seed_gives_the_same_jobs_and_another_seed_others() -> None:
    assert [stream_job(STREAM, 1, n) for n in (3, 2)] == [stream_job(STREAM, 1, 3), stream_job(STREAM, 1, 2)]
    assert stream_job(STREAM, 1, 3) != stream_job(STREAM, 2, 3)
    assert times(STREAM, 1) == times(STREAM, 1)


def test_what_is_there_at_the_start_is_in_the_middle_of_its_work() -> None:
    warm = ArrivalStream(
        name="warm", namespace="red", queue="lq", per_hour=0, at_start=4, duration=LogNormal(median=HOUR)
    )
    policy = SimPolicy(arrivals=(warm,), kueue=KueueConfig(ignore_undeclared=True))
    simulation = Simulation.from_objects(two_teams(), policy=policy, seed=1, start=START)
    started = [e for e in simulation.drain() if isinstance(e, HistoryEvent) and e.what is HistoryEventKind.STARTED]
    assert [line.time for line in started] == [START] * 4
    durations = [j.duration for j in simulation.snapshot().jobs.all()]
    assert all(duration is not None and 0 < duration < HOUR for duration in durations)
    assert len(set(durations)) == 4


def test_a_submission_changes_no_arrival() -> None:
    policy = SimPolicy(arrivals=(STREAM,))
    usual = Simulation.from_objects(two_teams(), policy=policy, seed=1, start=START)
    asked = usual.fork()
    submit(asked, sim_cluster.job("asked", gpus=4))
    for simulation in (usual, asked):
        simulation.advance(START + 3 * HOUR)
    arrived = [{j.key: j.duration for j in s.snapshot().jobs.all() if j.name != "asked"} for s in (usual, asked)]
    assert arrived[0] == arrived[1]
    assert len(arrived[0]) > 60


@pytest.mark.parametrize("kept", [None, 5 * MINUTE], ids=["all jobs stay", "finished jobs go"])
def test_a_cluster_that_goes_on_from_a_snapshot_meets_the_same_arrivals(kept: int | None) -> None:
    streams = (STREAM, ArrivalStream(name="late", namespace="blue", per_hour=4, at_start=1, first=2 * HOUR))
    policy = SimPolicy(arrivals=streams, keep_finished=kept)
    original = Simulation.from_objects(two_teams(8), policy=policy, seed=5, start=START)
    original.advance(START + HOUR)
    again = Simulation.from_snapshot(original.snapshot(), policy=policy, seed=5)
    original.drain()
    for simulation in (original, again):
        simulation.advance(simulation.now + 3 * HOUR)
    came, meets = (
        [
            (line.time, line.workload)
            for line in one.drain()
            if isinstance(line, HistoryEvent) and line.what is HistoryEventKind.SUBMITTED
        ]
        for one in (original, again)
    )
    assert len(came) > 60
    assert [time for time, _ in meets] == [time for time, _ in came]
    assert {name.rpartition("-")[0] for _, name in meets} == {name.rpartition("-")[0] for _, name in came}

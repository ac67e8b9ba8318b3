"""Admission fair sharing in the simulation: samples at virtual times, and what LocalQueues are shown to have used."""

import pytest
from msgspec.structs import replace

from gpuconsole.model.clock import HOUR, MINUTE, SECOND
from gpuconsole.model.events import Applied
from gpuconsole.model.objects import Object
from gpuconsole.model.queues import ClusterQueue, LocalQueue
from gpuconsole.model.resources import BILLIONTH
from gpuconsole.scheduling.kueue.config import AdmissionFairSharing, KueueConfig
from gpuconsole.sim.engine import Simulation
from gpuconsole.sim.policy import SimPolicy
from tests.support.sim_cluster import GPU, START, job, run, start, submit, two_teams

SETTINGS = AdmissionFairSharing(usage_half_life=10 * MINUTE, usage_sampling_interval=5 * MINUTE)
TURNS = SimPolicy(kueue=KueueConfig(admission_fair_sharing=SETTINGS))


def two_doors(mode: str = "UsageBasedAdmissionFairSharing") -> list[Object]:
    """Red has two LocalQueues, `lq` and `other`, that take turns at its 4 GPUs; no cohort lends it more."""
    things = [
        replace(thing, admission_mode=mode, cohort="") if isinstance(thing, ClusterQueue) else thing
        for thing in two_teams()
    ]
    return [*things, LocalQueue(namespace="red", name="other", cluster_queue="red")]


def door(simulation: Simulation, name: str = "lq") -> LocalQueue:
    return simulation.snapshot().local_queues[f"red/{name}"]


def gpus(simulation: Simulation, name: str = "lq") -> float:
    """What a LocalQueue is shown to have consumed."""
    return round(door(simulation, name).consumed.get(GPU, 0) / BILLIONTH, 2)


def test_consumption_is_shown_from_the_admission_on_and_grows_sample_by_sample() -> None:
    simulation = start(two_doors(), TURNS)
    submit(simulation, job("runs", gpus=4, duration=HOUR))
    shown = [gpus(simulation)]
    for _ in range(3):
        simulation.advance(simulation.now + 5 * MINUTE)
        shown.append(gpus(simulation))
    assert shown == [1.17, 2.0, 2.59, 3.0]
    assert door(simulation).sampled == START + 15 * MINUTE
    assert door(simulation).usage == pytest.approx(3.0, abs=0.01)
    assert door(simulation, "other").usage == 0.0


def test_the_local_queue_that_used_least_is_next_whatever_came_first() -> None:
    simulation = start(two_doors(), TURNS)
    submit(simulation, job("one", gpus=4, duration=20 * MINUTE))
    simulation.advance(simulation.now + MINUTE)
    submit(simulation, job("two", gpus=4, duration=20 * MINUTE))
    simulation.advance(simulation.now + MINUTE)
    submit(simulation, job("light", gpus=4, duration=20 * MINUTE, queue="other"))
    simulation.drain()
    lines = run(simulation, 2 * HOUR)
    assert [line for line in lines if "admitted" in line] == ["20:01 admitted red/light", "40:02 admitted red/two"]


@pytest.mark.parametrize(
    ("things", "policy"),
    [(two_doors("NoAdmissionFairSharing"), TURNS), (two_doors(), SimPolicy())],
    ids=["the queue does not ask for it", "Kueue is not configured for it"],
)
def test_without_it_the_oldest_is_next(things: list[Object], policy: SimPolicy) -> None:
    simulation = start(things, policy)
    submit(simulation, job("one", gpus=4, duration=20 * MINUTE))
    submit(simulation, job("two", gpus=4, duration=20 * MINUTE))
    simulation.advance(simulation.now + MINUTE)
    submit(simulation, job("light", gpus=4, duration=20 * MINUTE, queue="other"))
    simulation.drain()
    lines = run(simulation, 2 * HOUR)
    assert [line for line in lines if "admitted" in line] == ["20:01 admitted red/two", "40:02 admitted red/light"]
    assert door(simulation).usage is None


def test_a_cluster_that_has_come_to_rest_sets_no_more_timers() -> None:
    simulation = start(two_doors(), TURNS)
    submit(simulation, job("runs", gpus=4, duration=MINUTE))
    simulation.advance(START + HOUR)
    assert (simulation.next_time, gpus(simulation) > 0) == (None, True)
    before = gpus(simulation)
    submit(simulation, job("later", gpus=1, duration=MINUTE))
    assert gpus(simulation) < before


def test_without_admission_fair_sharing_nothing_is_looked_at() -> None:
    simulation = start(two_doors())
    submit(simulation, job("runs", gpus=4, duration=HOUR))
    simulation.drain()
    simulation.advance(START + 30 * MINUTE)
    assert simulation.drain() == []


def test_the_status_that_is_shown_is_an_event_like_any_other() -> None:
    simulation = start(two_doors(), TURNS)
    submit(simulation, job("runs", gpus=4, duration=HOUR))
    simulation.drain()
    simulation.advance(START + 6 * MINUTE)
    (event,) = simulation.drain()
    assert event == Applied(START + 5 * MINUTE, door(simulation))


def test_a_fork_and_a_saved_simulation_go_on_alike() -> None:
    simulation = start(two_doors(), TURNS)
    submit(simulation, job("one", gpus=4, duration=20 * MINUTE), job("two", gpus=4))
    simulation.advance(START + 7 * MINUTE + SECOND)
    twins = simulation.fork(), Simulation.load(simulation.save())
    wanted = run(simulation, HOUR), gpus(simulation), door(simulation)
    for twin in twins:
        assert (run(twin, HOUR), gpus(twin), door(twin)) == wanted


def test_a_cluster_that_goes_on_from_a_snapshot_remembers_what_was_used() -> None:
    simulation = start(two_doors(), TURNS)
    submit(simulation, job("runs", gpus=4, duration=10 * MINUTE))
    simulation.advance(START + 12 * MINUTE)
    again = Simulation.from_snapshot(simulation.snapshot(), policy=TURNS, seed=1)
    assert gpus(again) == gpus(simulation)
    submit(again, job("heavy", gpus=4, duration=MINUTE), job("light", gpus=4, duration=MINUTE, queue="other"))
    assert [w.queue for w in again.snapshot().workloads.all() if w.admitted and not w.finished] == ["other"]

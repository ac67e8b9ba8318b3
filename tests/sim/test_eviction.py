"""Evictions: what is lost, to the second; how long the quota is held; what comes back."""

from typing import NamedTuple

import pytest
from msgspec.structs import replace

from gpuconsole.model.clock import HOUR, MINUTE, SECOND, Span
from gpuconsole.model.commands import Delete, Requeue, SetActive
from gpuconsole.model.events import HistoryEvent, HistoryEventKind
from gpuconsole.model.prices import Prices
from gpuconsole.model.workloads import RequeueState
from gpuconsole.sim.engine import Simulation
from gpuconsole.sim.policy import SimPolicy
from tests.support.sim_cluster import START, job, key_of, log, run, start, submit, two_teams


class Lost(NamedTuple):
    ran: Span
    checkpoint: Span | None
    want: Span
    left: Span
    """How long it runs when it comes back."""


CASES = {
    "without checkpoints everything is lost": Lost(ran=10 * MINUTE, checkpoint=None, want=10 * MINUTE, left=HOUR),
    "with checkpoints only what came after the last": Lost(
        ran=10 * MINUTE, checkpoint=4 * MINUTE, want=2 * MINUTE, left=HOUR - 8 * MINUTE
    ),
    "at the very moment of a checkpoint nothing is lost": Lost(
        ran=12 * MINUTE, checkpoint=4 * MINUTE, want=0, left=HOUR - 12 * MINUTE
    ),
    "before the first checkpoint everything is lost": Lost(
        ran=3 * MINUTE, checkpoint=4 * MINUTE, want=3 * MINUTE, left=HOUR
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_lost_gpu_time_is_exact(case: Lost) -> None:
    simulation = start(two_teams())
    submit(simulation, job("train", gpus=2, pods=2, checkpoint=case.checkpoint))
    simulation.advance(START + case.ran)
    key = key_of(simulation, "red/train")
    simulation.drain()
    simulation.submit(Requeue(key))
    evicted = next(e for e in simulation.drain() if isinstance(e, HistoryEvent) and e.what is HistoryEventKind.EVICTED)
    assert evicted.lost_gpu_seconds == 4 * case.want / SECOND
    assert evicted.cost == pytest.approx(4 * case.want / HOUR * 2.21)
    simulation.advance(START + 3 * HOUR)
    finished = next(
        e for e in simulation.drain() if isinstance(e, HistoryEvent) and e.what is HistoryEventKind.FINISHED
    )
    assert finished.time == START + case.ran + SECOND + case.left


def test_checkpoints_add_up_over_several_evictions() -> None:
    simulation = start(two_teams())
    submit(simulation, job("train", checkpoint=4 * MINUTE, duration=20 * MINUTE))
    key = key_of(simulation, "red/train")
    for number in (1, 2):
        simulation.advance(simulation.now + 6 * MINUTE)
        simulation.submit(Requeue(key))
        simulation.advance(simulation.now + 30 * SECOND)
        assert simulation.snapshot().jobs["Job/red/train"].done == number * 4 * MINUTE
    assert log(simulation.drain())[-1] == "12:31 started red/train"
    assert run(simulation, HOUR) == ["24:31 finished red/train"]


def test_the_prices_are_those_of_the_policy() -> None:
    simulation = start(two_teams(), SimPolicy(prices=Prices(gpu_hour={"a100-80gb": 10.0})))
    submit(simulation, job("train", gpus=4))
    simulation.advance(START + HOUR // 2)
    simulation.submit(Requeue(key_of(simulation, "red/train")))
    evicted = next(e for e in simulation.drain() if isinstance(e, HistoryEvent) and e.what is HistoryEventKind.EVICTED)
    assert evicted.cost == pytest.approx(20.0)


def held(simulation: Simulation) -> list[tuple[int, int]]:
    """GPUs that are used of the quota, and that pods hold."""
    snapshot = simulation.snapshot()
    quota = sum(workload.gpus for workload in snapshot.workloads.all() if workload.reserved and not workload.finished)
    return [(quota, sum(len(pod.gpus) for pod in snapshot.pods.all() if not pod.done))]


def test_the_quota_of_a_pod_group_is_used_until_its_last_pod_is_gone() -> None:
    simulation = start(two_teams())
    submit(simulation, job("loan", gpus=2, pods=4, grace=45 * SECOND, kind="PodGroup"))
    simulation.advance(START + MINUTE)
    submit(simulation, job("claim", "blue", gpus=4))
    waiting = key_of(simulation, "blue/claim")
    simulation.advance(START + MINUTE + 45 * SECOND - 1)
    assert held(simulation) == [(8, 8)]
    assert not simulation.snapshot().workloads[waiting].reserved
    simulation.advance(START + MINUTE + 45 * SECOND)
    assert held(simulation) == [(4, 4)]
    assert simulation.snapshot().workloads[waiting].admitted


def test_the_quota_of_a_job_is_free_while_its_pods_still_use_their_gpus() -> None:
    simulation = start(two_teams())
    submit(simulation, job("loan", gpus=2, pods=4, grace=45 * SECOND))
    simulation.advance(START + MINUTE)
    submit(simulation, job("claim", "blue", gpus=4))
    waiting = key_of(simulation, "blue/claim")
    simulation.advance(START + MINUTE + SECOND - 1)
    assert held(simulation) == [(8, 8)]
    simulation.advance(START + MINUTE + 45 * SECOND - 1)
    assert held(simulation) == [(4, 8)]
    assert simulation.snapshot().workloads[waiting].admitted
    assert simulation.snapshot().pods["blue/claim-0"].node == ""
    simulation.advance(START + MINUTE + 45 * SECOND)
    assert held(simulation) == [(4, 4)]
    assert simulation.snapshot().pods["blue/claim-0"].node == "n1"


def test_a_pod_group_waits_for_the_longest_grace_period() -> None:
    simulation = start(two_teams())
    short = job("loan", gpus=2, pods=2, grace=10 * SECOND)
    long = job("x", gpus=2, pods=2, grace=60 * SECOND)
    mixed = job("loan", gpus=2, pods=2)
    parts = tuple(
        type(part)(name=name, count=part.count, template=part.template)
        for name, part in zip(("a", "b"), (short.pod_sets[0], long.pod_sets[0]), strict=True)
    )
    submit(
        simulation,
        type(mixed)(kind="PodGroup", namespace="red", name="loan", queue="lq", pod_sets=parts, duration=HOUR),
    )
    simulation.advance(START + MINUTE)
    simulation.submit(Requeue(key_of(simulation, "red/loan")))
    assert [line for line in run(simulation, 2 * MINUTE) if "requeued" in line] == ["2:00 requeued red/loan"]


def test_without_a_grace_period_the_quota_of_a_pod_group_is_free_when_its_controller_has_reacted() -> None:
    """Time has to pass: two groups that evict each other would stop the clock."""
    simulation = start(two_teams())
    submit(simulation, job("loan", gpus=4, pods=2, grace=0, kind="PodGroup"))
    simulation.advance(START + MINUTE)
    simulation.drain()
    submit(simulation, job("claim", "blue", gpus=4))
    assert run(simulation, MINUTE) == [
        "1:00 preempted red/loan by blue/claim InCohortReclamation",
        "1:00 evicted red/loan by blue/claim lost 480s Preempted",
        "1:01 requeued red/loan",
        "1:01 admitted blue/claim",
        "1:01 started blue/claim",
    ]


def test_without_a_grace_period_a_job_uses_its_quota_until_its_controller_has_reacted() -> None:
    simulation = start(two_teams())
    submit(simulation, job("loan", gpus=4, pods=2, grace=0))
    simulation.advance(START + MINUTE)
    simulation.drain()
    submit(simulation, job("claim", "blue", gpus=4))
    assert run(simulation, MINUTE) == [
        "1:00 preempted red/loan by blue/claim InCohortReclamation",
        "1:00 evicted red/loan by blue/claim lost 480s Preempted",
        "1:01 requeued red/loan",
        "1:01 admitted blue/claim",
        "1:01 started blue/claim",
    ]


def test_a_victim_none_of_whose_pods_has_a_node_keeps_its_quota_for_a_second() -> None:
    """Else two workloads that evict each other in turn would stop the clock."""
    simulation = start(two_teams(0))
    submit(simulation, job("loan", gpus=4, pods=2))
    simulation.advance(START + MINUTE)
    simulation.drain()
    submit(simulation, job("claim", "blue", gpus=4))
    assert run(simulation, MINUTE) == [
        "1:00 preempted red/loan by blue/claim InCohortReclamation",
        "1:00 evicted red/loan by blue/claim Preempted",
        "1:01 requeued red/loan",
        "1:01 admitted blue/claim",
    ]


def test_a_stopped_workload_gives_its_place_back_and_returns_when_resumed() -> None:
    simulation = start(two_teams())
    submit(simulation, job("train", duration=10 * MINUTE))
    simulation.advance(START + MINUTE)
    simulation.drain()
    key = key_of(simulation, "red/train")
    simulation.submit(SetActive(key, False))
    assert run(simulation, 5 * MINUTE) == ["1:00 evicted red/train lost 60s Deactivated"]
    stopped = simulation.snapshot().workloads[key]
    reserved = stopped.condition("QuotaReserved")
    assert reserved is not None
    assert (stopped.reserved, reserved.reason, reserved.message) == (
        False,
        "Inadmissible",
        "The workload is deactivated",
    )
    simulation.submit(SetActive(key, True))
    assert run(simulation, HOUR) == [
        "6:00 admitted red/train",
        "6:00 started red/train",
        "16:00 finished red/train",
    ]


def test_a_job_that_is_resumed_while_its_pods_terminate_starts_again_beside_them() -> None:
    simulation = start(two_teams())
    submit(simulation, job("train", duration=10 * MINUTE))
    key = key_of(simulation, "red/train")
    simulation.drain()
    simulation.submit(SetActive(key, False))
    simulation.advance(START + 10 * SECOND)
    simulation.submit(SetActive(key, True))
    assert sorted(bool(pod.deleted) for pod in simulation.snapshot().pods.all()) == [False, True]
    assert run(simulation, HOUR) == [
        "0:00 evicted red/train Deactivated",
        "0:10 admitted red/train",
        "0:10 started red/train",
        "10:10 finished red/train",
    ]


def test_a_pod_group_that_is_resumed_while_its_pods_terminate_starts_again_after_them() -> None:
    simulation = start(two_teams())
    submit(simulation, job("train", duration=10 * MINUTE, kind="PodGroup"))
    key = key_of(simulation, "red/train")
    simulation.drain()
    simulation.submit(SetActive(key, False))
    simulation.advance(START + 10 * SECOND)
    simulation.submit(SetActive(key, True))
    assert run(simulation, HOUR) == [
        "0:00 evicted red/train Deactivated",
        "0:30 requeued red/train",
        "0:30 admitted red/train",
        "0:30 started red/train",
        "10:30 finished red/train",
    ]


def test_deleting_a_running_workload_frees_its_quota_now_and_its_gpus_after_the_grace_period() -> None:
    simulation = start(two_teams())
    submit(simulation, job("train", gpus=4, pods=2))
    simulation.drain()
    simulation.submit(Delete("workloads", key_of(simulation, "red/train")))
    assert held(simulation) == [(0, 8)]
    submit(simulation, job("train", gpus=4, pods=2))
    assert log(simulation.drain()) == [
        "0:00 deleted red/train",
        "0:00 command-refused pods of an earlier Job red/train are still terminating; retry in a moment",
    ]
    simulation.advance(START + 30 * SECOND)
    snapshot = simulation.snapshot()
    assert (list(snapshot.workloads), list(snapshot.jobs), list(snapshot.pods)) == ([], [], [])


def test_a_preempted_workload_that_has_to_wait_is_queued_when_its_time_has_come() -> None:
    simulation = start(two_teams())
    submit(simulation, job("train", gpus=2, pods=4, duration=10 * MINUTE))
    key = key_of(simulation, "red/train")
    world = simulation._world
    workload = world.workload(key)
    assert workload is not None
    world.put(replace(workload, requeue=RequeueState(at=START + 5 * MINUTE)))
    simulation.drain()
    simulation.submit(Requeue(key))
    simulation.advance(START + 4 * MINUTE)
    waits = simulation.snapshot().workloads[key]
    assert (waits.reserved, waits.inadmissible) == (False, False)
    assert [line for line in run(simulation, 2 * MINUTE) if "admitted" in line] == ["5:00 admitted red/train"]

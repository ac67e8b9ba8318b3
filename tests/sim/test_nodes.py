"""Nodes: failing, coming back, drained, cordoned, deleted; and what becomes of the pods on them."""

from gpuconsole.model.clock import HOUR, MINUTE, SECOND
from gpuconsole.model.commands import Cordon, Delete, Drain, FailNode, FailPod, Requeue, RestoreNode
from gpuconsole.model.events import HistoryEvent, HistoryEventKind
from gpuconsole.model.job import JobPhase
from tests.support.sim_cluster import START, job, key_of, log, node, queue, run, start, submit, two_teams


def test_a_failed_node_takes_its_pods_along_and_the_workload_keeps_its_quota() -> None:
    simulation = start(two_teams(12))
    submit(simulation, job("train", gpus=2, pods=3, checkpoint=4 * MINUTE, duration=20 * MINUTE))
    simulation.advance(START + 10 * MINUTE)
    simulation.drain()
    simulation.submit(FailNode("n1"))
    assert simulation.snapshot().workloads[key_of(simulation, "red/train")].admitted
    assert run(simulation, HOUR) == [
        "10:00 node-down n1",
        "10:00 pod-failed red/train lost 720s NodeLost",
        "10:00 pod-failed red/train NodeLost",
        "10:00 started red/train",
        "22:00 finished red/train",
    ]


def test_pods_are_made_again_elsewhere_under_their_old_names() -> None:
    simulation = start(two_teams(12))
    submit(simulation, job("train", gpus=2, pods=3))
    before = {pod.name: (pod.node, pod.uid) for pod in simulation.snapshot().pods.all()}
    simulation.advance(START + MINUTE)
    simulation.submit(FailNode("n1"))
    after = {pod.name: (pod.node, pod.uid) for pod in simulation.snapshot().pods.all()}
    assert list(before) == ["train-0", "train-1", "train-2"]
    moved = {name for name in before if before[name] != after[name]}
    assert {name for name, (where, _) in before.items() if where == "n1"} == moved
    assert set(after) == set(before)
    assert "n1" not in {where for where, _ in after.values()}


def test_without_room_elsewhere_the_job_waits_for_the_node() -> None:
    simulation = start(two_teams(8))
    submit(simulation, job("train", gpus=4, pods=2, duration=20 * MINUTE))
    simulation.advance(START + 5 * MINUTE)
    simulation.drain()
    simulation.submit(FailNode("n1"))
    simulation.schedule_commands(START + 15 * MINUTE, RestoreNode("n1"))
    assert [line for line in run(simulation, HOUR) if "waiting" not in line] == [
        "5:00 node-down n1",
        "5:00 pod-failed red/train lost 2400s NodeLost",
        "5:00 deadlock red/train",
        "15:00 node-up n1",
        "15:00 started red/train",
        "35:00 finished red/train",
    ]


def test_a_drained_node_is_emptied_within_the_grace_period_and_takes_no_pods() -> None:
    simulation = start(two_teams(8))
    submit(simulation, job("train", gpus=4, duration=10 * MINUTE))
    simulation.advance(START + 4 * MINUTE)
    simulation.drain()
    simulation.submit(Drain("n1"))
    assert simulation.snapshot().nodes["n1"].unschedulable
    assert run(simulation, HOUR) == [
        "4:00 node-changed n1 Cordoned",
        "4:00 pod-evicted red/train lost 960s Drained",
        "4:30 started red/train",
        "14:30 finished red/train",
    ]


def test_a_cordoned_node_keeps_its_pods_and_takes_no_others_until_it_is_uncordoned() -> None:
    simulation = start(two_teams(4))
    submit(simulation, job("stays", gpus=2, duration=HOUR))
    simulation.submit(Cordon("n1", True))
    submit(simulation, job("waits", gpus=2, duration=HOUR))
    simulation.advance(START + MINUTE)
    assert {pod.name: pod.node for pod in simulation.snapshot().pods.all()} == {"stays-0": "n1", "waits-0": ""}
    simulation.drain()
    simulation.submit(Cordon("n1", False))
    assert log(simulation.drain()) == ["1:00 node-changed n1 Uncordoned", "1:00 started red/waits"]


def test_a_deleted_node_fails_its_pods() -> None:
    simulation = start(two_teams(8))
    submit(simulation, job("train", gpus=4))
    simulation.drain()
    simulation.submit(Delete("nodes", "n1"))
    assert log(simulation.drain()) == [
        "0:00 pod-failed red/train NodeLost",
        "0:00 node-down n1 Deleted",
        "0:00 started red/train",
    ]


def test_what_was_leaving_a_node_that_fails_is_gone_at_once() -> None:
    """A pod group waits for its terminating pods."""
    simulation = start(two_teams(8))
    submit(simulation, job("train", gpus=4, duration=10 * MINUTE, kind="PodGroup"))
    simulation.submit(Requeue(key_of(simulation, "red/train")))
    simulation.advance(START + 10 * SECOND)
    simulation.drain()
    simulation.submit(FailNode("n1"))
    assert log(simulation.drain()) == [
        "0:10 node-down n1",
        "0:10 requeued red/train",
        "0:10 admitted red/train",
        "0:10 started red/train",
    ]


def test_a_new_node_lets_those_in_who_waited_for_it() -> None:
    simulation = start([*two_teams(4), *queue("green", 8)])
    submit(simulation, job("big", "green", gpus=8))
    simulation.advance(START + MINUTE)
    simulation.drain()
    submit(simulation, node("big", gpus=8))
    assert log(simulation.drain()) == ["1:00 node-up big", "1:00 started green/big"]


def test_a_failed_pod_is_made_again_after_a_back_off_that_doubles() -> None:
    simulation = start(two_teams())
    submit(simulation, job("train", duration=10 * MINUTE))
    simulation.advance(START + MINUTE)
    simulation.drain()
    simulation.submit(FailPod("red/train-0"))
    simulation.advance(START + 2 * MINUTE)
    simulation.submit(FailPod("red/train-0"))
    assert run(simulation, HOUR) == [
        "1:00 pod-failed red/train lost 60s Error",
        "1:10 started red/train",
        "2:00 pod-failed red/train lost 50s Error",
        "2:20 started red/train",
        "12:20 finished red/train",
    ]


def test_a_job_that_fails_once_too_often_fails_and_frees_its_quota_when_its_pods_are_gone() -> None:
    simulation = start(two_teams())
    submit(simulation, job("train", pods=2, backoff_limit=0), job("other", gpus=4, pods=2, duration=MINUTE))
    simulation.drain()
    simulation.submit(FailPod("red/train-0"))
    assert run(simulation, 2 * MINUTE) == [
        "0:00 pod-failed red/train Error",
        "0:30 failed red/train",
        "0:31 admitted red/other",
        "0:31 started red/other",
        "1:31 finished red/other",
    ]
    failed = simulation.snapshot().jobs["Job/red/train"]
    assert (failed.phase, failed.failures) == (JobPhase.FAILED, 1)


def test_the_loss_of_a_crew_is_told_once_however_many_pods_fall() -> None:
    simulation = start(two_teams(4))
    submit(simulation, job("train", gpus=1, pods=4))
    simulation.advance(START + MINUTE)
    simulation.drain()
    simulation.submit(FailNode("n1"))
    losses = [
        e.lost_gpu_seconds
        for e in simulation.drain()
        if isinstance(e, HistoryEvent) and e.what is HistoryEventKind.POD_FAILED
    ]
    assert losses == [240.0, 0.0, 0.0, 0.0]

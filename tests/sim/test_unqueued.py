"""Without a queue: pods are made at once, kube-scheduler's priorities decide, and half-placed jobs block each other."""

from gpuconsole.model.clock import HOUR, MINUTE, SECOND
from gpuconsole.model.commands import Delete, FailPod
from gpuconsole.model.events import HistoryEvent, HistoryEventKind
from gpuconsole.model.job import JobPhase
from gpuconsole.scheduling.kube.profile import PlacementPolicy
from gpuconsole.sim.policy import SimPolicy
from tests.support.sim_cluster import START, UNQUEUED, job, log, nodes, pod, run, start, submit, two_teams

LOOSE = SimPolicy(kueue=None, placement=PlacementPolicy(gangs=False))


def test_a_job_without_a_queue_label_is_none_of_kueues_business() -> None:
    simulation = start(two_teams())
    submit(simulation, job("free", gpus=2, pods=2, queue="", duration=5 * MINUTE))
    assert list(simulation.snapshot().workloads) == []
    assert log(simulation.drain(), leave_out=()) == [
        "0:00 submitted Job/red/free",
        "0:00 pod-bound red/free-0",
        "0:00 pod-bound red/free-1",
        "0:00 started Job/red/free",
    ]
    assert run(simulation, HOUR) == ["5:00 finished Job/red/free"]
    assert simulation.snapshot().jobs["Job/red/free"].phase is JobPhase.SUCCEEDED


def test_without_queueing_the_queue_label_has_no_effect() -> None:
    simulation = start(two_teams(), UNQUEUED)
    submit(simulation, job("train", duration=MINUTE))
    assert run(simulation, HOUR) == ["0:00 started Job/red/train", "1:00 finished Job/red/train"]
    assert simulation.session is None


def test_pods_of_low_priority_make_room_within_their_grace_period() -> None:
    simulation = start(nodes(1), UNQUEUED)
    submit(simulation, *(pod(f"dev-{number}", priority=100) for number in range(4)))
    simulation.advance(START + MINUTE)
    simulation.drain()
    submit(simulation, pod("serve", gpus=2, priority=10_000))
    assert run(simulation, MINUTE) == [
        "1:00 preempted default/dev-2 by default/serve Preempted",
        "1:00 evicted default/dev-2 by default/serve lost 60s Preempted",
        "1:00 preempted default/dev-3 by default/serve Preempted",
        "1:00 evicted default/dev-3 by default/serve lost 60s Preempted",
        "1:30 started default/serve",
    ]


def test_a_pod_of_a_job_that_is_evicted_is_made_again_and_the_job_goes_on_from_its_checkpoint() -> None:
    simulation = start(nodes(2), UNQUEUED)
    submit(simulation, job("train", gpus=4, pods=2, checkpoint=MINUTE, duration=10 * MINUTE))
    simulation.advance(START + 90 * SECOND)
    simulation.drain()
    submit(simulation, pod("serve", gpus=4, priority=10_000, duration="5m"))
    lines = run(simulation, HOUR)
    assert [line for line in lines if "waiting" not in line and "deadlock" not in line] == [
        "1:30 preempted red/train-0 by default/serve Preempted",
        "1:30 evicted red/train-0 by default/serve lost 240s Preempted",
        "2:00 started default/serve",
        "7:00 finished default/serve",
        "7:00 started Job/red/train",
        "16:00 finished Job/red/train",
    ]


def test_a_lone_pod_runs_until_it_is_deleted_unless_it_says_how_long() -> None:
    simulation = start(nodes(1), UNQUEUED)
    submit(simulation, pod("server"), pod("batch", duration="10m"))
    assert run(simulation, 1000 * HOUR) == [
        "0:00 started default/batch",
        "0:00 started default/server",
        "10:00 finished default/batch",
    ]
    simulation.submit(Delete("pods", "default/server"))
    simulation.advance(simulation.now + 30 * SECOND)
    assert list(simulation.snapshot().pods) == ["default/batch"]


def test_a_lone_pod_that_fails_is_not_made_again() -> None:
    simulation = start(nodes(1), UNQUEUED)
    submit(simulation, pod("server"))
    simulation.drain()
    simulation.submit(FailPod("default/server"))
    assert run(simulation, HOUR) == ["0:00 pod-failed default/server Error"]


def test_half_placed_jobs_hold_gpus_and_are_named_and_gangs_hold_nothing() -> None:
    loose, whole = start(nodes(2), LOOSE), start(nodes(2), UNQUEUED)
    for simulation in (loose, whole):
        submit(simulation, pod("fills", gpus=4))
        submit(simulation, job("one", pods=6, kind="PyTorchJob"))
    held = [sum(len(pod.gpus) for pod in s.snapshot().pods.all()) for s in (loose, whole)]
    assert held == [8, 4]
    deadlocks = [e for e in loose.drain() if isinstance(e, HistoryEvent) and e.what is HistoryEventKind.DEADLOCK]
    assert [(line.workload, line.gpus, line.message) for line in deadlocks] == [
        (
            "PyTorchJob/red/one",
            4,
            "PyTorchJob/red/one holds 4 GPUs with 4 of 6 pods and waits for 2 more; 0 GPUs are free",
        )
    ]
    assert log(whole.drain())[-1] == "0:00 gang-waiting PyTorchJob/red/one"


def test_jobs_of_one_name_and_two_kinds_are_two_gangs() -> None:
    simulation = start(nodes(1), UNQUEUED)
    submit(simulation, job("x", gpus=2, pods=2, kind="PyTorchJob"), job("x", gpus=1, pods=2, kind="JobSet"))
    simulation.advance(START + MINUTE)
    pods = simulation.snapshot().pods
    assert {pod.job: pod.gang for pod in pods.all()} == {
        "PyTorchJob/red/x": "PyTorchJob/x",
        "JobSet/red/x": "JobSet/x",
    }
    assert {pod.job for pod in pods.all() if pod.node} == {"PyTorchJob/red/x"}
    assert len(pods) == 4


def test_deleting_a_lone_pod_is_told_as_that() -> None:
    simulation = start(nodes(1), UNQUEUED)
    submit(simulation, pod("server"))
    simulation.drain()
    simulation.submit(Delete("pods", "default/server"))
    assert log(simulation.drain()) == ["0:00 deleted default/server"]


def test_a_plain_job_that_does_not_fit_whole_holds_nothing_and_says_so() -> None:
    simulation = start(nodes(1), UNQUEUED)
    submit(simulation, job("wide", pods=8))
    assert [p.node for p in simulation.snapshot().pods.all()] == [""] * 8
    (waiting,) = [
        line
        for line in simulation.drain()
        if isinstance(line, HistoryEvent) and line.what is HistoryEventKind.GANG_WAITING
    ]
    assert waiting.workload == "Job/red/wide"
    assert waiting.message.startswith("gang red/Job/wide not scheduled: 4 of 8 pods fit; 0/1 nodes are available")


def test_without_gangs_the_deadlock_of_a_plain_job_is_named() -> None:
    simulation = start(nodes(1), LOOSE)
    submit(simulation, job("wide", pods=8))
    assert sorted(p.node for p in simulation.snapshot().pods.all()) == [""] * 4 + ["n1"] * 4
    (named,) = [
        line for line in simulation.drain() if isinstance(line, HistoryEvent) and line.what is HistoryEventKind.DEADLOCK
    ]
    assert named.message == ("Job/red/wide holds 4 GPUs with 4 of 8 pods and waits for 4 more; 0 GPUs are free")

"""Golden logs: small clusters whose whole history is asserted, line by line."""

from msgspec.structs import replace

from gpuconsole.model.clock import HOUR, MINUTE, SECOND
from gpuconsole.model.events import HistoryEvent, HistoryEventKind, KueueEvent
from gpuconsole.model.job import JobPhase
from gpuconsole.model.labels import Taint, Toleration
from gpuconsole.model.queues import ResourceFlavor
from gpuconsole.model.workloads import WorkloadPhase, phase
from tests.support.sim_cluster import (
    A100,
    START,
    job,
    key_of,
    log,
    node,
    queue,
    run,
    start,
    submit,
    two_teams,
    workload,
)


def test_a_job_is_queued_admitted_placed_and_finishes() -> None:
    simulation = start(two_teams())
    submit(simulation, job("train", gpus=2, pods=2, duration=10 * MINUTE))
    simulation.advance(START + HOUR)
    key = key_of(simulation, "red/train")
    admitted = HistoryEvent(
        time=START, what=HistoryEventKind.ADMITTED, workload=key, queue="red", flavor="a100", gpus=4
    )
    bound = replace(admitted, what=HistoryEventKind.POD_BOUND, flavor="", pod="red/train-0", node="n1", gpus=2)
    told = (
        KueueEvent(key, "QuotaReserved", "Quota reserved in ClusterQueue red, wait time since queued was 0s"),
        KueueEvent(key, "Admitted", "Admitted by ClusterQueue red, wait time since reservation was 0s"),
    )
    assert [event for event in simulation.drain() if isinstance(event, HistoryEvent)] == [
        replace(admitted, what=HistoryEventKind.SUBMITTED, flavor=""),
        replace(admitted, told=told),
        bound,
        replace(bound, pod="red/train-1"),
        replace(admitted, what=HistoryEventKind.STARTED, flavor=""),
        replace(
            admitted,
            time=START + 10 * MINUTE,
            what=HistoryEventKind.FINISHED,
            reason="Succeeded",
            message="Job finished successfully",
        ),
    ]
    snapshot = simulation.snapshot()
    finished = snapshot.jobs["Job/red/train"]
    assert (finished.phase, finished.started, finished.finished) == (JobPhase.SUCCEEDED, START, START + 10 * MINUTE)
    assert phase(snapshot.workloads[key]) is WorkloadPhase.FINISHED


def test_the_borrower_makes_room_and_returns_when_the_owner_is_done() -> None:
    simulation = start(two_teams())
    submit(simulation, job("own", gpus=4, duration=2 * HOUR))
    submit(simulation, job("loan", gpus=4, duration=20 * MINUTE, checkpoint=4 * MINUTE))
    assert run(simulation, 10 * MINUTE) == [
        "0:00 admitted red/own",
        "0:00 started red/own",
        "0:00 admitted red/loan",
        "0:00 started red/loan",
    ]
    submit(simulation, job("claim", "blue", gpus=4, duration=10 * MINUTE))
    # 10 minutes ran, 8 of them are safe: 2 minutes of 4 GPUs are lost, and 12 of the 20 minutes are left.
    assert run(simulation, HOUR) == [
        "10:00 preempted red/loan by blue/claim InCohortReclamation",
        "10:00 evicted red/loan by blue/claim lost 480s Preempted",
        "10:01 requeued red/loan",
        "10:01 admitted blue/claim",
        # Its pod waits for the GPUs of the pod that terminates.
        "10:30 started blue/claim",
        "20:30 finished blue/claim",
        "20:31 admitted red/loan",
        "20:31 started red/loan",
        "32:31 finished red/loan",
    ]


def test_a_borrowed_gpu_is_said_when_it_is_admitted() -> None:
    simulation = start(two_teams())
    submit(simulation, job("own", gpus=3), job("loan", gpus=3))
    borrowed = [
        e.borrowed for e in simulation.drain() if isinstance(e, HistoryEvent) and e.what is HistoryEventKind.ADMITTED
    ]
    assert borrowed == [0, 2]


def test_a_higher_class_goes_first_and_evicts_its_neighbour() -> None:
    simulation = start([thing for thing in two_teams(4) if getattr(thing, "name", "") != "blue"])
    submit(simulation, job("low", gpus=4, priority_class="low"))
    simulation.advance(START + MINUTE)
    submit(simulation, job("high", gpus=4, priority_class="high", duration=MINUTE))
    assert run(simulation, 5 * MINUTE) == [
        "0:00 admitted red/low",
        "0:00 started red/low",
        "1:00 preempted red/low by red/high InClusterQueue",
        "1:00 evicted red/low by red/high lost 240s Preempted",
        "1:01 requeued red/low",
        "1:01 admitted red/high",
        "1:30 started red/high",
        "2:30 finished red/high",
        "2:31 admitted red/low",
        "2:31 started red/low",
    ]


def test_a_bare_workload_gets_pods_from_its_pod_sets_and_remembers_its_checkpoints() -> None:
    simulation = start(two_teams())
    submit(simulation, workload("bare", gpus=2, pods=3, duration="10m", checkpoint_interval="3m"))
    simulation.advance(START + 5 * MINUTE)
    assert sorted(simulation.snapshot().pods) == ["red/bare-0", "red/bare-1", "red/bare-2"]
    submit(simulation, job("claim", "blue", gpus=4, duration=MINUTE))
    assert run(simulation, 15 * MINUTE)[2:] == [
        "5:00 preempted red/bare by blue/claim InCohortReclamation",
        "5:00 evicted red/bare by blue/claim lost 720s Preempted",
        "5:30 requeued red/bare",
        "5:30 admitted blue/claim",
        "5:30 started blue/claim",
        "6:30 finished blue/claim",
        "6:31 admitted red/bare",
        "6:31 started red/bare",
        "13:31 finished red/bare",
    ]


def test_a_gang_that_has_quota_but_no_nodes_waits_whole() -> None:
    simulation = start([*two_teams(8), *queue("green", 8)])
    submit(simulation, job("a", gpus=3, duration=20 * MINUTE), job("b", gpus=3, duration=20 * MINUTE))
    submit(simulation, job("gang", "green", gpus=2, pods=3, duration=5 * MINUTE, kind="PyTorchJob"))
    simulation.drain()
    waiting = [pod for pod in simulation.snapshot().pods.all() if pod.name.startswith("gang")]
    assert [(pod.node, pod.gpus) for pod in waiting] == [("", ())] * 3
    assert all("not scheduled" in pod.message for pod in waiting)
    assert run(simulation, 70 * MINUTE) == [
        "20:00 finished red/a",
        "20:00 finished red/b",
        "20:00 started green/gang",
        "25:00 finished green/gang",
    ]


def test_gang_waiting_is_told_once() -> None:
    simulation = start([*two_teams(8), *queue("green", 8)])
    submit(simulation, job("a", gpus=3), job("b", gpus=3))
    submit(simulation, job("gang", "green", gpus=2, pods=3, kind="PyTorchJob"))
    submit(simulation, job("c", gpus=1, duration=10 * SECOND))
    simulation.advance(START + MINUTE)
    told = [line for line in log(simulation.drain()) if "gang-waiting" in line]
    assert told == ["0:00 gang-waiting green/gang"]


def test_the_time_limit_deactivates_what_runs_too_long_evictions_included() -> None:
    simulation = start(two_teams())
    submit(simulation, job("long", gpus=4, duration=2 * HOUR, max_time=30 * MINUTE))
    assert run(simulation, HOUR) == [
        "0:00 admitted red/long",
        "0:00 started red/long",
        "30:00 evicted red/long lost 7200s DeactivatedDueToMaximumExecutionTimeExceeded",
    ]
    stopped = simulation.snapshot().workloads[key_of(simulation, "red/long")]
    assert (stopped.active, stopped.reserved, phase(stopped)) == (False, False, WorkloadPhase.STOPPED)


def test_pods_go_to_the_nodes_of_their_flavor_and_tolerate_what_it_tolerates() -> None:
    taint = Taint("reserved", "red")
    flavor = ResourceFlavor(name="a100", node_labels=A100, tolerations=(Toleration(key="reserved", operator="Exists"),))
    others = [replace(node("other"), labels={"kubernetes.io/hostname": "other"})]
    tainted = [replace(node("tainted"), taints=(taint,))]
    simulation = start([flavor, *queue("red", 4), *others, *tainted])
    submit(simulation, job("train", gpus=2))
    pod = simulation.snapshot().pods["red/train-0"]
    assert (pod.node, dict(pod.template.node_selector)) == ("tainted", A100)


def test_lines_of_history_carry_what_kueues_recorder_writes() -> None:
    simulation = start(two_teams())
    submit(simulation, job("loan", gpus=4, pods=2))
    simulation.advance(START + MINUTE)
    submit(simulation, job("claim", "blue", gpus=4))
    simulation.advance(START + 2 * MINUTE)
    lines = [event for event in simulation.drain() if isinstance(event, HistoryEvent)]
    loan, claim = key_of(simulation, "red/loan"), key_of(simulation, "blue/claim")
    assert [(line.what.value, one.workload, one.reason, one.warning) for line in lines for one in line.told] == [
        ("admitted", loan, "QuotaReserved", False),
        ("admitted", loan, "Admitted", False),
        ("pending", claim, "Pending", True),
        ("preempted", loan, "Preempted", False),
        ("preempted", claim, "PreemptedWorkload", False),
        ("evicted", loan, "EvictedDueToPreempted", False),
        ("admitted", claim, "QuotaReserved", False),
        ("admitted", claim, "Admitted", False),
        *[("pending", loan, "Pending", True)] * 2,
    ]
    reserved = next(line for line in reversed(lines) if line.what is HistoryEventKind.ADMITTED).told[0]
    assert reserved.message == "Quota reserved in ClusterQueue blue, wait time since queued was 1s"

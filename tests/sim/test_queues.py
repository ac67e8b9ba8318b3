"""Queues: held, drained, started again, moved between, resized, missing, deleted."""

from gpuconsole.model.clock import HOUR, MINUTE
from gpuconsole.model.commands import Command, Delete, MoveToQueue, SetPriority, SetQuota, SetStopPolicy
from gpuconsole.model.queues import Cohort, LocalQueue, ResourceFlavor, StopPolicy
from gpuconsole.sim.engine import Simulation
from tests.support.sim_cluster import GPU, START, job, key_of, log, queue, run, start, submit, two_teams


def text_of(simulation: Simulation, name: str) -> str:
    """Why it is pending, as `reason: message`."""
    reserved = simulation.snapshot().workloads[key_of(simulation, name)].condition("QuotaReserved")
    return "" if reserved is None or reserved.status else f"{reserved.reason}: {reserved.message}"


def order(simulation: Simulation, command: Command) -> list[str]:
    simulation.drain()
    simulation.submit(command)
    return log(simulation.drain())


def test_a_held_queue_admits_nobody_new_and_lets_run_what_runs() -> None:
    simulation = start(two_teams())
    submit(simulation, job("runs", duration=10 * MINUTE))
    assert order(simulation, SetStopPolicy("red", StopPolicy.HOLD)) == ["0:00 queue-changed StopPolicyHold"]
    submit(simulation, job("waits", duration=MINUTE))
    assert text_of(simulation, "red/waits") == "Inadmissible: ClusterQueue red is inactive"
    assert run(simulation, 20 * MINUTE) == ["10:00 finished red/runs"]
    assert order(simulation, SetStopPolicy("red", StopPolicy.NONE)) == [
        "20:00 queue-changed StopPolicyNone",
        "20:00 admitted red/waits",
        "20:00 started red/waits",
    ]


def test_a_drained_queue_evicts_what_runs_and_takes_it_back_when_it_starts_again() -> None:
    simulation = start(two_teams())
    submit(simulation, job("runs", duration=10 * MINUTE))
    simulation.advance(START + MINUTE)
    assert order(simulation, SetStopPolicy("red", StopPolicy.HOLD_AND_DRAIN)) == [
        "1:00 queue-changed StopPolicyHoldAndDrain",
        "1:00 evicted red/runs lost 60s ClusterQueueStopped",
    ]
    assert run(simulation, 4 * MINUTE) == []
    assert text_of(simulation, "red/runs") == "Inadmissible: ClusterQueue red is inactive"
    simulation.submit(SetStopPolicy("red", StopPolicy.NONE))
    assert run(simulation, HOUR)[-3:] == [
        "5:00 admitted red/runs",
        "5:00 started red/runs",
        "15:00 finished red/runs",
    ]


def test_a_local_queue_is_held_without_its_neighbours() -> None:
    simulation = start([*two_teams(), LocalQueue(namespace="red", name="other", cluster_queue="red")])
    simulation.submit(SetStopPolicy("red/lq", StopPolicy.HOLD))
    submit(simulation, job("held"), job("free", queue="other"))
    assert text_of(simulation, "red/held") == "Inadmissible: LocalQueue lq is inactive"
    assert simulation.snapshot().workloads[key_of(simulation, "red/free")].admitted


def test_a_missing_queue_is_named_and_its_creation_lets_the_workload_in() -> None:
    simulation = start(two_teams())
    submit(simulation, job("early", queue="later"))
    assert text_of(simulation, "red/early") == "Inadmissible: LocalQueue later doesn't exist"
    submit(simulation, LocalQueue(namespace="red", name="later", cluster_queue="nowhere"))
    assert text_of(simulation, "red/early") == "Inadmissible: ClusterQueue nowhere doesn't exist"
    submit(simulation, LocalQueue(namespace="red", name="later", cluster_queue="red"))
    simulation.advance(START + MINUTE)
    assert simulation.snapshot().workloads[key_of(simulation, "red/early")].admitted


def test_a_queue_whose_flavor_is_missing_is_inactive_until_the_flavor_is_there() -> None:
    simulation = start([*two_teams(), *queue("green", 4, flavor="h100")])
    submit(simulation, job("early", "green"))
    assert text_of(simulation, "green/early") == "Inadmissible: ClusterQueue green is inactive"
    submit(simulation, ResourceFlavor(name="h100"))
    simulation.advance(START + MINUTE)
    assert simulation.snapshot().workloads[key_of(simulation, "green/early")].admitted
    simulation.submit(Delete("flavors", "h100"))
    submit(simulation, job("late", "green"))
    assert text_of(simulation, "green/late") == "Inadmissible: ClusterQueue green is inactive"


def test_cohorts_that_are_their_own_ancestors_make_their_queues_inactive() -> None:
    simulation = start([*two_teams(), Cohort(name="org", parent="top")])
    submit(simulation, Cohort(name="top", parent="org"), job("stuck"))
    assert text_of(simulation, "red/stuck") == "Inadmissible: ClusterQueue red is inactive"


def test_a_queue_that_holds_quota_cannot_be_deleted_and_an_empty_one_can() -> None:
    simulation = start(two_teams())
    submit(simulation, job("runs"))
    key = key_of(simulation, "red/runs")
    assert order(simulation, Delete("cluster_queues", "red")) == [
        f"0:00 command-refused 1 workload holds quota through red ({key}); drain it first"
    ]
    assert order(simulation, Delete("cluster_queues", "blue")) == ["0:00 queue-changed Deleted"]
    submit(simulation, job("lost", "blue"))
    assert text_of(simulation, "blue/lost") == "Inadmissible: ClusterQueue blue doesn't exist"


def test_a_waiting_workload_can_move_and_a_running_one_cannot() -> None:
    simulation = start([*two_teams(), LocalQueue(namespace="red", name="guest", cluster_queue="blue")])
    submit(simulation, job("fills", gpus=4, pods=2), job("waits"))
    waiting, running = key_of(simulation, "red/waits"), key_of(simulation, "red/fills")
    assert order(simulation, MoveToQueue(running, "guest")) == [
        f"0:00 command-refused red/fills workload {running} holds quota in red; "
        "stop it first, then move it, then resume it"
    ]
    simulation.submit(MoveToQueue(waiting, "guest"))
    simulation.advance(START + MINUTE)
    moved = simulation.snapshot().workloads[waiting]
    assert (moved.queue, moved.cluster_queue) == ("guest", "blue")
    assert simulation.snapshot().jobs["Job/red/waits"].queue == "guest"


def test_a_raised_priority_goes_first() -> None:
    simulation = start(two_teams())
    submit(simulation, job("fills", gpus=4, pods=2, duration=MINUTE))
    submit(simulation, job("older", gpus=4, pods=2, duration=MINUTE), job("newer", gpus=4, pods=2, duration=MINUTE))
    simulation.submit(SetPriority(key_of(simulation, "red/newer"), 5))
    admitted = [line for line in run(simulation, HOUR) if "admitted" in line]
    assert admitted[1:] == ["1:01 admitted red/newer", "2:02 admitted red/older"]


def test_the_priority_of_a_running_workload_decides_who_is_evicted() -> None:
    simulation = start([thing for thing in two_teams(4) if getattr(thing, "name", "") != "blue"])
    submit(simulation, job("one", gpus=2), job("two", gpus=2))
    simulation.submit(SetPriority(key_of(simulation, "red/one"), 500))
    simulation.submit(SetPriority(key_of(simulation, "red/two"), 400))
    simulation.drain()
    submit(simulation, job("high", gpus=2, priority_class="high"))
    assert "0:00 preempted red/two by red/high InClusterQueue" in log(simulation.drain())


def test_more_quota_wakes_who_waits_and_less_evicts_nobody() -> None:
    simulation = start(two_teams(16))
    submit(simulation, job("fills", gpus=4, pods=2), job("waits", gpus=4))
    simulation.submit(SetQuota("red", "a100", GPU, 8))
    assert run(simulation, MINUTE)[-2:] == ["0:01 admitted red/waits", "0:01 started red/waits"]
    simulation.submit(SetQuota("red", "a100", GPU, 0))
    assert run(simulation, MINUTE) == ["1:00 queue-changed Quota"]

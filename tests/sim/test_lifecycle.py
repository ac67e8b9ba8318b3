"""What Kueue's workload controller does in the simulation: pods that take too long, deactivation, retention, stops."""

from msgspec.structs import replace

from gpuconsole.model.clock import HOUR, MINUTE, SECOND, Span
from gpuconsole.model.commands import Command, FailNode, RestoreNode, SetActive, SetStopPolicy
from gpuconsole.model.queues import AdmissionCheck, CheckRule, ClusterQueue, StopPolicy
from gpuconsole.model.workloads import RequeueState, Workload
from gpuconsole.scheduling.kueue.config import KueueConfig, ObjectRetention, RequeuingStrategy, WaitForPodsReady
from gpuconsole.sim.engine import Simulation
from gpuconsole.sim.policy import Checks, SimPolicy
from tests.support.sim_cluster import START, job, key_of, log, queue, run, start, submit, two_teams


def policy(*, gates: dict[str, bool] | None = None, **settings: object) -> SimPolicy:
    """A policy that gives pods 5 minutes, and 2 to recover, unless said otherwise."""
    strategy = RequeuingStrategy(backoff_base_seconds=60, backoff_max_seconds=150)
    ready = WaitForPodsReady(timeout=5 * MINUTE, recovery_timeout=2 * MINUTE, requeuing_strategy=strategy)
    changed = {name: value for name, value in settings.items() if name in WaitForPodsReady.__struct_fields__}
    retention = settings.get("retention", ObjectRetention())
    assert isinstance(retention, ObjectRetention)
    limited = settings.get("limit")
    if isinstance(limited, int):
        changed["requeuing_strategy"] = replace(strategy, backoff_limit_count=limited)
    kueue = KueueConfig(wait_for_pods_ready=replace(ready, **changed), object_retention=retention, gates=gates or {})
    return SimPolicy(kueue=kueue)


def quota_without_nodes(policy: SimPolicy) -> Simulation:
    """Green has quota for a gang that finds no nodes."""
    simulation = start([*two_teams(4), *queue("green", 8)], policy)
    submit(simulation, job("gang", "green", gpus=2, pods=3, kind="PyTorchJob"))
    simulation.drain()
    return simulation


def order(simulation: Simulation, command: Command) -> list[str]:
    """Carry a command out; what happened at once, waiting included."""
    simulation.drain()
    simulation.submit(command)
    return log(simulation.drain(), leave_out=())


def moves(simulation: Simulation, span: Span) -> list[str]:
    """What happens to workloads; that pods wait for nodes is left out."""
    return [line for line in run(simulation, span) if "gang-waiting" not in line]


def gang(simulation: Simulation) -> Workload:
    return simulation.snapshot().workloads[key_of(simulation, "green/gang")]


def condition(workload: Workload, kind: str) -> str:
    found = workload.condition(kind)
    assert found is not None
    return f"{found.status} {found.reason}: {found.message}"


def test_pods_that_are_not_ready_in_time_go_back_and_wait_longer_each_time() -> None:
    simulation = quota_without_nodes(policy())
    assert condition(gang(simulation), "PodsReady") == "False WaitForStart: Not all pods are ready or succeeded"
    assert moves(simulation, 22 * MINUTE) == [
        "5:00 evicted green/gang PodsReadyTimeout",
        "6:00 requeued green/gang",
        "6:00 admitted green/gang",
        "11:00 evicted green/gang PodsReadyTimeout",
        "13:00 requeued green/gang",
        "13:00 admitted green/gang",
        "18:00 evicted green/gang PodsReadyTimeout",
        "20:30 requeued green/gang",
        "20:30 admitted green/gang",
    ]
    again = gang(simulation)
    assert again.requeue == RequeueState(3, None)
    key = key_of(simulation, "green/gang")
    assert condition(again, "Evicted") == f"False QuotaReserved: Previously: Exceeded the PodsReady timeout {key}"
    assert condition(again, "Requeued") == "True BackoffFinished: The workload backoff was finished"
    assert [(one.reason, one.underlying_cause, one.count) for one in again.scheduling_stats.evictions] == [
        ("PodsReadyTimeout", "WaitForStart", 3)
    ]


def test_too_many_retries_deactivate_it_and_its_retries_are_forgotten() -> None:
    simulation = quota_without_nodes(policy(limit=1))
    assert moves(simulation, HOUR) == [
        "5:00 evicted green/gang PodsReadyTimeout",
        "6:00 requeued green/gang",
        "6:00 admitted green/gang",
        "11:00 evicted green/gang DeactivatedDueToRequeuingLimitExceeded",
    ]
    stopped = gang(simulation)
    assert (stopped.active, stopped.reserved, stopped.requeue) == (False, False, RequeueState())
    assert stopped.condition("DeactivationTarget") is None
    assert condition(stopped, "Evicted") == (
        "True DeactivatedDueToRequeuingLimitExceeded: "
        "The workload is deactivated due to exceeding the maximum number of re-queuing retries"
    )


def test_a_job_that_loses_a_pod_has_its_own_time_to_recover() -> None:
    simulation = start(two_teams(4), policy())
    submit(simulation, job("train", gpus=4, duration=HOUR))
    simulation.advance(START + 10 * MINUTE)
    node = next(pod.node for pod in simulation.snapshot().pods.all() if pod.name.startswith("train"))
    order(simulation, FailNode(node))
    waiting = simulation.snapshot().workloads[key_of(simulation, "red/train")]
    assert condition(waiting, "PodsReady") == (
        "False WaitForRecovery: At least one pod has failed, waiting for recovery"
    )
    told = run(simulation, 20 * MINUTE)
    assert "12:00 evicted red/train PodsReadyTimeout" in told
    back = simulation.snapshot().workloads[key_of(simulation, "red/train")]
    first = back.scheduling_stats.evictions[0]
    assert (first.reason, first.underlying_cause, first.count) == ("PodsReadyTimeout", "WaitForRecovery", 1)


def test_who_recovers_in_time_goes_on_and_says_so() -> None:
    simulation = start(two_teams(4), policy())
    submit(simulation, job("train", gpus=4, duration=HOUR))
    simulation.advance(START + 10 * MINUTE)
    node = next(pod.node for pod in simulation.snapshot().pods.all() if pod.name.startswith("train"))
    order(simulation, FailNode(node))
    simulation.advance(START + 11 * MINUTE)
    order(simulation, RestoreNode(node))
    assert not [line for line in run(simulation, 30 * MINUTE) if "evicted" in line]
    again = simulation.snapshot().workloads[key_of(simulation, "red/train")]
    assert condition(again, "PodsReady") == ("True Recovered: All pods reached readiness and the workload is running")


def test_without_the_feature_pods_may_take_any_time() -> None:
    for free in (
        policy(gates={"DisableWaitForPodsReady": True}),
        SimPolicy(kueue=KueueConfig(wait_for_pods_ready=None)),
    ):
        assert run(quota_without_nodes(free), 2 * HOUR) == []


def test_forks_and_saved_simulations_keep_looking() -> None:
    simulation = quota_without_nodes(policy())
    simulation.advance(START + MINUTE)
    fork, loaded = simulation.fork(), Simulation.load(simulation.save())
    told = run(simulation, 30 * MINUTE)
    assert told[0] == "5:00 evicted green/gang PodsReadyTimeout"
    assert run(fork, 30 * MINUTE) == run(loaded, 30 * MINUTE) == told


def test_the_execution_time_counts_over_evictions() -> None:
    """The second until its quota was released counts, too."""
    simulation = start(two_teams(), policy())
    submit(simulation, job("long", gpus=4, duration=2 * HOUR, max_time=30 * MINUTE))
    simulation.advance(START + 10 * MINUTE)
    order(simulation, SetStopPolicy("red", StopPolicy.HOLD_AND_DRAIN))
    simulation.advance(START + 20 * MINUTE)
    order(simulation, SetStopPolicy("red", StopPolicy.NONE))
    told = run(simulation, 2 * HOUR)
    assert [line for line in told if "evicted" in line] == [
        "39:59 evicted red/long lost 4796s DeactivatedDueToMaximumExecutionTimeExceeded"
    ]
    stopped = simulation.snapshot().workloads[key_of(simulation, "red/long")]
    assert condition(stopped, "Evicted") == (
        "True DeactivatedDueToMaximumExecutionTimeExceeded: "
        "The workload is deactivated due to exceeding the maximum execution time"
    )


def test_a_queue_on_hold_takes_quota_back_from_who_is_not_admitted_yet() -> None:
    """Nobody answers the check, so the workload only holds quota; it is no eviction when that is taken back."""
    checked = [
        replace(thing, checks=(CheckRule(name="budget"),)) if isinstance(thing, ClusterQueue) else thing
        for thing in two_teams()
    ]
    things = [*checked, AdmissionCheck(name="budget", controller="example.com/budget")]
    simulation = start(things, replace(policy(), checks=Checks.WAIT))
    submit(simulation, job("waits"))
    key = key_of(simulation, "red/waits")
    assert simulation.snapshot().workloads[key].reserved
    assert order(simulation, SetStopPolicy("red", StopPolicy.HOLD)) == [
        "0:00 queue-changed StopPolicyHold",
        "0:00 pending red/waits",
        "0:00 pending red/waits",
    ]
    held = simulation.snapshot().workloads[key]
    assert condition(held, "QuotaReserved") == "False Inadmissible: ClusterQueue red is inactive"
    assert "ClusterQueue red is stopped" in [line.message for line in simulation.snapshot().recent]
    assert (held.admission, held.condition("Evicted")) == (None, None)
    order(simulation, SetStopPolicy("red", StopPolicy.NONE))
    simulation.advance(START + 5 * SECOND)
    assert simulation.snapshot().workloads[key].reserved


def test_finished_workloads_are_deleted_after_a_while_their_jobs_stay() -> None:
    simulation = start(two_teams(), policy(retention=ObjectRetention(after_finished=10 * MINUTE)))
    submit(simulation, job("short", duration=5 * MINUTE))
    simulation.drain()
    assert run(simulation, HOUR) == ["5:00 finished red/short", "15:00 deleted red/short"]
    snapshot = simulation.snapshot()
    assert (len(snapshot.workloads), [found.name for found in snapshot.jobs.all()]) == (0, ["short"])


def test_what_kueue_deactivated_is_deleted_after_a_while_with_its_job() -> None:
    kept = ObjectRetention(after_deactivated_by_kueue=10 * MINUTE)
    simulation = quota_without_nodes(policy(limit=0, retention=kept))
    assert run(simulation, HOUR) == [
        "5:00 evicted green/gang DeactivatedDueToRequeuingLimitExceeded",
        "15:00 deleted green/gang",
    ]
    assert (len(simulation.snapshot().workloads), len(simulation.snapshot().jobs)) == (0, 0)


def test_what_an_operator_deactivated_is_kept() -> None:
    kept = ObjectRetention(after_deactivated_by_kueue=10 * MINUTE)
    simulation = quota_without_nodes(policy(retention=kept))
    order(simulation, SetActive(key_of(simulation, "green/gang"), False))
    run(simulation, HOUR)
    assert not gang(simulation).active


def test_who_waits_is_marked_when_it_is_stopped_and_begins_anew_when_it_is_let_in() -> None:
    simulation = start(two_teams(), policy())
    submit(simulation, job("holds", gpus=8), job("waits", gpus=4))
    key = key_of(simulation, "red/waits")
    order(simulation, SetActive(key, False))
    stopped = simulation.snapshot().workloads[key]
    assert condition(stopped, "Evicted") == "True Deactivated: The workload is deactivated"
    order(simulation, SetActive(key, True))
    order(simulation, SetActive(key_of(simulation, "red/holds"), False))
    simulation.advance(START + MINUTE)
    runs = simulation.snapshot().workloads[key]
    assert condition(runs, "Evicted") == "False QuotaReserved: Previously: The workload is deactivated"
    assert runs.admitted


def test_nobody_is_admitted_while_pods_are_not_ready_if_that_blocks() -> None:
    """The gang finds no nodes until the one job that fills them is done."""
    simulation = start([*two_teams(4), *queue("green", 8)], policy(block_admission=True, timeout=HOUR))
    submit(simulation, job("first", gpus=4, duration=10 * MINUTE))
    submit(simulation, job("gang", "green", gpus=2, pods=2, kind="PyTorchJob", duration=10 * MINUTE))
    simulation.advance(START + MINUTE)
    submit(simulation, job("next", "green", duration=MINUTE))
    waiting = simulation.snapshot().workloads[key_of(simulation, "green/next")]
    assert condition(waiting, "QuotaReserved") == (
        "False Waiting: waiting for all admitted workloads to be in PodsReady condition"
    )
    simulation.drain()
    assert moves(simulation, 10 * MINUTE) == [
        "10:00 finished red/first",
        "10:00 started green/gang",
        "10:00 admitted green/next",
    ]

"""Wake-ups: freed quota is seen by parked workloads a second later, and a newcomer may be faster."""

from gpuconsole.model.clock import HOUR, MINUTE, SECOND
from gpuconsole.model.commands import Finish, Submit
from gpuconsole.scheduling.kueue.config import KueueConfig, WaitForPodsReady
from gpuconsole.sim.engine import Simulation
from gpuconsole.sim.policy import SimPolicy
from tests.support.sim_cluster import START, at, job, key_of, queue, run, short, start, submit, two_teams

AT_ONCE = SimPolicy(wake_up_batch=0)


def full(policy: SimPolicy) -> Simulation:
    """Eight GPUs are used until 1:00, and `parked` waits for four of them."""
    simulation = start(two_teams(), policy)
    submit(simulation, job("fills", gpus=4, pods=2, duration=MINUTE))
    submit(simulation, job("parked", gpus=4, pods=2, duration=HOUR))
    simulation.drain()
    return simulation


def test_parked_workloads_wake_a_second_after_quota_is_freed() -> None:
    assert run(full(SimPolicy()), 2 * MINUTE) == [
        "1:00 finished red/fills",
        "1:01 admitted red/parked",
        "1:01 started red/parked",
    ]


def test_with_an_empty_batch_they_wake_at_once() -> None:
    assert run(full(AT_ONCE), 2 * MINUTE) == [
        "1:00 finished red/fills",
        "1:00 admitted red/parked",
        "1:00 started red/parked",
    ]


def test_behind_its_gate_kueue_gathers_for_ten_seconds() -> None:
    patient = SimPolicy(kueue=KueueConfig(gates={"SchedulerLongRequeueInterval": True}))
    assert run(full(patient), 2 * MINUTE)[:2] == ["1:00 finished red/fills", "1:10 admitted red/parked"]


def test_a_newcomer_of_another_shape_takes_what_the_parked_do_not_know_of_yet() -> None:
    simulation = full(SimPolicy())
    at(simulation, (MINUTE + SECOND // 2, Submit((job("fast", gpus=3, duration=10 * MINUTE),))))
    assert run(simulation, 2 * MINUTE) == [
        "1:00 finished red/fills",
        "1:00 admitted red/fast",
        "1:00 started red/fast",
    ]


def test_what_is_freed_within_the_batch_wakes_them_once() -> None:
    simulation = start(two_teams())
    submit(simulation, job("one", gpus=4), job("two", gpus=4))
    submit(simulation, job("parked", gpus=4, pods=2, duration=HOUR))
    at(simulation, (MINUTE, Finish("red/one")), (MINUTE + SECOND // 4, Finish("red/two")))
    assert [line for line in run(simulation, 2 * MINUTE) if "parked" in line] == [
        "1:01 admitted red/parked",
        "1:01 started red/parked",
    ]
    assert simulation.now == START + 2 * MINUTE


def test_a_saved_simulation_remembers_who_is_parked_and_that_a_wake_up_is_due() -> None:
    simulation = full(SimPolicy())
    simulation.advance(START + MINUTE + SECOND // 2)
    loaded = Simulation.load(simulation.save())
    for one in (simulation, loaded):
        one.drain()
        submit(one, job("fast", gpus=3, duration=10 * MINUTE))
    wanted = ["1:00 admitted red/fast", "1:00 started red/fast"]
    assert run(loaded, MINUTE) == run(simulation, MINUTE) == wanted


def test_look_alikes_of_a_parked_workload_are_parked_with_it_and_said_to_be() -> None:
    simulation = full(SimPolicy())
    submit(simulation, *(job(f"alike-{number}", gpus=4, pods=2) for number in range(3)))
    simulation.advance(START + 10 * SECOND)
    parked = {short(w.key): w.inadmissible for w in simulation.snapshot().workloads.all()}
    assert parked == {
        "red/fills": False,
        "red/parked": True,
        "red/alike-0": True,
        "red/alike-1": True,
        "red/alike-2": True,
    }
    assert simulation.session is not None
    assert [p.inadmissible for p in simulation.session.pending_workloads("red")] == [True] * 4


def test_where_admission_is_blocked_the_next_comes_when_the_one_before_is_ready() -> None:
    """Its pods have no room, so it does not become ready before somebody else's leave."""
    settings = WaitForPodsReady(block_admission=True)
    simulation = start(
        [*two_teams(4), *queue("green", 4, cohort="")], SimPolicy(kueue=KueueConfig(wait_for_pods_ready=settings))
    )
    submit(simulation, job("fills", gpus=4, duration=MINUTE))
    submit(simulation, job("stuck", "blue", gpus=1))
    submit(simulation, job("next", "green", gpus=1))
    assert run(simulation, MINUTE - SECOND) == [
        "0:00 admitted red/fills",
        "0:00 started red/fills",
        "0:00 admitted blue/stuck",
    ]
    told = simulation.snapshot().workloads[key_of(simulation, "green/next")].condition("QuotaReserved")
    assert told is not None
    assert (told.reason, told.message) == (
        "Waiting",
        "waiting for all admitted workloads to be in PodsReady condition",
    )
    assert run(simulation, 10 * SECOND) == [
        "1:00 finished red/fills",
        "1:00 started blue/stuck",
        "1:00 admitted green/next",
        "1:00 started green/next",
    ]

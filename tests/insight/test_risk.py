"""What may evict running work: a lender, a borrower, and who comes back."""

from msgspec.structs import replace

from gpuconsole.insight.drill import DrillRun
from gpuconsole.insight.forecast.eta import workload_history
from gpuconsole.insight.pending.why import view_on
from gpuconsole.insight.preemption.risk import EvictionCause, ReclaimPosition, WorkloadRisk, risk
from gpuconsole.model.clock import DAY, HOUR, MINUTE
from gpuconsole.model.cluster import Namespace
from gpuconsole.model.commands import Submit
from gpuconsole.model.objects import Object
from gpuconsole.model.queues import LocalQueue, Quota
from gpuconsole.model.workloads import Workload
from gpuconsole.services.drills import open_drill
from gpuconsole.sim.engine import Simulation
from gpuconsole.sim.policy import SimPolicy
from tests.support.snapshots import A100, START, cluster_queue, node, running, waiting, world


def shared() -> Simulation:
    """Queues lender (8 GPUs) and borrower (0) in one cohort, on eight GPUs; nothing was submitted yet."""
    objects: list[Object] = [A100, node("n1")]
    for name, gpus in (("borrower", 0), ("lender", 8)):
        objects.append(cluster_queue(name, "org", Quota(gpus)))
        objects.append(LocalQueue(namespace=name, name="lq", cluster_queue=name))
    return Simulation.from_objects(objects, policy=SimPolicy(), seed=1, start=START)


def submit(simulation: Simulation, workload: Workload) -> None:
    simulation.submit(Submit((replace(workload, uid="", created=simulation.now),)))


def job(name: str, queue: str, gpus: int, span: str, **fields: int) -> Workload:
    return replace(waiting(name, f"{queue}/lq", gpus, annotations={"gpuconsole.io/duration": span}), **fields)


def returning() -> Simulation:
    """Every day at noon the lender runs something for ten hours; on the fourth morning two borrowers run."""
    simulation = shared()
    for day in range(3):
        simulation.advance(START + day * DAY + 4 * HOUR)
        submit(simulation, job(f"noon-{day}", "lender", 8, "10h"))
    simulation.advance(START + 3 * DAY + 2 * HOUR)
    submit(simulation, job("small", "borrower", 2, "100h", priority=5))
    submit(simulation, job("large", "borrower", 4, "100h"))
    simulation.advance(simulation.now + 30 * MINUTE)
    return simulation


def test_who_borrows_goes_when_the_lender_comes_at_its_usual_hour() -> None:
    simulation = returning()
    answer = risk(simulation, runs=4, seed=3, horizon=3 * HOUR)
    told = {one.workload: one for one in answer.workloads}
    assert set(told) == {"borrower/small", "borrower/large"}
    large = told["borrower/large"]
    assert large.causes == (EvictionCause("reclaim in cohort", "lender", 4),)
    assert large.probability == 1.0
    assert large.median is not None
    assert HOUR < large.median < 2 * HOUR
    assert (large.borrowed, (large.lost_gpu_hours or 0) > 1.9) == (4, True)


def test_nobody_is_in_danger_where_nobody_comes() -> None:
    simulation = returning()
    answer = risk(simulation, runs=2, seed=3, horizon=HOUR)
    assert [(one.probability, one.median, one.causes) for one in answer.workloads] == [(0.0, None, ())] * 2


def test_the_line_in_front_of_a_lender_is_that_of_the_engines_search() -> None:
    answer = risk(returning(), runs=1, horizon=MINUTE)
    turns = {one.workload: one.turns for one in answer.workloads}
    assert turns == {
        "borrower/large": (ReclaimPosition("lender", "a100", 1),),
        "borrower/small": (ReclaimPosition("lender", "a100", 2),),
    }


def test_the_first_in_line_comes_first_and_the_cluster_is_left_alone() -> None:
    simulation = returning()
    before = simulation.save()
    first, second = (risk(simulation, runs=2, seed=1, horizon=2 * HOUR) for _ in range(2))
    assert first == second
    assert simulation.save() == before


def test_nothing_runs() -> None:
    simulation = shared()
    answer = risk(simulation, runs=1)
    assert answer.workloads == ()
    assert answer.assumptions[1] == ("no new arrivals: too few are recorded (0 workloads in the last 0s)")
    assert workload_history(simulation.snapshot()).arrivals == ()


def test_a_danger_says_what_an_eviction_now_would_lose() -> None:
    simulation = returning()
    (danger,) = (one for one in risk(simulation, runs=1, horizon=MINUTE).workloads if one.workload == "borrower/small")
    assert isinstance(danger, WorkloadRisk)
    assert round(danger.lost_gpu_hours or 0, 1) == 1.0


def test_what_nobody_admitted_runs_too_and_goes_when_its_time_of_grace_is_over() -> None:
    """KAI protects four jobs of research for half an hour; product waits for its two GPUs."""
    drill = DrillRun(open_drill("min-runtime-kai"), None)
    drill.step(0)
    drill.step(1)
    answer = risk(drill.twin.simulation, runs=2, horizon=HOUR)
    assert {(one.queue, one.gpus, one.borrowed, one.lost_gpu_hours) for one in answer.workloads} == {
        ("research", 1, 0, 1 / 6)
    }
    assert {one.workload: (one.probability, one.median, one.causes) for one in answer.workloads} == {
        "default/research-0": (0.0, None, ()),
        "default/research-1": (0.0, None, ()),
        "default/research-2": (1.0, 20 * MINUTE, (EvictionCause("reclaim between queues", "product", 2),)),
        "default/research-3": (1.0, 20 * MINUTE, (EvictionCause("reclaim between queues", "product", 2),)),
    }


def test_what_the_first_cycle_evicts_in_a_cluster_of_others_runs_there_and_is_in_danger() -> None:
    """The simulation that goes on from it has evicted the guest already, and told so."""
    quotas: list[Object] = [cluster_queue("lender", "org", Quota(8)), cluster_queue("borrower", "org", Quota(0))]
    doors: list[Object] = [
        thing
        for name in ("lender", "borrower")
        for thing in (Namespace(name=name), LocalQueue(namespace=name, name="lq", cluster_queue=name))
    ]
    guest = running("guest", "borrower/lq", 8, "borrower")
    snapshot = world([A100, node("n1"), *quotas, *doors, guest, waiting("owner", "lender/lq", 8)])
    simulation = Simulation.from_snapshot(snapshot, policy=SimPolicy(), seed=0)
    simulation.drain()

    answer = risk(simulation, runs=2, horizon=HOUR, found=view_on(snapshot, SimPolicy()))
    assert [(one.workload, one.probability, one.median, one.causes, one.turns) for one in answer.workloads] == [
        (
            "borrower/guest",
            1.0,
            0,
            (EvictionCause("reclaim in cohort", "", 2),),
            (ReclaimPosition("lender", "a100", 1),),
        )
    ]

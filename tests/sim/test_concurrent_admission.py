"""Concurrent admission in the simulated cluster: a workload runs where its first variant gets in, and may move on."""

from msgspec.structs import replace

from gpuconsole.model.clock import HOUR, MINUTE
from gpuconsole.model.commands import Delete
from gpuconsole.model.labels import LabelSelector
from gpuconsole.model.objects import Object
from gpuconsole.model.queues import (
    ClusterQueue,
    ClusterQueuePreemption,
    ConcurrentAdmission,
    FlavorQuotas,
    LocalQueue,
    MigrationMode,
    Quota,
    ResourceFlavor,
    ResourceGroup,
)
from gpuconsole.model.workloads import Workload
from gpuconsole.scheduling.kueue.concurrent_admission import flavor_of
from gpuconsole.scheduling.kueue.config import KueueConfig
from gpuconsole.sim.engine import Simulation
from gpuconsole.sim.policy import SimPolicy
from tests.support.sim_cluster import GPU, LOWER, classes, job, node, run, start, submit

CONCURRENT = SimPolicy(kueue=KueueConfig(gates={"ConcurrentAdmission": True}))
FLAVORS = ("reserved", "spot")
TRY_PREFERRED = ConcurrentAdmission()


def pool(policy: ConcurrentAdmission = TRY_PREFERRED, flavors: tuple[str, ...] = FLAVORS) -> ClusterQueue:
    """4 GPUs of each flavor; LowerPriority preempts."""
    group = ResourceGroup((GPU,), tuple(FlavorQuotas(name, {GPU: Quota(4)}) for name in flavors))
    return ClusterQueue(
        name="red",
        uid="red",
        namespace_selector=LabelSelector(),
        resource_groups=(group,),
        preemption=ClusterQueuePreemption(within_cluster_queue=LOWER),
        concurrent_admission=policy,
    )


def cluster(policy: ConcurrentAdmission = TRY_PREFERRED) -> Simulation:
    """One node of 4 GPUs for each flavor."""
    things: list[Object] = []
    for name in FLAVORS:
        labels = {"kind": name, "kubernetes.io/hostname": name}
        things += [ResourceFlavor(name=name, node_labels={"kind": name}), replace(node(name), labels=labels)]
    door = LocalQueue(namespace="red", name="lq", cluster_queue="red")
    return start([*things, *classes(), pool(policy), door], CONCURRENT)


def variants(simulation: Simulation, name: str) -> dict[str, str]:
    """Flavor → what became of the variant of a job's workload."""
    everybody = simulation.snapshot().workloads.all()
    return {flavor_of(w): _state(w) for w in everybody if w.parent.startswith(f"red/job-{name}-")}


def _state(workload: Workload) -> str:
    if workload.finished:
        return "finished"
    return "admitted" if workload.admitted else "waiting" if workload.active else "stopped"


def test_a_workload_runs_on_the_first_flavor_that_admits_it() -> None:
    simulation = cluster()
    submit(simulation, job("first", gpus=4), job("second", gpus=4))
    assert variants(simulation, "first") == {"reserved": "admitted", "spot": "stopped"}
    assert variants(simulation, "second") == {"reserved": "waiting", "spot": "admitted"}
    nodes = {pod.key: pod.node for pod in simulation.snapshot().pods.all()}
    assert nodes == {"red/first-0": "reserved", "red/second-0": "spot"}


def test_it_moves_to_a_better_flavor_as_soon_as_that_comes_free() -> None:
    simulation = cluster()
    submit(simulation, job("first", gpus=4, duration=10 * MINUTE), job("second", gpus=4, duration=20 * MINUTE))
    assert run(simulation, HOUR) == [
        "0:00 admitted red/first",
        "0:00 admitted red/second",
        "0:00 started red/first",
        "0:00 started red/second",
        "10:00 finished red/first",
        "10:01 evicted red/second-variant-spot FlavorMigration",
        "10:01 evicted red/second lost 2404s VariantEvicted",
        "10:02 admitted red/second",
        "10:02 started red/second",
        "30:02 finished red/second",
    ]
    assert variants(simulation, "second") == {"reserved": "finished", "spot": "finished"}


def test_or_it_stays_where_it_is() -> None:
    simulation = cluster(ConcurrentAdmission(mode=MigrationMode.RETAIN_FIRST_ADMISSION))
    submit(simulation, job("first", gpus=4, duration=10 * MINUTE), job("second", gpus=4, duration=20 * MINUTE))
    assert variants(simulation, "second") == {"reserved": "stopped", "spot": "admitted"}
    assert run(simulation, HOUR)[-1] == "20:00 finished red/second"


def test_one_variant_at_a_time_may_preempt_and_its_victim_takes_the_job_along() -> None:
    simulation = cluster()
    submit(simulation, job("first", gpus=4, duration=2 * HOUR), job("second", gpus=4, duration=2 * HOUR))
    run(simulation, MINUTE)
    submit(simulation, job("urgent", gpus=4, duration=10 * MINUTE, priority_class="high"))
    assert run(simulation, MINUTE) == [
        "1:00 preempted red/first-variant-reserved by red/urgent-variant-reserved InClusterQueue",
        "1:00 evicted red/first-variant-reserved by red/urgent-variant-reserved Preempted",
        "1:00 evicted red/first lost 240s VariantEvicted",
        "1:01 admitted red/urgent",
        "1:30 started red/urgent",
    ]
    assert variants(simulation, "urgent") == {"reserved": "admitted", "spot": "stopped"}
    assert variants(simulation, "first") == {"reserved": "waiting", "spot": "waiting"}
    assert run(simulation, 20 * MINUTE)[-2:] == ["11:31 admitted red/first", "11:31 started red/first"]


def test_variants_of_a_deleted_workload_are_deleted() -> None:
    simulation = cluster()
    submit(simulation, job("first", gpus=4))
    simulation.submit(Delete(table="jobs", key="Job/red/first"))
    run(simulation, MINUTE)
    assert [w.key for w in simulation.snapshot().workloads.all()] == []


def test_a_flavor_that_the_queue_loses_takes_its_variants_along() -> None:
    simulation = cluster()
    submit(simulation, job("first", gpus=4, duration=HOUR), job("second", gpus=4, duration=HOUR))
    submit(simulation, pool(flavors=("spot",)))
    run(simulation, MINUTE)
    assert variants(simulation, "second") == {"spot": "admitted"}
    assert variants(simulation, "first") == {"spot": "waiting"}


def test_a_saved_cluster_goes_on_as_the_original() -> None:
    simulation = cluster()
    submit(simulation, job("first", gpus=4, duration=10 * MINUTE), job("second", gpus=4, duration=20 * MINUTE))
    simulation.advance(simulation.now + 5 * MINUTE)
    simulation.drain()
    fork, loaded = simulation.fork(), Simulation.load(simulation.save())
    assert run(fork, HOUR) == run(loaded, HOUR) == run(simulation, HOUR)


def test_without_the_gate_a_workload_has_no_variants() -> None:
    simulation = cluster()
    plain = Simulation.from_snapshot(simulation.snapshot(), policy=SimPolicy(), seed=1)
    submit(plain, job("first", gpus=4))
    assert len(list(plain.snapshot().workloads.all())) == 1

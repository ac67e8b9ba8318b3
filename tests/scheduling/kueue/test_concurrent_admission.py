"""Variants of a workload that are tried for several flavors at once, and preemption gates."""

from msgspec.structs import replace

from gpuconsole.model.clock import SECOND
from gpuconsole.model.events import Admit, Evict, Refuse
from gpuconsole.model.queues import ClusterQueue, ConcurrentAdmission
from gpuconsole.model.workloads import Condition, PreemptionGate, Workload
from gpuconsole.scheduling.kueue import conditions
from gpuconsole.scheduling.kueue.config import KueueConfig
from gpuconsole.scheduling.kueue.pod_resources import ALLOWED_FLAVORS
from tests.support.kueue_cluster import LOWER, World, admitted, queue, refused, victims, workload

CONCURRENT = KueueConfig(gates={"ConcurrentAdmission": True})
GATE = PreemptionGate(name="kueue.x-k8s.io/concurrent-admission")
FLAVORS = ("best", "fair", "last")


def pool(best: int, fair: int, last: int, last_acceptable: str = "") -> ClusterQueue:
    """A ClusterQueue whose workloads have a variant for each of three flavors."""
    policy = ConcurrentAdmission(last_acceptable_flavor=last_acceptable)
    return replace(queue("q", dict(zip(FLAVORS, (best, fair, last), strict=True))), concurrent_admission=policy)


def variant(flavor: str, gpus: int = 2, created: int = 0) -> Workload:
    """The variant of `team/job` for one flavor."""
    plain = workload(f"job-{flavor}", "q", gpus, created=created)
    return replace(plain, owner="Workload/team/job", annotations={ALLOWED_FLAVORS: flavor})


def flavor_of(world: World, name: str) -> str:
    admission = world.workloads[name].admission
    return "" if admission is None else next(iter(admission.pod_sets[0].flavors.values()))


def test_a_variant_keeps_to_its_flavor() -> None:
    world = World(pool(2, 2, 2), config=CONCURRENT, flavors=FLAVORS).run(variant("fair"))
    assert flavor_of(world, "job-fair") == "fair"


def test_without_room_there_the_others_are_not_even_looked_at() -> None:
    world = World(pool(2, 1, 2), config=CONCURRENT, flavors=FLAVORS).run(variant("fair"))
    assert world.message("job-fair") == (
        "couldn't assign flavors to pod set main: insufficient quota for nvidia.com/gpu in flavor fair, previously"
        " considered podsets requests (0) + current podset request (2) > maximum capacity (1), skipping flavor best"
        " due to WorkloadAllowedResourceFlavorAnnotation annotation, skipping flavor last due to"
        " WorkloadAllowedResourceFlavorAnnotation annotation"
    )


def test_the_annotation_means_nothing_without_the_gate() -> None:
    world = World(pool(2, 2, 2), flavors=FLAVORS).run(variant("fair"))
    assert flavor_of(world, "job-fair") == "best"


def test_a_variant_on_a_worse_flavor_stays_out_once_a_better_one_runs() -> None:
    world = World(pool(2, 2, 2), config=CONCURRENT, flavors=FLAVORS).run(variant("best"), admitted=True)
    world.apply(variant("fair"))
    assert refused(world.cycle()) == {"job-fair": "A more favorable variant is already admitted"}
    assert world.waiting("q") == ["job-fair"], "it is tried again at once"


def test_a_better_flavor_takes_over_from_a_worse_one() -> None:
    world = World(pool(2, 2, 2), config=CONCURRENT, flavors=FLAVORS).run(variant("last"), admitted=True)
    world.apply(variant("fair"))
    migration = world.cycle()
    message = "Evicted to accommodate a workload (UID: uid-job-fair) due to migration to more favorable resource flavor"
    assert migration == [
        Evict("team/job-last", "FlavorMigration", message),
        Refuse(
            "team/job-fair",
            ". Pending the migration of 1 workload(s)",
            requeue="PendingMigration",
            requests=migration[1].requests if isinstance(migration[1], Refuse) else (),
        ),
    ]
    assert admitted(world.cycle()) == ["job-fair"]


def test_workloads_of_other_parents_are_no_siblings() -> None:
    world = World(pool(2, 2, 2), config=CONCURRENT, flavors=FLAVORS)
    world.run(replace(variant("last"), owner="Workload/team/another"), admitted=True)
    world.apply(variant("fair"))
    assert [type(decision) for decision in world.cycle()] == [Admit]


def test_nobody_moves_to_a_flavor_below_the_last_acceptable() -> None:
    world = World(pool(2, 2, 2, "best"), config=CONCURRENT, flavors=FLAVORS).run(variant("last"), admitted=True)
    world.apply(variant("fair"))
    assert refused(world.cycle()) == {"job-fair": "Target flavor is below LastAcceptableFlavorName"}
    assert world.running == {"job-last"}
    world.apply(replace(variant("best"), created=-SECOND))
    assert [type(decision) for decision in world.cycle()][:1] == [Evict]


def gated(**gates: bool) -> World:
    """A workload that would have to preempt another one, and is gated."""
    world = World(queue("q", 2, within=LOWER), config=KueueConfig(gates=gates))
    world.run(workload("low", "q", 2), admitted=True)
    world.apply(replace(workload("high", "q", 2, priority=1, created=1), preemption_gates=(GATE,)))
    return world


def test_a_closed_gate_keeps_a_workload_from_preempting() -> None:
    world = gated(ConcurrentAdmission=True)
    assert refused(world.cycle()) == {"high": "Workload requires preemption, but it's gated"}
    assert world.running == {"low"}
    assert world.waiting("q") == ["(high)"]
    blocked = world.workloads["high"].condition("BlockedOnPreemptionGates")
    message = "Workload requires preemption, but it's gated"
    assert blocked == Condition("BlockedOnPreemptionGates", True, "PreemptionGated", message, world.now)


def test_an_open_gate_lets_it_preempt() -> None:
    world = gated(ConcurrentAdmission=True)
    world.cycle()
    world.apply(replace(world.workloads["high"], preemption_gates=(replace(GATE, open=True, since=world.now),)))
    assert victims(world.cycle()) == {"low": "InClusterQueue"}
    world.cycle()
    unblocked = world.workloads["high"].condition("BlockedOnPreemptionGates")
    assert unblocked is not None
    assert not unblocked.status


def test_gates_mean_nothing_without_a_feature_that_opens_them() -> None:
    assert victims(gated().cycle()) == {"low": "InClusterQueue"}
    assert victims(gated(MultiKueueOrchestratedPreemption=True).cycle()) == {}


def test_an_eviction_closes_the_gates_that_were_opened() -> None:
    stated, unstated = replace(GATE, name="a", open=True, since=SECOND), replace(GATE, name="b")
    evicted = conditions.mark_evicted(
        Workload(name="w", preemption_gates=(stated, unstated)), "Preempted", "", 5 * SECOND
    )
    assert evicted.preemption_gates == (PreemptionGate(name="a", open=False, since=5 * SECOND), unstated)


def test_a_victim_is_asked_once_until_it_says_that_it_heard() -> None:
    world = World(queue("q", 2, within=LOWER)).run(workload("low", "q", 2), admitted=True)
    world.apply(workload("high", "q", 2, priority=1, created=1))
    first, second = (world.session.run_cycle(world.now) for _ in range(2))
    assert victims(first) == {"low": "InClusterQueue"}
    assert victims(second) == {}
    assert refused(first) == refused(second), "it still waits for that victim"
    world.session.apply(world.workloads["low"], world.now)
    assert victims(world.session.run_cycle(world.now)) == {"low": "InClusterQueue"}

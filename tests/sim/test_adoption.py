"""Going on from a Snapshot, or from manifests of things that live already."""

from collections import Counter

from hypothesis import HealthCheck, given, settings
from msgspec.structs import replace

from gpuconsole.model.clock import HOUR, MINUTE, SECOND, Span
from gpuconsole.model.cluster import Pod, PodPhase
from gpuconsole.model.commands import Requeue
from gpuconsole.model.pod_template import PodTemplate
from gpuconsole.model.snapshot import Snapshot, decode, encode
from gpuconsole.model.state import ClusterState
from gpuconsole.sim.engine import Simulation
from gpuconsole.sim.policy import SimPolicy
from tests.sim.test_laws import LIFE, POLICIES, fresh
from tests.support.adopted_clusters import as_live
from tests.support.random_simulations import LIVES, live
from tests.support.sim_cluster import (
    START,
    UNQUEUED,
    USUAL,
    classes,
    job,
    key_of,
    log,
    nodes,
    pod,
    run,
    start,
    submit,
    two_teams,
    workload,
)


def adopted(snapshot: Snapshot, policy: SimPolicy = USUAL) -> Simulation:
    return Simulation.from_snapshot(snapshot, policy=policy, seed=1)


def test_what_runs_finishes_when_it_would_have_and_what_waits_follows() -> None:
    simulation = start(two_teams())
    submit(simulation, job("own", gpus=4, duration=20 * MINUTE), job("loan", gpus=4, duration=30 * MINUTE))
    submit(simulation, job("waits", gpus=4, duration=10 * MINUTE), workload("drawn", "blue", gpus=1))
    simulation.advance(START + 5 * MINUTE)
    simulation.drain()
    twin = adopted(simulation.snapshot())
    assert (twin.now, twin.drain(), twin.snapshot().recent) == (simulation.now, [], simulation.snapshot().recent)
    assert run(twin, HOUR) == run(simulation, HOUR)


def test_nothing_is_told_again_and_the_objects_are_the_same() -> None:
    simulation = start(two_teams())
    submit(simulation, job("own", gpus=4), job("waits", gpus=4, pods=2))
    twin = adopted(simulation.snapshot())
    assert list(twin.snapshot().objects()) == list(simulation.snapshot().objects())


def test_a_pod_group_that_was_evicted_starts_again_when_its_last_pod_is_gone() -> None:
    simulation = evicted_by_hand("PodGroup", 5 * MINUTE)
    simulation.advance(simulation.now + 10 * SECOND)
    simulation.drain()
    twin = adopted(simulation.snapshot())
    wanted = [
        "5:30 requeued red/train",
        "5:30 admitted red/train",
        "5:30 started red/train",
        "10:30 finished red/train",
    ]
    assert run(twin, HOUR) == run(simulation, HOUR) == wanted


def test_a_job_that_was_evicted_starts_again_while_its_old_pods_terminate() -> None:
    simulation = evicted_by_hand("Job", 5 * MINUTE)
    simulation.drain()
    before, after = adopted(simulation.snapshot()), simulation.fork()
    wanted = ["5:01 requeued red/train", "5:01 admitted red/train", "5:01 started red/train"]
    assert run(before, 10 * SECOND) == run(after, 10 * SECOND) == wanted
    # Twins of a moment at which old pods and new ones are there.
    for simulation in (before, after, adopted(after.snapshot())):
        assert {(pod.node, bool(pod.deleted)) for pod in simulation.snapshot().pods.all()} == {
            ("n1", True),
            ("n2", False),
        }
        assert run(simulation, HOUR) == ["10:01 finished red/train"]
        assert [pod.node for pod in simulation.snapshot().pods.all()] == ["n2", "n2"]


def evicted_by_hand(kind: str, after: Span) -> Simulation:
    """Two pods with two GPUs each that fill one of two nodes, evicted now."""
    simulation = start(two_teams())
    submit(simulation, job("train", gpus=2, pods=2, duration=10 * MINUTE, checkpoint=MINUTE, kind=kind))
    simulation.advance(START + after)
    simulation.submit(Requeue(key_of(simulation, "red/train")))
    return simulation


def test_a_snapshot_that_went_through_a_file_is_as_good() -> None:
    simulation = start(two_teams())
    submit(simulation, job("train", gpus=4, duration=20 * MINUTE), job("waits", gpus=4, pods=2, duration=MINUTE))
    read = ClusterState.from_file(decode(encode(simulation.snapshot()))).freeze()
    assert run(adopted(read), HOUR)[-1] == "21:01 finished red/waits"


def test_objects_of_a_living_cluster_go_on_living() -> None:
    simulation = start(two_teams())
    submit(simulation, job("train", gpus=4, duration=20 * MINUTE), job("waits", gpus=4, pods=2, duration=MINUTE))
    simulation.drain()
    dumped = list(simulation.snapshot().objects())
    twin = Simulation.from_objects(dumped, policy=SimPolicy(), seed=1, start=simulation.now)
    assert [line for line in log(twin.drain()) if "refused" in line] == []
    assert run(twin, HOUR) == run(simulation, HOUR)


def test_a_pod_with_a_node_in_its_manifest_holds_its_gpus() -> None:
    server = replace(pod("server", gpus=3), node="n1", gpus=(0, 1, 3), phase=PodPhase.RUNNING, started=START)
    simulation = start([*nodes(1), server], UNQUEUED)
    submit(simulation, pod("other", gpus=2), pod("small", gpus=1))
    placed = {p.name: p.gpus for p in simulation.snapshot().pods.all()}
    assert placed == {"server": (0, 1, 3), "other": (), "small": (2,)}


def test_a_dump_of_a_live_cluster_goes_on() -> None:
    simulation = start(two_teams())
    submit(simulation, job("train", gpus=2, pods=2, duration=20 * MINUTE))
    objects = [
        # An API server gives pods a random suffix and says neither their index nor their GPUs.
        replace(thing, name=f"{thing.name}-x7k2p", workload="", pod_set="", index=0, gpus=(), gang="", gang_size=0)
        if isinstance(thing, Pod)
        else thing
        for thing in simulation.snapshot().objects()
    ]
    twin = Simulation.from_objects(objects, policy=SimPolicy(), seed=1, start=START + MINUTE)
    pods = twin.snapshot().pods
    key = key_of(simulation, "red/train")
    assert {pod.name: (pod.workload, pod.gpus) for pod in pods.all()} == {
        "train-0-x7k2p": (key, (0, 1)),
        "train-1-x7k2p": (key, (2, 3)),
    }
    twin.drain()
    assert run(twin, HOUR) == ["20:00 finished red/train"]


def test_a_pod_in_a_manifest_has_the_priority_of_its_class() -> None:
    template = PodTemplate(priority_class="serving", containers=pod("server").template.containers)
    server = Pod(name="server", node="n1", phase=PodPhase.RUNNING, started=START, template=template)
    simulation = start([*nodes(1), *classes(), server], UNQUEUED)
    assert simulation.snapshot().pods["default/server"].priority == 500


def test_a_pod_that_was_put_on_a_node_by_hand_starts_now() -> None:
    server = replace(pod("server", duration="10m"), node="n1")
    simulation = Simulation.from_objects([*nodes(1), server], policy=UNQUEUED, seed=1, start=START)
    assert simulation.snapshot().pods["default/server"].phase is PodPhase.RUNNING
    simulation.drain()
    assert run(simulation, HOUR) == ["10:00 finished default/server"]


def test_a_missing_pod_of_a_running_job_is_made() -> None:
    simulation = start(two_teams())
    submit(simulation, job("train", gpus=1, pods=3, duration=20 * MINUTE))
    objects = [thing for thing in simulation.snapshot().objects() if thing.key != "red/train-1"]
    twin = Simulation.from_objects(objects, policy=SimPolicy(), seed=1, start=START + MINUTE)
    twin.drain()
    assert {p.name: bool(p.node) for p in twin.snapshot().pods.all()} == dict.fromkeys(
        ("train-0", "train-1", "train-2"), True
    )
    assert run(twin, HOUR) == ["21:00 finished red/train"]


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(POLICIES, LIVES)
def test_any_snapshot_can_be_gone_on_from(policy: SimPolicy, deeds: LIFE) -> None:
    simulation = fresh(policy)
    live(simulation, deeds)
    twin = adopted(simulation.snapshot(), policy)
    twin.advance(twin.now + 3 * HOUR)
    running = [p for p in twin.snapshot().pods.all() if p.deleted and p.deleted < twin.now - HOUR]
    assert running == []
    for crew in twin._world.groups.values():
        assert min(crew.running, crew.terminating, crew.missing, crew.without_node) >= 0


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(POLICIES, LIVES)
def test_a_live_cluster_gets_no_pods_that_its_jobs_do_not_ask_for(policy: SimPolicy, deeds: LIFE) -> None:
    """Pods of an evicted Job may still terminate when it starts again, or when it has no quota any more."""
    simulation = fresh(policy)
    live(simulation, deeds)
    twin = adopted(as_live(simulation), policy)
    for _ in range(3):
        snapshot = twin.snapshot()
        places = Counter(
            (pod.workload, pod.pod_set, pod.index)
            for pod in snapshot.pods.all()
            if pod.workload in snapshot.workloads and not (pod.done or pod.deleted)
        )
        asked = {
            (workload.key, part.name): part.count
            for workload in snapshot.workloads.all()
            if workload.admission is not None
            for part in workload.admission.pod_sets
        }
        assert [place for place, pods in places.items() if pods > 1 or place[:2] not in asked] == []
        there = Counter(key[:2] for key in places)
        assert [key for key, pods in there.items() if pods > asked[key]] == []
        twin.advance(twin.now + 20 * MINUTE)

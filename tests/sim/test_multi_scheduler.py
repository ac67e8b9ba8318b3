"""kube-scheduler and Volcano in one cluster: each places the pods that name it, on what the other leaves."""

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from gpuconsole.model.clock import HOUR, MINUTE, SECOND
from gpuconsole.model.cluster import Pod
from gpuconsole.model.commands import Delete, Submit
from gpuconsole.model.job import Job
from gpuconsole.model.manifests import decode_object
from gpuconsole.model.volcano import VolcanoQueue
from gpuconsole.scheduling.volcano.config import VolcanoPolicy
from gpuconsole.sim.engine import Simulation
from gpuconsole.sim.policy import SimPolicy
from tests.support.sim_cluster import GPU, START, nodes, pod, run

BOTH = SimPolicy(kueue=None, second_scheduler=VolcanoPolicy(scheduler="volcano"))
SMALL = VolcanoQueue(name="small", uid="small", capability={GPU: 2})


def train(name: str, pods: int, queue: str = "default", takes: str = "1h") -> Job:
    """A Volcano Job of pods with one GPU, which start together."""
    limits = {"resources": {"limits": {GPU: 1}}}
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", **limits}]}}
    place = {"name": name, "namespace": "red", "annotations": {"gpuconsole.io/duration": takes}}
    spec = {"queue": queue, "minAvailable": pods, "tasks": [{"name": "w", "replicas": pods, "template": template}]}
    found = decode_object({"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": place, "spec": spec})
    assert isinstance(found, Job)
    return found


def cluster(*things: Job | Pod | VolcanoQueue, count: int = 1, policy: SimPolicy = BOTH) -> Simulation:
    simulation = Simulation.from_objects([*nodes(count), *things], policy=policy, seed=1, start=START)
    simulation.advance(START + 10 * SECOND)
    return simulation


def gpus(simulation: Simulation) -> dict[str, tuple[int, ...]]:
    return {pod.name: pod.gpus for pod in simulation.snapshot().pods.all() if not pod.done}


def test_each_pod_is_placed_by_the_scheduler_that_it_names() -> None:
    simulation = cluster(SMALL, train("fits", 2, "small"), train("never", 3, "small"), pod("plain"))
    assert gpus(simulation) == {"plain": (0,), "fits-w-0": (1,), "fits-w-1": (2,)}
    phases = {group.name.partition("-")[0]: group.phase for group in simulation.snapshot().pod_groups.all()}
    assert phases == {"fits": "Running", "never": "Pending"}


def test_kube_scheduler_alone_knows_no_queue() -> None:
    simulation = cluster(SMALL, train("never", 3, "small"), policy=replace(BOTH, second_scheduler=None))
    assert len(gpus(simulation)) == 3


def test_what_one_places_the_other_goes_round_and_what_it_frees_the_other_takes() -> None:
    simulation = cluster(pod("plain", gpus=2, duration="10m"), train("waits", 4))
    assert gpus(simulation) == {"plain": (0, 1)}
    simulation.submit(Submit((pod("small", gpus=1, duration="5m"),)))
    simulation.advance(START + 11 * MINUTE)
    assert gpus(simulation) == {f"waits-w-{n}": (n,) for n in range(4)}
    simulation.submit(Submit((pod("late", gpus=4),)))
    simulation.advance(START + 2 * HOUR)
    assert gpus(simulation) == {"late": (0, 1, 2, 3)}


def test_the_same_in_a_fork_and_after_saving() -> None:
    simulation = cluster(pod("plain", gpus=2, duration="10m"), train("waits", 4), train("next", 2), count=1)
    simulation.drain()
    fork, loaded = simulation.fork(), Simulation.load(simulation.save())
    adopted = Simulation.from_snapshot(simulation.snapshot(), policy=BOTH, seed=1)
    runs = [run(one, 4 * HOUR) for one in (simulation, fork, loaded, adopted)]
    assert runs[0] == runs[1] == runs[2] == runs[3]
    assert [line.partition(" ")[2] for line in runs[0]] == [
        "finished default/plain",
        "finished VolcanoJob/red/next",
        "started VolcanoJob/red/waits",
        "finished VolcanoJob/red/waits",
    ]


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.tuples(st.booleans(), st.integers(0, 3)), min_size=1, max_size=12))
def test_no_gpu_has_two_owners(deeds: list[tuple[bool, int]]) -> None:
    simulation = cluster(count=2)
    for number, (volcano, count) in enumerate(deeds):
        placed = sorted(found.key for found in simulation.snapshot().pods.all() if found.node)
        if count:
            one = pod(f"p{number}", gpus=count, duration="2m")
            shape = replace(one.template, scheduler_name="volcano" if volcano else "default-scheduler")
            simulation.submit(Submit((replace(one, template=shape),)))
        elif placed:
            simulation.submit(Delete("pods", placed[0]))
        simulation.advance(simulation.now + 40 * SECOND)
        owned = [(p.node, gpu) for p in simulation.snapshot().pods.all() if not p.done for gpu in p.gpus]
        assert len(set(owned)) == len(owned)
    simulation.advance(simulation.now + HOUR)
    assert [p.name for p in simulation.snapshot().pods.all() if not p.done] == []

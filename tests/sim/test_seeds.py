"""The manifests of the seeds, as they are written, run: each under the engines that its text is about."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from gpuconsole import assets
from gpuconsole.model.autoscaling import load as load_catalogue
from gpuconsole.model.clock import HOUR, MINUTE
from gpuconsole.model.cluster import Node
from gpuconsole.model.events import HistoryEvent
from gpuconsole.model.job import Job, JobPhase
from gpuconsole.model.manifests import load
from gpuconsole.model.objects import Object
from gpuconsole.model.volcano import VolcanoQueue
from gpuconsole.scheduling.volcano.config import VolcanoPolicy
from gpuconsole.sim.engine import Simulation
from gpuconsole.sim.policy import KarpenterPolicy, SimPolicy, SpotPolicy
from gpuconsole.sim.scenario import Scenario, build_simulation

SHARED = Path(__file__).resolve().parents[3] / "shared" / "seeds"
pytestmark = pytest.mark.skipif(not SHARED.exists(), reason="the seeds are not here")
GPU = "nvidia.com/gpu"


def seed(number: int) -> list[Object]:
    (file,) = SHARED.glob(f"{number:03d}_*.txt")
    return list(load([file], admit_all_namespaces=True).objects)


def machines(count: int, gpus: int, **labels: str) -> list[Object]:
    room = {GPU: gpus, "cpu": 96_000, "memory": 2**40, "pods": 110}
    return [Node(name=f"n{n}", labels=labels, capacity=room, allocatable=room) for n in range(1, count + 1)]


def run(objects: list[Object], policy: SimPolicy) -> Simulation:
    simulation = build_simulation(Scenario(objects=tuple(objects), policy=policy))
    simulation.advance(simulation.now + 2 * MINUTE)
    return simulation


def places(simulation: Simulation, job: str) -> dict[str, str]:
    return {pod.name: pod.node for pod in simulation.snapshot().pods.all() if pod.job == job}


def test_the_finetuning_job_gets_a_machine_from_the_node_pool() -> None:
    """4 GPUs of g4dn, g5 or p4d, spot or on demand, in three zones: the cheapest machine of four is a g4dn on spot."""
    catalogue = load_catalogue(assets.catalogue().read_text())
    capacity = KarpenterPolicy(catalogue=catalogue)
    simulation = run(seed(0), SimPolicy(kueue=None, capacity=capacity, spot=SpotPolicy(interruptions=0)))
    (group,) = simulation.snapshot().node_groups.all()
    (machine,) = group.instances
    assert (machine.type, machine.capacity_type) == ("g4dn.12xlarge", "spot")
    assert set(places(simulation, "Job/default/gpt-finetune-v3").values()) == {"gpu-nodepool-1"}
    after = simulation.fork()
    after.advance(after.now + 2 * HOUR)
    assert not list(after.snapshot().nodes)


def test_the_distributed_training_takes_the_whole_nominal_quota_of_its_flavor() -> None:
    """Four pods of 8 GPUs: 32 of 32 A100, which lie before the H100 in the ClusterQueue."""
    simulation = run(seed(1), SimPolicy())
    (workload,) = simulation.snapshot().workloads.all()
    assert workload.admission is not None
    (assignment,) = workload.admission.pod_sets
    assert (assignment.flavors[GPU], assignment.usage[GPU]) == ("nvidia-a100", 32)
    assert len(set(places(simulation, "Job/ml-research/distributed-training").values())) == 4


@pytest.mark.parametrize(("gpus", "run_at_once"), [(4, 4), (3, 0)])
def test_the_pytorch_gang_starts_whole_or_not_at_all(gpus: int, run_at_once: int) -> None:
    jobs = [thing for thing in seed(1) if isinstance(thing, Job) and thing.volcano is not None]
    simulation = run([*jobs, *machines(1, gpus)], SimPolicy(kueue=None, placement=VolcanoPolicy()))
    assert sum(map(bool, places(simulation, "VolcanoJob/ml-research/pytorch-distributed").values())) == run_at_once


def test_the_finetuning_of_team_a_is_admitted_once_its_queue_admits_namespaces() -> None:
    simulation = run(seed(2), SimPolicy())
    (workload,) = simulation.snapshot().workloads.all()
    assert workload.admitted
    assert workload.admission is not None
    (assignment,) = workload.admission.pod_sets
    assert (assignment.flavors[GPU], assignment.usage[GPU]) == ("a100-80gb", 16)


def test_the_distributed_training_of_two_nodes_runs_when_its_queue_is_there_and_its_sla_is_not() -> None:
    """Volcano has no job plugin sla: as it is written the job never gets a pod."""
    (written,) = (thing for thing in seed(2) if isinstance(thing, Job) and thing.volcano is not None)
    assert written.volcano is not None
    plugins = {name: arguments for name, arguments in written.volcano.plugins.items() if name != "sla"}
    repaired = replace(written, volcano=replace(written.volcano, plugins=plugins))
    around: list[Object] = [*machines(2, 8, accelerator="nvidia-a100-80gb"), VolcanoQueue(name="team-a-queue")]
    policy = SimPolicy(kueue=None, placement=VolcanoPolicy())
    refused = run([written, *around], policy)
    messages = [event.message for event in refused.drain() if isinstance(event, HistoryEvent)]
    assert (places(refused, written.key), messages[-1]) == ({}, "failed to get plugin sla")
    simulation = run([repaired, *around], policy)
    assert sorted(places(simulation, written.key).values()) == ["n1", "n2"]
    simulation.advance(simulation.now + 2 * HOUR)
    (job,) = simulation.snapshot().jobs.all()
    assert job.phase is JobPhase.SUCCEEDED

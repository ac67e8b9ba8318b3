"""A little simulated cluster: one queue of 16 GPUs on two nodes, and twenty jobs that want more than that."""

from gpuconsole.model.clock import MINUTE
from gpuconsole.model.cluster import Node
from gpuconsole.model.job import Job
from gpuconsole.model.labels import LabelSelector
from gpuconsole.model.objects import Object
from gpuconsole.model.pod_template import Container, PodSet, PodTemplate
from gpuconsole.model.queues import ClusterQueue, FlavorQuotas, LocalQueue, Quota, ResourceFlavor, ResourceGroup
from gpuconsole.sim.engine import Simulation
from gpuconsole.sim.policy import SimPolicy
from tests.support.recorded_events import START

GPU = "nvidia.com/gpu"
A100 = {"type": "a100"}


def job(name: str, gpus: int, minutes: int) -> Job:
    template = PodTemplate(containers=(Container(requests={GPU: gpus}),))
    pod_sets = (PodSet(template=template),)
    return Job(namespace="team", name=name, queue="lq", pod_sets=pod_sets, duration=minutes * MINUTE, suspended=True)


def objects(jobs: int = 20) -> list[Object]:
    quota = FlavorQuotas("a100", {GPU: Quota(16)})
    allocatable = {GPU: 8, "cpu": 64_000, "memory": 2**38, "pods": 110}
    return [
        ResourceFlavor(name="a100", node_labels=A100),
        ClusterQueue(name="cq", namespace_selector=LabelSelector(), resource_groups=(ResourceGroup((GPU,), (quota,)),)),
        LocalQueue(namespace="team", name="lq", cluster_queue="cq"),
        *(Node(name=f"node-{i}", labels=A100, capacity=allocatable, allocatable=allocatable) for i in range(2)),
        *(job(f"job-{i}", 1 + i % 4, 10 + i) for i in range(jobs)),
    ]


def simulation(jobs: int = 20, seed: int = 1) -> Simulation:
    return Simulation.from_objects(objects(jobs), policy=SimPolicy(), seed=seed, start=START)

"""One placement by topology on 5,000 nodes in 3 levels, while others come and go."""

import gc
from random import Random

from gpuconsole.model.cluster import Namespace, Node
from gpuconsole.model.labels import HOSTNAME, LabelSelector
from gpuconsole.model.objects import Object
from gpuconsole.model.pod_template import Container, PodSet, PodTemplate, TopologyRequest
from gpuconsole.model.queues import (
    ClusterQueue,
    FlavorQuotas,
    LocalQueue,
    Quota,
    ResourceFlavor,
    ResourceGroup,
    Topology,
)
from gpuconsole.model.resources import GPU
from gpuconsole.model.workloads import Workload
from gpuconsole.scheduling.kueue.config import KueueConfig
from tests.tools.bench.carrying import START, Cluster
from tests.tools.bench.report import Report, cpu

BLOCK, RACK = "block", "rack"
BLOCKS, RACKS, HOSTS = 10, 20, 25
ROUNDS = 200


def places(report: Report) -> None:
    """A cycle with one head that is placed: 1 to 64 pods of 8 GPUs, required or preferred in a rack or a block."""
    nodes = BLOCKS * RACKS * HOSTS
    cluster = Cluster([*_queue(nodes * 8), *_nodes()], [], KueueConfig())
    random = Random(3)
    taken = []
    gc.collect()
    gc.freeze()
    for number in range(ROUNDS // 4 if report.quick else ROUNDS):
        cluster.apply(_workload(number, random))
        taken.append(cpu(cluster.cycle))
        if number > 60:
            cluster.finish_oldest(1)
    gc.unfreeze()
    admitted = sum(workload.admitted for workload in cluster.workloads.values())
    taken.sort()
    name = f"topology placement, {nodes:,} nodes in 3 levels ({admitted} placed)"
    report.time(f"{name}, median", taken[len(taken) // 2], bar=0.050)
    report.time("  the slowest: the first one of its kind", taken[-1])


def _queue(gpus: int) -> list[Object]:
    group = ResourceGroup(("cpu", GPU), (FlavorQuotas("gpu", {"cpu": Quota(gpus * 16_000), GPU: Quota(gpus)}),))
    return [
        Namespace(name="bench"),
        Topology(name="site", levels=(BLOCK, RACK, HOSTNAME)),
        ResourceFlavor(name="gpu", node_labels={"pool": "gpu"}, topology="site"),
        ClusterQueue(name="q", namespace_selector=LabelSelector(), resource_groups=(group,)),
        LocalQueue(namespace="bench", name="q", cluster_queue="q"),
    ]


def _nodes() -> list[Node]:
    room = {"cpu": 128_000, "memory": 2**40, GPU: 8, "pods": 110}
    made = []
    for block in range(BLOCKS):
        for rack in range(RACKS):
            for host in range(HOSTS):
                name = f"b{block}-r{rack:02}-h{host:02}"
                labels = {"pool": "gpu", BLOCK: f"b{block}", RACK: f"b{block}-r{rack:02}", HOSTNAME: name}
                made.append(Node(name=name, labels=labels, capacity=room, allocatable=room))
    return made


def _workload(number: int, random: Random) -> Workload:
    level = random.choice((BLOCK, RACK))
    request = random.choice((TopologyRequest(required=level), TopologyRequest(preferred=level)))
    count = random.choice((1, 2, 4, 8, 16, 64)) if level == BLOCK else random.choice((1, 2, 4, 8, 16))
    template = PodTemplate(containers=(Container(requests={"cpu": 8_000, GPU: random.choice((2, 8))}),))
    pod_set = PodSet(count=count, template=template, topology=request)
    return Workload(
        namespace="bench", name=f"w-{number}", uid=f"{number:04}", created=START, queue="q", pod_sets=(pod_set,)
    )

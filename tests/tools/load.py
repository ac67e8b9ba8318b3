"""Made-up loads for the benches: plain, seeded, of any size."""

from random import Random

from gpuconsole.model.clock import SECOND
from gpuconsole.model.cluster import Namespace, Node
from gpuconsole.model.labels import LabelSelector
from gpuconsole.model.objects import Object
from gpuconsole.model.pod_template import Container, PodSet, PodTemplate
from gpuconsole.model.queues import (
    ClusterQueue,
    ClusterQueuePreemption,
    FlavorQuotas,
    LocalQueue,
    PreemptionPolicy,
    Quota,
    ResourceFlavor,
    ResourceGroup,
)
from gpuconsole.model.resources import GPU
from gpuconsole.model.workloads import Workload

NAMESPACE = "bench"
FLAVOR = "gpu"
GIB = 2**30


def queues(count: int, cohorts: int, nominal: int) -> list[Object]:
    """`count` ClusterQueues with a LocalQueue each, spread over cohorts, every preemption policy on."""
    things: list[Object] = [Namespace(name=NAMESPACE), ResourceFlavor(name=FLAVOR, node_labels={"pool": FLAVOR})]
    quota = {"cpu": Quota(nominal * 16_000), "memory": Quota(nominal * 128 * GIB), GPU: Quota(nominal)}
    group = ResourceGroup(("cpu", "memory", GPU), (FlavorQuotas(FLAVOR, quota),))
    for i in range(count):
        things.append(
            ClusterQueue(
                name=f"cq-{i:03}",
                cohort=f"cohort-{i % cohorts}",
                namespace_selector=LabelSelector(),
                resource_groups=(group,),
                preemption=ClusterQueuePreemption(PreemptionPolicy.LOWER_PRIORITY, PreemptionPolicy.ANY),
            )
        )
        things.append(LocalQueue(namespace=NAMESPACE, name=f"lq-{i:03}", cluster_queue=f"cq-{i:03}"))
    return things


def workloads(count: int, spread: int, seed: int = 7, hours: float = 1.0) -> list[Workload]:
    """`count` workloads over the first `spread` LocalQueues: 1 to 32 GPUs, three priorities, a second apart."""
    random = Random(seed)
    kinds = [_pod_sets(gpus, pods) for gpus, pods in ((1, 1), (1, 1), (2, 1), (4, 1), (8, 1), (8, 2), (8, 4))]
    made = []
    for i in range(count):
        pod_sets = random.choice(kinds)
        made.append(
            Workload(
                namespace=NAMESPACE,
                name=f"w-{i:06}",
                uid=f"{i:08x}-bench",
                created=i * SECOND,
                queue=f"lq-{random.randrange(spread):03}",
                priority=random.choice((50, 100, 200)),
                annotations={"gpuconsole.io/duration": f"{max(60, round(random.expovariate(1 / (3600 * hours))))}s"},
                pod_sets=pod_sets,
            )
        )
    return made


def _pod_sets(gpus: int, pods: int) -> tuple[PodSet, ...]:
    """Those of all workloads of one kind are one object, as of jobs that one manifest was read for."""
    requests = {"cpu": gpus * 8_000, "memory": gpus * 64 * GIB, GPU: gpus}
    return (
        PodSet(count=pods, template=PodTemplate(containers=(Container(requests=requests),), restart_policy="Never")),
    )


def nodes(count: int, gpus: int = 8) -> list[Node]:
    """`count` equal GPU nodes of the flavor."""
    room = {"cpu": gpus * 16_000, "memory": gpus * 128 * GIB, GPU: gpus, "pods": 110}
    return [Node(name=f"node-{i:05}", labels={"pool": FLAVOR}, capacity=room, allocatable=room) for i in range(count)]

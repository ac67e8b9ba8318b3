"""The loads of Kueue's own performance tests, as published (kubernetes-sigs/kueue test/performance/scheduler/configs).

Every ClusterQueue gets its workloads from sets that create one every so often, all sets beginning at the same moment.
"""

from collections.abc import Iterator
from typing import NamedTuple

from msgspec import Struct

from gpuconsole.model.clock import MILLISECOND, Span, Time, parse_time
from gpuconsole.model.cluster import Namespace, Node
from gpuconsole.model.labels import HOSTNAME, LabelSelector
from gpuconsole.model.objects import Object
from gpuconsole.model.pod_template import Container, PodSet, PodTemplate, TopologyRequest
from gpuconsole.model.queues import (
    ClusterQueue,
    ClusterQueuePreemption,
    FlavorQuotas,
    LocalQueue,
    PreemptionPolicy,
    Quota,
    ResourceFlavor,
    ResourceGroup,
    Topology,
)
from gpuconsole.model.workloads import Workload

START = parse_time("2026-01-05T08:00:00Z")
CORE = 1000
BLOCK, RACK = "cloud.provider.com/topology-block", "cloud.provider.com/topology-rack"
POOL = "tas-node-group"


class Kind(NamedTuple):
    """One set of workloads: `number` alike ones, one every `interval` milliseconds."""

    name: str
    number: int
    interval: int
    runtime: int
    """Milliseconds."""
    priority: int
    cpu: int
    """Of a pod, in milli."""
    pods: int = 1
    request: TopologyRequest | None = None


class Load(Struct, frozen=True, kw_only=True):
    """One configuration, and what is known of Kueue with it."""

    name: str
    cohorts: int
    queues: int
    """ClusterQueues of each cohort."""
    kinds: tuple[Kind, ...]
    topology: bool = False
    floor: float
    """Seconds that the quota alone imposes."""
    kueue: float
    """Seconds that Kueue took, on average, with a real API server."""
    bar: float
    """Most CPU seconds that running it to completion may take here."""
    goal: float

    @property
    def size(self) -> int:
        """How many workloads it has."""
        return self.cohorts * self.queues * sum(kind.number for kind in self.kinds)


BASELINE = Load(
    name="baseline",
    cohorts=5,
    queues=6,
    kinds=(
        Kind("small", 350, 100, 200, 50, CORE),
        Kind("medium", 100, 500, 500, 100, 5 * CORE),
        Kind("large", 50, 1200, 1000, 200, 20 * CORE),
    ),
    floor=66.0,
    kueue=351.1,
    bar=6.0,
    goal=3.5,
)
LARGE_SCALE = Load(
    name="large-scale",
    cohorts=10,
    queues=100,
    kinds=(
        Kind("small", 35, 60, 150, 50, CORE),
        Kind("medium", 11, 300, 350, 100, 5 * CORE),
        Kind("large", 4, 700, 700, 200, 20 * CORE),
    ),
    floor=4.0,
    kueue=1179.4,
    bar=25.0,
    goal=12.0,
)


def _placed(name: str, counts: tuple[int, int, int], kind: Kind, slice_size: int) -> Iterator[Kind]:
    """The three ways in which the topology load asks for a rack: `balanced` is by slices."""
    requests = (
        TopologyRequest(required=RACK),
        TopologyRequest(preferred=RACK),
        TopologyRequest(slice_required=RACK, slice_size=slice_size),
    )
    for way, count, request in zip(("required", "preferred", "balanced"), counts, requests, strict=True):
        yield kind._replace(name=f"{name}-{way}-rack", number=count, request=request)


TOPOLOGY = Load(
    name="topology",
    cohorts=5,
    queues=6,
    kinds=(
        *_placed("small", (120, 120, 110), Kind("", 0, 100, 200, 50, 500, 2), 1),
        *_placed("medium", (34, 33, 33), Kind("", 0, 500, 500, 100, 1250, 4), 2),
        *_placed("large", (17, 17, 16), Kind("", 0, 1200, 1000, 200, 2500, 8), 4),
    ),
    topology=True,
    floor=66.0,
    kueue=401.5,
    bar=20.0,
    goal=6.0,
)
LOADS = (BASELINE, LARGE_SCALE, TOPOLOGY)


class Arrival(NamedTuple):
    """A workload that appears at its creation, and how long it runs once it is admitted."""

    workload: Workload
    kind: str
    runtime: Span


def objects(load: Load) -> list[Object]:
    """Queues and, for the topology load, 640 nodes in a block of ten racks."""
    labels = {POOL: "tas"} if load.topology else {}
    flavor = ResourceFlavor(name="default", node_labels=labels, topology="default" if load.topology else "")
    things: list[Object] = [flavor]
    if load.topology:
        things += [Topology(name="default", levels=(BLOCK, RACK, HOSTNAME)), *_nodes()]
    quota = Quota(20 * CORE, borrowing_limit=100 * CORE)
    group = ResourceGroup(("cpu",), (FlavorQuotas("default", {"cpu": quota}),))
    for cohort, name in _queue_names(load):
        things += [
            Namespace(name=name),
            ClusterQueue(
                name=name,
                cohort=cohort,
                namespace_selector=LabelSelector(),
                resource_groups=(group,),
                preemption=ClusterQueuePreemption(PreemptionPolicy.LOWER_PRIORITY, PreemptionPolicy.ANY),
            ),
            LocalQueue(namespace=name, name=name, cluster_queue=name),
        ]
    return things


def arrivals(load: Load) -> list[Arrival]:
    """All workloads, in the order in which they appear."""
    templates = {kind.name: _pod_set(kind) for kind in load.kinds}
    made = [
        Arrival(
            Workload(
                namespace=queue,
                name=f"{kind.name}-{number}",
                uid=f"{kind.name}-{number}-{queue}",
                created=_appears(kind, number),
                queue=queue,
                priority=kind.priority,
                pod_sets=(templates[kind.name],),
            ),
            kind.name,
            kind.runtime * MILLISECOND,
        )
        for _, queue in _queue_names(load)
        for kind in load.kinds
        for number in range(kind.number)
    ]
    return sorted(made, key=lambda arrival: (arrival.workload.created, arrival.workload.uid))


def _queue_names(load: Load) -> Iterator[tuple[str, str]]:
    for cohort in range(load.cohorts):
        for queue in range(load.queues):
            yield f"cohort-{cohort}", f"cq-{queue}-cohort-{cohort}"


def _appears(kind: Kind, number: int) -> Time:
    return START + (number + 1) * kind.interval * MILLISECOND


def _pod_set(kind: Kind) -> PodSet:
    template = PodTemplate(containers=(Container(requests={"cpu": kind.cpu}),), restart_policy="Never")
    return PodSet(count=kind.pods, template=template, topology=kind.request)


def _nodes() -> Iterator[Node]:
    room = {"cpu": 96 * CORE, "memory": 256 * 2**30, "pods": 110}
    for rack in range(10):
        for number in range(64):
            name = f"block-0-rack-{rack}-node-{number}"
            labels = {POOL: "tas", BLOCK: "block-0", RACK: f"rack-{rack}", HOSTNAME: name}
            yield Node(name=name, labels=labels, capacity=room, allocatable=room)

"""Random clusters in the bare mode: trees of cohorts, limits, policies, flavors, topologies, and what came and went."""

from collections.abc import Iterator
from random import Random

from gpuconsole.model.clock import SECOND
from gpuconsole.model.cluster import Namespace, Node
from gpuconsole.model.events import Admit, Preempt
from gpuconsole.model.labels import LabelSelector, Taint
from gpuconsole.model.objects import Object
from gpuconsole.model.pod_template import Container, PodSet, PodTemplate, TopologyRequest
from gpuconsole.model.queues import (
    ClusterQueue,
    ClusterQueuePreemption,
    Cohort,
    FlavorQuotas,
    LocalQueue,
    PreemptionPolicy,
    QueueingStrategy,
    Quota,
    ResourceFlavor,
    ResourceGroup,
    StopPolicy,
    Topology,
)
from gpuconsole.model.workloads import Workload
from gpuconsole.scheduling.kueue.config import KueueConfig
from gpuconsole.scheduling.kueue.session import KueueSession
from gpuconsole.sim.admission_simulator import AdmissionSimulator

GPU, CPU = "nvidia.com/gpu", "cpu"
HOST, RACK = "kubernetes.io/hostname", "rack"
WITHIN = (PreemptionPolicy.NEVER, PreemptionPolicy.LOWER_PRIORITY, PreemptionPolicy.LOWER_OR_NEWER_EQUAL_PRIORITY)
RECLAIM = (PreemptionPolicy.NEVER, PreemptionPolicy.LOWER_PRIORITY, PreemptionPolicy.ANY)


def random_rehearsal(seed: int) -> AdmissionSimulator:
    """A cluster some way into its life; mostly it has come to rest, so that what waits is kept out."""
    random = Random(seed)
    rehearsal = AdmissionSimulator(KueueSession(KueueConfig(fair_sharing=random.random() < 0.25)), 1000 * SECOND)
    placed = random.random() < 0.35
    queues = list(random_queues(random, placed))
    for thing in (*random_capacity(random, placed), *queues):
        rehearsal.apply(thing)
    names = [queue.name for queue in queues if isinstance(queue, ClusterQueue)]
    for number in range(random.randint(4, 14)):
        rehearsal.apply(random_workload(random, f"w{number}", random.choice(names), number, placed))
        if random.random() < 0.5:
            rest(rehearsal)
        if random.random() < 0.15:
            running = sorted(key for key, w in rehearsal.workloads.items() if w.reserved and not w.finished)
            if running:
                rehearsal.finish(random.choice(running))
                rehearsal.requeue_inadmissible()
    rest(rehearsal)
    if random.random() < 0.1:
        rehearsal.apply(random_workload(random, "late", random.choice(names), 99, placed))
    return rehearsal


def rest(rehearsal: AdmissionSimulator) -> None:
    """Run cycles until the bare mode would stop."""
    for _ in resting(rehearsal):
        pass


def resting(rehearsal: AdmissionSimulator, most: int = 400) -> Iterator[None]:
    """One cycle after another as the bare mode runs them: until one decides nothing and changes nobody's place."""
    rehearsal.requeue_inadmissible()
    for _ in range(most):
        before = _active(rehearsal)
        if not rehearsal.session.has_heads:
            return
        moved = any(isinstance(decision, Admit | Preempt) for decision in rehearsal.run_cycle())
        yield
        if not moved and before == _active(rehearsal):
            return


def _active(rehearsal: AdmissionSimulator) -> list[list[str]]:
    names = sorted(rehearsal.session.compiled_config.queues)
    return [
        sorted(p.workload.key for p in rehearsal.session.pending_workloads(name) if not p.inadmissible)
        for name in names
    ]


def random_capacity(random: Random, placed: bool) -> Iterator[Object]:
    yield Namespace(name="team", labels={"kind": random.choice(("lab", "lab", "lab", "shop"))})
    if not placed:
        taints = (Taint("gpu", "yes"),) if random.random() < 0.3 else ()
        yield ResourceFlavor(name="a", node_labels={"model": "a"})
        yield ResourceFlavor(name="b", node_labels={"model": "b"}, node_taints=taints)
        return
    yield Topology(name="racks", levels=(RACK, HOST))
    for name in "ab":
        yield ResourceFlavor(name=name, node_labels={"model": name}, topology="racks")
        for rack in range(2):
            for host in range(random.randint(1, 2)):
                node = f"{name}-{rack}-{host}"
                labels = {"model": name, RACK: f"{name}-{rack}", HOST: node}
                room = {GPU: 4, CPU: 16_000, "pods": 20}
                yield Node(name=node, labels=labels, capacity=room, allocatable=room)


def random_queues(random: Random, placed: bool) -> Iterator[Object]:
    depth = random.randint(0, 2)
    if depth == 2:
        yield Cohort(name="root", resource_groups=(_group(random, 0, 4),) if random.random() < 0.5 else ())
    if depth:
        for name in ("left", "right"):
            groups = (_group(random, 0, 3),) if random.random() < 0.4 else ()
            yield Cohort(name=name, parent="root" if depth == 2 else "", resource_groups=groups)
    for number in range(random.randint(1, 4)):
        name = f"q{number}"
        yield ClusterQueue(
            name=name,
            cohort=random.choice(("left", "right")) if depth else random.choice(("", "pool")),
            namespace_selector=random.choice((LabelSelector(), LabelSelector(), LabelSelector({"kind": "lab"}))),
            queueing_strategy=random.choice(list(QueueingStrategy)),
            resource_groups=(_group(random, 4, 14, two=False) if placed else _group(random, 0, 8),),
            preemption=ClusterQueuePreemption(random.choice(WITHIN), random.choice(RECLAIM)),
        )
        stopped = StopPolicy.HOLD if random.random() < 0.05 else StopPolicy.NONE
        yield LocalQueue(namespace="team", name=name, cluster_queue=name, stop_policy=stopped)


def _group(random: Random, least: int, most: int, *, two: bool = True) -> ResourceGroup:
    def quota(unit: int) -> Quota:
        limits = [None if random.random() < 0.6 else random.randint(0, 4) * unit for _ in range(2)]
        return Quota(random.randint(least, most) * unit, *limits)

    with_cpu = random.random() < 0.4
    resources = (CPU, GPU) if with_cpu else (GPU,)
    flavors = ("a", "b") if two and random.random() < 0.5 else ("a",)
    units = {CPU: 2000, GPU: 1}
    return ResourceGroup(resources, tuple(FlavorQuotas(f, {r: quota(units[r]) for r in resources}) for f in flavors))


def random_workload(random: Random, name: str, queue: str, created: int, placed: bool) -> Workload:
    count = random.choice((1, 1, 2, 3))
    least = None
    if created % 4 == 3:
        # Some would begin with fewer pods than they ask for; no chance is drawn for it, so that the others stay.
        count, least = count + 2, count + 1
    requests = {GPU: random.randint(1, 4)} | ({CPU: random.choice((1000, 3000))} if random.random() < 0.3 else {})
    topology = None
    if placed and random.random() < 0.7:
        topology = TopologyRequest(required=random.choice((HOST, RACK, RACK)))
    selector = {"model": "b"} if random.random() < 0.1 else {}
    template = PodTemplate(containers=(Container(requests=requests),), node_selector=selector)
    return Workload(
        namespace="team",
        name=name,
        uid=f"uid-{name}",
        created=created * SECOND,
        queue=queue,
        priority=random.choice((0, 0, 10, 20)),
        active=random.random() > 0.03,
        pod_sets=(PodSet(count=count, min_count=least, template=template, topology=topology),),
    )

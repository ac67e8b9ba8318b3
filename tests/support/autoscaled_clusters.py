"""Small clusters that grow and shrink: a catalogue of two families in two zones, pools, jobs, and what was said."""

from collections.abc import Iterable

from msgspec.structs import replace

from gpuconsole.model.autoscaling import InstanceTypeCatalogue, NodeGroup, NodePool, NodePoolBudget, load
from gpuconsole.model.clock import MINUTE, SECOND, Span
from gpuconsole.model.cluster import Node
from gpuconsole.model.events import HistoryEvent, HistoryEventKind
from gpuconsole.model.job import Job
from gpuconsole.model.objects import Object
from gpuconsole.model.pod_template import Container, PodSet, PodTemplate
from gpuconsole.sim.engine import Simulation
from gpuconsole.sim.policy import AutoscalerPolicy, Capacity, KarpenterPolicy, ScalingGroup, SimPolicy, SpotPolicy
from tests.support.sim_cluster import GPU, START, start

GIB = 2**30
CATALOGUE: InstanceTypeCatalogue = load(
    """
zones: [a, b]
gpus: {x: {product: X, memory: 16Gi}}
types:
  s.1: {cpu: 8, memory: 32Gi, gpus: 1, gpu: x, onDemand: 1.0, spot: {a: 0.4, b: 0.5}, interrupted: 10}
  s.4: {cpu: 32, memory: 128Gi, gpus: 4, gpu: x, onDemand: 3.6, spot: {a: 1.5, b: 1.7}, interrupted: 10}
  t.1: {cpu: 8, memory: 32Gi, gpus: 1, gpu: x, onDemand: 1.2, spot: {a: 0.45, b: 0.6}, interrupted: 10}
  t.4: {cpu: 32, memory: 128Gi, gpus: 4, gpu: x, onDemand: 4.0, spot: {a: 1.6, b: 1.8}, interrupted: 10}
"""
)
QUIET = SpotPolicy(interruptions=0)
KARPENTER = KarpenterPolicy(catalogue=CATALOGUE)
ALL = (NodePoolBudget("100%"),)
ON_DEMAND = ("karpenter.sh/capacity-type", "In", ("on-demand",))
SPOT = ("karpenter.sh/capacity-type", "In", ("spot",))
EITHER = ("karpenter.sh/capacity-type", "In", ("spot", "on-demand"))


def types(*names: str) -> tuple[str, str, tuple[str, ...]]:
    """A pool's requirement of these types."""
    return ("node.kubernetes.io/instance-type", "In", names)


def pool(name: str = "p", *requirements: tuple[str, str, tuple[str, ...]], **facts: object) -> NodePool:
    """A pool that buys on demand unless something else is said, and lets all its nodes be disrupted at once."""
    usual: dict[str, object] = {"budgets": ALL, "consolidate_after": "Never"}
    return NodePool(name=name, requirements=requirements or (ON_DEMAND,), **{**usual, **facts})  # type: ignore[arg-type]


def policy(capacity: Capacity = KARPENTER, spot: SpotPolicy = QUIET) -> SimPolicy:
    return SimPolicy(kueue=None, capacity=capacity, spot=spot)


def groups(*groups: ScalingGroup, **flags: object) -> SimPolicy:
    """The Cluster Autoscaler with these groups."""
    return policy(AutoscalerPolicy(catalogue=CATALOGUE, groups=groups, **flags))  # type: ignore[arg-type]


def job(
    name: str,
    gpus: int = 1,
    *,
    pods: int = 1,
    duration: Span | None = 10 * 60 * MINUTE,
    checkpoint: Span | None = None,
    cpu: int = 1000,
    priority: int = 0,
    notes: dict[str, str] | None = None,
    pod_notes: dict[str, str] | None = None,
    labels: dict[str, str] | None = None,
    selector: dict[str, str] | None = None,
) -> Job:
    """A job that no queue holds back; its pods are told 30 s before they are killed."""
    shape = PodTemplate(
        labels=labels or {},
        annotations=pod_notes or {},
        containers=(Container(requests={GPU: gpus, "cpu": cpu, "memory": GIB}),),
        grace_period=30 * SECOND,
        restart_policy="Never",
        node_selector=selector or {},
        priority=priority,
    )
    return Job(
        namespace="ml",
        name=name,
        uid=name,
        annotations=notes or {},
        pod_sets=(PodSet(count=pods, template=shape),),
        duration=duration,
        checkpoint_interval=checkpoint,
    )


def begin(objects: Iterable[Object], capacity: SimPolicy | None = None, seed: int = 1) -> Simulation:
    return start(objects, capacity or policy(), seed)


def member(name: str, kind: str, group: str = "p", *, zone: str = "a", spot: bool = False) -> Node:
    """A node that belongs to a pool from the start."""
    found = CATALOGUE.types[kind]
    labels = found.labels(zone, "spot" if spot else "on-demand")
    return Node(
        name=name,
        uid=name,
        labels={**labels, "karpenter.sh/nodepool": group, "kubernetes.io/hostname": name},
        capacity=found.capacity,
        allocatable=found.capacity,
    )


def machines(simulation: Simulation) -> dict[str, str]:
    """What there is: name → type, zone, capacity type, and how far it is."""
    found: list[NodeGroup] = list(simulation.snapshot().node_groups.all())
    return {
        one.name: f"{one.type} {one.zone} {one.capacity_type} "
        + ("leaving" if one.leaving is not None else "starting" if one.ready is None else "ready")
        for group in found
        for one in group.instances
    }


def where(simulation: Simulation) -> dict[str, str]:
    """Pod → node."""
    return {pod.name: pod.node for pod in simulation.snapshot().pods.all() if not pod.done}


def said(simulation: Simulation) -> list[str]:
    """What autoscalers and the cloud said since the last time: moment, about what, reason, message."""
    lines = [
        event
        for event in simulation.drain()
        if isinstance(event, HistoryEvent) and event.what is HistoryEventKind.CAPACITY
    ]
    return [f"{_moment(line.time)} {line.node or line.pod} {line.reason}: {line.message}" for line in lines]


def after(simulation: Simulation, span: Span) -> Simulation:
    """The same simulation, later."""
    simulation.advance(simulation.now + span)
    return simulation


def without_catalogue(capacity: KarpenterPolicy, *names: str) -> KarpenterPolicy:
    """Karpenter where some offerings cannot be had."""
    return replace(capacity, unavailable=names)


def _moment(time: int) -> str:
    minutes, rest = divmod(time - START, MINUTE)
    return f"{minutes}:{rest // SECOND:02d}"

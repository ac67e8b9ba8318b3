"""Calculations of the Cluster Autoscaler: scale-up options, the choice among them, and unneeded nodes. Pure.

Cluster Autoscaler FAQ and core: pods are packed on template nodes first-fit by decreasing size; the expander chooses
among the groups that would help; a node is unneeded if less than half of it is requested and its pods fit elsewhere.
"""

from collections.abc import Iterable, Mapping, Sequence
from random import Random

from msgspec import Struct

from gpuconsole.model.cluster import Node, Pod
from gpuconsole.model.resources import CPU, GPU_RESOURCES, MEMORY, gpus
from gpuconsole.scheduling.kube.pod_classes import PodClasses
from gpuconsole.sim.autoscaling.evictions import Allowances, annotated
from gpuconsole.sim.autoscaling.node_fit import NodeFit, first_fit
from gpuconsole.sim.autoscaling.policy import AutoscalerPolicy, Expander, ScalingGroup

SAFE_TO_EVICT = "cluster-autoscaler.kubernetes.io/safe-to-evict"
SAFE_LOCAL_VOLUMES = "cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes"
"""Annotation of a pod: names of local volumes, with commas, that may be lost."""
NO_SCALE_DOWN = "cluster-autoscaler.kubernetes.io/scale-down-disabled"


class ExpansionOption(Struct, frozen=True):
    """A group that would help: the number of nodes to add, and the pods that fit on them."""

    group: ScalingGroup
    nodes: int
    pods: tuple[str, ...]
    cost: float
    """USD an hour."""
    waste: float
    """Fraction of cpu plus fraction of memory that the pods leave unused on the new nodes."""


def estimate(
    group: ScalingGroup, template: Node, price: float, pods: Sequence[Pod], most: int
) -> ExpansionOption | None:
    """The number of nodes of a group that the pods need, at most `most`; None if the group helps no pod."""
    shapes = PodClasses()
    rooms: list[NodeFit] = []
    helped = []
    for pod in sorted(pods, key=lambda pod: _size(pod, template)):
        shape = shapes.of(pod.template)
        if first_fit(rooms, shape) is not None:
            helped.append(pod)
        elif len(rooms) < most and (room := NodeFit(template)).take(shape):
            rooms.append(room)
            helped.append(pod)
    if not helped:
        return None
    waste = sum(_unused(rooms, template, helped, name) for name in (CPU, MEMORY))
    return ExpansionOption(group, len(rooms), tuple(pod.key for pod in helped), price * len(rooms), waste)


def choose(options: Sequence[ExpansionOption], expander: Expander, random: Random) -> ExpansionOption | None:
    """The option that the expander picks; of equal ones the first by name."""
    named = sorted(options, key=lambda option: option.group.name)
    match expander:
        case Expander.LEAST_WASTE:
            return min(named, key=lambda option: round(option.waste, 9), default=None)
        case Expander.MOST_PODS:
            return min(named, key=lambda option: -len(option.pods), default=None)
        case Expander.LEAST_NODES:
            return min(named, key=lambda option: option.nodes, default=None)
        case Expander.PRICE:
            return min(named, key=lambda option: option.cost / len(option.pods), default=None)
        case Expander.PRIORITY:
            return min(named, key=lambda option: -option.group.priority, default=None)
        case Expander.RANDOM:
            return random.choice(named) if named else None


def utilization(node: Node, pods: Iterable[Pod]) -> float:
    """The requested fraction of a node: of GPUs if it has some, else the greater one of cpu and memory."""
    requested: dict[str, int] = {}
    for pod in pods:
        for name, amount in pod.template.requests.items():
            requested[name] = requested.get(name, 0) + amount
    names = [name for name in GPU_RESOURCES if node.allocatable.get(name)] if gpus(node.allocatable) else [CPU, MEMORY]
    return max((requested.get(n, 0) / node.allocatable[n] for n in names if node.allocatable.get(n)), default=0.0)


def blocker(node: Node, pods: Iterable[Pod], allowances: Allowances) -> str:
    """Why a node's pods cannot be moved; empty if they can (drainability rules of the Cluster Autoscaler)."""
    if node.annotations.get(NO_SCALE_DOWN) == "true":
        return "scale down is disabled by annotation"
    for pod in sorted(pods, key=lambda pod: pod.key):
        safe = annotated(pod, SAFE_TO_EVICT)
        if safe == "false":
            return f"pod {pod.key} has annotation {SAFE_TO_EVICT}: false (NotSafeToEvictAnnotation)"
        if safe != "true" and not (pod.job or pod.workload):
            return f"pod {pod.key} is not replicated (NotReplicated)"
        if safe != "true" and pod.namespace == "kube-system" and not allowances.covers(pod):
            return f"pod {pod.key} is of kube-system and has no PodDisruptionBudget (UnmovableKubeSystemPod)"
        local = set(pod.template.local_volumes) - set(annotated(pod, SAFE_LOCAL_VOLUMES).split(","))
        if safe != "true" and local:
            return f"pod {pod.key} has local storage: {', '.join(sorted(local))} (LocalStorageRequested)"
        budget = allowances.blocker(pod)
        if budget:
            return f"not enough pod disruption budget to move {pod.key}: {budget} (NotEnoughPdb)"
    return ""


def unneeded(
    nodes: Sequence[Node],
    pods: Mapping[str, Sequence[Pod]],
    rooms: Sequence[NodeFit],
    allowances: Allowances,
    policy: AutoscalerPolicy,
) -> tuple[list[str], dict[str, str]]:
    """Nodes that can be removed together, and what blocks the removal of other underutilized ones.

    Each node's pods are placed on others before the next node is checked; a node that received some is kept.
    """
    by_name = {room.node.name: room for room in rooms}
    found: list[str] = []
    kept: dict[str, str] = {}
    hosts: set[str] = set()
    shapes = PodClasses()
    for node in sorted(nodes, key=lambda node: (bool(_moving(pods, node, policy)), node.name)):
        own = _moving(pods, node, policy)
        bound = policy.gpu_utilization if node.gpus else policy.utilization
        if node.name in hosts or utilization(node, own) >= bound:
            continue
        why = blocker(node, own, allowances)
        if not why:
            others = [by_name[name] for name in sorted(by_name) if name != node.name and name not in found]
            homes = _move(own, others, shapes)
            why = "" if homes is not None else "its pods do not fit elsewhere (NoPlaceToMovePods)"
        if why:
            kept[node.name] = why
        else:
            hosts.update(homes or ())
            found.append(node.name)
    return found, kept


def _moving(pods: Mapping[str, Sequence[Pod]], node: Node, policy: AutoscalerPolicy) -> list[Pod]:
    """The pods that have to move before a node is removed: neither terminating nor below the priority cutoff."""
    return [pod for pod in pods.get(node.name, ()) if not pod.deleted and pod.priority >= policy.cutoff]


def _move(pods: Sequence[Pod], rooms: Sequence[NodeFit], shapes: PodClasses) -> list[str] | None:
    """New nodes for the pods; None, and nothing is reserved, if one of them does not fit."""
    before = [(room, dict(room.left)) for room in rooms]
    homes = []
    for pod in pods:
        room = first_fit(rooms, shapes.of(pod.template))
        if room is None:
            for old, left in before:
                old.reset(left)
            return None
        homes.append(room.node.name)
    return homes


def _size(pod: Pod, template: Node) -> tuple[float, str]:
    """Sort key, the largest pod first: cpu and memory as fractions of the node."""
    requests = pod.template.requests
    parts = (requests.get(name, 0) / (template.allocatable.get(name) or 1) for name in (CPU, MEMORY))
    return (-sum(parts), pod.key)


def _unused(rooms: Sequence[NodeFit], template: Node, pods: Sequence[Pod], resource: str) -> float:
    total = template.allocatable.get(resource, 0) * len(rooms)
    asked = sum(pod.template.requests.get(resource, 0) for pod in pods)
    return (total - asked) / total if total else 0.0

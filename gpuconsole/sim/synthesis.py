"""Generates nodes from quotas if the input has none, so that queues alone can be simulated."""

from collections.abc import Iterable, Mapping, Sequence

from gpuconsole.model.cluster import Node
from gpuconsole.model.documents.metadata import LONGEST_LABEL
from gpuconsole.model.labels import HOSTNAME
from gpuconsole.model.objects import Object
from gpuconsole.model.queues import ClusterQueue, Cohort, Quota, ResourceFlavor, Topology
from gpuconsole.model.resources import CPU, EPHEMERAL_STORAGE, MEMORY, PODS, is_gpu, is_mig

GIB = 2**30
GPUS_PER_NODE = 8
_CPU_A_GPU, _MEMORY_A_GPU = 32_000, 256 * GIB
_CPU_NODE, _MEMORY_NODE = 64_000, 512 * GIB
_MOST_NODES = 10_000


def complete(objects: Iterable[Object], *, gpus_per_node: int = GPUS_PER_NODE) -> tuple[Object, ...]:
    """The objects, with nodes generated from the flavors if there is no Node among them.

    Namespaces that are only referenced are created during the simulation.
    """
    given = tuple(objects)
    if any(isinstance(obj, Node) for obj in given):
        return given
    return (*given, *nodes_for(given, gpus_per_node))


def nodes_for(objects: Iterable[Object], gpus_per_node: int) -> list[Node]:
    """Nodes for the nominal quota: ⌈Σ nominal GPUs of the flavor / GPUs per node⌉ of each flavor, at most 10,000.

    A flavor without GPUs gets nodes for its cpu and memory. The nodes of a flavor with a Topology have labels for its
    levels: they share one domain at each level above the host, so that the generated topology splits no gang.
    """
    given = tuple(objects)
    totals: dict[str, dict[str, int]] = {}
    for obj in given:
        if isinstance(obj, (ClusterQueue, Cohort)):
            _add(totals, obj.quotas())
    flavors = {obj.name: obj for obj in given if isinstance(obj, ResourceFlavor)}
    levels = {obj.name: obj.levels for obj in given if isinstance(obj, Topology)}
    found = (flavors.get(name, ResourceFlavor(name=name)) for name in totals)
    return [
        node
        for flavor in found
        for node in _nodes(flavor, levels.get(flavor.topology, ()), totals[flavor.name], gpus_per_node)
    ]


def _add(totals: dict[str, dict[str, int]], quotas: dict[tuple[str, str], Quota]) -> None:
    for (flavor, resource), quota in quotas.items():
        of_flavor = totals.setdefault(flavor, {})
        of_flavor[resource] = of_flavor.get(resource, 0) + quota.nominal


def _nodes(flavor: ResourceFlavor, levels: Sequence[str], total: dict[str, int], gpus_per_node: int) -> list[Node]:
    devices = {name: amount for name, amount in total.items() if is_gpu(name) or is_mig(name)}
    count = max((-(-amount // gpus_per_node) for amount in devices.values()), default=0)
    capacity = {CPU: _CPU_NODE, MEMORY: _MEMORY_NODE}
    if devices:
        capacity = {CPU: _CPU_A_GPU * gpus_per_node, MEMORY: _MEMORY_A_GPU * gpus_per_node}
        capacity.update(dict.fromkeys(devices, gpus_per_node))
    # The nodes have enough cpu and memory for the whole quota.
    for resource in (CPU, MEMORY):
        if not devices:
            count = max(count, -(-total.get(resource, 0) // capacity[resource]))
        elif count:
            capacity[resource] = max(capacity[resource], -(-total.get(resource, 0) // count))
    # Other resources with quota are spread over the nodes.
    for resource, amount in total.items():
        if count and resource not in capacity:
            capacity[resource] = -(-amount // count)
    capacity = {PODS: 250, EPHEMERAL_STORAGE: 1000 * GIB, **capacity}
    domain = flavor.name[:LONGEST_LABEL].rstrip("-.")
    labels = {**dict.fromkeys(levels, domain), **flavor.node_labels}
    return [_node(flavor, labels, number, capacity) for number in range(1, min(count, _MOST_NODES) + 1)]


def _node(flavor: ResourceFlavor, labels: Mapping[str, str], number: int, capacity: dict[str, int]) -> Node:
    name = f"{flavor.name}-{number}"
    return Node(
        name=name,
        uid=f"node-{name}",
        labels={**labels, HOSTNAME: flavor.node_labels.get(HOSTNAME, name)},
        taints=flavor.node_taints,
        capacity=capacity,
        allocatable=capacity,
        synthesised=True,
    )

"""GPU allocations of pods by node, owner and queue, updated incrementally from Snapshot to Snapshot."""

from collections import Counter
from collections.abc import Mapping

from msgspec import Struct

from gpuconsole.insight.demand import pod_accelerators, pod_gpus
from gpuconsole.insight.device_demand import CLAIMED, counted_as, device_counter, pod_units
from gpuconsole.insight.gpu_time import dra_devices_of
from gpuconsole.insight.pods_by_node import Pods, pods_by_node
from gpuconsole.model.cluster import Node, Pod, PodPhase
from gpuconsole.model.device_units import DRA_DEVICE, Units
from gpuconsole.model.gpus.mig_resources import division_of
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.scheduling.queue_names import group_key, own_queue, queue_by


class GpuAllocation(Struct, frozen=True):
    """GPU allocation of one scheduled pod, or request of one unscheduled pod."""

    pod: str
    owner: str
    """Its owner: its Workload, its job, its gang, or itself."""
    namespace: str
    workload: str
    group: str
    """Key of the PodGroup that it names, if any."""
    queue: str
    """The queue that the pod itself names."""
    gpus: float
    """GPUs allocated, or requested while pending. A GPU that several pods share is split equally among them."""
    devices: int
    """Units that it requests: whole GPUs, replicas of shared ones, MIG instances, DRA devices."""
    parts: Mapping[str, int]
    """MIG instances by resource, and DRA devices as CLAIMED: requests other than GPUs."""
    part: float
    """Fraction of the node's GPUs; 0 for a pod without GPUs."""


NO_PARTS: Mapping[str, int] = {}
GpuAllocations = Mapping[str, tuple[GpuAllocation, ...]]
"""Node → its holdings; ``""`` → unscheduled pods."""
Kept = dict[str, tuple[Pods, Node | None, tuple[GpuAllocation, ...]]]
_kept: list[Kept] = [{}]


def gpu_allocations(snapshot: Snapshot) -> GpuAllocations:
    """Return the allocations of all unfinished pods; those of unchanged nodes are the same objects."""
    before, now = _kept[0], Kept()
    for name, pods in pods_by_node(snapshot).by_node.items():
        node = snapshot.nodes.get(name)
        known = before.get(name)
        if known is not None and known[0] is pods and known[1] is node:
            now[name] = known
        else:
            sharers = Counter(index for pod in pods.values() for index in pod.gpus)
            now[name] = (pods, node, tuple(_holding(snapshot, pod, node, sharers) for pod in pods.values()))
    _kept[0] = now
    return {name: held for name, (_, _, held) in now.items()}


def starts(snapshot: Snapshot, held: GpuAllocation) -> bool:
    """True for a scheduled pod that is not running yet."""
    pod = snapshot.pods.get(held.pod)
    return pod is not None and pod.phase is not PodPhase.RUNNING


def _holding(snapshot: Snapshot, pod: Pod, node: Node | None, sharers: Mapping[int, int]) -> GpuAllocation:
    gpus = sum(1 / sharers[index] for index in pod.gpus) or pod_gpus(pod.template)
    group, units = group_key(pod), pod_units(snapshot, pod)
    return GpuAllocation(
        pod=pod.key,
        owner=pod.workload or pod.job or group or pod.key,
        namespace=pod.namespace,
        workload=pod.workload,
        group=group,
        queue=own_queue(pod),
        gpus=gpus,
        devices=sum(units.values()),
        parts=_parts(pod, units),
        part=_part(snapshot, pod, node, gpus),
    )


def _parts(pod: Pod, units: Units) -> Mapping[str, int]:
    found = {name: n for name, n in pod_accelerators(pod.template).items() if counted_as(name)}
    return {**found, CLAIMED: units[DRA_DEVICE]} if units.get(DRA_DEVICE) else found or NO_PARTS


def _part(snapshot: Snapshot, pod: Pod, node: Node | None, gpus: float) -> float:
    """Return the share of the node's GPUs that a pod uses; a MIG instance counts by compute slices, a device as one."""
    if node is None:
        return 0.0
    division = division_of(node.allocatable, node.labels, node.annotations)
    if division is not None and pod.slices:
        slices = division.geometry.compute
        held = sum(division.geometry.by_name[one.profile].compute / slices for one in pod.slices)
        return min(1.0, held / max(1, division.gpus))
    if node.gpus:
        return min(1.0, gpus / node.gpus)
    devices = dra_devices_of(snapshot).get(node.name, 0) if pod.template.resource_claims else 0
    return min(1.0, device_counter(snapshot).claimed_gpus(pod) / devices) if devices else 0.0


def queue_of(snapshot: Snapshot, holding: GpuAllocation) -> str:
    """Return the queue of a pod: Kueue's ClusterQueue, else Volcano's or KAI's queue; may be empty."""
    workload = snapshot.workloads.get(holding.workload) if holding.workload else None
    if workload is not None and workload.cluster_queue:
        return workload.cluster_queue
    return queue_by(
        holding.group, holding.queue, snapshot.kai_pod_groups.get, snapshot.pod_groups.get, snapshot.volcano_queues.get
    )

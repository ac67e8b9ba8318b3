"""Accelerators that workloads and pods request and hold: GPUs, MIG instances, time-slicing replicas, DRA devices."""

from collections.abc import Iterable, Mapping
from itertools import chain

from gpuconsole.insight.demand import held
from gpuconsole.insight.derived import memoized
from gpuconsole.model import device_requests
from gpuconsole.model.cluster import Pod
from gpuconsole.model.device_requests import NOTHING_OFFERED, DeviceCounter, claimed_devices
from gpuconsole.model.device_units import DRA_DEVICE, DeviceUnit, Units, added, in_one_unit, is_counted, unit_of
from gpuconsole.model.pod_template import PodTemplate
from gpuconsole.model.resources import CPU, EPHEMERAL_STORAGE, GPU_RESOURCES, MEMORY, PODS
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.model.workloads import Workload

CLAIMED = "claimed"
"""Stands for the resources that quotas count DRA devices in (Kueue: deviceClassMappings)."""
_CORE = frozenset((CPU, MEMORY, EPHEMERAL_STORAGE, PODS))


_offered = [NOTHING_OFFERED]


def resource_units(snapshot: Snapshot) -> Mapping[str, DeviceUnit]:
    """Map each resource to its unit on the nodes that offer it; whole GPUs if they differ or none offers it."""
    # Replaced as a whole, so that threads do the same work twice at worst.
    found = _offered[0].updated(snapshot.nodes.rows)
    _offered[:] = [found]
    return found.units


@memoized("nodes", "resource_claim_templates", "resource_claims")
def device_counter(snapshot: Snapshot) -> DeviceCounter:
    """Return a counter of accelerators that knows the nodes and claims of a Snapshot."""
    return DeviceCounter.of_snapshot(snapshot)


def in_units(snapshot: Snapshot, amounts: Mapping[str, int]) -> dict[DeviceUnit, int]:
    """Convert amounts of resources to the units that the cluster's nodes offer; other resources are left out."""
    return device_requests.in_units(amounts, resource_units(snapshot))


def quota_accelerators(snapshot: Snapshot) -> frozenset[str]:
    """Return the resources of ClusterQueues and Cohorts that are accelerators.

    Where devices are claimed (DRA), a resource that no node offers is taken for a name of device classes (Kueue:
    deviceClassMappings; its Configuration is not part of a Snapshot).
    """
    claims_devices = len(snapshot.device_classes) or len(snapshot.resource_claim_templates)
    return _with_devices(snapshot) if claims_devices else _counted(snapshot)


@memoized("cluster_queues", "cohorts")
def _covered(snapshot: Snapshot) -> frozenset[str]:
    """All resources with quota."""
    quotas = chain((q.quotas() for q in snapshot.cluster_queues.all()), (c.quotas() for c in snapshot.cohorts.all()))
    return frozenset(resource for part in quotas for _, resource in part)


@memoized("cluster_queues", "cohorts")
def _counted(snapshot: Snapshot) -> frozenset[str]:
    return frozenset(name for name in _covered(snapshot) if is_counted(name))


@memoized("cluster_queues", "cohorts", "nodes")
def _with_devices(snapshot: Snapshot) -> frozenset[str]:
    offered = {name for node in snapshot.nodes.all() for name in node.allocatable}
    others = (name for name in _covered(snapshot) - offered - _CORE if not name.startswith("hugepages-"))
    return _counted(snapshot) | frozenset(others)


def counted_as(resource: str) -> str:
    """Return the name by which a resource is counted: ``""`` for GPUs, CLAIMED for DRA devices, else its own."""
    return "" if resource in GPU_RESOURCES else resource if is_counted(resource) else CLAIMED


def quota_unit(snapshot: Snapshot, resource: str) -> DeviceUnit:
    """Return the unit of a resource among `quota_accelerators`."""
    return resource_units(snapshot).get(resource) or (unit_of(resource) if is_counted(resource) else DRA_DEVICE)


def template_units(snapshot: Snapshot, namespace: str, template: PodTemplate) -> dict[DeviceUnit, int]:
    """Return the request of one pod, with the first of alternative requests and all devices of a shared claim."""
    found = in_units(snapshot, template.requests)
    if not template.resource_claims:
        return found
    templates, claims = snapshot.resource_claim_templates.get, snapshot.resource_claims.get
    return added(found, {DRA_DEVICE: claimed_devices(namespace, template, templates, claims)})


def pod_units(snapshot: Snapshot, pod: Pod) -> dict[DeviceUnit, int]:
    """Request of a pod."""
    return template_units(snapshot, pod.namespace, pod.template)


def wanted_units(snapshot: Snapshot, workload: Workload) -> dict[DeviceUnit, int]:
    """Request of all pods of a workload; a claim that they share counts once."""
    total: dict[DeviceUnit, int] = {}
    for pod_set in workload.pod_sets:
        units = template_units(snapshot, workload.namespace, pod_set.template)
        shared = any(claim.claim for claim in pod_set.template.resource_claims)
        total = added(
            total,
            {unit: n * (1 if shared and unit == DRA_DEVICE else pod_set.count) for unit, n in units.items()},
        )
    return total


def claimed(snapshot: Snapshot, workloads: Iterable[Workload]) -> int:
    """DRA devices that these workloads claim."""
    if not len(snapshot.resource_claim_templates) and not len(snapshot.resource_claims):
        return 0
    return sum(wanted_units(snapshot, workload).get(DRA_DEVICE, 0) for workload in workloads)


def held_units(snapshot: Snapshot, workload: Workload) -> dict[DeviceUnit, int]:
    """Quota of accelerators that a workload holds."""
    counted = quota_accelerators(snapshot)
    return added(
        *(
            {quota_unit(snapshot, resource): amount}
            for (_, resource), amount in held(workload)
            if resource in counted or is_counted(resource)
        )
    )


def units_of(snapshot: Snapshot, workload: Workload) -> Units:
    """Accelerators that a workload holds, or requests while it holds none."""
    return held_units(snapshot, workload) or wanted_units(snapshot, workload)


def amount_of(snapshot: Snapshot, workload: Workload) -> tuple[int, str]:
    """Return a workload's accelerators as one number with its singular unit: `8, "GPU"`, `4, "MIG 1g.5gb instance"`."""
    return in_one_unit(units_of(snapshot, workload))

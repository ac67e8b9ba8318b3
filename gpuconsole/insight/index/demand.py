"""Requests and held quota of workloads and pods, as plain numbers that are fast enough for 100,000 workloads.

Amounts are by resource, by (flavor, resource), or by unit: GPUs, MIG instances, time-slicing replicas, DRA devices.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain

from gpuconsole.insight.derived import incremental, memoized
from gpuconsole.model import device_requests
from gpuconsole.model.clock import Span, Time, parse_span
from gpuconsole.model.cluster import Pod
from gpuconsole.model.device_requests import NOTHING_OFFERED, DeviceCounter, OfferedUnits, claimed_devices
from gpuconsole.model.devices import DRA_DEVICE, DeviceUnit, Units, added, in_one_unit, is_counted, unit_of
from gpuconsole.model.job import Job
from gpuconsole.model.pod_template import PodTemplate
from gpuconsole.model.resources import CPU, EPHEMERAL_STORAGE, GPU_RESOURCES, MEMORY, PODS, gpus
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.model.workloads import Workload
from gpuconsole.scheduling.kueue.config import KueueConfig
from gpuconsole.scheduling.kueue.pod_resources import admitted_usage

CONFIG = KueueConfig()
"""Kueue's defaults: a Snapshot does not contain Kueue's configuration."""
FlavorResource = tuple[str, str]
"""(flavor, resource)"""


def pod_gpus(template: PodTemplate) -> int:
    """Whole GPUs that one pod requests; the same as `gpus(template.requests)`, but faster."""
    if template.init_containers or template.overhead:
        return gpus(template.requests)
    total = 0
    for container in template.containers:
        requests, limits = container.requests, container.limits
        for name in GPU_RESOURCES:
            total += requests[name] if name in requests else limits.get(name, 0)
    return total


def pod_accelerators(template: PodTemplate) -> dict[str, int]:
    """Whole GPUs, time-slicing replicas and MIG instances that one pod requests, by resource."""
    if template.init_containers or template.overhead:
        return {name: amount for name, amount in template.requests.items() if amount and is_counted(name)}
    total: dict[str, int] = {}
    for container in template.containers:
        for name, amount in container.effective.items():
            if amount and is_counted(name):
                total[name] = total.get(name, 0) + amount
    return total


def wanted_accelerators(workload: Workload) -> dict[str, int]:
    """Return whole GPUs, time-slicing replicas and MIG instances that all pods of a workload request, by resource."""
    total: dict[str, int] = {}
    for pod_set in workload.pod_sets:
        for name, amount in pod_accelerators(pod_set.template).items():
            total[name] = total.get(name, 0) + amount * pod_set.count
    return total


def held(workload: Workload) -> Iterator[tuple[FlavorResource, int]]:
    """Yield the quota that a workload holds by (flavor, resource); empty without an admission.

    A pair may come more than once. Reclaimable pods hold no quota; they are counted by Kueue's rule.
    """
    if workload.admission is None:
        return
    if workload.reclaimable:
        for flavor, resource, amount in admitted_usage(workload, CONFIG):
            if flavor:
                yield (flavor, resource), amount
        return
    for assignment in workload.admission.pod_sets:
        usage = assignment.usage
        for resource, flavor in assignment.flavors.items():
            yield (flavor, resource), usage.get(resource, 0)


def waiting_since(workload: Workload) -> Time:
    """Return the start of the current wait of a workload: its creation, or its last eviction."""
    for condition in workload.conditions:
        if condition.type == "Evicted":
            return max(workload.created, condition.since) if condition.status else workload.created
    return workload.created


def admitted_since(workload: Workload) -> Time | None:
    """Return the time of admission; None if the workload is not admitted."""
    admitted = workload.condition("Admitted")
    return admitted.since if admitted is not None and admitted.status else None


def work_since(workload: Workload, job: Job | None) -> Time | None:
    """Return the start of the current run of a workload, as far as known; None if it holds no quota."""
    since = admitted_since(workload)
    if since is None:
        return None
    ready = workload.condition("PodsReady")
    if ready is not None and ready.status:
        return max(since, ready.since)
    return max(since, job.started) if job is not None and job.started else since


def ends_at(workload: Workload, job: Job | None, now: Time) -> Time | None:
    """Return the estimated end of a workload by its declared duration; None without one, or if that time is past."""
    since = work_since(workload, job)
    duration = job.duration if job is not None else annotated(workload, "gpuconsole.io/duration")
    if since is None or duration is None:
        return None
    end = since + max(0, duration - (job.done if job is not None else workload.done))
    return end if end >= now else None


def annotated(workload: Workload, name: str) -> Span | None:
    """Parse a duration from an annotation of a Workload; None if there is none or it is invalid."""
    try:
        return parse_span(workload.annotations[name]) or None
    except (KeyError, ValueError):
        return None


CLAIMED = "claimed"
"""Counted resource of all DRA devices, whatever resource quotas count them in (Kueue: deviceClassMappings)."""
_CORE = frozenset((CPU, MEMORY, EPHEMERAL_STORAGE, PODS))


def resource_units(snapshot: Snapshot) -> Mapping[str, DeviceUnit]:
    """Map each resource to its unit on the nodes that offer it; whole GPUs if they differ or none offers it."""
    return _offered(snapshot).units


@incremental(NOTHING_OFFERED)
def _offered(snapshot: Snapshot, before: OfferedUnits) -> OfferedUnits:
    return before.updated(snapshot.nodes.rows)


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
    """Return what one pod requests, by unit: the first of alternative requests, all devices of a shared claim."""
    found = in_units(snapshot, template.requests)
    if not template.resource_claims:
        return found
    templates, claims = snapshot.resource_claim_templates.get, snapshot.resource_claims.get
    return added(found, {DRA_DEVICE: claimed_devices(namespace, template, templates, claims)})


def pod_units(snapshot: Snapshot, pod: Pod) -> dict[DeviceUnit, int]:
    """Return the accelerators that a pod requests, by unit."""
    return template_units(snapshot, pod.namespace, pod.template)


def wanted_units(snapshot: Snapshot, workload: Workload) -> dict[DeviceUnit, int]:
    """Return the accelerators that all pods of a workload request, by unit; a shared claim counts once."""
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
    """Return the number of DRA devices that these workloads claim."""
    if not len(snapshot.resource_claim_templates) and not len(snapshot.resource_claims):
        return 0
    return sum(wanted_units(snapshot, workload).get(DRA_DEVICE, 0) for workload in workloads)


def held_units(snapshot: Snapshot, workload: Workload) -> dict[DeviceUnit, int]:
    """Return the accelerators in the quota that a workload holds, by unit."""
    counted = quota_accelerators(snapshot)
    return added(
        *(
            {quota_unit(snapshot, resource): amount}
            for (_, resource), amount in held(workload)
            if resource in counted or is_counted(resource)
        )
    )


def units_of(snapshot: Snapshot, workload: Workload) -> Units:
    """Return the accelerators that a workload holds, or requests while it holds none, by unit."""
    return held_units(snapshot, workload) or wanted_units(snapshot, workload)


def amount_of(snapshot: Snapshot, workload: Workload) -> tuple[int, str]:
    """Return a workload's accelerators as one number with its singular unit: `8, "GPU"`, `4, "MIG 1g.5gb instance"`."""
    return in_one_unit(units_of(snapshot, workload))

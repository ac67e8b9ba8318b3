"""Available quota, flavor by flavor, for the queue picker and the submit form.

For a ClusterQueue: available quota, and how much of it its pending workloads could use (`usable_quota`). For
LocalQueues: available quota for a new workload (`headroom`), of the accelerators that a job can request
(`device_choices`): extended resources and DRA device classes. Amounts of different flavors are never added up, as a
workload gets one flavor for each resource.
"""

from collections.abc import Mapping

from msgspec import Struct
from msgspec.structs import replace

from gpuconsole.insight.derived import memoized
from gpuconsole.insight.index.capacity import capacity
from gpuconsole.insight.index.demand import (
    CLAIMED,
    FlavorResource,
    counted_as,
    quota_accelerators,
    quota_unit,
    wanted_units,
)
from gpuconsole.insight.index.gpu_map import dra_devices
from gpuconsole.insight.index.queues import pending
from gpuconsole.insight.index.quota_tree import NodeKind, QuotaNode, queues_below, quota_tree
from gpuconsole.model.device_requests import NO_ACCELERATORS
from gpuconsole.model.devices import DRA_DEVICE, WHOLE_GPU, DeviceUnit, is_counted, order_of
from gpuconsole.model.pod_template import PodSet
from gpuconsole.model.queues import ClusterQueue, QueueingStrategy, StopPolicy
from gpuconsole.model.resources import GPU, PODS, scale
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.model.workloads import Workload
from gpuconsole.scheduling.kueue.flavor_assigner import flavor_mismatch
from gpuconsole.scheduling.kueue.quota_tree import UsageTree

MOST_PENDING = 500
"""Limit on the pending workloads that are tried, from the head of the queue on."""


class UsableQuota(Struct, frozen=True):
    """Available and usable quota of one resource in one flavor."""

    flavor: str
    resource: str
    available: int
    """Amount that could be admitted now without preemption."""
    usable: int
    """Part of it that the pending workloads that fit would use, in queue order."""
    potential: int
    """Maximum capacity of the queue."""


def usable_quota(snapshot: Snapshot, queue: str) -> tuple[UsableQuota, ...]:
    """Return the available accelerators of a ClusterQueue, flavor by flavor in the order of the manifest.

    A pending workload uses quota if each of its pod sets fits into one flavor that its node selector, affinity and
    tolerations allow (Kueue: flavorassigner); under StrictFIFO none uses any behind one that does not fit.
    """
    found = capacity(snapshot)
    own, node = snapshot.cluster_queues.get(queue), found.tree.queues.get(queue)
    if own is None or node is None:
        return ()
    usage, used = found.usage.copy(), dict[FlavorResource, int]()
    for place in pending(snapshot, queue, limit=MOST_PENDING):
        taken = _fit(snapshot, own, usage, node, place.workload)
        if taken is None and own.queueing_strategy is QueueingStrategy.STRICT_FIFO:
            break
        for pair, amount in (taken or {}).items():
            used[pair] = used.get(pair, 0) + amount
        if taken:
            usage.add(node, [(found.tree.numbers[pair], amount) for pair, amount in taken.items()])
    counted = quota_accelerators(snapshot)
    return tuple(
        UsableQuota(*pair, reach.available, min(used.get(pair, 0), reach.available), reach.potential)
        for pair in own.quotas()
        if pair[1] in counted and (reach := found.reach(node, pair)) is not None
    )


def _fit(
    snapshot: Snapshot, queue: ClusterQueue, usage: UsageTree, node: int, workload: Workload
) -> Mapping[FlavorResource, int] | None:
    """Return the quota that the workload would get; None if it does not fit as a whole."""
    taken: dict[FlavorResource, int] = {}
    for pod_set in workload.pod_sets:
        requests = scale(pod_set.template.requests, pod_set.count) | {PODS: pod_set.count}
        requests |= _claimed(snapshot, queue, workload, pod_set)
        covered = {name for group in queue.resource_groups for name in group.covered_resources}
        if any(amount and name not in covered for name, amount in requests.items() if name != PODS):
            return None
        for group in queue.resource_groups:
            asked = {name: requests[name] for name in group.covered_resources if requests.get(name)}
            if not asked:
                continue
            flavors = (snapshot.flavors.get(one.name) for one in group.flavors)
            for flavor in flavors:
                if flavor is None or flavor_mismatch(pod_set.template, flavor):
                    continue
                pairs = {(flavor.name, name): taken.get((flavor.name, name), 0) + n for name, n in asked.items()}
                columns = {pair: usage.tree.numbers.get(pair) for pair in pairs}
                if all(
                    column is not None and usage.available(node, column) >= pairs[pair]
                    for pair, column in columns.items()
                ):
                    taken |= pairs
                    break
            else:
                return None
    return taken


def _claimed(snapshot: Snapshot, queue: ClusterQueue, workload: Workload, pod_set: PodSet) -> Mapping[str, int]:
    """Return the devices that a pod set claims (DRA), if the queue has one resource for them."""
    if not pod_set.template.resource_claims:
        return {}
    names = {name for _, name in queue.quotas() if name in quota_accelerators(snapshot)}
    names = {name for name in names if counted_as(name) == CLAIMED}
    devices = wanted_units(snapshot, replace(workload, pod_sets=(pod_set,))).get(DRA_DEVICE, 0)
    return dict.fromkeys(names, devices) if len(names) == 1 else {}


class DeviceChoice(Struct, frozen=True):
    """One kind of accelerator that pods can request: an extended resource, or devices of a DeviceClass (DRA)."""

    resource: str = GPU
    """Extended resource; empty for devices of a class."""
    device_class: str = ""
    unit: DeviceUnit = WHOLE_GPU
    total: int = 0
    """Number that all nodes offer; for a DeviceClass all DRA devices, as it may select any of them."""
    largest: int = 0
    """Number on the node with most of them."""

    @property
    def key(self) -> str:
        """Return a unique name: `nvidia.com/mig-1g.10gb`, `DeviceClass gpu.nvidia.com`."""
        return f"DeviceClass {self.device_class}" if self.device_class else self.resource

    def counts(self, resource: str) -> bool:
        """True if quota of this resource counts such devices; the resource name of DRA devices is configurable."""
        return counted_as(resource) == CLAIMED if self.device_class else resource == self.resource


@memoized("nodes", "cluster_queues", "cohorts", "device_classes", "resource_claim_templates", "resource_slices")
def device_choices(snapshot: Snapshot) -> tuple[DeviceChoice, ...]:
    """List the accelerators of nodes, whole GPUs first, then those only in quotas; `nvidia.com/gpu` if none."""
    amounts: dict[str, list[int]] = {name: [] for name in quota_accelerators(snapshot) if is_counted(name)}
    for node in snapshot.nodes.all():
        for name, amount in node.allocatable.items():
            if amount and is_counted(name):
                amounts.setdefault(name, []).append(amount)
    found = [
        DeviceChoice(name, "", quota_unit(snapshot, name), sum(all_nodes), max(all_nodes, default=0))
        for name, all_nodes in amounts.items()
    ]
    classes = [one.name for one in snapshot.device_classes.all() if not one.name.startswith(NO_ACCELERATORS)]
    devices = [dra_devices(snapshot, node.name) for node in snapshot.nodes.all()] if classes else []
    most = max(devices, default=0)
    found += [DeviceChoice("", name, DRA_DEVICE, sum(devices), most) for name in classes]
    found.sort(key=lambda one: (not one.total, order_of(one.unit), one.key))
    return tuple(found) or (DeviceChoice(),)


def choice_of(snapshot: Snapshot, resource: str, device_class: str = "") -> DeviceChoice:
    """Return the choice for this resource or DeviceClass, also if no node offers it."""
    wanted = DeviceChoice("", device_class, DRA_DEVICE) if device_class else DeviceChoice(resource)
    known = {one.key: one for one in device_choices(snapshot)}
    return known.get(wanted.key) or DeviceChoice(
        wanted.resource, device_class, DRA_DEVICE if device_class else quota_unit(snapshot, resource)
    )


class FlavorHeadroom(Struct, frozen=True):
    """Available quota of one kind of accelerator in one flavor, for a new workload."""

    flavor: str
    available: int
    """Amount that could be admitted now, by nominal quota and borrowing, without preemption."""
    own_left: int
    """Part of `available` within nominal quota, which other queues cannot reclaim."""
    potential: int
    """Maximum capacity of the queue: a larger request never fits."""
    resource: str = GPU


class Headroom(Struct, frozen=True, kw_only=True):
    """A LocalQueue in the queue picker, with its available quota by flavor."""

    namespace: str
    name: str
    cluster_queue: str
    flavors: tuple[FlavorHeadroom, ...]
    pending: int
    """Pending workloads in its ClusterQueue."""
    problem: str
    """Reason why it admits no workload; empty if it does."""

    @property
    def key(self) -> str:
        """Key of the LocalQueue: `namespace/name`."""
        return f"{self.namespace}/{self.name}"

    def of(self, device: DeviceChoice) -> tuple[FlavorHeadroom, ...]:
        """Return the flavors with quota of these devices."""
        return tuple(flavor for flavor in self.flavors if device.counts(flavor.resource))

    def best(self, device: DeviceChoice) -> int:
        """Return the available devices of the flavor that has most."""
        return max((flavor.available for flavor in self.of(device)), default=0)


def headroom(snapshot: Snapshot) -> tuple[Headroom, ...]:
    """Return all LocalQueues by name, with their available quota."""
    found = []
    for queue in queues_below(quota_tree(snapshot)):
        if queue.kind is NodeKind.LOCAL_QUEUE:
            found.append(_headroom(snapshot, queue, None))
        else:
            found += [_headroom(snapshot, local_queue, queue) for local_queue in queue.children]
    return tuple(sorted(found, key=lambda one: one.key))


def _headroom(snapshot: Snapshot, local_queue: QuotaNode, queue: QuotaNode | None) -> Headroom:
    namespace, _, name = local_queue.name.partition("/")
    flavors = queue.flavors if queue is not None else ()
    return Headroom(
        namespace=namespace,
        name=name,
        cluster_queue=snapshot.local_queues[local_queue.name].cluster_queue,
        flavors=tuple(
            FlavorHeadroom(
                use.flavor,
                use.available,
                min(use.available, max(0, use.nominal - use.used)),
                use.potential,
                use.resource,
            )
            for use in flavors
            if use.resource in quota_accelerators(snapshot)
        ),
        pending=queue.pending if queue is not None else local_queue.pending,
        problem=_problem(snapshot, local_queue, queue, namespace),
    )


def _problem(snapshot: Snapshot, local_queue: QuotaNode, queue: QuotaNode | None, namespace: str) -> str:
    if local_queue.problem:
        return local_queue.problem
    for node in (local_queue, queue):
        if node is not None and node.stop is not StopPolicy.NONE:
            return f"{node.name} is stopped ({node.stop})"
    selector = snapshot.cluster_queues[queue.name].namespace_selector if queue is not None else None
    known = snapshot.namespaces.get(namespace)
    if selector is not None and known is not None and not selector.matches(known.labels) and queue is not None:
        return f"the namespaceSelector of {queue.name} does not match namespace {namespace}"
    return ""

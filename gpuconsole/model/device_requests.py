"""Accelerators that pods request and hold, in the units that nodes offer, and as numbers of GPUs."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from gpuconsole.model.cluster import Node, Pod
from gpuconsole.model.devices import (
    DRA_DEVICE,
    NO_COUNTERS,
    DeviceRequest,
    DeviceUnit,
    ResourceClaim,
    ResourceClaimTemplate,
    ResourceSlice,
    Units,
    added,
    common,
    in_one_unit,
    is_counted,
    unit_of,
)
from gpuconsole.model.gpus.mig_reconfiguration import division_of, part_of_gpu
from gpuconsole.model.labels import NO_LABELS
from gpuconsole.model.pod_template import PodSet, PodTemplate
from gpuconsole.model.prices import Prices, gpu_hourly, part_offered
from gpuconsole.model.resources import GPU, GPU_RESOURCES, gpus, is_mig
from gpuconsole.model.snapshot import Snapshot, TableView, row_changes
from gpuconsole.model.state import ClusterState
from gpuconsole.model.workloads import Workload

NO_DEVICES = ("compute-domain.nvidia.com",)
"""Drivers whose devices are not accelerators but channels between them."""
NO_ACCELERATORS = ("compute-domain",)
"""Prefixes of device classes that are not accelerators but channels between them (compute-domain.nvidia.com)."""


class OfferedUnits(Struct, frozen=True):
    """Unit in which a cluster's nodes offer each accelerator resource, updated as nodes change."""

    rows: Sequence[Node | None] = ()
    """Rows of the table of nodes from which the units were computed."""
    nodes: Mapping[tuple[str, DeviceUnit], int] = {}
    """(resource, unit) → number of nodes that offer it in this unit."""
    units: Mapping[str, DeviceUnit] = {}
    """Resource → its unit; if nodes differ, the unit of the resource's name alone."""

    def updated(self, rows: Sequence[Node | None]) -> "OfferedUnits":
        """Return the units for new rows of the node table; reads only nodes that have changed."""
        if rows is self.rows:
            return self
        counts = dict(self.nodes)
        gone, come = row_changes(self.rows, rows)
        for nodes, sign in ((gone, -1), (come, 1)):
            for node in nodes:
                for pair in offered_by(node):
                    counts[pair] = counts.get(pair, 0) + sign
        counts = {pair: count for pair, count in counts.items() if count}
        if counts.keys() == self.nodes.keys():
            return OfferedUnits(rows, counts, self.units)
        found: dict[str, set[DeviceUnit]] = {}
        for resource, unit in counts:
            found.setdefault(resource, set()).add(unit)
        return OfferedUnits(rows, counts, {name: common(units) or unit_of(name) for name, units in found.items()})


NOTHING_OFFERED = OfferedUnits()
Fields = dict[str, Any]
"""Values for the fields `gpus` and `unit` of a history event."""


def offered_by(node: Node) -> Iterator[tuple[str, DeviceUnit]]:
    """Yield the accelerators that a node offers, with their units."""
    for name, amount in node.allocatable.items():
        if amount and is_counted(name):
            yield name, unit_of(name, node.labels)


def _accelerators(amounts: Mapping[str, int]) -> Iterator[tuple[str, int]]:
    return ((name, count) for name, count in amounts.items() if count and is_counted(name))


def in_units(amounts: Mapping[str, int], units: Mapping[str, DeviceUnit]) -> dict[DeviceUnit, int]:
    """Sum the accelerators among resource amounts by unit; `units` has the unit of each resource."""
    return added(*({units.get(name) or unit_of(name): count} for name, count in amounts.items() if is_counted(name)))


def claimed_devices(
    namespace: str,
    template: PodTemplate,
    template_of: Callable[[str], ResourceClaimTemplate | None],
    claim_of: Callable[[str], ResourceClaim | None],
) -> int:
    """Count the accelerators that one pod claims by DRA; of alternatives the first, of a shared claim all.

    `template_of` and `claim_of` look objects up by `namespace/name`.
    """
    found = 0
    for claim in template.resource_claims:
        made = template_of(f"{namespace}/{claim.template}") if claim.template else None
        shared = claim_of(f"{namespace}/{claim.claim}") if claim.claim else None
        found += _devices(made.requests if made is not None else shared.requests if shared is not None else ())
    return found


def _devices(requests: Iterable[DeviceRequest]) -> int:
    chosen = (request.options[0] if request.alternatives and request.options else request for request in requests)
    return sum(one.count for one in chosen if not one.admin_access and not one.device_class.startswith(NO_ACCELERATORS))


DevicePlace = tuple[str, str, str]
"""Driver, pool and name of a device."""


def partition_shares(slices: Iterable[ResourceSlice]) -> Mapping[DevicePlace, float]:
    """Return the fraction of a GPU that each DRA partition is; devices without shared counters are left out.

    A set of counters stands for a GPU (KEP-4815). As for MIG instances, a partition of which three fit is a third, by
    the counter of which it consumes the largest part; counters with a total of 1, such as `memory-slice-3`, are added
    up.
    """
    slices = list(slices)
    sets = {(one.driver, one.pool, name): have for one in slices for name, have in one.counter_sets.items()}
    return {
        (one.driver, one.pool, device.name): sum(
            _share(consumed, sets.get((one.driver, one.pool, name), NO_COUNTERS))
            for name, consumed in zip(device.counter_sets, device.counters, strict=False)
        )
        for one in slices
        for device in one.devices
        if device.counter_sets
    }


def _share(consumed: Mapping[str, int], have: Mapping[str, int]) -> float:
    single = [name for name, total in have.items() if total == 1]
    parts = [(amount, have.get(name, 0)) for name, amount in consumed.items() if name not in single]
    parts.append((sum(consumed.get(name, 0) for name in single), len(single)))
    fit = min((total // amount for amount, total in parts if amount and total), default=1)
    return 1.0 / max(1, fit)


def gpus_claimable(slices: Iterable[ResourceSlice]) -> Mapping[str, int]:
    """Map nodes to the number of GPUs behind their DRA devices; the partitions of one GPU count once."""
    found: dict[str, set[DevicePlace]] = {}
    for one in slices:
        for device in one.devices if one.driver not in NO_DEVICES else ():
            node = device.node if one.each else one.node
            names = device.counter_sets or (f"{device.name} itself",)
            found.setdefault(node, set()).update((one.driver, one.pool, name) for name in names)
    return {node: len(places) for node, places in found.items() if node}


def amount_of_gpus(pod: Pod, node: Node | None, devices: float) -> float:
    """Return the GPU equivalent of a pod's accelerators: a MIG instance or replica is a fraction of a GPU.

    `devices` is the GPU equivalent of the devices that it claims (DRA).
    """
    labels = node.labels if node is not None else NO_LABELS
    whole = len(pod.gpus) or gpus(pod.template.requests)
    return whole * part_offered(labels) + _parts(pod, labels) + devices


def gpus_of_node(node: Node) -> float:
    """Number of physical GPUs of a node; divided or shared ones count once."""
    division = division_of(node.allocatable, node.labels, node.annotations)
    return division.gpus if division is not None else node.gpus * part_offered(node.labels)


def pod_hourly(pod: Pod, node: Node | None, prices: Prices, devices: float) -> float:
    """Return USD per hour of a pod's accelerators, by their fractions of a GPU; `devices` as in `amount_of_gpus`."""
    labels = node.labels if node is not None else NO_LABELS
    whole = len(pod.gpus) or gpus(pod.template.requests)
    return whole * gpu_hourly(node, prices) + (_parts(pod, labels) + devices) * prices.hourly(labels)


def _parts(pod: Pod, labels: Mapping[str, str]) -> float:
    """GPU equivalent of a pod's MIG instances."""
    if not pod.slices and not any(is_mig(name) for one in pod.template.containers for name in one.effective):
        return 0.0
    return sum(count * part_of_gpu(name, labels) for name, count in pod.template.requests.items() if is_mig(name))


def _fields(*amounts: Units) -> Fields:
    count, unit = in_one_unit(added(*amounts))
    return {"gpus": count, "unit": unit}


_Shares = tuple[object, object, Mapping[DevicePlace, float], Mapping[str, float]]
"""Claims, slices, the fraction of a GPU of each partition, and the GPU equivalent of each pod's devices."""
_NO_PARTITIONS: Mapping[str, float] = {}
_NO_SHARES: _Shares = (None, None, {}, _NO_PARTITIONS)


def _of_pods(claims: Iterable[ResourceClaim], shares: Mapping[DevicePlace, float]) -> Mapping[str, float]:
    found: dict[str, float] = {}
    for claim in claims:
        devices = claim.allocation.devices if claim.allocation is not None else ()
        given = [one for one in devices if not one.shared and one.driver not in NO_DEVICES]
        amount = sum(shares.get((one.driver, one.pool, one.device), 1.0) for one in given)
        for pod in claim.reserved if given else ():
            found[pod] = found.get(pod, 0.0) + amount
    return found


class DeviceCounter:
    """Counts accelerators of workloads, pods and nodes for history events.

    Mutable: caches the units that nodes offer, and what each pod's DRA partitions are as fractions of a GPU.
    """

    def __init__(
        self,
        nodes: Callable[[], TableView[Node]],
        node_of: Callable[[str], Node | None],
        template_of: Callable[[str], ResourceClaimTemplate | None],
        claim_of: Callable[[str], ResourceClaim | None],
        offered: OfferedUnits = NOTHING_OFFERED,
        allocated: Callable[[], tuple[TableView[ResourceClaim], TableView[ResourceSlice]]] | None = None,
    ) -> None:
        self._nodes, self._node_of, self._template_of, self._claim_of = nodes, node_of, template_of, claim_of
        self.offered = offered
        self._allocated = allocated
        """All claims and slices; None if every device counts as a whole GPU."""
        self._shares: _Shares = _NO_SHARES

    @classmethod
    def of_state(cls, state: ClusterState, offered: OfferedUnits = NOTHING_OFFERED) -> "DeviceCounter":
        """Create a counter for a cluster that changes; `offered` are units that another counter has computed."""
        nodes, templates, claims = map(state.table, ("nodes", "resource_claim_templates", "resource_claims"))
        slices = state.table("resource_slices")
        allocated = lambda: (claims.freeze(), slices.freeze())  # noqa: E731
        return cls(nodes.freeze, nodes.get, templates.get, claims.get, offered, allocated)

    @classmethod
    def of_snapshot(cls, snapshot: Snapshot) -> "DeviceCounter":
        """Create a counter for a Snapshot."""
        nodes, templates, claims = snapshot.nodes, snapshot.resource_claim_templates, snapshot.resource_claims
        allocated = (claims, snapshot.resource_slices)
        return cls(lambda: nodes, nodes.get, templates.get, claims.get, allocated=lambda: allocated)

    def units(self) -> Mapping[str, DeviceUnit]:
        """Map resources to the unit in which nodes offer them."""
        self.offered = self.offered.updated(self._nodes().rows)
        return self.offered.units

    def of_workload(self, workload: Workload) -> Fields:
        """Accelerators that a workload holds by its admission, or requests if it has none."""
        if workload.admission is None:
            return self.of_pod_sets(workload.namespace, workload.pod_sets)
        units = self.units()
        return _fields(
            *(in_units(one.usage, units) for one in workload.admission.pod_sets),
            *(self._claimed(workload.namespace, one.template, one.count) for one in workload.pod_sets),
        )

    def requested(self, pods: Iterable[Pod]) -> Fields:
        """Accelerators that pods request."""
        return _fields(*map(self._requested, pods))

    def held(self, pods: Iterable[Pod]) -> Fields:
        """Accelerators that bound pods hold: their GPUs, and their requests of other accelerators."""
        return _fields(*(self._held(pod) for pod in pods if pod.node))

    def of_pod_sets(self, namespace: str, pod_sets: Sequence[PodSet]) -> Fields:
        """Accelerators that all pods of these pod sets request."""
        units = self.units()
        return _fields(
            *(in_units(one.requests, units) for one in pod_sets),
            *(self._claimed(namespace, one.template, one.count) for one in pod_sets),
        )

    def of_node(self, node: Node) -> Fields:
        """Accelerators that a node offers."""
        return _fields(*({unit_of(name, node.labels): count} for name, count in _accelerators(node.allocatable)))

    def template(self, namespace: str, template: PodTemplate, count: int) -> Fields:
        """Accelerators that `count` pods of a template request."""
        found = {unit: amount * count for unit, amount in in_units(template.requests, self.units()).items()}
        return _fields(found, self._claimed(namespace, template, count))

    def devices(self, pod: Pod) -> int:
        """Number of DRA devices that a pod claims."""
        return sum(self._claimed(pod.namespace, pod.template, 1).values())

    def claimed_gpus(self, pod: Pod) -> float:
        """GPU equivalent of a pod's DRA devices: an allocated partition is a fraction of a GPU."""
        devices = self.devices(pod) if pod.template.resource_claims else 0
        return self._partitions().get(pod.key, devices) if devices else 0

    def _partitions(self) -> Mapping[str, float]:
        """Map pods to the GPU equivalent of their allocated devices; empty if no device is a partition."""
        if self._allocated is None:
            return _NO_PARTITIONS
        claims, slices = self._allocated()
        if not len(slices):
            return _NO_PARTITIONS
        known_claims, known_slices, shares, found = self._shares
        if slices is not known_slices:
            shares = partition_shares(slices.all())
        if claims is not known_claims or slices is not known_slices:
            found = _of_pods(claims.all(), shares) if shares else {}
            self._shares = (claims, slices, shares, found)
        return found

    def gpus(self, pod: Pod) -> float:
        """GPU equivalent of a pod's accelerators."""
        return amount_of_gpus(pod, self._node_of(pod.node), self.claimed_gpus(pod))

    def gpus_of_workload(self, workload: Workload) -> float:
        """GPU equivalent of a workload whose pods are not loaded, by the nodes that offer its requests."""
        total = 0.0
        for pod_set in workload.pod_sets:
            pod = Pod(namespace=workload.namespace, name="", template=pod_set.template)
            total += pod_set.count * amount_of_gpus(pod, self._offering(pod_set.template), self.devices(pod))
        return total

    def _offering(self, template: PodTemplate) -> Node | None:
        """Return the first node that offers a template's accelerators."""
        asked = dict(_accelerators(template.requests))
        if not asked:
            return None
        return next((node for node in self._nodes().all() if asked.keys() <= node.allocatable.keys()), None)

    def _requested(self, pod: Pod) -> Units:
        return added(in_units(pod.template.requests, self.units()), self._claimed(pod.namespace, pod.template, 1))

    def _held(self, pod: Pod) -> Units:
        node = self._node_of(pod.node)
        labels = node.labels if node is not None else NO_LABELS
        asked = list(_accelerators(pod.template.requests))
        name = next((name for name, _ in asked if name in GPU_RESOURCES), GPU)
        parts = ({unit_of(other, labels): count} for other, count in asked if other not in GPU_RESOURCES)
        return added({unit_of(name, labels): len(pod.gpus)}, *parts, self._claimed(pod.namespace, pod.template, 1))

    def _claimed(self, namespace: str, template: PodTemplate, count: int) -> Units:
        if not template.resource_claims:
            return {}
        devices = claimed_devices(namespace, template, self._template_of, self._claim_of)
        shared = any(claim.claim for claim in template.resource_claims)
        return {DRA_DEVICE: devices * (1 if shared else count)}

"""The largest gang that could start now, defined once for all screens and commands.

A gang is a number of equal pods that start together, all in one flavor and on one GPU model. Its size is limited by the
idle GPUs of nodes, and by the available quota (without preemption) of the ClusterQueue that has most of it in that
flavor. Of several pod sizes (a whole node's GPUs, then 64, 16, 8, 4, 2, 1) the largest one is used of which at least
two pods would start: one pod is not a gang. Each pod requests one MIG instance, replica of a shared GPU or DRA device.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from gpuconsole.insight.data_gaps import missing_for_admission
from gpuconsole.insight.derived import memoized
from gpuconsole.insight.index.demand import CLAIMED, counted_as, quota_accelerators
from gpuconsole.insight.index.engine_queues import ENGINES, queues
from gpuconsole.insight.index.gpu_map import GpuRow, GpuState
from gpuconsole.insight.index.quota_tree import NodeKind, QuotaNode, leaves_available, no_start_reason, queues_below
from gpuconsole.model.devices import WHOLE_GPU, DeviceUnit, UnitKind
from gpuconsole.model.resources import MIG_PREFIX
from gpuconsole.model.snapshot import Snapshot

SIZES = (1, 2, 4, 8, 16, 64)
"""Slot sizes in GPUs."""


class GpuKind(Struct, frozen=True, order=True):
    """Flavor, model and unit that all pods of a gang share."""

    flavor: str
    """Empty where Kueue has no flavors."""
    model: str
    """As `prices.gpu_type` names it; empty if unknown."""
    unit: DeviceUnit = WHOLE_GPU
    resource: str = ""
    """Counted resource, as `demand.counted_as` names it."""


class LargestGang(Struct, frozen=True, kw_only=True, rename="camel"):
    """The largest gang of one flavor and GPU model."""

    flavor: str
    model: str
    unit: str
    """Unit that the pods request: `GPU`, `MIG 1g.10gb instance` …"""
    pods: int
    """Number of pods: the smaller of the two limits."""
    gpus: int
    """Units per pod."""
    by_nodes: int
    """Pods that fit on idle GPUs of nodes."""
    by_quota: int | None
    """Pods that the available quota of one queue allows; None if no queue limits them, or unknown."""
    queue: str = ""
    """The queue with that quota."""

    @property
    def total(self) -> int:
        """GPUs of all pods together."""
        return self.pods * self.gpus


class AdmittableQuota(Struct, frozen=True):
    """The queue with the largest available quota of a flavor, and that amount."""

    available: int
    queue: str


class Idle:
    """Counts nodes by kind of GPU and by their total and idle units, to size gangs. Mutates by `count`."""

    def __init__(self) -> None:
        self.free: dict[GpuKind, Counter[int]] = {}
        """Kind → idle units of a node → number of nodes."""
        self.sizes: dict[GpuKind, Counter[int]] = {}
        """Kind → units of a node → number of nodes."""

    def copy(self) -> "Idle":
        """Return an independent copy."""
        twin = Idle()
        twin.free = {kind: nodes.copy() for kind, nodes in self.free.items()}
        twin.sizes = {kind: nodes.copy() for kind, nodes in self.sizes.items()}
        return twin

    def count(self, row: GpuRow, flavors: Iterable[str], sign: int = 1) -> None:
        """Add a node (sign 1), or remove it (-1)."""
        for flavor in flavors:
            if row.cells:
                self._count(GpuKind(flavor, row.gpu_type, row.unit), row.gpus, row.counts[GpuState.IDLE], sign)
            for unit, states in row.by_unit.items() if row.devices else ():
                if unit != row.unit or not row.cells:
                    total, idle = sum(states.values()), states.get(GpuState.IDLE, 0)
                    self._count(GpuKind(flavor, row.gpu_type, unit, _resource(unit)), total, idle, sign)

    def _count(self, kind: GpuKind, total: int, idle: int, sign: int) -> None:
        self.sizes.setdefault(kind, Counter())[total] += sign
        self.free.setdefault(kind, Counter())[idle] += sign


def _resource(unit: DeviceUnit) -> str:
    """Return the counted resource of a unit: the MIG resource, CLAIMED for DRA devices, empty for GPUs."""
    if unit.kind is UnitKind.MIG:
        return f"{MIG_PREFIX}{unit.profile}"
    return CLAIMED if unit.kind is UnitKind.DRA else ""


class GangLimits(Struct, frozen=True, eq=False):
    """Limits of gangs in one Snapshot: node flavors and available quota."""

    flavors: Mapping[str, tuple[str, ...]]
    """Node → its flavors; one empty name where there are no flavors."""
    quota: Mapping[tuple[str, str], AdmittableQuota] | None
    """(Flavor, counted resource) → largest available quota; None if quota does not limit gangs, or unknown."""

    def of_flavor(self, flavor: str) -> "GangLimits":
        """Return the limits of gangs in this flavor alone."""
        return GangLimits({node: (flavor,) for node, flavors in self.flavors.items() if flavor in flavors}, self.quota)

    def gangs(self, rows: Iterable[GpuRow]) -> tuple[LargestGang, ...]:
        """Return the largest gang of each kind on these nodes."""
        idle = Idle()
        for row in rows:
            idle.count(row, self.flavors.get(row.node, ()))
        return self.each(idle)

    def each(self, idle: Idle) -> tuple[LargestGang, ...]:
        """Return the largest gang of each kind, by flavor and model; `idle` counts the nodes."""
        return tuple(self._of(kind, idle) for kind in sorted(idle.free) if +idle.sizes[kind])

    def _of(self, kind: GpuKind, idle: Idle) -> LargestGang:
        quota = self.quota.get((kind.flavor, kind.resource), NO_QUOTA) if self.quota is not None else None
        found = [_fit(kind, size, idle.free[kind], quota) for size in _sizes(kind, idle.sizes[kind])]
        return next((fit for fit in found if fit.pods > 1), found[-1])


NO_QUOTA = AdmittableQuota(0, "")
NO_LIMITS = GangLimits({}, None)
"""Initial limits: no node has a flavor, so no gang fits."""


def _sizes(kind: GpuKind, nodes: Counter[int]) -> list[int]:
    """Return the pod sizes to try, in GPUs, descending."""
    if kind.unit != WHOLE_GPU:
        return [1]
    widest = max((+nodes), default=1)
    return sorted({widest, *(size for size in SIZES if size <= widest)}, reverse=True)


def _fit(kind: GpuKind, size: int, free: Counter[int], quota: AdmittableQuota | None) -> LargestGang:
    by_nodes = sum(idle // size * nodes for idle, nodes in free.items())
    by_quota = quota.available // size if quota is not None else None
    return LargestGang(
        flavor=kind.flavor,
        model=kind.model,
        unit=kind.unit.noun,
        pods=by_nodes if by_quota is None else min(by_nodes, by_quota),
        gpus=size,
        by_nodes=by_nodes,
        by_quota=by_quota,
        queue=quota.queue if quota is not None else "",
    )


def largest(gangs: Sequence[LargestGang]) -> LargestGang | None:
    """Return the gang with most GPUs; of equal ones the one with larger pods, then the first. None without two pods."""
    return max((gang for gang in gangs if gang.pods > 1), key=lambda gang: (gang.total, gang.gpus), default=None)


def gang_limits(snapshot: Snapshot) -> GangLimits:
    """Compute the limits of gangs: the flavors of nodes, and the available quota."""
    return GangLimits(node_flavors(snapshot), None if missing_for_admission(snapshot) else _quota(snapshot))


@memoized("nodes", "flavors", "volcano_queues", "kai_queues")
def node_flavors(snapshot: Snapshot) -> Mapping[str, tuple[str, ...]]:
    """Map each node to the flavors whose labels and GPUs it has; to one empty name without Kueue."""
    flavors = sorted(snapshot.flavors.all(), key=lambda flavor: flavor.name)
    everywhere = ("",) if not flavors or len(snapshot.volcano_queues) or len(snapshot.kai_queues) else ()
    return {
        node.name: (
            *(flavor.name for flavor in flavors if flavor.node_labels.items() <= node.labels.items()),
            *everywhere,
        )
        for node in snapshot.nodes.all()
    }


@memoized(
    *("workloads", "local_queues", "cluster_queues", "cohorts", "flavors", "admission_checks", "topologies", "seen"),
    *("volcano_queues", "kai_queues", "pods", "pod_groups", "kai_pod_groups", "jobs", "nodes", "namespaces"),
    *("resource_quotas", "device_classes", "resource_claim_templates"),
)
def _quota(snapshot: Snapshot) -> Mapping[tuple[str, str], AdmittableQuota] | None:
    """Return the largest available quota of an active queue by (flavor, counted resource); None without queueing."""
    found: dict[tuple[str, str], AdmittableQuota] = {}
    limited = False
    counted = quota_accelerators(snapshot)
    for node in queues_below(queues(snapshot)):
        if node.kind is NodeKind.CLUSTER_QUEUE:
            limited = True
            if not no_start_reason(snapshot, node):
                for (flavor, resource), available in _available(node, counted).items():
                    _keep(found, (flavor, resource), AdmittableQuota(available, node.name))
        elif node.kind in ENGINES:
            limited = True
            for leaf, use in leaves_available(node):
                quota = AdmittableQuota(0 if leaf.shut else use.available, leaf.name)
                _keep(found, ("", counted_as(use.resource)), quota)
    return found if limited else None


def _available(node: QuotaNode, counted: Iterable[str]) -> dict[tuple[str, str], int]:
    found: dict[tuple[str, str], int] = {}
    for use in node.flavors:
        if use.resource in counted:
            key = use.flavor, counted_as(use.resource)
            found[key] = found.get(key, 0) + use.available
    return found


def _keep(found: dict[tuple[str, str], AdmittableQuota], key: tuple[str, str], quota: AdmittableQuota) -> None:
    known = found.get(key, NO_QUOTA)
    if (-quota.available, quota.queue) < (-known.available, known.queue):
        found[key] = quota

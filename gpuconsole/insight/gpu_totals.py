"""Totals of all GPUs of a cluster by state, summed from the GPU map; only changed rows are counted again."""

from collections import Counter
from collections.abc import Mapping

from msgspec import Struct

from gpuconsole.insight.derived import memoized
from gpuconsole.insight.gpumap import CLAIMS, GpuRow, GpuState, gpu_rows
from gpuconsole.insight.largest_gang import Idle, LargestGang, gang_limits, largest
from gpuconsole.model.device_units import DeviceUnit, order_of
from gpuconsole.model.snapshot import Snapshot, row_changes


class UnitTotals(Struct, frozen=True):
    """Totals of one unit in the cluster."""

    unit: DeviceUnit
    total: int
    in_use: int
    idle: int


class GpuTotals(Struct, frozen=True, kw_only=True):
    """All GPUs, MIG instances, replicas and DRA devices by state; the states sum up to `total`."""

    total: int
    in_use: int
    borrowed: int
    """Used devices on borrowed quota."""
    idle: int
    held: int
    """Not used, but not free: incomplete gangs, nominated preemptors, cordoned nodes."""
    faulty: int
    unknown: int = 0
    """No visible pod has them, but not every pod is visible."""
    units: tuple[UnitTotals, ...] = ()
    """Totals by unit, whole GPUs first."""
    largest_gang: LargestGang | None = None
    """As `largest_gang` defines it; None if not even two pods would start."""

    @property
    def ready(self) -> int:
        """Number of devices of ready nodes; the GPUs of other nodes count as faulty."""
        return self.total - self.faulty


class RunningGpuTotals:
    """Sums over rows of the map. Mutates by `count` until it is shared."""

    def __init__(self) -> None:
        self.states: dict[DeviceUnit, Counter[GpuState]] = {}
        self.idle = Idle()

    def copy(self) -> "RunningGpuTotals":
        """Return an independent copy."""
        twin = RunningGpuTotals()
        twin.states = {unit: states.copy() for unit, states in self.states.items()}
        twin.idle = self.idle.copy()
        return twin

    def count(self, row: GpuRow, flavors: tuple[str, ...], sign: int) -> None:
        """Add a row (1), or take it out (-1)."""
        for unit, states in row.by_unit.items():
            sums = self.states.setdefault(unit, Counter())
            for state, number in states.items():
                sums[state] += sign * number
        self.idle.count(row, flavors, sign)


Flavors = Mapping[str, tuple[str, ...]]
"""Node → its flavors."""
_kept: list[tuple[tuple[GpuRow, ...], Flavors, RunningGpuTotals]] = []


def _sums(rows: tuple[GpuRow, ...], flavors: Flavors) -> RunningGpuTotals:
    """Return the sums of these rows, updated from the previous sums."""
    # Replaced as one tuple, so that threads do the same work twice at worst.
    before, known, sums = _kept[0] if _kept else ((), flavors, RunningGpuTotals())
    if known is not flavors and known != flavors:
        before, sums = (), RunningGpuTotals()
    sums = sums.copy()
    gone, come = row_changes(before, rows)
    for row in gone:
        sums.count(row, flavors.get(row.node, ()), -1)
    for row in come:
        sums.count(row, flavors.get(row.node, ()), 1)
    _kept[:] = [(rows, flavors, sums)]
    return sums


@memoized(
    *("nodes", "pods", "workloads", "local_queues", "cluster_queues", "pod_groups", "kai_pod_groups", "seen"),
    *("flavors", "cohorts", "volcano_queues", "kai_queues", "admission_checks", "topologies", "jobs", "namespaces"),
    *("resource_slices", "resource_quotas", *CLAIMS),
)
def gpu_totals(snapshot: Snapshot) -> GpuTotals:
    """Compute the totals of a Snapshot."""
    limits = gang_limits(snapshot)
    sums = _sums(gpu_rows(snapshot), limits.flavors)
    states: Counter[GpuState] = sum(sums.states.values(), Counter())
    units = [_totals(unit, sums.states[unit]) for unit in sorted(sums.states, key=order_of)]
    return GpuTotals(
        total=states.total(),
        in_use=states[GpuState.OWN] + states[GpuState.BORROWED],
        borrowed=states[GpuState.BORROWED],
        idle=states[GpuState.IDLE],
        held=states[GpuState.HELD],
        faulty=states[GpuState.FAULT],
        unknown=states[GpuState.UNKNOWN],
        units=tuple(unit for unit in units if unit.total),
        largest_gang=largest(limits.each(sums.idle)),
    )


def _totals(unit: DeviceUnit, states: Counter[GpuState]) -> UnitTotals:
    in_use = states[GpuState.OWN] + states[GpuState.BORROWED]
    return UnitTotals(unit, states.total(), in_use, states[GpuState.IDLE])

"""Dashboard numbers: GPUs by state, pending work, the last hour, and the queue tree.

GPU totals are summed from the GPU map; only rows that changed since the last Snapshot are counted again.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from gpuconsole.insight.derived import incremental, memoized
from gpuconsole.insight.health.alerts import Alert, alerts
from gpuconsole.insight.index.demand import claimed, in_units, pod_units, template_units
from gpuconsole.insight.index.engine_queues import queues
from gpuconsole.insight.index.fragmentation import Idle, LargestGang, gang_limits, largest
from gpuconsole.insight.index.gpu_map import CLAIMS, GpuRow, GpuState, gpu_rows
from gpuconsole.insight.index.pods import all_refused_pods, gang_key, pods_by_node, waiting_gangs
from gpuconsole.insight.index.queues import QueueCounts, checking, queue_index
from gpuconsole.insight.index.quota_tree import QuotaNode
from gpuconsole.insight.pending.reasons import PendingReason
from gpuconsole.model.clock import HOUR, Time
from gpuconsole.model.devices import DRA_DEVICE, NO_UNITS, DeviceUnit, Units, added, order_of
from gpuconsole.model.events import HistoryEvent, HistoryEventKind
from gpuconsole.model.snapshot import KEPT, Snapshot, row_changes


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
    """Not used, but not free: starting pods, incomplete gangs, nominated pods, cordoned nodes (`GpuState.HELD`)."""
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
    """Devices by unit and state, summed over rows of the GPU map. Mutates by `count` until it is shared."""

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
        """Add a node's row (sign 1), or remove it (-1); `flavors` are the node's."""
        for unit, states in row.by_unit.items():
            sums = self.states.setdefault(unit, Counter())
            for state, number in states.items():
                sums[state] += sign * number
        self.idle.count(row, flavors, sign)


Flavors = Mapping[str, tuple[str, ...]]
"""Node → its flavors."""
Summed = tuple[tuple[GpuRow, ...], Flavors, RunningGpuTotals]
"""Rows of the nodes, the flavors of the nodes, and the sums over them."""
_NO_SUMS: Summed = ((), {}, RunningGpuTotals())


@incremental(_NO_SUMS)
def _sums(snapshot: Snapshot, summed: Summed, flavors: Flavors) -> Summed:
    """Return the sums of a Snapshot's nodes; only changed ones are counted again."""
    rows = gpu_rows(snapshot)
    before, known, sums = summed
    if known is not flavors and known != flavors:
        before, sums = (), RunningGpuTotals()
    sums = sums.copy()
    gone, come = row_changes(before, rows)
    for row in gone:
        sums.count(row, flavors.get(row.node, ()), -1)
    for row in come:
        sums.count(row, flavors.get(row.node, ()), 1)
    return rows, flavors, sums


@memoized(
    *("nodes", "pods", "workloads", "local_queues", "cluster_queues", "pod_groups", "kai_pod_groups", "seen"),
    *("flavors", "cohorts", "volcano_queues", "kai_queues", "admission_checks", "topologies", "jobs", "namespaces"),
    *("resource_slices", "resource_quotas", *CLAIMS),
)
def gpu_totals(snapshot: Snapshot) -> GpuTotals:
    """Compute the totals of a Snapshot."""
    limits = gang_limits(snapshot)
    _, _, sums = _sums(snapshot, limits.flavors)
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


BINS = 12


class Waiting(Struct, frozen=True, kw_only=True):
    """Counts of pending work by reason."""

    workloads: int
    """Number of workloads pending in a queue, without reserved quota."""
    oldest: str
    """Key of the longest pending workload; empty if none is pending."""
    oldest_since: Time
    codes: Mapping[PendingReason, int]
    """Reason code → number of workloads; for `nodes` and `gang`, admitted (or not queued) unschedulable ones."""
    checking: int = 0
    """Number of workloads with reserved quota whose admission checks or topology assignment are pending."""
    checking_units: Units = NO_UNITS
    """Accelerators reserved by workloads with pending checks, by unit."""
    by_nodes: int = 0
    """Number of admitted (or not queued) workloads with unscheduled pods."""
    by_resource_quota: int = 0
    """Number of admitted (or not queued) workloads whose only missing pods a ResourceQuota refuses."""
    units: Units = NO_UNITS
    """Accelerators that all pending work requests or has reserved, by unit."""

    @property
    def by_quota(self) -> int:
        """Number of workloads pending for quota, or because they exceed the maximum capacity."""
        return self.codes.get(PendingReason.QUOTA, 0) + self.codes.get(PendingReason.EXCEEDS_MAX, 0)

    @property
    def otherwise(self) -> int:
        """Number of workloads pending for another reason: a stopped or missing queue, no matching flavor …"""
        return self.workloads - self.by_quota

    @property
    def in_all(self) -> int:
        """All pending work: queued, waiting for checks or nodes, or with refused pods; each workload counts once."""
        return self.workloads + self.checking + self.by_nodes + self.by_resource_quota


class LastHour(Struct, frozen=True, kw_only=True):
    """Events of the last hour, in `BINS` equal parts, the newest last."""

    time: Time
    admitted: int
    admitted_bins: tuple[int, ...]
    preempted: int
    preempted_bins: tuple[int, ...]
    lost_gpu_hours: float
    cost: float
    """USD of the lost work."""
    losses: int = 0
    """Number of evictions with lost work."""
    unknown: int = 0
    """Number of evictions with unknown loss and cost."""
    unpriced: int = 0
    """Number of evictions with unknown cost."""
    since: Time
    """Start of the hour, or of the known history if that is later."""

    @property
    def whole(self) -> bool:
        """True if the window is a full hour."""
        return self.since <= self.time - HOUR

    def __add__(self, other: "LastHour") -> "LastHour":
        """Add the events of two clusters at the same time."""
        return LastHour(
            time=self.time,
            admitted=self.admitted + other.admitted,
            admitted_bins=tuple(map(sum, zip(self.admitted_bins, other.admitted_bins, strict=True))),
            preempted=self.preempted + other.preempted,
            preempted_bins=tuple(map(sum, zip(self.preempted_bins, other.preempted_bins, strict=True))),
            lost_gpu_hours=self.lost_gpu_hours + other.lost_gpu_hours,
            cost=self.cost + other.cost,
            losses=self.losses + other.losses,
            unknown=self.unknown + other.unknown,
            unpriced=self.unpriced + other.unpriced,
            since=max(self.since, other.since),
        )


class Dashboard(Struct, frozen=True, kw_only=True):
    """Numbers of the dashboard at one moment."""

    time: Time
    gpus: GpuTotals
    waiting: Waiting
    queues: tuple[QuotaNode, ...]
    attention: tuple[Alert, ...]
    """The most urgent first."""


def dashboard(snapshot: Snapshot) -> Dashboard:
    """Compute the dashboard of a Snapshot."""
    return Dashboard(
        time=snapshot.time,
        gpus=gpu_totals(snapshot),
        waiting=waiting(snapshot),
        queues=queues(snapshot),
        attention=alerts(snapshot, snapshot.recent),
    )


@memoized(
    *("workloads", "local_queues", "pods", "cluster_queues", "cohorts", "nodes", "pod_groups", "kai_pod_groups"),
    *("jobs", "resource_quotas", "priority_classes", "seen"),
    *CLAIMS,
)
def waiting(snapshot: Snapshot) -> Waiting:
    """Count pending work: for quota by Kueue's condition, for checks by reserved quota, for nodes by its pods."""
    codes: Counter[PendingReason] = Counter()
    wanted: Counter[str] = Counter()
    total, oldest = QueueCounts(), ""
    for index in queue_index(snapshot).by_queue.values():
        began = index.count.oldest
        if began is not None and (total.oldest is None or (began, index.longest) < (total.oldest, oldest)):
            oldest = index.longest
        total.add(index.count)
        codes.update(index.codes)
        wanted.update(index.wanted)
    gangs = {gang.key for gang in waiting_gangs(snapshot)}
    together: set[str] = set()
    alone: set[str] = set()
    unplaced: list[Units] = []
    for pod in pods_by_node(snapshot).waiting.values():
        if not pod.gates and not pod.deleted and not _queued(snapshot, pod.workload):
            found = together if gang_key(pod) in gangs else alone
            found.add(pod.workload or pod.job or pod.key)
            unplaced.append(pod_units(snapshot, pod))
    refused = {owner: one for owner, one in all_refused_pods(snapshot).items() if owner not in together | alone}
    unplaced += [
        template_units(snapshot, one.refusal.quota.namespace, template)
        for one in refused.values()
        for template in one.templates
    ]
    codes[PendingReason.GANG] += len(together)
    codes[PendingReason.NODES] += len(alone - together)
    held = added(*(one.units for one in checking(snapshot)))
    return Waiting(
        workloads=total.pending,
        oldest=oldest,
        oldest_since=total.oldest or 0,
        codes=dict(+codes),
        checking=len(checking(snapshot)),
        checking_units=held,
        by_nodes=codes[PendingReason.GANG] + codes[PendingReason.NODES],
        by_resource_quota=len(refused),
        units=added(
            in_units(snapshot, wanted),
            *({DRA_DEVICE: claimed(snapshot, index.waiting)} for index in queue_index(snapshot).by_queue.values()),
            held,
            *unplaced,
        ),
    )


def _queued(snapshot: Snapshot, workload: str) -> bool:
    """True for a workload that is counted as pending for quota or for checks."""
    known = snapshot.workloads.get(workload) if workload else None
    return known is not None and not known.admitted and not known.finished


def last_hour(recent: Sequence[HistoryEvent], now: Time) -> LastHour:
    """Sum the events of the last hour from a Snapshot's newest lines (`recent`, oldest first), at most `KEPT`."""
    found = hour_of(recent, now)
    return replace(found, since=max(found.since, recent[0].time)) if len(recent) >= KEPT else found


def hour_of(lines: Iterable[HistoryEvent], now: Time) -> LastHour:
    """Sum the events of the hour before `now`."""
    start = now - HOUR
    admitted, preempted = [0] * BINS, [0] * BINS
    lost, cost = 0.0, 0.0
    losses = unknown = unpriced = 0
    for line in lines:
        if line.time <= start:
            continue
        place = min(BINS - 1, (line.time - start) * BINS // HOUR)
        match line.what:
            case HistoryEventKind.ADMITTED:
                admitted[place] += 1
            case HistoryEventKind.PREEMPTED:
                preempted[place] += 1
            case _:
                pass
        if line.what is not HistoryEventKind.PREEMPTED:  # A PREEMPTED line repeats the loss of its eviction.
            lost += line.lost_gpu_seconds / 3600
            cost += line.cost
            losses += bool(line.lost_gpu_seconds or line.lost_unknown)
            unknown += line.lost_unknown
            unpriced += line.lost_unknown or bool(line.lost_gpu_seconds and not line.cost)
    return LastHour(
        time=now,
        admitted=sum(admitted),
        admitted_bins=tuple(admitted),
        preempted=sum(preempted),
        preempted_bins=tuple(preempted),
        lost_gpu_hours=lost,
        cost=cost,
        losses=losses,
        unknown=unknown,
        unpriced=unpriced,
        since=start,
    )

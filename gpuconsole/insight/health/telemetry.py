"""GPU telemetry joined with allocations: use by workload and team, alarms, and utilization over the last hour.

Stale samples do not count, and a missing value does not count as 0. A node is evaluated again only when it has new
samples or its allocations changed. Alarms are about waste and failing hardware: the thresholds are ours, the meaning of
XID codes is NVIDIA's. `Trends` has a ring buffer of samples per node; some are stored for the next session.
"""

from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from statistics import fmean
from typing import NamedTuple

from msgspec import Struct

from gpuconsole.insight.derived import incremental, memoized
from gpuconsole.insight.index.demand import admitted_since
from gpuconsole.insight.index.gpu_map import GpuRow, GpuState, gpu_map
from gpuconsole.model.clock import HOUR, MINUTE, SECOND, Span, Time, format_span
from gpuconsole.model.cluster import Pod
from gpuconsole.model.devices import WHOLE_GPU, DeviceUnit, UnitKind, Units, added, in_one_unit, order_of
from gpuconsole.model.snapshot import EMPTY, Snapshot, row_changes
from gpuconsole.model.telemetry import GpuMetric, MeasuredDevice, NodeTelemetry, busy

HOT = 87.0
"""Temperature (°C) at which data-centre GPUs begin to throttle."""
HOARD_MEMORY = 0.8
HOARD_ACTIVE = 0.05
"""Rule HOARDING: memory use above the fraction HOARD_MEMORY, with an engine activity below HOARD_ACTIVE."""
BUSY = 90.0
EMPTY_SM = 0.3
"""Rule EMPTY: utilization above the percentage BUSY, with an SM activity below the fraction EMPTY_SM."""
FATAL = {
    48: "double-bit ECC error",
    74: "NVLink error",
    79: "GPU has fallen off the bus",
    95: "uncontained ECC error",
    119: "GSP RPC timeout",
    120: "GSP error",
}
"""XID codes after which a GPU should not run further work."""
USERS = {13: "graphics engine exception", 31: "MMU fault", 43: "GPU stopped processing", 45: "preemptive cleanup"}
"""XID codes that application errors cause, not the GPU."""
OTHERS = {
    63: "row remapping event",
    64: "row remapping failure",
    92: "high single-bit ECC error rate",
    94: "contained ECC error",
}
_SLOWDOWN = 0x8 | 0x20 | 0x40 | 0x80
"""Clock throttle reasons that count: hardware slowdown, thermal slowdown (software, hardware), power brake."""


class GpuAlarmRule(StrEnum):
    """Kinds of GPU alarm, the most urgent first."""

    FAULTY = "faulty"
    HOT = "hot"
    IDLE = "idle"
    """Allocated to a pod, and not used for half an hour."""
    HOARDING = "hoarding"
    """GPU memory almost full, while the GPU is idle."""
    EMPTY = "empty"
    """High GPU utilization with low SM activity."""


class MeasuredGpu(Struct, frozen=True, kw_only=True):
    """One GPU or MIG instance at one moment, with its owner."""

    node: str
    device: MeasuredDevice
    telemetry: NodeTelemetry
    position: int
    pod: str = ""
    workload: str = ""
    since: Time = 0
    """Time at which its pod started."""
    unit: DeviceUnit = WHOLE_GPU
    """A GPU, a MIG instance, or a replica where the source names each replica."""

    def value(self, measure: GpuMetric) -> float | None:
        """Return the value of a metric; None if it is not measured."""
        return self.telemetry.value(self.position, measure)

    @property
    def name(self) -> str:
        """Display name: `node GPU 3`, for a MIG instance with its profile."""
        part = f" {self.device.profile or 'MIG'} ({self.device.instance})" if self.device.instance >= 0 else ""
        return f"{self.node} GPU {self.device.gpu}{part}"

    @property
    def busy(self) -> float | None:
        """Utilization in percent, by whichever metric is available."""
        return busy(self.telemetry, self.position)


def triggered_rules(gpu: MeasuredGpu) -> Iterator[tuple[GpuAlarmRule, MeasuredGpu, str]]:
    """Yield the alarm rules that apply to one device, with the device and a text."""
    for rule, text in ((GpuAlarmRule.FAULTY, _fault(gpu)), (GpuAlarmRule.HOT, _heat(gpu))):
        if text:
            yield rule, gpu, text
    if gpu.workload and _hoards(gpu):
        yield GpuAlarmRule.HOARDING, gpu, "memory almost full, no activity"
    if gpu.workload and _is_empty(gpu):
        yield GpuAlarmRule.EMPTY, gpu, "low SM activity"


def _fault(gpu: MeasuredGpu) -> str:
    code = int(gpu.value(GpuMetric.XID) or 0)
    if gpu.value(GpuMetric.REMAP_FAILURE):
        return ": row remapping failure; replace the GPU"
    if code in FATAL:
        return f": XID {code} ({FATAL[code]}); cordon {gpu.node}"
    return f": XID {code}{f' ({OTHERS[code]})' if code in OTHERS else ''}" if code and code not in USERS else ""


def _heat(gpu: MeasuredGpu) -> str:
    heat = gpu.value(GpuMetric.TEMPERATURE)
    if int(gpu.value(GpuMetric.THROTTLE) or 0) & _SLOWDOWN:
        return ": clocks throttled" + (f" at {heat:.0f} °C" if heat is not None else "")
    return f": temperature {heat:.0f} °C" if heat is not None and heat >= HOT else ""


def _hoards(gpu: MeasuredGpu) -> bool:
    used, free, active = (gpu.value(one) for one in (GpuMetric.MEMORY_USED, GpuMetric.MEMORY_FREE, GpuMetric.ACTIVE))
    if used is None or free is None or active is None:
        return False
    return used > HOARD_MEMORY * (used + free) and active < HOARD_ACTIVE


def _is_empty(gpu: MeasuredGpu) -> bool:
    busy, sm = gpu.value(GpuMetric.UTILISATION), gpu.value(GpuMetric.SM)
    return busy is not None and busy > BUSY and sm is not None and sm < EMPTY_SM


IDLE: Span = 30 * MINUTE
_SUMMED = (None, GpuMetric.SM, GpuMetric.MEMORY_USED, GpuMetric.POWER, GpuMetric.TEMPERATURE)
"""Metrics that are summed by workload; None is the utilization, by whichever metric is available."""
_BUSY, _SM = _SUMMED.index(None), _SUMMED.index(GpuMetric.SM)
LOW_UTILIZATION = 30.0
"""Percent; a cluster or a team whose average is below is underutilized."""


def representative_percent(sm: float | None, utilization: float | None) -> float | None:
    """Return SM activity, or utilization where that is unknown: the percentage to compare with LOW_UTILIZATION."""
    return sm if sm is not None else utilization


class GpuUtilization(Struct, frozen=True, kw_only=True):
    """GPU use of a workload: means over the GPUs that have samples."""

    gpus: int
    """GPUs and MIG instances that are known to be allocated to it."""
    measured: int
    """Number of these that have samples that are not stale."""
    sm: float | None = None
    """SM activity in percent."""
    busy: float | None = None
    """Utilization in percent."""
    memory: float | None = None
    """MiB used, in total."""
    power: float | None = None
    """W, in total."""
    hottest: float | None = None
    """Temperature of the hottest of them, in °C."""


class Average(Struct, frozen=True, kw_only=True):
    """The average utilization of some GPUs and MIG instances that pods run on: means over those that are measured."""

    team: str
    """A namespace; empty for the whole cluster."""
    gpus: int
    """Number of GPUs, or what `unit` names, that run pods and are known to the source of telemetry."""
    unit: str = WHOLE_GPU.noun
    measured: int
    utilization: float | None
    """Percent of the time in which a kernel ran (`DCGM_FI_DEV_GPU_UTIL`, or the engine's activity)."""
    sm: float | None
    """SM activity in percent (`DCGM_FI_PROF_SM_ACTIVE`): time in which an SM has a warp, averaged over all SMs."""

    @property
    def percent(self) -> float:
        """SM activity, or utilization where that is not measured."""
        return representative_percent(self.sm, self.utilization) or 0.0

    @property
    def is_low(self) -> bool:
        """True if the average is below the threshold of underutilization."""
        return self.percent < LOW_UTILIZATION


class Utilization(Struct, frozen=True, kw_only=True):
    """The average utilization of a cluster and of its teams, by name."""

    cluster: Average
    teams: tuple[Average, ...]


class GpuAlarm(Struct, frozen=True, kw_only=True):
    """One GPU alarm; `text` names the GPU or the workload."""

    rule: GpuAlarmRule
    text: str
    node: str
    workload: str = ""
    gpus: int = 1
    """GPUs, or what `unit` names."""
    unit: str = WHOLE_GPU.noun
    since: Time | None = None


class Coverage(Struct, frozen=True, kw_only=True):
    """The part of a cluster's GPUs that has telemetry."""

    nodes: int
    """Nodes with GPUs."""
    measured: int
    """Number of nodes with GPUs that have samples, stale ones included."""
    stale: int
    """Number of nodes whose samples are stale."""
    source: str
    """Source of the newest samples."""
    newest: Time
    """Time of the newest samples."""

    @property
    def partial(self) -> bool:
        """True if some nodes have no current samples."""
        return self.measured - self.stale < self.nodes


class _Sum(Struct, frozen=True):
    """Sums of the metrics of some devices."""

    total: float = 0.0
    count: int = 0
    most: float | None = None

    def __add__(self, other: "_Sum") -> "_Sum":
        most = max((one for one in (self.most, other.most) if one is not None), default=None)
        return _Sum(self.total + other.total, self.count + other.count, most)

    @property
    def mean(self) -> float | None:
        return self.total / self.count if self.count else None

    @property
    def whole(self) -> float | None:
        return self.total if self.count else None


class _Part(Struct, frozen=True):
    """Devices of one owner on one node."""

    gpus: int
    units: Units
    measured: int
    sums: tuple[_Sum, ...]


class _NodeMeasurements(Struct, frozen=True, eq=False):
    """Everything derived from one node's telemetry; the same object while telemetry and allocations do not change."""

    telemetry: NodeTelemetry
    row: GpuRow | None
    gpus: tuple[MeasuredGpu, ...]
    parts: Mapping[str, _Part]
    """By workload."""
    teams: Mapping[tuple[str, Time], _Part]
    """By namespace and start of the pods; incomplete gangs, which wait for other pods, are left out."""
    odd: tuple[tuple[GpuAlarmRule, MeasuredGpu, str], ...]
    """Devices with an alarm, and its text."""
    idle: tuple[tuple[MeasuredGpu, Time], ...]
    """Devices that are allocated and not used, and since when."""


_NOT_MEASURED: Mapping[str, _NodeMeasurements] = {}


@incremental(_NOT_MEASURED)
def _node_measurements(snapshot: Snapshot, before: Mapping[str, _NodeMeasurements]) -> Mapping[str, _NodeMeasurements]:
    """The derived data of each node; only nodes with new samples or changed allocations are evaluated."""
    found = dict[str, _NodeMeasurements]()
    # Without telemetry, the GPU map of a large cluster is not needed.
    rows = gpu_map(snapshot).by_node if len(snapshot.telemetry) else {}
    for telemetry in snapshot.telemetry.all():
        row, known = rows.get(telemetry.name), before.get(telemetry.name)
        if known is None or known.telemetry is not telemetry or known.row is not row:
            known = _look(snapshot, telemetry, row)
        found[telemetry.name] = known
    return found


def _look(snapshot: Snapshot, telemetry: NodeTelemetry, row: GpuRow | None) -> _NodeMeasurements:
    devices = tuple(_of_node(snapshot, telemetry, row))
    owned: dict[str, list[MeasuredGpu]] = {}
    for gpu in devices:
        if gpu.workload:
            owned.setdefault(gpu.workload, []).append(gpu)
    return _NodeMeasurements(
        telemetry,
        row,
        devices,
        {owner: _part(those) for owner, those in owned.items()},
        {team: _part(those) for team, those in _by_team(snapshot, devices, row).items()},
        tuple(found for gpu in devices for found in triggered_rules(gpu)),
        tuple(
            (gpu, max(since, gpu.since))
            for gpu in devices
            if gpu.pod and (since := telemetry.idle_since(gpu.position)) is not None
        ),
    )


def _by_team(
    snapshot: Snapshot, devices: Iterable[MeasuredGpu], row: GpuRow | None
) -> Mapping[tuple[str, Time], list[MeasuredGpu]]:
    held = {cell.pod for cell in row.all_cells if cell.state is GpuState.HELD} if row is not None else set()
    found: dict[tuple[str, Time], list[MeasuredGpu]] = {}
    for gpu in devices:
        if gpu.pod and gpu.pod not in held:
            workload = snapshot.workloads.get(gpu.workload)
            since = gpu.since or (admitted_since(workload) if workload is not None else None) or 0
            found.setdefault((gpu.pod.partition("/")[0], since), []).append(gpu)
    return found


def _part(owned: Sequence[MeasuredGpu]) -> _Part:
    sums = tuple(_sum([gpu.busy if one is None else gpu.value(one) for gpu in owned]) for one in _SUMMED)
    measured = sum(gpu.busy is not None or gpu.value(GpuMetric.SM) is not None for gpu in owned)
    return _Part(len(owned), Counter(gpu.unit for gpu in owned), measured, sums)


def _sum(values: Sequence[float | None]) -> _Sum:
    there = [value for value in values if value is not None]
    return _Sum(sum(there), len(there), max(there, default=None))


def gpus(snapshot: Snapshot) -> tuple[MeasuredGpu, ...]:
    """Return all devices with telemetry, with their pods: as the telemetry names them, else by GPU index."""
    return tuple(gpu for known in _node_measurements(snapshot).values() for gpu in known.gpus)


def on_node(snapshot: Snapshot, node: str) -> tuple[MeasuredGpu, ...]:
    """The devices of one node that have telemetry."""
    known = _node_measurements(snapshot).get(node)
    return known.gpus if known is not None else ()


def of_pods(snapshot: Snapshot, pods: Sequence[Pod]) -> list[MeasuredGpu]:
    """The devices of these pods that have telemetry."""
    keys = {pod.key for pod in pods}
    nodes = dict.fromkeys(pod.node for pod in pods)
    return [gpu for node in nodes for gpu in on_node(snapshot, node) if gpu.pod in keys]


def _of_node(snapshot: Snapshot, telemetry: NodeTelemetry, row: GpuRow | None) -> Iterator[MeasuredGpu]:
    owners = {cell.index: cell.pod for cell in row.cells if cell.pod and not cell.assumed} if row is not None else {}
    whole = sum(device.instance < 0 for device in telemetry.devices)
    # A source that names fewer devices than there are replicas of shared GPUs measures the GPUs themselves.
    offered = row.unit if row is not None and whole == len(row.cells) else WHOLE_GPU
    for position, device in enumerate(telemetry.devices):
        key = _pod_of(device, owners)
        pod: Pod | None = snapshot.pods.get(key) if key else None
        yield MeasuredGpu(
            node=telemetry.name,
            device=device,
            telemetry=telemetry,
            position=position,
            pod=key,
            workload=(pod.workload or pod.job) if pod is not None else "",
            since=(pod.started or pod.bound) if pod is not None else 0,
            unit=DeviceUnit(UnitKind.MIG, device.profile) if device.instance >= 0 else offered,
        )


def _pod_of(device: MeasuredDevice, owners: Mapping[int, str]) -> str:
    """Return the pod of a device: as the telemetry names it, else by the index of the GPU; empty if unknown."""
    return device.pod or (owners.get(device.gpu, "") if device.instance < 0 else "")


class PodUtilization(NamedTuple):
    """Measured use of the GPUs of one pod, means over its devices in percent."""

    percent: float
    """SM activity, or utilization where that is not measured; compare it with LOW_UTILIZATION."""
    busy: float
    """Utilization, or SM activity where that is not measured."""


def pod_utilization(telemetry: NodeTelemetry, pods: Iterable[Pod]) -> Mapping[str, PodUtilization]:
    """Return the utilization of those of a node's pods that have measured devices, by the key of the pod."""
    owners = {index: pod.key for pod in pods if not pod.guessed for index in pod.gpus}
    values: dict[str, tuple[list[float], list[float]]] = {}
    has_sm = GpuMetric.SM in telemetry.columns
    for position, device in enumerate(telemetry.devices):
        key = _pod_of(device, owners)
        if key:
            known = values.get(key)
            if known is None:
                known = values[key] = ([], [])
            sm, used = telemetry.value(position, GpuMetric.SM) if has_sm else None, busy(telemetry, position)
            if sm is not None:
                known[0].append(100 * sm)
            if used is not None:
                known[1].append(used)
    found: dict[str, PodUtilization] = {}
    for key, (activity, utilization) in values.items():
        sm = sum(activity) / len(activity) if activity else None
        used = sum(utilization) / len(utilization) if utilization else None
        percent, level = representative_percent(sm, used), representative_percent(used, sm)
        if percent is not None and level is not None:
            found[key] = PodUtilization(percent, level)
    return found


@memoized("telemetry", "pods", "workloads", "nodes")
def _parts(snapshot: Snapshot) -> Mapping[str, Sequence[tuple[NodeTelemetry, _Part]]]:
    found: dict[str, list[tuple[NodeTelemetry, _Part]]] = {}
    for known in _node_measurements(snapshot).values():
        for owner, part in known.parts.items():
            found.setdefault(owner, []).append((known.telemetry, part))
    return found


def use(snapshot: Snapshot, owner: str) -> GpuUtilization | None:
    """Return the GPU use of a workload (`ns/name`, or the key of a job without one); None without telemetry."""
    parts = _parts(snapshot).get(owner, ())
    fresh = [part for telemetry, part in parts if not telemetry.stale(snapshot.time)]
    busy, sm, memory, power, heat = (sum((part.sums[place] for part in fresh), _Sum()) for place in range(len(_SUMMED)))
    if not parts:
        return None
    return GpuUtilization(
        gpus=sum(part.gpus for _, part in parts),
        measured=sum(part.measured for part in fresh),
        sm=100 * sm.mean if sm.mean is not None else None,
        busy=busy.mean,
        memory=memory.whole,
        power=power.whole,
        hottest=heat.most,
    )


def utilization(snapshot: Snapshot, settled: Span = 0) -> Utilization | None:
    """The average utilization of the cluster and of its teams now; None where no GPU of a running pod is measured.

    Pods that have run for less than `settled` are left out, as they may load their data first.
    """
    parts: dict[str, list[_Part]] = {}
    for known in _node_measurements(snapshot).values():
        if not known.telemetry.stale(snapshot.time):
            for (team, since), part in known.teams.items():
                if snapshot.time - since >= settled:
                    parts.setdefault(team, []).append(part)
    teams = [one for team, those in sorted(parts.items()) if (one := _average(team, those)) is not None]
    cluster = _average("", [part for those in parts.values() for part in those])
    return Utilization(cluster=cluster, teams=tuple(teams)) if cluster is not None else None


def utilization_by_gpu_type(snapshot: Snapshot) -> Mapping[str, float]:
    """Return the mean utilization of GPUs that run pods, in percent, by GPU type; types without samples are left out.

    The type is that of the node's row in the GPU map; empty if unknown.
    """
    found: dict[str, _Sum] = {}
    for known in _node_measurements(snapshot).values():
        if known.row is not None and not known.telemetry.stale(snapshot.time):
            before = found.get(known.row.gpu_type, _Sum())
            found[known.row.gpu_type] = sum((part.sums[_BUSY] for part in known.teams.values()), before)
    return {name: total.mean for name, total in found.items() if total.mean is not None}


def _average(team: str, parts: Sequence[_Part]) -> Average | None:
    measured = sum(part.measured for part in parts)
    busy, sm = (sum((part.sums[place] for part in parts), _Sum()).mean for place in (_BUSY, _SM))
    if not measured:
        return None
    count, unit = in_one_unit(added(*(part.units for part in parts)))
    return Average(
        team=team,
        gpus=count,
        unit=unit,
        measured=measured,
        utilization=busy,
        sm=100 * sm if sm is not None else None,
    )


def sm_by_workload(snapshot: Snapshot) -> Mapping[str, float]:
    """SM activity in percent, by workload; workloads without samples, or with stale ones, are left out."""
    found = {}
    for owner, parts in _parts(snapshot).items():
        fresh = (part.sums[_SM] for telemetry, part in parts if not telemetry.stale(snapshot.time))
        mean = sum(fresh, _Sum()).mean
        if mean is not None:
            found[owner] = 100 * mean
    return found


def coverage(snapshot: Snapshot) -> Coverage | None:
    """Coverage, age and source of the telemetry; None if there never was any."""
    measured = list(snapshot.telemetry.all())
    if not measured:
        return None
    newest = max(measured, key=lambda one: one.time)
    with_gpus = [row.node for row in gpu_map(snapshot).rows if row.all_cells]
    here = [one for name in with_gpus if (one := snapshot.telemetry.get(name)) is not None]
    return Coverage(
        nodes=len(with_gpus),
        measured=len(here),
        stale=sum(one.stale(snapshot.time) for one in here),
        source=newest.source,
        newest=newest.time,
    )


def alarms(snapshot: Snapshot) -> tuple[GpuAlarm, ...]:
    """Return all GPU alarms, the most urgent first; stale samples raise none."""
    now = snapshot.time
    fresh = [known for known in _node_measurements(snapshot).values() if not known.telemetry.stale(now)]
    strange = [one for known in fresh for one in known.odd]
    found = [
        *(_single(rule, gpu, text) for rule, gpu, text in strange if rule in (GpuAlarmRule.FAULTY, GpuAlarmRule.HOT)),
        *_idle([one for known in fresh for one in known.idle if now - one[1] >= IDLE], now),
        *_wasted(strange),
    ]
    rank = {rule: place for place, rule in enumerate(GpuAlarmRule)}
    return tuple(sorted(found, key=lambda one: (rank[one.rule], -one.gpus, one.node, one.text)))


def _single(rule: GpuAlarmRule, gpu: MeasuredGpu, text: str) -> GpuAlarm:
    return GpuAlarm(rule=rule, text=f"{gpu.name}{text}", node=gpu.node, workload=gpu.workload)


def _idle(devices: Sequence[tuple[MeasuredGpu, Time]], now: Time) -> Iterator[GpuAlarm]:
    """Yield workloads whose GPUs have been allocated but idle for half an hour, one line each."""
    by_owner: dict[str, list[tuple[MeasuredGpu, Time]]] = {}
    for gpu, since in devices:
        by_owner.setdefault(gpu.workload or gpu.pod, []).append((gpu, since))
    for owner, owned in by_owner.items():
        first, since = owned[0][0], max(begun for _, begun in owned)
        has = _counted([gpu for gpu, _ in owned])
        text = f"{owner}: {has} allocated but idle for {format_span(now - since)}"
        gpus, unit = _amount([gpu for gpu, _ in owned])
        yield GpuAlarm(
            rule=GpuAlarmRule.IDLE,
            text=text,
            node=first.node,
            workload=first.workload,
            gpus=gpus,
            unit=unit,
            since=since,
        )


def _amount(owned: Sequence[MeasuredGpu]) -> tuple[int, str]:
    return in_one_unit(Counter(gpu.unit for gpu in owned))


def _counted(owned: Sequence[MeasuredGpu]) -> str:
    """Format the number of devices: `1 GPU`, `2 GPUs`, `6 MIG 1g.10gb instances`."""
    found = Counter(gpu.unit for gpu in owned)
    parts = ((found[unit], unit.noun) for unit in sorted(found, key=order_of))
    return " and ".join(f"1 {what}" if number == 1 else f"{number} {what}s" for number, what in parts)


def _wasted(strange: Sequence[tuple[GpuAlarmRule, MeasuredGpu, str]]) -> Iterator[GpuAlarm]:
    """Yield workloads with memory in use on idle GPUs, or with low SM activity: one line per workload."""
    found: dict[tuple[GpuAlarmRule, str, str], list[MeasuredGpu]] = {}
    for rule, gpu, text in strange:
        if rule in (GpuAlarmRule.HOARDING, GpuAlarmRule.EMPTY):
            found.setdefault((rule, gpu.workload, text), []).append(gpu)
    for (rule, owner, text), owned in found.items():
        gpus, unit = _amount(owned)
        level = (
            f" ({fmean(100 * (gpu.value(GpuMetric.SM) or 0) for gpu in owned):.0f}%)"
            if rule is GpuAlarmRule.EMPTY
            else ""
        )
        words = f"{owner}: {text}{level} on {_counted(owned)}"
        yield GpuAlarm(rule=rule, text=words, node=owned[0].node, workload=owner, gpus=gpus, unit=unit)


SAMPLES = 120
"""Samples per node: an hour of scrapes, in 2 kB."""
APART: Span = 20 * SECOND
"""Minimum time between samples, so that the ring covers an hour."""
BINS = 12
BIN: Span = HOUR // BINS
KEPT_APART: Span = BIN // 2
"""Minimum time between stored samples: two per bin of five minutes."""
_UNKNOWN = 255

DevicePlace = tuple[int, int]
Trend = tuple[float | None, ...]
"""Utilization in percent per five minutes of the last hour, oldest first; None without samples."""


class UtilizationSample(Struct, frozen=True):
    """Utilization of a node's devices at one moment."""

    node: str
    time: Time
    places: tuple[DevicePlace, ...]
    percents: bytes
    """One byte per device: 0 to 100, or 255 if unknown."""


PastSamples = Callable[[Sequence[str]], Iterable[UtilizationSample]]
"""Nodes → their stored samples, oldest first."""


def _nothing(nodes: Sequence[str]) -> Iterable[UtilizationSample]:
    return ()


class _Ring:
    """Samples of one node. Mutates by `add`."""

    __slots__ = ("_at", "kept", "places", "times", "values")

    def __init__(self, places: tuple[DevicePlace, ...]) -> None:
        self.places = places
        self.times = array("q")
        self.values = bytearray()
        """One byte per device and sample."""
        self.kept: Time = 0
        """Time of the newest stored sample."""
        self._at = 0

    def add(self, time: Time, found: bytes) -> None:
        if len(self.times) < SAMPLES:
            self.times.append(time)
            self.values += found
        else:
            width = len(self.places)
            self.times[self._at] = time
            self.values[self._at * width : (self._at + 1) * width] = found
        self._at = (self._at + 1) % SAMPLES

    @property
    def newest(self) -> Time:
        return self.times[self._at - 1] if self.times else 0


class Trends:
    """GPU utilization in the last hour. Mutates by `take`, and may be read in the meantime by other threads."""

    def __init__(self, past: PastSamples = _nothing) -> None:
        """`past` is called once per node, when the node appears."""
        self._past = past
        self._seen = EMPTY.telemetry
        self._rings: dict[str, _Ring] = {}

    def take(self, snapshot: Snapshot) -> Sequence[UtilizationSample]:
        """Add new telemetry; returns the samples to store.

        Costs nothing if the Snapshot has no new telemetry.
        """
        if snapshot.telemetry is self._seen:
            return ()
        gone, come = row_changes(self._seen.rows, snapshot.telemetry.rows)
        self._seen = snapshot.telemetry
        self._recall([node_telemetry.name for node_telemetry in come if node_telemetry.name not in self._rings])
        kept = [sample for node_telemetry in come if (sample := self._add(node_telemetry)) is not None]
        for name in {node_telemetry.name for node_telemetry in gone} - {node_telemetry.name for node_telemetry in come}:
            self._rings.pop(name, None)
        return kept

    def _recall(self, nodes: Sequence[str]) -> None:
        """Load the stored samples of new nodes."""
        for sample in self._past(nodes) if nodes else ():
            ring = self._rings.get(sample.node)
            if ring is None or ring.places != sample.places:
                ring = self._rings[sample.node] = _Ring(sample.places)
            if sample.time > ring.newest and len(sample.percents) == len(ring.places):
                ring.add(sample.time, sample.percents)
                ring.kept = sample.time

    def _add(self, node_telemetry: NodeTelemetry) -> UtilizationSample | None:
        """Add a node's newest values; returns a sample if it is to be stored."""
        ring = self._rings.get(node_telemetry.name)
        places = tuple(device.place for device in node_telemetry.devices)
        if ring is None or ring.places != places:
            # A MIG reconfiguration changes the devices.
            ring = self._rings[node_telemetry.name] = _Ring(places)
        if node_telemetry.time < ring.newest + APART:
            return None
        found = bytes(_percent(busy(node_telemetry, position)) for position in range(len(places)))
        ring.add(node_telemetry.time, found)
        if node_telemetry.time < ring.kept + KEPT_APART:
            return None
        ring.kept = node_telemetry.time
        return UtilizationSample(node_telemetry.name, node_telemetry.time, places, found)

    def of(self, gpus: Iterable[MeasuredGpu], now: Time) -> Trend:
        """Return the mean utilization of devices (see `Trend`), each only since its present pod started."""
        sums, counts = [0.0] * BINS, [0] * BINS
        for gpu in gpus:
            for time, percent in self._samples(gpu):
                age = now - time
                if gpu.since <= time and 0 <= age < HOUR:
                    place = BINS - 1 - age // BIN
                    sums[place] += percent
                    counts[place] += 1
        return tuple(total / count if count else None for total, count in zip(sums, counts, strict=True))

    def _samples(self, gpu: MeasuredGpu) -> list[tuple[Time, int]]:
        ring = self._rings.get(gpu.node)
        if ring is None or gpu.device.place not in ring.places:
            return []
        column: Sequence[int] = ring.values[ring.places.index(gpu.device.place) :: len(ring.places)]
        return [(time, value) for time, value in zip(ring.times, column, strict=False) if value != _UNKNOWN]


def _percent(value: float | None) -> int:
    return _UNKNOWN if value is None or value != value else max(0, min(100, round(value)))


def known(trend: Trend) -> bool:
    """True if at least one value is known."""
    return any(value is not None for value in trend)

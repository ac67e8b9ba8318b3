"""Simulated GPU metrics: plausible, and a pure function of placement, time and seed.

It does not affect the simulation, and costs nothing unless it is read. Every value is derived from names, so that a
GPU has the same metrics at the same time, whatever the order of reads.
"""

from collections.abc import Iterator, Sequence
from zlib import crc32

from msgspec import Struct

from gpuconsole.model.clock import DAY, MINUTE, SECOND, Time
from gpuconsole.model.cluster import Node, Pod, PodPhase
from gpuconsole.model.gpus.models import model_of
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.model.telemetry import GpuMetric, MeasuredDevice, NodeTelemetry

PERIOD = 30 * SECOND
"""Simulated time for which metrics keep their values."""
DEFAULT_MEMORY = 81_559
"""Memory of a GPU of unknown model, in MiB."""
WATTS = 700.0
_SERVING = ("Deployment", "StatefulSet", "LeaderWorkerSet", "RayService", "ReplicaSet")
_FAULTS = (79, 48, 74, 63, 94)
GPUS_PER_XID_ERROR = 1500
"""One GPU of this many reports an XID error on a given day."""
_MEASURES = (
    *(GpuMetric.UTILISATION, GpuMetric.ACTIVE, GpuMetric.SM, GpuMetric.TENSOR, GpuMetric.DRAM),
    *(GpuMetric.MEMORY_USED, GpuMetric.MEMORY_FREE, GpuMetric.POWER, GpuMetric.TEMPERATURE),
    *(GpuMetric.NVLINK, GpuMetric.PCIE_RX, GpuMetric.PCIE_TX, GpuMetric.CLOCK, GpuMetric.THROTTLE, GpuMetric.XID),
)


class GpuUsagePattern(Struct, frozen=True):
    """How a pod uses its GPUs, as fractions from 0 to 1: time busy, SM activity, memory."""

    busy: float
    sm: float
    memory: float
    idle: bool = False


class _Values(Struct, frozen=True):
    """Metrics of one device, in column order."""

    device: MeasuredDevice
    values: tuple[float | None, ...]
    idle: Time | None = None


def pseudo_random(*words: object) -> float:
    """A pseudorandom number in [0, 1) that depends on these words only."""
    # Sums of words that differ in one digit differ little: a product with a large odd number spreads them.
    return crc32("/".join(map(str, words)).encode()) * 2_654_435_761 % 2**32 / 2**32


def simulate_metrics(snapshot: Snapshot, seed: int) -> Iterator[NodeTelemetry]:
    """Metrics of every node with GPUs at the time of a Snapshot; nodes that are down have none."""
    pods: dict[str, list[Pod]] = {}
    for pod in snapshot.pods.all():
        if pod.node and not pod.done and (pod.gpus or pod.slices):
            pods.setdefault(pod.node, []).append(pod)
    for node in snapshot.nodes.all():
        if node.ready and (node.gpus or node.name in pods):
            yield simulate_node_metrics(node, pods.get(node.name, ()), snapshot.time, seed)


def simulate_node_metrics(node: Node, pods: Sequence[Pod], now: Time, seed: int) -> NodeTelemetry:
    """Metrics of one node."""
    model = model_of(node.labels)
    memory = (model.memory if model is not None else 0) or DEFAULT_MEMORY
    owners = {index: pod for pod in pods for index in pod.gpus if pod.phase is PodPhase.RUNNING}
    found = [_gpu(node, index, owners.get(index), memory, now, seed) for index in range(node.gpus)]
    profiles = model.mig.profiles if model is not None and model.mig is not None else ()
    for pod in pods:
        for number, one in enumerate(pod.slices):
            share = next((p.memory for p in profiles if p.name == one.profile), memory // 7) or memory // 7
            device = MeasuredDevice(gpu=one.gpu, instance=one.start + 1, profile=one.profile, pod=pod.key)
            values = _values(pod, f"{node.name}/{one.gpu}.{number}", share, now, seed)
            column = (None, *values[1:7], *[None] * 7, 0.0)
            found.append(_Values(device, column, _idle_since(pod, now, seed)))
    found.sort(key=lambda one: one.device.place)
    columns = zip(*(one.values for one in found), strict=True)
    idle = tuple(one.idle for one in found)
    return NodeTelemetry(
        name=node.name,
        time=now,
        simulated=True,
        devices=tuple(one.device for one in found),
        columns=dict(zip(_MEASURES, columns, strict=False)),
        idle=idle if any(since is not None for since in idle) else (),
    )


def gpu_usage_pattern(pod: Pod, seed: int) -> GpuUsagePattern:
    """A pod's GPU usage: training uses GPUs fully, services vary, and some of both leave them idle."""
    owner = pod.workload or pod.job or pod.key
    luck = pseudo_random(seed, "habit", owner)
    kind = pod.job.partition("/")[0]
    if luck < 0.03:
        return GpuUsagePattern(0.0, 0.0, 0.002, idle=True)
    if luck < 0.05:
        return GpuUsagePattern(0.0, 0.01, 0.9)
    if luck < 0.09:
        return GpuUsagePattern(0.97, 0.18, 0.55)
    if kind in _SERVING or "notebook" in pod.name:
        return GpuUsagePattern(0.15 + 0.5 * luck, 0.1 + 0.3 * luck, 0.75)
    return GpuUsagePattern(0.88 + 0.1 * luck, 0.55 + 0.35 * luck, 0.6 + 0.3 * luck)


def _gpu(node: Node, index: int, pod: Pod | None, memory: int, now: Time, seed: int) -> _Values:
    """Metrics of a whole GPU."""
    where = f"{node.name}/{index}"
    device = MeasuredDevice(
        gpu=index,
        uuid=f"GPU-{crc32(where.encode()):08x}",
        model=node.labels.get("nvidia.com/gpu.product", ""),
        pod=pod.key if pod is not None else "",
    )
    fault = pseudo_random(seed, "fault", where, now // DAY)
    code = (
        _FAULTS[int(fault * GPUS_PER_XID_ERROR * len(_FAULTS)) % len(_FAULTS)] if fault < 1 / GPUS_PER_XID_ERROR else 0
    )
    return _Values(device, (*_values(pod, where, memory, now, seed), float(code)), _idle_since(pod, now, seed))


def _values(pod: Pod | None, where: str, memory: int, now: Time, seed: int) -> tuple[float, ...]:
    """All metrics except the last XID error."""
    shake = pseudo_random(seed, where, now // PERIOD)
    how = gpu_usage_pattern(pod, seed) if pod is not None else GpuUsagePattern(0.0, 0.0, 0.0)
    young = pod is not None and now - (pod.started or pod.bound) < 2 * MINUTE
    # Programs load data during the first two minutes.
    busy = min(1.0, how.busy * (0.1 if young else 0.9 + 0.2 * shake))
    sm = min(busy, how.sm * (0.1 if young else 0.9 + 0.2 * shake)) if how.busy else how.sm
    used = round(memory * min(0.97, how.memory)) + (0 if how.memory < 0.01 else round(200 * shake))
    warm = 30 + 8 * pseudo_random(seed, "place", where)
    heat = round(warm + 34 * (0.4 * busy + 0.6 * sm) / 0.9 + 3 * shake + _cooling_fault(where, seed) * busy)
    watts = 75 + (WATTS - 75) * min(1.0, 0.25 * busy + 0.75 * sm) * (0.95 + 0.1 * shake)
    return (
        round(100 * busy),
        round(busy, 3),
        round(sm, 3),
        round(sm * 0.6, 3),
        round(sm * 0.5, 3),
        float(used),
        float(max(0, memory - used)),
        round(watts, 1),
        heat,
        round(180_000 * sm * shake) if how.sm > 0.5 else 0.0,
        round(4e9 * busy * shake),
        round(2e9 * busy * shake),
        1980.0 if busy else 345.0,
        float(0x40 if heat >= 88 else 0),
    )


def _cooling_fault(where: str, seed: int) -> float:
    """Additional °C of the few GPUs with poor cooling; 0 for the others."""
    return 22.0 if pseudo_random(seed, "cooling", where) < 0.004 else 0.0


def _idle_since(pod: Pod | None, now: Time, seed: int) -> Time | None:
    """The time since which a GPU is idle; not needed for an unallocated one."""
    if pod is None or not gpu_usage_pattern(pod, seed).idle:
        return None
    return min(now, pod.started or pod.bound)

"""Alarm rules for one GPU, from its metrics and its owner.

The thresholds are ours; the meaning of XID codes is NVIDIA's. A missing value does not count as 0.
"""

from collections.abc import Iterator
from enum import StrEnum

from msgspec import Struct

from gpuconsole.model.clock import Time
from gpuconsole.model.device_units import WHOLE_GPU, DeviceUnit
from gpuconsole.model.telemetry import GpuMetric, MeasuredDevice, NodeTelemetry, busy

HOT = 87.0
"""°C at which data-centre GPUs begin to throttle."""
HOARD_MEMORY = 0.8
HOARD_ACTIVE = 0.05
BUSY = 90.0
EMPTY_SM = 0.3
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
    """GPU memory in use, while the GPU is idle."""
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
        """`node GPU 3`, with the MIG profile of an instance."""
        part = f" {self.device.profile or 'MIG'} ({self.device.instance})" if self.device.instance >= 0 else ""
        return f"{self.node} GPU {self.device.gpu}{part}"

    @property
    def busy(self) -> float | None:
        """Utilization in percent, by whichever metric is available."""
        return busy(self.telemetry, self.position)


def triggered_rules(gpu: MeasuredGpu) -> Iterator[tuple[GpuAlarmRule, MeasuredGpu, str]]:
    """Apply the alarm rules to one device."""
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

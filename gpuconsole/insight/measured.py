"""One GPU that is measured, with its owner, and what the rules say of it alone.

Thresholds are ours; the meaning of XID codes is NVIDIA's. What is missing is never taken for 0.
"""

from collections.abc import Iterator
from enum import StrEnum

from msgspec import Struct

from gpuconsole.model.clock import Time
from gpuconsole.model.device_units import WHOLE_GPU, DeviceUnit
from gpuconsole.model.telemetry import Device, Measure, NodeTelemetry, busy

HOT = 87.0
"""°C at which data-centre GPUs begin to slow down."""
HOARD_MEMORY = 0.8
HOARD_ACTIVE = 0.05
BUSY = 90.0
EMPTY_SM = 0.3
FATAL = {
    48: "an error of two bits in its memory",
    74: "an NVLink error",
    79: "it fell off the bus",
    95: "an uncontained memory error",
    119: "its firmware does not answer",
    120: "its firmware failed",
}
"""XID codes after which a GPU should get no more work."""
USERS = {13: "a fault of the program", 31: "a fault of the program", 43: "the program was stopped", 45: "stopped"}
"""Codes that tell of the program and not of the GPU."""
OTHERS = {
    63: "a row of memory was replaced",
    64: "a row of memory could not be replaced",
    92: "many errors of one bit",
    94: "a contained memory error",
}
_SLOWDOWN = 0x8 | 0x20 | 0x40 | 0x80
"""Of the reasons for lower clocks: slow-down by hardware, by temperature (software, hardware), power brake."""


class Rule(StrEnum):
    """What measurements tell that somebody should know, the most pressing first."""

    FAULTY = "faulty"
    HOT = "hot"
    IDLE = "idle"
    """Given to a pod that has done nothing for half an hour."""
    HOARDING = "hoarding"
    """Its memory is full, and nothing computes."""
    EMPTY = "empty"
    """Always busy by its own word, with most of its multiprocessors without work."""


class Gpu(Struct, frozen=True, kw_only=True):
    """One GPU or MIG instance at one moment, with its owner."""

    node: str
    device: Device
    telemetry: NodeTelemetry
    position: int
    pod: str = ""
    workload: str = ""
    since: Time = 0
    """When its pod started."""
    unit: DeviceUnit = WHOLE_GPU
    """What it is: a GPU, a MIG instance, or a replica where the source names each of them."""

    def value(self, measure: Measure) -> float | None:
        return self.telemetry.value(self.position, measure)

    @property
    def name(self) -> str:
        """`node GPU 3`, with the profile of an instance."""
        part = f" {self.device.profile or 'MIG'} ({self.device.instance})" if self.device.instance >= 0 else ""
        return f"{self.node} GPU {self.device.gpu}{part}"

    @property
    def busy(self) -> float | None:
        """Percent of the time at work, by whichever measure there is."""
        return busy(self.telemetry, self.position)


def odd(gpu: Gpu) -> Iterator[tuple[Rule, Gpu, str]]:
    """What the rules say of one device at this moment."""
    for rule, text in ((Rule.FAULTY, _fault(gpu)), (Rule.HOT, _heat(gpu))):
        if text:
            yield rule, gpu, text
    if gpu.workload and _hoards(gpu):
        yield Rule.HOARDING, gpu, "fills the memory and computes nothing"
    if gpu.workload and _is_empty(gpu):
        yield Rule.EMPTY, gpu, "keeps busy with few multiprocessors"


def _fault(gpu: Gpu) -> str:
    code = int(gpu.value(Measure.XID) or 0)
    if gpu.value(Measure.REMAP_FAILURE):
        return ": a row of its memory could not be replaced: it has to be exchanged"
    if code in FATAL:
        return f": XID {code}, {FATAL[code]}: cordon {gpu.node}"
    return f": XID {code}{', ' + OTHERS[code] if code in OTHERS else ''}" if code and code not in USERS else ""


def _heat(gpu: Gpu) -> str:
    heat = gpu.value(Measure.TEMPERATURE)
    if int(gpu.value(Measure.THROTTLE) or 0) & _SLOWDOWN:
        return " is slowed down" + (f" at {heat:.0f} °C" if heat is not None else "")
    return f" is hot: {heat:.0f} °C" if heat is not None and heat >= HOT else ""


def _hoards(gpu: Gpu) -> bool:
    used, free, active = (gpu.value(one) for one in (Measure.MEMORY_USED, Measure.MEMORY_FREE, Measure.ACTIVE))
    if used is None or free is None or active is None:
        return False
    return used > HOARD_MEMORY * (used + free) and active < HOARD_ACTIVE


def _is_empty(gpu: Gpu) -> bool:
    busy, sm = gpu.value(Measure.UTILISATION), gpu.value(Measure.SM)
    return busy is not None and busy > BUSY and sm is not None and sm < EMPTY_SM

"""GPU telemetry of a node: one column per metric, with one position per device.

Columns and not a struct a GPU, as 40,000 of them are measured anew twice a minute. A value that is missing is None,
never 0. The measures are those of NVIDIA's DCGM exporter.
"""

from collections.abc import Mapping
from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

from gpuconsole.model.clock import Span, Time

IDLE_MEMORY = 500.0
"""MiB; who uses less and computes nothing is idle."""
IDLE_ACTIVE = 0.005


class GpuMetric(StrEnum):
    """GPU metrics; each name implies its unit, stated here."""

    UTILISATION = "utilisation"
    """Percent of the time in which some kernel ran; MIG instances do not have it."""
    ACTIVE = "active"
    """Part of the time in which the graphics or compute engine was busy, 0 to 1; also of MIG instances."""
    SM = "sm"
    """Part of the streaming multiprocessors that had work, on average, 0 to 1."""
    TENSOR = "tensor"
    """Part of the cycles in which the tensor cores were busy."""
    DRAM = "dram"
    """Part of the cycles in which the memory was busy."""
    MEMORY_USED = "memory-used"
    """MiB."""
    MEMORY_FREE = "memory-free"
    """MiB."""
    POWER = "power"
    """W."""
    TEMPERATURE = "temperature"
    """°C of the GPU."""
    NVLINK = "nvlink"
    """MB a second, all links together, both ways."""
    PCIE_TX = "pcie-tx"
    """Bytes a second."""
    PCIE_RX = "pcie-rx"
    CLOCK = "clock"
    """MHz of the multiprocessors."""
    THROTTLE = "throttle"
    """A sum of the reasons why the clocks are held down, as the driver numbers them; 0 = none."""
    XID = "xid"
    """The code of the last error; 0 = none."""
    ECC_DOUBLE = "ecc-double"
    """Errors of two bits since the driver started."""
    REMAPPED_ROWS = "remapped-rows"
    """Rows of memory that were replaced because of errors that could not be corrected."""
    REMAP_FAILURE = "remap-failure"
    """1 if a row could not be replaced."""


Column = tuple[float | None, ...]


class MeasuredDevice(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A GPU or MIG instance, with the names that the source gives it."""

    gpu: int
    """Which GPU of the node."""
    instance: int = -1
    """Number of the MIG instance; -1 = the whole GPU."""
    profile: str = ""
    """Its profile, such as `1g.10gb`."""
    uuid: str = ""
    model: str = ""
    pod: str = ""
    """`namespace/name` of the pod that has it, where the source says so."""
    container: str = ""

    @property
    def place(self) -> tuple[int, int]:
        return self.gpu, self.instance


class NodeTelemetry(Struct, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """Latest telemetry of one node's GPUs."""

    name: str
    """The node."""
    time: Time
    """When it was measured."""
    source: str = ""
    """The address of who told it."""
    simulated: bool = False
    """A simulation made it up."""
    lasts: Span = 0
    """After so long it is stale; 0 = never."""
    devices: tuple[MeasuredDevice, ...] = ()
    columns: Mapping[GpuMetric, Column] = {}
    """A measure that nobody reports has no column."""
    idle: tuple[Time | None, ...] = ()
    """Since when each device computes nothing and holds next to no memory; None = it is at work, or nobody knows."""

    @property
    def key(self) -> str:
        return self.name

    def value(self, position: int, measure: GpuMetric) -> float | None:
        """Return a metric of the device at a position; None if unknown."""
        column = self.columns.get(measure)
        return column[position] if column is not None and position < len(column) else None

    def idle_since(self, position: int) -> Time | None:
        return self.idle[position] if position < len(self.idle) else None

    def stale(self, now: Time) -> bool:
        return self.lasts > 0 and now - self.time > self.lasts


def busy(telemetry: NodeTelemetry, position: int) -> float | None:
    """Percent of the time in which a device was busy, by whichever metric is available."""
    said = telemetry.value(position, GpuMetric.UTILISATION)
    active = telemetry.value(position, GpuMetric.ACTIVE)
    return said if said is not None else None if active is None else 100 * active


def is_idle(telemetry: NodeTelemetry, position: int) -> bool:
    """True if a device is known to compute nothing and to hold almost no memory."""
    busy = telemetry.value(position, GpuMetric.UTILISATION)
    limit = 0.0
    if busy is None:
        busy, limit = telemetry.value(position, GpuMetric.ACTIVE), IDLE_ACTIVE
    memory = telemetry.value(position, GpuMetric.MEMORY_USED)
    return busy is not None and busy <= limit and memory is not None and memory < IDLE_MEMORY


def follow(old: NodeTelemetry | None, new: NodeTelemetry) -> NodeTelemetry:
    """Return the new telemetry with idle times continued from the old; equal devices are shared."""
    before: dict[tuple[int, int, str], Time | None] = {}
    if old is not None:
        before = {(*one.place, one.pod): old.idle_since(at) for at, one in enumerate(old.devices)}
    idle: list[Time | None] = []
    for position, device in enumerate(new.devices):
        known = before.get((*device.place, device.pod))
        begun = new.time if known is None else known
        # Who measures a span by itself may know of an earlier beginning.
        said = new.idle_since(position)
        begun = begun if said is None else min(begun, said)
        idle.append(begun if is_idle(new, position) else None)
    devices = old.devices if old is not None and old.devices == new.devices else new.devices
    return replace(new, devices=devices, idle=tuple(idle) if any(since is not None for since in idle) else ())

"""GPU metrics as text: a workload's GPU use, the columns of a node's GPUs, source and age."""

from collections.abc import Callable, Mapping, Sequence

from gpuconsole.insight.health.telemetry import HOT, Average, Coverage, GpuUtilization, MeasuredGpu
from gpuconsole.insight.health.trends import BINS, Trend, Trends, known
from gpuconsole.insight.index.device_layout import WHOLE, GpuUnit
from gpuconsole.model.clock import Time
from gpuconsole.model.telemetry import GpuMetric
from gpuconsole.ui import format as fmt
from gpuconsole.ui.columns import Column
from gpuconsole.ui.paint import Cell

Measured = Mapping[tuple[int, str, str], MeasuredGpu]
"""(GPU, profile, pod of a MIG instance) → its metrics."""
NOT_MEASURED: Measured = {}
HEIGHTS = "▁▂▃▄▅▆▇█"
NO_TRENDS = Trends()


def by_unit(gpus: Sequence[MeasuredGpu]) -> Measured:
    """The devices of a node with metrics, for `of_unit`."""
    whole = {(gpu.device.gpu, "", ""): gpu for gpu in gpus if gpu.device.instance < 0}
    parts = {(gpu.device.gpu, gpu.device.profile, gpu.pod): gpu for gpu in gpus if gpu.device.instance >= 0}
    return {**whole, **parts}


def of_unit(measured: Measured, unit: GpuUnit) -> MeasuredGpu | None:
    """The metrics of a unit; time-slicing replicas have those of the whole GPU."""
    divided = unit.part != WHOLE and "/" not in unit.part
    return measured.get((unit.gpu, unit.part, unit.cell.pod) if divided else (unit.gpu, "", ""))


def measured_columns(measured: Measured, now: Time, trends: Trends) -> tuple[Column[GpuUnit], ...]:
    """Utilization, SM activity, memory, power and temperature of each unit; no columns without metrics.

    Stale metrics are dim.
    """
    if not measured:
        return ()

    def column(
        title: str, id: str, width: int, value: Callable[[MeasuredGpu], float | None], text: Callable[[float], str]
    ) -> Column[GpuUnit]:
        def number(unit: GpuUnit) -> float | None:
            gpu = of_unit(measured, unit)
            return value(gpu) if gpu is not None else None

        def draw(unit: GpuUnit) -> Cell:
            found, gpu = number(unit), of_unit(measured, unit)
            if found is None or gpu is None:
                return ((fmt.NOTHING, "dim"),)
            hot = id == "temperature" and found >= HOT
            return ((text(found), "dim" if gpu.telemetry.stale(now) else "fault" if hot else ""),)

        def order(unit: GpuUnit) -> float:
            found = number(unit)
            return -1.0 if found is None else found

        return Column(title, draw, id=id, width=width, align="right", sort=order, down=True, rank=2)

    def lately(unit: GpuUnit) -> Cell:
        gpu = of_unit(measured, unit)
        return trend_cell(trends.of((gpu,), now)) if gpu is not None else ""

    return (
        column("GPU UTIL", "busy", 8, lambda gpu: gpu.busy, lambda value: f"{value:.0f}%"),
        column("SM", "sm", 6, lambda gpu: gpu.value(GpuMetric.SM), lambda value: f"{100 * value:.0f}%"),
        column("MEM", "memory", 8, lambda gpu: gpu.value(GpuMetric.MEMORY_USED), mebibytes),
        column("W", "power", 5, lambda gpu: gpu.value(GpuMetric.POWER), lambda value: f"{value:.0f}"),
        column("°C", "temperature", 4, lambda gpu: gpu.value(GpuMetric.TEMPERATURE), lambda value: f"{value:.0f}"),
        column("XID", "xid", 4, lambda gpu: gpu.value(GpuMetric.XID) or None, lambda value: f"{value:.0f}"),
        Column("LAST HOUR", lately, id="lately", width=BINS, rank=4),
    )


def trend_cell(trend: Trend) -> Cell:
    """GPU utilization in the last hour as a sparkline of 5-minute bins; a gap without metrics."""
    return ((_heights(trend), "running"),) if known(trend) else ((fmt.NOTHING, "dim"),)


def trend_text(trend: Trend) -> str:
    """The same as text; empty without metrics."""
    return f"last hour {_heights(trend)}" if known(trend) else ""


def _heights(trend: Trend) -> str:
    return "".join(" " if value is None else HEIGHTS[min(7, int(value * 8 / 100))] for value in trend)


def mebibytes(value: float) -> str:
    """Memory given in MiB: `56.9 GiB`."""
    return f"{value / 1024:.1f}Gi" if value >= 1024 else f"{value:.0f}Mi"


def use_text(use: GpuUtilization | None) -> str:
    """A workload's GPU use in a line; empty without metrics."""
    if use is None:
        return ""
    if not use.measured:
        return f"metrics of its {fmt.gpus(use.gpus)} are stale"
    facts = [
        f"SM {use.sm:.0f}%" if use.sm is not None else "",
        f"GPU util {use.busy:.0f}%" if use.busy is not None else "",
        f"memory {mebibytes(use.memory)}" if use.memory is not None else "",
        f"{use.power / 1000:.1f} kW" if use.power is not None else "",
        f"max {use.hottest:.0f} °C" if use.hottest is not None else "",
        f"metrics of {use.measured}/{use.gpus} GPUs" if use.measured < use.gpus else "",
    ]
    return " · ".join(fact for fact in facts if fact)


def source_text(gpus: Sequence[MeasuredGpu], now: Time) -> Cell:
    """Source and age of a node's GPU metrics."""
    if not gpus:
        return ""
    telemetry = gpus[0].telemetry
    if telemetry.simulated:
        return ((" metrics are simulated", "dim"),)
    whose = f" by {telemetry.source}" if telemetry.source else ""
    late = ", stale" if telemetry.stale(now) else ""
    return ((f" sampled {fmt.since(now, telemetry.time)} ago{whose}{late}", "dim"),)


def utilization_text(average: Average) -> str:
    """`average utilization 64%, SM activity 41%`; without the missing metrics."""
    parts = [("utilization", average.utilization), ("SM activity", average.sm)]
    return "average " + ", ".join(f"{what} {value:.0f}%" for what, value in parts if value is not None)


def coverage_text(found: Coverage | None, now: Time) -> str:
    """How many nodes have metrics; empty where all have, or none ever had."""
    if found is None or not found.partial:
        return ""
    stale = f", {found.stale} stale" if found.stale else ""
    return f"GPU metrics: {found.measured} of {found.nodes} nodes{stale} ({fmt.since(now, found.newest)} ago)"

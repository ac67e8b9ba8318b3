"""Measurements in words: how a workload uses its GPUs, the columns of a node's units, and who said so how long ago."""

from collections.abc import Callable, Mapping, Sequence

from gpuconsole.insight.hardware import WHOLE, Unit
from gpuconsole.insight.measured import HOT, Gpu
from gpuconsole.insight.telemetry import Average, Coverage, Use
from gpuconsole.insight.trends import BINS, Trend, Trends, known
from gpuconsole.model.clock import Time
from gpuconsole.model.telemetry import Measure
from gpuconsole.ui import format as fmt
from gpuconsole.ui.columns import Column
from gpuconsole.ui.paint import Cell

Measured = Mapping[tuple[int, str, str], Gpu]
"""(GPU, profile, pod of a MIG instance) → what it measures."""
NOT_MEASURED: Measured = {}
HEIGHTS = "▁▂▃▄▅▆▇█"
NO_TRENDS = Trends()


def by_unit(gpus: Sequence[Gpu]) -> Measured:
    """The measured devices of a node, to be found by `of_unit`."""
    whole = {(gpu.device.gpu, "", ""): gpu for gpu in gpus if gpu.device.instance < 0}
    parts = {(gpu.device.gpu, gpu.device.profile, gpu.pod): gpu for gpu in gpus if gpu.device.instance >= 0}
    return {**whole, **parts}


def of_unit(measured: Measured, unit: Unit) -> Gpu | None:
    """What a unit measures; turns on a GPU measure what the whole of it does."""
    divided = unit.part != WHOLE and "/" not in unit.part
    return measured.get((unit.gpu, unit.part, unit.cell.pod) if divided else (unit.gpu, "", ""))


def measured_columns(measured: Measured, now: Time, trends: Trends) -> tuple[Column[Unit], ...]:
    """SM, memory, power and temperature of each unit, and how busy it was; nothing where nobody measures.

    What is stale is dim.
    """
    if not measured:
        return ()

    def column(
        title: str, id: str, width: int, value: Callable[[Gpu], float | None], text: Callable[[float], str]
    ) -> Column[Unit]:
        def number(unit: Unit) -> float | None:
            gpu = of_unit(measured, unit)
            return value(gpu) if gpu is not None else None

        def draw(unit: Unit) -> Cell:
            found, gpu = number(unit), of_unit(measured, unit)
            if found is None or gpu is None:
                return ((fmt.NOTHING, "dim"),)
            hot = id == "temperature" and found >= HOT
            return ((text(found), "dim" if gpu.telemetry.stale(now) else "fault" if hot else ""),)

        def order(unit: Unit) -> float:
            found = number(unit)
            return -1.0 if found is None else found

        return Column(title, draw, id=id, width=width, align="right", sort=order, down=True, rank=2)

    def lately(unit: Unit) -> Cell:
        gpu = of_unit(measured, unit)
        return trend_cell(trends.of((gpu,), now)) if gpu is not None else ""

    return (
        column("BUSY", "busy", 6, lambda gpu: gpu.busy, lambda value: f"{value:.0f} %"),
        column("SM", "sm", 6, lambda gpu: gpu.value(Measure.SM), lambda value: f"{100 * value:.0f} %"),
        column("MEM", "memory", 8, lambda gpu: gpu.value(Measure.MEMORY_USED), mebibytes),
        column("W", "power", 5, lambda gpu: gpu.value(Measure.POWER), lambda value: f"{value:.0f}"),
        column("°C", "temperature", 4, lambda gpu: gpu.value(Measure.TEMPERATURE), lambda value: f"{value:.0f}"),
        column("XID", "xid", 4, lambda gpu: gpu.value(Measure.XID) or None, lambda value: f"{value:.0f}"),
        Column("LAST HOUR", lately, id="lately", width=BINS, rank=4),
    )


def trend_cell(trend: Trend) -> Cell:
    """How busy something was in the last hour, as little columns of five minutes; a gap where nobody measured."""
    return ((_heights(trend), "running"),) if known(trend) else ((fmt.NOTHING, "dim"),)


def trend_text(trend: Trend) -> str:
    """The same, in a line; empty where nobody measured."""
    return f"last hour {_heights(trend)}" if known(trend) else ""


def _heights(trend: Trend) -> str:
    return "".join(" " if value is None else HEIGHTS[min(7, int(value * 8 / 100))] for value in trend)


def mebibytes(value: float) -> str:
    """Memory that is measured in MiB: `56.9 GiB`."""
    return f"{value / 1024:.1f}Gi" if value >= 1024 else f"{value:.0f}Mi"


def use_text(use: Use | None) -> str:
    """How a workload uses its GPUs, in a line; empty where nobody measures them."""
    if use is None:
        return ""
    if not use.measured:
        return f"what its {fmt.gpus(use.gpus)} measured is out of date"
    facts = [
        f"SM {use.sm:.0f} %" if use.sm is not None else "",
        f"busy {use.busy:.0f} %" if use.busy is not None else "",
        f"memory {mebibytes(use.memory)}" if use.memory is not None else "",
        f"{use.power / 1000:.1f} kW" if use.power is not None else "",
        f"hottest {use.hottest:.0f} °C" if use.hottest is not None else "",
        f"{use.measured} of {use.gpus} measured" if use.measured < use.gpus else "",
    ]
    return " · ".join(fact for fact in facts if fact)


def source_text(gpus: Sequence[Gpu], now: Time) -> Cell:
    """Who measured a node's GPUs, and how long ago."""
    if not gpus:
        return ""
    told = gpus[0].telemetry
    if told.simulated:
        return ((" measures are simulated", "dim"),)
    whose = f" by {told.source}" if told.source else ""
    late = ", stale" if told.stale(now) else ""
    return ((f" measured {fmt.since(now, told.time)} ago{whose}{late}", "dim"),)


def utilization_text(average: Average) -> str:
    """`average utilization 64%, SM activity 41%`; what is not measured is left out."""
    parts = [("utilization", average.utilization), ("SM activity", average.sm)]
    return "average " + ", ".join(f"{what} {value:.0f}%" for what, value in parts if value is not None)


def coverage_text(found: Coverage | None, now: Time) -> str:
    """How much of the cluster is measured, in a few words; empty where all is, or nothing ever was."""
    if found is None or not found.partial:
        return ""
    stale = f", {found.stale} out of date" if found.stale else ""
    return f"measured: {found.measured} of {found.nodes} nodes{stale} ({fmt.since(now, found.newest)} ago)"

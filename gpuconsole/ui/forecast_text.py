"""A workload's forecast: a cell of the table, and lines of its page."""

from collections.abc import Callable

from gpuconsole.insight.forecast.forecast import Forecast, ForecastAction, WorkloadForecast, in_words
from gpuconsole.model.clock import Time
from gpuconsole.ui import format as fmt
from gpuconsole.ui.columns import Column
from gpuconsole.ui.names import called, named
from gpuconsole.ui.paint import GLYPHS, Cell, Painted
from gpuconsole.ui.widgets.textpane import BLANK, heading, text_line
from gpuconsole.ui.workload_rows import WorkloadRow

_ORDER = {fate: place for place, fate in enumerate(ForecastAction)}


def forecast_cell(prospect: WorkloadForecast | None) -> Cell:
    """The effect of the next scheduling cycles, short."""
    if prospect is None:
        return ""
    match prospect.fate:
        case ForecastAction.ADMITTED:
            return ((f"{GLYPHS['good']} cycle {prospect.cycle}", "good"),)
        case ForecastAction.AFTER_VICTIMS:
            return ((f"{GLYPHS['pending']} preempts {len(prospect.victims)}", "pending"),)
        case ForecastAction.PREEMPTED:
            return ((f"{GLYPHS['victim']} by {called(prospect.by)}", "victim"),)
        case ForecastAction.WAITS:
            return (("pending", "dim"),)


def forecast_column(newest: Callable[[], Forecast]) -> Column[WorkloadRow]:
    """The column for live clusters; it reads the newest forecast while drawing."""

    def order(row: WorkloadRow) -> tuple[int, int]:
        prospect = newest().of(row.key)
        return (_ORDER[prospect.fate], prospect.cycle) if prospect is not None else (len(_ORDER), 0)

    return Column(
        "FORECAST",
        lambda row: forecast_cell(newest().of(row.key)),
        id="forecast",
        width=12,
        flex=1,
        sort=order,
        rank=1,
    )


def forecast_lines(forecast: Forecast, workload: str, now: Time) -> list[Painted]:
    """The forecast for a workload, its age and its assumptions; no lines without a forecast."""
    prospect = forecast.of(workload)
    if prospect is None:
        return []
    age = f"simulated {fmt.since(now, forecast.time)} ago: an estimate, not a reservation"
    lines = [
        BLANK,
        heading("FORECAST"),
        text_line("  ", (named(in_words(prospect)), "strong")),
        text_line((f"  {age}", "dim")),
    ]
    return [*lines, *(text_line((f"  {text}", "dim")) for text in (*forecast.assumed, *forecast.queues))]

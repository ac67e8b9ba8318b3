"""Text and JSON of a forecast and of its comparison with Kueue's decisions."""

from collections.abc import Iterator
from typing import Any

import msgspec

from gpuconsole.insight.forecast.backtest import DifferenceCause, ForecastDifference, ForecastDifferences
from gpuconsole.insight.forecast.forecast import Forecast, ForecastAction, WorkloadForecast, in_words
from gpuconsole.insight.tables import counted, seconds, table
from gpuconsole.model.clock import SECOND, format_time
from gpuconsole.model.device_units import device_cell
from gpuconsole.ui.names import called, named

CAUSES = {
    DifferenceCause.TIMING: "the cluster changed before the decision; on the changed cluster the engine agrees",
    DifferenceCause.ORDER: "Kueue chose another workload of the same priority and timestamp",
    DifferenceCause.UNSEEN: "objects that decide it are not visible (RBAC)",
    DifferenceCause.RACE: "an object changed close to the decision, between two observations",
    DifferenceCause.MEMORY: "the engine agrees if it assumes another state of Kueue's queues",
    DifferenceCause.DISAGREEMENT: "the engine decides differently from Kueue",
}
FATES = {
    ForecastAction.ADMITTED: "would be admitted",
    ForecastAction.AFTER_VICTIMS: "would preempt others",
    ForecastAction.PREEMPTED: "would be preempted",
    ForecastAction.WAITS: "would stay pending",
}


def as_text(forecast: Forecast | None, said: ForecastDifferences | None) -> list[str]:
    """The comparison as text, if there is one, otherwise the forecast."""
    if said is not None:
        return _check_as_text(said, forecast)
    return _forecast_as_text(forecast) if forecast is not None else []


def _forecast_as_text(forecast: Forecast) -> list[str]:
    """The forecast as text, admissions first."""
    order = forecast.in_order()
    counts = [f"{sum(one.fate is action for one in order)} {words}" for action, words in FATES.items()]
    lines = [f"At {seconds(forecast.time)}: {', '.join(counts)}; simulated, nothing is reserved", ""]
    lines += table(
        ("WORKLOAD", "QUEUE", "GPUS", "PRIORITY", "FORECAST"),
        [
            (called(one.workload), one.queue, device_cell(one.gpus, one.unit), one.priority, named(in_words(one)))
            for one in order
        ],
    )
    return [*lines, *_assumed(forecast)]


def _check_as_text(said: ForecastDifferences, forecast: Forecast | None) -> list[str]:
    """Number of agreements, differences by cause, and each difference."""
    lines = [
        _agreement(said),
        *table(
            ("COUNT", "CAUSE", "MEANS"),
            [
                (said.agreed, "agreed", "Kueue decided as forecast, or as the engine decides for new objects"),
                *((said.of(cause), cause.value, means) for cause, means in CAUSES.items()),
            ],
        ),
    ]
    differing = [one for one in said.differences if one.cause is not DifferenceCause.TIMING]
    if before := sum(said.earlier.values()):
        total = len(said.differences) + before
        listed = f"The newest {len(said.differences):,} of {total:,} differences, except timing:"
        lines += ["", listed]
    for one in differing:
        lines += ["", *_difference(one)]
    return [*lines, *(_assumed(forecast) if forecast is not None else ())]


def _agreement(said: ForecastDifferences) -> str:
    if not said.decisions:
        return "no Kueue decisions to compare"
    return f"{counted(said.decisions, 'Kueue decision')} compared, {said.agreement:.1%} agreement"


def as_json(forecast: Forecast | None, said: ForecastDifferences | None) -> dict[str, Any]:
    """The fields of the JSON document; parts that were not requested are omitted."""
    document: dict[str, Any] = {}
    if forecast is not None:
        document["forecast"] = [_prospect(one) for one in forecast.in_order()]
    if said is not None:
        document["agreement"] = {
            "decisions": said.decisions,
            "agreed": said.agreed,
            **{cause.value: said.of(cause) for cause in DifferenceCause},
            "part": round(said.agreement, 4),
        }
        document["differences"] = list(map(_as_document, said.differences))
    return document


def _as_document(one: ForecastDifference) -> dict[str, Any]:
    document = {**msgspec.to_builtins(one), "time": format_time(one.time), "object": one.object or None}
    del document["span"]
    return {**document, "span_seconds": one.span / SECOND if one.object else None}


def _prospect(one: WorkloadForecast) -> dict[str, Any]:
    return {**msgspec.structs.asdict(one), "created": format_time(one.created), "text": in_words(one)}


def _difference(one: ForecastDifference) -> Iterator[str]:
    yield f"{seconds(one.time)}  {called(one.workload)}  {one.cause.value}{f': {one.detail}' if one.detail else ''}"
    yield f"  forecast: {named(one.forecast)}"
    yield f"  Kueue:    {named(one.fact)}"


def _assumed(forecast: Forecast) -> list[str]:
    assumed = (*forecast.assumed, *forecast.queues)
    return ["", *assumed] if assumed else []

"""Text of the anti-patterns report."""

from collections.abc import Sequence

from gpuconsole.insight.health.antipatterns import AntiPattern, total_per_day
from gpuconsole.insight.health.telemetry import Utilization
from gpuconsole.insight.tables import counted, table
from gpuconsole.model.devices import device_cell
from gpuconsole.ui.names import named


def antipatterns_lines(
    found: Sequence[AntiPattern], *, measured: bool = True, average: Utilization | None = None
) -> list[str]:
    """Return the anti-patterns report as text: evidence, cost per day and fix of each, then the `average` utilization.

    With `measured` false, the report first says that there is no GPU telemetry.
    """
    return [*_patterns(found, measured), *(["", *utilization_lines(average)] if average is not None else [])]


def utilization_lines(average: Utilization) -> list[str]:
    """The average utilization of the cluster and of its teams, as a table."""
    rows = [
        (
            one.team or "cluster",
            device_cell(one.gpus, one.unit),
            one.measured,
            _percent(one.utilization),
            _percent(one.sm),
        )
        for one in (average.cluster, *average.teams)
    ]
    return table(("TEAM", "GPUS", "MEASURED", "UTILIZATION", "SM ACTIVITY"), rows)


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{value:.0f}%"


def _patterns(found: Sequence[AntiPattern], measured: bool) -> list[str]:
    lines = [] if measured else ["no GPU telemetry: idle and underutilized allocations are unknown", ""]
    if not found:
        return [*lines, "no findings"]
    once = " (an eviction in several findings is counted once)" if any(one.shared_cost_per_day for one in found) else ""
    lines.append(f"{counted(len(found), 'anti-pattern')}, about ${total_per_day(found):,.2f} per day{once}")
    for one in found:
        shown = ", ".join(f"{name}: {value}" for name, value in one.evidence.items() if value != "")
        lines += ["", f"{one.code}: {named(one.text)}", f"  cost      {_cost(one)}{_gpus(one)}"]
        lines += [f"  evidence  {named(shown)}"] if shown else []
        lines.append(f"  fix       {named(one.fix)}")
    return lines


def _cost(one: AntiPattern) -> str:
    if not one.cost_per_day:
        return "none"
    shared = f", of which ${one.shared_cost_per_day:,.2f} is counted in the preemption loop of its queues"
    return f"${one.cost_per_day:,.2f} per day{shared if one.shared_cost_per_day else ''}"


def _gpus(one: AntiPattern) -> str:
    return f" ({one.gpus:.1f} {one.unit}s)" if one.gpus else ""

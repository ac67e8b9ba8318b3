"""The column of estimated starts in the workloads table."""

from collections.abc import Callable

from gpuconsole.insight.forecast.estimates import StartEstimates
from gpuconsole.model.clock import Time
from gpuconsole.model.workloads import WorkloadPhase
from gpuconsole.ui.columns import Column
from gpuconsole.ui.outlook_text import moments
from gpuconsole.ui.paint import Cell
from gpuconsole.ui.workload_rows import WorkloadRow

_WAITING = (WorkloadPhase.PENDING, WorkloadPhase.QUOTA_RESERVED)


def starts_column(newest: Callable[[], StartEstimates], now: Callable[[], Time]) -> Column[WorkloadRow]:
    """The 80% interval of the start; it reads the newest estimates while drawing and hides expired ones."""

    def cell(row: WorkloadRow) -> Cell:
        found = newest().estimates.get(row.key)
        if found is None or row.phase not in _WAITING:
            return ""
        left = moments(found, now())
        return f"~{left}" if left and not found.beyond else left

    def order(row: WorkloadRow) -> tuple[bool, Time]:
        found = newest().estimates.get(row.key) if row.phase in _WAITING else None
        return (False, found.horizon if found.beyond else found.median) if found is not None else (True, 0)

    return Column("EST. START", cell, id="starts", width=12, flex=1, sort=order, rank=3)

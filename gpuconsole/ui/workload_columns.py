"""Columns of the workloads table."""

from collections.abc import Callable

from gpuconsole.model.clock import Time
from gpuconsole.model.workloads import WorkloadPhase
from gpuconsole.ui import format as fmt
from gpuconsole.ui.columns import Column
from gpuconsole.ui.names import called
from gpuconsole.ui.paint import GLYPHS, Cell
from gpuconsole.ui.workload_rows import LAST, ORDER, Listing, WorkloadRow

PHASES: dict[WorkloadPhase, tuple[str, str]] = {
    WorkloadPhase.PENDING: (GLYPHS["pending"], "pending"),
    WorkloadPhase.QUOTA_RESERVED: ("◒", "held"),
    WorkloadPhase.ADMITTED: ("◑", "pending"),
    WorkloadPhase.RUNNING: (GLYPHS["running"], "running"),
    WorkloadPhase.EVICTED: (GLYPHS["victim"], "victim"),
    WorkloadPhase.STOPPED: (GLYPHS["held"], "held"),
    WorkloadPhase.FINISHED: (GLYPHS["good"], "dim"),
    WorkloadPhase.FAILED: (GLYPHS["fault"], "fault"),
}
"""Phase → glyph and role; the phase is written out too, so that colours are not needed."""


def phase_cell(phase: WorkloadPhase) -> Cell:
    glyph, role = PHASES[phase]
    # The column is too narrow for QuotaReserved.
    return ((f"{glyph} {'reserved' if phase is WorkloadPhase.QUOTA_RESERVED else phase}", role),)


def name_of(row: WorkloadRow) -> str:
    """Namespace and name, also of jobs without a Workload object; the kind has its own column."""
    return "/".join(called(row.key).split("/")[-2:])


def columns(newest: Callable[[], Listing]) -> tuple[Column[WorkloadRow], ...]:
    """The columns; positions, borrowed GPUs and ages are read from the newest listing while drawing."""

    def place(row: WorkloadRow) -> Cell:
        found = newest().place(row)
        return str(found) if found != LAST else ""

    def borrowed(row: WorkloadRow) -> Cell:
        count = newest().borrowed.get(row.key, 0)
        return ((f"{GLYPHS['borrowed']}{count}", "borrowed"),) if count else ""

    def measured(row: WorkloadRow) -> Cell:
        found = newest().sm.get(row.key)
        return "" if found is None else f"{found:.0f}%"

    def now() -> Time:
        return newest().time

    def waited(row: WorkloadRow) -> int:
        return now() - row.since if row.phase is WorkloadPhase.PENDING else 0

    return (
        Column("WORKLOAD", name_of, id="name", width=20, flex=3, sort=name_of),
        Column(
            "PHASE",
            lambda row: phase_cell(row.phase),
            id="status",
            width=10,
            sort=lambda row: (ORDER.index(row.phase), newest().place(row)),
        ),
        Column(
            "REASON", lambda row: ((row.reason, "dim"),), id="reason", width=12, flex=1, sort=lambda row: row.reason
        ),
        Column(
            "POS",
            place,
            id="position",
            width=4,
            align="right",
            sort=lambda row: newest().place(row),
        ),
        Column(
            "PRIORITY",
            lambda row: str(row.workload.priority),
            id="priority",
            width=8,
            align="right",
            sort=lambda row: row.workload.priority,
            down=True,
            rank=1,
        ),
        Column(
            "GPU×PODS",
            lambda row: row.shape,
            id="usage",
            width=8,
            align="right",
            sort=lambda row: row.gpus,
            down=True,
        ),
        Column("FLAVOR", lambda row: row.flavor, id="flavor", width=10, flex=1, sort=lambda row: row.flavor, rank=3),
        Column(
            "▲",
            borrowed,
            id="borrowed",
            width=4,
            align="right",
            sort=lambda row: newest().borrowed.get(row.key, 0),
            down=True,
            rank=2,
        ),
        Column(
            "EVICTIONS",
            lambda row: ((str(row.workload.evictions), "victim"),) if row.workload.evictions else "",
            id="evictions",
            width=9,
            align="right",
            sort=lambda row: row.workload.evictions,
            down=True,
            rank=4,
        ),
        Column(
            "WAIT",
            lambda row: fmt.age(waited(row)) if row.phase is WorkloadPhase.PENDING else "",
            id="wait",
            width=6,
            align="right",
            sort=waited,
            down=True,
            rank=2,
        ),
        Column(
            "AGE",
            lambda row: fmt.since(now(), row.workload.created),
            id="age",
            width=6,
            align="right",
            sort=lambda row: row.workload.created,
            rank=5,
        ),
        Column(
            "QUEUE",
            lambda row: newest().queue(row),
            id="queue",
            width=11,
            flex=1,
            sort=lambda row: newest().queue(row),
            rank=3,
        ),
        Column(
            "SM",
            measured,
            id="sm",
            width=5,
            align="right",
            sort=lambda row: newest().sm.get(row.key, -1.0),
            down=True,
            rank=8,
        ),
        Column("KIND", lambda row: row.kind, id="kind", width=8, sort=lambda row: row.kind, rank=6),
        Column("WORKLOAD NAME", lambda row: row.workload.name, id="full-name", width=24, rank=9),
    )

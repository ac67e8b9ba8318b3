"""Rows and columns of the workloads table, rebuilt only for workloads that changed, so that 10,000 rows stay fast."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import assert_never

from msgspec import Struct

from gpuconsole.insight.health.telemetry import sm_by_workload
from gpuconsole.insight.index.demand import held_units, template_units, waiting_since, wanted_units
from gpuconsole.insight.index.pods import Pods, phase_of, pods_by_node
from gpuconsole.insight.index.queues import pending_reason, positions
from gpuconsole.insight.index.unqueued_work import unqueued_work, waits_because
from gpuconsole.insight.pending.pending import explain_admitted
from gpuconsole.insight.pending.reasons import PendingReason
from gpuconsole.insight.sharing.fair_shares import borrowed_gpus
from gpuconsole.model.clock import SECOND, Time
from gpuconsole.model.devices import NO_UNITS, UnitKind, Units
from gpuconsole.model.queues import LocalQueue
from gpuconsole.model.snapshot import EMPTY, EVERYTHING, Snapshot, TableView
from gpuconsole.model.workloads import PLACED, Workload, WorkloadPhase
from gpuconsole.ui import format as fmt
from gpuconsole.ui.names import called
from gpuconsole.ui.paint import GLYPHS, Cell
from gpuconsole.ui.table_model import Column

ORDER = (
    WorkloadPhase.PENDING,
    WorkloadPhase.EVICTED,
    WorkloadPhase.QUOTA_RESERVED,
    WorkloadPhase.ADMITTED,
    WorkloadPhase.RUNNING,
    WorkloadPhase.STOPPED,
    WorkloadPhase.FAILED,
    WorkloadPhase.FINISHED,
)
"""Phases in the order of the table: those that need attention first."""


class WorkloadRow(Struct, frozen=True):
    """A workload's row of the table, without what depends on other workloads: its position and borrowed GPUs."""

    workload: Workload
    phase: WorkloadPhase
    gpus: int
    """GPUs, MIG instances or DRA devices that it has quota for, or requests if it has no quota yet."""
    pods: int
    """Pods that it has quota for, or requests if it has no quota yet."""
    requested_pods: int
    """Pods that it requests: more than `pods` under partial admission."""
    shape: str
    """GPUs per pod × pods with GPUs, such as `8×4`, or `1 MIG×4` for other units; the sum where pods differ."""
    flavor: str
    kind: str
    reason: str
    since: Time
    """When its present phase began."""

    units: Units = NO_UNITS
    """`gpus` by kind of unit."""
    stands_in: str = ""
    """Key of the job or pod that the row shows, if it has no Workload object; else empty."""
    key: str = ""
    name: str = ""
    """Namespace and name of the workload or job; the kind has its own column."""


def make_row(workload: Workload, stands_in: str = "", snapshot: Snapshot = EMPTY) -> WorkloadRow:
    """Make the row of a workload, or of the job or pod with the key `stands_in` that has no Workload object."""
    word = phase_of(snapshot, workload)
    holds = workload.admission is not None and workload.reserved
    flavors: dict[str, None] = {}
    if workload.admission is not None:
        for assignment in workload.admission.pod_sets:
            flavors.update(dict.fromkeys(assignment.flavors.values()))
    units = held_units(snapshot, workload) if holds else wanted_units(snapshot, workload)
    key = stands_in or workload.key
    return WorkloadRow(
        workload=workload,
        phase=word,
        gpus=sum(units.values()),
        units=units,
        pods=sum(_counts(workload)),
        requested_pods=sum(pod_set.count for pod_set in workload.pod_sets),
        shape=shape(snapshot, workload),
        flavor=",".join(flavors),
        kind=workload.owner.partition("/")[0] or "Workload",
        reason=_reason(snapshot, workload, word)
        if not stands_in
        else waits_because(workload)
        if word is WorkloadPhase.PENDING
        else "",
        since=_since(workload, word),
        stands_in=stands_in,
        key=key,
        name="/".join(called(key).split("/")[-2:]),
    )


def shape(snapshot: Snapshot, workload: Workload) -> str:
    """Format GPUs per pod × pods of a workload, as in `WorkloadRow.shape`."""
    asked = [
        (template_units(snapshot, workload.namespace, pod_set.template), count)
        for pod_set, count in zip(workload.pod_sets, _counts(workload), strict=True)
    ]
    sizes = [(sum(units.values()), count) for units, count in asked if units and count]
    kinds = {unit.kind for units, count in asked for unit in units if count}
    unit = _SHORT[next(iter(kinds))] if len(kinds) == 1 else ""
    count = sum(count for _, count in sizes)
    if len({gpus for gpus, _ in sizes}) == 1:
        return f"{sizes[0][0]}{unit}×{count}" if count > 1 else f"{sizes[0][0]}{unit}"
    return f"{sum(gpus * count for gpus, count in sizes)}{unit}"


def _counts(workload: Workload) -> list[int]:
    """The pods of each pod set that it has quota for: partial admission gives fewer than are requested, and an elastic
    job that was scaled down needs fewer than it was given.
    """
    admission = workload.admission if workload.reserved else None
    given = {part.name: part.count for part in admission.pod_sets} if admission is not None else {}
    return [min(pod_set.count, given.get(pod_set.name, pod_set.count)) for pod_set in workload.pod_sets]


_SHORT = {
    UnitKind.GPU: "",
    UnitKind.MIG: " MIG",
    UnitKind.TIME_SLICED: " rep",
    UnitKind.MPS: " rep",
    UnitKind.SHARED: " rep",
    UnitKind.DRA: " dev",
}
"""Units in the column GPU×PODS."""


def _since(workload: Workload, word: WorkloadPhase) -> Time:
    match word:
        case WorkloadPhase.PENDING:
            return waiting_since(workload)
        case WorkloadPhase.RUNNING:
            return _moment(workload, "PodsReady" if workload.is_true("PodsReady") else "Admitted")
        case WorkloadPhase.ADMITTED:
            return _moment(workload, "Admitted")
        case WorkloadPhase.QUOTA_RESERVED:
            return _moment(workload, "QuotaReserved")
        case WorkloadPhase.EVICTED:
            return _moment(workload, "Evicted")
        case WorkloadPhase.FINISHED | WorkloadPhase.FAILED:
            return _moment(workload, "Finished")
        case WorkloadPhase.STOPPED:
            return max((condition.since for condition in workload.conditions), default=workload.created)
        case _:
            assert_never(word)


def _moment(workload: Workload, type: str) -> Time:
    condition = workload.condition(type)
    return condition.since if condition is not None else workload.created


def _reason(snapshot: Snapshot, workload: Workload, word: WorkloadPhase) -> str:
    """The reason for its phase in one word; empty for running workloads."""
    match word:
        case WorkloadPhase.PENDING:
            return pending_reason(snapshot, workload)
        case WorkloadPhase.EVICTED:
            evicted = workload.condition("Evicted")
            return evicted.reason if evicted is not None else ""
        case WorkloadPhase.FINISHED | WorkloadPhase.FAILED:
            finished = workload.condition("Finished")
            return finished.reason if finished is not None else ""
        case WorkloadPhase.QUOTA_RESERVED:
            return PendingReason.CHECKS if workload.checks else ""
        case WorkloadPhase.ADMITTED:
            code = explain_admitted(snapshot, workload).code
            return code if code is not PendingReason.NOT_WAITING else PendingReason.UNSEEN
        case WorkloadPhase.STOPPED | WorkloadPhase.RUNNING:
            return ""
        case _:
            assert_never(word)


class Listing(Struct, frozen=True):
    """The workloads table at one moment: all rows in display order, with positions and borrowed GPUs by workload."""

    rows: Sequence[WorkloadRow] = ()
    positions: Mapping[str, int] = {}
    borrowed: Mapping[str, int] = {}
    time: Time = 0
    sm: Mapping[str, float] = {}
    """SM activity in percent, of workloads with metrics."""
    local_queues: Mapping[str, LocalQueue] = {}

    def queue(self, row: WorkloadRow) -> str:
        """Return the row's ClusterQueue; its LocalQueue where the ClusterQueue is unknown."""
        if row.workload.admission is not None:
            return row.workload.admission.cluster_queue
        local_queue = self.local_queues.get(row.workload.local_queue)
        return local_queue.cluster_queue if local_queue is not None else row.workload.queue

    def place(self, row: WorkloadRow) -> int:
        """Return the row's position in its ClusterQueue, from 1; LAST if it has none."""
        return self.positions.get(row.key, LAST)


class WorkloadRows:
    """Makes the workloads table of each Snapshot; rebuilds only rows that changed. Mutable; not thread-safe."""

    def __init__(self) -> None:
        self._known: dict[int, WorkloadRow] = {}
        """By the id() of their workloads, which they keep alive."""
        self._view: TableView[Workload] | None = None
        self._others: dict[int, WorkloadRow] = {}
        self._seen = EVERYTHING
        self._placed: dict[int, tuple[WorkloadRow, str, Pods]] = {}
        """Rows of admitted workloads, whose phase depends on their pods, with their keys and these pods."""

    def update(self, snapshot: Snapshot, namespaces: frozenset[str] = frozenset()) -> Listing:
        """Return all workloads, or those in `namespaces` if any are given: pending ones first, by position."""
        if snapshot.seen != self._seen:
            self._known, self._placed, self._view, self._seen = {}, {}, None, snapshot.seen
        self._follow_pods(snapshot)
        others = ((workload, key) for key, workload in unqueued_work(snapshot).items())
        self._others = _rows(self._others, others, snapshot)
        rows: Iterable[WorkloadRow] = (*self._known.values(), *self._others.values())
        if namespaces:
            rows = (row for row in rows if row.workload.namespace in namespaces)
        places = positions(snapshot)
        return Listing(
            _in_order(rows, places),
            places,
            borrowed_gpus(snapshot),
            snapshot.time,
            sm_by_workload(snapshot),
            snapshot.local_queues,
        )

    def _follow_pods(self, snapshot: Snapshot) -> None:
        """Rebuild the rows of changed workloads, and of admitted ones whose pods changed."""
        where = pods_by_node(snapshot)
        if snapshot.workloads is not self._view:
            self._known = _rows(self._known, ((workload, "") for workload in snapshot.workloads.all()), snapshot)
            self._view = snapshot.workloads
            before, self._placed = self._placed, {}
            for id_, row in self._known.items():
                if row.phase in PLACED:
                    old = before.get(id_)
                    same = old is not None and old[0] is row
                    self._placed[id_] = old if old is not None and same else (row, row.key, where.of(row.key))
        for id_, (row, key, pods) in self._placed.items():
            now = where.of(key)
            if now is not pods:
                row = self._known[id_] = make_row(row.workload, "", snapshot)
                self._placed[id_] = row, key, now


def _rows(
    known: Mapping[int, WorkloadRow], workloads: Iterable[tuple[Workload, str]], snapshot: Snapshot
) -> dict[int, WorkloadRow]:
    return {id(workload): known.get(id(workload)) or make_row(workload, key, snapshot) for workload, key in workloads}


def _in_order(rows: Iterable[WorkloadRow], places: Mapping[str, int]) -> list[WorkloadRow]:
    """By phase; pending ones by position, then oldest first; all others newest first."""
    phases: dict[WorkloadPhase, list[WorkloadRow]] = {word: [] for word in ORDER}
    for row in rows:
        phases[row.phase].append(row)
    for word, some in phases.items():
        some.sort(key=attrgetter("since"), reverse=word is not WorkloadPhase.PENDING)
    # Two sorts by one number each take a third of the time of one by two.
    phases[WorkloadPhase.PENDING].sort(key=lambda row: places.get(row.key, LAST))
    return [row for some in phases.values() for row in some]


LAST = 1 << 60
"""Position of workloads that have none, such as pending ones in no ClusterQueue; sorts after all others."""


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


_PHASE_CELLS: dict[WorkloadPhase, Cell] = {
    # The column is too narrow for QuotaReserved.
    phase: ((f"{glyph} {'reserved' if phase is WorkloadPhase.QUOTA_RESERVED else phase}", role),)
    for phase, (glyph, role) in PHASES.items()
}
_RANKS = {phase: rank for rank, phase in enumerate(ORDER)}


def phase_cell(phase: WorkloadPhase) -> Cell:
    return _PHASE_CELLS[phase]


def columns(newest: Callable[[], Listing]) -> tuple[Column[WorkloadRow], ...]:
    """Return the columns; positions, borrowed GPUs and ages are read from the `newest` listing while drawing."""

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
        Column("WORKLOAD", attrgetter("name"), id="name", width=20, flex=3, sort=attrgetter("name")),
        Column(
            "PHASE",
            lambda row: phase_cell(row.phase),
            id="status",
            width=10,
            sort=lambda row: (_RANKS[row.phase], newest().place(row)),
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
            name="gpus",
            number=lambda row: row.gpus,
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
            name="borrowed",
            number=lambda row: newest().borrowed.get(row.key, 0),
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
            number=lambda row: row.workload.evictions,
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
            number=lambda row: waited(row) // SECOND if row.phase is WorkloadPhase.PENDING else None,
            unit="seconds",
        ),
        Column(
            "AGE",
            lambda row: fmt.since(now(), row.workload.created),
            id="age",
            width=6,
            align="right",
            sort=lambda row: row.workload.created,
            rank=5,
            number=lambda row: (now() - row.workload.created) // SECOND,
            unit="seconds",
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
            number=lambda row: newest().sm.get(row.key),
            unit="percent",
        ),
        Column("KIND", lambda row: row.kind, id="kind", width=8, sort=lambda row: row.kind, rank=6),
        Column(
            "NAMESPACE",
            lambda row: row.workload.namespace,
            id="namespace",
            width=12,
            sort=lambda row: row.workload.namespace,
            hidden=True,
        ),
        Column("WORKLOAD NAME", lambda row: row.workload.name, id="full-name", width=24, rank=9),
    )

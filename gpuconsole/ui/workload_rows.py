"""Rows of the workloads table: made once for each workload that changed, so that ten thousand of them stay fluid."""

from collections.abc import Iterable, Mapping, Sequence
from typing import assert_never

from msgspec import Struct

from gpuconsole.insight.borrowing import borrowed_gpus
from gpuconsole.insight.demand import held_gpus, pod_gpus, waiting_since, wanted_gpus
from gpuconsole.insight.positions import positions
from gpuconsole.insight.reasons import Code, code_of
from gpuconsole.insight.stand_ins import stand_ins
from gpuconsole.insight.telemetry import sm_by_workload
from gpuconsole.model.clock import Time
from gpuconsole.model.snapshot import Snapshot, View
from gpuconsole.model.workloads import Phase, Workload, phase

ORDER = (
    Phase.PENDING,
    Phase.EVICTING,
    Phase.RESERVED,
    Phase.RUNNING,
    Phase.STOPPED,
    Phase.FAILED,
    Phase.FINISHED,
)
"""What an operator looks at first stands first."""
_RANK = {name: rank for rank, name in enumerate(ORDER)}


class WorkloadRow(Struct, frozen=True):
    """What the table shows of a workload, apart from what changes with the others: its position, what it borrows."""

    workload: Workload
    phase: Phase
    gpus: int
    pods: int
    shape: str
    """GPUs of one pod × pods that have some, such as `8×4`; the sum alone where pods differ."""
    flavor: str
    kind: str
    reason: str
    since: Time
    """When its present phase began."""

    stands_in: str = ""
    """Key of the job or the pod itself, where no Workload stands for it."""

    @property
    def key(self) -> str:
        return self.stands_in or self.workload.key


def make_row(workload: Workload, stands_in: str = "") -> WorkloadRow:
    """Sum a workload up, or what only looks like one."""
    word = phase(workload)
    holds = workload.admission is not None and workload.reserved
    flavors: dict[str, None] = {}
    if workload.admission is not None:
        for assignment in workload.admission.pod_sets:
            flavors.update(dict.fromkeys(assignment.flavors.values()))
    return WorkloadRow(
        workload=workload,
        phase=word,
        gpus=held_gpus(workload) if holds else wanted_gpus(workload),
        pods=sum(pod_set.count for pod_set in workload.pod_sets),
        shape=shape(workload),
        flavor=",".join(flavors),
        kind=workload.owner.partition("/")[0] or "Workload",
        reason=_reason(workload, word) if not stands_in else Code.NODES if word is Phase.PENDING else "",
        since=_since(workload, word),
        stands_in=stands_in,
    )


def shape(workload: Workload) -> str:
    """GPUs × pods in a few characters."""
    sizes = [(pod_gpus(pod_set.template), pod_set.count) for pod_set in workload.pod_sets]
    sizes = [(gpus, count) for gpus, count in sizes if gpus and count]
    count = sum(count for _, count in sizes)
    if len({gpus for gpus, _ in sizes}) == 1:
        return f"{sizes[0][0]}×{count}" if count > 1 else str(sizes[0][0])
    return str(sum(gpus * count for gpus, count in sizes))


def _since(workload: Workload, word: Phase) -> Time:
    match word:
        case Phase.PENDING:
            return waiting_since(workload)
        case Phase.RUNNING:
            return _moment(workload, "Admitted")
        case Phase.RESERVED:
            return _moment(workload, "QuotaReserved")
        case Phase.EVICTING:
            return _moment(workload, "Evicted")
        case Phase.FINISHED | Phase.FAILED:
            return _moment(workload, "Finished")
        case Phase.STOPPED:
            return max((condition.since for condition in workload.conditions), default=workload.created)
        case _:
            assert_never(word)


def _moment(workload: Workload, type: str) -> Time:
    condition = workload.condition(type)
    return condition.since if condition is not None else workload.created


def _reason(workload: Workload, word: Phase) -> str:
    """One word for why it is where it is; nothing for what simply runs."""
    match word:
        case Phase.PENDING:
            waits = workload.condition("QuotaReserved")
            return code_of(waits.message) if waits is not None and waits.message else Code.QUEUED
        case Phase.EVICTING:
            evicted = workload.condition("Evicted")
            return evicted.reason if evicted is not None else ""
        case Phase.FINISHED | Phase.FAILED:
            finished = workload.condition("Finished")
            return finished.reason if finished is not None else ""
        case Phase.RESERVED:
            return Code.CHECKS if workload.checks else ""
        case Phase.STOPPED | Phase.RUNNING:
            return ""
        case _:
            assert_never(word)


class Listing(Struct, frozen=True):
    """All rows in the useful order, and what changes with the others: places and borrowed GPUs."""

    rows: Sequence[WorkloadRow] = ()
    positions: Mapping[str, int] = {}
    borrowed: Mapping[str, int] = {}
    time: Time = 0
    sm: Mapping[str, float] = {}
    """Percent of the multiprocessors at work, of those that are measured."""

    def place(self, row: WorkloadRow) -> int:
        """Its place in its ClusterQueue, from 1; LAST where it has none."""
        return self.positions.get(row.key, LAST)


class WorkloadRows:
    """Makes listings of Snapshots. Mutates; sums up only workloads that changed. For one thread at a time."""

    def __init__(self) -> None:
        self._known: dict[str, WorkloadRow] = {}
        self._view: View[Workload] | None = None
        self._others: dict[str, WorkloadRow] = {}

    def update(self, snapshot: Snapshot, namespaces: frozenset[str] = frozenset()) -> Listing:
        """All workloads (of these namespaces, if any are named): pending ones first, by their position."""
        if snapshot.workloads is not self._view:
            known, self._known = self._known, {}
            for workload in snapshot.workloads.all():
                row = known.get(workload.key)
                self._known[workload.key] = row if row is not None and row.workload is workload else make_row(workload)
            self._view = snapshot.workloads
        places = positions(snapshot)

        def order(row: WorkloadRow) -> tuple[int, int, int]:
            if row.phase is Phase.PENDING:
                return 0, places.get(row.key, LAST), row.since
            return _RANK[row.phase], -row.since, 0

        others, self._others = self._others, {}
        for key, workload in stand_ins(snapshot).items():
            row = others.get(key)
            self._others[key] = row if row is not None and row.workload is workload else make_row(workload, key)
        rows: Iterable[WorkloadRow] = (*self._known.values(), *self._others.values())
        if namespaces:
            rows = (row for row in rows if row.workload.namespace in namespaces)
        return Listing(
            sorted(rows, key=order), places, borrowed_gpus(snapshot), snapshot.time, sm_by_workload(snapshot)
        )


LAST = 1 << 60
"""After all places: pending, but in no ClusterQueue's queue."""

"""Lists of objects that have no view of their own, opened by `:` above the front screen: pods.

All have the same screen, `ObjectListScreen`; an `ObjectList` has the columns and the function that makes the rows.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from textual.app import ComposeResult

from gpuconsole.insight.index.demand import pod_units
from gpuconsole.insight.index.object_lists import listed_pods, queue_of_pod
from gpuconsole.model.clock import SECOND
from gpuconsole.model.cluster import Pod, PodPhase
from gpuconsole.model.devices import in_one_unit, short_amount
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.ui import format as fmt
from gpuconsole.ui.actions import Handlers
from gpuconsole.ui.names import called
from gpuconsole.ui.paint import Cell
from gpuconsole.ui.screens.background import SnapshotWorker
from gpuconsole.ui.screens.base import ConsoleScreen, Subject
from gpuconsole.ui.screens.objects import ObjectActions, describe_screen
from gpuconsole.ui.screens.workloads import WorkloadDetailScreen
from gpuconsole.ui.table_model import Column
from gpuconsole.ui.widgets.grid import Grid
from gpuconsole.ui.workload_text import pod_phase

T = TypeVar("T")
Newest = Callable[[], Snapshot]
"""Returns the Snapshot that is shown, from which columns read while they are drawn."""


@dataclass(frozen=True)
class ObjectList(Generic[T]):
    """A list of objects: its columns and rows of type T, and the object of each row."""

    name: str
    columns: Callable[[Newest], tuple[Column[T], ...]]
    rows: Callable[[Snapshot, frozenset[str]], Sequence[T]]
    """Makes the rows of a Snapshot, only those of the given namespaces (empty: all)."""
    key: Callable[[T], str]
    about: Callable[[T], Subject]
    """The object that a row shows."""
    empty: str
    """What is shown without rows: why there are none, and what to do."""
    reads: frozenset[str]
    """API resources (plurals) of its rows."""
    labels: Callable[[T], Mapping[str, str]] = lambda row: {}
    fault: Callable[[T], bool] = lambda row: False


class ObjectListScreen(ConsoleScreen):
    """The table of an `ObjectList`; Enter opens the object of the row."""

    def __init__(self, listed: ObjectList[Any]) -> None:
        super().__init__()
        self.groups = (ObjectActions(self),)
        self.reads = listed.reads
        self._listed = listed
        self._rows = SnapshotWorker(self, lambda snapshot: listed.rows(snapshot, self.namespaces), self._show_rows)

    def body(self) -> ComposeResult:
        listed = self._listed
        yield Grid(
            listed.columns(lambda: self.snapshot),
            key=listed.key,
            labels=listed.labels,
            fault=listed.fault,
            empty=listed.empty,
        )

    def crumb(self) -> str:
        return self._listed.name

    def show(self, snapshot: Snapshot) -> None:
        self._rows.ask(snapshot)

    def _show_rows(self, rows: Sequence[Any]) -> None:
        self.query_one(Grid).show(rows)
        self._say_why_empty()

    def subject(self) -> Subject | None:
        row = self.grid.current if self.grid is not None else None
        return self._listed.about(row) if row is not None else None

    def subjects(self) -> list[Subject]:
        return [self._listed.about(row) for row in self.grid.targets] if self.grid is not None else []

    def handlers(self) -> Handlers:
        subject = self.subject()
        if subject is None:
            return super().handlers()
        offered = {**super().handlers(), "object.open": lambda: self.open(describe_screen(*subject))}
        pod = self.snapshot.pods.get(subject.key) if subject.table == "pods" else None
        if pod is not None:
            offered["object.explain"] = lambda: self.open(WorkloadDetailScreen(pod.workload or pod.job or pod.key))
        return offered


def _pod_columns(newest: Newest) -> tuple[Column[Pod], ...]:
    def gpus(pod: Pod) -> int:
        return sum(pod_units(newest(), pod).values())

    def shown_gpus(pod: Pod) -> Cell:
        count, noun = in_one_unit(pod_units(newest(), pod))
        return short_amount(count, noun) if count else ""

    def queue(pod: Pod) -> str:
        return queue_of_pod(newest(), pod)

    return (
        Column("POD", lambda pod: pod.name, id="name", width=18, flex=3, sort=lambda pod: (pod.name, pod.namespace)),
        Column(
            "NAMESPACE", lambda pod: pod.namespace, width=10, flex=1, sort=lambda pod: (pod.namespace, pod.name), rank=2
        ),
        Column("PHASE", pod_phase, id="status", width=13, sort=lambda pod: (pod.phase, bool(pod.deleted))),
        Column("READY", _ready, width=5, sort=_ready, rank=3),
        Column(
            "RESTARTS",
            lambda pod: ((str(pod.restarts), "fault"),) if pod.restarts else "0",
            width=8,
            align="right",
            sort=lambda pod: pod.restarts,
            down=True,
            rank=4,
            number=lambda pod: pod.restarts,
        ),
        Column("NODE", lambda pod: pod.node or fmt.NOTHING, width=12, flex=1, sort=lambda pod: pod.node),
        Column("GPUS", shown_gpus, id="usage", width=5, align="right", sort=gpus, down=True, number=gpus),
        Column(
            "WORKLOAD",
            lambda pod: called(pod.workload or pod.job),
            width=16,
            flex=2,
            sort=lambda pod: pod.workload or pod.job,
            rank=5,
        ),
        Column("QUEUE", queue, width=11, flex=1, sort=queue, rank=3),
        Column(
            "AGE",
            lambda pod: fmt.since(newest().time, pod.created),
            id="age",
            width=6,
            align="right",
            sort=lambda pod: -pod.created,
            down=True,
            number=lambda pod: (newest().time - pod.created) // SECOND,
            unit="seconds",
        ),
        Column("REASON", lambda pod: ((pod.reason, "dim"),), width=14, flex=1, sort=lambda pod: pod.reason, rank=6),
    )


def _ready(pod: Pod) -> str:
    if pod.done:
        return fmt.NOTHING
    return "yes" if pod.phase is PodPhase.RUNNING and not pod.unready else "no"


def _has_problem(pod: Pod) -> bool:
    """Whether a pod failed, runs without being ready, or is pending for a reason that it tells."""
    return pod.phase is PodPhase.FAILED or pod.unready or (pod.phase is PodPhase.PENDING and bool(pod.reason))


PODS = ObjectList[Pod](
    name="pods",
    columns=_pod_columns,
    rows=listed_pods,
    key=lambda pod: pod.key,
    about=lambda pod: Subject("pods", pod.key),
    empty="No pods. Press n to submit a job, 0 for all namespaces.",
    reads=frozenset({"pods"}),
    labels=lambda pod: {**pod.template.labels, **pod.labels},
    fault=_has_problem,
)
LISTS: dict[str, ObjectList[Any]] = {one.name: one for one in (PODS,)}
"""Name, as in the action `list.NAME` → its list."""


def list_screen(name: str) -> ObjectListScreen:
    """Make the screen of the list with this name, a key of `LISTS`."""
    return ObjectListScreen(LISTS[name])

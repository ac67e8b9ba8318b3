"""Lists of objects that have no view of their own, opened by `:` above the front screen, and ownership trees.

All lists have the same screen, `ObjectListScreen`; an `ObjectList` has the columns, and the function that makes the
rows.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from textual.app import ComposeResult

from gpuconsole.insight.index.demand import pod_units
from gpuconsole.insight.index.gpu_map import GpuState
from gpuconsole.insight.index.object_lists import (
    CheckRow,
    FlavorRow,
    UserRow,
    check_rows,
    cohort_rows,
    flavor_rows,
    listed_pods,
    queue_of_pod,
    user_rows,
)
from gpuconsole.insight.index.ownership import USERS, OwnedObject, ownership
from gpuconsole.insight.index.quota_tree import QuotaNode, QuotaUse
from gpuconsole.model.clock import SECOND
from gpuconsole.model.cluster import Pod, PodPhase
from gpuconsole.model.devices import Units, in_one_unit, short_amount
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.services.console import Console
from gpuconsole.ui import format as fmt
from gpuconsole.ui.actions import Handlers
from gpuconsole.ui.names import called
from gpuconsole.ui.paint import GLYPHS, Cell, plain
from gpuconsole.ui.queue_table import DEEPEST
from gpuconsole.ui.screens.background import SnapshotWorker
from gpuconsole.ui.screens.base import ConsoleScreen, Subject
from gpuconsole.ui.screens.objects import ObjectActions, find
from gpuconsole.ui.screens.views import object_screen
from gpuconsole.ui.screens.workload_actions import WorkloadActions
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
    rows: Callable[[Console, Snapshot, frozenset[str]], Sequence[T]]
    """Makes the rows of a Snapshot, only those of the given namespaces (empty: all)."""
    key: Callable[[T], str]
    about: Callable[[T], Subject | None]
    """The object that a row shows; None if it does not exist or is not visible."""
    empty: str
    """What is shown without rows: why there are none, and what to do."""
    reads: frozenset[str]
    """API resources (plurals) of its rows."""
    labels: Callable[[T], Mapping[str, str]] = lambda row: {}
    fault: Callable[[T], bool] = lambda row: False
    tree: Callable[[T], Subject | None] = lambda row: None
    """What Enter opens the ownership tree of, for a row whose object has no page: a table and a key."""


class ObjectListScreen(ConsoleScreen):
    """The table of an `ObjectList`; Enter opens the object of the row."""

    def __init__(self, listed: ObjectList[Any]) -> None:
        super().__init__()
        self.groups = (ObjectActions(self),)
        self.reads = listed.reads
        self._listed = listed
        self._rows = SnapshotWorker(self, self._make_rows, self._show_rows)

    def body(self) -> ComposeResult:
        listed = self._listed
        yield Grid(
            listed.columns(lambda: self.snapshot),
            key=listed.key,
            labels=listed.labels,
            fault=listed.fault,
            object_of=self._object_of,
            empty=listed.empty,
        )

    def _object_of(self, row: Any) -> object:
        subject = self._listed.about(row)
        return find(self.snapshot, *subject) if subject is not None else None

    def table_name(self, grid: Grid[Any]) -> str:
        return self._listed.name

    def crumb(self) -> str:
        return self._listed.name

    def show(self, snapshot: Snapshot) -> None:
        self._rows.ask(snapshot)

    def _make_rows(self, snapshot: Snapshot) -> Sequence[Any]:
        return self._listed.rows(self.console, snapshot, self.namespaces)

    def _show_rows(self, rows: Sequence[Any]) -> None:
        self.query_one(Grid).show(rows)
        self._say_why_empty()

    def subject(self) -> Subject | None:
        row = self.grid.current if self.grid is not None else None
        return self._listed.about(row) if row is not None else None

    def subjects(self) -> list[Subject]:
        found = [self._listed.about(row) for row in self.grid.targets] if self.grid is not None else []
        return [subject for subject in found if subject is not None]

    def handlers(self) -> Handlers:
        subject, row = self.subject(), self.grid.current if self.grid is not None else None
        tree = self._listed.tree(row) if row is not None else None
        if tree is not None:
            return {**super().handlers(), "object.open": lambda: self.open(OwnershipScreen(*tree))}
        if subject is None:
            return super().handlers()
        offered = {**super().handlers(), "object.open": lambda: self.open(object_screen(*subject))}
        pod = self.snapshot.pods.get(subject.key) if subject.table == "pods" else None
        if pod is not None:
            offered["object.explain"] = lambda: self.open(WorkloadDetailScreen(pod.workload or pod.job or pod.key))
        return offered


class TreeRow(NamedTuple):
    """A row of an ownership tree, and its path from the root, by which the cursor finds it again."""

    path: str
    owned: OwnedObject


class OwnershipScreen(ConsoleScreen):
    """The ownership tree of an object, from its queue and its job down to its GPUs; Enter opens the object of a row."""

    def __init__(self, table: str, key: str) -> None:
        super().__init__()
        self.groups = (ObjectActions(self), WorkloadActions(self))
        self._table, self._key = table, key
        self._arrived_once = False
        self._trees = SnapshotWorker(self, self._make_tree, self._show_tree)

    def body(self) -> ComposeResult:
        yield Grid(TREE, key=lambda row: row.path, empty=f"{called(self._key)} no longer exists.")

    def crumb(self) -> str:
        return f"owners {called(self._key) or NO_USER}"

    def show(self, snapshot: Snapshot) -> None:
        self._trees.ask(snapshot)

    def _make_tree(self, snapshot: Snapshot) -> list[TreeRow]:
        rows: list[TreeRow] = []
        path: list[str] = []
        for owned in ownership(snapshot, self._table, self._key, self.console.cost_labels.user):
            path[owned.depth :] = [f"{owned.table} {owned.key} {owned.device}"]
            rows.append(TreeRow(">".join(path), owned))
        return rows

    def _show_tree(self, rows: list[TreeRow]) -> None:
        grid = self.query_one(Grid)
        grid.show(rows)
        if rows and not self._arrived_once:
            self._arrived_once = True
            mine = (row.path for row in rows if (row.owned.table, row.owned.key) == (self._table, self._key))
            grid.move_to_key(next(mine, rows[0].path))

    @property
    def _row(self) -> OwnedObject | None:
        row: TreeRow | None = self.query_one(Grid).current
        return row.owned if row is not None else None

    def subject(self) -> Subject | None:
        row = self._row
        if row is None or row.table == USERS or row.key not in getattr(self.snapshot, row.table):
            return None
        return Subject(row.table, row.key)

    def handlers(self) -> Handlers:
        subject, offered = self.subject(), dict(super().handlers())
        # The tree is already open.
        offered.pop("object.owner", None)
        if subject is not None:
            offered["object.open"] = lambda: self.open(object_screen(*subject))
        return offered


def _tree_name(row: TreeRow) -> Cell:
    owned = row.owned
    role = "own" if owned.device else "strong" if owned.table == "workloads" else ""
    return (("  " * min(owned.depth, DEEPEST), ""), (owned.name or called(owned.key), role))


def _tree_state(row: TreeRow) -> Cell:
    state = row.owned.state
    if not row.owned.device:
        return state
    return (("in use" if state == GpuState.OWN else state, state),)


TREE: tuple[Column[TreeRow], ...] = (
    Column("OBJECT", _tree_name, id="name", width=30, flex=3),
    Column("KIND", lambda row: ((row.owned.kind, "dim"),), width=12, flex=1),
    Column("STATE", _tree_state, id="status", width=11),
    Column("GPUS", lambda row: _units(row.owned.units), id="usage", width=7, align="right"),
    Column("NODE", lambda row: row.owned.node, width=12, flex=1, rank=1),
)


def pod_columns(newest: Newest) -> tuple[Column[Pod], ...]:
    """Return the columns of a table of pods; GPUs, queues and ages are read from the `newest` Snapshot."""

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
    columns=pod_columns,
    rows=lambda console, snapshot, namespaces: listed_pods(snapshot, namespaces),
    key=lambda pod: pod.key,
    about=lambda pod: Subject("pods", pod.key),
    empty="No pods. Press n to submit a job, 0 for all namespaces.",
    reads=frozenset({"pods"}),
    labels=lambda pod: {**pod.template.labels, **pod.labels},
    fault=_has_problem,
)


def _amount(value: int, role: str = "") -> Cell:
    """An amount; a dim dash for none."""
    return ((f"{value:,}" if value else fmt.NOTHING, role if value else "dim"),)


def _count(title: str, count: Callable[[T], int], role: str = "", rank: int = 0) -> Column[T]:
    """A column of counts, the largest first when it is sorted."""
    width = max(7, len(title))
    return Column(
        title,
        lambda row: _amount(count(row), role),
        width=width,
        align="right",
        sort=count,
        down=True,
        rank=rank,
    )


def _units(amounts: Units) -> Cell:
    count, noun = in_one_unit(amounts)
    return short_amount(count, noun) if count else _amount(0)


def _quota_columns(use: Callable[[T], QuotaUse]) -> Iterator[Column[T]]:
    """The columns of used, borrowed and free quota."""
    for title, id_, role in (("USED", "usage", ""), ("BORROWED", "borrowed", "borrowed"), ("FREE", "available", "")):
        field_name = {"usage": "used"}.get(id_, id_)

        def count(row: T, name: str = field_name) -> int:
            amount: int = getattr(use(row), name)
            return amount

        def cell(row: T, role: str = role, count: Callable[[T], int] = count) -> Cell:
            return _amount(count(row), role)

        yield Column(title, cell, id=id_, width=max(5, len(title)), align="right", sort=count, down=True, number=count)


FLAVORS = ObjectList[FlavorRow](
    name="flavors",
    columns=lambda newest: (
        Column("FLAVOR", _flavor_name, id="name", width=16, flex=2, sort=lambda row: row.name),
        Column(
            "NOMINAL",
            lambda row: _units(row.units),
            width=7,
            align="right",
            sort=lambda row: row.quota.nominal,
            down=True,
            name="nominal",
            number=lambda row: row.quota.nominal,
        ),
        *_quota_columns(lambda row: row.quota),
        Column("NODES", lambda row: _amount(len(row.nodes)), width=5, align="right", sort=lambda row: len(row.nodes)),
        Column("QUEUES", lambda row: ", ".join(row.queues), width=10, flex=2, sort=lambda row: row.queues, rank=2),
        _count("WORKLOADS", lambda row: len(row.workloads)),
        Column("ON NODES", lambda row: _units(row.devices), width=8, align="right", rank=3),
    ),
    rows=lambda console, snapshot, namespaces: flavor_rows(snapshot),
    key=lambda row: row.name,
    about=lambda row: Subject("flavors", row.name) if row.flavor is not None else None,
    empty="No ResourceFlavors in this cluster.",
    reads=frozenset({"resourceflavors", "clusterqueues"}),
    fault=lambda row: row.flavor is None or not row.nodes,
    tree=lambda row: Subject("flavors", row.name) if row.flavor is not None else None,
)


def _flavor_name(row: FlavorRow) -> Cell:
    return ((row.name, ""),) if row.flavor is not None else ((f"{GLYPHS['fault']} {row.name}", "fault"),)


COHORTS = ObjectList[QuotaNode](
    name="cohorts",
    columns=lambda newest: (
        Column("COHORT", _cohort_name, id="name", width=18, flex=2, sort=lambda row: row.name),
        Column("PARENT", lambda row: _parent(newest(), row), width=12, flex=1, rank=2),
        Column(
            "NOMINAL",
            lambda row: short_amount(row.gpus.nominal, row.unit),
            width=7,
            align="right",
            sort=lambda row: row.gpus.nominal,
            down=True,
            name="nominal",
            number=lambda row: row.gpus.nominal,
        ),
        *_quota_columns(lambda row: row.gpus),
        Column("MEMBERS", lambda row: _amount(len(row.children)), width=7, align="right", rank=3),
        _count("PENDING", lambda row: row.pending, "pending"),
        _count("RUNNING", lambda row: row.running, "running", rank=1),
    ),
    rows=lambda console, snapshot, namespaces: cohort_rows(snapshot),
    key=lambda row: row.name,
    about=lambda row: Subject("cohorts", row.name) if row.declared else None,
    empty="No Cohorts in this cluster, and no ClusterQueue names one.",
    reads=frozenset({"cohorts", "clusterqueues"}),
    fault=lambda row: bool(row.problem),
    tree=lambda row: None if row.declared else Subject("cohorts", row.name),
)


def _cohort_name(row: QuotaNode) -> Cell:
    mark = ((f" {GLYPHS['fault']} {row.problem}", "fault"),) if row.problem else ()
    return ((row.name, ""), *mark, *(() if row.declared else ((" (implicit)", "dim"),)))


def _parent(snapshot: Snapshot, row: QuotaNode) -> str:
    cohort = snapshot.cohorts.get(row.name)
    return cohort.parent if cohort is not None else ""


_CHECK_ROLES = {"Pending": "pending", "Ready": "good", "Retry": "held", "Rejected": "fault"}
"""State of an admission check → its role."""
CHECKS = ObjectList[CheckRow](
    name="checks",
    columns=lambda newest: (
        Column("CHECK", lambda row: row.name, id="name", width=14, flex=1, sort=lambda row: row.name),
        Column("STATE", _check_state, id="status", width=10, sort=lambda row: plain(_check_state(row))),
        Column(
            "WORKLOAD",
            lambda row: called(row.workload) or fmt.NOTHING,
            width=18,
            flex=2,
            sort=lambda row: row.workload,
        ),
        Column(
            "SINCE",
            lambda row: fmt.since(newest().time, row.since),
            id="age",
            width=6,
            align="right",
            sort=lambda row: row.since,
            number=lambda row: (newest().time - row.since) // SECOND if row.since else None,
            unit="seconds",
        ),
        Column("CONTROLLER", _controller, width=18, flex=2, sort=_controller, rank=2),
        Column(
            "MESSAGE",
            lambda row: row.state.message if row.state is not None else "no workload has this check",
            width=12,
            flex=3,
        ),
    ),
    rows=lambda console, snapshot, namespaces: check_rows(snapshot, namespaces),
    key=lambda row: f"{row.name} {row.workload}",
    about=lambda row: (
        Subject("workloads", row.workload)
        if row.workload
        else Subject("admission_checks", row.name)
        if row.check is not None
        else None
    ),
    empty="No AdmissionChecks in this cluster.",
    reads=frozenset({"admissionchecks", "workloads"}),
    fault=lambda row: row.check is None or not row.check.active or _state_of(row) in ("Retry", "Rejected"),
)


def _state_of(row: CheckRow) -> str:
    return row.state.state if row.state is not None else ""


def _check_state(row: CheckRow) -> Cell:
    state = _state_of(row)
    if not state:
        return ((fmt.NOTHING, "dim"),)
    role = _CHECK_ROLES.get(state, "unknown")
    return ((f"{GLYPHS[role]} {state}", role),)


def _controller(row: CheckRow) -> str:
    if row.check is None:
        return "check not found"
    return row.check.controller if row.check.active else f"{row.check.controller} (inactive)"


NO_USER = "(no user)"
USER_LIST = ObjectList[UserRow](
    name="users",
    columns=lambda newest: (
        Column("USER", lambda row: row.name or ((NO_USER, "dim"),), id="name", width=16, flex=2, sort=_by_name),
        Column(
            "GPUS",
            lambda row: _units(row.used),
            id="usage",
            width=7,
            align="right",
            sort=lambda row: sum(row.used.values()),
            down=True,
            number=lambda row: sum(row.used.values()),
        ),
        _count("RUNNING", lambda row: row.running, "running"),
        _count("PENDING", lambda row: row.pending, "pending"),
        Column(
            "PENDING GPUS",
            lambda row: _units(row.wanted),
            width=12,
            align="right",
            sort=lambda row: sum(row.wanted.values()),
            down=True,
            number=lambda row: sum(row.wanted.values()),
        ),
        Column(
            "$/H",
            lambda row: fmt.money(row.hourly) if row.hourly else fmt.NOTHING,
            id="cost",
            width=9,
            align="right",
            sort=lambda row: row.hourly,
            down=True,
            name="cost_usd_per_hour",
            number=lambda row: row.hourly,
        ),
    ),
    rows=lambda console, snapshot, namespaces: user_rows(
        snapshot, console.cost_labels.user, console.prices, namespaces
    ),
    key=lambda row: row.name,
    about=lambda row: None,
    empty="No workloads, so no users. The setting cost.user_label names the label with the user.",
    reads=frozenset({"workloads"}),
    tree=lambda row: Subject(USERS, row.name),
)


def _by_name(row: UserRow) -> str:
    return row.name


LISTS: dict[str, ObjectList[Any]] = {one.name: one for one in (PODS, FLAVORS, COHORTS, CHECKS, USER_LIST)}
"""Name, as in the action `list.NAME` → its list."""


def list_screen(name: str) -> ObjectListScreen:
    """Make the screen of the list with this name, a key of `LISTS`."""
    return ObjectListScreen(LISTS[name])

"""Snapshot: the immutable state of a cluster at one moment, from which all screens and answers are computed.

A table is a `TableView`: rows by integer id with an index by key. Views share their rows with earlier and later views
of the same table, so freezing is cheap, and comparing identities finds the changes between two Snapshots
(`change_events`).

`Snapshot.seen` (`Visibility`) says which kinds are covered. A kind that may not be listed is unknown, not zero; so is
one of which only some namespaces, or not all objects, can be read. Code that counts objects, or does not find one,
checks it first.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import compress
from operator import is_not
from typing import Any, Generic, TypeVar

import msgspec
from msgspec import Struct

from gpuconsole.model.autoscaling import (
    NodeGroup,
    NodePool,
    ProvisioningRequest,
    ProvisioningRequestConfig,
    StoredTemplate,
)
from gpuconsole.model.clock import SECOND, Time, format_time
from gpuconsole.model.cluster import (
    CompositePodGroup,
    CSINode,
    LimitRange,
    Namespace,
    Node,
    PersistentVolume,
    PersistentVolumeClaim,
    Pod,
    PodDisruptionBudget,
    PriorityClass,
    ResourceQuota,
    RuntimeClass,
    SchedulingWorkload,
    StorageClass,
)
from gpuconsole.model.devices import DeviceClass, ResourceClaim, ResourceClaimTemplate, ResourceSlice
from gpuconsole.model.events import Applied, Deleted, HistoryEvent
from gpuconsole.model.job import Job
from gpuconsole.model.kai import KaiPodGroup, KaiQueue, SchedulingShard
from gpuconsole.model.objects import TABLES, Object
from gpuconsole.model.queues import (
    AdmissionCheck,
    ClusterQueue,
    Cohort,
    LocalQueue,
    MultiKueueCluster,
    MultiKueueConfig,
    ResourceFlavor,
    Topology,
    WorkloadPriorityClass,
)
from gpuconsole.model.telemetry import NodeTelemetry
from gpuconsole.model.volcano import HyperNode, Numatopology, PodGroup, VolcanoQueue
from gpuconsole.model.workloads import Workload

HISTORY = "recent"
"""Name of the table of history events."""
KEPT = 500
"""Number of the newest history events that a Snapshot keeps."""
_TABLES: dict[type, str] = {**TABLES, HistoryEvent: HISTORY}
ALWAYS: tuple[type, ...] = (Workload, ClusterQueue, LocalQueue, ResourceFlavor)
"""Kinds on which every decision of Kueue depends."""
DECISIVE: tuple[type, ...] = (*ALWAYS, Cohort, AdmissionCheck, Topology, Node, Pod, Namespace, LimitRange)
"""Kinds on which decisions depend in some clusters; `insight.data_gaps` determines in which."""
_DECISIVE = frozenset(_TABLES[kind] for kind in DECISIVE)


class VisibilityGap(Struct, frozen=True, kw_only=True):
    """Kind of which the Snapshot lacks objects, and the reason."""

    table: str
    """Table of the Snapshot; `recent` for the history."""
    resource: str
    """API resource, such as `workloads.kueue.x-k8s.io`."""
    why: str
    """Reason, such as `cannot list workloads.kueue.x-k8s.io at the cluster scope`."""
    namespaces: tuple[str, ...] = ()
    """Namespaces whose objects are loaded."""
    partly: bool = False
    """Some objects are loaded, and others, in unknown namespaces, cannot be read."""


class Visibility(Struct, frozen=True, kw_only=True):
    """Missing kinds of a Snapshot, and assumptions about the schedulers; both empty for a simulated cluster."""

    gaps: tuple[VisibilityGap, ...] = ()
    assumed: tuple[str, ...] = ()
    """Assumptions about settings that the schedulers' configurations do not have, as sentences."""

    def missing_reasons(self, *kinds: type, within: str | None = None) -> tuple[str, ...]:
        """Return why objects of these kinds (in a namespace) are missing; empty if all are loaded."""
        tables = {_TABLES[kind] for kind in kinds}
        return _texts(gap for gap in self.gaps if gap.table in tables and (within is None or not _covers(gap, within)))

    def all_of(self, *kinds: type, within: str | None = None) -> bool:
        """True if all objects of these kinds (in a namespace) are loaded."""
        return not self.missing_reasons(*kinds, within=within)

    def is_unlisted(self, kind: type) -> bool:
        """True if a kind may not be listed, so that none of its objects is loaded."""
        return any(gap.table == _TABLES[kind] and not (gap.namespaces or gap.partly) for gap in self.gaps)

    @property
    def warnings(self) -> tuple[str, ...]:
        """Sentences about unknown facts that decisions depend on."""
        return (*self.assumed, *self.decisive_gaps)

    @property
    def decisive_gaps(self) -> tuple[str, ...]:
        """Return why kinds that decisions depend on are incomplete."""
        return _texts(gap for gap in self.gaps if gap.table in _DECISIVE)


class QueueAssumptions(Struct, frozen=True):
    """Numbers of pending workloads that are assumed to be inadmissible, or to be tried again.

    Kueue keeps this in memory only, so a simulation that continues from a live cluster must reconstruct it.
    """

    inadmissible: int = 0
    """Workloads in whose cohort tree nothing has changed since they were refused."""
    tried_again: int = 0
    """Workloads in whose cohort tree something has changed; it is unknown whether Kueue has retried them since."""


EVERYTHING = Visibility()
NO_ASSUMPTIONS = QueueAssumptions()
KUEUES = "Kueue's "
"""First word of the sentences in `Visibility.assumed` that concern Kueue."""


def with_truncated_history(seen: Visibility, recent: Sequence[HistoryEvent]) -> Visibility:
    """Add the gap that history before the oldest of the `recent` events is unknown, if older ones were dropped."""
    if len(recent) < KEPT or not seen.all_of(HistoryEvent):
        return seen
    why = f"nothing older than {format_time(recent[0].time // SECOND * SECOND)} is kept"
    return Visibility(gaps=(*seen.gaps, VisibilityGap(table=HISTORY, resource="events", why=why)), assumed=seen.assumed)


def only_namespaces_text(namespaces: Sequence[str]) -> str:
    """Return the reason for a gap where only these namespaces are read."""
    several = len(namespaces) > 1
    return f"only namespace{'s' if several else ''} {', '.join(namespaces)} {'are' if several else 'is'} read"


def _covers(gap: VisibilityGap, namespace: str) -> bool:
    return namespace in gap.namespaces


def _texts(gaps: Iterable[VisibilityGap]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(gap.why for gap in gaps))


T = TypeVar("T")

AT_ONCE = 500
"""Number of objects that are encoded (in some milliseconds) before other threads get a turn."""
NO_POLICY = msgspec.Raw(b"null")
FORMAT = 1
"""Version number of the format of Snapshot files; a new field with a default does not change it."""


class TableView(Mapping[str, T], Generic[T]):
    """Frozen table: maps keys to rows, in the order of addition. `rows` has None where a row was removed."""

    __slots__ = ("_index", "rows", "size")

    def __init__(self, rows: list[T | None], index: dict[str, int], size: int) -> None:
        self.rows = rows
        self._index = index
        self.size = size

    def __getitem__(self, key: str) -> T:
        # The index is shared with the live table and may contain rows that were added after this view.
        position = self._index[key]
        row = self.rows[position] if position < len(self.rows) else None
        if row is None:
            raise KeyError(key)
        return row

    def __iter__(self) -> Iterator[str]:
        return (row.key for row in self.rows if row is not None)  # type: ignore[attr-defined]

    def __len__(self) -> int:
        return self.size

    def __contains__(self, key: object) -> bool:
        position = self._index.get(key)  # type: ignore[call-overload]
        return position is not None and position < len(self.rows) and self.rows[position] is not None

    def index(self) -> dict[str, int]:
        """Map from key to position in `rows`, without newer rows; do not change it."""
        # Keys that are newer than the view were added at the end of the index.
        if next(reversed(self._index.values()), -1) < len(self.rows):
            return self._index
        return {key: position for key, position in self._index.items() if position < len(self.rows)}

    def all(self) -> Iterator[T]:
        """Yield the rows; faster than iterating over the keys."""
        return (row for row in self.rows if row is not None)


NO_ROWS: TableView[Any] = TableView([], {}, 0)
"""Table of a kind without loaded objects."""


class DerivedData:
    """Cache of what is computed from the Snapshots of one cluster: the last result of each computation.

    The cluster's state owns it and gives it to each of its Snapshots; a fork of the cluster begins with a copy. Results
    are immutable, and refer to tables and rows but not to a Snapshot, so that no Snapshot outlives its readers. Threads
    may read and write it: at worst they compute a result twice. `insight.derived` has the two ways to use it.
    """

    __slots__ = ("_results",)

    def __init__(self) -> None:
        self._results: dict[object, Any] = {}

    def get(self, computation: object) -> Any:
        """Return the last result of a computation, or None."""
        return self._results.get(computation)

    def put(self, computation: object, result: object) -> None:
        """Replace the last result of a computation."""
        self._results[computation] = result

    def fork(self) -> "DerivedData":
        """Return an independent copy, which has the same results."""
        twin = DerivedData()
        twin._results = self._results.copy()
        return twin


class Snapshot:
    """A cluster at one moment. Compared by identity."""

    __slots__ = (*sorted(TABLES.values()), "__weakref__", "derived", "recent", "seen", "serial", "time")

    namespaces: TableView[Namespace]
    limit_ranges: TableView[LimitRange]
    pod_disruption_budgets: TableView[PodDisruptionBudget]
    runtime_classes: TableView[RuntimeClass]
    priority_classes: TableView[PriorityClass]
    workload_priority_classes: TableView[WorkloadPriorityClass]
    topologies: TableView[Topology]
    nodes: TableView[Node]
    storage_classes: TableView[StorageClass]
    csi_nodes: TableView[CSINode]
    persistent_volumes: TableView[PersistentVolume]
    persistent_volume_claims: TableView[PersistentVolumeClaim]
    device_classes: TableView[DeviceClass]
    resource_slices: TableView[ResourceSlice]
    resource_claim_templates: TableView[ResourceClaimTemplate]
    resource_claims: TableView[ResourceClaim]
    flavors: TableView[ResourceFlavor]
    provisioning_request_configs: TableView[ProvisioningRequestConfig]
    multikueue_clusters: TableView[MultiKueueCluster]
    multikueue_configs: TableView[MultiKueueConfig]
    admission_checks: TableView[AdmissionCheck]
    cohorts: TableView[Cohort]
    cluster_queues: TableView[ClusterQueue]
    local_queues: TableView[LocalQueue]
    volcano_queues: TableView[VolcanoQueue]
    scheduling_shards: TableView[SchedulingShard]
    kai_queues: TableView[KaiQueue]
    kai_pod_groups: TableView[KaiPodGroup]
    pod_groups: TableView[PodGroup]
    scheduling_workloads: TableView[SchedulingWorkload]
    composite_pod_groups: TableView[CompositePodGroup]
    node_pools: TableView[NodePool]
    node_groups: TableView[NodeGroup]
    hyper_nodes: TableView[HyperNode]
    numatopologies: TableView[Numatopology]
    resource_quotas: TableView[ResourceQuota]
    jobs: TableView[Job]
    workloads: TableView[Workload]
    pod_templates: TableView[StoredTemplate]
    provisioning_requests: TableView[ProvisioningRequest]
    pods: TableView[Pod]
    telemetry: TableView[NodeTelemetry]

    def __init__(
        self,
        time: Time,
        serial: int,
        tables: Mapping[str, "TableView[object]"],
        recent: tuple[HistoryEvent, ...],
        seen: Visibility = EVERYTHING,
        derived: DerivedData | None = None,
    ) -> None:
        self.time = time
        self.serial = serial
        """Incremented with every freeze of the same state."""
        self.recent = recent
        """The newest history events, oldest first; the store has all of them."""
        self.seen = seen
        """Which kinds are loaded; other objects may exist without being here."""
        self.derived = derived if derived is not None else DerivedData()
        """Results that were computed from this and other Snapshots of the same cluster."""
        for name in TABLES.values():
            setattr(self, name, tables.get(name, NO_ROWS))

    def __repr__(self) -> str:
        return f"Snapshot(time={self.time}, serial={self.serial}, workloads={len(self.workloads)})"

    def objects(self) -> Iterator[Object]:
        """Yield every object, in an order in which a cluster can be rebuilt from them."""
        for name in TABLES.values():
            yield from getattr(self, name).all()


EMPTY = Snapshot(0, 0, {}, ())


class _Numbered(Struct, frozen=True):
    """First part of a SnapshotFile, which has its format number."""

    format: int = 1


class SnapshotFile(Struct, frozen=True, kw_only=True):
    """A Snapshot as a file, for bug reports and tests."""

    format: int = FORMAT
    time: Time
    objects: tuple[Object, ...] = ()
    recent: tuple[HistoryEvent, ...] = ()
    policy: msgspec.Raw = NO_POLICY
    """Settings of the simulation from which it was taken (`sim.engine.policy_of_snapshot` decodes them), or that would
    continue it.
    """
    seed: int | None = None
    """Random seed of that simulation."""
    seen: Visibility = EVERYTHING
    """Which kinds are loaded; a file without it has everything."""
    staged: bool = False
    """True if its time is simulated; its age is unknown then."""


class _Written(Struct, frozen=True, kw_only=True):
    """A SnapshotFile while it is encoded."""

    format: int = FORMAT
    time: Time
    objects: msgspec.Raw
    recent: tuple[HistoryEvent, ...]
    policy: msgspec.Raw
    seed: int | None
    seen: Visibility
    staged: bool


def encode(
    snapshot: Snapshot,
    policy: msgspec.Raw = NO_POLICY,
    seed: int | None = None,
    recent: tuple[HistoryEvent, ...] | None = None,
    *,
    staged: bool = False,
) -> bytes:
    """Encode a Snapshot as JSON, with the policy and random seed of its simulation.

    `recent` is its history, if more of it is known than the Snapshot has; `staged` tells that its time is simulated.
    """
    seen = snapshot.seen if recent is not None else with_truncated_history(snapshot.seen, snapshot.recent)
    objects = list(snapshot.objects())
    # In parts, because no other thread runs while msgspec encodes.
    parts = (msgspec.json.encode(objects[first : first + AT_ONCE])[1:-1] for first in range(0, len(objects), AT_ONCE))
    written = msgspec.Raw(b"[" + b",".join(parts) + b"]")
    return msgspec.json.encode(
        _Written(
            time=snapshot.time,
            objects=written,
            recent=snapshot.recent if recent is None else recent,
            policy=policy,
            seed=seed,
            seen=seen,
            staged=staged,
        )
    )


def decode(data: bytes) -> SnapshotFile:
    """Decode what `encode` wrote. Raises msgspec.ValidationError with the path of the error."""
    number = msgspec.json.decode(data, type=_Numbered).format
    if number != FORMAT:
        raise msgspec.ValidationError(f"format {number} is not known; this version reads format {FORMAT}")
    return msgspec.json.decode(data, type=SnapshotFile)


Row = TypeVar("Row")


def row_changes(old: Sequence[Row | None], new: Sequence[Row | None]) -> tuple[list[Row], list[Row]]:
    """Return removed rows and added rows; a changed row is in both, and a moved one may be.

    The rows of tables are shared between Snapshots, so comparing identities is sufficient and fast.
    """
    shorter = min(len(old), len(new))
    differ = different(old, new)
    gone = [row for row in (*(old[at] for at in differ), *old[shorter:]) if row is not None]
    come = [row for row in (*(new[at] for at in differ), *new[shorter:]) if row is not None]
    return gone, come


def different(old: Sequence[Row | None], new: Sequence[Row | None]) -> list[int]:
    """Return the positions at which the rows of both lists differ; a longer list's other rows are ignored."""
    return list(compress(range(min(len(old), len(new))), map(is_not, old, new)))


def change_events(before: Snapshot, after: Snapshot, *, without: str = "") -> list[Applied | Deleted]:
    """Return the events that turn one Snapshot's objects into another's; faster the more they share.

    The table `without` is left out.
    """
    events: list[Applied | Deleted] = []
    for name in TABLES.values():
        old, new = getattr(before, name), getattr(after, name)
        if old is new or name == without:
            continue
        gone, come = row_changes(old.rows, new.rows)
        known, there = {row.key: row for row in gone}, {row.key for row in come}
        events += [Deleted(after.time, name, key) for key in known if key not in there]
        events += [Applied(after.time, row) for row in come if known.get(row.key) is not row]
    return events

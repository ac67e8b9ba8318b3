"""Rows of the lists of objects: pods, flavors, cohorts, admission checks of workloads, and users."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

from msgspec import Struct

from gpuconsole.insight.cost.rates import hourly
from gpuconsole.insight.derived import incremental, memoized
from gpuconsole.insight.index.demand import held, quota_accelerators, quota_unit, units_of, wanted_units
from gpuconsole.insight.index.fragmentation import node_flavors
from gpuconsole.insight.index.gpu_map import gpu_map
from gpuconsole.insight.index.gpu_time import queue_among
from gpuconsole.insight.index.queues import READY
from gpuconsole.insight.index.quota_tree import NodeKind, QuotaNode, QuotaUse, every, quota_tree, sum_up
from gpuconsole.insight.index.unqueued_work import unqueued_work
from gpuconsole.model.clock import Time
from gpuconsole.model.cluster import Pod
from gpuconsole.model.devices import NO_UNITS, Units, added
from gpuconsole.model.prices import Prices
from gpuconsole.model.queues import AdmissionCheck, ResourceFlavor
from gpuconsole.model.snapshot import Snapshot, row_changes
from gpuconsole.model.workloads import CheckState, Workload
from gpuconsole.scheduling.queue_names import group_key, own_queue


def listed_pods(snapshot: Snapshot, namespaces: Collection[str] = ()) -> list[Pod]:
    """Return the pods of these namespaces (empty: all) by namespace and name, those that have ended last."""
    pods = [pod for pod in snapshot.pods.all() if not namespaces or pod.namespace in namespaces]
    return sorted(pods, key=lambda pod: (pod.done, pod.namespace, pod.name))


def queue_of_pod(snapshot: Snapshot, pod: Pod) -> str:
    """Return the queue of a pod: Kueue's ClusterQueue, else Volcano's or KAI's queue; may be empty."""
    workload = snapshot.workloads.get(pod.workload) if pod.workload else None
    groups = snapshot.kai_pod_groups.get, snapshot.pod_groups.get
    return queue_among(workload, group_key(pod), own_queue(pod), *groups, snapshot.volcano_queues.get)


class FlavorRow(Struct, frozen=True, kw_only=True):
    """A ResourceFlavor, its nodes, and its quota of accelerators, added up over all ClusterQueues and Cohorts."""

    name: str
    flavor: ResourceFlavor | None
    """None if quotas name it, but it does not exist or is not visible."""
    nodes: tuple[str, ...]
    """Nodes with its labels."""
    devices: Units
    """Accelerators of these nodes."""
    quota: QuotaUse
    """Nominal and used quota of its accelerators; `available` is the nominal quota that nobody uses."""
    units: Units
    """Nominal quota by unit."""
    queues: tuple[str, ...]
    """ClusterQueues with quota of it, by name."""
    workloads: tuple[str, ...]
    """Keys of the workloads that hold quota of it, by name."""


@memoized(
    *("workloads", "pods", "local_queues", "cluster_queues", "cohorts", "flavors", "admission_checks", "topologies"),
    *("seen", "nodes", "device_classes", "resource_claim_templates", "resource_claims", "telemetry"),
)
def flavor_rows(snapshot: Snapshot) -> tuple[FlavorRow, ...]:
    """Return all flavors by name: those that exist, and those that only quotas name."""
    counted = quota_accelerators(snapshot)
    uses: dict[str, list[tuple[str, QuotaUse]]] = {flavor.name: [] for flavor in snapshot.flavors.all()}
    for node, _ in every(quota_tree(snapshot)):
        if node.kind is NodeKind.CLUSTER_QUEUE:
            for use in node.flavors:
                uses.setdefault(use.flavor, []).append((node.name, use))
    for cohort in snapshot.cohorts.all():
        for (flavor, resource), quota in cohort.quotas().items():
            own = QuotaUse(flavor=flavor, resource=resource, nominal=quota.nominal)
            uses.setdefault(flavor, []).append(("", own))
    nodes: dict[str, list[str]] = {}
    for name, flavors in node_flavors(snapshot).items():
        for flavor in flavors:
            nodes.setdefault(flavor, []).append(name)
    holders: dict[str, list[str]] = {}
    for workload in snapshot.workloads.all():
        if workload.reserved:
            for flavor in {flavor for (flavor, _), _ in held(workload)}:
                holders.setdefault(flavor, []).append(workload.key)
    map_rows = gpu_map(snapshot).by_node
    found = []
    for name in sorted(uses):
        accelerators = [use for _, use in uses[name] if use.resource in counted]
        total = sum_up(accelerators)
        found.append(
            FlavorRow(
                name=name,
                flavor=snapshot.flavors.get(name),
                nodes=tuple(sorted(nodes.get(name, ()))),
                devices=added(*(map_rows[node].units for node in nodes.get(name, ()) if node in map_rows)),
                quota=QuotaUse(
                    flavor=name,
                    nominal=total.nominal,
                    used=total.used,
                    borrowed=total.borrowed,
                    lent=total.lent,
                    available=max(0, total.nominal - total.used),
                ),
                units=added(*({quota_unit(snapshot, use.resource): use.nominal} for use in accelerators)),
                queues=tuple(sorted({queue for queue, _ in uses[name] if queue})),
                workloads=tuple(sorted(holders.get(name, ()))),
            )
        )
    return tuple(found)


def cohort_rows(snapshot: Snapshot) -> list[QuotaNode]:
    """Return all cohorts as nodes of the quota tree, each before its child cohorts."""
    return [node for node, _ in every(quota_tree(snapshot)) if node.kind is NodeKind.COHORT]


class CheckRow(Struct, frozen=True, kw_only=True):
    """The state of an admission check of one workload; or a check that no workload has."""

    name: str
    check: AdmissionCheck | None
    """None if it does not exist or is not visible."""
    workload: str = ""
    """Key of the workload; empty if no workload has the check."""
    state: CheckState | None = None

    @property
    def since(self) -> Time:
        """When the state was reached; 0 if that is unknown."""
        return self.state.since or 0 if self.state is not None else 0


def check_rows(snapshot: Snapshot, namespaces: Collection[str] = ()) -> list[CheckRow]:
    """Return the checks of all workloads that have not finished: open ones first, the longest wait first."""
    rows: list[CheckRow] = []
    for workload in snapshot.workloads.all():
        if workload.checks and not workload.finished and (not namespaces or workload.namespace in namespaces):
            for state in workload.checks:
                check = snapshot.admission_checks.get(state.name)
                rows.append(CheckRow(name=state.name, check=check, workload=workload.key, state=state))
    rows.sort(key=lambda row: (row.state is not None and row.state.state == READY, row.since, row.name, row.workload))
    used = {row.name for row in rows}
    unused = sorted(check.name for check in snapshot.admission_checks.all() if check.name not in used)
    return [*rows, *(CheckRow(name=name, check=snapshot.admission_checks.get(name)) for name in unused)]


class UserRow(Struct, frozen=True, kw_only=True):
    """A user, and what the user's workloads hold, wait for and cost."""

    name: str
    """Empty for workloads without a user."""
    running: int
    """Workloads that hold quota, and unqueued ones whose pods run."""
    pending: int
    used: Units = NO_UNITS
    wanted: Units = NO_UNITS
    """What the pending workloads request."""
    hourly: float = 0.0
    """Cost rate in USD per hour."""


def user_of(snapshot: Snapshot, workload: Workload, label: str) -> str:
    """Return who submitted a workload: the value of the label of the Workload, its job or its pods; may be empty.

    Without that label, the annotation of the same name of the Workload or its job counts.
    """
    job = snapshot.jobs.get(workload.owner) if workload.owner else None
    owners = [one for one in (workload, job) if one is not None]
    templates = (pod_set.template.labels for pod_set in workload.pod_sets)
    places = chain((one.labels for one in owners), templates, (one.annotations for one in owners))
    return next((place[label] for place in places if place.get(label)), "")


class WorkloadsByOwner(NamedTuple):
    """The workloads by the jobs that own them, and the rows of the table from which they come."""

    rows: Sequence[Workload | None] = ()
    keys: Mapping[str, str] = {}
    owned: Mapping[str, frozenset[str]] = {}
    """All workloads of each job: an elastic job has an old and a new one for a while."""


@incremental(WorkloadsByOwner())
def _by_owner(snapshot: Snapshot, before: WorkloadsByOwner) -> WorkloadsByOwner:
    rows = snapshot.workloads.rows
    if rows is before.rows:
        return before
    gone, come = row_changes(before.rows, rows)
    keys, owned = dict(before.keys), dict(before.owned)
    for workload in gone:
        owned[workload.owner] = owned.get(workload.owner, frozenset()) - {workload.key}
    for workload in come:
        owned[workload.owner] = owned.get(workload.owner, frozenset()) | {workload.key}
    for owner in {workload.owner for workload in (*gone, *come)}:
        if owner and owned[owner]:
            keys[owner] = max(owned[owner], key=lambda key: _newest_first(snapshot.workloads[key]))
        else:
            del owned[owner]
            keys.pop(owner, None)
    return WorkloadsByOwner(rows, keys, owned)


def _newest_first(workload: Workload) -> tuple[bool, Time, str]:
    """Rank of a workload among those of its job."""
    return not workload.finished, workload.created, workload.key


def workloads_by_owner(snapshot: Snapshot) -> Mapping[str, str]:
    """Map the key of each job that owns a Workload to the key of its newest one that has not finished."""
    return _by_owner(snapshot).keys


def all_workloads(snapshot: Snapshot) -> Iterator[tuple[str, Workload]]:
    """Yield the key and Workload of each workload, also of jobs and pods without a Workload object."""
    for workload in snapshot.workloads.all():
        yield workload.key, workload
    yield from unqueued_work(snapshot).items()


def user_rows(snapshot: Snapshot, label: str, prices: Prices, namespaces: Collection[str] = ()) -> list[UserRow]:
    """Return all users with workloads that have not ended, those with most GPUs first."""
    found: dict[str, list[Workload]] = {}
    for _, workload in all_workloads(snapshot):
        if not workload.finished and workload.active and (not namespaces or workload.namespace in namespaces):
            found.setdefault(user_of(snapshot, workload, label), []).append(workload)
    rows = [_user_row(snapshot, name, workloads, prices) for name, workloads in found.items()]
    return sorted(rows, key=lambda row: (-sum(row.used.values()), -sum(row.wanted.values()), row.name))


def _user_row(snapshot: Snapshot, name: str, workloads: Sequence[Workload], prices: Prices) -> UserRow:
    holding = [workload for workload in workloads if workload.reserved]
    pending = [workload for workload in workloads if not workload.reserved]
    return UserRow(
        name=name,
        running=len(holding),
        pending=len(pending),
        used=added(*(units_of(snapshot, workload) for workload in holding)),
        wanted=added(*(wanted_units(snapshot, workload) for workload in pending)),
        hourly=sum(hourly(snapshot, workload, prices) for workload in holding),
    )

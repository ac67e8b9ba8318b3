"""Ownership tree of an object: cohort → ClusterQueue → LocalQueue → job → Workload → pods → GPUs and MIG instances.

From a workload, a job or a pod the tree shows all owners above it, and all that it owns. From a node it shows the
opposite direction: GPUs → pod → Workload → job. From a queue, a cohort, a flavor or a user it goes down to the
workloads.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby

from msgspec import Struct

from gpuconsole.insight.index.demand import pod_units, units_of
from gpuconsole.insight.index.device_layout import NO_PLACE, WHOLE, GpuUnit, all_node_gpus
from gpuconsole.insight.index.object_lists import all_workloads, flavor_rows, user_of
from gpuconsole.insight.index.pods import phase_of, pods_by_node
from gpuconsole.model.cluster import Node, Pod
from gpuconsole.model.devices import NO_UNITS, UnitKind, Units
from gpuconsole.model.job import Job
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.model.workloads import Workload

USERS = "users"
"""Table of the users, who are no objects of the cluster: each is named by a label."""
WorkloadsByQueue = Mapping[str, Sequence[Workload]]
"""Key of a LocalQueue → its workloads that have not ended."""
MOST = 1_000
"""Maximum number of rows of a tree."""


class OwnedObject(Struct, frozen=True, kw_only=True):
    """A row of the tree: an object, or the GPUs of a pod."""

    depth: int
    table: str
    """As in `objects.TABLES`, or USERS; `nodes` for GPUs."""
    key: str
    """Key in that table; of GPUs the node."""
    kind: str
    """Kind of the object, or of the device, such as `GPU` and `MIG instance`."""
    name: str = ""
    """Name to show; the key if empty."""
    state: str = ""
    """Phase of a pod, job or workload; state of a GPU."""
    units: Units = NO_UNITS
    """Accelerators that it holds, or requests if it holds none."""
    node: str = ""
    device: str = ""
    """Which GPU of the node; empty for objects."""


def ownership(snapshot: Snapshot, table: str, key: str, user_label: str = "") -> tuple[OwnedObject, ...]:
    """Return the tree that an object is in, at most `MOST` rows; empty if the object does not exist.

    `user_label` is the label that names the user of a workload (see `user_of`).
    """
    if table not in (USERS, "cohorts") and key not in getattr(snapshot, table):
        return ()
    match table:
        case "workloads" | "jobs" | "pods":
            rows = _work(snapshot, table, key)
        case "nodes":
            rows = _node(snapshot, key)
        case "cohorts" | "cluster_queues" | "local_queues":
            rows = _queues(snapshot, table, key)
        case _:
            rows = _used(snapshot, table, key, user_label)
    return tuple(row for row, _ in zip(rows, range(MOST), strict=False))


def _row(depth: int, table: str, key: str, kind: str, **more: object) -> OwnedObject:
    return OwnedObject(depth=depth, table=table, key=key, kind=kind, **more)  # type: ignore[arg-type]


# Workloads, jobs and pods


def _work(snapshot: Snapshot, table: str, key: str) -> Iterator[OwnedObject]:
    root, workload = _root(snapshot, table, key)
    depth = 0
    for row in _above(snapshot, workload):
        yield row
        depth = row.depth + 1
    family = _family(snapshot, root)
    workloads = [one for one in snapshot.workloads.all() if one.owner in family]
    if workload is not None and workload not in workloads:
        workloads.append(workload)
    keys = {one.key for one in workloads}
    pods = [pod for pod in snapshot.pods.all() if pod.workload in keys or pod.job in family]
    pods.sort(key=lambda pod: (pod.pod_set, pod.index, pod.name))
    if root:
        yield from _jobs(snapshot, root, family, workloads, pods, depth)
    elif workload is not None:
        yield from _workload(snapshot, workload, pods, depth)
    elif (alone := snapshot.pods.get(key)) is not None:
        yield from _pod(snapshot, alone, depth)


def _root(snapshot: Snapshot, table: str, key: str) -> tuple[str, Workload | None]:
    """Return the topmost visible job of an object (empty without one), and its Workload."""
    pod = snapshot.pods.get(key) if table == "pods" else None
    workload = snapshot.workloads.get(pod.workload if pod is not None else key) if table != "jobs" else None
    job = key if table == "jobs" else pod.job if pod is not None else workload.owner if workload is not None else ""
    if job not in snapshot.jobs and workload is not None:
        job = workload.owner
    line = list(_line(snapshot, job))
    if workload is None and line:
        workload = next((one for one in snapshot.workloads.all() if one.owner in line), None)
    return (line[-1] if line else "", workload)


def _line(snapshot: Snapshot, job: str) -> Iterator[str]:
    """Yield the key of a job and those of its owners, as far as they are visible."""
    seen: set[str] = set()
    while job not in seen and (found := snapshot.jobs.get(job)) is not None:
        seen.add(job)
        yield job
        job = found.owner


def _above(snapshot: Snapshot, workload: Workload | None) -> Iterator[OwnedObject]:
    """Yield the cohorts and queues of a workload, the topmost first."""
    if workload is None:
        return
    local_queue = snapshot.local_queues.get(workload.local_queue)
    name = workload.cluster_queue or (local_queue.cluster_queue if local_queue is not None else "")
    queue = snapshot.cluster_queues.get(name)
    above = [("cohorts", cohort, "Cohort") for cohort in _parents(snapshot, queue.cohort if queue is not None else "")]
    if queue is not None:
        above.append(("cluster_queues", name, "ClusterQueue"))
    if local_queue is not None:
        above.append(("local_queues", local_queue.key, "LocalQueue"))
    for depth, (table, key, kind) in enumerate(above):
        yield _row(depth, table, key, kind)


def _parents(snapshot: Snapshot, cohort: str) -> list[str]:
    """Return a cohort and those above it, the topmost first; empty for no cohort."""
    names: dict[str, None] = {}
    while cohort and cohort not in names:
        names[cohort] = None
        found = snapshot.cohorts.get(cohort)
        cohort = found.parent if found is not None else ""
    return list(names)[::-1]


def _family(snapshot: Snapshot, root: str) -> set[str]:
    """Return the keys of a job and of all jobs below it."""
    owned: dict[str, list[str]] = {}
    for job in snapshot.jobs.all() if root else ():
        owned.setdefault(job.owner, []).append(job.key)
    family: set[str] = set()
    waiting = [root] if root else []
    while waiting:
        key = waiting.pop()
        if key not in family:
            family.add(key)
            waiting += owned.get(key, ())
    return family


def _jobs(
    snapshot: Snapshot, root: str, family: set[str], workloads: Sequence[Workload], pods: Sequence[Pod], depth: int
) -> Iterator[OwnedObject]:
    """Yield a job with its Workloads, the jobs that it owns, and pods without a Workload."""
    children: dict[str, list[str]] = {}
    for key in sorted(family - {root}):
        children.setdefault(snapshot.jobs[key].owner, []).append(key)
    shown: set[str] = set()
    waiting = [(root, depth)]
    while waiting:
        key, at = waiting.pop()
        if key in shown:
            continue
        shown.add(key)
        yield _job(snapshot.jobs[key], at)
        for workload in workloads:
            if workload.owner == key:
                yield from _workload(snapshot, workload, pods, at + 1)
        for pod in pods:
            if pod.job == key and pod.workload not in snapshot.workloads:
                yield from _pod(snapshot, pod, at + 1)
        waiting += [(child, at + 1) for child in reversed(children.get(key, ()))]


def _job(job: Job, depth: int) -> OwnedObject:
    name = f"{job.namespace}/{job.name}"
    return _row(depth, "jobs", job.key, job.kind, name=name, state="Suspended" if job.suspended else job.phase)


def _workload(snapshot: Snapshot, workload: Workload, pods: Iterable[Pod], depth: int) -> Iterator[OwnedObject]:
    yield _workload_row(snapshot, workload, depth)
    for pod in pods:
        if pod.workload == workload.key:
            yield from _pod(snapshot, pod, depth + 1)


def _workload_row(snapshot: Snapshot, workload: Workload, depth: int) -> OwnedObject:
    units = units_of(snapshot, workload)
    return _row(depth, "workloads", workload.key, "Workload", state=phase_of(snapshot, workload), units=units)


def _pod(snapshot: Snapshot, pod: Pod, depth: int) -> Iterator[OwnedObject]:
    yield _pod_row(snapshot, pod, depth)
    inside = all_node_gpus(snapshot).get(pod.node) if pod.node and not pod.done else None
    mine = [unit for unit in inside.units if unit.cell.pod == pod.key] if inside is not None else []
    yield from _gpu_rows(pod.node, mine, depth + 1)


def _pod_row(snapshot: Snapshot, pod: Pod, depth: int) -> OwnedObject:
    state = "Terminating" if pod.deleted and not pod.done else pod.phase
    return _row(depth, "pods", pod.key, "Pod", state=state, units=pod_units(snapshot, pod), node=pod.node)


def _gpu_rows(node: str, units: Iterable[GpuUnit], depth: int) -> Iterator[OwnedObject]:
    """Yield a row for each MIG instance and other part of a GPU, and one for whole GPUs in the same state."""
    for (part, _, _), group in groupby(units, key=lambda unit: (unit.part, unit.cell.state, unit.cell.pod)):
        same = list(group)
        for run in [same] if part == WHOLE else [[unit] for unit in same]:
            yield _gpu_row(node, run, depth)


def _gpu_row(node: str, units: Sequence[GpuUnit], depth: int) -> OwnedObject:
    """Make the row of devices of equal kind on one node: `GPU 0-3`, `MIG 1g.10gb of GPU 3`."""
    first, last = units[0], units[-1]
    numbers = f"{first.gpu}" if first.gpu == last.gpu else f"{first.gpu}-{last.gpu}"
    of = f" of GPU {numbers}" if first.gpu != NO_PLACE else ""
    assumed = "~ " if first.cell.assumed else ""
    if first.part == WHOLE:
        name = f"{assumed}GPU {numbers if of else first.cell.index}"
    elif first.cell.unit.kind is UnitKind.MIG:
        name = f"{assumed}MIG {first.part}{of}"
    else:
        name = f"{assumed}{first.cell.unit.short} {first.part}{of}"
    held = {first.cell.unit: len(units)}
    kind = "GPU" if first.part == WHOLE else first.cell.unit.kind.value
    return _row(depth, "nodes", node, kind, name=name, state=first.cell.state, units=held, node=node, device=name)


# Nodes


def _node(snapshot: Snapshot, name: str) -> Iterator[OwnedObject]:
    """Yield a node, its devices, and above each device its pod, Workload and job."""
    inside = all_node_gpus(snapshot).get(name)
    yield _node_row(snapshot.nodes[name], 0)
    for key, group in groupby(inside.units if inside is not None else (), key=lambda unit: unit.cell.pod):
        yield from _gpu_rows(name, group, 1)
        pod = snapshot.pods.get(key) if key else None
        if pod is None:
            continue
        yield _pod_row(snapshot, pod, 2)
        depth = 3
        if (workload := snapshot.workloads.get(pod.workload)) is not None:
            yield _workload_row(snapshot, workload, depth)
            depth += 1
        for owner in _line(snapshot, pod.job):
            yield _job(snapshot.jobs[owner], depth)
            depth += 1


def _node_row(node: Node, depth: int) -> OwnedObject:
    state = ("Ready" if node.ready else "NotReady") + (", cordoned" if node.unschedulable else "")
    return _row(depth, "nodes", node.name, "Node", state=state, node=node.name)


# Queues, flavors, users and other objects


def _queues(snapshot: Snapshot, table: str, key: str) -> Iterator[OwnedObject]:
    """Yield the cohorts above a queue or cohort, then all queues below, with their workloads that have not ended."""
    by_queue: dict[str, list[Workload]] = {}
    for workload in snapshot.workloads.all():
        if not workload.finished:
            by_queue.setdefault(workload.local_queue, []).append(workload)
    if table == "cohorts":
        line = _parents(snapshot, key)
    else:
        local_queue = snapshot.local_queues.get(key) if table == "local_queues" else None
        name = local_queue.cluster_queue if local_queue is not None else key
        queue = snapshot.cluster_queues.get(name)
        line = _parents(snapshot, queue.cohort if queue is not None else "")
    above = line[:-1] if table == "cohorts" else line
    for depth, cohort in enumerate(above):
        yield _row(depth, "cohorts", cohort, "Cohort")
    if table == "cohorts":
        yield from _cohort(snapshot, key, by_queue, len(above))
    else:
        yield from _cluster_queue(snapshot, name, key if local_queue is not None else "", by_queue, len(above))


def _cohort(snapshot: Snapshot, name: str, by_queue: WorkloadsByQueue, depth: int) -> Iterator[OwnedObject]:
    """Yield a cohort with its child cohorts and ClusterQueues."""
    shown: set[str] = set()
    waiting = [("cohorts", name, depth)]
    while waiting:
        table, one, at = waiting.pop()
        if table == "cluster_queues":
            yield from _cluster_queue(snapshot, one, "", by_queue, at)
        elif one not in shown:
            shown.add(one)
            yield _row(at, "cohorts", one, "Cohort")
            queues = [queue.name for queue in snapshot.cluster_queues.all() if queue.cohort == one]
            children = [cohort.name for cohort in snapshot.cohorts.all() if cohort.parent == one]
            waiting += [("cohorts", child, at + 1) for child in sorted(children, reverse=True)]
            waiting += [("cluster_queues", queue, at + 1) for queue in sorted(queues, reverse=True)]


def _cluster_queue(
    snapshot: Snapshot, name: str, only: str, by_queue: WorkloadsByQueue, depth: int
) -> Iterator[OwnedObject]:
    """Yield a ClusterQueue with its LocalQueues, or `only` one of them, and their workloads."""
    if name in snapshot.cluster_queues:
        yield _row(depth, "cluster_queues", name, "ClusterQueue")
        depth += 1
    local_queues = (one.key for one in snapshot.local_queues.all() if one.cluster_queue == name)
    for key in sorted(local_queues):
        if not only or key == only:
            yield _row(depth, "local_queues", key, "LocalQueue")
            yield from _sorted_workloads(snapshot, by_queue.get(key, ()), depth + 1)


def _sorted_workloads(snapshot: Snapshot, workloads: Iterable[Workload], depth: int) -> Iterator[OwnedObject]:
    """Yield workloads, those that hold quota first."""
    for workload in sorted(workloads, key=lambda one: (not one.reserved, one.key)):
        yield _workload_row(snapshot, workload, depth)


def _used(snapshot: Snapshot, table: str, key: str, user_label: str) -> Iterator[OwnedObject]:
    """Yield an object of another kind, and the workloads that use it."""
    kind = "User" if table == USERS else type(getattr(snapshot, table)[key]).__name__
    yield _row(0, table, key, kind)
    uses = _USES.get(table)
    if table == USERS:
        found = ((one, workload) for one, workload in all_workloads(snapshot) if not workload.finished)
        mine = [(one, workload) for one, workload in found if user_of(snapshot, workload, user_label) == key]
        for stand_in, workload in sorted(mine, key=lambda one: (not one[1].reserved, one[0])):
            if stand_in == workload.key and workload.key in snapshot.workloads:
                yield _workload_row(snapshot, workload, 1)
            elif (job := snapshot.jobs.get(stand_in)) is not None:
                yield _job(job, 1)
            elif (pod := snapshot.pods.get(stand_in)) is not None:
                yield _pod_row(snapshot, pod, 1)
    elif table == "flavors":
        yield from _of_flavor(snapshot, key)
    elif uses is not None:
        live = (one for one in snapshot.workloads.all() if not one.finished and uses(one, key))
        yield from _sorted_workloads(snapshot, live, 1)


def _of_flavor(snapshot: Snapshot, flavor: str) -> Iterator[OwnedObject]:
    """Yield the queues with quota of a flavor, its nodes with the workloads that hold quota of it, then others."""
    row = next(row for row in flavor_rows(snapshot) if row.name == flavor)
    holders = [snapshot.workloads[key] for key in row.workloads]
    for queue in row.queues:
        yield _row(1, "cluster_queues", queue, "ClusterQueue")
    placed: set[str] = set()
    for name in row.nodes:
        yield _node_row(snapshot.nodes[name], 1)
        here = {pod.workload for pod in pods_by_node(snapshot).on(name).values()}
        placed |= here
        yield from _sorted_workloads(snapshot, (one for one in holders if one.key in here), 2)
    yield from _sorted_workloads(snapshot, (one for one in holders if one.key not in placed), 1)


_USES: dict[str, Callable[[Workload, str], bool]] = {
    "admission_checks": lambda workload, name: any(check.name == name for check in workload.checks),
    "workload_priority_classes": lambda workload, name: workload.priority_class == name,
    "priority_classes": lambda workload, name: workload.priority_class == name,
    "namespaces": lambda workload, name: workload.namespace == name,
}
"""Table → whether a workload uses an object of it."""

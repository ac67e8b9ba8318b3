"""Phase of workloads by Kueue's conditions and their pods, and counts of running workloads per queue."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from gpuconsole.insight.pods_by_node import NO_PODS_BY_NODE, PodsByNode, pods_by_node
from gpuconsole.model.cluster import Pod, PodPhase
from gpuconsole.model.snapshot import EVERYTHING, Snapshot, Visibility, row_changes
from gpuconsole.model.workloads import Workload, WorkloadPhase, phase

Queues = tuple[str, str]
"""A ClusterQueue, and the key of one of its LocalQueues."""


def phase_of(snapshot: Snapshot, workload: Workload) -> WorkloadPhase:
    """Return the phase of a workload of a Snapshot, or of a synthetic Workload (see `unqueued_work`)."""
    return phase(workload, pods_run(snapshot, workload) if workload.admitted else None)


def pods_run(snapshot: Snapshot, workload: Workload) -> bool | None:
    """Return True if all pods of a workload's gang run; None if its pods are not visible."""
    # A synthetic Workload may have the name of a Workload with other pods.
    if snapshot.workloads.get(workload.key) is not workload:
        return None
    return _run(workload, pods_by_node(snapshot), snapshot.seen)


def pods_of_gang(workload: Workload) -> int:
    """Return the number of admitted pods that are still needed; reclaimable pods have succeeded."""
    parts = workload.admission.pod_sets if workload.admission is not None else workload.pod_sets
    return max(1, sum(part.count for part in parts) - sum(workload.reclaimable.values()))


def _run(workload: Workload, where: PodsByNode, seen: Visibility) -> bool | None:
    """Return True if all admitted pods run or have succeeded, as Kueue's Job.PodsReady; None if unknown."""
    key = workload.key
    pods, succeeded = where.of(key), where.succeeded.get(key, 0)
    if not pods and not succeeded:
        return None
    running = 0
    for pod in pods.values():
        if not pod.deleted:
            if pod.phase is not PodPhase.RUNNING:
                return False
            running += 1
    if running + succeeded >= pods_of_gang(workload):
        return True
    return False if seen.all_of(Pod, within=workload.namespace) else None


class RunningIndex:
    """Index of the running workloads, by queue. Immutable."""

    def __init__(
        self, rows: Sequence[Workload | None], where: PodsByNode, seen: Visibility, queues: Mapping[str, Queues]
    ) -> None:
        self.rows = rows
        self.where = where
        self.seen = seen
        self.queues = queues
        """Running workload → its queues."""
        self.count = Counter(queues.values())
        """Number of running workloads per queue."""


_phases_kept: list[RunningIndex] = [RunningIndex((), NO_PODS_BY_NODE, EVERYTHING, {})]


def running(snapshot: Snapshot) -> RunningIndex:
    """Return the running workloads; only workloads that changed since the last call, or their pods, are checked."""
    # Replaced as one object, so that threads do the same work twice at worst.
    known = _phases_kept[0]
    rows, where, seen = snapshot.workloads.rows, pods_by_node(snapshot), snapshot.seen
    if known.rows is rows and known.where is where and known.seen == seen:
        return known
    if known.seen != seen:
        known = RunningIndex((), NO_PODS_BY_NODE, seen, {})
    made = _phases_kept[0] = _carried_on(known, snapshot, where)
    return made


def _carried_on(old: RunningIndex, snapshot: Snapshot, where: PodsByNode) -> RunningIndex:
    gone, come = row_changes(old.rows, snapshot.workloads.rows)
    queues = dict(old.queues)
    for workload in gone:
        queues.pop(workload.key, None)
    touched: dict[str, Workload] = {one.key: one for one in come}
    if old.where is not where:
        left, joined = row_changes(old.where.rows, where.rows)
        for key in _workloads_of((*left, *joined)):
            if (found := snapshot.workloads.get(key)) is not None:
                touched[key] = found
    for key, workload in touched.items():
        if workload.admitted and phase(workload, _run(workload, where, snapshot.seen)) is WorkloadPhase.RUNNING:
            queues[key] = workload.cluster_queue, workload.local_queue
        else:
            queues.pop(key, None)
    return RunningIndex(snapshot.workloads.rows, where, snapshot.seen, queues)


def _workloads_of(pods: Iterable[Pod]) -> set[str]:
    return {pod.workload for pod in pods if pod.workload}

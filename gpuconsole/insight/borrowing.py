"""Workloads on borrowed quota: those that a reclaim would preempt first."""

from gpuconsole.insight.demand import FlavorResource, held
from gpuconsole.insight.derived import memoized
from gpuconsole.insight.device_demand import quota_accelerators
from gpuconsole.insight.queue_index import queue_index
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.model.workloads import Workload


def over_nominal(snapshot: Snapshot) -> dict[str, dict[FlavorResource, int]]:
    """ClusterQueue → usage of accelerators beyond its nominal quota, by (flavor, resource); others are left out.

    Queues that are not loaded are left out (see `unseen_queues`).
    """
    over: dict[str, dict[FlavorResource, int]] = {}
    resources = quota_accelerators(snapshot)
    for name, index in queue_index(snapshot).by_queue.items():
        usage = index.usage
        queue = snapshot.cluster_queues.get(name)
        if queue is None:
            continue
        quotas = queue.quotas()
        beyond = {
            pair: used - (quotas[pair].nominal if pair in quotas else 0)
            for pair, used in usage.items()
            if pair[1] in resources and used > (quotas[pair].nominal if pair in quotas else 0)
        }
        if beyond:
            over[name] = beyond
    return over


@memoized("workloads", "local_queues", "cluster_queues")
def unseen_queues(snapshot: Snapshot) -> tuple[str, ...]:
    """List the ClusterQueues that hold workloads and are not in the Snapshot: not visible, or deleted."""
    found = queue_index(snapshot).by_queue.items()
    return tuple(
        sorted(
            name
            for name, index in found
            if name and name not in snapshot.cluster_queues and (index.holding or index.queue)
        )
    )


@memoized(
    "workloads", "local_queues", "cluster_queues", "cohorts", "nodes", "device_classes", "resource_claim_templates"
)
def borrowed_gpus(snapshot: Snapshot) -> dict[str, int]:
    """Workload → number of its borrowed accelerators; workloads without any are left out."""
    return {key: sum(parts.values()) for key, parts in borrowed_parts(snapshot).items()}


@memoized(
    "workloads", "local_queues", "cluster_queues", "cohorts", "nodes", "device_classes", "resource_claim_templates"
)
def borrowed_parts(snapshot: Snapshot) -> dict[str, dict[FlavorResource, int]]:
    """Workload → number of its borrowed accelerators, by (flavor, resource); workloads without any are left out.

    Quota has no owner inside a ClusterQueue, so this is an attribution: the borrowed part is charged in the order in
    which Kueue would choose victims there, lowest priority first, then the newest reservation.
    """
    return _charged(snapshot, over_nominal(snapshot))


def _charged(snapshot: Snapshot, over: dict[str, dict[FlavorResource, int]]) -> dict[str, dict[FlavorResource, int]]:
    charged: dict[str, dict[FlavorResource, int]] = {}
    for queue, beyond in over.items():
        for workload in sorted(queue_index(snapshot).cluster_queue(queue).holding, key=victim_order):
            borrows = _charge(workload, beyond)
            if borrows:
                charged[workload.key] = borrows
    return charged


def victim_order(workload: Workload) -> tuple[int, int, str]:
    """Sort key of victims inside one ClusterQueue: lowest priority, newest reservation, uid (Kueue §7.3)."""
    reserved = workload.condition("QuotaReserved")
    return workload.priority, -(reserved.since if reserved is not None else 0), workload.uid


def _charge(workload: Workload, left: dict[FlavorResource, int]) -> dict[FlavorResource, int]:
    parts: dict[FlavorResource, int] = {}
    for pair, amount in held(workload):
        part = min(amount, left.get(pair, 0))
        if part > 0:
            left[pair] -= part
            parts[pair] = parts.get(pair, 0) + part
    return parts

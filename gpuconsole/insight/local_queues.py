"""LocalQueues of a ClusterQueue: whether workloads can reach it, and from which namespaces."""

from collections.abc import Mapping, Sequence

from gpuconsole.insight.derived import memoized
from gpuconsole.insight.positions import pending
from gpuconsole.insight.quota_node import QuotaNode
from gpuconsole.model.queues import ClusterQueue, LocalQueue, QueueingStrategy, StopPolicy
from gpuconsole.model.snapshot import Snapshot


@memoized("local_queues")
def local_queues_by_cluster_queue(snapshot: Snapshot) -> Mapping[str, Sequence[LocalQueue]]:
    """Map each ClusterQueue to the LocalQueues that point to it, whether it exists or not."""
    found: dict[str, list[LocalQueue]] = {}
    for local_queue in snapshot.local_queues.all():
        found.setdefault(local_queue.cluster_queue, []).append(local_queue)
    return found


def closed_reason(snapshot: Snapshot, queue: ClusterQueue) -> str:
    """Return why no LocalQueue leads to a ClusterQueue; empty if one does, or if not all of them are visible."""
    local_queues = local_queues_by_cluster_queue(snapshot).get(queue.name, ())
    if not snapshot.seen.all_of(LocalQueue):
        return ""
    if local_queues and all(local_queue.stop_policy is not StopPolicy.NONE for local_queue in local_queues):
        return (
            f"each of its LocalQueues is stopped ({', '.join(sorted(local_queue.key for local_queue in local_queues))})"
        )
    if outside := excluded_namespaces(snapshot, queue):
        return f"its namespaceSelector matches none of its LocalQueues' namespaces ({', '.join(outside)})"
    return ""


def excluded_namespaces(snapshot: Snapshot, queue: ClusterQueue) -> list[str]:
    """Return the namespaces of its LocalQueues if all are known and the selector matches none; else empty."""
    inside = sorted(
        {local_queue.namespace for local_queue in local_queues_by_cluster_queue(snapshot).get(queue.name, ())}
    )
    known = [snapshot.namespaces.get(name) for name in inside]
    selector = queue.namespace_selector
    if selector is None or any(one is None or selector.matches(one.labels) for one in known):
        return []
    return inside


def inactive_reason(snapshot: Snapshot, queue: QuotaNode) -> str:
    """Return why a ClusterQueue admits no workload whatever its quota (condition Active, LocalQueues), or empty."""
    return queue.shut or closed_reason(snapshot, snapshot.cluster_queues[queue.name])


def no_start_reason(snapshot: Snapshot, queue: QuotaNode) -> str:
    """Return why no new workload of a ClusterQueue would be admitted now, whatever its quota, or empty."""
    own = snapshot.cluster_queues[queue.name]
    if stopped := inactive_reason(snapshot, queue):
        return stopped
    head = pending(snapshot, own.name, limit=1) if own.queueing_strategy is QueueingStrategy.STRICT_FIFO else []
    if head:
        first = head[0].workload
        return f"it is StrictFIFO and blocked by its head, {first.owner.partition('/')[2] or first.key}"
    return ""

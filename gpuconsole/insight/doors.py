"""The LocalQueues of a ClusterQueue: whether workloads can reach it, and from which namespaces."""

from collections.abc import Mapping, Sequence

from gpuconsole.insight.once import once
from gpuconsole.insight.positions import pending
from gpuconsole.insight.quota_node import QuotaNode
from gpuconsole.model.queues import ClusterQueue, LocalQueue, QueueingStrategy, StopPolicy
from gpuconsole.model.snapshot import Snapshot


@once("local_queues")
def local_queues_by_cluster_queue(snapshot: Snapshot) -> Mapping[str, Sequence[LocalQueue]]:
    """Map each ClusterQueue to the LocalQueues that point to it, whether it exists or not."""
    found: dict[str, list[LocalQueue]] = {}
    for door in snapshot.local_queues.all():
        found.setdefault(door.cluster_queue, []).append(door)
    return found


def closed(snapshot: Snapshot, queue: ClusterQueue) -> str:
    """Return why no workload can reach it by its LocalQueues; empty if one can, or if not all of them are visible."""
    doors = local_queues_by_cluster_queue(snapshot).get(queue.name, ())
    if not snapshot.seen.all_of(LocalQueue):
        return ""
    if doors and all(door.stop_policy is not StopPolicy.NONE for door in doors):
        return f"each of its LocalQueues is stopped ({', '.join(sorted(door.key for door in doors))})"
    if outside := shut_out(snapshot, queue):
        return f"its namespaceSelector matches none of its LocalQueues' namespaces ({', '.join(outside)})"
    return ""


def shut_out(snapshot: Snapshot, queue: ClusterQueue) -> list[str]:
    """Return the namespaces of its LocalQueues if all are known and the selector matches none; else empty."""
    inside = sorted({door.namespace for door in local_queues_by_cluster_queue(snapshot).get(queue.name, ())})
    known = [snapshot.namespaces.get(name) for name in inside]
    selector = queue.namespace_selector
    if selector is None or any(one is None or selector.matches(one.labels) for one in known):
        return []
    return inside


def why_shut(snapshot: Snapshot, queue: QuotaNode) -> str:
    """Return why a ClusterQueue admits no workload whatever its quota (condition Active, LocalQueues), or empty."""
    return queue.shut or closed(snapshot, snapshot.cluster_queues[queue.name])


def admits_none(snapshot: Snapshot, queue: QuotaNode) -> str:
    """Return why no new workload of a ClusterQueue would be admitted now, whatever its quota, or empty."""
    own = snapshot.cluster_queues[queue.name]
    if stopped := why_shut(snapshot, queue):
        return stopped
    head = pending(snapshot, own.name, limit=1) if own.queueing_strategy is QueueingStrategy.STRICT_FIFO else []
    if head:
        first = head[0].workload
        return f"it is StrictFIFO and blocked by its head, {first.owner.partition('/')[2] or first.key}"
    return ""

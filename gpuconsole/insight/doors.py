"""The LocalQueues of a ClusterQueue: whether anybody can come in by them, and from which namespaces."""

from collections.abc import Mapping, Sequence

from gpuconsole.insight.once import once
from gpuconsole.insight.positions import pending
from gpuconsole.insight.quota_node import QuotaNode
from gpuconsole.model.queues import ClusterQueue, LocalQueue, QueueingStrategy, StopPolicy
from gpuconsole.model.snapshot import Snapshot


@once("local_queues")
def local_queues_by_cluster_queue(snapshot: Snapshot) -> Mapping[str, Sequence[LocalQueue]]:
    """ClusterQueue → the LocalQueues that name it, whether it exists or not."""
    found: dict[str, list[LocalQueue]] = {}
    for door in snapshot.local_queues.all():
        found.setdefault(door.cluster_queue, []).append(door)
    return found


def closed(snapshot: Snapshot, queue: ClusterQueue) -> str:
    """Why nobody comes in by the LocalQueues that it has, as far as all of them are seen; else nothing."""
    doors = local_queues_by_cluster_queue(snapshot).get(queue.name, ())
    if not snapshot.seen.all_of(LocalQueue):
        return ""
    if doors and all(door.stop_policy is not StopPolicy.NONE for door in doors):
        return f"each of its LocalQueues is stopped ({', '.join(sorted(door.key for door in doors))})"
    if outside := shut_out(snapshot, queue):
        return f"its namespaceSelector takes none of the namespaces of its LocalQueues ({', '.join(outside)})"
    return ""


def shut_out(snapshot: Snapshot, queue: ClusterQueue) -> list[str]:
    """The namespaces of its LocalQueues, where all of these are known and the selector takes none; else nothing."""
    inside = sorted({door.namespace for door in local_queues_by_cluster_queue(snapshot).get(queue.name, ())})
    known = [snapshot.namespaces.get(name) for name in inside]
    selector = queue.namespace_selector
    if selector is None or any(one is None or selector.matches(one.labels) for one in known):
        return []
    return inside


def why_shut(snapshot: Snapshot, queue: QuotaNode) -> str:
    """Why a ClusterQueue admits no workload, whatever its quota: condition Active or its LocalQueues; else empty."""
    return queue.shut or closed(snapshot, snapshot.cluster_queues[queue.name])


def admits_none(snapshot: Snapshot, queue: QuotaNode) -> str:
    """Why nothing that comes to a ClusterQueue would start now, whatever its quota."""
    own = snapshot.cluster_queues[queue.name]
    if stopped := why_shut(snapshot, queue):
        return stopped
    head = pending(snapshot, own.name, limit=1) if own.queueing_strategy is QueueingStrategy.STRICT_FIFO else []
    if head:
        first = head[0].workload
        return f"it is StrictFIFO, and {first.owner.partition('/')[2] or first.key} at its head blocks it"
    return ""

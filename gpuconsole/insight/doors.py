"""The namespaces of a ClusterQueue's LocalQueues, and whether its selector takes any of them."""

from gpuconsole.model.queues import ClusterQueue
from gpuconsole.model.snapshot import Snapshot


def shut_out(snapshot: Snapshot, queue: ClusterQueue) -> list[str]:
    """The namespaces of its LocalQueues, where all of these are known and the selector takes none; else nothing."""
    inside = sorted({door.namespace for door in snapshot.local_queues.all() if door.cluster_queue == queue.name})
    known = [snapshot.namespaces.get(name) for name in inside]
    selector = queue.namespace_selector
    if selector is None or any(one is None or selector.matches(one.labels) for one in known):
        return []
    return inside

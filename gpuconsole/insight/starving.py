"""Queues that wait within their own quota while others borrow it, and why they do not take it back."""

from collections.abc import Iterator

from msgspec import Struct

from gpuconsole.insight.capacity import Capacity, capacity
from gpuconsole.insight.demand import wanted_gpus
from gpuconsole.insight.doors import closed
from gpuconsole.insight.positions import pending
from gpuconsole.model.queues import LocalQueue, PreemptionPolicy
from gpuconsole.model.resources import is_gpu
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.model.workloads import Workload
from gpuconsole.scheduling.kueue.session import Session


class Starving(Struct, frozen=True, kw_only=True):
    """A queue that waits within its own quota while another one borrows that flavor."""

    queue: str
    workload: str
    """The first of those that wait."""
    gpus: int
    """It wants."""
    flavor: str
    resource: str
    unused: int
    """Of the queue's own nominal quota."""
    borrowers: tuple[tuple[str, int], ...]
    """(ClusterQueue, GPUs that it borrows), the largest first."""
    text: str
    """Why it does not take its own back."""


def starving(snapshot: Snapshot, session: Session) -> Iterator[Starving]:
    """Queues whose first waiting workload would fit into what they own of a flavor, while others borrow that flavor."""
    found = capacity(snapshot)
    tree, usage = found.tree, found.usage
    for name in sorted(tree.queues):
        first, node = pending(snapshot, name, limit=1), tree.queues[name]
        if not first or tree.parent[node] < 0:
            continue
        head, root = first[0].workload, tree.root(node)
        wants = wanted_gpus(head)
        for (flavor, resource), quota in snapshot.cluster_queues[name].quotas().items():
            column = tree.numbers.get((flavor, resource))
            if column is None or not is_gpu(resource):
                continue
            unused = quota.nominal - usage.used(node, column)
            borrowers = _borrowing(found, root, column)
            if wants and wants <= unused and wants > usage.available(node, column) and borrowers:
                yield Starving(
                    queue=name,
                    workload=head.key,
                    gpus=wants,
                    flavor=flavor,
                    resource=resource,
                    unused=unused,
                    borrowers=borrowers,
                    text=_why_it_waits(snapshot, session, head, name, flavor, resource, wants),
                )


def _borrowing(found: Capacity, root: int, column: int) -> tuple[tuple[str, int], ...]:
    tree = found.tree
    over = {
        tree.names[node]: found.usage.used(node, column) - tree.nominal[node * tree.width + column]
        for node in tree.subtree_queues(root)
    }
    return tuple(sorted(((name, gpus) for name, gpus in over.items() if gpus > 0), key=lambda one: (-one[1], one[0])))


def _why_it_waits(
    snapshot: Snapshot, session: Session, head: Workload, queue: str, flavor: str, resource: str, gpus: int
) -> str:
    if shut := admits_nobody(snapshot, session, queue):
        return shut
    victims = session.room_for(queue, flavor, resource, gpus, priority=head.priority)
    if victims:
        return f"it can take them back: {', '.join(key for key, _ in victims)} would go"
    return no_right(snapshot, queue) or (
        "its reclaimWithinCohort takes lower priorities only, and nobody who borrows has one"
        if snapshot.cluster_queues[queue].preemption.reclaim_within_cohort is PreemptionPolicy.LOWER_PRIORITY
        else "no evictions that its policy allows make room"
    )


def admits_nobody(snapshot: Snapshot, session: Session, queue: str) -> str:
    """Why a queue admits nobody, whoever made room, if so: Kueue takes no heads from it (its condition Active), or
    nobody can come to it.
    """
    ready = session.readiness(queue)
    if not ready.active:
        return f"it is inactive ({ready.reason})"
    all_seen = snapshot.seen.all_of(LocalQueue)
    if all_seen and not any(door.cluster_queue == queue for door in snapshot.local_queues.all()):
        return "it has no LocalQueue, so that nobody comes to it"
    return closed(snapshot, snapshot.cluster_queues[queue])


def no_right(snapshot: Snapshot, queue: str) -> str:
    """Why a queue may take nothing back from others at all, if so."""
    policy = snapshot.cluster_queues[queue].preemption.reclaim_within_cohort
    return "its reclaimWithinCohort is Never" if policy is PreemptionPolicy.NEVER else ""

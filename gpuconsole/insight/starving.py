"""Queues that wait within their own quota while others borrow it, and why they do not take it back."""

from collections.abc import Iterator

from msgspec import Struct

from gpuconsole.insight.capacity import capacity
from gpuconsole.insight.demand import wanted_accelerators
from gpuconsole.insight.device_demand import quota_accelerators, quota_unit, wanted_units
from gpuconsole.insight.doors import closed, local_queues_by_cluster_queue
from gpuconsole.insight.positions import pending
from gpuconsole.insight.starved import starved_queues
from gpuconsole.model.device_units import DRA_DEVICE, WHOLE_GPU, is_counted
from gpuconsole.model.queues import LocalQueue, PreemptionPolicy
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.model.workloads import Workload
from gpuconsole.scheduling.kueue.session import Session


class Starving(Struct, frozen=True, kw_only=True):
    """A starved queue (see `starved`), one resource of one flavor that it does not get."""

    queue: str
    workload: str
    """The first of those that wait."""
    gpus: int
    """It wants; GPUs, or what `unit` names."""
    unit: str = WHOLE_GPU.noun
    flavor: str
    resource: str
    unused: int
    """Of the queue's own nominal quota."""
    borrowers: tuple[tuple[str, int], ...]
    """(ClusterQueue, how many it borrows), the largest first."""
    text: str
    """Why it does not take its own back."""


def starving(snapshot: Snapshot, session: Session) -> Iterator[Starving]:
    """The starved queues by name, with the accelerators of their own quota that they do not get, and why not."""
    found, counted = capacity(snapshot), quota_accelerators(snapshot)
    for name, queue in sorted(starved_queues(snapshot).items()):
        first = pending(snapshot, name, limit=1)
        if not first:
            continue
        head = first[0].workload
        for quota in queue.quotas:
            if quota.resource not in counted:
                continue
            wants = _wanted(snapshot, head, quota.resource)
            node, column = found.tree.queues[name], found.tree.numbers[quota.flavor, quota.resource]
            if wants > quota.unused:
                text = f"its head requests {wants}; only {quota.unused} of its nominal quota are unused"
            elif wants <= found.usage.available(node, column):
                text = f"quota for the {wants} that its head requests is available"
            else:
                text = _why_it_waits(snapshot, session, head, name, quota.flavor, quota.resource, wants)
            yield Starving(
                queue=name,
                workload=head.key,
                gpus=wants,
                unit=quota_unit(snapshot, quota.resource).noun,
                flavor=quota.flavor,
                resource=quota.resource,
                unused=quota.unused,
                borrowers=quota.borrowers,
                text=text,
            )


def _wanted(snapshot: Snapshot, head: Workload, resource: str) -> int:
    """What a workload wants of a resource; of one that stands for classes of devices, the devices that it claims."""
    if is_counted(resource):
        return wanted_accelerators(head).get(resource, 0)
    return wanted_units(snapshot, head).get(DRA_DEVICE, 0)


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
    if all_seen and queue not in local_queues_by_cluster_queue(snapshot):
        return "it has no LocalQueue, so that nobody comes to it"
    return closed(snapshot, snapshot.cluster_queues[queue])


def no_right(snapshot: Snapshot, queue: str) -> str:
    """Why a queue may take nothing back from others at all, if so."""
    policy = snapshot.cluster_queues[queue].preemption.reclaim_within_cohort
    return "its reclaimWithinCohort is Never" if policy is PreemptionPolicy.NEVER else ""

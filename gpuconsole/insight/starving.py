"""Reasons why starved queues do not reclaim their nominal quota from the queues that borrow it."""

from collections.abc import Iterator

from msgspec import Struct

from gpuconsole.insight.capacity import capacity
from gpuconsole.insight.demand import wanted_accelerators
from gpuconsole.insight.device_demand import quota_accelerators, quota_unit, wanted_units
from gpuconsole.insight.local_queues import closed_reason, local_queues_by_cluster_queue
from gpuconsole.insight.positions import pending
from gpuconsole.insight.starved import starved_queues
from gpuconsole.model.device_units import DRA_DEVICE, WHOLE_GPU, is_counted
from gpuconsole.model.queues import LocalQueue, PreemptionPolicy
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.model.workloads import Workload
from gpuconsole.scheduling.kueue.session import KueueSession


class Starving(Struct, frozen=True, kw_only=True):
    """One resource of one flavor that a starved queue (see `starved`) does not reclaim, with the reason."""

    queue: str
    workload: str
    """The head of the queue."""
    gpus: int
    """Requested by the head; GPUs, or what `unit` names."""
    unit: str = WHOLE_GPU.noun
    flavor: str
    resource: str
    unused: int
    """Unused part of the queue's nominal quota."""
    borrowers: tuple[tuple[str, int], ...]
    """(ClusterQueue, how many it borrows), the largest first."""
    text: str
    """Reason why the queue does not reclaim it."""


def starving(snapshot: Snapshot, session: KueueSession) -> Iterator[Starving]:
    """List the starved queues by name, with the accelerators of their nominal quota that they lack, and the reason."""
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
                text = f"the request exceeds the unused nominal quota by {wants - quota.unused}"
            elif wants <= found.usage.available(node, column):
                text = "the requested quota is available"
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
    """Return the amount of a resource that a workload requests; for DRA device classes, the devices that it claims."""
    if is_counted(resource):
        return wanted_accelerators(head).get(resource, 0)
    return wanted_units(snapshot, head).get(DRA_DEVICE, 0)


def _why_it_waits(
    snapshot: Snapshot, session: KueueSession, head: Workload, queue: str, flavor: str, resource: str, gpus: int
) -> str:
    if shut := inadmissible_queue_reason(snapshot, session, queue):
        return shut
    victims = session.targets_for_amount(queue, flavor, resource, gpus, priority=head.priority)
    if victims:
        return f"it can reclaim them by preempting {', '.join(key for key, _ in victims)}"
    return no_reclaim_reason(snapshot, queue) or (
        "its reclaimWithinCohort is LowerPriority, and no borrower has a lower priority"
        if snapshot.cluster_queues[queue].preemption.reclaim_within_cohort is PreemptionPolicy.LOWER_PRIORITY
        else "the preemptions that its policy allows do not free enough quota"
    )


def inadmissible_queue_reason(snapshot: Snapshot, session: KueueSession, queue: str) -> str:
    """Return why a queue can admit no workload at all: it is inactive or unreachable; empty if it can."""
    ready = session.active_condition(queue)
    if not ready.active:
        return f"it is inactive ({ready.reason})"
    all_seen = snapshot.seen.all_of(LocalQueue)
    if all_seen and queue not in local_queues_by_cluster_queue(snapshot):
        return "no LocalQueue references it"
    return closed_reason(snapshot, snapshot.cluster_queues[queue])


def no_reclaim_reason(snapshot: Snapshot, queue: str) -> str:
    """Return why a queue may not reclaim at all; empty if it may."""
    policy = snapshot.cluster_queues[queue].preemption.reclaim_within_cohort
    return "its reclaimWithinCohort is Never" if policy is PreemptionPolicy.NEVER else ""

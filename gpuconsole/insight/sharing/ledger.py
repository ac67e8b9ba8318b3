"""Ledger of borrowed GPUs: loans, victims of a reclaim by each lender, and starved queues that do not reclaim."""

from collections.abc import Iterator

from msgspec import Struct

from gpuconsole.insight.cost.rates import loss_if_evicted
from gpuconsole.insight.index.capacity import capacity, starved_queues
from gpuconsole.insight.index.demand import amount_of, quota_accelerators, quota_unit, wanted_accelerators, wanted_units
from gpuconsole.insight.index.queues import pending, queue_index
from gpuconsole.insight.index.quota_tree import closed_reason, local_queues_by_cluster_queue
from gpuconsole.insight.preemption.history import rule_in_words
from gpuconsole.insight.sharing.fair_shares import Loan, loans, unseen_queues
from gpuconsole.model.devices import DRA_DEVICE, WHOLE_GPU, is_counted
from gpuconsole.model.prices import Prices
from gpuconsole.model.queues import LocalQueue, PreemptionPolicy
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.model.workloads import Workload
from gpuconsole.scheduling.kueue.session import KueueSession


class Starving(Struct, frozen=True, kw_only=True):
    """One resource of one flavor that a starved queue (see `starved_queues`) does not reclaim, with the reason."""

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


class ReclaimVictim(Struct, frozen=True, kw_only=True):
    """A workload that a reclaim would evict."""

    workload: str
    queue: str
    gpus: int
    """GPUs, or what `unit` names."""
    unit: str = WHOLE_GPU.noun
    rule: str
    lost_gpu_hours: float | None
    """None if unknown, like the cost."""
    cost: float | None
    """USD of the work since the last checkpoint."""


class ReclaimScenario(Struct, frozen=True, kw_only=True):
    """Effect of a lender's reclaim of all its unused nominal quota of a flavor at once."""

    lender: str
    flavor: str
    resource: str
    gpus: int
    """Unused nominal quota, lent or idle; in GPUs, or what `unit` names."""
    unit: str = WHOLE_GPU.noun
    possible: bool
    """False if its policy forbids it, no allowed preemptions free enough quota, or it admits no workloads."""
    why_not: str = ""
    leaving: tuple[ReclaimVictim, ...] = ()
    """Victims in preemption order; empty if enough quota is free."""


class LoanLedger(Struct, frozen=True):
    """Loans, reclaims and starved queues, of accelerators only."""

    loans: tuple[Loan, ...] = ()
    """The largest first."""
    exposures: tuple[ReclaimScenario, ...] = ()
    starving: tuple[Starving, ...] = ()
    unseen: tuple[str, ...] = ()
    """ClusterQueues that hold workloads and are not loaded: their loans are unknown."""


def ledger(snapshot: Snapshot, session: KueueSession, prices: Prices) -> LoanLedger:
    """Compute the ledger of a cluster. `session` is the admission engine at the same time; it is not changed."""
    found = loans(snapshot)
    lent = dict.fromkeys((loan.lender, loan.flavor, loan.resource) for loan in found)
    exposures = (reclaim_scenario(snapshot, session, prices, *one) for one in lent if one[0] in snapshot.cluster_queues)
    return LoanLedger(found, tuple(exposures), tuple(starving(snapshot, session)), unseen_queues(snapshot))


def reclaim_scenario(
    snapshot: Snapshot, session: KueueSession, prices: Prices, lender: str, flavor: str, resource: str
) -> ReclaimScenario:
    """Find the workloads that a lender would preempt to reclaim all its unused quota of a flavor.

    Uses Kueue's victim search, for a workload with the highest priority in the lender's queue.
    """
    owned = snapshot.cluster_queues[lender].quotas()[flavor, resource].nominal
    gpus = owned - queue_index(snapshot).cluster_queue(lender).usage.get((flavor, resource), 0)
    why_not, victims = inadmissible_queue_reason(snapshot, session, lender), None
    if not why_not:
        victims = session.targets_for_amount(lender, flavor, resource, gpus, priority=_usual_priority(snapshot, lender))
        if victims is None:
            why_not = (
                no_reclaim_reason(snapshot, lender) or "the preemptions that its policy allows do not free enough quota"
            )
    return ReclaimScenario(
        lender=lender,
        flavor=flavor,
        resource=resource,
        gpus=gpus,
        unit=quota_unit(snapshot, resource).noun,
        possible=victims is not None,
        why_not=why_not,
        leaving=tuple(_reclaim_victim(snapshot, prices, key, rule.value) for key, rule in victims or ()),
    )


def _usual_priority(snapshot: Snapshot, queue: str) -> int:
    """Return the highest priority of the workloads in a queue; 0 if it is empty."""
    index = queue_index(snapshot).cluster_queue(queue)
    return max((workload.priority for workload in (*index.holding, *index.queue)), default=0)


def _reclaim_victim(snapshot: Snapshot, prices: Prices, key: str, rule: str) -> ReclaimVictim:
    workload = snapshot.workloads[key]
    loss = loss_if_evicted(snapshot, workload, prices)
    gpus, unit = amount_of(snapshot, workload)
    return ReclaimVictim(
        workload=key,
        queue=workload.cluster_queue,
        gpus=gpus,
        unit=unit,
        rule=rule_in_words(rule),
        lost_gpu_hours=loss.gpu_hours,
        cost=loss.cost,
    )

"""Ledger of borrowed GPUs: loans, the victims of a reclaim by each lender, and starved queues."""

from msgspec import Struct

from gpuconsole.insight.borrowing import unseen_queues
from gpuconsole.insight.cost import loss_if_evicted
from gpuconsole.insight.device_demand import amount_of, quota_unit
from gpuconsole.insight.loans import Loan, loans
from gpuconsole.insight.preemptions import rule_in_words
from gpuconsole.insight.queue_index import queue_index
from gpuconsole.insight.starving import Starving, inadmissible_queue_reason, no_reclaim_reason, starving
from gpuconsole.model.device_units import WHOLE_GPU
from gpuconsole.model.prices import Prices
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.scheduling.kueue.session import KueueSession


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

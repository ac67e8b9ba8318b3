"""Queue problems: no admission, starvation, long waits, pending admission checks, reclaimable quota."""

from collections import Counter
from collections.abc import Iterator, Sequence

from gpuconsole.insight.alert_kinds import Alert, AlertKind
from gpuconsole.insight.borrowing import borrowed_gpus
from gpuconsole.insight.checking import checking
from gpuconsole.insight.loans import Loan, loans
from gpuconsole.insight.quota import quota_tree
from gpuconsole.insight.quota_node import SEVERAL_UNITS, NodeKind, QuotaNode, queues_below
from gpuconsole.insight.starved import StarvedQueue, StarvedQuota
from gpuconsole.insight.tables import counted
from gpuconsole.model.clock import MINUTE, Span, Time, format_span
from gpuconsole.model.device_units import ANY_DEVICE, added, described, is_counted
from gpuconsole.model.queues import ClusterQueue, PreemptionPolicy
from gpuconsole.model.resources import format_quantity
from gpuconsole.model.snapshot import Snapshot

LONG_WAIT: Span = 30 * MINUTE
CHECKS_LISTED = 5


def queue_alerts(snapshot: Snapshot) -> Iterator[Alert]:
    """List all queue problems, in no particular order."""
    yield from _queues(snapshot)
    yield from _checks(snapshot)
    yield from _borrowers(snapshot)


def _queues(snapshot: Snapshot) -> Iterator[Alert]:
    """Yield alerts for queues that admit no workloads, are starved, or have a long wait."""
    unseen = not snapshot.seen.all_of(ClusterQueue)
    for node in queues_below(quota_tree(snapshot)):
        if unseen and node.kind is NodeKind.LOCAL_QUEUE:
            continue  # Its ClusterQueue exists but is not visible.
        trouble, text = _queue_trouble(node, snapshot.time)
        if trouble is not None:
            table = "cluster_queues" if node.kind is NodeKind.CLUSTER_QUEUE else "local_queues"
            yield Alert(trouble=trouble, text=text, table=table, key=node.name, gpus=node.pending_gpus)


def _queue_trouble(node: QuotaNode, now: Time) -> tuple[AlertKind | None, str]:
    waits = f"; {counted(node.pending, 'pending workload')}" if node.pending else ""
    if node.problem or (node.shut and node.pending):
        return AlertKind.QUEUE_INACTIVE, f"{node.name}: {node.shut}{waits}"
    if node.starved is not None:
        return AlertKind.STARVED, starved_text(node, node.starved, now)
    if node.oldest is not None and now - node.oldest >= LONG_WAIT:
        return (
            AlertKind.LONG_WAIT,
            f"{node.name}: {node.pending} pending, the oldest for {format_span(now - node.oldest)}",
        )
    return None, ""


def starved_text(queue: QuotaNode, starved: StarvedQueue, now: Time) -> str:
    """`ranking is starved: 3 pending, the oldest for 12m; uses 6 of its 16 h100 GPUs while vision borrows 4`."""
    parts = [
        f"uses {format_quantity(one.resource, one.used)} of its {format_quantity(one.resource, one.nominal)} "
        f"{one.flavor} {_noun(one, queue.unit)} while {_borrowers_text(one)}"
        for one in starved.quotas
    ]
    wait = format_span(max(0, now - starved.since))
    return f"{queue.name} is starved: {starved.pending} pending, the oldest for {wait}; {'; '.join(parts)}"


def _noun(quota: StarvedQuota, unit: str) -> str:
    """Return the unit of the quota: that of the queue's accelerators if there is one, else the resource's name."""
    if not is_counted(quota.resource) or unit == SEVERAL_UNITS:
        return quota.resource.rpartition("/")[2]
    return unit if quota.nominal == 1 else f"{unit}s"


def _borrowers_text(quota: StarvedQuota) -> str:
    named = [f"{queue} borrows {format_quantity(quota.resource, amount)}" for queue, amount in quota.borrowers[:2]]
    more = len(quota.borrowers) - len(named)
    return " and ".join(named) + (f" ({more} more borrow)" if more else "")


def _checks(snapshot: Snapshot) -> Iterator[Alert]:
    """Yield workloads with pending admission checks: one line each, or one line for all of them if there are many."""
    rows = checking(snapshot)
    if len(rows) > CHECKS_LISTED:
        units = added(*(one.units for one in rows))
        gpus = sum(units.values())
        text = f"{len(rows)} workloads have {described(units)} reserved and wait for admission checks"
        yield Alert(trouble=AlertKind.CHECKS, text=text, table="workloads", key=rows[0].workload, gpus=gpus)
        return
    for one in rows:
        span = format_span(max(0, snapshot.time - one.since))
        text = f"{one.workload}: {described(one.units)} reserved, waiting for {one.names} for {span}"
        yield Alert(
            trouble=AlertKind.CHECKS, text=text, table="workloads", key=one.workload, gpus=sum(one.units.values())
        )


def _borrowers(snapshot: Snapshot) -> Iterator[Alert]:
    """Yield workloads on borrowed quota that its owner can reclaim: one line per ClusterQueue."""
    charged = borrowed_gpus(snapshot)
    by_queue: dict[str, list[Loan]] = {}
    for loan in loans(snapshot) if charged else ():
        if _may_reclaim(snapshot, loan.lender):
            by_queue.setdefault(loan.borrower, []).append(loan)
    for queue, lent in by_queue.items():
        borrowers = list(dict.fromkeys(key for loan in lent for key in loan.workloads))
        yield _reclaimable(queue, borrowers, sum(charged[key] for key in borrowers), lent)


def _may_reclaim(snapshot: Snapshot, lender: str) -> bool:
    """True if the lender may reclaim its quota; a Cohort's own quota is never reclaimed."""
    queue = snapshot.cluster_queues.get(lender)
    return queue is not None and queue.preemption.reclaim_within_cohort is not PreemptionPolicy.NEVER


def _reclaimable(queue: str, borrowers: Sequence[str], borrowed: int, lent: Sequence[Loan]) -> Alert:
    owned: Counter[str] = Counter()
    for loan in lent:
        owned[loan.lender] += loan.gpus
    lenders, gpus = sorted(owned, key=lambda name: (-owned[name], name)), owned.total()
    alone = len(borrowers) == 1
    who = f"{borrowers[0]} runs" if alone else f"{queue}: {len(borrowers)} workloads run"
    owner = " and ".join(lenders[:2]) + (f" and {len(lenders) - 2} more" if len(lenders) > 2 else "")
    units = {loan.unit for loan in lent}
    unit = units.pop() if len(units) == 1 else ANY_DEVICE
    them = "it" if borrowed == 1 else "them" if gpus == borrowed else f"{gpus} of them"
    return Alert(
        trouble=AlertKind.RECLAIMABLE,
        text=f"{who} on {counted(borrowed, f'borrowed {unit}')}; {owner} can reclaim {them}",
        table="workloads" if alone else "cluster_queues",
        key=borrowers[0] if alone else queue,
        gpus=gpus,
    )

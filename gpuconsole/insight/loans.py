"""Quota loans between ClusterQueues: lender, borrower, flavor and number of GPUs or other accelerators."""

from collections.abc import Mapping, Sequence

from msgspec import Struct

from gpuconsole.insight.borrowing import borrowed_parts
from gpuconsole.insight.capacity import QuotaCapacity, capacity
from gpuconsole.insight.demand import FlavorResource
from gpuconsole.insight.device_demand import quota_accelerators, quota_unit
from gpuconsole.insight.lending import split
from gpuconsole.model.clock import Time
from gpuconsole.model.device_units import WHOLE_GPU
from gpuconsole.model.snapshot import Snapshot


class Loan(Struct, frozen=True, kw_only=True):
    """GPUs of one flavor that one queue borrows from another one."""

    lender: str
    """A ClusterQueue, or a Cohort with its own quota."""
    borrower: str
    """A ClusterQueue; empty if only the amount is known."""
    flavor: str
    resource: str
    """Resource name of the GPUs, MIG instances or DRA devices."""
    gpus: int
    """GPUs, or what `unit` names."""
    unit: str = WHOLE_GPU.noun
    since: Time
    """Time at which the oldest of these workloads reserved quota: the loan is not older."""
    workloads: tuple[str, ...]
    """Workloads of the borrower on borrowed quota of this flavor, in preemption order."""


def loans(snapshot: Snapshot) -> tuple[Loan, ...]:
    """List the quota loans, the largest first.

    Lent amounts are attributed as in `insight.lending`. The lender of a borrower's GPUs is attributed from the nearest
    common cohort upwards, in proportion to the borrowed amounts there.
    """
    found: list[Loan] = []
    stands, counted = _stands(snapshot), quota_accelerators(snapshot)
    tree_of = capacity(snapshot)
    for (flavor, resource), column in sorted(tree_of.tree.numbers.items()):
        if resource in counted:
            for (lender, borrower), gpus in _pairs(tree_of, column).items():
                standing = stands.get((borrower, (flavor, resource)), ())
                found.append(
                    Loan(
                        lender=tree_of.tree.names[lender],
                        borrower=borrower,
                        flavor=flavor,
                        resource=resource,
                        gpus=gpus,
                        unit=quota_unit(snapshot, resource).noun,
                        since=min((since for _, since in standing), default=snapshot.time),
                        workloads=tuple(key for key, _ in standing),
                    )
                )
    return tuple(sorted(found, key=lambda loan: (-loan.gpus, loan.lender, loan.borrower, loan.flavor, loan.resource)))


def _stands(snapshot: Snapshot) -> Mapping[tuple[str, FlavorResource], Sequence[tuple[str, Time]]]:
    """Map (ClusterQueue, flavor and resource) to its borrowing workloads with start times, in preemption order."""
    stands: dict[tuple[str, FlavorResource], list[tuple[str, Time]]] = {}
    for key, parts in borrowed_parts(snapshot).items():
        workload = snapshot.workloads[key]
        reserved = workload.condition("QuotaReserved")
        for pair in parts:
            since = reserved.since if reserved is not None else workload.created
            stands.setdefault((workload.cluster_queue, pair), []).append((key, since))
    return stands


def _pairs(found: QuotaCapacity, column: int) -> dict[tuple[int, str], int]:
    """Return the lent amounts of one column by (lender's node, borrowing ClusterQueue)."""
    tree, usage = found.tree, found.usage
    spare = {node: found.lent(node, column) for node in range(len(tree.names))}
    need = {
        node: max(0, usage.used(node, column) - tree.nominal[node * tree.width + column])
        for node in tree.queues.values()
        if tree.parent[node] >= 0
    }
    pairs: dict[tuple[int, str], int] = {}
    for cohort in sorted(tree.cohorts.values(), key=lambda node: (-len(tree.paths[node]), node)):
        borrowers = {node: left for node, left in need.items() if left and cohort in tree.paths[node]}
        if not borrowers:
            continue
        lenders = [node for node, left in spare.items() if left and (node == cohort or cohort in tree.paths[node])]
        for lender in lenders:
            # A queue does not borrow from itself: what it lends is below its nominal quota.
            for borrower, part in split(spare[lender], {n: left for n, left in borrowers.items() if left}).items():
                if part:
                    key = lender, tree.names[borrower]
                    pairs[key] = pairs.get(key, 0) + part
                    spare[lender] -= part
                    need[borrower] -= part
                    borrowers[borrower] -= part
    return pairs

"""Fair shares of cohorts and queues, the admission order of the next cycle, and borrowed quota.

Shares are Kueue's dominant resource shares, in thousandths. They are computed even if fair sharing is off, but decide
the order only if it is on. Borrowed quota is attributed to workloads (those that a reclaim would preempt first) and to
loans: lender, borrower, flavor, and number of GPUs or other accelerators.
"""

from collections.abc import Container, Iterator, Mapping, Sequence

from msgspec import Struct

from gpuconsole.insight.derived import memoized
from gpuconsole.insight.index.capacity import QuotaCapacity, capacity, split
from gpuconsole.insight.index.demand import FlavorResource, held, quota_accelerators, quota_unit
from gpuconsole.insight.index.queues import queue_index
from gpuconsole.model.clock import Time
from gpuconsole.model.devices import WHOLE_GPU
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.model.workloads import Workload
from gpuconsole.scheduling.kueue.assignment import FlavorAssignmentMode
from gpuconsole.scheduling.kueue.config import KueueConfig
from gpuconsole.scheduling.kueue.entry import CycleEntry, EntryStatus
from gpuconsole.scheduling.kueue.preemption.fair_sharing import share_of, share_text
from gpuconsole.scheduling.kueue.quota_tree import UsageTree
from gpuconsole.scheduling.kueue.session import KueueSession


class ResourceShare(Struct, frozen=True, kw_only=True):
    """One resource in the calculation of a share, over all flavors, in base units."""

    resource: str
    borrowed: int
    """Usage above the subtree quota of the node."""
    lendable: int
    """Total lendable quota of its parent."""
    ratio: float
    """borrowed x 1000 / lendable."""


class NodeShare(Struct, frozen=True, kw_only=True):
    """Fair share of a cohort or ClusterQueue, with its calculation."""

    kind: str
    """`cohort` or `queue`."""
    name: str
    depth: int
    """0 for a root."""
    weight: float | None
    """None for an implicit cohort (no Cohort object exists)."""
    dominant: str
    """The dominant resource; empty for a node that does not borrow, or cannot borrow."""
    parts: tuple[ResourceShare, ...]
    """By resource, the dominant one first."""
    share: str
    """The dominant ratio divided by the weight; `+Inf` for one that borrows with weight 0."""


class CycleHead(Struct, frozen=True, kw_only=True):
    """The head of a queue, at its rank in the admission order of one cycle."""

    place: int
    """Rank, from 1."""
    workload: str
    queue: str
    priority: int
    queued: Time
    """Queue-order timestamp."""
    borrows: int
    """Borrowing level; 0 within nominal quota."""
    share_with_it: str | None
    """Share of its queue if it is admitted first in this cycle; None if no flavor fits."""
    outcome: str
    """`admitted`, `preempts` or `waits` in a simulated cycle of all heads."""
    message: str


class ShareReport(Struct, frozen=True, kw_only=True):
    """Fair shares and admission order of Kueue."""

    fair_sharing: bool
    order: str
    """Sort criteria of the heads in a cycle."""
    within: str
    """Sort criteria within a queue."""
    tree: tuple[NodeShare, ...]
    """Depth first from each root, siblings by descending share."""
    turns: tuple[CycleHead, ...]
    """The heads in admission order."""


def shares(session: KueueSession, now: Time) -> ShareReport:
    """Compute the fair shares, and the admission order of the next cycle on a fork of the session."""
    usage, config = session.usage_tree.copy(), session.config
    declared = session.compiled_config.objects.cohorts
    roots = sorted(node for node in range(len(usage.tree.names)) if usage.tree.parent[node] < 0)
    return ShareReport(
        fair_sharing=config.fair_sharing,
        order=order_of(config),
        within=_within(config),
        tree=tuple(found for root in roots for found in _below(usage, declared, root)),
        turns=tuple(
            _turn(usage, place, entry) for place, entry in enumerate(session.heads_in_processing_order(now), start=1)
        ),
    )


def order_of(config: KueueConfig) -> str:
    """Describe the sort criteria of the heads in a cycle."""
    priority = "higher priority, then " if config.enabled("PrioritySortingWithinCohort") else ""
    if not config.fair_sharing:
        return f"lower borrowing level, then {priority}oldest"
    borrowing = "without borrowing, then " if config.enabled("FairSharingPrioritizeNonBorrowing") else ""
    return (
        f"{borrowing}lower share with the workload included, at each cohort from the root down, then {priority}oldest"
    )


def _within(config: KueueConfig) -> str:
    if config.admission_fair_sharing is not None:
        return "LocalQueue with the lower recent usage, then higher priority, then oldest"
    return "higher priority, then oldest"


def _below(usage: UsageTree, declared: Container[str], root: int) -> Iterator[NodeShare]:
    """Walk the tree from a root without recursion: a chain of cohorts may be deeper than the stack."""
    tree, waiting = usage.tree, [(root, 0)]
    while waiting:
        node, depth = waiting.pop()
        yield _share(usage, declared, node, depth)
        members = tree.children[node] + tree.queue_children[node] if node < len(tree.cohorts) else []
        members.sort(key=lambda member: (*_descending(usage, member), tree.names[member]))
        waiting += [(member, depth + 1) for member in reversed(members)]


def _descending(usage: UsageTree, node: int) -> tuple[bool, float]:
    infinite, value = share_of(usage, node).key
    return not infinite, -value


def _share(usage: UsageTree, declared: Container[str], node: int, depth: int) -> NodeShare:
    tree, found = usage.tree, share_of(usage, node)
    borrowed: dict[str, int] = {}
    for column in found.borrowed:
        at = node * tree.width + column
        resource = tree.columns[column][1]
        borrowed[resource] = borrowed.get(resource, 0) + usage.usage[at] - tree.subtree[at]
    lendable = tree.lendable[tree.parent[node]] if borrowed else {}
    parts = [_part(resource, amount, lendable[resource]) for resource, amount in borrowed.items()]
    cohort = node < len(tree.cohorts)
    return NodeShare(
        kind="cohort" if cohort else "queue",
        name=tree.names[node],
        depth=depth,
        weight=None if cohort and tree.names[node] not in declared else found.weight,
        dominant=found.dominant,
        parts=tuple(sorted(parts, key=lambda part: (part.resource != found.dominant, part.resource))),
        share=share_text(found),
    )


def _part(resource: str, borrowed: int, lendable: int) -> ResourceShare:
    ratio = borrowed * 1000.0 / lendable if lendable > 0 else 0.0
    return ResourceShare(resource=resource, borrowed=borrowed, lendable=lendable, ratio=ratio)


def _turn(usage: UsageTree, place: int, entry: CycleEntry) -> CycleHead:
    workload, node, uses = entry.request.workload, entry.rules.node, entry.assignment.quota_usage
    with_it = None
    if entry.assignment.mode != FlavorAssignmentMode.NO_FIT:
        usage.add(node, uses)
        with_it = share_text(share_of(usage, node))
        usage.remove(node, uses)
    outcome = "admitted" if entry.status is EntryStatus.ASSUMED else "preempts" if entry.targets else "waits"
    return CycleHead(
        place=place,
        workload=workload.key,
        queue=entry.rules.name,
        priority=entry.request.priority,
        queued=entry.request.timestamp,
        borrows=entry.assignment.borrowing_height,
        share_with_it=with_it,
        outcome=outcome,
        message="" if entry.status is EntryStatus.ASSUMED else entry.message,
    )


def over_nominal(snapshot: Snapshot) -> dict[str, dict[FlavorResource, int]]:
    """ClusterQueue → usage of accelerators beyond its nominal quota, by (flavor, resource); others are left out.

    Queues that are not loaded are left out (see `unseen_queues`).
    """
    over: dict[str, dict[FlavorResource, int]] = {}
    resources = quota_accelerators(snapshot)
    for name, index in queue_index(snapshot).by_queue.items():
        usage = index.usage
        queue = snapshot.cluster_queues.get(name)
        if queue is None:
            continue
        quotas = queue.quotas()
        beyond = {
            pair: used - (quotas[pair].nominal if pair in quotas else 0)
            for pair, used in usage.items()
            if pair[1] in resources and used > (quotas[pair].nominal if pair in quotas else 0)
        }
        if beyond:
            over[name] = beyond
    return over


@memoized("workloads", "local_queues", "cluster_queues")
def unseen_queues(snapshot: Snapshot) -> tuple[str, ...]:
    """List the ClusterQueues that hold workloads and are not in the Snapshot: not visible, or deleted."""
    found = queue_index(snapshot).by_queue.items()
    return tuple(
        sorted(
            name
            for name, index in found
            if name and name not in snapshot.cluster_queues and (index.holding or index.queue)
        )
    )


@memoized(
    "workloads", "local_queues", "cluster_queues", "cohorts", "nodes", "device_classes", "resource_claim_templates"
)
def borrowed_gpus(snapshot: Snapshot) -> dict[str, int]:
    """Workload → number of its borrowed accelerators; workloads without any are left out."""
    return {key: sum(parts.values()) for key, parts in borrowed_parts(snapshot).items()}


@memoized(
    "workloads", "local_queues", "cluster_queues", "cohorts", "nodes", "device_classes", "resource_claim_templates"
)
def borrowed_parts(snapshot: Snapshot) -> dict[str, dict[FlavorResource, int]]:
    """Workload → number of its borrowed accelerators, by (flavor, resource); workloads without any are left out.

    Quota has no owner inside a ClusterQueue, so this is an attribution: the borrowed part is charged in the order in
    which Kueue would choose victims there, lowest priority first, then the newest reservation.
    """
    return _charged(snapshot, over_nominal(snapshot))


def _charged(snapshot: Snapshot, over: dict[str, dict[FlavorResource, int]]) -> dict[str, dict[FlavorResource, int]]:
    charged: dict[str, dict[FlavorResource, int]] = {}
    for queue, beyond in over.items():
        for workload in sorted(queue_index(snapshot).cluster_queue(queue).holding, key=victim_order):
            borrows = _charge(workload, beyond)
            if borrows:
                charged[workload.key] = borrows
    return charged


def victim_order(workload: Workload) -> tuple[int, int, str]:
    """Sort key of victims inside one ClusterQueue: lowest priority, newest reservation, uid (Kueue §7.3)."""
    reserved = workload.condition("QuotaReserved")
    return workload.priority, -(reserved.since if reserved is not None else 0), workload.uid


def _charge(workload: Workload, left: dict[FlavorResource, int]) -> dict[FlavorResource, int]:
    parts: dict[FlavorResource, int] = {}
    for pair, amount in held(workload):
        part = min(amount, left.get(pair, 0))
        if part > 0:
            left[pair] -= part
            parts[pair] = parts.get(pair, 0) + part
    return parts


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

    Lent amounts are attributed as in `capacity.lent`. The lender of a borrower's GPUs is attributed from the nearest
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
        node: max(0, usage.usage_of(node, column) - tree.nominal[node * tree.width + column])
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

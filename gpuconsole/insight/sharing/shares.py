"""Fair shares of queues and cohorts with their calculation, and the admission order of the next cycle.

The shares are Kueue's dominant resource shares, in thousandths. They are computed even if fair sharing is off, but
decide the order only if it is on.
"""

from collections.abc import Container, Iterator

from msgspec import Struct

from gpuconsole.model.clock import Time
from gpuconsole.scheduling.kueue.assignment import FlavorAssignmentMode
from gpuconsole.scheduling.kueue.config import KueueConfig
from gpuconsole.scheduling.kueue.entry import CycleEntry, EntryStatus
from gpuconsole.scheduling.kueue.fair_sharing import share, share_text
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
    """The dominant resource; empty for a node that does not borrow, or cannot."""
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
    """`admitted`, `preempts` or `waits`, if one cycle processes all heads."""
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


def shares(session: KueueSession, now: Time) -> ShareReport:
    """Compute the fair shares, and the admission order of the next cycle on a fork of the session."""
    usage, config = session.tree.copy(), session.config
    declared = session.setup.objects.cohorts
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
    infinite, value = share(usage, node).key
    return not infinite, -value


def _share(usage: UsageTree, declared: Container[str], node: int, depth: int) -> NodeShare:
    tree, found = usage.tree, share(usage, node)
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
    workload, node, uses = entry.request.workload, entry.rules.node, entry.assignment.uses
    with_it = None
    if entry.assignment.mode != FlavorAssignmentMode.NO_FIT:
        usage.add(node, uses)
        with_it = share_text(share(usage, node))
        usage.remove(node, uses)
    outcome = "admitted" if entry.status is EntryStatus.ASSUMED else "preempts" if entry.targets else "waits"
    return CycleHead(
        place=place,
        workload=workload.key,
        queue=entry.rules.name,
        priority=entry.request.priority,
        queued=entry.request.timestamp,
        borrows=entry.assignment.borrows,
        share_with_it=with_it,
        outcome=outcome,
        message="" if entry.status is EntryStatus.ASSUMED else entry.message,
    )

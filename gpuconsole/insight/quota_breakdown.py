"""Quota arithmetic of a flavor and a resource: needed, unused, available at each cohort level, and its users."""

from collections.abc import Iterator
from itertools import pairwise

from msgspec import Struct

from gpuconsole.insight.demand import held
from gpuconsole.insight.shortage import MOST_HOLDERS, holders
from gpuconsole.insight.unblock.needs import gaps
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.scheduling.kueue.entry import CycleEntry
from gpuconsole.scheduling.kueue.quota_tree import UsageTree
from gpuconsole.scheduling.kueue.session import KueueSession


class QuotaLevel(Struct, frozen=True, kw_only=True):
    """Quota of a ClusterQueue, or of a Cohort above it; amounts in base units."""

    kind: str
    name: str
    nominal: int
    quota: int
    """Its nominal quota and what its members lend to it."""
    used: int
    unused: int
    """Usage of that quota."""
    withheld: int
    """Part of its unused quota that lending limits keep from the levels above."""
    borrowing_limit: int | None
    available: int
    """Available to the level below (of a ClusterQueue: to its workloads), by its own quota and by borrowing."""


class LendingLimitGap(Struct, frozen=True, kw_only=True):
    """A member of a cohort on the path whose lending limit withholds unused quota; amounts in base units."""

    kind: str
    name: str
    nominal: int
    quota: int
    """Its nominal quota and what its members lend to it."""
    lending_limit: int
    withheld: int
    """Unused quota that is never lent."""


class QuotaUser(Struct, frozen=True):
    """A workload that uses the resource."""

    workload: str
    queue: str
    amount: int


class QuotaBreakdown(Struct, frozen=True, kw_only=True):
    """Needed against available quota of one flavor and resource."""

    flavor: str
    resource: str
    needed: int
    available: int
    ceiling: int
    """Maximum capacity of its ClusterQueue: nominal quota and all that it may borrow."""
    levels: tuple[QuotaLevel, ...]
    """The levels from its ClusterQueue up to the root cohort."""
    blocked_at: str
    """The limit: `borrowingLimit of ClusterQueue q`, or the level that has no more quota."""
    keepers: tuple[LendingLimitGap, ...]
    """Members that could lend more, the largest amount first; only if no borrowing limit is the obstacle."""
    users: tuple[QuotaUser, ...]

    @property
    def short(self) -> int:
        """Amount that is missing; 0 if enough is available."""
        return max(0, self.needed - self.available)


def quota_breakdowns(snapshot: Snapshot, session: KueueSession, entry: CycleEntry) -> tuple[QuotaBreakdown, ...]:
    """Return the arithmetic of every flavor and resource of which the workload lacks quota or exceeds the capacity."""
    return tuple(
        _quota_breakdown(snapshot, session.tree, entry, gap.flavor, resource, gap.wanted[resource])
        for gap in gaps(session, entry)
        for resource in gap.short
    )


def _quota_breakdown(
    snapshot: Snapshot, usage: UsageTree, entry: CycleEntry, flavor: str, resource: str, needed: int
) -> QuotaBreakdown:
    tree, node = usage.tree, entry.rules.node
    column = tree.numbers[flavor, resource]
    path = (node, *tree.paths[node])
    limited = _limited(usage, path, column, needed)
    return QuotaBreakdown(
        flavor=flavor,
        resource=resource,
        needed=needed,
        available=max(0, usage.available(node, column)),
        ceiling=tree.potential[node * tree.width + column],
        levels=tuple(_level(usage, level, column) for level in path),
        blocked_at=_blocked_at(usage, path, column, limited),
        keepers=tuple(_lending_limit_gaps(usage, path, column)) if limited is None else (),
        users=tuple(_users(snapshot, entry.rules.name, flavor, resource)),
    )


def _blocked_at(usage: UsageTree, path: tuple[int, ...], column: int, limited: int | None) -> str:
    """Name the limit: a borrowing limit, or the root; both if a borrowing limit allows even less than the root."""
    if limited is not None:
        return f"borrowingLimit of {_called(usage, limited)}"
    tree, root = usage.tree, _called(usage, path[-1])
    for node, above in pairwise(path):
        limit = tree.borrowing_limit[node * tree.width + column]
        more = usage.unlent(node, column) + max(0, usage.available(above, column))
        if limit is not None and usage.available(node, column) < more:
            return f"borrowingLimit of {_called(usage, node)}, and {root}"
    return root


def _called(usage: UsageTree, node: int) -> str:
    return f"{_kind(usage, node)} {usage.tree.names[node]}"


def _kind(usage: UsageTree, node: int) -> str:
    return "Cohort" if node < len(usage.tree.cohorts) else "ClusterQueue"


def _level(usage: UsageTree, node: int, column: int) -> QuotaLevel:
    tree = usage.tree
    at = node * tree.width + column
    return QuotaLevel(
        kind=_kind(usage, node),
        name=tree.names[node],
        nominal=tree.nominal[at],
        quota=tree.subtree[at],
        used=usage.used(node, column),
        unused=max(0, tree.subtree[at] - usage.used(node, column)),
        withheld=usage.unlent(node, column),
        borrowing_limit=tree.borrowing_limit[at],
        available=max(0, usage.available(node, column)),
    )


def _limited(usage: UsageTree, path: tuple[int, ...], column: int, needed: int) -> int | None:
    """Return the lowest level with too little available although the one above has enough; None if it is the root."""
    for node, above in pairwise(path):
        unlent = usage.unlent(node, column)
        if max(0, usage.available(above, column)) + unlent >= needed:
            return node
        needed -= unlent
    return None


def _lending_limit_gaps(usage: UsageTree, path: tuple[int, ...], column: int) -> list[LendingLimitGap]:
    """List the members of the tree outside the path whose lending limits withhold unused quota."""
    tree = usage.tree
    found = [
        _lending_limit_gap(usage, member, column)
        for member in range(len(tree.names))
        if path[-1] in tree.paths[member] and member not in path and usage.unlent(member, column)
    ]
    return sorted(found, key=lambda keeper: (-keeper.withheld, keeper.kind, keeper.name))


def _lending_limit_gap(usage: UsageTree, node: int, column: int) -> LendingLimitGap:
    seen, never_lent = _level(usage, node, column), usage.tree.local[node * usage.tree.width + column]
    return LendingLimitGap(
        kind=seen.kind,
        name=seen.name,
        nominal=seen.nominal,
        quota=seen.quota,
        lending_limit=seen.quota - never_lent,
        withheld=seen.withheld,
    )


def _users(snapshot: Snapshot, queue: str, flavor: str, resource: str) -> Iterator[QuotaUser]:
    for workload in holders(snapshot, queue, [(flavor, resource)])[:MOST_HOLDERS]:
        amount = sum(amount for pair, amount in held(workload) if pair == (flavor, resource))
        yield QuotaUser(workload.key, workload.cluster_queue, amount)

"""The arithmetic of a flavor and a resource: needed, unused here, what each level above still gives, who uses it."""

from collections.abc import Iterator
from itertools import pairwise

from msgspec import Struct

from gpuconsole.insight.demand import held
from gpuconsole.insight.shortage import MOST_HOLDERS, holders
from gpuconsole.insight.unblock.needs import gaps
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.scheduling.kueue.entry import Entry
from gpuconsole.scheduling.kueue.session import Session
from gpuconsole.scheduling.kueue.usage import UsageTree


class Level(Struct, frozen=True, kw_only=True):
    """A ClusterQueue, or a Cohort above it; amounts in base units."""

    kind: str
    name: str
    nominal: int
    quota: int
    """Its own and what those below share with it."""
    used: int
    unused: int
    """Of that quota."""
    withheld: int
    """Of its unused quota, what lending limits keep from those above."""
    borrowing_limit: int | None
    available: int
    """What it still gives to those below (a ClusterQueue: to its workloads), by its own quota and by borrowing."""


class Keeper(Struct, frozen=True, kw_only=True):
    """A member of a cohort on the way up whose lending limit withholds idle quota; amounts in base units."""

    kind: str
    name: str
    nominal: int
    quota: int
    """Its own and what those below share with it."""
    lending_limit: int
    withheld: int
    """Idle, and never lent."""


class User(Struct, frozen=True):
    """A workload that uses some of it."""

    workload: str
    queue: str
    amount: int


class Room(Struct, frozen=True, kw_only=True):
    """What is needed of one flavor and resource against what is there."""

    flavor: str
    resource: str
    needed: int
    available: int
    ceiling: int
    """Most that its ClusterQueue could ever have: its own quota and all that it may borrow."""
    levels: tuple[Level, ...]
    """From its ClusterQueue up to the root."""
    blocked_at: str
    """Where in the path it ends: `borrowingLimit of ClusterQueue q`, or the name of the level that has no more."""
    keepers: tuple[Keeper, ...]
    """Where no borrowing limit ends it: who could lend more than it does, the most first."""
    users: tuple[User, ...]

    @property
    def short(self) -> int:
        return max(0, self.needed - self.available)


def room(snapshot: Snapshot, session: Session, entry: Entry) -> tuple[Room, ...]:
    """The arithmetic of everything that the workload lacks; of what exceeds all that there is as well."""
    return tuple(
        _room(snapshot, session.tree, entry, gap.flavor, resource, gap.wanted[resource])
        for gap in gaps(session, entry)
        for resource in gap.short
    )


def _room(snapshot: Snapshot, usage: UsageTree, entry: Entry, flavor: str, resource: str, needed: int) -> Room:
    tree, node = usage.tree, entry.rules.node
    column = tree.numbers[flavor, resource]
    path = (node, *tree.paths[node])
    limited = _limited(usage, path, column, needed)
    return Room(
        flavor=flavor,
        resource=resource,
        needed=needed,
        available=max(0, usage.available(node, column)),
        ceiling=tree.potential[node * tree.width + column],
        levels=tuple(_level(usage, level, column) for level in path),
        blocked_at=_blocked_at(usage, path, column, limited),
        keepers=tuple(_keepers(usage, path, column)) if limited is None else (),
        users=tuple(_users(snapshot, entry.rules.name, flavor, resource)),
    )


def _blocked_at(usage: UsageTree, path: tuple[int, ...], column: int, limited: int | None) -> str:
    """What would have to give: a borrowing limit, or the root; both where a limit gives even less than the root."""
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


def _level(usage: UsageTree, node: int, column: int) -> Level:
    tree = usage.tree
    at = node * tree.width + column
    return Level(
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
    """The first level from below that does not give enough though the one above it would; None if it is the root."""
    for node, above in pairwise(path):
        unlent = usage.unlent(node, column)
        if max(0, usage.available(above, column)) + unlent >= needed:
            return node
        needed -= unlent
    return None


def _keepers(usage: UsageTree, path: tuple[int, ...], column: int) -> list[Keeper]:
    """The members of the tree beside the path with idle quota that nobody above them ever sees."""
    tree = usage.tree
    found = [
        _keeper(usage, member, column)
        for member in range(len(tree.names))
        if path[-1] in tree.paths[member] and member not in path and usage.unlent(member, column)
    ]
    return sorted(found, key=lambda keeper: (-keeper.withheld, keeper.kind, keeper.name))


def _keeper(usage: UsageTree, node: int, column: int) -> Keeper:
    seen, never_lent = _level(usage, node, column), usage.tree.local[node * usage.tree.width + column]
    return Keeper(
        kind=seen.kind,
        name=seen.name,
        nominal=seen.nominal,
        quota=seen.quota,
        lending_limit=seen.quota - never_lent,
        withheld=seen.withheld,
    )


def _users(snapshot: Snapshot, queue: str, flavor: str, resource: str) -> Iterator[User]:
    for workload in holders(snapshot, queue, [(flavor, resource)])[:MOST_HOLDERS]:
        amount = sum(amount for pair, amount in held(workload) if pair == (flavor, resource))
        yield User(workload.key, workload.cluster_queue, amount)

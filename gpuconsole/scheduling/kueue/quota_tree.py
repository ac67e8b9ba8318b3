"""The quota tree: nominal quotas, limits and usage of every ClusterQueue and cohort.

Nodes and (flavor, resource) columns are numbered from 0, and quotas and usage are flat lists: the amount of node `n` in
column `c` is at index `n * width + c`. A `QuotaTree` is frozen. It is rebuilt when a quota, a cohort or a queue
changes, and shared by all forks until then; columns keep their numbers. A `UsageTree` mutates.

What a node uses beyond its quota that is never lent counts in its parent too. Removing quota never evicts, so available
quota may be negative. Arithmetic: Kueue 0.19 pkg/cache/scheduler/resource_node.go.
"""

from collections.abc import Iterable, Mapping

from gpuconsole.model.queues import ClusterQueue, Cohort, Quota
from gpuconsole.model.resources import MAX

Column = tuple[str, str]
"""(flavor, resource)"""


class QuotaTree:
    """Cohorts and ClusterQueues with their quotas, summed over subtrees. Frozen after construction."""

    __slots__ = (
        "borrowing_limit",
        "ceiling",
        "children",
        "cohorts",
        "columns",
        "height",
        "in_cycle",
        "lendable",
        "local",
        "named",
        "names",
        "nominal",
        "numbers",
        "parent",
        "paths",
        "potential",
        "queue_children",
        "queues",
        "subtree",
        "weights",
        "width",
    )

    def __init__(
        self,
        queues: Mapping[str, ClusterQueue],
        cohorts: Mapping[str, Cohort],
        columns: Iterable[Column] = (),
    ) -> None:
        parents = _parents(queues, cohorts)
        self.in_cycle = _cyclic(parents)
        """Names of cohorts that are their own ancestor, or below one that is."""
        names = sorted(name for name in parents if name not in self.in_cycle)
        self.cohorts = {name: number for number, name in enumerate(names)}
        sound = sorted(name for name, queue in queues.items() if queue.cohort not in self.in_cycle)
        self.queues = {name: len(names) + number for number, name in enumerate(sound)}
        self.names = [*names, *sound]
        up = [parents[name] for name in names] + [queues[name].cohort for name in sound]
        self.parent = [self.cohorts[name] if name else -1 for name in up]
        self.children: list[list[int]] = [[] for _ in self.names]
        self.queue_children: list[list[int]] = [[] for _ in self.names]
        for node, parent in enumerate(self.parent):
            if parent >= 0:
                (self.children if node < len(names) else self.queue_children)[parent].append(node)
        self.paths = [self._path(node) for node in range(len(self.names))]
        """Ancestors of each node, parent first, root last."""
        self.height = [0] * len(self.names)
        objs: list[ClusterQueue | Cohort | None] = [*(cohorts.get(n) for n in names), *(queues[n] for n in sound)]
        # A cohort without an object has weight 0; it is a root, so its share is 0 anyway.
        self.weights = [obj.fair_weight if obj is not None else 0.0 for obj in objs]
        quotas = [obj.quotas() if obj is not None else {} for obj in objs]
        self.columns = list(dict.fromkeys([*columns, *(column for quota in quotas for column in quota)]))
        self.numbers = {column: number for number, column in enumerate(self.columns)}
        self.width = len(self.columns)
        self._sum_subtrees(quotas)
        self.named = self._name_columns(quotas)
        """Columns in which each node, or one below it, has a quota."""
        self.lendable = [self._lendable(node) for node in range(len(names))]
        """For each cohort: resource → most that it could provide, over all flavors."""

    def root(self, node: int) -> int:
        """Return the root of a node's tree; the node itself if it has no parent."""
        path = self.paths[node]
        return path[-1] if path else node

    def subtree_queues(self, node: int) -> Iterable[int]:
        """Yield the ClusterQueues at and below a node, child cohorts first, each level by name."""
        if node >= len(self.cohorts):
            yield node
            return
        for child in self.children[node]:
            yield from self.subtree_queues(child)
        yield from self.queue_children[node]

    def _path(self, node: int) -> tuple[int, ...]:
        path = []
        while (node := self.parent[node]) >= 0:
            path.append(node)
        return tuple(path)

    def _name_columns(self, quotas: list[dict[Column, Quota]]) -> list[list[int]]:
        named: list[set[int]] = [{self.numbers[column] for column in quota} for quota in quotas]
        for node in reversed(self._nodes_top_down()):
            for child in self.children[node] + self.queue_children[node]:
                named[node] |= named[child]
        return [sorted(columns) for columns in named]

    def _lendable(self, cohort: int) -> dict[str, int]:
        total: dict[str, int] = {}
        for column, (_, resource) in enumerate(self.columns):
            total[resource] = total.get(resource, 0) + self.potential[cohort * self.width + column]
        return total

    def _sum_subtrees(self, quotas: list[dict[Column, Quota]]) -> None:
        size = len(self.names) * self.width
        self.nominal, self.subtree, self.local, self.potential = [0] * size, [0] * size, [0] * size, [0] * size
        """Own nominal quota; that of the subtree; the part of it that is never lent; the most that can be used."""
        self.borrowing_limit: list[int | None] = [None] * size
        self.ceiling: list[int | None] = [None] * size
        """Most usage of a node that may count in its parent: lent quota plus borrowing limit; None = unlimited."""
        downward = self._nodes_top_down()
        for node in reversed(downward):
            self._sum_node(node, quotas[node])
        for node in downward:
            self._set_limits(node, quotas[node])

    def _nodes_top_down(self) -> list[int]:
        """Return all nodes, parents before their children."""
        return sorted(range(len(self.names)), key=lambda node: len(self.paths[node]))

    def _sum_node(self, node: int, quotas: Mapping[Column, Quota]) -> None:
        below = self.children[node] + self.queue_children[node]
        self.height[node] = max([1 + self.height[child] for child in below], default=0)
        for column in range(self.width):
            at = node * self.width + column
            quota = quotas.get(self.columns[column])
            total = quota.nominal if quota is not None else 0
            self.nominal[at] = total
            for child in below:
                index = child * self.width + column
                total += self.subtree[index] - self.local[index]
            self.subtree[at] = min(MAX, total)
            if quota is not None and quota.lending_limit is not None:
                self.local[at] = max(0, self.subtree[at] - quota.lending_limit)

    def _set_limits(self, node: int, quotas: Mapping[Column, Quota]) -> None:
        for column in range(self.width):
            at = node * self.width + column
            quota = quotas.get(self.columns[column])
            limit = quota.borrowing_limit if quota is not None else None
            self.borrowing_limit[at] = limit
            parent = self.parent[node]
            if parent < 0:
                self.potential[at] = self.subtree[at]
                continue
            reach = self.local[at] + self.potential[parent * self.width + column]
            if limit is not None:
                self.ceiling[at] = self.subtree[at] - self.local[at] + limit
                reach = min(reach, self.subtree[at] + limit)
            self.potential[at] = min(MAX, reach)


def _parents(queues: Mapping[str, ClusterQueue], cohorts: Mapping[str, Cohort]) -> dict[str, str]:
    """Cohort → its parent; empty for a root and for a cohort that is only referenced."""
    parents = {name: cohort.parent for name, cohort in cohorts.items()}
    for name in [cohort.parent for cohort in cohorts.values()] + [queue.cohort for queue in queues.values()]:
        if name:
            parents.setdefault(name, "")
    return parents


def _cyclic(parents: Mapping[str, str]) -> frozenset[str]:
    broken = set()
    for start in parents:
        seen = {start}
        name = start
        while name := parents[name]:
            if name in seen:
                broken.add(start)
                break
            seen.add(name)
    return frozenset(broken)


Uses = Iterable[tuple[int, int]]
"""(column, amount) pairs."""


class UsageTree:
    """Usage of every node and column. Mutates by `add` and `remove`."""

    __slots__ = ("tree", "usage")

    def __init__(self, tree: QuotaTree, usage: list[int] | None = None) -> None:
        self.tree = tree
        self.usage = usage if usage is not None else [0] * len(tree.nominal)

    def copy(self) -> "UsageTree":
        """Return an independent copy of the usage; both share the frozen QuotaTree."""
        return UsageTree(self.tree, self.usage[:])

    def add(self, node: int, amounts: Uses) -> None:
        """Count amounts at a node; what exceeds its unused quota that is never lent counts in its ancestors too."""
        tree, usage, width = self.tree, self.usage, self.tree.width
        for column, amount in amounts:
            at = node
            while True:
                index = at * width + column
                unlent = max(0, tree.local[index] - usage[index])
                usage[index] += amount
                at = tree.parent[at]
                if at < 0 or amount <= unlent:
                    break
                amount -= unlent

    def remove(self, node: int, amounts: Uses) -> None:
        """The inverse of `add`."""
        tree, usage, width = self.tree, self.usage, self.tree.width
        for column, amount in amounts:
            at = node
            while True:
                index = at * width + column
                beyond = usage[index] - tree.local[index]
                usage[index] -= amount
                at = tree.parent[at]
                if at < 0 or beyond <= 0:
                    break
                amount = min(amount, beyond)

    def available(self, node: int, column: int) -> int:
        """Return how much more the node can use, by its own quota and by borrowing; negative if usage exceeds quota."""
        tree, usage = self.tree, self.usage
        index = node * tree.width + column
        parent = tree.parent[node]
        if parent < 0:
            return tree.subtree[index] - usage[index]
        above = self.available(parent, column)
        own = tree.local[index] - usage[index]
        ceiling = tree.ceiling[index]
        if ceiling is not None:
            above = min(above, ceiling + min(0, own))
        return above + own if own > 0 else above

    def fits_available(self, node: int, amounts: Uses) -> bool:
        """True if every amount is available; amounts of 0 always are."""
        return not any(amount > 0 and amount > self.available(node, column) for column, amount in amounts)

    def usage_of(self, node: int, column: int) -> int:
        """Return the usage of a node in a column."""
        return self.usage[node * self.tree.width + column]

    def unlent_quota(self, node: int, column: int) -> int:
        """Return the unused part of the node's quota that is never lent."""
        index = node * self.tree.width + column
        return max(0, self.tree.local[index] - self.usage[index])

    def is_borrowing(self, node: int, column: int, amount: int = 0) -> bool:
        """True if the node borrows: it uses more than its subtree's quota, or would with `amount` more."""
        index = node * self.tree.width + column
        return self.usage[index] + amount > self.tree.subtree[index]

    def is_within_nominal(self, node: int, columns: Iterable[int]) -> bool:
        """True if the node borrows in none of the columns."""
        usage, subtree = self.usage, self.tree.subtree
        base = node * self.tree.width
        for column in columns:  # noqa: SIM110 - the inner loop of preemption
            if usage[base + column] > subtree[base + column]:
                return False
        return True

    def borrowing_height(self, node: int, column: int, amount: int) -> tuple[int, bool]:
        """Height of the lowest cohort whose own quota could hold `amount`, and whether that cohort has a parent.

        0 means no borrowing; with no such cohort it is the root's height (FindHeightOfLowestSubtreeThatFits).
        """
        tree = self.tree
        path = tree.paths[node]
        if not path or not self.is_borrowing(node, column, amount):
            return 0, bool(path)
        rest = amount - self.unlent_quota(node, column)
        for cohort in path:
            if not self.is_borrowing(cohort, column, rest):
                return tree.height[cohort], tree.parent[cohort] >= 0
            rest -= self.unlent_quota(cohort, column)
        return tree.height[path[-1]], False

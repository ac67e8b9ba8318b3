"""Quota usage of the tree, and the quota that is left: `UsageTree` mutates, everything else reads it.

The usage of a node beyond its quota that is never lent counts in its parent. Removing quota never evicts, so the quota
that is left may be negative. Arithmetic: Kueue 0.19 pkg/cache/scheduler/resource_node.go.
"""

from collections.abc import Iterable

from gpuconsole.scheduling.kueue.tree import QuotaTree

Uses = Iterable[tuple[int, int]]
"""(column, amount) pairs."""


class UsageTree:
    """Usage of every node and column. Mutates by `add` and `remove`."""

    __slots__ = ("tree", "usage")

    def __init__(self, tree: QuotaTree, usage: list[int] | None = None) -> None:
        self.tree = tree
        self.usage = usage if usage is not None else [0] * len(tree.nominal)

    def copy(self) -> "UsageTree":
        """Return a copy that shares the tree."""
        return UsageTree(self.tree, self.usage[:])

    def add(self, node: int, uses: Uses) -> None:
        """Count amounts at a node; what exceeds its unused quota that is never lent counts in its ancestors too."""
        tree, usage, width = self.tree, self.usage, self.tree.width
        for column, amount in uses:
            at = node
            while True:
                index = at * width + column
                unlent = max(0, tree.local[index] - usage[index])
                usage[index] += amount
                at = tree.parent[at]
                if at < 0 or amount <= unlent:
                    break
                amount -= unlent

    def remove(self, node: int, uses: Uses) -> None:
        """The inverse of `add`."""
        tree, usage, width = self.tree, self.usage, self.tree.width
        for column, amount in uses:
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

    def fits(self, node: int, uses: Uses) -> bool:
        """True if every amount is available; amounts of 0 always are."""
        return not any(amount > 0 and amount > self.available(node, column) for column, amount in uses)

    def used(self, node: int, column: int) -> int:
        """Return the usage of a node in a column."""
        return self.usage[node * self.tree.width + column]

    def unlent(self, node: int, column: int) -> int:
        """Return the unused part of the node's quota that is never lent."""
        index = node * self.tree.width + column
        return max(0, self.tree.local[index] - self.usage[index])

    def over(self, node: int, column: int, amount: int = 0) -> bool:
        """True if the node borrows: it uses more than its subtree's quota, or would with `amount` more."""
        index = node * self.tree.width + column
        return self.usage[index] + amount > self.tree.subtree[index]

    def within(self, node: int, columns: Iterable[int]) -> bool:
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
        if not path or not self.over(node, column, amount):
            return 0, bool(path)
        rest = amount - self.unlent(node, column)
        for cohort in path:
            if not self.over(cohort, column, rest):
                return tree.height[cohort], tree.parent[cohort] >= 0
            rest -= self.unlent(cohort, column)
        return tree.height[path[-1]], False

"""The quota tree, numbered: nodes and (flavor, resource) columns are small integers, quotas are flat lists.

A tree is frozen. It is rebuilt when a quota, a cohort or a queue changes, and shared by all forks until then. The
amount of node `n` in column `c` is at index `n * width + c`. Columns keep their numbers when a tree is rebuilt.
Arithmetic: Kueue 0.19 pkg/cache/scheduler/resource_node.go.
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
        "broken",
        "ceiling",
        "children",
        "cohorts",
        "columns",
        "height",
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
        self.broken = _cyclic(parents)
        """Names of cohorts that are their own ancestor, or below one that is."""
        names = sorted(name for name in parents if name not in self.broken)
        self.cohorts = {name: number for number, name in enumerate(names)}
        sound = sorted(name for name, queue in queues.items() if queue.cohort not in self.broken)
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
        self._add_up(quotas)
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
        for node in reversed(self._downward()):
            for child in self.children[node] + self.queue_children[node]:
                named[node] |= named[child]
        return [sorted(columns) for columns in named]

    def _lendable(self, cohort: int) -> dict[str, int]:
        total: dict[str, int] = {}
        for column, (_, resource) in enumerate(self.columns):
            total[resource] = total.get(resource, 0) + self.potential[cohort * self.width + column]
        return total

    def _add_up(self, quotas: list[dict[Column, Quota]]) -> None:
        size = len(self.names) * self.width
        self.nominal, self.subtree, self.local, self.potential = [0] * size, [0] * size, [0] * size, [0] * size
        """Own nominal quota; that of the subtree; the part of it that is never lent; the most that can be used."""
        self.borrowing_limit: list[int | None] = [None] * size
        self.ceiling: list[int | None] = [None] * size
        """Most usage of a node that may count in its parent: lent quota plus borrowing limit; None = unlimited."""
        downward = self._downward()
        for node in reversed(downward):
            self._add_up_node(node, quotas[node])
        for node in downward:
            self._reach(node, quotas[node])

    def _downward(self) -> list[int]:
        """Return all nodes, parents before their children."""
        return sorted(range(len(self.names)), key=lambda node: len(self.paths[node]))

    def _add_up_node(self, node: int, quotas: Mapping[Column, Quota]) -> None:
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

    def _reach(self, node: int, quotas: Mapping[Column, Quota]) -> None:
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

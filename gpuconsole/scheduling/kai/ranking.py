"""Node rankings per class of tasks, cached and updated incrementally.

KAI scores every node for every task. Here equal nodes are scored once, later only changed nodes are scored again, and
scores that are relative to all nodes are computed once for nodes with equal values. The order is the same as KAI's:
by score, then by name.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from gpuconsole.scheduling.kai.api.nodes import KaiNodeInfo
from gpuconsole.scheduling.kai.api.tasks import PodInfo
from gpuconsole.scheduling.kai.functions import Measure, NodeSet, NoScore
from gpuconsole.scheduling.kai.messages import NodeError, misfit

if TYPE_CHECKING:
    from gpuconsole.scheduling.kai.session import KaiSession

MOST = 16
"""Most rankings, and most groupings of nodes, that a session keeps."""
_Class = tuple[float, tuple[float | None, ...]]
"""Sum of a node's scores that do not depend on other nodes, and its measures."""


class _Outcome(Struct, frozen=True):
    """Result of a node for a task; a node without `base` is left out of the ranking."""

    measures: tuple[float | None, ...]
    lacking: bool = False
    """Its idle and releasing resources are too few."""
    refused: bool = False
    """A fixed predicate excludes it."""
    base: float | None = None


class Rankings:
    """The newest rankings of a session, by set of nodes and shape of task. Mutates."""

    def __init__(self, session: KaiSession) -> None:
        self._session = session
        self._kept: dict[Hashable, Ranking] = {}
        self._groups: dict[int, Groups] = {}

    def of(self, task: PodInfo, nodes: NodeSet) -> Ranking:
        """The ranking of these nodes for the task, up to date."""
        functions = self._session.functions
        key = (id(nodes), task.shape, tuple(ask(task) for ask in functions.standing))
        found = self._kept.get(key)
        if found is None:
            if len(self._kept) >= MOST:
                del self._kept[next(iter(self._kept))]
            found = self._kept[key] = Ranking(self._session, task, self._grouped(nodes))
        found.refresh(task)
        return found

    def _grouped(self, nodes: NodeSet) -> Groups:
        found = self._groups.get(id(nodes))
        if found is None:
            if len(self._groups) >= MOST:
                del self._groups[next(iter(self._groups))]
            found = self._groups[id(nodes)] = Groups(nodes, self._session.changes)
        found.refresh()
        return found


class Groups:
    """One set of nodes, grouped by `KaiNodeInfo.kind`, for all shapes of tasks. Mutates."""

    def __init__(self, nodes: NodeSet, changes: Sequence[str]) -> None:
        self._nodes = nodes
        """Held so that its id, a key of groupings and rankings, is not reused."""
        self._changes, self._seen = changes, len(changes)
        self.by_name = {node.name: node for node in sorted(nodes, key=lambda node: node.name)}
        self._kinds: dict[Hashable, int] = {}
        """Kind of nodes → its number, which is quicker to look up."""
        self._kind_of: dict[str, tuple[Hashable, int]] = {}
        self.names: dict[int, list[str]] = {}
        """The nodes of each kind, by name."""
        self._listed = {name: self.kind(name) for name in self.by_name}
        """The kind under which `names` lists each node; `kind` may already be newer."""
        for name, kind in self._listed.items():
            self.names.setdefault(kind, []).append(name)

    def refresh(self) -> None:
        """Regroup the nodes that changed."""
        if self._seen == len(self._changes):
            return
        changed = dict.fromkeys(self._changes[self._seen :])
        self._seen = len(self._changes)
        for name in changed:
            if name in self.by_name:
                self._move(name)

    def kind(self, name: str) -> int:
        """The number of the node's kind as it is now."""
        kind = self.by_name[name].kind
        known = self._kind_of.get(name)
        if known is None or known[0] is not kind:
            known = self._kind_of[name] = (kind, self._kinds.setdefault(kind, len(self._kinds)))
        return known[1]

    def _move(self, name: str) -> None:
        """List the node under its current kind."""
        before, kind = self._listed[name], self.kind(name)
        if before != kind:
            names = self.names[before]
            del names[bisect_left(names, name)]
            insort(self.names.setdefault(kind, []), name)
            self._listed[name] = kind


class Ranking:
    """One set of nodes, ranked for tasks of one shape. Mutates."""

    def __init__(self, session: KaiSession, task: PodInfo, groups: Groups) -> None:
        self._functions, self._changes, self._seen = session.functions, session.changes, len(session.changes)
        self._groups, self._by_name = groups, groups.by_name
        self._outcomes: dict[int, _Outcome] = {}
        """Result by kind of node."""
        self._choosy = task.choosy or any(ask(task) is not None for ask in session.functions.standing)
        self._classes: dict[_Class, list[str]] = {}
        self._class_of: dict[str, _Class] = {}
        self._measured: dict[str, tuple[float | None, ...]] = {}
        self._counts: list[Counter[float]] = [Counter() for _ in self._functions.measures]
        self._lacking: dict[str, dict[bool, NodeError | None]] = {}
        """Nodes that have too little for the task → fit error by whether the job is a gang, once worded."""
        self._refused: dict[str, None] = {}
        """Nodes that a fixed predicate excludes, in order."""
        self._place_all(task)

    def refresh(self, task: PodInfo) -> None:
        """Evaluate the nodes that changed again."""
        if self._seen == len(self._changes):
            return
        changed = dict.fromkeys(self._changes[self._seen :])
        self._seen = len(self._changes)
        for name in changed:
            node = self._by_name.get(name)
            if node is not None:
                self._leave(name)
                self._place_one(self._outcome(task, node), name, insort)

    def _place_all(self, task: PodInfo) -> None:
        if self._choosy:
            for name, node in self._by_name.items():
                self._place_one(self._evaluate(task, node), name, list.append)
            return
        for names in self._groups.names.values():
            if names:
                self._place(self._outcome(task, self._by_name[names[0]]), names)
        self._lacking = {name: {} for name in sorted(self._lacking)}
        self._refused = dict.fromkeys(sorted(self._refused))
        for names in self._classes.values():
            names.sort()

    def _place_one(self, outcome: _Outcome, name: str, insert: Callable[[list[str], str], None]) -> None:
        measures = self._measured[name] = outcome.measures
        for counts, value in zip(self._counts, measures, strict=True):
            if value is not None:
                counts[value] += 1
        if outcome.lacking:
            self._lacking[name] = {}
        elif outcome.refused:
            self._refused[name] = None
        elif outcome.base is not None:
            found = self._class_of[name] = (outcome.base, measures)
            insert(self._classes.setdefault(found, []), name)

    def _place(self, outcome: _Outcome, names: Sequence[str]) -> None:
        """`_place_one` for many equal nodes; the caller sorts the lists."""
        measures = outcome.measures
        self._measured.update(dict.fromkeys(names, measures))
        for counts, value in zip(self._counts, measures, strict=True):
            if value is not None:
                counts[value] += len(names)
        if outcome.lacking:
            self._lacking.update((name, {}) for name in names)
        elif outcome.refused:
            self._refused.update(dict.fromkeys(names))
        elif outcome.base is not None:
            found = (outcome.base, measures)
            self._class_of.update(dict.fromkeys(names, found))
            self._classes.setdefault(found, []).extend(names)

    def _outcome(self, task: PodInfo, node: KaiNodeInfo) -> _Outcome:
        """The node's result, shared by nodes of its kind unless the task selects nodes by name or label."""
        if self._choosy:
            return self._evaluate(task, node)
        kind = self._groups.kind(node.name)
        known = self._outcomes.get(kind)
        if known is None:
            known = self._outcomes[kind] = self._evaluate(task, node)
        return known

    def _evaluate(self, task: PodInfo, node: KaiNodeInfo) -> _Outcome:
        functions = self._functions
        measures = tuple(m.measure(task, node) for m in functions.measures)
        if not node.fits(task):
            return _Outcome(measures, lacking=True)
        if not all(allows(task, node) for allows in functions.fixed_predicates):
            return _Outcome(measures, refused=True)
        try:
            return _Outcome(measures, base=sum(scorer.score(task, node) for scorer in functions.node_order))
        except NoScore:
            return _Outcome(measures)

    def _leave(self, name: str) -> None:
        for counts, value in zip(self._counts, self._measured[name], strict=True):
            if value is not None:
                counts[value] -= 1
                if not counts[value]:
                    del counts[value]
        self._lacking.pop(name, None)
        self._refused.pop(name, None)
        found = self._class_of.pop(name, None)
        if found is not None:
            names = self._classes[found]
            del names[bisect_left(names, name)]
            if not names:
                del self._classes[found]

    def in_order(self) -> Iterator[KaiNodeInfo]:
        """The nodes that could take the task, best first."""
        ranges = [span(counts) for counts in self._counts]
        by_total: dict[float, list[list[str]]] = {}
        for found, names in self._classes.items():
            by_total.setdefault(_total(found, self._functions.measures, ranges), []).append(names)
        for total in sorted(by_total, reverse=True):
            equal_class = by_total[total]
            for name in equal_class[0] if len(equal_class) == 1 else heapq.merge(*equal_class):
                yield self._by_name[name]

    def unfit(self, task: PodInfo, gang: bool) -> Mapping[str, NodeError]:
        """Nodes with insufficient resources, and what they lack; for gangs without numbers."""
        found: dict[str, NodeError] = {}
        for name, known in self._lacking.items():
            if gang not in known:
                node = self._by_name[name]
                known[gang] = None if node.fits_idle(task) else misfit(task, node, gang)
            error = known[gang]
            if error is not None:
                found[name] = error
        return found

    def refused(self) -> Iterator[KaiNodeInfo]:
        """Nodes that cannot take the task whatever is free on them."""
        return (self._by_name[name] for name in self._refused)


def span(values: Collection[float]) -> tuple[float, float]:
    """The lowest and the highest value, the latter at least 0; (infinity, 0) without values."""
    return (min(values), max(0.0, *values)) if values else (float("inf"), 0.0)


def _total(found: _Class, measures: Sequence[Measure], ranges: Sequence[tuple[float, float]]) -> float:
    base, values = found
    return base + sum(m.weigh(value, *span) for m, value, span in zip(measures, values, ranges, strict=True))

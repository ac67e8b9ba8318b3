"""Which nodes fit the pods of one class, cached across passes and evaluated again only where a node changed.

Pods of the same class and priority share one `FeasibilityCache` over the node cache. It holds the nodes that fit and
the best of them, the number of pods that fit in all, the other nodes' reasons, and the preemption candidates.

Two helpers keep a refresh cheap: `ChangeLog` lists changed nodes in order, and `NodeClasses` numbers the nodes of equal
capacity and usage, which give equal filter results for a pod's requests.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from heapq import heapify, heappop, heappush
from itertools import count

from msgspec import Struct

from gpuconsole.model.cluster import Node
from gpuconsole.scheduling.kube.filters import count_fitting, free_resources, shortages
from gpuconsole.scheduling.kube.framework_runtime import NodeLocalPlugins
from gpuconsole.scheduling.kube.pod_classes import NodeState
from gpuconsole.scheduling.kube.preemption import PreemptionCandidates
from gpuconsole.scheduling.kube.scores import highest_raw_scores, random_choice, total_score

NO_CLASS = -1
"""Stands for "no class": the node is evaluated on its own, as it has reservations, MIG instances or no Node object."""
_MAX_CLASSES = 16_384

Amounts = tuple[tuple[str, int], ...]


class NodeClasses:
    """Numbers classes of nodes with equal capacity and usage, so that each class is evaluated once for a pod class.

    No number is reused. Mutates, but only as a cache: forks share it, in other threads too.
    """

    def __init__(self) -> None:
        self._by_shape: dict[tuple[Amounts, Amounts, tuple[int, int]], int] = {}
        self._by_node: dict[int, tuple[NodeState, int]] = {}
        self._sizes: dict[int, tuple[Node, Amounts]] = {}
        self._numbers = count()

    def class_of(self, number: int, state: NodeState) -> int:
        """The class of the node with this number and state: a class number, or ALONE."""
        cached = self._by_node.get(number)
        if cached is not None and cached[0] is state:
            return cached[1]
        node_class = self._lookup(number, state)
        self._by_node[number] = (state, node_class)
        return node_class

    def _lookup(self, number: int, state: NodeState) -> int:
        if state.node is None or state.reserved or state.division is not None:
            return NO_CLASS
        size = self._sizes.get(number)
        if size is None or size[0] is not state.node:
            size = self._sizes[number] = (state.node, tuple(sorted(state.node.allocatable.items())))
        key = (size[1], tuple(sorted(state.used.items())), state.score_requests)
        node_class = self._by_shape.get(key)
        if node_class is None:
            if len(self._by_shape) >= _MAX_CLASSES:
                self._by_shape.clear()
            node_class = self._by_shape.setdefault(key, next(self._numbers))
        return node_class


_MAX_CHANGES = 4_096


class ChangeLog:
    """Log in which a cache finds the nodes to evaluate again; `count` is the number of changes so far. Mutates."""

    def __init__(self) -> None:
        self.count = 0
        self.versions: list[int] = []
        """Version of each node: every change sets a new number, and the end of a trial restores the old one."""
        self._latest: list[int] = []

    def record(self, number: int, version: int | None = None) -> None:
        """Record a change of a node; `version` is set if the change restores the node as it was at that version."""
        self.count += 1
        if number == len(self.versions):
            self.versions.append(self.count)
        self.versions[number] = self.count if version is None else version
        self._latest.append(number)
        if len(self._latest) > _MAX_CHANGES:
            del self._latest[: _MAX_CHANGES // 2]

    def since(self, count: int) -> Sequence[int]:
        """Nodes that changed after the first `count` changes; all nodes if the log no longer reaches back that far."""
        missed = self.count - count
        if missed > len(self._latest):
            return range(len(self.versions))
        return self._latest[len(self._latest) - missed :]

    def fork(self) -> "ChangeLog":
        """An independent copy of the log."""
        copied = ChangeLog()
        copied.count, copied.versions, copied._latest = self.count, self.versions[:], self._latest[:]
        return copied


RawScores = tuple[int, int]
NOT_REFUSED = ("", (0, 0))
"""(refusal reason, raw scores) of a node that is not refused and whose raw scores are 0."""
_NOT_EVALUATED = -1
_MAX_CLASS_RESULTS = 4_096
HeapEntry = tuple[int, str, int]
"""(− fit, node name, node number): the lowest is the best, so that ties go to the first node by name."""


class NodeFeasibility(Struct, frozen=True, gc=False):
    """Whether and how well one node fits pods of the class: filter results and score."""

    slots: int = 0
    """How many pods of the class fit on the node now."""
    fit: int = 0
    """Weighted sum of the scores that are not normalised."""
    raw_scores: RawScores = (0, 0)
    """NodeAffinity's and TaintToleration's scores before they are normalised."""
    reasons: tuple[str, ...] = ()
    unresolvable: bool = False
    """True if preemption on the node cannot help (UnschedulableAndUnresolvable)."""


NO_NODE = NodeFeasibility(unresolvable=True)


class FeasibilityCache:
    """Feasible nodes and scores for pods of one class and priority; `refresh` re-evaluates changed nodes. Mutates."""

    def __init__(
        self,
        node_plugins: NodeLocalPlugins,
        priority: int,
        nodes: list[NodeState],
        journal: ChangeLog,
        node_classes: NodeClasses,
    ) -> None:
        self.plugins = node_plugins
        self.pod_class = node_plugins.shape
        self.priority = priority
        self.slots = 0
        """How many such pods fit now, on all nodes together."""
        self.resolvable = 0
        """How many nodes take such pods, or would after preemption."""
        self.texts: dict[tuple[bool, bool], str] = {}
        """FailedScheduling messages since the last change, kept by `placement_plans.failure_message`."""
        self.scores_outdated = False
        """Scores have to be recomputed although no node changed: the typical pods did."""
        self._nodes, self._journal, self._node_classes = nodes, journal, node_classes
        self._score = node_plugins.score
        self._refreshed_at = _NOT_EVALUATED
        """The change log's `count` at the last refresh."""
        self._class_results: dict[tuple[int, RawScores], NodeFeasibility] = {}
        """Result by (node class, raw scores), where nothing else about a node counts. Forks share it."""
        self._evaluated_versions: list[int] = []
        """The version of each node at its last evaluation."""
        self._results: list[NodeFeasibility] = []
        self._evaluated_nodes: list[Node | None] = []
        self._node_results: list[tuple[str, RawScores]] = []
        """Of each node, by its Node object alone: why it is refused (empty if it is not), and its raw scores."""
        self._best: dict[RawScores, list[HeapEntry]] = {}
        self._reasons: Counter[str] = Counter()
        self._filled: Counter[str] | None = None
        self.preemption = PreemptionCandidates(self.pod_class, priority, nodes)

    def fork(self, nodes: list[NodeState], journal: ChangeLog) -> "FeasibilityCache":
        """An independent copy over another node cache, whose nodes were the same at the last refresh."""
        copied = self._copy_with(self.priority, nodes, journal)
        copied._refreshed_at, copied.texts, copied._filled = self._refreshed_at, self.texts.copy(), self._filled
        copied.preemption = self.preemption.fork(nodes)
        return copied

    def for_priority(self, priority: int, nodes: list[NodeState], journal: ChangeLog) -> "FeasibilityCache":
        """A cache for pods of another priority, to which other reservations apply and which have other victims."""
        copied = self._copy_with(priority, nodes, journal)
        for number, result in enumerate(self._results):
            if not result.unresolvable:
                copied.preemption.add_candidate(number, result.slots)
        for number, state in enumerate(nodes[: len(copied._evaluated_versions)]):
            if state.reserved:
                copied._evaluated_versions[number] = _NOT_EVALUATED
        return copied

    def _copy_with(self, priority: int, nodes: list[NodeState], journal: ChangeLog) -> "FeasibilityCache":
        copied = FeasibilityCache(self.plugins, priority, nodes, journal, self._node_classes)
        copied.slots, copied.resolvable, copied.scores_outdated = self.slots, self.resolvable, self.scores_outdated
        copied._class_results = self._class_results
        copied._evaluated_versions, copied._results = self._evaluated_versions[:], self._results[:]
        copied._evaluated_nodes, copied._node_results = self._evaluated_nodes[:], self._node_results[:]
        copied._best = {raw_scores: heap[:] for raw_scores, heap in self._best.items()}
        copied._reasons = self._reasons.copy()
        return copied

    def refresh(self) -> "FeasibilityCache":
        """Re-evaluate every node that changed; returns the cache itself."""
        if self._refreshed_at != self._journal.count:
            changed = self._journal.since(self._refreshed_at)
            self._refreshed_at = self._journal.count
            missing = len(self._nodes) - len(self._evaluated_versions)
            self._evaluated_versions += [_NOT_EVALUATED] * missing
            self._results += [NO_NODE] * missing
            self._evaluated_nodes += [None] * missing
            self._node_results += [NOT_REFUSED] * missing
            if self._refresh_nodes(changed):
                self._filled = None
                self.texts.clear()
                self._compact_heaps()
        if self.scores_outdated:
            self._recompute_scores()
        return self

    def _refresh_nodes(self, numbers: Iterable[int]) -> bool:
        """Re-evaluate those of these nodes that changed since they were evaluated; False if none did."""
        seen, versions = self._evaluated_versions, self._journal.versions
        different = False
        for number in numbers:
            if seen[number] != versions[number]:
                different = True
                seen[number] = versions[number]
                self._refresh_node(number)
        return different

    def best(self) -> int | None:
        """The node with the highest score, the first by name among equals; None if no node fits."""
        best_by_raw_scores = {
            raw_scores: heap[0] for raw_scores, heap in self._best.items() if self._drop_outdated_top(raw_scores, heap)
        }
        if not best_by_raw_scores:
            return None
        if len(best_by_raw_scores) == 1:
            return next(iter(best_by_raw_scores.values()))[2]
        top_raw_scores = highest_raw_scores(best_by_raw_scores)
        ranked = (
            (-total_score(self.plugins.weights, -top[0], raw_scores, top_raw_scores), top[1], top[2])
            for raw_scores, top in best_by_raw_scores.items()
        )
        return min(ranked)[2]

    def random_node(self, pod: str) -> int | None:
        """A pseudo-random node among all that fit, determined by the pod's key; None if none fits."""
        names = {self._nodes[number].name: number for number, result in enumerate(self._results) if result.slots}
        return names[random_choice(pod, tuple(names))] if names else None

    def result(self, number: int) -> NodeFeasibility:
        """The result of one node at the last refresh."""
        return self._results[number]

    def fits(self, number: int) -> bool:
        """True if a pod of the class fits on the node now."""
        return self._results[number].slots > 0

    def unresolvable(self, number: int) -> bool:
        """True if the node would refuse the pod even without other pods on it."""
        return self._results[number].unresolvable

    def reasons(self, filled: bool = False) -> dict[str, int]:
        """Number of nodes by refusal reason; with `filled`, as it would be after all pods that fit were placed."""
        return dict(self._reasons + self._reasons_when_filled()) if filled else dict(self._reasons)

    def _refresh_node(self, number: int) -> None:
        old = self._results[number]
        new = self._evaluate(number)
        if old is not NO_NODE:
            self.preemption.forget(number)
        if new.reasons != old.reasons:
            self._reasons.subtract(old.reasons)
            self._reasons.update(new.reasons)
        self.slots += new.slots - old.slots
        self.resolvable += old.unresolvable - new.unresolvable
        self._results[number] = new
        if not new.unresolvable:
            self.preemption.add_candidate(number, new.slots)
        if new.slots and not (old.slots and (old.fit, old.raw_scores) == (new.fit, new.raw_scores)):
            heappush(self._best.setdefault(new.raw_scores, []), (-new.fit, self._nodes[number].name, number))

    def _evaluate(self, number: int) -> NodeFeasibility:
        state = self._nodes[number]
        if state.node is None:
            return NO_NODE
        if self._evaluated_nodes[number] is not state.node:
            # Labels and taints change rarely, so these results are kept as long as the Node object is the same.
            node_result = self.plugins.refusal(state.node), self.plugins.raw_score(state.node)
            self._evaluated_nodes[number] = state.node
            self._node_results[number] = NOT_REFUSED if node_result == NOT_REFUSED else node_result
        refused, raw_scores = self._node_results[number]
        if refused:
            return NodeFeasibility(reasons=(refused,), unresolvable=True)
        node_class = self._node_classes.class_of(number, state) if self.plugins.scores_by_amounts else NO_CLASS
        if node_class == NO_CLASS:
            return self._evaluate_usage(state, raw_scores)
        cached = self._class_results.get((node_class, raw_scores))
        if cached is None:
            if len(self._class_results) >= _MAX_CLASS_RESULTS:
                self._class_results.clear()
            cached = self._class_results[node_class, raw_scores] = self._evaluate_usage(state, raw_scores)
        return cached

    def _evaluate_usage(self, state: NodeState, raw_scores: RawScores) -> NodeFeasibility:
        left = free_resources(state, self.pod_class, self.priority)
        count = count_fitting(left, self.pod_class)
        return (
            NodeFeasibility(count, self._score(state), raw_scores)
            if count
            else NodeFeasibility(reasons=shortages(left, self.pod_class))
        )

    def _drop_outdated_top(self, raw_scores: RawScores, heap: list[HeapEntry]) -> bool:
        """Drop entries that no longer hold from the top; False if none is left."""
        while heap:
            result = self._results[heap[0][2]]
            if result.slots and (-result.fit, result.raw_scores) == (heap[0][0], raw_scores):
                return True
            heappop(heap)
        return False

    def _recompute_scores(self) -> None:
        self.scores_outdated = False
        self._best.clear()
        for number, result in enumerate(self._results):
            if result.slots:
                self._results[number] = NodeFeasibility(
                    result.slots, self._score(self._nodes[number]), result.raw_scores
                )
                entry = (-self._results[number].fit, self._nodes[number].name, number)
                self._best.setdefault(result.raw_scores, []).append(entry)
        for heap in self._best.values():
            heapify(heap)

    def _compact_heaps(self) -> None:
        """Rebuild heaps in which outdated entries accumulate."""
        for raw_scores, heap in self._best.items():
            if len(heap) > 64 + 2 * len(self._nodes):
                fitting = (
                    i for i, result in enumerate(self._results) if result.slots and result.raw_scores == raw_scores
                )
                heap[:] = [(-self._results[i].fit, self._nodes[i].name, i) for i in fitting]
                heapify(heap)

    def _reasons_when_filled(self) -> Counter[str]:
        if self._filled is None:
            self._filled = Counter()
            for number, result in enumerate(self._results):
                if result.slots:
                    self._filled.update(self._shortages_after(number, result.slots))
        return self._filled

    def _shortages_after(self, number: int, count: int) -> tuple[str, ...]:
        left = free_resources(self._nodes[number], self.pod_class, self.priority)
        taken = {name: value - count * self.pod_class.requests.get(name, 1) for name, value in left.items()}
        return shortages(taken, self.pod_class)

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
from gpuconsole.scheduling.kube.filters import room, shortages, slots
from gpuconsole.scheduling.kube.framework_runtime import NodeLocalPlugins
from gpuconsole.scheduling.kube.pod_classes import NodeState
from gpuconsole.scheduling.kube.preemption import PreemptionCandidates
from gpuconsole.scheduling.kube.scores import drawn, highest, total

ALONE = -1
"""Stands for "no class": the node is evaluated on its own, as it has reservations, MIG instances or no Node object."""
_MOST = 16_384

Amounts = tuple[tuple[str, int], ...]


class NodeClasses:
    """Numbers classes of nodes with equal capacity and usage, so that each class is evaluated once for a pod class.

    No number is reused. Mutates, but only as a cache: forks share it, in other threads too.
    """

    def __init__(self) -> None:
        self._kinds: dict[tuple[Amounts, Amounts, tuple[int, int]], int] = {}
        self._known: dict[int, tuple[NodeState, int]] = {}
        self._sizes: dict[int, tuple[Node, Amounts]] = {}
        self._numbers = count()

    def kind(self, number: int, state: NodeState) -> int:
        """The class of the node with this number and state: a class number, or ALONE."""
        known = self._known.get(number)
        if known is not None and known[0] is state:
            return known[1]
        kind = self._find(number, state)
        self._known[number] = (state, kind)
        return kind

    def _find(self, number: int, state: NodeState) -> int:
        if state.node is None or state.reserved or state.division is not None:
            return ALONE
        size = self._sizes.get(number)
        if size is None or size[0] is not state.node:
            size = self._sizes[number] = (state.node, tuple(sorted(state.node.allocatable.items())))
        key = (size[1], tuple(sorted(state.used.items())), state.counted)
        kind = self._kinds.get(key)
        if kind is None:
            if len(self._kinds) >= _MOST:
                self._kinds.clear()
            kind = self._kinds.setdefault(key, next(self._numbers))
        return kind


_MOST_CHANGES = 4_096


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
        if len(self._latest) > _MOST_CHANGES:
            del self._latest[: _MOST_CHANGES // 2]

    def since(self, count: int) -> Sequence[int]:
        """Nodes that changed after the first `count` changes; all nodes if the log no longer reaches back that far."""
        missed = self.count - count
        if missed > len(self._latest):
            return range(len(self.versions))
        return self._latest[len(self._latest) - missed :]

    def fork(self) -> "ChangeLog":
        """An independent copy of the log."""
        twin = ChangeLog()
        twin.count, twin.versions, twin._latest = self.count, self.versions[:], self._latest[:]
        return twin


RawScores = tuple[int, int]
PLAIN = ("", (0, 0))
"""(refusal reason, raw scores) of a node that is not refused and whose raw scores are 0."""
_NEVER = -1
_OFFERS = 4_096
Entry = tuple[int, str, int]
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


ABSENT = NodeFeasibility(unresolvable=True)


class FeasibilityCache:
    """Feasible nodes and scores for pods of one class and priority; `refresh` re-evaluates changed nodes. Mutates."""

    def __init__(
        self,
        lens: NodeLocalPlugins,
        priority: int,
        nodes: list[NodeState],
        journal: ChangeLog,
        node_classes: NodeClasses,
    ) -> None:
        self.lens = lens
        self.shape = lens.shape
        self.priority = priority
        self.slots = 0
        """How many such pods fit now, on all nodes together."""
        self.resolvable = 0
        """How many nodes take such pods, or would after preemption."""
        self.texts: dict[tuple[bool, bool], str] = {}
        """FailedScheduling messages since the last change, kept by `placement_plans.refusal`."""
        self.outscored = False
        """Scores have to be recomputed although no node changed: the typical pods did."""
        self._nodes, self._journal, self._node_classes = nodes, journal, node_classes
        self._score = lens.score
        self._mark = _NEVER
        """The change log's `count` at the last refresh."""
        self._offers: dict[tuple[int, RawScores], NodeFeasibility] = {}
        """Result by (node class, raw scores), where nothing else about a node counts. Forks share it."""
        self._seen: list[int] = []
        """The version of each node at its last evaluation."""
        self._verdicts: list[NodeFeasibility] = []
        self._described: list[Node | None] = []
        self._standing: list[tuple[str, RawScores]] = []
        """Of each node, by its Node object alone: why it is refused (empty if it is not), and its raw scores."""
        self._best: dict[RawScores, list[Entry]] = {}
        self._reasons: Counter[str] = Counter()
        self._filled: Counter[str] | None = None
        self.evicting = PreemptionCandidates(self.shape, priority, nodes)

    def fork(self, nodes: list[NodeState], journal: ChangeLog) -> "FeasibilityCache":
        """An independent copy over another node cache, whose nodes were the same at the last refresh."""
        twin = self._copy_with(self.priority, nodes, journal)
        twin._mark, twin.texts, twin._filled = self._mark, self.texts.copy(), self._filled
        twin.evicting = self.evicting.fork(nodes)
        return twin

    def for_priority(self, priority: int, nodes: list[NodeState], journal: ChangeLog) -> "FeasibilityCache":
        """A cache for pods of another priority, to which other reservations apply and which have other victims."""
        twin = self._copy_with(priority, nodes, journal)
        for number, verdict in enumerate(self._verdicts):
            if not verdict.unresolvable:
                twin.evicting.consider(number, verdict.slots)
        for number, state in enumerate(nodes[: len(twin._seen)]):
            if state.reserved:
                twin._seen[number] = _NEVER
        return twin

    def _copy_with(self, priority: int, nodes: list[NodeState], journal: ChangeLog) -> "FeasibilityCache":
        twin = FeasibilityCache(self.lens, priority, nodes, journal, self._node_classes)
        twin.slots, twin.resolvable, twin.outscored = self.slots, self.resolvable, self.outscored
        twin._offers = self._offers
        twin._seen, twin._verdicts = self._seen[:], self._verdicts[:]
        twin._described, twin._standing = self._described[:], self._standing[:]
        twin._best = {raw_scores: heap[:] for raw_scores, heap in self._best.items()}
        twin._reasons = self._reasons.copy()
        return twin

    def refresh(self) -> "FeasibilityCache":
        """Re-evaluate every node that changed; returns the cache itself."""
        if self._mark != self._journal.count:
            changed = self._journal.since(self._mark)
            self._mark = self._journal.count
            missing = len(self._nodes) - len(self._seen)
            self._seen += [_NEVER] * missing
            self._verdicts += [ABSENT] * missing
            self._described += [None] * missing
            self._standing += [PLAIN] * missing
            if self._look_at(changed):
                self._filled = None
                self.texts.clear()
                self._tidy()
        if self.outscored:
            self._score_anew()
        return self

    def _look_at(self, numbers: Iterable[int]) -> bool:
        """Re-evaluate those of these nodes that changed since they were evaluated; False if none did."""
        seen, versions = self._seen, self._journal.versions
        different = False
        for number in numbers:
            if seen[number] != versions[number]:
                different = True
                seen[number] = versions[number]
                self._look(number)
        return different

    def best(self) -> int | None:
        """The node with the highest score, the first by name among equals; None if no node fits."""
        tops = {raw_scores: heap[0] for raw_scores, heap in self._best.items() if self._settled(raw_scores, heap)}
        if not tops:
            return None
        if len(tops) == 1:
            return next(iter(tops.values()))[2]
        most = highest(tops)
        ranked = (
            (-total(self.lens.weights, -top[0], raw_scores, most), top[1], top[2]) for raw_scores, top in tops.items()
        )
        return min(ranked)[2]

    def drawn(self, pod: str) -> int | None:
        """A pseudo-random node among all that fit, determined by the pod's key; None if none fits."""
        names = {self._nodes[number].name: number for number, verdict in enumerate(self._verdicts) if verdict.slots}
        return names[drawn(pod, tuple(names))] if names else None

    def verdict(self, number: int) -> NodeFeasibility:
        """The result of one node at the last refresh."""
        return self._verdicts[number]

    def fits(self, number: int) -> bool:
        """True if a pod of the class fits on the node now."""
        return self._verdicts[number].slots > 0

    def unresolvable(self, number: int) -> bool:
        """True if the node would refuse the pod even without other pods on it."""
        return self._verdicts[number].unresolvable

    def reasons(self, filled: bool = False) -> dict[str, int]:
        """Number of nodes by refusal reason; with `filled`, as it would be after all pods that fit were placed."""
        return dict(self._reasons + self._when_filled()) if filled else dict(self._reasons)

    def _look(self, number: int) -> None:
        old = self._verdicts[number]
        new = self._verdict(number)
        if old is not ABSENT:
            self.evicting.forget(number)
        if new.reasons != old.reasons:
            self._reasons.subtract(old.reasons)
            self._reasons.update(new.reasons)
        self.slots += new.slots - old.slots
        self.resolvable += old.unresolvable - new.unresolvable
        self._verdicts[number] = new
        if not new.unresolvable:
            self.evicting.consider(number, new.slots)
        if new.slots and not (old.slots and (old.fit, old.raw_scores) == (new.fit, new.raw_scores)):
            heappush(self._best.setdefault(new.raw_scores, []), (-new.fit, self._nodes[number].name, number))

    def _verdict(self, number: int) -> NodeFeasibility:
        state = self._nodes[number]
        if state.node is None:
            return ABSENT
        if self._described[number] is not state.node:
            # Labels and taints change rarely, so these results are kept as long as the Node object is the same.
            standing = self.lens.refusal(state.node), self.lens.raw_score(state.node)
            self._described[number] = state.node
            self._standing[number] = PLAIN if standing == PLAIN else standing
        refused, raw_scores = self._standing[number]
        if refused:
            return NodeFeasibility(reasons=(refused,), unresolvable=True)
        kind = self._node_classes.kind(number, state) if self.lens.by_amounts else ALONE
        if kind == ALONE:
            return self._weigh(state, raw_scores)
        known = self._offers.get((kind, raw_scores))
        if known is None:
            if len(self._offers) >= _OFFERS:
                self._offers.clear()
            known = self._offers[kind, raw_scores] = self._weigh(state, raw_scores)
        return known

    def _weigh(self, state: NodeState, raw_scores: RawScores) -> NodeFeasibility:
        left = room(state, self.shape, self.priority)
        count = slots(left, self.shape)
        return (
            NodeFeasibility(count, self._score(state), raw_scores)
            if count
            else NodeFeasibility(reasons=shortages(left, self.shape))
        )

    def _settled(self, raw_scores: RawScores, heap: list[Entry]) -> bool:
        """Drop entries that no longer hold from the top; False if none is left."""
        while heap:
            verdict = self._verdicts[heap[0][2]]
            if verdict.slots and (-verdict.fit, verdict.raw_scores) == (heap[0][0], raw_scores):
                return True
            heappop(heap)
        return False

    def _score_anew(self) -> None:
        self.outscored = False
        self._best.clear()
        for number, verdict in enumerate(self._verdicts):
            if verdict.slots:
                self._verdicts[number] = NodeFeasibility(
                    verdict.slots, self._score(self._nodes[number]), verdict.raw_scores
                )
                entry = (-self._verdicts[number].fit, self._nodes[number].name, number)
                self._best.setdefault(verdict.raw_scores, []).append(entry)
        for heap in self._best.values():
            heapify(heap)

    def _tidy(self) -> None:
        """Rebuild heaps in which outdated entries accumulate."""
        for raw_scores, heap in self._best.items():
            if len(heap) > 64 + 2 * len(self._nodes):
                fitting = (
                    i for i, verdict in enumerate(self._verdicts) if verdict.slots and verdict.raw_scores == raw_scores
                )
                heap[:] = [(-self._verdicts[i].fit, self._nodes[i].name, i) for i in fitting]
                heapify(heap)

    def _when_filled(self) -> Counter[str]:
        if self._filled is None:
            self._filled = Counter()
            for number, verdict in enumerate(self._verdicts):
                if verdict.slots:
                    self._filled.update(self._exhausted(number, verdict.slots))
        return self._filled

    def _exhausted(self, number: int, count: int) -> tuple[str, ...]:
        left = room(self._nodes[number], self.shape, self.priority)
        taken = {name: value - count * self.shape.requests.get(name, 1) for name, value in left.items()}
        return shortages(taken, self.shape)

"""What every node offers to one kind of pod, remembered from pass to pass and renewed only where a node changed.

Equal pods (same shape, same priority) share one outlook: which nodes fit and which is best, how many pods fit in all,
why the others refuse, where evicting would help. Mutates: it is a cache over the board's nodes.
"""

from collections import Counter
from collections.abc import Iterable
from heapq import heapify, heappop, heappush

from msgspec import Struct

from gpuconsole.model.cluster import Node
from gpuconsole.scheduling.kube.alike import ALONE, Alike
from gpuconsole.scheduling.kube.evicting import Evicting
from gpuconsole.scheduling.kube.filters import room, shortages, slots
from gpuconsole.scheduling.kube.journal import Journal
from gpuconsole.scheduling.kube.lens import Lens
from gpuconsole.scheduling.kube.nodes import NodeState
from gpuconsole.scheduling.kube.packed import drawn
from gpuconsole.scheduling.kube.scores import highest, total

Liking = tuple[int, int]
PLAIN = ("", (0, 0))
"""A node that nothing speaks against, and nothing for."""
_NEVER = -1
_OFFERS = 4_096
Entry = tuple[int, str, int]
"""(− fit score, node name, node number): the least is the best, ties go to the first by name."""


class Verdict(Struct, frozen=True, gc=False):
    """What one node says to the pod."""

    slots: int = 0
    """How many such pods fit now."""
    fit: int = 0
    """What counts of the scores that are not normalised."""
    liking: Liking = (0, 0)
    reasons: tuple[str, ...] = ()
    hopeless: bool = False
    """Evicting cannot help."""


ABSENT = Verdict(hopeless=True)


class Outlook:
    """The nodes as one kind of pod sees them; `renew` looks again at those that changed."""

    def __init__(self, lens: Lens, priority: int, nodes: list[NodeState], journal: Journal, alike: Alike) -> None:
        self.lens = lens
        self.shape = lens.shape
        self.priority = priority
        self.slots = 0
        """How many such pods fit now, on all nodes together."""
        self.hopeful = 0
        """How many nodes take such pods, or would if others left."""
        self.texts: dict[tuple[bool, bool], str] = {}
        """Refusals that were worded since the last change (kept by `placing.refusal`)."""
        self.outscored = False
        """What nodes score has changed, though they have not."""
        self._nodes, self._journal, self._alike = nodes, journal, alike
        self._score = lens.score
        self._mark = _NEVER
        """How many changes of nodes there had been at the last look."""
        self._offers: dict[tuple[int, Liking], Verdict] = {}
        """What nodes of each kind of books offer, as long as nothing else about them counts. Twins share it."""
        self._seen: list[int] = []
        """The version of each node that was looked at."""
        self._verdicts: list[Verdict] = []
        self._described: list[Node | None] = []
        self._standing: list[tuple[str, Liking]] = []
        """What follows from each node itself: why it is refused, and how it is liked."""
        self._best: dict[Liking, list[Entry]] = {}
        self._reasons: Counter[str] = Counter()
        self._filled: Counter[str] | None = None
        self.evicting = Evicting(self.shape, priority, nodes)

    def fork(self, nodes: list[NodeState], journal: Journal) -> "Outlook":
        """An outlook over another board's nodes, which were the same at the last look; this one is not touched."""
        twin = self._seen_alike(self.priority, nodes, journal)
        twin._mark, twin.texts, twin._filled = self._mark, self.texts.copy(), self._filled
        twin.evicting = self.evicting.fork(nodes)
        return twin

    def for_priority(self, priority: int, nodes: list[NodeState], journal: Journal) -> "Outlook":
        """The same for pods of another priority: other reservations count, and other pods are in the way."""
        twin = self._seen_alike(priority, nodes, journal)
        for number, verdict in enumerate(self._verdicts):
            if not verdict.hopeless:
                twin.evicting.consider(number, verdict.slots)
        for number, state in enumerate(nodes[: len(twin._seen)]):
            if state.reserved:
                twin._seen[number] = _NEVER
        return twin

    def _seen_alike(self, priority: int, nodes: list[NodeState], journal: Journal) -> "Outlook":
        twin = Outlook(self.lens, priority, nodes, journal, self._alike)
        twin.slots, twin.hopeful, twin.outscored = self.slots, self.hopeful, self.outscored
        twin._offers = self._offers
        twin._seen, twin._verdicts = self._seen[:], self._verdicts[:]
        twin._described, twin._standing = self._described[:], self._standing[:]
        twin._best = {liking: heap[:] for liking, heap in self._best.items()}
        twin._reasons = self._reasons.copy()
        return twin

    def renew(self) -> "Outlook":
        """Look again at every node that changed."""
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
        """Look at these nodes; False if none of them is different."""
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
        tops = {liking: heap[0] for liking, heap in self._best.items() if self._settled(liking, heap)}
        if not tops:
            return None
        if len(tops) == 1:
            return next(iter(tops.values()))[2]
        most = highest(tops)
        ranked = ((-total(self.lens.weights, -top[0], liking, most), top[1], top[2]) for liking, top in tops.items())
        return min(ranked)[2]

    def drawn(self, pod: str) -> int | None:
        """A node drawn from all that fit; None if none does."""
        names = {self._nodes[number].name: number for number, verdict in enumerate(self._verdicts) if verdict.slots}
        return names[drawn(pod, tuple(names))] if names else None

    def verdict(self, number: int) -> Verdict:
        """What the node says to such a pod now."""
        return self._verdicts[number]

    def fits(self, number: int) -> bool:
        """True if the node takes such a pod now."""
        return self._verdicts[number].slots > 0

    def hopeless(self, number: int) -> bool:
        """True if the node would refuse such a pod even if it were empty of others."""
        return self._verdicts[number].hopeless

    def reasons(self, filled: bool = False) -> dict[str, int]:
        """How many nodes refuse for which reason; `filled` counts as if the slots there are were taken."""
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
        self.hopeful += old.hopeless - new.hopeless
        self._verdicts[number] = new
        if not new.hopeless:
            self.evicting.consider(number, new.slots)
        if new.slots and not (old.slots and (old.fit, old.liking) == (new.fit, new.liking)):
            heappush(self._best.setdefault(new.liking, []), (-new.fit, self._nodes[number].name, number))

    def _verdict(self, number: int) -> Verdict:
        state = self._nodes[number]
        if state.node is None:
            return ABSENT
        if self._described[number] is not state.node:
            # Labels and taints change rarely, so what follows from them is kept as long as the Node is the same.
            standing = self.lens.refusal(state.node), self.lens.liking(state.node)
            self._described[number] = state.node
            self._standing[number] = PLAIN if standing == PLAIN else standing
        refused, liking = self._standing[number]
        if refused:
            return Verdict(reasons=(refused,), hopeless=True)
        kind = self._alike.kind(number, state) if self.lens.by_amounts else ALONE
        if kind == ALONE:
            return self._weigh(state, liking)
        known = self._offers.get((kind, liking))
        if known is None:
            if len(self._offers) >= _OFFERS:
                self._offers.clear()
            known = self._offers[kind, liking] = self._weigh(state, liking)
        return known

    def _weigh(self, state: NodeState, liking: Liking) -> Verdict:
        left = room(state, self.shape, self.priority)
        count = slots(left, self.shape)
        return Verdict(count, self._score(state), liking) if count else Verdict(reasons=shortages(left, self.shape))

    def _settled(self, liking: Liking, heap: list[Entry]) -> bool:
        """Drop entries that no longer hold from the top; False if none is left."""
        while heap:
            verdict = self._verdicts[heap[0][2]]
            if verdict.slots and (-verdict.fit, verdict.liking) == (heap[0][0], liking):
                return True
            heappop(heap)
        return False

    def _score_anew(self) -> None:
        self.outscored = False
        self._best.clear()
        for number, verdict in enumerate(self._verdicts):
            if verdict.slots:
                self._verdicts[number] = Verdict(verdict.slots, self._score(self._nodes[number]), verdict.liking)
                entry = (-self._verdicts[number].fit, self._nodes[number].name, number)
                self._best.setdefault(verdict.liking, []).append(entry)
        for heap in self._best.values():
            heapify(heap)

    def _tidy(self) -> None:
        """Rebuild heaps in which outdated entries pile up."""
        for liking, heap in self._best.items():
            if len(heap) > 64 + 2 * len(self._nodes):
                fitting = (i for i, verdict in enumerate(self._verdicts) if verdict.slots and verdict.liking == liking)
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

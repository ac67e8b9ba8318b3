"""What every node offers to one kind of pod, remembered from pass to pass and renewed only where a node changed.

Equal pods (same shape, same priority) share one outlook: which nodes fit and which is best, how many pods fit in all,
why the others refuse, where evicting would help. Mutates: it is a cache over the board's nodes.
"""

from collections import Counter
from heapq import heapify, heappop, heappush

from msgspec import Struct

from gpuconsole.model.cluster import Node
from gpuconsole.scheduling.kube.alike import ALONE, Alike
from gpuconsole.scheduling.kube.filters import room, shortages, slots
from gpuconsole.scheduling.kube.lens import Lens
from gpuconsole.scheduling.kube.nodes import NodeState
from gpuconsole.scheduling.kube.packed import drawn
from gpuconsole.scheduling.kube.preemption import Victims, reach, victims
from gpuconsole.scheduling.kube.scores import highest, total

Liking = tuple[int, int]
PLAIN = ("", (0, 0))
"""A node that nothing speaks against, and nothing for."""
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
    """The nodes as one kind of pod sees them; `stale` names those to look at again."""

    def __init__(self, lens: Lens, priority: int, nodes: list[NodeState], alike: Alike) -> None:
        self.lens = lens
        self.shape = lens.shape
        self.priority = priority
        self.slots = 0
        """How many such pods fit now, on all nodes together."""
        self.hopeful = 0
        """How many nodes take such pods, or would if others left."""
        self.texts: dict[tuple[bool, bool], str] = {}
        """Refusals that were worded since the last change (kept by `placing.refusal`)."""
        self.stale = set(range(len(nodes)))
        self.outscored = False
        """What nodes score has changed, though they have not."""
        self._nodes = nodes
        self._score = lens.score
        self._alike = alike
        self._offers: dict[tuple[int, Liking], Verdict] = {}
        """What nodes of each kind of books offer, as long as nothing else about them counts."""
        self._verdicts: list[Verdict] = []
        self._described: list[Node | None] = []
        self._standing: list[tuple[str, Liking]] = []
        """What follows from each node itself: why it is refused, and how it is liked."""
        self._best: dict[Liking, list[Entry]] = {}
        self._reasons: Counter[str] = Counter()
        self._filled: Counter[str] | None = None
        self._victims: dict[int, Victims] = {}
        self._unseen: set[int] = set()
        """Nodes that do not fit and whose victims have not been looked for."""
        self._reach: dict[int, int] = {}
        self._reachable = 0
        self._unreached: set[int] = set()

    def renew(self) -> "Outlook":
        """Look again at every node that changed."""
        if self.stale:
            missing = len(self._nodes) - len(self._verdicts)
            self._verdicts += [ABSENT] * missing
            self._described += [None] * missing
            self._standing += [PLAIN] * missing
            for number in self.stale:
                self._look(number)
            self.stale.clear()
            self._filled = None
            self.texts.clear()
            self._tidy()
        if self.outscored:
            self._score_anew()
        return self

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

    def cheapest(self) -> tuple[int, Victims] | None:
        """The node where the fewest and least important pods have to go, and these; None if evicting helps nowhere.

        The first by name among equals.
        """
        while self._unseen:
            self._find_victims(self._unseen.pop())
        names = self._nodes
        return min(self._victims.items(), key=lambda item: (item[1].rank, names[item[0]].name), default=None)

    def victims_on(self, number: int) -> Victims | None:
        """Who would have to go from this node, which takes no such pod now; None if evicting does not help."""
        if number in self._unseen:
            self._unseen.discard(number)
            self._find_victims(number)
        return self._victims.get(number)

    def _find_victims(self, number: int) -> None:
        found = victims(self._nodes[number], self.shape, self.priority)
        if found is not None:
            self._victims[number] = found

    def reachable(self) -> int:
        """How many such pods would fit if every pod of lower priority went."""
        while self._unreached:
            number = self._unreached.pop()
            self._reach[number] = reach(self._nodes[number], self.shape, self.priority)
            self._reachable += self._reach[number]
        return self._reachable

    def reasons(self, filled: bool = False) -> dict[str, int]:
        """How many nodes refuse for which reason; `filled` counts as if the slots there are were taken."""
        return dict(self._reasons + self._when_filled()) if filled else dict(self._reasons)

    def _look(self, number: int) -> None:
        old = self._verdicts[number]
        new = self._verdict(number)
        if old is not ABSENT:
            self._forget(number)
        if new.reasons != old.reasons:
            self._reasons.subtract(old.reasons)
            self._reasons.update(new.reasons)
        self.slots += new.slots - old.slots
        self.hopeful += old.hopeless - new.hopeless
        self._verdicts[number] = new
        if not new.hopeless:
            self._unreached.add(number)
            if not new.slots:
                self._unseen.add(number)
        if new.slots and not (old.slots and (old.fit, old.liking) == (new.fit, new.liking)):
            heappush(self._best.setdefault(new.liking, []), (-new.fit, self._nodes[number].name, number))

    def _forget(self, number: int) -> None:
        self._victims.pop(number, None)
        self._unseen.discard(number)
        self._reachable -= self._reach.pop(number, 0)
        self._unreached.discard(number)

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

"""All nodes and their books in one place. Mutates; a trial puts everything back.

Each node's state is frozen and replaced as a whole, so a fork copies one list, and a trial remembers what it replaced.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import chain

from gpuconsole.model.cluster import Node
from gpuconsole.scheduling.kube import nodes as books
from gpuconsole.scheduling.kube.nodes import NodeState, Reservation, Seat
from gpuconsole.scheduling.kube.outlook import Outlook
from gpuconsole.scheduling.kube.packed import packing, typical_pods
from gpuconsole.scheduling.kube.policy import PlacementPolicy
from gpuconsole.scheduling.kube.scores import scorer
from gpuconsole.scheduling.kube.shapes import Shape

_OUTLOOKS = 128
"""How many kinds of pod are remembered; the one that was asked for longest ago goes first."""


class Board:
    """Nodes by number, and the outlooks that are kept up to date with them."""

    def __init__(self, policy: PlacementPolicy) -> None:
        self.policy = policy
        self.nodes: list[NodeState] = []
        self.described = 0
        """How many nodes somebody has described."""
        self._numbers: dict[str, int] = {}
        self._outlooks: dict[tuple[Shape, int], Outlook] = {}
        self._undo: list[tuple[int, NodeState]] | None = None
        self._packing = packing(policy)

    def fork(self) -> "Board":
        """A board that starts equal and never touches this one; outlooks are made anew when asked for."""
        twin = Board(self.policy)
        twin.nodes = self.nodes.copy()
        twin.described = self.described
        twin._numbers = self._numbers.copy()
        return twin

    def number(self, name: str) -> int:
        """The number of a node; a name that is new gets one, for a node that nobody has described yet."""
        number = self._numbers.get(name)
        if number is None:
            number = self._numbers[name] = len(self.nodes)
            self.nodes.append(NodeState(name))
            self._changed(number)
        return number

    def describe(self, name: str, node: Node | None) -> bool:
        """Take in a node's description (None: it is gone). True if that changed anything."""
        number = self.number(name)
        state = self.nodes[number]
        if state.node == node:
            return False
        self.described += (node is not None) - (state.node is not None)
        self._set(number, books.describe(state, node))
        return True

    def seat(self, number: int, seat: Seat) -> Seat:
        """Put a pod on a node; the seat that comes back names the GPUs that it got."""
        self._set(number, books.seated(self.nodes[number], seat))
        return self.nodes[number].seats[seat.pod]

    def unseat(self, number: int, pod: str) -> None:
        self._set(number, books.unseated(self.nodes[number], pod))

    def leave(self, number: int, pod: str) -> None:
        """Mark a pod as on its way out."""
        self._set(number, books.leaving(self.nodes[number], pod))

    def reserve(self, number: int, reservation: Reservation) -> None:
        self._set(number, books.reserving(self.nodes[number], reservation))

    def unreserve(self, number: int, pod: str) -> None:
        self._set(number, books.unreserving(self.nodes[number], pod))

    def outlook(self, shape: Shape, priority: int) -> Outlook:
        """The nodes as pods of this shape and priority see them now."""
        key = (shape, priority)
        outlook = self._outlooks.pop(key, None)
        if outlook is None:
            if len(self._outlooks) >= _OUTLOOKS:
                del self._outlooks[next(iter(self._outlooks))]
            score = scorer(self.policy, shape, self._packing)
            outlook = Outlook(shape, priority, self.policy, self.nodes, score)
        self._outlooks[key] = outlook
        return outlook.renew()

    def fit_score(self, state: NodeState, shape: Shape) -> int:
        """What the node scores in NodeResourcesFit, or by the packing policy in its place."""
        return scorer(self.policy, shape, self._packing)(state)

    def measure(self, waiting: Iterable[Shape]) -> None:
        """Look at which pods are typical now, those that wait among them; FGD's scores depend on it."""
        if self.policy.score != "fgd":
            return
        seated = (seat.shape for state in self.nodes for seat in state.seats.values())
        if self._packing is not None and self._packing.learn(typical_pods(chain(seated, waiting))):
            for outlook in self._outlooks.values():
                outlook.outscored = True

    @contextmanager
    def trial(self) -> Iterator[None]:
        """Try things out: on exit every node is as it was. Trials nest."""
        outer, self._undo = self._undo, []
        try:
            yield
        finally:
            tried, self._undo = self._undo, None
            for number, state in reversed(tried):
                self._set(number, state)
            self._undo = outer

    def _set(self, number: int, state: NodeState) -> None:
        if self._undo is not None:
            self._undo.append((number, self.nodes[number]))
        self.nodes[number] = state
        self._changed(number)

    def _changed(self, number: int) -> None:
        for outlook in self._outlooks.values():
            outlook.stale.add(number)

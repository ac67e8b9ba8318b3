"""Classes of nodes with equal capacity and usage, which give equal filter results for a pod's requests. Mutates."""

from itertools import count

from gpuconsole.model.cluster import Node
from gpuconsole.scheduling.kube.nodes import NodeState

ALONE = -1
"""The class of nodes whose amounts are not enough to know: with reservations, MIG instances or no Node object."""
_MOST = 16_384

Amounts = tuple[tuple[str, int], ...]


class NodeClasses:
    """Numbers of node classes; equal nodes get the same number while it is cached, and no number is reused.

    Only a cache: forks share it, in other threads too.
    """

    def __init__(self) -> None:
        self._kinds: dict[tuple[Amounts, Amounts, tuple[int, int]], int] = {}
        self._known: dict[int, tuple[NodeState, int]] = {}
        self._sizes: dict[int, tuple[Node, Amounts]] = {}
        self._numbers = count()

    def kind(self, number: int, state: NodeState) -> int:
        """The number of this node's class, or ALONE."""
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

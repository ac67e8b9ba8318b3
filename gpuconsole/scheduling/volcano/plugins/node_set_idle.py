"""Resource sums over a set of nodes."""

from collections.abc import Iterable

from gpuconsole.scheduling.volcano.api.node import NodeInfo
from gpuconsole.scheduling.volcano.api.resource import Resource


class NodeSetIdle:
    """Sums over nodes as they are when a session opens; `used` also follows the session's placements. Mutates."""

    __slots__ = ("allocatable", "future_idle", "idle", "used")

    def __init__(self) -> None:
        self.allocatable, self.used, self.idle, self.future_idle = Resource(), Resource(), Resource(), Resource()

    @classmethod
    def of(cls, nodes: Iterable[NodeInfo]) -> "NodeSetIdle":
        """The sums over these nodes."""
        room = cls()
        for node in nodes:
            room.allocatable.add(node.allocatable)
            room.used.add(node.used)
            room.idle.add(node.idle)
            room.future_idle.add(node.future_idle())
        return room

"""Index of pods by class and node, for plugins that match pods anywhere. Mutates: a cache over nodes.

Pods of the same namespace and labels with equal affinity terms form one class, so that each is matched once. It is
built when the first pod needs it, and refreshed only where a node changed.
"""

from collections.abc import Iterator, Mapping

from msgspec.structs import replace

from gpuconsole.model.cluster import Node, Pod
from gpuconsole.scheduling.kube.inter_pod_affinity import Group, has_pod_affinity
from gpuconsole.scheduling.kube.nodes import AssignedPod, NodeState

Key = tuple[object, ...]


def kind_of(pod: Pod) -> Key:
    """Key of a pod's namespace, labels, spread constraints and affinity terms, the latter by object identity."""
    template = pod.template
    return (
        pod.namespace,
        tuple(sorted(pod.labels.items())),
        id(template.spread) if template.spread else 0,
        id(template.pod_affinity),
        id(template.pod_anti_affinity),
    )


class PodIndex:
    """Pods by class and node; `stale` names the nodes to read again."""

    def __init__(self, states: list[NodeState], namespaces: Mapping[str, Mapping[str, str]]) -> None:
        self.namespaces = namespaces
        self.nodes: dict[str, Node] = {}
        self.stale = set(range(len(states)))
        self._states = states
        self._numbers: dict[str, int] = {}
        self._seen: dict[int, Mapping[str, AssignedPod]] = {}
        self._kinds: dict[Key, tuple[Pod, dict[int, int]]] = {}
        self._picky: dict[Key, tuple[Pod, dict[int, int]]] = {}

    def renew(self) -> "PodIndex":
        """Read every changed node again; returns the index itself."""
        for number in self.stale:
            self._look(number)
        self.stale.clear()
        return self

    def on(self, node: str) -> list[Pod]:
        """The pods of a node."""
        number = self._numbers.get(node)
        seats = () if number is None else self._states[number].seats.values()
        return [seat.who for seat in seats if seat.who is not None]

    def groups(self) -> Iterator[Group]:
        """Every class of pods, and their number by node, without nodes that have no Node object."""
        return ((pod, self._places(places)) for pod, places in self._kinds.values())

    def with_affinity(self) -> Iterator[Group]:
        """The classes that have affinity terms."""
        return ((pod, self._places(places)) for pod, places in self._picky.values())

    def _places(self, places: Mapping[int, int]) -> Iterator[tuple[Node, int]]:
        for number, count in places.items():
            node = self._states[number].node
            if node is not None:
                yield node, count

    def _look(self, number: int) -> None:
        state = self._states[number]
        self._numbers[state.name] = number
        if state.node is None:
            self.nodes.pop(state.name, None)
        else:
            self.nodes[state.name] = state.node
        before, now = self._seen.get(number, {}), state.seats
        if before is now:
            return
        for key, seat in before.items():
            if now.get(key) is not seat:
                self._count(seat, number, -1)
        for key, seat in now.items():
            if before.get(key) is not seat:
                self._count(seat, number, 1)
        self._seen[number] = now

    def _count(self, seat: AssignedPod, number: int, by: int) -> None:
        if seat.who is None:
            return
        leaving = seat.leaving or bool(seat.who.deleted)
        key = (*kind_of(seat.who), leaving)
        known = self._kinds.get(key)
        if known is None:
            stands_for = replace(seat.who, deleted=1) if leaving else seat.who
            known = self._kinds[key] = (stands_for, {})
            if has_pod_affinity(stands_for):
                self._picky[key] = known
        places = known[1]
        places[number] = places.get(number, 0) + by
        if not places[number]:
            del places[number]
            if not places:
                del self._kinds[key]
                self._picky.pop(key, None)

"""All nodes with the pods on them, and the feasibility caches that follow them.

Each node's state is frozen and replaced as a whole, so a fork copies one list, and a trial remembers what it replaced.
With a profile, nodes are searched in the zone-interleaved order of kube-scheduler's node tree (`interleaved`).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain, zip_longest

from gpuconsole.model.cluster import Node, Pod
from gpuconsole.model.resources import Resources
from gpuconsole.scheduling.kube import pod_classes
from gpuconsole.scheduling.kube.feasibility import ChangeLog, FeasibilityCache, NodeClasses
from gpuconsole.scheduling.kube.framework_runtime import (
    NOTHING,
    NodeLocalPlugins,
    PodContextPlugins,
    PodIndex,
    lens,
    prefilter,
)
from gpuconsole.scheduling.kube.pod_classes import AssignedPod, NodeState, PodClass, Reservation
from gpuconsole.scheduling.kube.preemption import DisruptionAllowance
from gpuconsole.scheduling.kube.profile import IMAGES, REGION, ZONE, PlacementPolicy
from gpuconsole.scheduling.kube.scheduling_queue import PendingPod
from gpuconsole.scheduling.kube.scores import Images, packing, typical_pods
from gpuconsole.scheduling.kube.volumes import NOTHING as NOTHING_GIVEN
from gpuconsole.scheduling.kube.volumes import AssumedClaims, ClaimsAndVolumes

OLD_ZONE = "failure-domain.beta.kubernetes.io/zone"
OLD_REGION = "failure-domain.beta.kubernetes.io/region"


def zone_of(node: Node) -> tuple[str, str]:
    """Region and zone; both empty where the node has neither label (GetZoneKey)."""
    labels = node.labels
    return labels.get(REGION) or labels.get(OLD_REGION, ""), labels.get(ZONE) or labels.get(OLD_ZONE, "")


def interleaved(states: Sequence[NodeState], numbers: Sequence[int]) -> tuple[int, ...]:
    """Take one node from each zone in turn (round robin), the oldest first; zones are ordered by their oldest node."""
    zones: dict[tuple[str, str], list[int]] = {}
    for _, number in sorted((_born(states[number]), number) for number in numbers):
        node = states[number].node
        assert node is not None
        zones.setdefault(zone_of(node), []).append(number)
    return tuple(number for turn in zip_longest(*zones.values()) for number in turn if number is not None)


def _born(state: NodeState) -> tuple[int, str]:
    assert state.node is not None
    return state.node.created, state.name


Kind = tuple[PodClass, int]
"""Pod class and priority."""
_OUTLOOKS = 128
"""Most feasibility caches that are kept; the least recently used one is dropped first."""


class NodeCache:
    """All nodes with their pods, by number, and feasibility caches over them. Mutates; a trial restores everything."""

    def __init__(self, policy: PlacementPolicy) -> None:
        self.policy = policy
        self.rules = policy.rules
        self.nodes: list[NodeState] = []
        self.described = 0
        """How many nodes have a Node object; pods and nominations may name nodes without one."""
        self._numbers: dict[str, int] = {}
        self._journal = ChangeLog()
        self._outlooks: dict[Kind, FeasibilityCache] = {}
        self._own: set[Kind] = set()
        """Keys of the feasibility caches that no fork shares."""
        self._undo: list[tuple[int, NodeState, int]] | None = None
        """(node number, replaced state, its version) of each change in the current trial; None outside of trials."""
        self._packing = packing(policy)
        self._node_classes = NodeClasses()
        self.means = ClaimsAndVolumes()
        """Volumes and devices that pods claim."""
        self.namespaces: dict[str, Mapping[str, str]] = {}
        """Labels of namespaces."""
        self.start = 0
        """Where the next search through the nodes begins (nextStartNodeIndex)."""
        self.budgets: Callable[[], tuple[DisruptionAllowance, ...]] = tuple
        """Returns the allowed disruptions of every PodDisruptionBudget now; set by `PlacementState`."""
        self._census: PodIndex | None = None
        """None until the first pod needs it."""
        self._images: Images | None = None
        self._order: tuple[int, ...] | None = None

    def fork(self) -> "NodeCache":
        """An independent copy; both share feasibility caches until the next refresh."""
        twin = NodeCache(self.policy)
        twin.nodes = self.nodes.copy()
        twin.described = self.described
        twin._numbers = self._numbers.copy()
        twin.namespaces = self.namespaces.copy()
        twin.means = self.means.fork()
        twin.start = self.start
        twin._journal = self._journal.fork()
        if self._packing is None:
            # A packing policy has its own typical pods in each node cache, so scores cannot be shared.
            twin._node_classes = self._node_classes
            twin._outlooks, self._own = self._outlooks.copy(), set()
        return twin

    def number(self, name: str) -> int:
        """The number of a node; a new name gets a new number, for a node without a Node object."""
        number = self._numbers.get(name)
        if number is None:
            number = self._numbers[name] = len(self.nodes)
            self.nodes.append(NodeState(name))
            self._changed(number)
        return number

    def describe(self, name: str, node: Node | None) -> bool:
        """Apply a Node object that appeared or changed (None: it was deleted); True if anything changed."""
        number = self.number(name)
        state = self.nodes[number]
        if state.node == node:
            return False
        self.described += (node is not None) - (state.node is not None)
        self._order = None
        self._look_at_images(state.node, node)
        self._set(number, pod_classes.describe(state, node))
        return True

    def seat(self, number: int, seat: AssignedPod) -> AssignedPod:
        """Put a pod on a node; returns its assignment, in which its GPUs are set."""
        self._set(number, pod_classes.seated(self.nodes[number], seat))
        return self.nodes[number].seats[seat.pod]

    def unseat(self, number: int, pod: str) -> None:
        """Remove a pod from its node. Raises KeyError if it is not there."""
        self._set(number, pod_classes.unseated(self.nodes[number], pod))

    def leave(self, number: int, pod: str) -> None:
        """Mark a pod as terminating."""
        self._set(number, pod_classes.leaving(self.nodes[number], pod))

    def reserve(self, number: int, reservation: Reservation) -> None:
        """Reserve capacity of a node for a nominated pod."""
        self._set(number, pod_classes.reserving(self.nodes[number], reservation))

    def unreserve(self, number: int, pod: str) -> None:
        """Remove a pod's reservation, if it has one there."""
        self._set(number, pod_classes.unreserving(self.nodes[number], pod))

    def outlook(self, shape: PodClass, priority: int) -> FeasibilityCache:
        """The feasibility cache for pods of this class and priority, brought up to date."""
        kind = (shape, priority)
        outlook = self._outlooks.pop(kind, None)
        if outlook is None:
            if len(self._outlooks) >= _OUTLOOKS:
                del self._outlooks[next(iter(self._outlooks))]
            outlook = self._outlook(shape, priority)
        elif kind not in self._own:
            outlook = outlook.fork(self.nodes, self._journal)
        self._own.add(kind)
        self._outlooks[kind] = outlook
        return outlook.refresh()

    def _outlook(self, shape: PodClass, priority: int) -> FeasibilityCache:
        """A new feasibility cache, copied from one for another priority if there is one."""
        for (known, _), outlook in reversed(self._outlooks.items()):
            if known is shape:
                return outlook.for_priority(priority, self.nodes, self._journal)
        return FeasibilityCache(self.lens(shape), priority, self.nodes, self._journal, self._node_classes)

    def lens(self, shape: PodClass) -> NodeLocalPlugins:
        """The plugins that look at one node at a time, prepared for pods of this class."""
        return lens(self.rules, shape, self.images, self._packing)

    @property
    def images(self) -> Images:
        """Images of all nodes, for ImageLocality."""
        if self._images is None:
            self._images = Images(state.node for state in self.nodes if state.node is not None)
        return self._images

    @property
    def order(self) -> tuple[int, ...]:
        """Nodes with a Node object in search order: by name, or with a profile as in kube-scheduler's node tree."""
        if self._order is None:
            nodes = sorted((state.name, number) for number, state in enumerate(self.nodes) if state.node is not None)
            self._order = tuple(number for _, number in nodes)
            if self.policy.profile is not None:
                self._order = interleaved(self.nodes, self._order)
        return self._order

    def asking(self, waiter: PendingPod) -> PodContextPlugins:
        """The plugins that depend on other pods or claims, prepared for the pod; `NOTHING` if none can apply to it."""
        if waiter.kind is None or waiter.who is None:
            return NOTHING
        if self._census is None:
            self._census = PodIndex(self.nodes, self.namespaces)
        return prefilter(self.rules, waiter, self._census.renew(), self.means)

    def promise(self, pod: Pod | None, number: int) -> AssumedClaims:
        """Assume, and return, the volumes and devices that the pod's claims get on the node with this number."""
        node = self.nodes[number].node
        return NOTHING_GIVEN if pod is None or node is None else self.means.hold(pod, node)

    def lacking(self, wanted: Resources) -> tuple[str, ...]:
        """Resources of which all nodes together have less free than is wanted."""
        left = dict.fromkeys(wanted, 0)
        for state in self.nodes:
            allocatable = state.node.allocatable if state.node is not None else {}
            for name in wanted:
                left[name] += allocatable.get(name, 0) - state.used.get(name, 0)
        return tuple(name for name, value in wanted.items() if left[name] < value)

    def measure(self, waiting: Iterable[PodClass]) -> None:
        """Update FGD's typical pods from the placed pods and these pending ones; no effect with other policies."""
        if self.policy.score != "fgd":
            return
        seated = (seat.shape for state in self.nodes for seat in state.seats.values())
        if self._packing is not None and self._packing.learn(typical_pods(chain(seated, waiting))):
            for outlook in self._outlooks.values():
                outlook.outscored = True

    @contextmanager
    def trial(self) -> Iterator[None]:
        """Context manager that undoes all changes made in it, also assumed claims, on exit. Trials nest."""
        outer, self._undo = self._undo, []
        promises = self.means.promises()
        try:
            yield
        finally:
            tried, self._undo = self._undo, None
            for number, state, version in reversed(tried):
                self._set(number, state, version)
            self._undo = outer
            self.means.put_back(promises)

    def _set(self, number: int, state: NodeState, version: int | None = None) -> None:
        if self._undo is not None:
            self._undo.append((number, self.nodes[number], self._journal.versions[number]))
        self.nodes[number] = state
        self._changed(number, version)

    def _look_at_images(self, before: Node | None, now: Node | None) -> None:
        """Update the images after a node changed: an image's score depends on how many nodes hold it."""
        if not self.rules.weight(IMAGES) or (before and before.images) == (now and now.images):
            return
        self._images = None
        self._outlooks.clear()

    def _changed(self, number: int, version: int | None = None) -> None:
        if self._census is not None:
            self._census.stale.add(number)
        self._journal.record(number, version)

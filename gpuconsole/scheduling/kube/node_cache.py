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
    NO_POD_PLUGINS,
    NodeLocalPlugins,
    PodContextPlugins,
    PodIndex,
    prefilter,
    prepare_node_plugins,
)
from gpuconsole.scheduling.kube.pod_classes import AssignedPod, NodeState, PodClass, Reservation
from gpuconsole.scheduling.kube.preemption import DisruptionAllowance
from gpuconsole.scheduling.kube.profile import IMAGES, REGION, ZONE, PlacementPolicy
from gpuconsole.scheduling.kube.scheduling_queue import PendingPod
from gpuconsole.scheduling.kube.scores import Images, packing_scorer, typical_pods
from gpuconsole.scheduling.kube.volumes import NO_ASSUMED_CLAIMS as NOTHING_GIVEN
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
    for _, number in sorted((_creation_key(states[number]), number) for number in numbers):
        node = states[number].node
        assert node is not None
        zones.setdefault(zone_of(node), []).append(number)
    return tuple(number for turn in zip_longest(*zones.values()) for number in turn if number is not None)


def _creation_key(state: NodeState) -> tuple[int, str]:
    assert state.node is not None
    return state.node.created, state.name


FeasibilityKey = tuple[PodClass, int]
"""Pod class and priority."""
_MAX_FEASIBILITY_CACHES = 128
"""Most feasibility caches that are kept; the least recently used one is dropped first."""


class NodeCache:
    """All nodes with their pods, by number, and feasibility caches over them. Mutates; a trial restores everything."""

    def __init__(self, policy: PlacementPolicy) -> None:
        self.policy = policy
        self.profile = policy.scheduler_profile
        self.nodes: list[NodeState] = []
        self.nodes_with_object = 0
        """How many nodes have a Node object; pods and nominations may name nodes without one."""
        self._numbers: dict[str, int] = {}
        self._journal = ChangeLog()
        self._feasibility_caches: dict[FeasibilityKey, FeasibilityCache] = {}
        self._unshared: set[FeasibilityKey] = set()
        """Keys of the feasibility caches that no fork shares."""
        self._undo: list[tuple[int, NodeState, int]] | None = None
        """(node number, replaced state, its version) of each change in the current trial; None outside of trials."""
        self._packing = packing_scorer(policy)
        self._node_classes = NodeClasses()
        self.claims = ClaimsAndVolumes()
        """Volumes and devices that pods claim."""
        self.namespaces: dict[str, Mapping[str, str]] = {}
        """Labels of namespaces."""
        self.next_start_index = 0
        """Where the next search through the nodes begins (nextStartNodeIndex)."""
        self.budgets: Callable[[], tuple[DisruptionAllowance, ...]] = tuple
        """Returns the allowed disruptions of every PodDisruptionBudget now; set by `PlacementState`."""
        self._pod_index: PodIndex | None = None
        """None until the first pod needs it."""
        self._images: Images | None = None
        self._order: tuple[int, ...] | None = None

    def fork(self) -> "NodeCache":
        """An independent copy; both share feasibility caches until the next refresh."""
        copied = NodeCache(self.policy)
        copied.nodes = self.nodes.copy()
        copied.nodes_with_object = self.nodes_with_object
        copied._numbers = self._numbers.copy()
        copied.namespaces = self.namespaces.copy()
        copied.claims = self.claims.fork()
        copied.next_start_index = self.next_start_index
        copied._journal = self._journal.fork()
        if self._packing is None:
            # A packing policy has its own typical pods in each node cache, so scores cannot be shared.
            copied._node_classes = self._node_classes
            copied._feasibility_caches, self._unshared = self._feasibility_caches.copy(), set()
        return copied

    def number(self, name: str) -> int:
        """The number of a node; a new name gets a new number, for a node without a Node object."""
        number = self._numbers.get(name)
        if number is None:
            number = self._numbers[name] = len(self.nodes)
            self.nodes.append(NodeState(name))
            self._record_change(number)
        return number

    def set_node(self, name: str, node: Node | None) -> bool:
        """Apply a Node object that appeared or changed (None: it was deleted); True if anything changed."""
        number = self.number(name)
        state = self.nodes[number]
        if state.node == node:
            return False
        self.nodes_with_object += (node is not None) - (state.node is not None)
        self._order = None
        self._update_images(state.node, node)
        self._set(number, pod_classes.with_node(state, node))
        return True

    def assign(self, number: int, assigned: AssignedPod) -> AssignedPod:
        """Put a pod on a node; returns its assignment, in which its GPUs are set."""
        self._set(number, pod_classes.with_pod(self.nodes[number], assigned))
        return self.nodes[number].pods[assigned.pod]

    def unassign(self, number: int, pod: str) -> None:
        """Remove a pod from its node. Raises KeyError if it is not there."""
        self._set(number, pod_classes.without_pod(self.nodes[number], pod))

    def mark_terminating(self, number: int, pod: str) -> None:
        """Mark a pod as terminating."""
        self._set(number, pod_classes.with_terminating_pod(self.nodes[number], pod))

    def reserve(self, number: int, reservation: Reservation) -> None:
        """Reserve capacity of a node for a nominated pod."""
        self._set(number, pod_classes.with_reservation(self.nodes[number], reservation))

    def unreserve(self, number: int, pod: str) -> None:
        """Remove a pod's reservation, if it has one there."""
        self._set(number, pod_classes.without_reservation(self.nodes[number], pod))

    def feasibility(self, pod_class: PodClass, priority: int) -> FeasibilityCache:
        """The feasibility cache for pods of this class and priority, brought up to date."""
        cache_key = (pod_class, priority)
        cache = self._feasibility_caches.pop(cache_key, None)
        if cache is None:
            if len(self._feasibility_caches) >= _MAX_FEASIBILITY_CACHES:
                del self._feasibility_caches[next(iter(self._feasibility_caches))]
            cache = self._new_feasibility(pod_class, priority)
        elif cache_key not in self._unshared:
            cache = cache.fork(self.nodes, self._journal)
        self._unshared.add(cache_key)
        self._feasibility_caches[cache_key] = cache
        return cache.refresh()

    def _new_feasibility(self, pod_class: PodClass, priority: int) -> FeasibilityCache:
        """A new feasibility cache, copied from one for another priority if there is one."""
        for (known, _), cache in reversed(self._feasibility_caches.items()):
            if known is pod_class:
                return cache.for_priority(priority, self.nodes, self._journal)
        return FeasibilityCache(self.node_plugins(pod_class), priority, self.nodes, self._journal, self._node_classes)

    def node_plugins(self, pod_class: PodClass) -> NodeLocalPlugins:
        """The plugins that look at one node at a time, prepared for pods of this class."""
        return prepare_node_plugins(self.profile, pod_class, self.images, self._packing)

    def free_gpus(self) -> dict[str, tuple[int, ...]]:
        """Indices of the unassigned GPUs, by node with a Node object."""
        return {state.name: state.free_gpus for state in self.nodes if state.node is not None}

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

    def pod_plugins(self, pending_pod: PendingPod) -> PodContextPlugins:
        """The plugins that depend on other pods or claims, prepared for the pod; `NO_POD_PLUGINS` if none can apply."""
        if pending_pod.constraints is None or pending_pod.obj is None:
            return NO_POD_PLUGINS
        if self._pod_index is None:
            self._pod_index = PodIndex(self.nodes, self.namespaces)
        return prefilter(self.profile, pending_pod, self._pod_index.refresh(), self.claims)

    def assume_claims(self, pod: Pod | None, number: int) -> AssumedClaims:
        """Assume, and return, the volumes and devices that the pod's claims get on the node with this number."""
        node = self.nodes[number].node
        return NOTHING_GIVEN if pod is None or node is None else self.claims.assume(pod, node)

    def insufficient_resources(self, requested: Resources) -> tuple[str, ...]:
        """Resources of which all nodes together have less free than is wanted."""
        left = dict.fromkeys(requested, 0)
        for state in self.nodes:
            allocatable = state.node.allocatable if state.node is not None else {}
            for name in requested:
                left[name] += allocatable.get(name, 0) - state.used.get(name, 0)
        return tuple(name for name, value in requested.items() if left[name] < value)

    def update_typical_pods(self, waiting: Iterable[PodClass]) -> None:
        """Update FGD's typical pods from the placed pods and these pending ones; no effect with other policies."""
        if self.policy.score != "fgd":
            return
        assigned = (assigned.pod_class for state in self.nodes for assigned in state.pods.values())
        if self._packing is not None and self._packing.set_typical_pods(typical_pods(chain(assigned, waiting))):
            for cache in self._feasibility_caches.values():
                cache.scores_outdated = True

    @contextmanager
    def trial(self) -> Iterator[None]:
        """Context manager that undoes all changes made in it, also assumed claims, on exit. Trials nest."""
        outer, self._undo = self._undo, []
        assumed_claims = self.claims.assumed()
        try:
            yield
        finally:
            changes, self._undo = self._undo, None
            for number, state, version in reversed(changes):
                self._set(number, state, version)
            self._undo = outer
            self.claims.restore_assumed(assumed_claims)

    def _set(self, number: int, state: NodeState, version: int | None = None) -> None:
        if self._undo is not None:
            self._undo.append((number, self.nodes[number], self._journal.versions[number]))
        self.nodes[number] = state
        self._record_change(number, version)

    def _update_images(self, before: Node | None, now: Node | None) -> None:
        """Update the images after a node changed: an image's score depends on how many nodes hold it."""
        if not self.profile.weight(IMAGES) or (before and before.images) == (now and now.images):
            return
        self._images = None
        self._feasibility_caches.clear()

    def _record_change(self, number: int, version: int | None = None) -> None:
        if self._pod_index is not None:
            self._pod_index.stale.add(number)
        self._journal.record(number, version)

"""Classes of pods with equal scheduling requirements, and the state of one node.

Placement evaluates each `PodClass` once for all its pods. A `NodeState` is frozen: the node's pods, usage, GPU owners
and reservations; functions such as `seated` and `reserving` return the state after a change.
"""

from collections.abc import Mapping

from msgspec import Struct
from msgspec.structs import replace

from gpuconsole.model.clock import Time
from gpuconsole.model.cluster import Node, Pod
from gpuconsole.model.gpus.mig import MigInstance
from gpuconsole.model.gpus.mig_resources import Division, division_of
from gpuconsole.model.labels import NodeTerm, PreferredTerm, Toleration
from gpuconsole.model.pod_template import Container, PodTemplate
from gpuconsole.model.resources import CPU, EMPTY, HAMI_SHARES, MAX, MEMORY, PODS, Resources, gpus
from gpuconsole.scheduling.devices import gpu_allocation
from gpuconsole.scheduling.kube.profile import IMAGES, SchedulerProfile

DEFAULT_CPU = 100
DEFAULT_MEMORY = 200 * 1024**2
"""Requests, in milli-CPU and bytes, that scores assume for a container without any (GetNonzeroRequests)."""

Key = tuple[object, ...]
DEFAULT = SchedulerProfile(scores=())


class PodClass(Struct, frozen=True, eq=False):
    """What a class of pods requires of a node. Compared by identity: `PodClasses` creates one for each class."""

    requests: Mapping[str, int]
    """Requested amount by resource, without zeros."""
    counted: Mapping[str, int]
    """cpu and memory for scores, which use defaults for containers without requests."""
    gpus: int
    node_selector: Mapping[str, str]
    affinity: tuple[NodeTerm, ...] | None
    preferred: tuple[PreferredTerm, ...]
    tolerations: tuple[Toleration, ...]
    limited: Mapping[str, int]
    """The requests that NodeResourcesFit checks."""
    images: tuple[str, ...] = ()
    """Images of its containers; empty if the profile does not enable ImageLocality."""


class PodClasses:
    """Finds the class of a pod template: one object for equal requirements. Mutates, but only as a shared cache."""

    _REMEMBERED = 4096

    def __init__(self, rules: SchedulerProfile = DEFAULT) -> None:
        self._images = bool(rules.weight(IMAGES))
        self._ignored = frozenset(rules.ignored_resources)
        self._groups = frozenset(rules.ignored_groups)
        self._by_key: dict[Key, PodClass] = {}
        # Holds the template itself, so that its id is not reused while it is a key.
        self._by_template: dict[int, tuple[PodTemplate, PodClass]] = {}

    def of(self, template: PodTemplate) -> PodClass:
        """The class of a template; the same object for templates with the same requirements."""
        known = self._by_template.get(id(template))
        if known is not None:
            return known[1]
        if len(self._by_template) >= self._REMEMBERED:
            self._by_template.clear()
        shape = self._shape(template)
        shape = self._by_key.setdefault(_key(shape), shape)
        self._by_template[id(template)] = (template, shape)
        return shape

    def _shape(self, template: PodTemplate) -> PodClass:
        requests = {name: value for name, value in template.requests.items() if value > 0}
        every = (*template.containers, *template.init_containers)
        filled = replace(
            template,
            containers=tuple(_filled(container) for container in template.containers),
            init_containers=tuple(_filled(container) for container in template.init_containers),
        ).requests
        return PodClass(
            requests=requests,
            counted={CPU: filled.get(CPU, 0), MEMORY: filled.get(MEMORY, 0)},
            gpus=gpus(requests),
            node_selector=template.node_selector,
            affinity=template.affinity,
            preferred=template.preferred,
            tolerations=template.tolerations,
            limited={name: value for name, value in requests.items() if not self._is_ignored(name)},
            images=tuple(container.image for container in every) if self._images else (),
        )

    def _is_ignored(self, resource: str) -> bool:
        """True if NodeResourcesFit ignores the resource: extended resources by name, or by group (what precedes `/`).

        HAMi's GPU shares are not node resources: its scheduler ignores them, and its extender places them.
        """
        return resource in HAMI_SHARES or resource in self._ignored or resource.partition("/")[0] in self._groups


def _filled(container: Container) -> Container:
    return replace(container, requests={CPU: DEFAULT_CPU, MEMORY: DEFAULT_MEMORY, **container.effective})


def _key(shape: PodClass) -> Key:
    return (
        tuple(sorted(shape.requests.items())),
        tuple(sorted(shape.counted.items())),
        tuple(sorted(shape.node_selector.items())),
        shape.affinity,
        shape.preferred,
        shape.tolerations,
        shape.images,
    )


NO_OWNERS = ""


class AssignedPod(Struct, frozen=True):
    """A pod on a node, with the GPUs and MIG instances that it has."""

    pod: str
    shape: PodClass
    priority: int
    since: Time
    """When the pod was bound."""
    gpus: tuple[int, ...] = ()
    leaving: bool = False
    """True if the pod is terminating; it holds its resources until it is gone."""
    slices: tuple[MigInstance, ...] = ()
    who: Pod | None = None
    """The Pod object, for plugins that match labels."""

    @property
    def importance(self) -> tuple[int, Time, str]:
        """Sort key of victims, the most important pod first (kube-scheduler's MoreImportantPod, then by key)."""
        return (-self.priority, self.since, self.pod)


class Reservation(Struct, frozen=True):
    """Capacity of a node that a nominated pod keeps free from pods of equal and lower priority."""

    pod: str
    shape: PodClass
    priority: int
    who: Pod | None = None


class NodeState(Struct, frozen=True):
    """A node and the pods on it. `node` is None if pods name the node but there is no Node object."""

    name: str
    node: Node | None = None
    used: Resources = EMPTY
    """Sum of the requests of all its pods, and their number as `pods`."""
    counted: tuple[int, int] = (0, 0)
    """Sum of their (cpu, memory) for scores, which use defaults where a container requests none."""
    seats: Mapping[str, AssignedPod] = {}
    owners: tuple[str, ...] = ()
    """Pod key by GPU index; `NO_OWNERS` where the GPU is free."""
    reserved: tuple[Reservation, ...] = ()
    lowest: int = MAX
    """Lowest priority of its pods: a pod at or below it can preempt none of them."""
    division: Division | None = None
    """How its GPUs are divided into MIG instances; None if they are not."""

    @property
    def free_gpus(self) -> tuple[int, ...]:
        """Indices of the GPUs without an owner."""
        return tuple(index for index, owner in enumerate(self.owners) if owner == NO_OWNERS)

    @property
    def taken(self) -> set[MigInstance]:
        """The MIG instances that are assigned."""
        return {one for seat in self.seats.values() for one in seat.slices}


def describe(state: NodeState, node: Node | None) -> NodeState:
    """The state after the Node object changed (None: deleted); pods get other GPUs where theirs no longer exist."""
    count = node.gpus if node is not None else 0
    kept = state.owners[:count]
    owners = kept + (NO_OWNERS,) * (count - len(kept))
    division = None if node is None else division_of(node.allocatable, node.labels, node.annotations)
    state = replace(state, node=node, owners=owners, division=division)
    for seat in sorted(state.seats.values(), key=lambda seat: seat.importance):
        missing = [index for index in seat.gpus if index >= len(owners) or owners[index] != seat.pod]
        if missing or len(seat.gpus) < seat.shape.gpus or seat.slices != _instances(state, seat, own=True):
            state = seated(unseated(state, seat.pod), seat)
    return state


def seated(state: NodeState, seat: AssignedPod) -> NodeState:
    """The node with one more pod.

    The pod gets the GPU indices that it names. If one of them is taken, does not exist or is not named, it gets free
    ones that are close to each other instead, so that no GPU ever has two owners. The same holds for MIG instances. A
    pod beyond the node's capacity owns fewer GPUs than it requests.
    """
    gpus, instances = _indices(state, seat), _instances(state, seat)
    seat = seat if (gpus, instances) == (seat.gpus, seat.slices) else replace(seat, gpus=gpus, slices=instances)
    owners = list(state.owners)
    for index in gpus:
        owners[index] = seat.pod
    used = dict(state.used)
    for name, value in seat.shape.requests.items():
        used[name] = used.get(name, 0) + value
    used[PODS] = used.get(PODS, 0) + 1
    cpu, memory = state.counted
    return NodeState(
        state.name,
        state.node,
        used,
        (cpu + seat.shape.counted[CPU], memory + seat.shape.counted[MEMORY]),
        {**state.seats, seat.pod: seat},
        tuple(owners),
        state.reserved,
        min(state.lowest, seat.priority),
        state.division,
    )


def unseated(state: NodeState, pod: str) -> NodeState:
    """The node without this pod. Raises KeyError if the pod is not on the node."""
    seats = dict(state.seats)
    seat = seats.pop(pod)
    used = dict(state.used)
    for name, value in seat.shape.requests.items():
        used[name] -= value
    used[PODS] -= 1
    cpu, memory = state.counted
    lowest = state.lowest
    if seat.priority == lowest:
        lowest = min((other.priority for other in seats.values()), default=MAX)
    return NodeState(
        state.name,
        state.node,
        used,
        (cpu - seat.shape.counted[CPU], memory - seat.shape.counted[MEMORY]),
        seats,
        tuple(NO_OWNERS if owner == pod else owner for owner in state.owners),
        state.reserved,
        lowest,
        state.division,
    )


def leaving(state: NodeState, pod: str) -> NodeState:
    """The node with this pod marked as terminating."""
    return replace(state, seats={**state.seats, pod: replace(state.seats[pod], leaving=True)})


def reserving(state: NodeState, reservation: Reservation) -> NodeState:
    """The node with capacity reserved for a nominated pod."""
    return replace(state, reserved=(*state.reserved, reservation))


def unreserving(state: NodeState, pod: str) -> NodeState:
    """The node without this pod's reservation."""
    return replace(state, reserved=tuple(r for r in state.reserved if r.pod != pod))


def reserved_against(state: NodeState, priority: int) -> Resources:
    """Capacity that nominated pods reserve against a pod of this priority (RunFilterPluginsWithNominatedPods)."""
    total: dict[str, int] = {}
    for reservation in state.reserved:
        if reservation.priority >= priority:
            for name, value in reservation.shape.requests.items():
                total[name] = total.get(name, 0) + value
            total[PODS] = total.get(PODS, 0) + 1
    return total


def _indices(state: NodeState, seat: AssignedPod) -> tuple[int, ...]:
    wanted = seat.shape.gpus
    named = tuple(sorted(set(seat.gpus)))
    if len(named) == wanted and all(0 <= i < len(state.owners) and state.owners[i] == NO_OWNERS for i in named):
        return named
    return gpu_allocation.choose_gpus(state.node, state.free_gpus, wanted)


def _instances(state: NodeState, seat: AssignedPod, own: bool = False) -> tuple[MigInstance, ...]:
    """The MIG instances of an assignment: the named ones if available; `own` if the pod already holds them."""
    if state.division is None:
        return ()
    names = gpu_allocation.wanted(state.division, seat.shape.requests)
    taken = state.taken - set(seat.slices) if own else state.taken
    if gpu_allocation.can_have(state.division, taken, seat.slices, names):
        return seat.slices
    return gpu_allocation.choose_instances(state.division, taken, names) or ()

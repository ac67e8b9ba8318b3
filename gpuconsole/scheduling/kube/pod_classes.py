"""Classes of pods with equal scheduling requirements, and the state of one node.

Placement evaluates each `PodClass` once for all its pods. A `NodeState` is frozen: the node's pods, usage, GPU owners
and reservations; functions such as `with_pod` and `with_reservation` return the state after a change.
"""

from collections.abc import Mapping

from msgspec import Struct
from msgspec.structs import replace

from gpuconsole.model.clock import Time
from gpuconsole.model.cluster import Node, Pod
from gpuconsole.model.gpus.mig import MigInstance
from gpuconsole.model.gpus.mig_reconfiguration import Division, division_of
from gpuconsole.model.labels import NodeTerm, PreferredTerm, Toleration
from gpuconsole.model.pod_template import Container, PodTemplate
from gpuconsole.model.resources import CPU, EMPTY, HAMI_SHARES, MAX, MEMORY, PODS, Resources, gpus
from gpuconsole.scheduling.devices import gpu_allocation
from gpuconsole.scheduling.kube.profile import IMAGES, SchedulerProfile

DEFAULT_CPU = 100
DEFAULT_MEMORY = 200 * 1024**2
"""Requests, in milli-CPU and bytes, that scores assume for a container without any (GetNonzeroRequests)."""

PodClassKey = tuple[object, ...]
DEFAULT_NONZERO = SchedulerProfile(scores=())


class PodClass(Struct, frozen=True, eq=False):
    """What a class of pods requires of a node. Compared by identity: `PodClasses` creates one for each class."""

    requests: Mapping[str, int]
    """Requested amount by resource, without zeros."""
    score_requests: Mapping[str, int]
    """cpu and memory for scores, which use defaults for containers without requests."""
    gpus: int
    node_selector: Mapping[str, str]
    affinity: tuple[NodeTerm, ...] | None
    preferred: tuple[PreferredTerm, ...]
    tolerations: tuple[Toleration, ...]
    fit_requests: Mapping[str, int]
    """The requests that NodeResourcesFit checks."""
    images: tuple[str, ...] = ()
    """Images of its containers; empty if the profile does not enable ImageLocality."""


class PodClasses:
    """Finds the class of a pod template: one object for equal requirements. Mutates, but only as a shared cache."""

    _REMEMBERED = 4096

    def __init__(self, profile: SchedulerProfile = DEFAULT_NONZERO) -> None:
        self._images = bool(profile.weight(IMAGES))
        self._ignored = frozenset(profile.ignored_resources)
        self._groups = frozenset(profile.ignored_groups)
        self._by_key: dict[PodClassKey, PodClass] = {}
        # Holds the template itself, so that its id is not reused while it is a key.
        self._by_template: dict[int, tuple[PodTemplate, PodClass]] = {}

    def of(self, template: PodTemplate) -> PodClass:
        """The class of a template; the same object for templates with the same requirements."""
        known = self._by_template.get(id(template))
        if known is not None:
            return known[1]
        if len(self._by_template) >= self._REMEMBERED:
            self._by_template.clear()
        pod_class = self._new_class(template)
        pod_class = self._by_key.setdefault(_class_key(pod_class), pod_class)
        self._by_template[id(template)] = (template, pod_class)
        return pod_class

    def _new_class(self, template: PodTemplate) -> PodClass:
        requests = {name: value for name, value in template.requests.items() if value > 0}
        every = (*template.containers, *template.init_containers)
        filled = replace(
            template,
            containers=tuple(_with_default_requests(container) for container in template.containers),
            init_containers=tuple(_with_default_requests(container) for container in template.init_containers),
        ).requests
        return PodClass(
            requests=requests,
            score_requests={CPU: filled.get(CPU, 0), MEMORY: filled.get(MEMORY, 0)},
            gpus=gpus(requests),
            node_selector=template.node_selector,
            affinity=template.affinity,
            preferred=template.preferred,
            tolerations=template.tolerations,
            fit_requests={name: value for name, value in requests.items() if not self._is_ignored(name)},
            images=tuple(container.image for container in every) if self._images else (),
        )

    def _is_ignored(self, resource: str) -> bool:
        """True if NodeResourcesFit ignores the resource: extended resources by name, or by group (what precedes `/`).

        HAMi's GPU shares are not node resources: its scheduler ignores them, and its extender places them.
        """
        return resource in HAMI_SHARES or resource in self._ignored or resource.partition("/")[0] in self._groups


def _with_default_requests(container: Container) -> Container:
    return replace(container, requests={CPU: DEFAULT_CPU, MEMORY: DEFAULT_MEMORY, **container.effective})


def _class_key(pod_class: PodClass) -> PodClassKey:
    return (
        tuple(sorted(pod_class.requests.items())),
        tuple(sorted(pod_class.score_requests.items())),
        tuple(sorted(pod_class.node_selector.items())),
        pod_class.affinity,
        pod_class.preferred,
        pod_class.tolerations,
        pod_class.images,
    )


NO_OWNER = ""


class AssignedPod(Struct, frozen=True):
    """A pod on a node, with the GPUs and MIG instances that it has."""

    pod: str
    pod_class: PodClass
    priority: int
    since: Time
    """When the pod was bound."""
    gpus: tuple[int, ...] = ()
    terminating: bool = False
    """True if the pod is terminating; it holds its resources until it is gone."""
    slices: tuple[MigInstance, ...] = ()
    obj: Pod | None = None
    """The Pod object, for plugins that match labels."""

    @property
    def importance(self) -> tuple[int, Time, str]:
        """Sort key of victims, the most important pod first (kube-scheduler's MoreImportantPod, then by key)."""
        return (-self.priority, self.since, self.pod)


class Reservation(Struct, frozen=True):
    """Capacity of a node that a nominated pod keeps free from pods of equal and lower priority."""

    pod: str
    pod_class: PodClass
    priority: int
    obj: Pod | None = None


class NodeState(Struct, frozen=True):
    """A node and the pods on it. `node` is None if pods name the node but there is no Node object."""

    name: str
    node: Node | None = None
    used: Resources = EMPTY
    """Sum of the requests of all its pods, and their number as `pods`."""
    score_requests: tuple[int, int] = (0, 0)
    """Sum of their (cpu, memory) for scores, which use defaults where a container requests none."""
    pods: Mapping[str, AssignedPod] = {}
    owners: tuple[str, ...] = ()
    """Pod key by GPU index; `NO_OWNER` where the GPU is free."""
    reserved: tuple[Reservation, ...] = ()
    lowest_priority: int = MAX
    """Lowest priority of its pods: a pod at or below it can preempt none of them."""
    division: Division | None = None
    """How its GPUs are divided into MIG instances; None if they are not."""

    @property
    def free_gpus(self) -> tuple[int, ...]:
        """Indices of the GPUs without an owner."""
        return tuple(index for index, owner in enumerate(self.owners) if owner == NO_OWNER)

    @property
    def taken_instances(self) -> set[MigInstance]:
        """The MIG instances that are assigned."""
        return {one for assigned in self.pods.values() for one in assigned.slices}


def with_node(state: NodeState, node: Node | None) -> NodeState:
    """The state after the Node object changed (None: deleted); pods get other GPUs where theirs no longer exist."""
    count = node.gpus if node is not None else 0
    kept = state.owners[:count]
    owners = kept + (NO_OWNER,) * (count - len(kept))
    division = None if node is None else division_of(node.allocatable, node.labels, node.annotations)
    state = replace(state, node=node, owners=owners, division=division)
    for assigned in sorted(state.pods.values(), key=lambda assigned: assigned.importance):
        missing = [index for index in assigned.gpus if index >= len(owners) or owners[index] != assigned.pod]
        if (
            missing
            or len(assigned.gpus) < assigned.pod_class.gpus
            or assigned.slices != _mig_instances(state, assigned, own=True)
        ):
            state = with_pod(without_pod(state, assigned.pod), assigned)
    return state


def with_pod(state: NodeState, assigned: AssignedPod) -> NodeState:
    """The node with one more pod.

    The pod gets the GPU indices that it names. If one of them is taken, does not exist or is not named, it gets free
    ones that are close to each other instead, so that no GPU ever has two owners. The same holds for MIG instances. A
    pod beyond the node's capacity owns fewer GPUs than it requests.
    """
    gpus, instances = _gpu_indices(state, assigned), _mig_instances(state, assigned)
    assigned = (
        assigned
        if (gpus, instances) == (assigned.gpus, assigned.slices)
        else replace(assigned, gpus=gpus, slices=instances)
    )
    owners = list(state.owners)
    for index in gpus:
        owners[index] = assigned.pod
    used = dict(state.used)
    for name, value in assigned.pod_class.requests.items():
        used[name] = used.get(name, 0) + value
    used[PODS] = used.get(PODS, 0) + 1
    cpu, memory = state.score_requests
    return NodeState(
        state.name,
        state.node,
        used,
        (cpu + assigned.pod_class.score_requests[CPU], memory + assigned.pod_class.score_requests[MEMORY]),
        {**state.pods, assigned.pod: assigned},
        tuple(owners),
        state.reserved,
        min(state.lowest_priority, assigned.priority),
        state.division,
    )


def without_pod(state: NodeState, pod: str) -> NodeState:
    """The node without this pod. Raises KeyError if the pod is not on the node."""
    assigned_pods = dict(state.pods)
    assigned = assigned_pods.pop(pod)
    used = dict(state.used)
    for name, value in assigned.pod_class.requests.items():
        used[name] -= value
    used[PODS] -= 1
    cpu, memory = state.score_requests
    lowest = state.lowest_priority
    if assigned.priority == lowest:
        lowest = min((other.priority for other in assigned_pods.values()), default=MAX)
    return NodeState(
        state.name,
        state.node,
        used,
        (cpu - assigned.pod_class.score_requests[CPU], memory - assigned.pod_class.score_requests[MEMORY]),
        assigned_pods,
        tuple(NO_OWNER if owner == pod else owner for owner in state.owners),
        state.reserved,
        lowest,
        state.division,
    )


def with_terminating_pod(state: NodeState, pod: str) -> NodeState:
    """The node with this pod marked as terminating."""
    return replace(state, pods={**state.pods, pod: replace(state.pods[pod], terminating=True)})


def with_reservation(state: NodeState, reservation: Reservation) -> NodeState:
    """The node with capacity reserved for a nominated pod."""
    return replace(state, reserved=(*state.reserved, reservation))


def without_reservation(state: NodeState, pod: str) -> NodeState:
    """The node without this pod's reservation."""
    return replace(state, reserved=tuple(r for r in state.reserved if r.pod != pod))


def reserved_from(state: NodeState, priority: int) -> Resources:
    """Capacity that nominated pods reserve against a pod of this priority (RunFilterPluginsWithNominatedPods)."""
    total: dict[str, int] = {}
    for reservation in state.reserved:
        if reservation.priority >= priority:
            for name, value in reservation.pod_class.requests.items():
                total[name] = total.get(name, 0) + value
            total[PODS] = total.get(PODS, 0) + 1
    return total


def _gpu_indices(state: NodeState, assigned: AssignedPod) -> tuple[int, ...]:
    wanted = assigned.pod_class.gpus
    named = tuple(sorted(set(assigned.gpus)))
    if len(named) == wanted and all(0 <= i < len(state.owners) and state.owners[i] == NO_OWNER for i in named):
        return named
    return gpu_allocation.choose_gpus(state.node, state.free_gpus, wanted)


def _mig_instances(state: NodeState, assigned: AssignedPod, own: bool = False) -> tuple[MigInstance, ...]:
    """The MIG instances of an assignment: the named ones if available; `own` if the pod already holds them."""
    if state.division is None:
        return ()
    names = gpu_allocation.requested_profiles(state.division, assigned.pod_class.requests)
    taken = state.taken_instances - set(assigned.slices) if own else state.taken_instances
    if gpu_allocation.can_assign(state.division, taken, assigned.slices, names):
        return assigned.slices
    return gpu_allocation.choose_instances(state.division, taken, names) or ()

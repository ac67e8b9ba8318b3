"""State of placement: the node cache and the queue of pods, kept consistent with each other and with the objects.

The functions tell what a pending pod depends on beyond its class: other pods, host ports, and claims.
"""

from collections.abc import Mapping
from itertools import chain

from msgspec.structs import replace

from gpuconsole.model.clock import Time
from gpuconsole.model.cluster import CompositePodGroup, Node, Pod, PodDisruptionBudget, PodPhase, PriorityClass
from gpuconsole.model.objects import Object
from gpuconsole.model.pod_template import PodTemplate
from gpuconsole.model.volcano import PodGroup
from gpuconsole.scheduling.kube import framework_runtime, pod_groups
from gpuconsole.scheduling.kube.inter_pod_affinity import has_pod_affinity
from gpuconsole.scheduling.kube.node_cache import NodeCache
from gpuconsole.scheduling.kube.plugins.framework import host_ports
from gpuconsole.scheduling.kube.plugins.pod_topology_spread import siblings
from gpuconsole.scheduling.kube.pod_classes import AssignedPod, PodClasses, Reservation
from gpuconsole.scheduling.kube.pod_groups import GroupTree, gang_of, group_of
from gpuconsole.scheduling.kube.preemption import DisruptionAllowance, opened
from gpuconsole.scheduling.kube.profile import PlacementPolicy, SchedulerProfile
from gpuconsole.scheduling.kube.scheduling_queue import Kind, PendingPod, PodBackoff, PodGang, Queue, gang_key


def kind_of(pod: Pod) -> Kind:
    """Key that tells pods of one class apart by labels, affinity, host ports and claims."""
    return (*framework_runtime.kind_of(pod), host_ports(pod.template), pod.key if _claims(pod) else "")


def depends_on_other_pods(pod: Pod, rules: SchedulerProfile) -> bool:
    """True if scheduling the pod depends on other pods or on its claims."""
    template = pod.template
    if template.spread or has_pod_affinity(pod) or _claims(pod) or host_ports(template):
        return True
    return bool(rules.spread is None or rules.spread) and siblings(pod) is not None


def has_node_constraints(pod: Pod) -> bool:
    """True if new pods, volumes or devices may make a pending pod schedulable: spread, required affinity or claims."""
    affinity = pod.template.pod_affinity
    return bool(pod.template.spread) or _claims(pod) or (affinity is not None and bool(affinity.required))


def _claims(pod: Pod) -> bool:
    return bool(pod.template.volumes or pod.template.resource_claims)


NEVER = "Never"


class PlacementState:
    """The state that scheduling passes read and update: nodes, placed and pending pods, gangs, nominations, claims.

    Mutates.
    """

    def __init__(self, policy: PlacementPolicy) -> None:
        self.board = NodeCache(policy)
        self.queue = Queue(policy.gangs)
        self.delays = PodBackoff(self.board.rules.backoff)
        self.board.budgets = self.open_budgets
        self.shapes = PodClasses(self.board.rules)
        self.groups: dict[str, PodGroup] = {}
        self.composites: dict[str, CompositePodGroup] = {}
        self.classes: dict[str, PriorityClass] = {}
        self.freed = 0
        """Counts events that may make a refused pod schedulable: freed capacity, changed nodes."""
        self.stirred = False
        """A pod was queued, or such an event occurred, since the last pass began."""
        self.budgets: dict[str, PodDisruptionBudget] = {}
        self.crowded = False
        """A pod with affinity terms has been seen, so pods of one class are told apart by their labels from now on."""
        self._homes: dict[str, tuple[int, str]] = {}
        """Pod → number of its node, and its gang (empty without one)."""
        self._unwell: set[str] = set()
        """Pods that have a node but are not running or not ready."""
        self._choosy: set[str] = set()
        """Pending pods that new pods, volumes or devices may make schedulable (`has_node_constraints`)."""

    def fork(self, policy: PlacementPolicy) -> "PlacementState":
        """An independent copy."""
        twin = PlacementState(policy)
        twin.board = self.board.fork()
        twin.board.budgets = twin.open_budgets
        twin.queue = self.queue.fork()
        twin.delays = self.delays.fork()
        twin.shapes = self.shapes
        twin.groups, twin.classes = self.groups.copy(), self.classes.copy()
        twin.composites = self.composites.copy()
        twin.freed, twin.stirred = self.freed, self.stirred
        twin.budgets, twin.crowded = self.budgets.copy(), self.crowded
        twin._homes = self._homes.copy()
        twin._unwell, twin._choosy = self._unwell.copy(), self._choosy.copy()
        return twin

    def describe(self, name: str, node: Node | None) -> None:
        """Apply a node that appeared, changed or was deleted."""
        if self.board.describe(name, node):
            self.stir()

    def stir(self) -> None:
        """Record an event after which refused pods are tried again, such as freed capacity."""
        self.freed += 1
        self.stirred = True

    def take_in(self, pod: Pod) -> None:
        """Apply a pod that appeared or changed: it is placed, pending, or neither (finished, deleted or gated)."""
        if not self.crowded and not pod.done and has_pod_affinity(pod):
            self._grow_crowded()
        if pod.node and not pod.done:
            self.withdraw(pod.key)
            self._settle(pod)
            return
        self._release(pod.key)
        if pod.done or pod.deleted or pod.gates:
            self.withdraw(pod.key)
        else:
            self._await(self.waiter(pod))

    def forget(self, key: str) -> None:
        """Apply the deletion of a pod."""
        self._release(key)
        self.withdraw(key)

    def seat(self, waiter: PendingPod, number: int, now: Time) -> AssignedPod:
        """Assign a pending pod to the node `board.nodes[number]`; returns the assignment, in which its GPUs are set."""
        self.withdraw(waiter.pod)
        seat = self.board.seat(number, AssignedPod(waiter.pod, waiter.shape, waiter.priority, now, who=waiter.who))
        self._unwell.add(waiter.pod)
        self._company()
        self._homes[waiter.pod] = (number, waiter.gang)
        if waiter.gang:
            self.queue.seat(waiter.gang, waiter.pod, size=waiter.size, job=waiter.job, gpus=waiter.shape.gpus)
        return seat

    def seat_of(self, key: str) -> AssignedPod | None:
        """The pod's assignment to a node; None if it has none."""
        home = self._homes.get(key)
        return None if home is None else self.board.nodes[home[0]].seats[key]

    def number_of(self, key: str) -> int:
        """The number of the pod's node. Raises KeyError if it has none."""
        return self._homes[key][0]

    def leave(self, key: str) -> None:
        """Mark a placed pod as terminating."""
        number, gang = self._homes[key]
        if not self.board.nodes[number].seats[key].leaving:
            self.board.leave(number, key)
            self.queue.unseat(gang, key)

    def withdraw(self, key: str) -> None:
        """Remove a pod from the pending pods, with its back-off and its reservation."""
        self._choosy.discard(key)
        waiter = self.queue.drop(key)
        if waiter is not None:
            self.delays.forget(key)
            if waiter.gang and waiter.gang not in self.queue.gangs:
                self.delays.forget(gang_key(waiter.gang))
        self._unreserve(waiter)

    def nominate(self, waiter: PendingPod, node: str) -> None:
        """Nominate a pod to this node; an empty name removes its nomination."""
        self._unreserve(waiter)
        waiter = replace(waiter, nominated=node)
        self._reserve(waiter)
        self.queue.nominate(waiter, self.freed)

    def regroup(self, key: str, group: PodGroup | None) -> None:
        """Apply a PodGroup that appeared, changed or was deleted: the gang's minimum may have changed."""
        before = self.groups.get(key)
        if group is None:
            self.groups.pop(key, None)
        else:
            self.groups[key] = group
        if before is None or group is None or before.min_member != group.min_member:
            gang = self.queue.gangs.get(key)
            members = gang.waiters.values() if gang is not None else ()
            if any(waiter.who is not None and group_of(waiter.who) == key for waiter in members):
                self.queue.resize(key, group.min_member if group is not None else 0)
                self.stirred = True

    def compose(self, key: str, group: CompositePodGroup | None) -> None:
        """Apply a CompositePodGroup that appeared, changed or was deleted; its gangs may change."""
        if group is None:
            self.composites.pop(key, None)
        else:
            self.composites[key] = group
        self.stir()

    def name_space(self, name: str, labels: Mapping[str, str] | None) -> None:
        """Apply a namespace that appeared, changed or was deleted."""
        if labels is None:
            self.board.namespaces.pop(name, None)
        else:
            self.board.namespaces[name] = labels
        if self._choosy:
            self.stir()

    def provide(self, obj: Object) -> None:
        """Apply a storage or DRA object that appeared or changed; other kinds are ignored."""
        if self.board.means.take_in(obj) and self._choosy:
            self.stir()

    def withhold(self, table: str, key: str) -> None:
        """Apply the deletion of a storage or DRA object."""
        if self.board.means.forget(table, key) and self._choosy:
            self.stir()

    def open_budgets(self) -> tuple[DisruptionAllowance, ...]:
        """Each PodDisruptionBudget with the disruptions that it allows now."""
        if not self.budgets:
            return ()
        seats = ((seat.who, self._healthy(seat)) for state in self.board.nodes for seat in state.seats.values())
        waiting = ((waiter.who, False) for waiter in self.queue.waiters.values())
        return opened(
            (self.budgets[key] for key in sorted(self.budgets)),
            ((pod, healthy) for pod, healthy in chain(seats, waiting) if pod is not None),
        )

    def obstacle(self, gang: PodGang) -> str:
        """Why a gang is not tried now; empty if it is."""
        return pod_groups.obstacle(gang, self.groups.get(gang.name), self.composites, self.board)

    def tree_of(self, gang: PodGang) -> GroupTree:
        """The hierarchy of groups that contains a gang; call only if there is no `obstacle`."""
        return pod_groups.tree_of(gang, self.groups, self.composites, self.queue.gangs)

    def priority(self, template: PodTemplate) -> int:
        """The priority that a pod of this template would have."""
        named = self.classes.get(template.priority_class)
        return template.priority or (named.value if named is not None else 0)

    def _settle(self, pod: Pod) -> None:
        """Record the pod on its node, which may differ from its previous one."""
        number, shape = self.board.number(pod.node), self.shapes.of(pod.template)
        if self._homes.get(pod.key, (number, ""))[0] != number:
            self._release(pod.key)
        gang, since = gang_of(pod), pod.bound or pod.started or pod.created
        old = self.board.nodes[number].seats.get(pod.key)
        now = (pod.gpus, pod.slices, shape, pod.priority, since)
        same = old is not None and (old.gpus, old.slices, old.shape, old.priority, old.since) == now
        if old is None or not same or old.who is None or old.who.labels != pod.labels:
            if old is not None:
                self.board.unseat(number, pod.key)
                if self.crowded:
                    self.stir()
            self.board.seat(
                number, AssignedPod(pod.key, shape, pod.priority, since, pod.gpus, slices=pod.slices, who=pod)
            )
            self._homes[pod.key] = (number, gang)
            self._company()
        (self._unwell.add if pod.unready or pod.phase is not PodPhase.RUNNING else self._unwell.discard)(pod.key)
        if gang and not pod.deleted:
            self.queue.seat(gang, pod.key, size=self._size(pod), job=pod.job, gpus=shape.gpus)
        if pod.deleted:
            self.leave(pod.key)

    def _release(self, key: str) -> None:
        """Remove the pod from its node."""
        home = self._homes.pop(key, None)
        if home is not None:
            self._unwell.discard(key)
            self.board.unseat(home[0], key)
            self.queue.unseat(home[1], key)
            self.stir()

    def _await(self, waiter: PendingPod) -> None:
        """Queue the pod, and move its reservation to its nominated node."""
        old = self.queue.waiters.get(waiter.pod)
        same = old is not None and (old.nominated, old.shape, old.priority, old.kind) == (
            *(waiter.nominated, waiter.shape, waiter.priority, waiter.kind),
        )
        if not same:
            self._unreserve(old)
            self._reserve(waiter)
        if waiter.kind is not None and waiter.who is not None and has_node_constraints(waiter.who):
            self._choosy.add(waiter.pod)
        if self.queue.add(waiter):
            self.stirred = True

    def _grow_crowded(self) -> None:
        """From now on, put pods in one batch only if their labels are equal."""
        self.crowded = True
        for waiter in tuple(self.queue.waiters.values()):
            if waiter.kind is None and waiter.who is not None:
                self.queue.drop(waiter.pod)
                self.queue.add(replace(waiter, kind=kind_of(waiter.who)))
                self.stirred = True

    def _company(self) -> None:
        """Retry pods with affinity or spread constraints that a newly placed pod may make schedulable."""
        if self._choosy:
            self.stir()

    def _healthy(self, seat: AssignedPod) -> bool:
        return not seat.leaving and seat.pod not in self._unwell

    def waiter(self, pod: Pod) -> PendingPod:
        """Create the queue's entry for a pod that needs a node."""
        template = pod.template
        named = self.classes.get(template.priority_class)
        return PendingPod(
            pod=pod.key,
            created=pod.created,
            shape=self.shapes.of(template),
            priority=pod.priority,
            never=(template.preemption_policy or (named.preemption_policy if named is not None else "")) == NEVER,
            gang=gang_of(pod),
            size=self._size(pod),
            job=pod.job,
            nominated=pod.nominated_node,
            message=pod.message,
            who=pod,
            kind=kind_of(pod) if self.crowded or depends_on_other_pods(pod, self.board.rules) else None,
        )

    def _size(self, pod: Pod) -> int:
        group = self.groups.get(gang_of(pod))
        least = group.min_member if group is not None else 0
        return least if group_of(pod) else pod.gang_size or least

    def _reserve(self, waiter: PendingPod) -> None:
        if waiter.nominated:
            reservation = Reservation(waiter.pod, waiter.shape, waiter.priority, waiter.who)
            self.board.reserve(self.board.number(waiter.nominated), reservation)

    def _unreserve(self, waiter: PendingPod | None) -> None:
        if waiter is not None and waiter.nominated:
            self.board.unreserve(self.board.number(waiter.nominated), waiter.pod)
            self.stir()

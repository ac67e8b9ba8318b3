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
from gpuconsole.scheduling.kube.plugins.pod_topology_spread import controller_selector
from gpuconsole.scheduling.kube.pod_classes import AssignedPod, PodClasses, Reservation
from gpuconsole.scheduling.kube.pod_groups import GroupTree, gang_of, pod_group_of
from gpuconsole.scheduling.kube.preemption import DisruptionAllowance, disruption_allowances
from gpuconsole.scheduling.kube.profile import PlacementPolicy, SchedulerProfile
from gpuconsole.scheduling.kube.scheduling_queue import (
    ConstraintsKey,
    PendingPod,
    PodBackoff,
    PodGang,
    Queue,
    gang_backoff_key,
)


def constraints_key(pod: Pod) -> ConstraintsKey:
    """Key that tells pods of one class apart by labels, affinity, host ports and claims."""
    return (*framework_runtime.pod_group_key(pod), host_ports(pod.template), pod.key if _has_claims(pod) else "")


def needs_pod_plugins(pod: Pod, profile: SchedulerProfile) -> bool:
    """True if scheduling the pod depends on other pods or on its claims."""
    template = pod.template
    if template.spread or has_pod_affinity(pod) or _has_claims(pod) or host_ports(template):
        return True
    return bool(profile.spread is None or profile.spread) and controller_selector(pod) is not None


def may_become_schedulable(pod: Pod) -> bool:
    """True if new pods, volumes or devices may make a pending pod schedulable: spread, required affinity or claims."""
    affinity = pod.template.pod_affinity
    return bool(pod.template.spread) or _has_claims(pod) or (affinity is not None and bool(affinity.required))


def _has_claims(pod: Pod) -> bool:
    return bool(pod.template.volumes or pod.template.resource_claims)


NEVER_PREEMPT = "Never"


class PlacementState:
    """The state that scheduling passes read and update: nodes, placed and pending pods, gangs, nominations, claims.

    Mutates.
    """

    def __init__(self, policy: PlacementPolicy) -> None:
        self.node_cache = NodeCache(policy)
        self.queue = Queue(policy.gangs)
        self.backoff = PodBackoff(self.node_cache.profile.backoff)
        self.node_cache.budgets = self.disruption_allowances
        self.pod_classes = PodClasses(self.node_cache.profile)
        self.groups: dict[str, PodGroup] = {}
        self.composites: dict[str, CompositePodGroup] = {}
        self.classes: dict[str, PriorityClass] = {}
        self.freed = 0
        """Counts events that may make a refused pod schedulable: freed capacity, changed nodes."""
        self.has_untried = False
        """A pod was queued, or such an event occurred, since the last pass began."""
        self.budgets: dict[str, PodDisruptionBudget] = {}
        self.compares_labels = False
        """A pod with affinity terms has been seen, so pods of one class are told apart by their labels from now on."""
        self._assignments: dict[str, tuple[int, str]] = {}
        """Pod → number of its node, and its gang (empty without one)."""
        self._unhealthy: set[str] = set()
        """Pods that have a node but are not running or not ready."""
        self._retried_on_new_pods: set[str] = set()
        """Pending pods that new pods, volumes or devices may make schedulable (`may_become_schedulable`)."""

    def fork(self, policy: PlacementPolicy) -> "PlacementState":
        """An independent copy."""
        copied = PlacementState(policy)
        copied.node_cache = self.node_cache.fork()
        copied.node_cache.budgets = copied.disruption_allowances
        copied.queue = self.queue.fork()
        copied.backoff = self.backoff.fork()
        copied.pod_classes = self.pod_classes
        copied.groups, copied.classes = self.groups.copy(), self.classes.copy()
        copied.composites = self.composites.copy()
        copied.freed, copied.has_untried = self.freed, self.has_untried
        copied.budgets, copied.compares_labels = self.budgets.copy(), self.compares_labels
        copied._assignments = self._assignments.copy()
        copied._unhealthy, copied._retried_on_new_pods = self._unhealthy.copy(), self._retried_on_new_pods.copy()
        return copied

    def apply_node(self, name: str, node: Node | None) -> None:
        """Apply a node that appeared, changed or was deleted."""
        if self.node_cache.set_node(name, node):
            self.note_freed()

    def note_freed(self) -> None:
        """Record an event after which refused pods are tried again, such as freed capacity."""
        self.freed += 1
        self.has_untried = True

    def apply_pod(self, pod: Pod) -> None:
        """Apply a pod that appeared or changed: it is placed, pending, or neither (finished, deleted or gated)."""
        if not self.compares_labels and not pod.done and has_pod_affinity(pod):
            self._start_comparing_labels()
        if pod.node and not pod.done:
            self.remove_pending(pod.key)
            self._apply_assignment(pod)
            return
        self._unassign(pod.key)
        if pod.done or pod.deleted or pod.gates:
            self.remove_pending(pod.key)
        else:
            self._queue_pod(self.pending_pod(pod))

    def delete_pod(self, key: str) -> None:
        """Apply the deletion of a pod."""
        self._unassign(key)
        self.remove_pending(key)

    def assign(self, pending_pod: PendingPod, number: int, now: Time) -> AssignedPod:
        """Assign a pending pod to the node with this number; returns the assignment, in which its GPUs are set."""
        self.remove_pending(pending_pod.pod)
        assigned = self.node_cache.assign(
            number, AssignedPod(pending_pod.pod, pending_pod.pod_class, pending_pod.priority, now, obj=pending_pod.obj)
        )
        self._unhealthy.add(pending_pod.pod)
        self._retry_for_new_pod()
        self._assignments[pending_pod.pod] = (number, pending_pod.gang)
        if pending_pod.gang:
            self.queue.note_assigned(
                pending_pod.gang,
                pending_pod.pod,
                minimum=pending_pod.gang_minimum,
                job=pending_pod.job,
                gpus=pending_pod.pod_class.gpus,
            )
        return assigned

    def assignment_of(self, key: str) -> AssignedPod | None:
        """The pod's assignment to a node; None if it has none."""
        assignment = self._assignments.get(key)
        return None if assignment is None else self.node_cache.nodes[assignment[0]].pods[key]

    def node_number_of(self, key: str) -> int:
        """The number of the pod's node. Raises KeyError if it has none."""
        return self._assignments[key][0]

    def mark_terminating(self, key: str) -> None:
        """Mark a placed pod as terminating."""
        number, gang = self._assignments[key]
        if not self.node_cache.nodes[number].pods[key].terminating:
            self.node_cache.mark_terminating(number, key)
            self.queue.note_unassigned(gang, key)

    def remove_pending(self, key: str) -> None:
        """Remove a pod from the pending pods, with its back-off and its reservation."""
        self._retried_on_new_pods.discard(key)
        pending_pod = self.queue.drop(key)
        if pending_pod is not None:
            self.backoff.forget(key)
            if pending_pod.gang and pending_pod.gang not in self.queue.gangs:
                self.backoff.forget(gang_backoff_key(pending_pod.gang))
        self._release_reservation(pending_pod)

    def nominate(self, pending_pod: PendingPod, node: str) -> None:
        """Nominate a pod to this node; an empty name removes its nomination."""
        self._release_reservation(pending_pod)
        pending_pod = replace(pending_pod, nominated=node)
        self._reserve_nominated_node(pending_pod)
        self.queue.nominate(pending_pod, self.freed)

    def apply_pod_group(self, key: str, group: PodGroup | None) -> None:
        """Apply a PodGroup that appeared, changed or was deleted: the gang's minimum may have changed."""
        before = self.groups.get(key)
        if group is None:
            self.groups.pop(key, None)
        else:
            self.groups[key] = group
        if before is None or group is None or before.min_member != group.min_member:
            gang = self.queue.gangs.get(key)
            members = gang.pending_pods.values() if gang is not None else ()
            if any(pending_pod.obj is not None and pod_group_of(pending_pod.obj) == key for pending_pod in members):
                self.queue.set_gang_minimum(key, group.min_member if group is not None else 0)
                self.has_untried = True

    def apply_composite_group(self, key: str, group: CompositePodGroup | None) -> None:
        """Apply a CompositePodGroup that appeared, changed or was deleted; its gangs may change."""
        if group is None:
            self.composites.pop(key, None)
        else:
            self.composites[key] = group
        self.note_freed()

    def apply_namespace(self, name: str, labels: Mapping[str, str] | None) -> None:
        """Apply a namespace that appeared, changed or was deleted."""
        if labels is None:
            self.node_cache.namespaces.pop(name, None)
        else:
            self.node_cache.namespaces[name] = labels
        if self._retried_on_new_pods:
            self.note_freed()

    def apply_claim_object(self, obj: Object) -> None:
        """Apply a storage or DRA object that appeared or changed; other kinds are ignored."""
        if self.node_cache.claims.apply_object(obj) and self._retried_on_new_pods:
            self.note_freed()

    def delete_claim_object(self, table: str, key: str) -> None:
        """Apply the deletion of a storage or DRA object."""
        if self.node_cache.claims.delete_object(table, key) and self._retried_on_new_pods:
            self.note_freed()

    def disruption_allowances(self) -> tuple[DisruptionAllowance, ...]:
        """Each PodDisruptionBudget with the disruptions that it allows now."""
        if not self.budgets:
            return ()
        assigned_pods = (
            (assigned.obj, self._is_healthy(assigned))
            for state in self.node_cache.nodes
            for assigned in state.pods.values()
        )
        waiting = ((pending_pod.obj, False) for pending_pod in self.queue.pending_pods.values())
        return disruption_allowances(
            (self.budgets[key] for key in sorted(self.budgets)),
            ((pod, healthy) for pod, healthy in chain(assigned_pods, waiting) if pod is not None),
        )

    def obstacle(self, gang: PodGang) -> str:
        """Why a gang is not tried now; empty if it is."""
        return pod_groups.gang_obstacle(gang, self.groups.get(gang.name), self.composites, self.node_cache)

    def tree_of(self, gang: PodGang) -> GroupTree:
        """The hierarchy of groups that contains a gang; call only if there is no `obstacle`."""
        return pod_groups.tree_of(gang, self.groups, self.composites, self.queue.gangs)

    def priority(self, template: PodTemplate) -> int:
        """The priority that a pod of this template would have."""
        priority_class = self.classes.get(template.priority_class)
        return template.priority or (priority_class.value if priority_class is not None else 0)

    def _apply_assignment(self, pod: Pod) -> None:
        """Record the pod on its node, which may differ from its previous one."""
        number, pod_class = self.node_cache.number(pod.node), self.pod_classes.of(pod.template)
        if self._assignments.get(pod.key, (number, ""))[0] != number:
            self._unassign(pod.key)
        gang, since = gang_of(pod), pod.bound or pod.started or pod.created
        old = self.node_cache.nodes[number].pods.get(pod.key)
        now = (pod.gpus, pod.slices, pod_class, pod.priority, since)
        same = old is not None and (old.gpus, old.slices, old.pod_class, old.priority, old.since) == now
        if old is None or not same or old.obj is None or old.obj.labels != pod.labels:
            if old is not None:
                self.node_cache.unassign(number, pod.key)
                if self.compares_labels:
                    self.note_freed()
            self.node_cache.assign(
                number, AssignedPod(pod.key, pod_class, pod.priority, since, pod.gpus, slices=pod.slices, obj=pod)
            )
            self._assignments[pod.key] = (number, gang)
            self._retry_for_new_pod()
        (self._unhealthy.add if pod.unready or pod.phase is not PodPhase.RUNNING else self._unhealthy.discard)(pod.key)
        if gang and not pod.deleted:
            self.queue.note_assigned(gang, pod.key, minimum=self._gang_minimum(pod), job=pod.job, gpus=pod_class.gpus)
        if pod.deleted:
            self.mark_terminating(pod.key)

    def _unassign(self, key: str) -> None:
        """Remove the pod from its node."""
        assignment = self._assignments.pop(key, None)
        if assignment is not None:
            self._unhealthy.discard(key)
            self.node_cache.unassign(assignment[0], key)
            self.queue.note_unassigned(assignment[1], key)
            self.note_freed()

    def _queue_pod(self, pending_pod: PendingPod) -> None:
        """Queue the pod, and move its reservation to its nominated node."""
        old = self.queue.pending_pods.get(pending_pod.pod)
        same = old is not None and (old.nominated, old.pod_class, old.priority, old.constraints) == (
            *(pending_pod.nominated, pending_pod.pod_class, pending_pod.priority, pending_pod.constraints),
        )
        if not same:
            self._release_reservation(old)
            self._reserve_nominated_node(pending_pod)
        if (
            pending_pod.constraints is not None
            and pending_pod.obj is not None
            and may_become_schedulable(pending_pod.obj)
        ):
            self._retried_on_new_pods.add(pending_pod.pod)
        if self.queue.add(pending_pod):
            self.has_untried = True

    def _start_comparing_labels(self) -> None:
        """From now on, put pods in one batch only if their labels are equal."""
        self.compares_labels = True
        for pending_pod in tuple(self.queue.pending_pods.values()):
            if pending_pod.constraints is None and pending_pod.obj is not None:
                self.queue.drop(pending_pod.pod)
                self.queue.add(replace(pending_pod, constraints=constraints_key(pending_pod.obj)))
                self.has_untried = True

    def _retry_for_new_pod(self) -> None:
        """Retry pods with affinity or spread constraints that a newly placed pod may make schedulable."""
        if self._retried_on_new_pods:
            self.note_freed()

    def _is_healthy(self, assigned: AssignedPod) -> bool:
        return not assigned.terminating and assigned.pod not in self._unhealthy

    def pending_pod(self, pod: Pod) -> PendingPod:
        """Create the queue's entry for a pod that needs a node."""
        template = pod.template
        priority_class = self.classes.get(template.priority_class)
        return PendingPod(
            pod=pod.key,
            created=pod.created,
            pod_class=self.pod_classes.of(template),
            priority=pod.priority,
            preempts_never=(
                template.preemption_policy or (priority_class.preemption_policy if priority_class is not None else "")
            )
            == NEVER_PREEMPT,
            gang=gang_of(pod),
            gang_minimum=self._gang_minimum(pod),
            job=pod.job,
            nominated=pod.nominated_node,
            message=pod.message,
            obj=pod,
            constraints=constraints_key(pod)
            if self.compares_labels or needs_pod_plugins(pod, self.node_cache.profile)
            else None,
        )

    def _gang_minimum(self, pod: Pod) -> int:
        group = self.groups.get(gang_of(pod))
        least = group.min_member if group is not None else 0
        return least if pod_group_of(pod) else pod.gang_size or least

    def _reserve_nominated_node(self, pending_pod: PendingPod) -> None:
        if pending_pod.nominated:
            reservation = Reservation(pending_pod.pod, pending_pod.pod_class, pending_pod.priority, pending_pod.obj)
            self.node_cache.reserve(self.node_cache.number(pending_pod.nominated), reservation)

    def _release_reservation(self, pending_pod: PendingPod | None) -> None:
        if pending_pod is not None and pending_pod.nominated:
            self.node_cache.unreserve(self.node_cache.number(pending_pod.nominated), pending_pod.pod)
            self.note_freed()

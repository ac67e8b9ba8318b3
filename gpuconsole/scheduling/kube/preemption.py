"""Preemption victims for a pod: kube-scheduler's PostFilter (DefaultPreemption), node by node.

On each node all pods of lower priority are removed in simulation; if the pod then fits, as many as possible are
reprieved, the most important first, and the rest are the victims. Terminating pods free their resources and are no
victims. Pods whose eviction would violate a PodDisruptionBudget are reprieved first.

`find_victims` does this for one node; `PreemptionCandidates` caches the results of all nodes for one class of pods.
"""

from collections.abc import Iterable
from heapq import heapify, heappop, heappush

from msgspec import Struct

from gpuconsole.model.cluster import Pod, PodDisruptionBudget
from gpuconsole.model.labels import LabelSelector
from gpuconsole.model.resources import PODS
from gpuconsole.scheduling.kube.filters import count_fitting, free_resources
from gpuconsole.scheduling.kube.framework_runtime import NO_POD_PLUGINS, PodContextPlugins
from gpuconsole.scheduling.kube.pod_classes import AssignedPod, NodeState, PodClass, with_pod, without_pod


class DisruptionAllowance(Struct, frozen=True):
    """A PodDisruptionBudget, and how many of its pods may be disrupted now (status.disruptionsAllowed)."""

    namespace: str
    selector: LabelSelector
    allowed: int

    def covers(self, pod: Pod) -> bool:
        """True if the budget selects the pod; pods without labels are never selected."""
        return bool(pod.labels) and pod.namespace == self.namespace and self.selector.matches(pod.labels)


def disruption_allowances(
    budgets: Iterable[PodDisruptionBudget], pods: Iterable[tuple[Pod, bool]]
) -> tuple[DisruptionAllowance, ...]:
    """Allowed disruptions of each budget, as the disruption controller counts; `pods` are (pod, whether it is healthy).

    A budget with an empty selector covers no pod in preemption (filterPodsWithPDBViolation).
    """
    living: dict[str, list[tuple[Pod, bool]]] = {}
    for pod, healthy in pods:
        living.setdefault(pod.namespace, []).append((pod, healthy))
    found = []
    for budget in budgets:
        selector = budget.selector
        if selector is None or not (selector.match_labels or selector.match_expressions):
            continue
        one = DisruptionAllowance(budget.namespace, selector, 0)
        covered = [healthy for pod, healthy in living.get(budget.namespace, ()) if one.covers(pod)]
        found.append(DisruptionAllowance(budget.namespace, selector, budget.allowed(len(covered), sum(covered))))
    return tuple(found)


def budget_violations(assigned_pods: Iterable[AssignedPod], budgets: Iterable[DisruptionAllowance]) -> set[str]:
    """Pods whose eviction, in this order, would violate a budget."""
    listed = list(budgets)
    left = [budget.allowed for budget in listed]
    violations = set()
    for assigned in assigned_pods:
        for index, budget in enumerate(listed):
            if assigned.obj is not None and budget.covers(assigned.obj):
                left[index] -= 1
                if left[index] < 0:
                    violations.add(assigned.pod)
    return violations


_OFFSET = 2**31
"""Added to each priority of the sum, so that many victims of negative priority do not win against few."""

VictimsRank = tuple[int, int, int, int, int]
"""Order of nodes by their victims; see `VictimsVote.rank`."""


class Victims(Struct, frozen=True):
    """The pods that preemption evicts on one node; empty if it is enough to wait for terminating pods."""

    pods: tuple[AssignedPod, ...]
    """The pods to evict, the most important first."""
    rank: VictimsRank
    """(budget violations, highest priority, sum of priorities, number of victims, −earliest start among those of the
    highest priority). The lowest rank is chosen, the first node on ties."""


def find_victims(
    state: NodeState,
    pod_class: PodClass,
    priority: int,
    pod_plugins: PodContextPlugins = NO_POD_PLUGINS,
    budgets: tuple[DisruptionAllowance, ...] = (),
) -> Victims | None:
    """The victims on this node for a pod of this class and priority, or None if preemption does not help.

    The node has passed the filters that preemption cannot change; `pod_plugins` holds those that match other pods.
    """
    lower_priority = lower_priority_pods(state, priority)
    if not lower_priority:
        return None
    if pod_plugins.filters or budgets or (state.division is not None and state.division.dynamic):
        return _find_victims_one_by_one(state, pod_class, priority, lower_priority, pod_plugins, budgets)
    left = _free_without_lower_priority(state, pod_class, priority, lower_priority)
    if not count_fitting(left, pod_class):
        return None
    evicted = tuple(
        assigned for assigned in _victim_candidates(lower_priority) if not _reprieve(left, assigned, pod_class)
    )
    return Victims(evicted, _victims_rank(evicted))


def slots_without_lower_priority(
    state: NodeState, pod_class: PodClass, priority: int, lower_priority: list[AssignedPod]
) -> int:
    """How many pods of the class and priority would fit the node without the pods `lower_priority`."""
    if state.division is not None and state.division.dynamic:
        return count_fitting(free_resources(_without_pods(state, lower_priority), pod_class, priority), pod_class)
    return count_fitting(_free_without_lower_priority(state, pod_class, priority, lower_priority), pod_class)


def _find_victims_one_by_one(
    state: NodeState,
    pod_class: PodClass,
    priority: int,
    lower_priority: list[AssignedPod],
    pod_plugins: PodContextPlugins,
    budgets: tuple[DisruptionAllowance, ...],
) -> Victims | None:
    """Victim search where each pod or MIG instance matters, not only the sum of requests."""

    def takes(left: NodeState) -> bool:
        return bool(count_fitting(free_resources(left, pod_class, priority), pod_class)) and (
            not pod_plugins.filters or pod_plugins.refusal_after_preemption(state, left) is None
        )

    left = _without_pods(state, lower_priority)
    if not takes(left):
        return None
    candidates = _victim_candidates(lower_priority)
    violations = budget_violations(candidates, budgets)
    evicted = []
    for assigned in sorted(candidates, key=lambda assigned: assigned.pod not in violations):
        others = with_pod(left, assigned)
        if takes(others):
            left = others
        else:
            evicted.append(assigned)
    evicted.sort(key=lambda assigned: assigned.importance)
    return Victims(
        tuple(evicted), _victims_rank(tuple(evicted), sum(assigned.pod in violations for assigned in evicted))
    )


def _without_pods(state: NodeState, lower_priority: Iterable[AssignedPod]) -> NodeState:
    for assigned in lower_priority:
        state = without_pod(state, assigned.pod)
    return state


def lower_priority_pods(state: NodeState, priority: int) -> list[AssignedPod]:
    """The pods of a node that have a lower priority, terminating ones included.

    Terminating pods of the same or a higher priority are left out: the node is tried again when they are gone
    (kube-scheduler 1.36 defaultpreemption: isPreemptionAllowed).
    """
    return [assigned for assigned in state.pods.values() if assigned.priority < priority]


def _free_without_lower_priority(
    state: NodeState, pod_class: PodClass, priority: int, lower_priority: Iterable[AssignedPod]
) -> dict[str, int]:
    left = free_resources(state, pod_class, priority)
    for assigned in lower_priority:
        _add_requests(left, assigned, 1)
    return left


def _victim_candidates(lower_priority: Iterable[AssignedPod]) -> list[AssignedPod]:
    return sorted(
        (assigned for assigned in lower_priority if not assigned.terminating), key=lambda assigned: assigned.importance
    )


def _reprieve(left: dict[str, int], assigned: AssignedPod, pod_class: PodClass) -> bool:
    """Reprieve the pod if the preemptor still fits with it; True if so."""
    _add_requests(left, assigned, -1)
    if count_fitting(left, pod_class):
        return True
    _add_requests(left, assigned, 1)
    return False


def _add_requests(left: dict[str, int], assigned: AssignedPod, sign: int) -> None:
    for name in left:
        left[name] += sign * (1 if name == PODS else assigned.pod_class.requests.get(name, 0))


def _victims_rank(assigned_pods: tuple[AssignedPod, ...], violations: int = 0) -> VictimsRank:
    """pickOneNodeForPreemption: GetEarliestPodStartTime looks at the victims of the highest priority."""
    if not assigned_pods:
        return (0, -_OFFSET, 0, 0, 0)
    top = assigned_pods[0].priority
    start = min(assigned.since for assigned in assigned_pods if assigned.priority == top)
    return (violations, top, sum(assigned.priority + _OFFSET for assigned in assigned_pods), len(assigned_pods), -start)


class PreemptionCandidates:
    """Finds the node with the cheapest victims for pods of one class and priority; caches victims by node. Mutates.

    Also counts how many pods of the class would fit if all pods of lower priority were gone.
    """

    def __init__(self, pod_class: PodClass, priority: int, nodes: list[NodeState]) -> None:
        self._shape, self._priority, self._nodes = pod_class, priority, nodes
        self._victims: dict[int, Victims] = {}
        self._cheapest: list[tuple[VictimsRank, str, int]] = []
        """(rank, node name, node number) of all victims, some of them outdated; the lowest is the best."""
        self._unevaluated: set[int] = set()
        """Nodes that fit no such pod and whose victims have not been computed."""
        self._slots_by_node: dict[int, int] = {}
        self._reachable = 0
        self._uncounted: dict[int, int] = {}
        """Nodes that are not in `_slots_by_node` yet → how many such pods fit now."""

    def fork(self, nodes: list[NodeState]) -> "PreemptionCandidates":
        """A copy over another node cache, whose nodes have to be the same."""
        copied = PreemptionCandidates(self._shape, self._priority, nodes)
        copied._victims, copied._cheapest, copied._unevaluated = (
            self._victims.copy(),
            self._cheapest[:],
            self._unevaluated.copy(),
        )
        copied._slots_by_node, copied._reachable, copied._uncounted = (
            self._slots_by_node.copy(),
            self._reachable,
            self._uncounted.copy(),
        )
        return copied

    def forget(self, number: int) -> None:
        """Drop the cached results of a changed node."""
        self._victims.pop(number, None)
        self._unevaluated.discard(number)
        self._reachable -= self._slots_by_node.pop(number, 0)
        self._uncounted.pop(number, None)

    def add_candidate(self, number: int, slots: int) -> None:
        """Record that preemption may help on this node, which fits `slots` such pods now."""
        self._uncounted[number] = slots
        if not slots:
            self._unevaluated.add(number)

    def cheapest(self) -> tuple[int, Victims] | None:
        """The node whose victims have the lowest rank, and these; None if preemption helps nowhere.

        The first by name on ties.
        """
        while self._unevaluated:
            self._find_victims(self._unevaluated.pop())
        self._compact_heap()
        heap = self._cheapest
        while heap:
            rank, _, number = heap[0]
            found = self._victims.get(number)
            if found is not None and found.rank == rank:
                return number, found
            heappop(heap)
        return None

    def victims_on(self, number: int) -> Victims | None:
        """Victims on this node, which fits no such pod now; None if preemption does not help."""
        if number in self._unevaluated:
            self._unevaluated.discard(number)
            self._find_victims(number)
        return self._victims.get(number)

    def slots_after_preemption(self) -> int:
        """How many pods of the class would fit if all pods of lower priority were gone.

        The sum over the nodes that `add_candidate` recorded: those of the cluster where preemption may help.
        """
        while self._uncounted:
            number, slots = self._uncounted.popitem()
            lower_priority = lower_priority_pods(self._nodes[number], self._priority)
            if lower_priority:
                slots = slots_without_lower_priority(self._nodes[number], self._shape, self._priority, lower_priority)
            self._slots_by_node[number] = slots
            self._reachable += slots
        return self._reachable

    def _find_victims(self, number: int) -> None:
        found = find_victims(self._nodes[number], self._shape, self._priority)
        if found is not None:
            self._victims[number] = found
            heappush(self._cheapest, (found.rank, self._nodes[number].name, number))

    def _compact_heap(self) -> None:
        """Rebuild the heap if outdated entries accumulate."""
        if len(self._cheapest) > 64 + 2 * len(self._victims):
            self._cheapest = [(found.rank, self._nodes[i].name, i) for i, found in self._victims.items()]
            heapify(self._cheapest)

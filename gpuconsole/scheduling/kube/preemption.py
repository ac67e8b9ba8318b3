"""Preemption victims for a pod: kube-scheduler's PostFilter (DefaultPreemption), node by node.

On each node all pods of lower priority are removed in simulation; if the pod then fits, as many as possible are
reprieved, the most important first, and the rest are the victims. Terminating pods free their resources and are no
victims. Pods whose eviction would violate a PodDisruptionBudget are reprieved first.

`victims` does this for one node; `PreemptionCandidates` caches the results of all nodes for one class of pods.
"""

from collections.abc import Iterable
from heapq import heapify, heappop, heappush

from msgspec import Struct

from gpuconsole.model.cluster import Pod, PodDisruptionBudget
from gpuconsole.model.labels import LabelSelector
from gpuconsole.model.resources import PODS
from gpuconsole.scheduling.kube.filters import room, slots
from gpuconsole.scheduling.kube.framework_runtime import NOTHING, PodContextPlugins
from gpuconsole.scheduling.kube.pod_classes import AssignedPod, NodeState, PodClass, seated, unseated


class DisruptionAllowance(Struct, frozen=True):
    """A PodDisruptionBudget, and how many of its pods may be disrupted now (status.disruptionsAllowed)."""

    namespace: str
    selector: LabelSelector
    allowed: int

    def covers(self, pod: Pod) -> bool:
        """True if the budget selects the pod; pods without labels are never selected."""
        return bool(pod.labels) and pod.namespace == self.namespace and self.selector.matches(pod.labels)


def opened(budgets: Iterable[PodDisruptionBudget], pods: Iterable[tuple[Pod, bool]]) -> tuple[DisruptionAllowance, ...]:
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


def violating(seats: Iterable[AssignedPod], budgets: Iterable[DisruptionAllowance]) -> set[str]:
    """Pods whose eviction, in this order, would violate a budget."""
    listed = list(budgets)
    left = [budget.allowed for budget in listed]
    broken = set()
    for seat in seats:
        for index, budget in enumerate(listed):
            if seat.who is not None and budget.covers(seat.who):
                left[index] -= 1
                if left[index] < 0:
                    broken.add(seat.pod)
    return broken


_OFFSET = 2**31
"""Added to each priority of the sum, so that many victims of negative priority do not win against few."""

Rank = tuple[int, int, int, int, int]
"""Order of nodes by their victims; see `Victims.rank`."""


class Victims(Struct, frozen=True):
    """The pods that preemption evicts on one node; empty if it is enough to wait for terminating pods."""

    seats: tuple[AssignedPod, ...]
    """The pods to evict, the most important first."""
    rank: Rank
    """(budget violations, highest priority, sum of priorities, number of victims, −earliest start among those of the
    highest priority). The lowest rank is chosen, the first node on ties."""


def victims(
    state: NodeState,
    shape: PodClass,
    priority: int,
    asking: PodContextPlugins = NOTHING,
    budgets: tuple[DisruptionAllowance, ...] = (),
) -> Victims | None:
    """The victims on this node for a pod of this class and priority, or None if preemption does not help.

    The node has passed the filters that preemption cannot change; `asking` holds those that match other pods.
    """
    movable = movable_on(state, priority)
    if not movable:
        return None
    if asking.concerns or budgets or (state.division is not None and state.division.dynamic):
        return _one_by_one(state, shape, priority, movable, asking, budgets)
    left = _emptied(state, shape, priority, movable)
    if not slots(left, shape):
        return None
    evicted = tuple(seat for seat in _candidates(movable) if not _taken_back(left, seat, shape))
    return Victims(evicted, _rank(evicted))


def reach(state: NodeState, shape: PodClass, priority: int, movable: list[AssignedPod]) -> int:
    """How many pods of the class and priority would fit the node once the `movable` lower-priority pods are gone."""
    if state.division is not None and state.division.dynamic:
        return slots(room(_without(state, movable), shape, priority), shape)
    return slots(_emptied(state, shape, priority, movable), shape)


def _one_by_one(
    state: NodeState,
    shape: PodClass,
    priority: int,
    movable: list[AssignedPod],
    asking: PodContextPlugins,
    budgets: tuple[DisruptionAllowance, ...],
) -> Victims | None:
    """Victim search where each pod or MIG instance matters, not only the sum of requests."""

    def takes(left: NodeState) -> bool:
        return bool(slots(room(left, shape, priority), shape)) and (
            not asking.concerns or asking.without(state, left) is None
        )

    left = _without(state, movable)
    if not takes(left):
        return None
    candidates = _candidates(movable)
    broken = violating(candidates, budgets)
    evicted = []
    for seat in sorted(candidates, key=lambda seat: seat.pod not in broken):
        others = seated(left, seat)
        if takes(others):
            left = others
        else:
            evicted.append(seat)
    evicted.sort(key=lambda seat: seat.importance)
    return Victims(tuple(evicted), _rank(tuple(evicted), sum(seat.pod in broken for seat in evicted)))


def _without(state: NodeState, movable: Iterable[AssignedPod]) -> NodeState:
    for seat in movable:
        state = unseated(state, seat.pod)
    return state


def movable_on(state: NodeState, priority: int) -> list[AssignedPod]:
    """The pods of a node that have a lower priority, terminating ones included.

    Terminating pods of the same or a higher priority are left out: the node is tried again when they are gone
    (kube-scheduler 1.36 defaultpreemption: isPreemptionAllowed).
    """
    return [seat for seat in state.seats.values() if seat.priority < priority]


def _emptied(state: NodeState, shape: PodClass, priority: int, movable: Iterable[AssignedPod]) -> dict[str, int]:
    left = room(state, shape, priority)
    for seat in movable:
        _give(left, seat, 1)
    return left


def _candidates(movable: Iterable[AssignedPod]) -> list[AssignedPod]:
    return sorted((seat for seat in movable if not seat.leaving), key=lambda seat: seat.importance)


def _taken_back(left: dict[str, int], seat: AssignedPod, shape: PodClass) -> bool:
    """Reprieve the pod if the preemptor still fits with it; True if so."""
    _give(left, seat, -1)
    if slots(left, shape):
        return True
    _give(left, seat, 1)
    return False


def _give(left: dict[str, int], seat: AssignedPod, sign: int) -> None:
    for name in left:
        left[name] += sign * (1 if name == PODS else seat.shape.requests.get(name, 0))


def _rank(seats: tuple[AssignedPod, ...], broken: int = 0) -> Rank:
    """pickOneNodeForPreemption: GetEarliestPodStartTime looks at the victims of the highest priority."""
    if not seats:
        return (0, -_OFFSET, 0, 0, 0)
    top = seats[0].priority
    start = min(seat.since for seat in seats if seat.priority == top)
    return (broken, top, sum(seat.priority + _OFFSET for seat in seats), len(seats), -start)


class PreemptionCandidates:
    """Finds the node with the cheapest victims for pods of one class and priority; caches victims by node. Mutates.

    Also counts how many pods of the class would fit if all pods of lower priority were gone.
    """

    def __init__(self, shape: PodClass, priority: int, nodes: list[NodeState]) -> None:
        self._shape, self._priority, self._nodes = shape, priority, nodes
        self._victims: dict[int, Victims] = {}
        self._cheapest: list[tuple[Rank, str, int]] = []
        """(rank, node name, node number) of all victims, some of them outdated; the lowest is the best."""
        self._unseen: set[int] = set()
        """Nodes that fit no such pod and whose victims have not been computed."""
        self._reach: dict[int, int] = {}
        self._reachable = 0
        self._unreached: dict[int, int] = {}
        """Nodes that are not in `_reach` yet → how many such pods fit now."""

    def fork(self, nodes: list[NodeState]) -> "PreemptionCandidates":
        """A copy over another node cache, whose nodes have to be the same."""
        twin = PreemptionCandidates(self._shape, self._priority, nodes)
        twin._victims, twin._cheapest, twin._unseen = self._victims.copy(), self._cheapest[:], self._unseen.copy()
        twin._reach, twin._reachable, twin._unreached = self._reach.copy(), self._reachable, self._unreached.copy()
        return twin

    def forget(self, number: int) -> None:
        """Drop the cached results of a changed node."""
        self._victims.pop(number, None)
        self._unseen.discard(number)
        self._reachable -= self._reach.pop(number, 0)
        self._unreached.pop(number, None)

    def consider(self, number: int, slots: int) -> None:
        """Record that preemption may help on this node, which fits `slots` such pods now."""
        self._unreached[number] = slots
        if not slots:
            self._unseen.add(number)

    def cheapest(self) -> tuple[int, Victims] | None:
        """The node whose victims have the lowest rank, and these; None if preemption helps nowhere.

        The first by name on ties.
        """
        while self._unseen:
            self._find_victims(self._unseen.pop())
        self._tidy()
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
        if number in self._unseen:
            self._unseen.discard(number)
            self._find_victims(number)
        return self._victims.get(number)

    def reachable(self) -> int:
        """How many pods of the class would fit if all pods of lower priority were gone.

        The sum over the nodes that `consider` recorded: those of the cluster where preemption may help.
        """
        while self._unreached:
            number, slots = self._unreached.popitem()
            movable = movable_on(self._nodes[number], self._priority)
            if movable:
                slots = reach(self._nodes[number], self._shape, self._priority, movable)
            self._reach[number] = slots
            self._reachable += slots
        return self._reachable

    def _find_victims(self, number: int) -> None:
        found = victims(self._nodes[number], self._shape, self._priority)
        if found is not None:
            self._victims[number] = found
            heappush(self._cheapest, (found.rank, self._nodes[number].name, number))

    def _tidy(self) -> None:
        """Rebuild the heap if outdated entries accumulate."""
        if len(self._cheapest) > 64 + 2 * len(self._victims):
            self._cheapest = [(found.rank, self._nodes[i].name, i) for i, found in self._victims.items()]
            heapify(self._cheapest)

"""Preemption victims for a pod: kube-scheduler's PostFilter (DefaultPreemption), node by node.

On each node all pods of lower priority are removed in simulation; if the pod then fits, as many as possible are
reprieved, the most important first, and the rest are the victims. Terminating pods free their resources and are no
victims. Pods whose eviction would violate a PodDisruptionBudget are reprieved first.
"""

from collections.abc import Iterable

from msgspec import Struct

from gpuconsole.model.resources import PODS
from gpuconsole.scheduling.kube.budgets import DisruptionAllowance, violating
from gpuconsole.scheduling.kube.filters import room, slots
from gpuconsole.scheduling.kube.nodes import AssignedPod, NodeState, seated, unseated
from gpuconsole.scheduling.kube.pod_classes import PodClass
from gpuconsole.scheduling.kube.pod_plugins import NOTHING, PodContextPlugins

_OFFSET = 2**31
"""Added to each priority of the sum, so that many victims of negative priority do not win against few."""

Rank = tuple[int, int, int, int, int]


class Victims(Struct, frozen=True):
    """Victims on one node; empty if it is enough to wait for terminating pods."""

    seats: tuple[AssignedPod, ...]
    """To be evicted, the most important first."""
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
    """How many such pods fit the node without the lower-priority pods that are `movable`."""
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

"""Whom to evict for a pod: kube-scheduler's PostFilter, node by node.

On each node all pods of lower priority are thought away; if the pod then fits, as many of them as possible are taken
back, the most important first, and what is left are the victims. Pods that are leaving anyway free their room and
are no victims. Differences: every node is looked at, not a sample, and there are no disruption budgets.
"""

from collections.abc import Iterable

from msgspec import Struct

from gpuconsole.model.quantity import PODS
from gpuconsole.scheduling.kube.filters import room, slots
from gpuconsole.scheduling.kube.nodes import NodeState, Seat, seated, unseated
from gpuconsole.scheduling.kube.shapes import Shape

_OFFSET = 2**31
"""Added to each priority of the sum, so that many victims of negative priority do not win against few."""

Rank = tuple[int, int, int, int, str]


class Victims(Struct, frozen=True):
    """What it takes to place a pod on a node; no seats if it is enough to wait for pods that are leaving."""

    seats: tuple[Seat, ...]
    """To be evicted, the most important first."""
    rank: Rank
    """The least is chosen: top priority, sum of priorities, how many, latest start of the top victims, name."""


def victims(state: NodeState, shape: Shape, priority: int) -> Victims | None:
    """The victims on this node for a pod of this shape and priority, or None if evicting does not help.

    The node has passed the filters that eviction cannot change.
    """
    movable = _movable(state, priority)
    if not movable:
        return None
    if state.division is not None and state.division.dynamic:
        return _where_divided(state, shape, priority, movable)
    left = _emptied(state, shape, priority, movable)
    if not slots(left, shape):
        return None
    evicted = tuple(seat for seat in _candidates(movable) if not _taken_back(left, seat, shape))
    return Victims(evicted, _rank(evicted, state.name))


def reach(state: NodeState, shape: Shape, priority: int) -> int:
    """How many such pods the node would take if every pod of lower priority went."""
    movable = _movable(state, priority)
    if state.division is not None and state.division.dynamic:
        return slots(room(_without(state, movable), shape, priority), shape)
    return slots(_emptied(state, shape, priority, movable), shape)


def _where_divided(state: NodeState, shape: Shape, priority: int, movable: list[Seat]) -> Victims | None:
    """Victims on a node that makes MIG instances as pods come: where pods' instances lie counts, not only how many."""
    left = _without(state, movable)
    if not slots(room(left, shape, priority), shape):
        return None
    evicted = []
    for seat in _candidates(movable):
        beside = seated(left, seat)
        if slots(room(beside, shape, priority), shape):
            left = beside
        else:
            evicted.append(seat)
    return Victims(tuple(evicted), _rank(tuple(evicted), state.name))


def _without(state: NodeState, movable: Iterable[Seat]) -> NodeState:
    for seat in movable:
        state = unseated(state, seat.pod)
    return state


def _movable(state: NodeState, priority: int) -> list[Seat]:
    return [seat for seat in state.seats.values() if seat.leaving or seat.priority < priority]


def _emptied(state: NodeState, shape: Shape, priority: int, movable: Iterable[Seat]) -> dict[str, int]:
    left = room(state, shape, priority)
    for seat in movable:
        _give(left, seat, 1)
    return left


def _candidates(movable: Iterable[Seat]) -> list[Seat]:
    return sorted((seat for seat in movable if not seat.leaving), key=lambda seat: seat.importance)


def _taken_back(left: dict[str, int], seat: Seat, shape: Shape) -> bool:
    """Take the pod back if the preemptor still fits beside it."""
    _give(left, seat, -1)
    if slots(left, shape):
        return True
    _give(left, seat, 1)
    return False


def _give(left: dict[str, int], seat: Seat, sign: int) -> None:
    for name in left:
        left[name] += sign * (1 if name == PODS else seat.shape.requests.get(name, 0))


def _rank(seats: tuple[Seat, ...], name: str) -> Rank:
    """pickOneNodeForPreemption: GetEarliestPodStartTime looks at the victims of the highest priority."""
    if not seats:
        return (-_OFFSET, 0, 0, 0, name)
    top = seats[0].priority
    start = min(seat.since for seat in seats if seat.priority == top)
    return (top, sum(seat.priority + _OFFSET for seat in seats), len(seats), -start, name)

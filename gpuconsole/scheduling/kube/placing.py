"""How one pod and one gang are placed on the board: plans, made in a trial, that the session carries out."""

from msgspec import Struct

from gpuconsole.model.clock import Time
from gpuconsole.scheduling.kube import messages
from gpuconsole.scheduling.kube.board import Board
from gpuconsole.scheduling.kube.nodes import Reservation, Seat
from gpuconsole.scheduling.kube.outlook import Outlook
from gpuconsole.scheduling.kube.units import Gang, Waiter


class Place(Struct, frozen=True):
    """A pod gets a node now."""

    waiter: Waiter
    number: int


class Claim(Struct, frozen=True):
    """A pod gets a node as soon as these have left it."""

    waiter: Waiter
    number: int
    victims: tuple[Seat, ...]


Step = Place | Claim


def place(board: Board, waiter: Waiter) -> Place | None:
    """Find the best node for a pod, the one that it is nominated to first."""
    outlook = board.outlook(waiter.shape, waiter.priority)
    if waiter.nominated:
        number = board.number(waiter.nominated)
        if outlook.renew().fits(number):
            return Place(waiter, number)
    found = outlook.drawn(waiter.pod) if board.policy.score == "random" else outlook.best()
    return None if found is None else Place(waiter, found)


def claim(board: Board, waiter: Waiter) -> Claim | None:
    """Find the node where the least important pods have to go for this one."""
    if waiter.never or not board.policy.preemption:
        return None
    found = board.outlook(waiter.shape, waiter.priority).cheapest()
    return None if found is None else Claim(waiter, found[0], found[1].seats)


def awaits(board: Board, waiter: Waiter) -> bool:
    """True while other pods are still leaving the node that the pod is nominated to.

    It then evicts nobody else (PodEligibleToPreemptOthers).
    """
    if not waiter.nominated:
        return False
    number = board.number(waiter.nominated)
    if board.outlook(waiter.shape, waiter.priority).hopeless(number):
        return False
    return any(seat.leaving for seat in board.nodes[number].seats.values())


def place_gang(board: Board, gang: Gang, now: Time) -> list[Step] | None:
    """Place as many pods of the gang as fit now; None if those are fewer than it needs at once."""
    if not _enough(board, gang):
        return None
    steps: list[Step] = []
    with board.trial():
        for waiter in gang.members:
            found = place(board, waiter)
            if found is not None:
                board.seat(found.number, Seat(waiter.pod, waiter.shape, waiter.priority, now))
                steps.append(found)
    return steps if steps and len(steps) >= gang.needed else None


def claim_gang(board: Board, gang: Gang) -> list[Step] | None:
    """Find victims for the pods that the gang needs; None if the gang would not fit whole even so.

    Pods that fit now claim their nodes too: nothing of a gang is held before all of it can be.
    """
    if not board.policy.preemption or not _enough(board, gang, evicting=True):
        return None
    # Pods beyond what the gang needs at once make room one at a time.
    wanted = max(gang.needed, 1)
    steps: list[Step] = []
    with board.trial():
        for waiter in gang.members:
            step = place(board, waiter) or claim(board, waiter)
            if step is None or len(steps) == wanted:
                continue
            found = Claim(waiter, step.number, step.victims if isinstance(step, Claim) else ())
            for seat in found.victims:
                board.leave(found.number, seat.pod)
            board.reserve(found.number, Reservation(waiter.pod, waiter.shape, waiter.priority))
            steps.append(found)
    return steps if len(steps) == wanted else None


def refusal(board: Board, outlook: Outlook, *, never: bool, filled: bool = False) -> str:
    """FailedScheduling's text for a pod that no node takes; `filled` as if all that fit had been placed."""
    known = outlook.texts.get((never, filled))
    if known is None:
        known = outlook.texts[never, filled] = _refusal(board, outlook, never, filled)
    return known


def _refusal(board: Board, outlook: Outlook, never: bool, filled: bool) -> str:
    nodes = board.described
    text = messages.unavailable(nodes, outlook.reasons(filled))
    if not board.policy.preemption or not nodes:
        return text
    after = messages.NEVER if never else messages.preemption(nodes, nodes - outlook.hopeful)
    return f"{text} {after}"


def gang_refusal(board: Board, gang: Gang) -> str:
    """Why the gang waits: how many of its pods would fit, and the text of the first that would not.

    Pods beyond what a running gang needs are told what any pod is told.
    """
    fitting, first = 0, None
    for waiter, count in gang.kinds:
        slots = board.outlook(waiter.shape, waiter.priority).slots
        fitting += min(slots, count)
        if slots < count and first is None:
            first = waiter
    last = first or gang.members[-1]
    outlook = board.outlook(last.shape, last.priority)
    if not gang.needed:
        return refusal(board, outlook, never=last.never)
    fitting = min(fitting, gang.needed)
    return messages.gang_waits(gang.name, fitting, gang.needed, refusal(board, outlook, never=last.never, filled=True))


def _enough(board: Board, gang: Gang, evicting: bool = False) -> bool:
    """A quick no: kinds of pod looked at alone already find fewer places than the gang needs."""
    places = 0
    for waiter, count in gang.kinds:
        outlook = board.outlook(waiter.shape, waiter.priority)
        places += min(count, outlook.reachable() if evicting else outlook.slots)
    return places >= max(gang.needed, 1)

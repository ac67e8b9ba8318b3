"""Reclaim rules: whether a job may reclaim, and from which victims (KAI 0.13 proportion/reclaimable)."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import Struct

from gpuconsole.scheduling.kai.api.amounts import ResourceAmounts
from gpuconsole.scheduling.kai.api.queues import UNLIMITED
from gpuconsole.scheduling.kai.fair_share.quantities import (
    CPU,
    GPU,
    MEMORY,
    Quantities,
    minus,
    of_amounts,
    plus,
    within,
)
from gpuconsole.scheduling.kai.fair_share.shares import QueueShares
from gpuconsole.scheduling.kai.fair_share.strategies import may_take

Queues = Mapping[str, QueueShares]


class Reclaimer(Struct, frozen=True):
    """The reclaiming job: its queue, its request, and whether it is preemptible."""

    queue: str
    needed: ResourceAmounts
    preemptible: bool


def may_reclaim(queues: Queues, reclaimer: Reclaimer) -> bool:
    """True if the queue stays within its fair share, and within its quota if the job can never be preempted."""
    queue, needed = queues[reclaimer.queue], of_amounts(reclaimer.needed)
    if not within(plus(queue.allocated, needed), queue.fair):
        return False
    return reclaimer.preemptible or within(plus(queue.non_preemptible, needed), queue.deserved)


def may_take_from(
    queues: Queues, reclaimer: Reclaimer, victims: Mapping[str, Sequence[ResourceAmounts]], multiplier: float = 1.0
) -> bool:
    """True if every victim, in turn, may be reclaimed, and the queues above the reclaimer stay within bounds."""
    left: dict[str, Quantities] = {}
    touched: dict[str, set[str]] = {}
    needed = of_amounts(reclaimer.needed)
    for uid, taken in victims.items():
        mine, theirs = level_queues(queues, reclaimer.queue, uid)
        touched[uid] = resources_in(taken)
        left.setdefault(theirs.uid, theirs.allocated)
        for amounts in taken:
            if not may_take(needed, mine, theirs, left[theirs.uid]):
                return False
            for queue in ancestry(queues, uid):
                left[queue.uid] = minus(left.get(queue.uid, queue.allocated), of_amounts(amounts))
                touched[queue.uid] = touched.get(queue.uid, set()) | touched[uid]
    return _stays_in_bounds(queues, reclaimer, left, touched, multiplier)


def _stays_in_bounds(
    queues: Queues,
    reclaimer: Reclaimer,
    left: dict[str, Quantities],
    touched: Mapping[str, set[str]],
    multiplier: float,
) -> bool:
    needed = of_amounts(reclaimer.needed)
    wanted = resources_in([reclaimer.needed])
    for queue in ancestry(queues, reclaimer.queue):
        held = plus(left.get(queue.uid, queue.allocated), needed)
        if queue.uid in left:
            left[queue.uid] = held
        for uid, remaining in left.items():
            sibling = queues[uid]
            if sibling.parent != queue.parent or uid == queue.uid:
                continue
            involved = touched.get(uid, set()) | wanted
            if not all(_stays_below(name, held, queue, remaining, sibling, multiplier) for name in involved):
                return False
        if not reclaimer.preemptible and not within(plus(queue.non_preemptible, needed), queue.deserved):
            return False
    return True


def _stays_below(
    name: str, held: Quantities, queue: QueueShares, left: Quantities, sibling: QueueShares, multiplier: float
) -> bool:
    """False if the reclaiming queue is above its fair share and its saturation reaches the sibling's."""
    mine, theirs = queue.of[name].fair, sibling.of[name].fair
    if mine == UNLIMITED and theirs == UNLIMITED:
        return True
    ratio, other = saturation(held[name], mine), saturation(left[name], theirs)
    return not (ratio > 1 and theirs > 0 and ratio * multiplier >= other)


def saturation(held: float, fair: float) -> float:
    """Allocation relative to the fair share; 0 where the share is unlimited."""
    if fair == 0:
        return math.inf if held > 0 else 0
    return 0 if fair == UNLIMITED else held / fair


def ancestry(queues: Queues, uid: str) -> Iterator[QueueShares]:
    """A queue and those above it, upwards."""
    queue = queues.get(uid)
    while queue is not None:
        yield queue
        queue = queues.get(queue.parent)


def level_queues(queues: Queues, one: str, other: str) -> tuple[QueueShares, QueueShares]:
    """The two sibling ancestors below the lowest common one; the last of the shorter path if there are none."""
    pairs = list(zip([*ancestry(queues, one)][::-1], [*ancestry(queues, other)][::-1], strict=False))
    return next((pair for pair in pairs if pair[0].uid != pair[1].uid), pairs[-1])


def resources_in(amounts: Iterable[ResourceAmounts]) -> set[str]:
    """Shared resources that are above zero in one of the amounts. MIG slices do not count as GPUs here."""
    return {
        name
        for item in amounts
        for name, value in ((CPU, item.cpu), (MEMORY, item.memory), (GPU, item.gpus))
        if value > 0
    }

"""Reclaim between queues, and the limits and quotas of a queue and its ancestors (KAI 0.13 plugins/proportion).

`may_reclaim` says whether a job may reclaim, and `may_take_from` from which victims (proportion/reclaimable, with the
conditions of its strategies). `over_limit` and `over_quota` check the capacity of a queue and of those above it
(proportion/capacity_policy).
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import Struct

from gpuconsole.scheduling.kai import messages
from gpuconsole.scheduling.kai.api.jobs import PodGroupInfo
from gpuconsole.scheduling.kai.api.nodes import KaiNodeInfo
from gpuconsole.scheduling.kai.api.resources import ResourceAmounts
from gpuconsole.scheduling.kai.api.tasks import PodInfo
from gpuconsole.scheduling.kai.fair_share.division import (
    CPU,
    GPU,
    MEMORY,
    RESOURCES,
    UNLIMITED,
    Quantities,
    QueueShares,
    minus,
    of_amounts,
    of_request,
    plus,
    quantities,
    within,
)
from gpuconsole.scheduling.kai.messages import OVER_LIMIT, OVER_QUOTA

SharesByQueue = Mapping[str, QueueShares]


def maintains_fair_share(victim: QueueShares, left: Mapping[str, float]) -> bool:
    """First reclaim strategy: True if the victim's queue still holds (`left`) more than its allocatable share."""
    return not within(left, victim.allocatable)


def guarantees_quota(
    needed: Mapping[str, float], reclaimer: QueueShares, victim: QueueShares, left: Mapping[str, float]
) -> bool:
    """Second strategy: True if the reclaimer stays within quota and the victim's queue (`left`) is above its own."""
    return within(plus(reclaimer.allocated, needed), reclaimer.deserved) and not within(left, victim.deserved)


def may_take(
    needed: Mapping[str, float], reclaimer: QueueShares, victim: QueueShares, left: Mapping[str, float]
) -> bool:
    """True if a strategy lets `reclaimer` take more from `victim`, of which `left` remains after earlier victims."""
    return maintains_fair_share(victim, left) or guarantees_quota(needed, reclaimer, victim, left)


class Reclaimer(Struct, frozen=True):
    """What reclaim has to know of the reclaiming job: its queue, its request, and whether it is preemptible."""

    queue: str
    needed: ResourceAmounts
    preemptible: bool


def may_reclaim(queues: SharesByQueue, reclaimer: Reclaimer) -> bool:
    """True if the queue stays within its fair share, and within its quota if the job is not preemptible."""
    queue, needed = queues[reclaimer.queue], of_amounts(reclaimer.needed)
    if not within(plus(queue.allocated, needed), queue.fair):
        return False
    return reclaimer.preemptible or within(plus(queue.non_preemptible, needed), queue.deserved)


def may_take_from(
    queues: SharesByQueue,
    reclaimer: Reclaimer,
    victims: Mapping[str, Sequence[ResourceAmounts]],
    multiplier: float = 1.0,
) -> bool:
    """True if all victims, by queue, may be reclaimed in turn and the queues above the reclaimer stay in bounds."""
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
    queues: SharesByQueue,
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
    """False if the reclaiming queue is above its fair share and not clearly less saturated than the sibling.

    That is, if its saturation times `multiplier` reaches the sibling's.
    """
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


def ancestry(queues: SharesByQueue, uid: str) -> Iterator[QueueShares]:
    """A queue, then its ancestors upwards."""
    queue = queues.get(uid)
    while queue is not None:
        yield queue
        queue = queues.get(queue.parent)


def level_queues(queues: SharesByQueue, one: str, other: str) -> tuple[QueueShares, QueueShares]:
    """The ancestors of two queues that are siblings below the lowest common one, which reclaim compares.

    Without such siblings, the last pair of the shorter path.
    """
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


class OverCapacity(Struct, frozen=True, kw_only=True):
    """Why a request is refused: a queue would exceed its limit or quota."""

    reason: str
    message: str
    queue: str
    requested: Quantities
    preemptible: bool


def over_limit(queues: SharesByQueue, job: PodGroupInfo, requested: Quantities) -> OverCapacity | None:
    """The first queue, from the job's upwards, whose limit the request would exceed; None if there is none."""
    for queue in ancestry(queues, job.queue):
        name = exceeds_limit(queue, requested)
        if name:
            text = messages.over_limit(
                queue.name, name, queue.of[name].limit, queue.of[name].allocated, requested[name]
            )
            return _refuse(OVER_LIMIT, text, queue, job, requested)
    return None


def over_quota(queues: SharesByQueue, job: PodGroupInfo, requested: Quantities) -> OverCapacity | None:
    """The first queue, from the job's upwards, whose quota a non-preemptible job would exceed; None if none."""
    if job.preemptible:
        return None
    for queue in ancestry(queues, job.queue):
        name = exceeds_quota(queue, requested)
        if name:
            share = queue.of[name]
            text = messages.over_quota(queue.name, name, share.deserved, share.non_preemptible, requested[name])
            return _refuse(OVER_QUOTA, text, queue, job, requested)
    return None


def over_capacity(queues: SharesByQueue, job: PodGroupInfo, requested: Quantities) -> OverCapacity | None:
    """The result of `over_limit`, else of `over_quota`."""
    return over_limit(queues, job, requested) or over_quota(queues, job, requested)


def exceeds_limit(queue: QueueShares, requested: Mapping[str, float]) -> str:
    """The first resource whose limit would be exceeded; empty if none is."""
    for name in RESOURCES:
        share, amount = queue.of[name], requested.get(name, 0)
        if share.limit != UNLIMITED and amount and share.limit < share.allocated + amount:
            return name
    return ""


def exceeds_quota(queue: QueueShares, requested: Mapping[str, float]) -> str:
    """The first resource whose quota non-preemptible use would exceed; empty if none is."""
    for name in RESOURCES:
        share, amount = queue.of[name], requested.get(name, 0)
        if share.deserved != UNLIMITED and amount and share.deserved < share.non_preemptible + amount:
            return name
    return ""


def requested_by(tasks: Iterable[PodInfo]) -> Quantities:
    """Total request of tasks, independent of nodes: GPU memory is not counted, as its fraction of a GPU is unknown."""
    total = quantities()
    for task in tasks:
        total = plus(total, of_request(task.request))
    return total


def requested_on(task: PodInfo, node: KaiNodeInfo) -> Quantities:
    """Request of a task on a given node."""
    return quantities(task.request.cpu, task.request.memory, node.quota_of(task.request))


def _refuse(reason: str, text: str, queue: QueueShares, job: PodGroupInfo, requested: Quantities) -> OverCapacity:
    return OverCapacity(reason=reason, message=text, queue=queue.uid, requested=requested, preemptible=job.preemptible)

"""Reclaim between queues, and the limits and quotas of a queue and its ancestors (KAI 0.13 plugins/proportion).

`may_reclaim` says whether a job may reclaim, and `may_reclaim_victims` from which victims (proportion/reclaimable, with
the conditions of its strategies). `find_exceeded_limit` and `find_exceeded_quota` check the capacity of a queue and of
those above it (proportion/capacity_policy).
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import Struct

from gpuconsole.scheduling.kai import messages
from gpuconsole.scheduling.kai.api.jobs import PodGroupInfo
from gpuconsole.scheduling.kai.api.nodes import KaiNodeInfo
from gpuconsole.scheduling.kai.api.tasks import PodInfo, ResourceAmounts
from gpuconsole.scheduling.kai.fair_share.division import (
    CPU,
    GPU,
    MEMORY,
    RESOURCES,
    UNLIMITED,
    Quantities,
    QueueShares,
    add,
    is_within,
    quantities,
    quantities_of,
    requested_quantities,
    subtract,
)
from gpuconsole.scheduling.kai.messages import OVER_LIMIT, OVER_QUOTA

SharesByQueue = Mapping[str, QueueShares]


def can_reclaim_above_fair_share(victim: QueueShares, left: Mapping[str, float]) -> bool:
    """First reclaim strategy: True if the victim's queue still holds (`left`) more than its allocatable share."""
    return not is_within(left, victim.allocatable)


def can_reclaim_within_quota(
    request: Mapping[str, float], reclaimer: QueueShares, victim: QueueShares, left: Mapping[str, float]
) -> bool:
    """Second strategy: True if the reclaimer stays within quota and the victim's queue (`left`) is above its own."""
    return is_within(add(reclaimer.allocated, request), reclaimer.deserved) and not is_within(left, victim.deserved)


def fits_reclaim_strategy(
    request: Mapping[str, float], reclaimer: QueueShares, victim: QueueShares, left: Mapping[str, float]
) -> bool:
    """True if a strategy lets `reclaimer` take more from `victim`, of which `left` remains after earlier victims."""
    return can_reclaim_above_fair_share(victim, left) or can_reclaim_within_quota(request, reclaimer, victim, left)


class Reclaimer(Struct, frozen=True):
    """What reclaim has to know of the reclaiming job: its queue, its request, and whether it is preemptible."""

    queue: str
    request: ResourceAmounts
    preemptible: bool


def may_reclaim(queues: SharesByQueue, reclaimer: Reclaimer) -> bool:
    """True if the queue stays within its fair share, and within its quota if the job is not preemptible."""
    queue, request = queues[reclaimer.queue], quantities_of(reclaimer.request)
    if not is_within(add(queue.allocated, request), queue.fair):
        return False
    return reclaimer.preemptible or is_within(add(queue.non_preemptible, request), queue.deserved)


def may_reclaim_victims(
    queues: SharesByQueue,
    reclaimer: Reclaimer,
    victims: Mapping[str, Sequence[ResourceAmounts]],
    multiplier: float = 1.0,
) -> bool:
    """True if the reclaimer may take from every victim, one after the other, and no ancestor exceeds its fair share.

    `victims` are by queue. `multiplier` is the plugin's saturation multiplier: how much less saturated the reclaiming
    side has to be than its sibling.
    """
    left: dict[str, Quantities] = {}
    touched: dict[str, set[str]] = {}
    request = quantities_of(reclaimer.request)
    for uid, taken in victims.items():
        mine, theirs = level_queues(queues, reclaimer.queue, uid)
        touched[uid] = requested_resources(taken)
        left.setdefault(theirs.uid, theirs.allocated)
        for amounts in taken:
            if not fits_reclaim_strategy(request, mine, theirs, left[theirs.uid]):
                return False
            for queue in queue_and_ancestors(queues, uid):
                left[queue.uid] = subtract(left.get(queue.uid, queue.allocated), quantities_of(amounts))
                touched[queue.uid] = touched.get(queue.uid, set()) | touched[uid]
    return _stays_within_fair_share(queues, reclaimer, left, touched, multiplier)


def _stays_within_fair_share(
    queues: SharesByQueue,
    reclaimer: Reclaimer,
    left: dict[str, Quantities],
    touched: Mapping[str, set[str]],
    multiplier: float,
) -> bool:
    request = quantities_of(reclaimer.request)
    wanted = requested_resources([reclaimer.request])
    for queue in queue_and_ancestors(queues, reclaimer.queue):
        allocated = add(left.get(queue.uid, queue.allocated), request)
        if queue.uid in left:
            left[queue.uid] = allocated
        for uid, remaining in left.items():
            sibling = queues[uid]
            if sibling.parent != queue.parent or uid == queue.uid:
                continue
            involved = touched.get(uid, set()) | wanted
            if not all(
                _stays_below_sibling(name, allocated, queue, remaining, sibling, multiplier) for name in involved
            ):
                return False
        if not reclaimer.preemptible and not is_within(add(queue.non_preemptible, request), queue.deserved):
            return False
    return True


def _stays_below_sibling(
    name: str, allocated: Quantities, queue: QueueShares, left: Quantities, sibling: QueueShares, multiplier: float
) -> bool:
    """False if the reclaiming queue is above its fair share and not clearly less saturated than the sibling.

    That is, if its saturation times `multiplier` reaches the sibling's.
    """
    mine, theirs = queue.by_resource[name].fair, sibling.by_resource[name].fair
    if mine == UNLIMITED and theirs == UNLIMITED:
        return True
    ratio, other = saturation(allocated[name], mine), saturation(left[name], theirs)
    return not (ratio > 1 and theirs > 0 and ratio * multiplier >= other)


def saturation(allocated: float, fair: float) -> float:
    """Allocation relative to the fair share; 0 where the share is unlimited."""
    if fair == 0:
        return math.inf if allocated > 0 else 0
    return 0 if fair == UNLIMITED else allocated / fair


def queue_and_ancestors(queues: SharesByQueue, uid: str) -> Iterator[QueueShares]:
    """A queue, then its ancestors upwards."""
    queue = queues.get(uid)
    while queue is not None:
        yield queue
        queue = queues.get(queue.parent)


def level_queues(queues: SharesByQueue, one: str, other: str) -> tuple[QueueShares, QueueShares]:
    """The ancestors of two queues that are siblings below the lowest common one, which reclaim compares.

    Without such siblings, the last pair of the shorter path.
    """
    pairs = list(
        zip([*queue_and_ancestors(queues, one)][::-1], [*queue_and_ancestors(queues, other)][::-1], strict=False)
    )
    return next((pair for pair in pairs if pair[0].uid != pair[1].uid), pairs[-1])


def requested_resources(amounts: Iterable[ResourceAmounts]) -> set[str]:
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


def find_exceeded_limit(queues: SharesByQueue, job: PodGroupInfo, requested: Quantities) -> OverCapacity | None:
    """The first queue, from the job's upwards, whose limit the request would exceed; None if there is none."""
    for queue in queue_and_ancestors(queues, job.queue):
        name = resource_over_limit(queue, requested)
        if name:
            text = messages.over_limit_message(
                queue.name, name, queue.by_resource[name].limit, queue.by_resource[name].allocated, requested[name]
            )
            return _over_capacity(OVER_LIMIT, text, queue, job, requested)
    return None


def find_exceeded_quota(queues: SharesByQueue, job: PodGroupInfo, requested: Quantities) -> OverCapacity | None:
    """The first queue, from the job's upwards, whose quota a non-preemptible job would exceed; None if none."""
    if job.preemptible:
        return None
    for queue in queue_and_ancestors(queues, job.queue):
        name = resource_over_quota(queue, requested)
        if name:
            share = queue.by_resource[name]
            text = messages.over_quota_message(queue.name, name, share.deserved, share.non_preemptible, requested[name])
            return _over_capacity(OVER_QUOTA, text, queue, job, requested)
    return None


def find_exceeded_capacity(queues: SharesByQueue, job: PodGroupInfo, requested: Quantities) -> OverCapacity | None:
    """The result of `find_exceeded_limit`, else of `find_exceeded_quota`."""
    return find_exceeded_limit(queues, job, requested) or find_exceeded_quota(queues, job, requested)


def resource_over_limit(queue: QueueShares, requested: Mapping[str, float]) -> str:
    """The first resource whose limit would be exceeded; empty if none is."""
    for name in RESOURCES:
        share, amount = queue.by_resource[name], requested.get(name, 0)
        if share.limit != UNLIMITED and amount and share.limit < share.allocated + amount:
            return name
    return ""


def resource_over_quota(queue: QueueShares, requested: Mapping[str, float]) -> str:
    """The first resource whose quota non-preemptible use would exceed; empty if none is."""
    for name in RESOURCES:
        share, amount = queue.by_resource[name], requested.get(name, 0)
        if share.deserved != UNLIMITED and amount and share.deserved < share.non_preemptible + amount:
            return name
    return ""


def requested_by_tasks(tasks: Iterable[PodInfo]) -> Quantities:
    """Total request of tasks, independent of nodes: GPU memory is not counted, as its fraction of a GPU is unknown."""
    total = quantities()
    for task in tasks:
        total = add(total, requested_quantities(task.request))
    return total


def requested_on(task: PodInfo, node: KaiNodeInfo) -> Quantities:
    """Request of a task on a given node."""
    return quantities(task.request.cpu, task.request.memory, node.quota_of(task.request))


def _over_capacity(
    reason: str, text: str, queue: QueueShares, job: PodGroupInfo, requested: Quantities
) -> OverCapacity:
    return OverCapacity(reason=reason, message=text, queue=queue.uid, requested=requested, preemptible=job.preemptible)

"""Checks of limits and quotas of a queue and its ancestors (KAI 0.13 proportion/capacity_policy)."""

from collections.abc import Iterable, Mapping

from msgspec import Struct

from gpuconsole.scheduling.kai import messages
from gpuconsole.scheduling.kai.api.errors import OVER_LIMIT, OVER_QUOTA
from gpuconsole.scheduling.kai.api.jobs import PodGroupInfo
from gpuconsole.scheduling.kai.api.nodes import KaiNodeInfo
from gpuconsole.scheduling.kai.api.queues import UNLIMITED
from gpuconsole.scheduling.kai.api.tasks import PodInfo
from gpuconsole.scheduling.kai.fair_share.quantities import RESOURCES, Quantities, of_request, plus, quantities
from gpuconsole.scheduling.kai.fair_share.reclaimable import ancestry
from gpuconsole.scheduling.kai.fair_share.shares import QueueShares

SharesByQueue = Mapping[str, QueueShares]


class OverCapacity(Struct, frozen=True, kw_only=True):
    """A queue that would exceed its limit or quota, and the request that causes it."""

    reason: str
    message: str
    queue: str
    requested: Quantities
    preemptible: bool


def over_limit(queues: SharesByQueue, job: PodGroupInfo, requested: Quantities) -> OverCapacity | None:
    """The first queue upwards whose limit the request would exceed; None if there is none."""
    for queue in ancestry(queues, job.queue):
        name = exceeds_limit(queue, requested)
        if name:
            text = messages.over_limit(
                queue.name, name, queue.of[name].limit, queue.of[name].allocated, requested[name]
            )
            return _refuse(OVER_LIMIT, text, queue, job, requested)
    return None


def over_quota(queues: SharesByQueue, job: PodGroupInfo, requested: Quantities) -> OverCapacity | None:
    """The first queue upwards whose quota a non-preemptible job would exceed; None if there is none."""
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

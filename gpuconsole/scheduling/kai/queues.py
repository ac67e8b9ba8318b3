"""The tree of KAI's queues, as a session has it (KAI 0.13 cache/cluster_info)."""

from collections.abc import Mapping

from gpuconsole.model.kai import KaiQueue, QueueResource
from gpuconsole.scheduling.kai.api.queues import KaiQueueQuota, QueueState


def queues_of(
    queues: Mapping[str, KaiQueue], default: str, usage: Mapping[str, Mapping[str, float]]
) -> list[QueueState]:
    """The queues with their children; those without a complete path to a top queue are left out.

    If `default` names a queue that does not exist, it is added without limits.
    """
    known = dict(queues)
    if default and default not in known:
        bound = QueueResource(quota=-1, over_quota_weight=1, limit=-1)
        known[default] = KaiQueue(name=default, gpu=bound, cpu=bound, memory=bound)
    reachable = {name: queue for name, queue in known.items() if _has_root(queue, known)}
    return [
        QueueState(
            uid=queue.name,
            name=queue.display_name or queue.name,
            parent=queue.parent,
            children=tuple(sorted(child.name for child in reachable.values() if child.parent == queue.name)),
            gpu=_quota(queue.gpu),
            cpu=_quota(queue.cpu),
            memory=_quota(queue.memory),
            usage=usage.get(queue.name, {}),
            priority=queue.priority,
            created=queue.created,
            preempt_min_runtime=queue.preempt_min_runtime,
            reclaim_min_runtime=queue.reclaim_min_runtime,
        )
        for queue in reachable.values()
    ]


def _has_root(queue: KaiQueue, queues: Mapping[str, KaiQueue]) -> bool:
    """True if the way up ends at a queue without a parent."""
    seen: set[str] = set()
    while queue.parent:
        if queue.name in seen or queue.parent not in queues:
            return False
        seen.add(queue.name)
        queue = queues[queue.parent]
    return True


def _quota(resource: QueueResource) -> KaiQueueQuota:
    return KaiQueueQuota(quota=resource.quota, over_quota_weight=resource.over_quota_weight, limit=resource.limit)

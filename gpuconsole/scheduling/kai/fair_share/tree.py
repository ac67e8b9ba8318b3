"""Division of the nodes' resources down the queue tree (KAI 0.13 plugins/proportion)."""

from collections.abc import Iterable, Mapping

from gpuconsole.scheduling.kai.api.nodes import RESERVATION, KaiNodeInfo
from gpuconsole.scheduling.kai.api.queues import UNLIMITED, KaiQueueQuota, QueueState
from gpuconsole.scheduling.kai.api.statuses import ACTIVE_USED
from gpuconsole.scheduling.kai.api.tasks import PodInfo
from gpuconsole.scheduling.kai.conf import Parameters
from gpuconsole.scheduling.kai.fair_share.division import divide
from gpuconsole.scheduling.kai.fair_share.quantities import (
    CPU,
    GPU,
    MEMORY,
    Quantities,
    minus,
    of_amounts,
    of_request,
    quantities,
)
from gpuconsole.scheduling.kai.fair_share.shares import QueueShares, ResourceShares
from gpuconsole.scheduling.kai.matching import ready

_MEGABYTE = 1_000_000
GPU_WORKER_LABEL = "node-role.kubernetes.io/gpu-worker"


def total_of(nodes: Iterable[KaiNodeInfo], parameters: Parameters) -> Quantities:
    """Resources of all nodes that queues can use."""
    total = quantities()
    for node in nodes:
        for name, amount in offered(node, parameters).items():
            total[name] += amount
    return total


def offered(node: KaiNodeInfo, parameters: Parameters) -> Quantities:
    """Allocatable resources of a ready node, less what pods of other schedulers use."""
    if not ready(node.node):
        return quantities()
    amounts = of_amounts(node.allocatable)
    if parameters.restrict_nodes and GPU_WORKER_LABEL not in node.node.labels:
        amounts[GPU] = 0
    for task in node.tasks.values():
        if task.status in ACTIVE_USED and task.spec.scheduler != parameters.scheduler_name and not _utility(task):
            amounts = minus(amounts, of_request(task.request))
    return amounts


def _utility(task: PodInfo) -> bool:
    """True for a pod by which KAI itself reserves a GPU or scales up nodes."""
    return task.spec.labels.get("app") in (RESERVATION, "scaling-pod")


def shares_of(queue: QueueState) -> QueueShares:
    """Quotas, limits, weights and past usage of a queue, without allocations and requests."""
    return QueueShares(
        queue.uid,
        name=queue.name,
        parent=queue.parent,
        children=queue.children,
        created=queue.created,
        priority=queue.priority,
        cpu=_share(queue.cpu, queue.usage.get(CPU, 0)),
        memory=_share(queue.memory, queue.usage.get(MEMORY, 0), _MEGABYTE),
        gpu=_share(queue.gpu, queue.usage.get(GPU, 0)),
    )


def _share(quota: KaiQueueQuota, usage: float, unit: int = 1) -> ResourceShares:
    deserved, limit = quota.quota, quota.limit
    if unit > 1:
        deserved, limit = max(UNLIMITED, deserved * unit), max(UNLIMITED, limit * unit)
    return ResourceShares(deserved=deserved, limit=limit, weight=quota.over_quota_weight, usage=usage)


def divide_tree(total: Mapping[str, float], k: float, queues: Mapping[str, QueueShares]) -> None:
    """Divide the total over the top queues, then each queue's share over its children."""
    _divide_level(total, k, [queue for queue in queues.values() if not queue.parent], queues)


def _divide_level(
    total: Mapping[str, float], k: float, level: list[QueueShares], queues: Mapping[str, QueueShares]
) -> None:
    divide(total, k, level)
    for queue in level:
        children = [queues[uid] for uid in queue.children]
        if children:
            _divide_level(queue.fair, k, children, queues)

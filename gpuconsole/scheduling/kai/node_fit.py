"""Number of equal pods that fit on a node now, ignoring queues."""

from gpuconsole.scheduling.kai.api.amounts import accommodates, plain_part_fits
from gpuconsole.scheduling.kai.api.nodes import KaiNodeInfo
from gpuconsole.scheduling.kai.api.tasks import PodInfo
from gpuconsole.scheduling.kai.matching import node_matches, ready, untolerated

MOST = 1_000_000


def count_fitting_pods(node: KaiNodeInfo, task: PodInfo) -> int:
    """How many such pods could start on the node now, all at once."""
    if not ready(node.node) or untolerated(task.spec, node.node) or not node_matches(task.spec, node.node):
        return 0
    if not node.valid_portion(task.request):
        return 0
    by_gpus = _by_parts(node, task) if task.shares else MOST
    free, count = node.idle.clone(), 0
    while count < by_gpus and (plain_part_fits if task.shares else accommodates)(free, task.request):
        free.add_request(task.request, -1)
        count += 1
    return count


def _by_parts(node: KaiNodeInfo, task: PodInfo) -> int:
    """Pods that fit by GPU portions: on GPUs already shared, and on idle ones."""
    each = node.memory_of(task.request)
    rests = [node.gpu_memory - memory for memory in node.shared.allocated.values() if memory > 0]
    rests += [node.gpu_memory] * int(node.idle.gpus)
    return sum(rest // each for rest in rests) // max(1, task.request.count) if each else 0

"""Pods that request parts of GPUs (MIG instances or fractions), and the nodes that fit one more.

KAI reads fractions from the pod annotations gpu-fraction and gpu-memory.
"""

from collections.abc import Sequence

from gpuconsole.model.cluster import Node, Pod
from gpuconsole.model.resources import CPU, MEMORY, is_mig
from gpuconsole.scheduling.kai.cluster_info import node_of, request_of

_WHOLE = 1.0
_ROUNDING = 1e-9
"""Tolerance: portions are sums of floats."""


def gpu_slice_of(pod: Pod) -> str:
    """Format the requested parts, `1 × mig-1g.10gb` or `0.5 GPU`; empty for whole GPUs, or none."""
    mig = {name: count for name, count in pod.template.requests.items() if is_mig(name) and count}
    if mig:
        return ", ".join(f"{count} × {name.rpartition('/')[2]}" for name, count in sorted(mig.items()))
    request, _ = request_of(pod)
    if not request.fractional:
        return ""
    one = f"{request.gpu_memory} MiB of a GPU" if request.gpu_memory else f"{request.portion:g} GPU"
    return one if request.count == 1 else f"{request.count} × {one}"


def takes(node: Node, here: Sequence[Pod], pod: Pod) -> bool:
    """True if a node with these pods has enough parts, cpu and memory left for one more such pod."""
    if not node.ready or node.unschedulable:
        return False
    needs = {name: amount for name, amount in pod.template.requests.items() if name in (CPU, MEMORY) or is_mig(name)}
    used = {name: sum(one.template.requests.get(name, 0) for one in here) for name in needs}
    if any(node.allocatable.get(name, 0) - used[name] < amount for name, amount in needs.items()):
        return False
    request, _ = request_of(pod)
    if not request.fractional:
        return True
    portion = node_of(node).portion_of(request)
    return sum(left + _ROUNDING >= portion for left in _left(node, here)) >= request.count


def _left(node: Node, here: Sequence[Pod]) -> list[float]:
    """Return the free fraction of each GPU of a node; 0 if a pod has the whole GPU."""
    left = [_WHOLE] * node.gpus
    state = node_of(node)
    for pod in here:
        request, _ = request_of(pod)
        portion = state.portion_of(request) if request.fractional else _WHOLE
        for index in pod.gpus:
            if index < len(left):
                left[index] -= portion
    return left

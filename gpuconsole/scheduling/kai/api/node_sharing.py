"""Accounting of shared GPUs on a node, and the check whether one fits another task (KAI 0.13 node_info)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuconsole.scheduling.kai.api.requests import ResourceRequirements
from gpuconsole.scheduling.kai.api.statuses import KaiPodStatus
from gpuconsole.scheduling.kai.api.tasks import PodInfo, Sort

if TYPE_CHECKING:
    from gpuconsole.scheduling.kai.api.nodes import KaiNodeInfo


def add_shared(node: KaiNodeInfo, task: PodInfo) -> None:
    """Allocate a task's portion of each of its shared GPUs; the first user of a GPU takes it from the idle GPUs."""
    if task.received is not Sort.FRACTION:
        return
    memory = node.memory_of(task.request)
    for group in task.groups:
        _add(node, task.status, group, memory)


def _add(node: KaiNodeInfo, status: KaiPodStatus, group: str, memory: int) -> None:
    shared = node.shared
    shared.shift(shared.used, group, memory)
    match status:
        case KaiPodStatus.RELEASING:
            shared.shift(shared.releasing, group, memory)
            shared.shift(shared.allocated, group, memory)
            if shared.used[group] == shared.releasing[group]:
                if group not in shared.marked:
                    node.releasing.gpus += 1
                    shared.marked.add(group)
                if _overbooked(node):
                    node.idle.gpus -= 1
        case KaiPodStatus.PIPELINED:
            shared.shift(shared.releasing, group, -memory)
            if shared.used[group] - memory == shared.releasing[group] + memory:
                node.releasing.gpus -= 1
        case _:
            shared.shift(shared.allocated, group, memory)
            if shared.used[group] <= memory and _overbooked(node):
                node.idle.gpus -= 1
            if group in shared.marked:
                node.releasing.gpus -= 1
                shared.marked.discard(group)


def remove_shared(node: KaiNodeInfo, task: PodInfo) -> None:
    """Release a task's portion of each of its shared GPUs; the last user of a GPU leaves it idle."""
    if task.received is not Sort.FRACTION:
        return
    memory = node.memory_of(task.request)
    for group in task.groups:
        _remove(node, task.status, group, memory)


def _remove(node: KaiNodeInfo, status: KaiPodStatus, group: str, memory: int) -> None:
    shared = node.shared
    shared.shift(shared.used, group, -memory)
    match status:
        case KaiPodStatus.RELEASING:
            shared.shift(shared.releasing, group, -memory)
            shared.shift(shared.allocated, group, -memory)
            if shared.used[group] <= 0:
                if not _overbooked(node):
                    node.idle.gpus += 1
                if group in shared.marked:
                    node.releasing.gpus -= 1
                    shared.marked.discard(group)
        case KaiPodStatus.PIPELINED:
            shared.shift(shared.releasing, group, memory)
            if _waited_for_whole(node, group, memory):
                node.releasing.gpus += 1
        case _:
            shared.shift(shared.allocated, group, -memory)
            if shared.used[group] <= 0 and not _overbooked(node):
                node.idle.gpus += 1
            if shared.leaves(group) and group not in shared.marked:
                node.releasing.gpus += 1
                shared.marked.add(group)


def _waited_for_whole(node: KaiNodeInfo, group: str, memory: int) -> bool:
    """True if the pipelined task had the whole GPU's release to itself."""
    used, releasing = node.shared.used[group], node.shared.releasing[group]
    return used + memory == releasing - memory or (used == 0 and releasing == 0)


def _overbooked(node: KaiNodeInfo) -> bool:
    """True if idle and used GPUs exceed the node's GPU count."""
    return node.gpu_count < int(node.idle.gpus) + int(node.used.gpus) + node.shared.count


def fitting_shared(node: KaiNodeInfo, request: ResourceRequirements) -> int:
    """How many shared GPUs fit the request, at most as many as it needs."""
    return min(sum(fits_shared(node, request, group) for group in node.shared.used), request.count)


def fits_shared(node: KaiNodeInfo, request: ResourceRequirements, group: str) -> bool:
    """True if the shared GPU stays in use and has enough left once all terminating tasks are gone."""
    shared = node.shared
    allocated, releasing = shared.allocated.get(group, 0), shared.releasing.get(group, 0)
    return (
        shared.used.get(group, 0) != 0
        and node.gpu_memory - allocated + releasing - node.memory_of(request) >= 0
        and allocated != releasing
    )


def fits_shared_now(node: KaiNodeInfo, request: ResourceRequirements, group: str) -> bool:
    """True if the shared GPU has enough left now."""
    allocated = node.shared.allocated.get(group)
    return allocated is not None and node.gpu_memory - allocated - node.memory_of(request) >= 0


def rest_of_shared(node: KaiNodeInfo) -> float:
    """Unallocated part of the node's shared GPUs, in GPUs."""
    return sum(1 - node.fraction(memory) for memory in node.shared.allocated.values() if memory > 0)


def rest_memory_of_shared(node: KaiNodeInfo) -> int:
    """Unallocated memory of the node's shared GPUs, in MiB."""
    return sum(node.gpu_memory - memory for memory in node.shared.allocated.values() if memory > 0)


def releasing_of_shared(node: KaiNodeInfo) -> float:
    """Releasing part of shared GPUs that stay in use, in GPUs."""
    return sum(node.fraction(memory) for memory in _leaving(node))


def releasing_memory_of_shared(node: KaiNodeInfo) -> int:
    """Releasing memory of shared GPUs that stay in use, in MiB."""
    return sum(_leaving(node))


def _leaving(node: KaiNodeInfo) -> list[int]:
    shared = node.shared
    return [memory for group, memory in shared.releasing.items() if memory > 0 and not shared.leaves(group)]

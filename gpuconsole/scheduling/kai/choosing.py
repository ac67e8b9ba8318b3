"""Selection of the next tasks of a job to place or to evict (KAI 0.13 allocation_info, eviction_info)."""

from collections.abc import Callable

from gpuconsole.scheduling.heap import ordered
from gpuconsole.scheduling.kai.api.amounts import ResourceAmounts, mig_profile
from gpuconsole.scheduling.kai.api.jobs import PodGroupInfo
from gpuconsole.scheduling.kai.api.pod_sets import PodSetInfo
from gpuconsole.scheduling.kai.api.statuses import ACTIVE_ALLOCATED
from gpuconsole.scheduling.kai.api.tasks import PodInfo, Sort

PodSetOrder = Callable[[PodSetInfo, PodSetInfo], bool]
TaskOrder = Callable[[PodInfo, PodInfo], bool]


def tasks_to_allocate(job: PodGroupInfo, pod_sets: PodSetOrder, tasks: TaskOrder, really: bool) -> list[PodInfo]:
    """The tasks that must be placed together next: those that the gang's minimums lack, else one more task.

    Cached until a task changes. Without `really`, tasks that a trial evicted count as well.
    """
    if job.chosen is None:
        job.chosen = _choose(job, pod_sets, tasks, really)
    return job.chosen


def _choose(job: PodGroupInfo, pod_sets: PodSetOrder, tasks: TaskOrder, really: bool) -> list[PodInfo]:
    lacking = sum(pod_set.active_allocated < pod_set.minimum for pod_set in job.pod_sets.values())
    groups_left = lacking or 1
    chosen: list[PodInfo] = []
    for pod_set in ordered(list(job.pod_sets.values()), pod_sets):
        if groups_left == 0:
            break
        waiting = [task for task in pod_set.tasks.values() if task.to_allocate(really)]
        if not waiting:
            continue
        placed = pod_set.active_allocated
        most = 1 if placed >= pod_set.minimum else pod_set.minimum - placed
        chosen += ordered(waiting, tasks)[:most]
        groups_left -= 1
    return chosen


def sum_to_allocate(
    job: PodGroupInfo | None, pod_sets: PodSetOrder, tasks: TaskOrder, really: bool, least_gpu_memory: int
) -> ResourceAmounts:
    """Total request of `tasks_to_allocate`, cached like them; nothing without a job.

    GPU memory counts as a fraction of the cluster's smallest GPU (`least_gpu_memory` in MiB).
    """
    if job is None:
        return ResourceAmounts()
    if job.chosen_sum is None:
        job.chosen_sum = _sum(tasks_to_allocate(job, pod_sets, tasks, really), really, least_gpu_memory)
    return job.chosen_sum


def _sum(tasks: list[PodInfo], really: bool, least_gpu_memory: int) -> ResourceAmounts:
    total = ResourceAmounts()
    for task in tasks:
        if task.to_allocate(really):
            total.add_request(task.request)
            if task.sort is Sort.MEMORY and least_gpu_memory > 0:
                total.gpus += task.request.count * (task.request.gpu_memory / least_gpu_memory)
    return total


def gpus_of(tasks: list[PodInfo]) -> tuple[float, int]:
    """GPUs and GPU memory in MiB that tasks request; MIG slices count as GPUs, their memory with the number of GB."""
    gpus, memory = 0.0, 0
    for task in tasks:
        gpus += task.request.gpus + task.request.claimed
        memory += task.request.gpu_memory
        for name, count in task.request.mig.items():
            if profile := mig_profile(name):
                gpus += profile[0] * count
                memory += profile[1] * count
    return gpus, memory


def tasks_to_evict(job: PodGroupInfo, pod_sets: PodSetOrder, tasks: TaskOrder) -> tuple[list[PodInfo], bool]:
    """The tasks that are evicted first, and whether the job has more: one task above a minimum, else the whole gang."""
    sets = list(job.pod_sets.values())
    spare = any(pod_set.active_allocated > pod_set.minimum for pod_set in sets)
    chosen: list[PodInfo] = []
    for pod_set in ordered(sets, lambda one, other: pod_sets(other, one))[: 1 if spare else len(sets)]:
        placed = [task for task in pod_set.tasks.values() if task.status in ACTIVE_ALLOCATED]
        most = 1 if pod_set.active_allocated > pod_set.minimum else pod_set.active_allocated
        chosen += ordered(placed, lambda one, other: tasks(other, one))[:most]
    return chosen, len(chosen) < job.active_allocated

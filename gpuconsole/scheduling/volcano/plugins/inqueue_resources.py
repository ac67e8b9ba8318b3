"""Resources that enqueued jobs have not used yet, as overcommit, proportion and capacity count them."""

from gpuconsole.model.resources import CPU, MEMORY, PODS
from gpuconsole.scheduling.volcano.api.job import JobInfo
from gpuconsole.scheduling.volcano.api.resource import Resource, is_scalar


def reserved(job: JobInfo) -> Resource:
    """The part of a job's minResources that it has not allocated (GetInqueueResource)."""
    result = Resource()
    group = job.pod_group
    if group is None or group.min_resources is None:
        return result
    least = Resource.of(group.min_resources)
    for name in group.min_resources:
        missing = least.get(name) - job.allocated.get(name)
        if missing <= 0:
            continue
        if name == CPU:
            result.cpu = missing
        elif name == MEMORY:
            result.memory = missing
        elif name == PODS or is_scalar(name):
            result.set_scalar(name, missing)
    return result


def runs_with_room(job: JobInfo) -> bool:
    """True if the job is Running with at least minMember tasks, so that the rest of its minResources stays reserved."""
    group = job.pod_group
    if group is None or job.phase != "Running" or group.min_resources is None:
        return False
    return job.allocated_task_num >= group.min_member

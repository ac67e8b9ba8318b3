"""hcclrank job plugin: sets the rank of an Ascend pod as an annotation."""

from msgspec.structs import replace

from gpuconsole.model.cluster import Pod
from gpuconsole.model.job import Job
from gpuconsole.scheduling.volcano.jobs.plugins.flags import read_flags
from gpuconsole.scheduling.volcano.jobs.tasks import index_of_pod, task_of_pod, task_replicas

RANK = "hccl/rankIndex"
_FLAGS = {"master": "master", "worker": "worker"}


def apply_hcclrank(job: Job, pod: Pod, arguments: tuple[str, ...]) -> Pod:
    """Set the rank from the variable RANK, else from the pod's index, masters before workers; an existing rank
    stays.
    """
    if pod.annotations.get(RANK):
        return pod
    flags = read_flags(arguments, _FLAGS)
    rank, mine = pod.env.get("RANK", ""), task_of_pod(pod)
    if not rank and mine == flags["master"]:
        rank = str(index_of_pod(pod))
    elif not rank and mine == flags["worker"]:
        rank = str(task_replicas(job, str(flags["master"])) + index_of_pod(pod))
    return replace(pod, annotations={**pod.annotations, RANK: rank}) if rank else pod

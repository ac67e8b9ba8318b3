"""env job plugin: sets each pod's index in its task."""

from msgspec.structs import replace

from gpuconsole.model.cluster import Pod
from gpuconsole.model.job import Job
from gpuconsole.scheduling.volcano.jobs.tasks import index_in_name


def apply_env(job: Job, pod: Pod, arguments: tuple[str, ...]) -> Pod:
    """Set VC_TASK_INDEX and its older name VK_TASK_INDEX."""
    index = index_in_name(pod.name)
    return replace(pod, env={**pod.env, "VK_TASK_INDEX": index, "VC_TASK_INDEX": index})

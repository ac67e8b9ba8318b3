"""mpi job plugin: gives the master the hosts of all workers."""

from msgspec.structs import replace

from gpuconsole.model.cluster import Pod
from gpuconsole.model.job import Job
from gpuconsole.scheduling.volcano.jobs.plugins.flags import Flags, read_flags
from gpuconsole.scheduling.volcano.jobs.plugins.hosts import hosts
from gpuconsole.scheduling.volcano.jobs.tasks import task_of_pod, tasks_of

FLAGS: Flags = {"master": "master", "worker": "worker", "port": 22}


def apply_mpi(job: Job, pod: Pod, arguments: tuple[str, ...]) -> Pod:
    """Set MPI_HOST for the master; other pods stay as they are."""
    flags = read_flags(arguments, FLAGS)
    workers = next((task for task in tasks_of(job) if task.name == flags["worker"]), None)
    if workers is None or task_of_pod(pod) != flags["master"]:
        return pod
    return replace(pod, env={**pod.env, "MPI_HOST": ",".join(hosts(job, workers))})

"""ray job plugin: creates the head's service and sets the start commands of head and workers."""

from msgspec.structs import replace

from gpuconsole.model.cluster import Pod
from gpuconsole.model.job import Job
from gpuconsole.scheduling.volcano.jobs.plugins.flags import Flags, read_flags
from gpuconsole.scheduling.volcano.jobs.plugins.hosts import host
from gpuconsole.scheduling.volcano.jobs.plugins.owned_objects import OwnedObjects
from gpuconsole.scheduling.volcano.jobs.tasks import task_of_pod, tasks_of

_RAY_FLAGS: Flags = {
    "head": "head",
    "headContainer": "head",
    "worker": "worker",
    "workerContainer": "worker",
    "port": 6379,
    "dashboardPort": 8265,
    "clientPort": 10001,
}


class NoHead(ValueError):
    """The job has no head task, so none of its pods can be created."""


def apply_ray(job: Job, pod: Pod, arguments: tuple[str, ...]) -> Pod:
    """Set the `ray start` command if the template has the container of the pod's role.

    Raises:
        NoHead: the job has no head task.
    """
    flags = read_flags(arguments, _RAY_FLAGS)
    head = next((task for task in tasks_of(job) if task.name == flags["head"]), None)
    if head is None:
        raise NoHead(f"job {job.name} doesn't have head task {flags['head']}")
    names, mine, command = {container.name for container in pod.template.containers}, task_of_pod(pod), ""
    if mine == flags["head"] and flags["headContainer"] in names:
        command = (
            f"ray start --head --block --dashboard-host=0.0.0.0 --port={flags['port']}"
            f" --dashboard-port={flags['dashboardPort']} --ray-client-server-port={flags['clientPort']}"
        )
    if mine == flags["worker"] and flags["workerContainer"] in names:
        command = f"ray start --block --address={host(job, head, 0)}:{flags['port']}"
    return replace(pod, command=command) if command else pod


def ray_objects(job: Job, arguments: tuple[str, ...]) -> OwnedObjects:
    """The service of the head."""
    return OwnedObjects(services=(f"{job.name}-head-svc",))

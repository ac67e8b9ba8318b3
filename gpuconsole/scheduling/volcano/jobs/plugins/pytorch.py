"""pytorch job plugin: sets the master's address, the world size and each pod's rank."""

from msgspec.structs import replace

from gpuconsole.model.cluster import Pod
from gpuconsole.model.job import Job
from gpuconsole.scheduling.volcano.jobs.plugins.flags import Flags, read_flags
from gpuconsole.scheduling.volcano.jobs.plugins.hosts import host
from gpuconsole.scheduling.volcano.jobs.tasks import index_in_name, task_of_pod, tasks_of

_PYTORCH_FLAGS: Flags = {
    "master": "master",
    "worker": "worker",
    "port": 23456,
    "wait-master-enabled": False,
    "wait-master-timeout": 300,
    "wait-master-image": "busybox:1.36.1",
}


def apply_pytorch(job: Job, pod: Pod, arguments: tuple[str, ...]) -> Pod:
    """Set MASTER_ADDR, MASTER_PORT, WORLD_SIZE and RANK (0 for the master, then the workers); nothing without a master
    task.
    """
    flags = read_flags(arguments, _PYTORCH_FLAGS)
    tasks = {task.name: task for task in tasks_of(job)}
    master = tasks.get(str(flags["master"]))
    if master is None:
        return pod
    taking_part = {str(flags["master"]), str(flags["worker"])}
    added = {
        "MASTER_ADDR": host(job, master, 0),
        "MASTER_PORT": str(flags["port"]),
        "WORLD_SIZE": str(sum(task.replicas for name, task in tasks.items() if name in taking_part)),
    }
    mine = task_of_pod(pod)
    if mine == flags["worker"]:
        added["RANK"] = str(int(index_in_name(pod.name)) + 1)
    elif mine == flags["master"]:
        added["RANK"] = "0"
    return replace(pod, env={**pod.env, **added})

"""Job plugins: their changes to pods of a Volcano Job (Volcano 1.15).

env sets each pod's index in its task; svc gives pods host names and the hosts of all tasks in the environment; ssh
shares one key between all pods. The others set up a framework: mpi, pytorch, ray, tensorflow, and hcclrank for Ascend.
Arguments are parsed as by Go's flag package: `--port=5000`, `-port 5000`, `--wait-master-enabled`. The services,
ConfigMaps and secrets that plugins create are not simulated. Volcano runs plugins in the random order of a Go map;
here they run by name.
"""

import json
from collections.abc import Callable, Mapping, Sequence

from msgspec.structs import replace

from gpuconsole.model.cluster import Pod
from gpuconsole.model.job import Job
from gpuconsole.scheduling.volcano.config import parse_flag
from gpuconsole.scheduling.volcano.jobs.states import (
    JobTask,
    index_in_name,
    index_of_pod,
    pod_name,
    spec_of,
    task_of_pod,
    task_replicas,
    tasks_of,
)


def apply_env(job: Job, pod: Pod, arguments: tuple[str, ...]) -> Pod:
    """env plugin: set the pod's index in VC_TASK_INDEX and its older name VK_TASK_INDEX."""
    index = index_in_name(pod.name)
    return replace(pod, env={**pod.env, "VK_TASK_INDEX": index, "VC_TASK_INDEX": index})


FlagValue = str | int | bool
FlagDefaults = Mapping[str, FlagValue]
"""Default value by flag name; its type is the type of the flag."""


def parse_flags(arguments: Sequence[str], defaults: FlagDefaults) -> dict[str, FlagValue]:
    """The value of each known flag; parsing stops at the first unknown or invalid one, as in Go."""
    values, rest = dict(defaults), list(arguments)
    while rest:
        head = rest.pop(0)
        name, given, text = _split_flag(head)
        if name not in values:
            return values
        if isinstance(values[name], bool) and not given:
            text = "true"
        elif not given:
            if not rest:
                return values
            text = rest.pop(0)
        value = _parse_value(text, values[name])
        if value is None:
            return values
        values[name] = value
    return values


def _split_flag(head: str) -> tuple[str, bool, str]:
    """(name, True if a value follows `=`, that value); the name is empty if the argument is not a flag."""
    if not head.startswith("-") or head in ("-", "--"):
        return "", False, ""
    name, equals, text = head.removeprefix("-").removeprefix("-").partition("=")
    return name, bool(equals), text


def _parse_value(text: str, default: FlagValue) -> FlagValue | None:
    if isinstance(default, bool):
        return parse_flag(text)
    if isinstance(default, int):
        try:
            return int(text, 0)
        except ValueError:
            return None
    return text


RANK = "hccl/rankIndex"
_HCCLRANK_FLAGS = {"master": "master", "worker": "worker"}


def apply_hcclrank(job: Job, pod: Pod, arguments: tuple[str, ...]) -> Pod:
    """hcclrank plugin: set the rank from the variable RANK, else by the pod's index; an existing rank stays.

    Masters have the lower ranks, then workers.
    """
    if pod.annotations.get(RANK):
        return pod
    flags = parse_flags(arguments, _HCCLRANK_FLAGS)
    rank, mine = pod.env.get("RANK", ""), task_of_pod(pod)
    if not rank and mine == flags["master"]:
        rank = str(index_of_pod(pod))
    elif not rank and mine == flags["worker"]:
        rank = str(task_replicas(job, str(flags["master"])) + index_of_pod(pod))
    return replace(pod, annotations={**pod.annotations, RANK: rank}) if rank else pod


def pod_host(job: Job, task: JobTask, index: int) -> str:
    """A pod's DNS name: the template's hostname or the pod's name, then the template's subdomain or the job's name."""
    name = task.template.hostname or pod_name(job.name, task.name, index)
    return f"{name}.{task.template.subdomain or job.name}"


def task_hosts(job: Job, task: JobTask) -> list[str]:
    """The DNS names of a task's pods; only that of the first if the template sets the hostname."""
    count = min(task.replicas, 1) if task.template.hostname else task.replicas
    return [pod_host(job, task, index) for index in range(count)]


_MPI_FLAGS: FlagDefaults = {"master": "master", "worker": "worker", "port": 22}


def apply_mpi(job: Job, pod: Pod, arguments: tuple[str, ...]) -> Pod:
    """mpi plugin: set MPI_HOST for the master; other pods stay as they are."""
    flags = parse_flags(arguments, _MPI_FLAGS)
    workers = next((task for task in tasks_of(job) if task.name == flags["worker"]), None)
    if workers is None or task_of_pod(pod) != flags["master"]:
        return pod
    return replace(pod, env={**pod.env, "MPI_HOST": ",".join(task_hosts(job, workers))})


_PYTORCH_FLAGS: FlagDefaults = {
    "master": "master",
    "worker": "worker",
    "port": 23456,
    "wait-master-enabled": False,
    "wait-master-timeout": 300,
    "wait-master-image": "busybox:1.36.1",
}


def apply_pytorch(job: Job, pod: Pod, arguments: tuple[str, ...]) -> Pod:
    """pytorch plugin: set MASTER_ADDR, MASTER_PORT, WORLD_SIZE and RANK, 0 for the master; nothing without one."""
    flags = parse_flags(arguments, _PYTORCH_FLAGS)
    tasks = {task.name: task for task in tasks_of(job)}
    master = tasks.get(str(flags["master"]))
    if master is None:
        return pod
    taking_part = {str(flags["master"]), str(flags["worker"])}
    added = {
        "MASTER_ADDR": pod_host(job, master, 0),
        "MASTER_PORT": str(flags["port"]),
        "WORLD_SIZE": str(sum(task.replicas for name, task in tasks.items() if name in taking_part)),
    }
    mine = task_of_pod(pod)
    if mine == flags["worker"]:
        added["RANK"] = str(int(index_in_name(pod.name)) + 1)
    elif mine == flags["master"]:
        added["RANK"] = "0"
    return replace(pod, env={**pod.env, **added})


_RAY_FLAGS: FlagDefaults = {
    "head": "head",
    "headContainer": "head",
    "worker": "worker",
    "workerContainer": "worker",
    "port": 6379,
    "dashboardPort": 8265,
    "clientPort": 10001,
}


class MissingHeadTask(ValueError):
    """A job with the ray plugin has no head task, so none of its pods can be created."""


def apply_ray(job: Job, pod: Pod, arguments: tuple[str, ...]) -> Pod:
    """ray plugin: set the `ray start` command of the container for the pod's role, if the template has it.

    Raises:
        NoHead: the job has no head task.
    """
    flags = parse_flags(arguments, _RAY_FLAGS)
    head = next((task for task in tasks_of(job) if task.name == flags["head"]), None)
    if head is None:
        raise MissingHeadTask(f"job {job.name} doesn't have head task {flags['head']}")
    names, mine, command = {container.name for container in pod.template.containers}, task_of_pod(pod), ""
    if mine == flags["head"] and flags["headContainer"] in names:
        command = (
            f"ray start --head --block --dashboard-host=0.0.0.0 --port={flags['port']}"
            f" --dashboard-port={flags['dashboardPort']} --ray-client-server-port={flags['clientPort']}"
        )
    if mine == flags["worker"] and flags["workerContainer"] in names:
        command = f"ray start --block --address={pod_host(job, head, 0)}:{flags['port']}"
    return replace(pod, command=command) if command else pod


def apply_ssh(job: Job, pod: Pod, arguments: tuple[str, ...]) -> Pod:
    """ssh plugin: return the same pod, because it only mounts a secret, which is not simulated."""
    return pod


def apply_svc(job: Job, pod: Pod, arguments: tuple[str, ...]) -> Pod:
    """svc plugin: set hostname, subdomain (by default the pod's and job's name) and `host_environment`."""
    return replace(
        pod,
        hostname=pod.template.hostname or pod.name,
        subdomain=pod.template.subdomain or job.name,
        env={**pod.env, **host_environment(job)},
    )


def host_environment(job: Job) -> dict[str, str]:
    """The variables `VC_<TASK>_HOSTS` (DNS names of the pods) and `VC_<TASK>_NUM` (replicas) of each task."""
    found = {}
    for task in tasks_of(job):
        name, listed = task.name.replace("-", "_").upper(), task_hosts(job, task)
        found[f"VC_{name}_HOSTS"] = ",".join(listed)
        found[f"VC_{name}_NUM"] = str(len(listed))
    return found


_ROLES = ("ps", "worker", "chief", "evaluator")
_TENSORFLOW_FLAGS: FlagDefaults = {**{role: role for role in _ROLES}, "port": 2222}


def apply_tensorflow(job: Job, pod: Pod, arguments: tuple[str, ...]) -> Pod:
    """tensorflow plugin: set TF_CONFIG, unless the job has a single pod."""
    tasks, flags = tasks_of(job), parse_flags(arguments, _TENSORFLOW_FLAGS)
    if len(tasks) == 1 and tasks[0].replicas == 1:
        return pod
    roles = {flags[role]: role for role in reversed(_ROLES)}
    cluster = {
        roles[task.name]: [f"{pod_host(job, task, index)}:{flags['port']}" for index in range(task.replicas)]
        for task in tasks
        if task.name in roles and task.replicas
    }
    ordered = {role: cluster[role] for role in _ROLES if role in cluster}
    mine = task_of_pod(pod)
    own = {"type": roles.get(mine, mine), "index": int(index_in_name(pod.name))}
    configuration = json.dumps({"cluster": ordered, "task": own}, separators=(",", ":"))
    return replace(pod, env={**pod.env, "TF_CONFIG": configuration})


ApplyPlugin = Callable[[Job, Pod, tuple[str, ...]], Pod]


class UnknownPlugin(ValueError):
    """A job names a plugin that does not exist: its pods cannot be created."""


PLUGINS: Mapping[str, ApplyPlugin] = {
    "env": apply_env,
    "hcclrank": apply_hcclrank,
    "mpi": apply_mpi,
    "pytorch": apply_pytorch,
    "ray": apply_ray,
    "ssh": apply_ssh,
    "svc": apply_svc,
    "tensorflow": apply_tensorflow,
}


def apply_plugins(job: Job, pod: Pod) -> Pod:
    """The pod as changed by all plugins of the job.

    Raises:
        UnknownPlugin: the job names a plugin that does not exist. A plugin can raise other ValueErrors.
    """
    for name, arguments in sorted(spec_of(job).plugins.items()):
        if name not in PLUGINS:
            raise UnknownPlugin(f"failed to get plugin {name}")
        pod = PLUGINS[name](job, pod, arguments)
    return pod

"""tensorflow job plugin: sets TF_CONFIG with the addresses of all roles and the pod's own role."""

import json

from msgspec.structs import replace

from gpuconsole.model.cluster import Pod
from gpuconsole.model.job import Job
from gpuconsole.scheduling.volcano.jobs.plugins.flags import Flags, read_flags
from gpuconsole.scheduling.volcano.jobs.plugins.hosts import host
from gpuconsole.scheduling.volcano.jobs.tasks import index_in_name, task_of_pod, tasks_of

_ROLES = ("ps", "worker", "chief", "evaluator")
_TENSORFLOW_FLAGS: Flags = {**{role: role for role in _ROLES}, "port": 2222}


def apply_tensorflow(job: Job, pod: Pod, arguments: tuple[str, ...]) -> Pod:
    """Set TF_CONFIG, unless the job has a single pod."""
    tasks, flags = tasks_of(job), read_flags(arguments, _TENSORFLOW_FLAGS)
    if len(tasks) == 1 and tasks[0].replicas == 1:
        return pod
    roles = {flags[role]: role for role in reversed(_ROLES)}
    cluster = {
        roles[task.name]: [f"{host(job, task, index)}:{flags['port']}" for index in range(task.replicas)]
        for task in tasks
        if task.name in roles and task.replicas
    }
    ordered = {role: cluster[role] for role in _ROLES if role in cluster}
    mine = task_of_pod(pod)
    own = {"type": roles.get(mine, mine), "index": int(index_in_name(pod.name))}
    configuration = json.dumps({"cluster": ordered, "task": own}, separators=(",", ":"))
    return replace(pod, env={**pod.env, "TF_CONFIG": configuration})

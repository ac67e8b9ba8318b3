"""All job plugins by name."""

from collections.abc import Callable, Mapping

from msgspec import Struct

from gpuconsole.model.cluster import Pod
from gpuconsole.model.job import Job
from gpuconsole.scheduling.volcano.jobs.plugins import env, hcclrank, mpi, pytorch, ray, ssh, svc, tensorflow
from gpuconsole.scheduling.volcano.jobs.plugins.owned_objects import NOTHING, OwnedObjects
from gpuconsole.scheduling.volcano.jobs.tasks import spec_of

OnPod = Callable[[Job, Pod, tuple[str, ...]], Pod]
OwnedObjectsFunction = Callable[[Job, tuple[str, ...]], OwnedObjects]


class UnknownPlugin(ValueError):
    """A job names a plugin that does not exist: none of its objects can be created."""


def _nothing(job: Job, arguments: tuple[str, ...]) -> OwnedObjects:
    return NOTHING


class JobPlugin(Struct, frozen=True):
    """A plugin's change to a new pod, and the objects that it creates for the job."""

    on_pod: OnPod
    owned_objects: OwnedObjectsFunction = _nothing


PLUGINS: Mapping[str, JobPlugin] = {
    "env": JobPlugin(env.apply_env),
    "hcclrank": JobPlugin(hcclrank.apply_hcclrank),
    "mpi": JobPlugin(mpi.apply_mpi),
    "pytorch": JobPlugin(pytorch.apply_pytorch),
    "ray": JobPlugin(ray.apply_ray, ray.ray_objects),
    "ssh": JobPlugin(ssh.apply_ssh, ssh.ssh_objects),
    "svc": JobPlugin(svc.apply_svc, svc.svc_objects),
    "tensorflow": JobPlugin(tensorflow.apply_tensorflow),
}


def on_pod(job: Job, pod: Pod) -> Pod:
    """The pod as changed by all plugins of the job.

    Raises:
        UnknownPlugin: the job names a plugin that does not exist. A plugin can raise other ValueErrors.
    """
    for plugin, arguments in _plugins(job):
        pod = plugin.on_pod(job, pod, arguments)
    return pod


def resources_of(job: Job) -> OwnedObjects:
    """The objects that the job's plugins create for it.

    Raises:
        UnknownPlugin: the job names a plugin that does not exist.
    """
    made = NOTHING
    for plugin, arguments in _plugins(job):
        made = made.and_also(plugin.owned_objects(job, arguments))
    return made


def _plugins(job: Job) -> list[tuple[JobPlugin, tuple[str, ...]]]:
    found = []
    for name, arguments in sorted(spec_of(job).plugins.items()):
        if name not in PLUGINS:
            raise UnknownPlugin(f"failed to get plugin {name}")
        found.append((PLUGINS[name], arguments))
    return found

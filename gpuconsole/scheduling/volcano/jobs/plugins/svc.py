"""svc job plugin: creates a headless service, sets pod host names, and lists hosts in the environment."""

from msgspec.structs import replace

from gpuconsole.model.cluster import Pod
from gpuconsole.model.job import Job
from gpuconsole.scheduling.volcano.jobs.plugins.flags import read_flags
from gpuconsole.scheduling.volcano.jobs.plugins.hosts import hosts
from gpuconsole.scheduling.volcano.jobs.plugins.owned_objects import OwnedObjects
from gpuconsole.scheduling.volcano.jobs.tasks import tasks_of

_SVC_FLAGS = {"publish-not-ready-addresses": False, "disable-network-policy": False}


def apply_svc(job: Job, pod: Pod, arguments: tuple[str, ...]) -> Pod:
    """Set hostname, subdomain (by default the names of pod and job) and the variables of `host_environment`."""
    return replace(
        pod,
        hostname=pod.template.hostname or pod.name,
        subdomain=pod.template.subdomain or job.name,
        env={**pod.env, **host_environment(job)},
    )


def host_environment(job: Job) -> dict[str, str]:
    """`VC_<TASK>_HOSTS` and `VC_<TASK>_NUM` of each task."""
    found = {}
    for task in tasks_of(job):
        name, listed = task.name.replace("-", "_").upper(), hosts(job, task)
        found[f"VC_{name}_HOSTS"] = ",".join(listed)
        found[f"VC_{name}_NUM"] = str(len(listed))
    return found


def svc_objects(job: Job, arguments: tuple[str, ...]) -> OwnedObjects:
    """The service, its ConfigMap and, unless disabled, a NetworkPolicy that admits only the job's own pods."""
    closed = not read_flags(arguments, _SVC_FLAGS)["disable-network-policy"]
    return OwnedObjects(
        services=(job.name,),
        config_maps=(f"{job.name}-svc",),
        network_policies=(job.name,) if closed else (),
    )

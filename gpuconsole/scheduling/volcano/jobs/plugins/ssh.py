"""ssh job plugin: shares one key and an ssh configuration between all pods of a job."""

from gpuconsole.model.cluster import Pod
from gpuconsole.model.job import Job
from gpuconsole.scheduling.volcano.jobs.plugins.owned_objects import OwnedObjects


def apply_ssh(job: Job, pod: Pod, arguments: tuple[str, ...]) -> Pod:
    """The same pod: the plugin only mounts the secret, which is not simulated."""
    return pod


def ssh_objects(job: Job, arguments: tuple[str, ...]) -> OwnedObjects:
    """The secret with the key."""
    return OwnedObjects(secrets=(f"{job.name}-ssh",))

"""ssh job plugin: shares one key and an ssh configuration between all pods of a job."""

from gpuconsole.model.cluster import Pod
from gpuconsole.model.job import Job
from gpuconsole.scheduling.volcano.jobs.plugins.flags import Flags, read_flags
from gpuconsole.scheduling.volcano.jobs.plugins.hosts import hosts
from gpuconsole.scheduling.volcano.jobs.plugins.owned_objects import OwnedObjects
from gpuconsole.scheduling.volcano.jobs.tasks import tasks_of

_FLAGS: Flags = {"ssh-key-file-path": "/root/.ssh", "ssh-private-key": "", "ssh-public-key": "", "ssh-port": 22}
_MOST = 65535


def on_pod(job: Job, pod: Pod, arguments: tuple[str, ...]) -> Pod:
    """The same pod: the plugin only mounts the secret, which is not simulated."""
    return pod


def configuration(job: Job, arguments: tuple[str, ...]) -> str:
    """The ssh `config` with the hosts of all pods; an invalid port becomes 22."""
    port = int(read_flags(arguments, _FLAGS)["ssh-port"])
    port = port if 0 < port <= _MOST else 22
    lines = ["StrictHostKeyChecking no", "UserKnownHostsFile /dev/null"]
    for task in tasks_of(job):
        for address in hosts(job, task):
            lines += [f"Host {address.partition('.')[0]}", f"  HostName {address}", f"  Port {port}"]
    return "\n".join(lines) + "\n"


def owned_objects(job: Job, arguments: tuple[str, ...]) -> OwnedObjects:
    """The secret with the key."""
    return OwnedObjects(secrets=(f"{job.name}-ssh",))

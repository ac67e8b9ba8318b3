"""NodePorts: filters nodes on which a host port of the pod is in use."""

from gpuconsole.scheduling.kube import ports
from gpuconsole.scheduling.kube.plugins.local import Local
from gpuconsole.scheduling.kube.plugins.roles import Nearby, PodContext
from gpuconsole.scheduling.kube.profile import SchedulerProfile


def node_ports_filter(rules: SchedulerProfile, asker: PodContext, around: Nearby) -> Local | None:
    """The filter for a pod; None for a pod without host ports."""
    if not ports.host_ports(asker.pod.template):
        return None
    return Local(lambda node, others: ports.host_port_conflict(asker.pod, others), around.on)

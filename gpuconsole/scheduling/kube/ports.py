"""NodePorts: filters nodes on which a host port of the pod is in use."""

from collections.abc import Iterable

from gpuconsole.model.cluster import Pod
from gpuconsole.model.pod_template import HostPort, PodTemplate

NO_PORTS = "node(s) didn't have free ports for the requested pod ports"
ANYWHERE = "0.0.0.0"


def host_ports(template: PodTemplate) -> tuple[HostPort, ...]:
    """The host ports that a pod uses while it runs."""
    running = (*(one for one in template.init_containers if one.sidecar), *template.containers)
    return tuple(port for container in running for port in container.ports)


def host_port_conflict(pod: Pod, others: Iterable[Pod]) -> str:
    """Why existing pods conflict with the pod's host ports; empty if they do not."""
    mine = host_ports(pod.template)
    clash = mine and any(
        _clash(port, taken) for other in others for taken in host_ports(other.template) for port in mine
    )
    return NO_PORTS if clash else ""


def _clash(one: HostPort, other: HostPort) -> bool:
    same = one.port == other.port and one.protocol == other.protocol
    return same and (one.ip == other.ip or ANYWHERE in (one.ip, other.ip))

"""Kubernetes' quality of service classes of pods."""

from enum import IntEnum

from gpuconsole.model.pod_template import PodTemplate
from gpuconsole.model.resources import CPU, MEMORY


class Qos(IntEnum):
    """QoS classes in eviction order."""

    BEST_EFFORT = 0
    BURSTABLE = 1
    GUARANTEED = 2


def qos_of(template: PodTemplate) -> Qos:
    """QoS class of a pod (GetPodQOS).

    Guaranteed if every container limits cpu and memory to what it requests, best effort if none has requests or limits.
    """
    containers = (*template.containers, *template.init_containers)
    pairs = [(one.effective.get(name, 0), one.limits.get(name, 0)) for one in containers for name in (CPU, MEMORY)]
    if not any(requested or limited for requested, limited in pairs):
        return Qos.BEST_EFFORT
    firm = all(limited and requested == limited for requested, limited in pairs)
    return Qos.GUARANTEED if firm else Qos.BURSTABLE

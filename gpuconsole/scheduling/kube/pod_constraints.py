"""Constraints of a pending pod beyond its class: other pods, host ports, and claims. Pure."""

from gpuconsole.model.cluster import Pod
from gpuconsole.scheduling.kube import pod_index, ports
from gpuconsole.scheduling.kube.inter_pod_affinity import has_pod_affinity
from gpuconsole.scheduling.kube.pending import Kind
from gpuconsole.scheduling.kube.plugins.podtopologyspread import siblings
from gpuconsole.scheduling.kube.profile import SchedulerProfile


def kind_of(pod: Pod) -> Kind:
    """Key that distinguishes pods of one class; a pod with claims has a key of its own."""
    return (*pod_index.kind_of(pod), ports.host_ports(pod.template), pod.key if _claims(pod) else "")


def depends_on_other_pods(pod: Pod, rules: SchedulerProfile) -> bool:
    """True if scheduling the pod depends on other pods or on its claims."""
    template = pod.template
    if template.spread or has_pod_affinity(pod) or _claims(pod) or ports.host_ports(template):
        return True
    return bool(rules.spread is None or rules.spread) and siblings(pod) is not None


def has_node_constraints(pod: Pod) -> bool:
    """True if new pods, volumes or devices may make a pending pod schedulable: spread, required affinity or claims."""
    affinity = pod.template.pod_affinity
    return bool(pod.template.spread) or _claims(pod) or (affinity is not None and bool(affinity.required))


def _claims(pod: Pod) -> bool:
    return bool(pod.template.volumes or pod.template.resource_claims)

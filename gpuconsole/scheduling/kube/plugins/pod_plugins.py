"""Plugins that filter by other pods, or by the ports, volumes and devices that a pod claims.

NodePorts: filters nodes on which a host port of the pod is in use.

VolumeBinding: filters nodes that cannot reach the pod's volumes or cannot get volumes for its claims.

VolumeRestrictions: a ReadWriteOncePod claim can be used by one pod only.

NodeVolumeLimits: limits the volumes that a CSI driver attaches to a node.

VolumeZone: bound volumes restrict their pods to the volumes' zones.

DynamicResources: filters nodes that cannot provide the devices claimed by the pod.

InterPodAffinity: filter and score by required and preferred affinity between pods.
"""

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from gpuconsole.model.cluster import Node, Pod
from gpuconsole.model.pod_template import HostPort, PodTemplate
from gpuconsole.scheduling.devices import allocator as claims
from gpuconsole.scheduling.kube import inter_pod_affinity, volumes
from gpuconsole.scheduling.kube import volumes as volume_filters
from gpuconsole.scheduling.kube.inter_pod_affinity import Domain, InterPodAffinityState, PodLister
from gpuconsole.scheduling.kube.plugins.framework import (
    Fixed,
    Local,
    Nearby,
    NodeRejection,
    PodContext,
    PreFilterRejection,
)
from gpuconsole.scheduling.kube.profile import SchedulerProfile


def volume_binding_filter(
    rules: SchedulerProfile, asker: PodContext, around: Nearby
) -> Fixed | PreFilterRejection | None:
    """The filter for a pod, or the reason why it fits no node; None for a pod without volumes."""
    if not asker.pod.template.volumes:
        return None
    storage = asker.means.storage
    text = volumes.trouble(asker.pod, storage)
    return PreFilterRejection(text) if text else Fixed(lambda node: volumes.plan(asker.pod, node, storage).reasons)


def volume_restrictions_filter(rules: SchedulerProfile, asker: PodContext, around: Nearby) -> Local | None:
    """The filter for a pod; None for a pod without volumes."""
    if not asker.pod.template.volumes:
        return None
    storage = asker.means.storage
    return Local(lambda node, others: volume_filters.use_refusal(asker.pod, others, storage), around.on)


def node_volume_limits_filter(rules: SchedulerProfile, asker: PodContext, around: Nearby) -> Local | None:
    """The filter for a pod; None for a pod without volumes."""
    if not asker.pod.template.volumes:
        return None
    storage = asker.means.storage
    return Local(lambda node, others: volume_filters.limit_refusal(asker.pod, node, others, storage), around.on)


def volume_zone_filter(rules: SchedulerProfile, asker: PodContext, around: Nearby) -> Fixed | PreFilterRejection | None:
    """The filter for a pod, or the reason why it fits no node; None for a pod without volumes."""
    if not asker.pod.template.volumes:
        return None
    storage = asker.means.storage
    text = volume_filters.zone_trouble(asker.pod, storage)

    def ask(node: Node) -> tuple[str, ...]:
        refusal = volume_filters.zone_refusal(asker.pod, node, storage)
        return (refusal,) if refusal else ()

    return PreFilterRejection(text) if text else Fixed(ask)


def dynamic_resources_filter(
    rules: SchedulerProfile, asker: PodContext, around: Nearby
) -> Fixed | PreFilterRejection | None:
    """The filter for a pod; None for a pod without resource claims."""
    if not asker.pod.template.resource_claims:
        return None
    stock = asker.means.stock
    text = claims.trouble(asker.pod, stock)

    def ask(node: Node) -> tuple[str, ...]:
        reason = claims.grant(asker.pod, node, stock).reason
        return (reason,) if reason else ()

    return PreFilterRejection(text) if text else Fixed(ask)


class Near(Struct, frozen=True):
    """PreFilter state of InterPodAffinity for one pod."""

    pod: Pod
    found: InterPodAffinityState
    namespaces: Mapping[str, Mapping[str, str]]

    def refusal(self, node: Node) -> NodeRejection | None:
        text = inter_pod_affinity.refusal(self.pod, node, self.found)
        return NodeRejection((text,), final=text == inter_pod_affinity.AFFINITY) if text else None

    def moved(self, node: Node, pods: Iterable[Pod], by: int) -> "Near":
        return replace(self, found=inter_pod_affinity.moved(self.found, self.pod, node, pods, self.namespaces, by))


class InterPodAffinityScores(Struct, frozen=True):
    """PreScore state for one pod: the weight of matching preferred terms by topology domain."""

    found: Mapping[Domain, int]

    def raw(self, nodes: Sequence[Node]) -> Mapping[str, int]:
        return inter_pod_affinity.raw_scores(nodes, self.found)

    def normalised(self, nodes: Sequence[Node], raw: Mapping[str, int]) -> Mapping[str, int]:
        return inter_pod_affinity.normalised(raw)


def inter_pod_affinity_filter(rules: SchedulerProfile, asker: PodContext, around: PodLister) -> Near | None:
    """The filter for a pod; None if it has no required terms and no existing pod's anti-affinity matches it."""
    found = inter_pod_affinity.nearness(asker.pod, around)
    template = asker.pod.template
    said = (template.pod_affinity, template.pod_anti_affinity)
    if not found.shunning and not any(one is not None and one.required for one in said):
        return None
    return Near(asker.pod, found, around.namespaces)


def inter_pod_affinity_score(
    rules: SchedulerProfile, asker: PodContext, around: PodLister
) -> InterPodAffinityScores | None:
    """The score for a pod; None if no preferred term applies."""
    found = inter_pod_affinity.preferred_weights(
        asker.pod, around, hard_weight=rules.hard_affinity_weight, ignore_theirs=rules.ignore_theirs
    )
    return InterPodAffinityScores(found) if found else None


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


def node_ports_filter(rules: SchedulerProfile, asker: PodContext, around: Nearby) -> Local | None:
    """The filter for a pod; None for a pod without host ports."""
    if not host_ports(asker.pod.template):
        return None
    return Local(lambda node, others: host_port_conflict(asker.pod, others), around.on)

"""Interfaces of scheduler plugins, and all filter and score plugins except PodTopologySpread.

Some plugins look at one node at a time: at the Node object (`NodeLocalFilter`) or at its resource usage
(`NodeUsageFilter`, `NodeUsageScore`). They are prepared once per pod class. The others depend on pods of any node, or
on the ports, volumes and devices that the pod claims (`PodFilter`, `PodScore`); they are prepared for each pod.
Preparing a plugin returns None if it does not apply to the pod (Skip).

The registry is `kube.plugins`; a profile enables plugins and sets their weights and arguments. `scores` has the
arithmetic of node scores, and the scores of NodeAffinity and TaintToleration.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from gpuconsole.model.cluster import Node, Pod
from gpuconsole.model.pod_template import HostPort, PodTemplate
from gpuconsole.model.resources import CPU, MEMORY
from gpuconsole.scheduling.devices import allocator
from gpuconsole.scheduling.kube import filters, inter_pod_affinity, volumes
from gpuconsole.scheduling.kube.inter_pod_affinity import Domain, InterPodAffinityState, PodLister
from gpuconsole.scheduling.kube.pod_classes import NodeState, PodClass
from gpuconsole.scheduling.kube.profile import SchedulerProfile
from gpuconsole.scheduling.kube.scores import MAX_SCORE, Images, allocation_score, ratio_score, scored_resources
from gpuconsole.scheduling.kube.volumes import ClaimsAndVolumes

NodeFilter = Callable[[Node], str]
"""Returns why a node can never take a pod, whatever runs on it; empty if it can. Preemption never helps."""

UsageFilterFunction = Callable[[NodeState, int], tuple[str, ...]]
"""Returns why a node has too little free for a pod of this priority; empty if it fits. Preemption may help."""

UsageScoreFunction = Callable[[NodeState], int]
"""Returns the score of a node, 0 to 100, by its resource usage; such scores are not normalised."""


class NodeRejection(Struct, frozen=True):
    """Why a filter rejects a node because of other pods."""

    texts: tuple[str, ...]
    """The reasons, each of which counts separately in the FailedScheduling message."""
    is_unresolvable: bool = False
    """Preemption on the node would not help (UnschedulableAndUnresolvable)."""


class PreFilterRejection(Struct, frozen=True):
    """Why a plugin's PreFilter rejects the pod for all nodes."""

    text: str


class PodsByNodeLister(PodLister, Protocol):
    """Read access to all existing pods, by group and by node, for plugins."""

    def pods_on(self, node: str) -> Iterable[Pod]:
        """The pods of a node."""


class PreFilterState(Protocol):
    """A filter prepared for one pod (PreFilter state of a plugin)."""

    def refusal(self, node: Node) -> NodeRejection | None:
        """Why the node is rejected; None if it is not."""

    def with_pods_moved(self, node: Node, pods: Iterable[Pod], sign: int) -> "PreFilterState":
        """The state after these pods are removed from the node (`sign` −1) or added to it (1)."""


class PreScoreState(Protocol):
    """A score prepared for one pod (PreScore state of a plugin)."""

    def raw(self, nodes: Sequence[Node]) -> Mapping[str, int]:
        """Each node's score by name, before it is normalised."""

    def normalised(self, nodes: Sequence[Node], raw: Mapping[str, int]) -> Mapping[str, int]:
        """Score of each node by name, 0 to 100, from the raw scores."""


class PodContext(Struct, frozen=True):
    """The pod that is being scheduled, as plugins that depend on other pods or claims see it."""

    pod: Pod
    pod_class: PodClass
    claims: ClaimsAndVolumes


class NodeLocalFilter(Protocol):
    """Prepares a filter that depends only on the Node object, for one class of pods."""

    def __call__(self, profile: SchedulerProfile, pod_class: PodClass) -> NodeFilter | None:
        """The filter for pods of this class; None if it does not apply to them (Skip)."""


class NodeUsageFilter(Protocol):
    """Prepares a filter by the resource usage of the node, for one class of pods; None if it does not apply to them."""

    def __call__(self, profile: SchedulerProfile, pod_class: PodClass) -> UsageFilterFunction | None: ...


class NodeUsageScore(Protocol):
    """Prepares a score that depends only on the pod and one node, usually on the node's resource usage.

    Returns None for pods that it does not apply to.
    """

    def __call__(self, profile: SchedulerProfile, pod_class: PodClass, images: Images) -> UsageScoreFunction | None: ...


class PodFilter(Protocol):
    """Prepares a filter that depends on other pods or on claims, for one pod (PreFilter).

    Returns its state or rejection of the pod; None if it does not apply to the pod.
    """

    def __call__(
        self, profile: SchedulerProfile, context: PodContext, existing_pods: PodsByNodeLister
    ) -> PreFilterState | PreFilterRejection | None: ...


class PodScore(Protocol):
    """Prepares a score that depends on other pods, for one pod (PreScore).

    Returns its state; None if it does not apply to the pod.
    """

    def __call__(
        self, profile: SchedulerProfile, context: PodContext, existing_pods: PodsByNodeLister
    ) -> PreScoreState | None: ...


PodFilterFunction = Callable[[Node, Iterable[Pod]], str]
"""Returns why the node rejects the pod being scheduled while these other pods are on it; empty if it does not."""


class NodePodsFilterState(Struct, frozen=True):
    """PreFilter state of a filter that looks at the pods on the node, some of which preemption may remove."""

    evaluate: PodFilterFunction
    pods_on: Callable[[str], Iterable[Pod]]
    removed: frozenset[str] = frozenset()
    """Keys of existing pods that are assumed to be removed."""
    added: tuple[tuple[str, Pod], ...] = ()
    """(node name, pod) of pods that are assumed to be added."""

    def refusal(self, node: Node) -> NodeRejection | None:
        there = [pod for pod in self.pods_on(node.name) if pod.key not in self.removed]
        there += [pod for name, pod in self.added if name == node.name]
        text = self.evaluate(node, there)
        return NodeRejection((text,)) if text else None

    def with_pods_moved(self, node: Node, pods: Iterable[Pod], sign: int) -> "NodePodsFilterState":
        if sign < 0:
            return replace(self, removed=self.removed.union(pod.key for pod in pods))
        return replace(self, added=(*self.added, *((node.name, pod) for pod in pods)))


class NodeOnlyFilterState(Struct, frozen=True):
    """PreFilter state of a filter that does not depend on other pods, so preemption never helps."""

    evaluate: Callable[[Node], tuple[str, ...]]

    def refusal(self, node: Node) -> NodeRejection | None:
        texts = self.evaluate(node)
        return NodeRejection(texts, is_unresolvable=True) if texts else None

    def with_pods_moved(self, node: Node, pods: Iterable[Pod], sign: int) -> "NodeOnlyFilterState":
        return self


def node_unschedulable_filter(profile: SchedulerProfile, pod_class: PodClass) -> NodeFilter:
    """NodeUnschedulable: a cordoned node accepts only pods that tolerate its taint."""
    return lambda node: filters.cordon_refusal(node, pod_class)


def node_name_filter(profile: SchedulerProfile, pod_class: PodClass) -> None:
    """NodeName: no filter, as a pod that names its node is already bound to it."""


def taint_toleration_filter(profile: SchedulerProfile, pod_class: PodClass) -> NodeFilter:
    """TaintToleration: rejects nodes with untolerated NoSchedule and NoExecute taints; `scores` counts the others."""
    return lambda node: filters.taint_refusal(node, pod_class)


def node_affinity_filter(profile: SchedulerProfile, pod_class: PodClass) -> NodeFilter | None:
    """NodeAffinity: node labels that the pod, or the scheduler for every pod, requires; None if neither does."""
    if profile.added_affinity is None and not pod_class.node_selector and pod_class.affinity is None:
        return None
    added = profile.added_affinity

    def refuse(node: Node) -> str:
        if added is not None and not any(filters.matches_term(term, node) for term in added):
            return filters.NO_ADDED_AFFINITY
        return "" if filters.matches_affinity(node, pod_class) else filters.NO_AFFINITY

    return refuse


def resources_fit_filter(profile: SchedulerProfile, pod_class: PodClass) -> UsageFilterFunction:
    """NodeResourcesFit: rejects nodes with too little free; the reasons are the resources that are lacking."""

    def refuse(state: NodeState, priority: int) -> tuple[str, ...]:
        left = filters.free_resources(state, pod_class, priority)
        return () if filters.count_fitting(left, pod_class) else filters.shortages(left, pod_class)

    return refuse


def resources_fit_score(profile: SchedulerProfile, pod_class: PodClass, images: Images) -> UsageScoreFunction:
    """NodeResourcesFit: scores utilization by LeastAllocated, MostAllocated or RequestedToCapacityRatio."""
    strategy, lines = profile.strategy, scored_resources(profile.strategy.resources, pod_class)
    if strategy.type == "RequestedToCapacityRatio":
        return ratio_score(strategy.shape, lines)
    return allocation_score(strategy.type, lines)


ALWAYS_BALANCED = (CPU, MEMORY, "ephemeral-storage")
"""Resources that count even for a pod that does not request them."""


def balanced_allocation_score(
    profile: SchedulerProfile, pod_class: PodClass, images: Images
) -> UsageScoreFunction | None:
    """NodeResourcesBalancedAllocation: prefers nodes whose resources would be used in equal proportion.

    ⌊(1 − standard deviation of the used fractions) · 100⌋; None for a pod that requests none of the balanced resources.
    Actual requests count, without the defaults of other scores (balanced_allocation.go, useRequested). As in
    kube-scheduler up to 1.35, only the balance with the pod on the node counts; later releases compare it with the
    balance without the pod (kubernetes pull request 135573).
    """
    asked = [name for name, _ in profile.balanced if name in ALWAYS_BALANCED or name in pod_class.requests]
    if not any(name in pod_class.requests for name in asked):
        return None
    return lambda state: balanced_score(_used_fractions(state, pod_class, asked))


def _used_fractions(state: NodeState, pod_class: PodClass, names: list[str]) -> list[float]:
    assert state.node is not None
    sizes = ((name, state.node.allocatable.get(name, 0)) for name in names)
    return [
        min(1.0, (state.used.get(name, 0) + pod_class.requests.get(name, 0)) / size) for name, size in sizes if size
    ]


def balanced_score(fractions: list[float]) -> int:
    """The balanced-allocation score, 0 to 100, of the used fraction (0 to 1) of each resource."""
    deviation = 0.0
    if len(fractions) == 2:
        deviation = abs((fractions[0] - fractions[1]) / 2)
    elif len(fractions) > 2:
        mean = sum(fractions) / len(fractions)
        deviation = math.sqrt(sum((part - mean) ** 2 for part in fractions) / len(fractions))
    return int((1 - deviation) * MAX_SCORE)


def image_locality_score(profile: SchedulerProfile, pod_class: PodClass, images: Images) -> UsageScoreFunction | None:
    """ImageLocality: prefers nodes that hold the pod's images; None if no node reports images, so that all score 0."""
    if not pod_class.images or not images.has_images:
        return None
    return lambda state: 0 if state.node is None else images.score_images(pod_class.images, state.node)


def volume_binding_filter(
    profile: SchedulerProfile, context: PodContext, existing_pods: PodsByNodeLister
) -> NodeOnlyFilterState | PreFilterRejection | None:
    """VolumeBinding: rejects nodes that cannot reach the pod's volumes or get volumes for its claims."""
    if not context.pod.template.volumes:
        return None
    storage = context.claims.storage
    text = volumes.prefilter_rejection(context.pod, storage)
    return (
        PreFilterRejection(text)
        if text
        else NodeOnlyFilterState(lambda node: volumes.plan_volumes(context.pod, node, storage).reasons)
    )


def volume_restrictions_filter(
    profile: SchedulerProfile, context: PodContext, existing_pods: PodsByNodeLister
) -> NodePodsFilterState | None:
    """VolumeRestrictions: a ReadWriteOncePod claim can be used by one pod only."""
    if not context.pod.template.volumes:
        return None
    storage = context.claims.storage
    return NodePodsFilterState(
        lambda node, others: volumes.read_write_once_pod_refusal(context.pod, others, storage), existing_pods.pods_on
    )


def node_volume_limits_filter(
    profile: SchedulerProfile, context: PodContext, existing_pods: PodsByNodeLister
) -> NodePodsFilterState | None:
    """NodeVolumeLimits: limits the volumes that a CSI driver attaches to a node."""
    if not context.pod.template.volumes:
        return None
    storage = context.claims.storage
    return NodePodsFilterState(
        lambda node, others: volumes.volume_limit_refusal(context.pod, node, others, storage), existing_pods.pods_on
    )


def volume_zone_filter(
    profile: SchedulerProfile, context: PodContext, existing_pods: PodsByNodeLister
) -> NodeOnlyFilterState | PreFilterRejection | None:
    """VolumeZone: bound volumes restrict their pods to the volumes' zones."""
    if not context.pod.template.volumes:
        return None
    storage = context.claims.storage
    text = volumes.zone_prefilter_rejection(context.pod, storage)

    def ask(node: Node) -> tuple[str, ...]:
        refusal = volumes.zone_refusal(context.pod, node, storage)
        return (refusal,) if refusal else ()

    return PreFilterRejection(text) if text else NodeOnlyFilterState(ask)


def dynamic_resources_filter(
    profile: SchedulerProfile, context: PodContext, existing_pods: PodsByNodeLister
) -> NodeOnlyFilterState | PreFilterRejection | None:
    """DynamicResources: rejects nodes that cannot provide the devices that the pod claims."""
    if not context.pod.template.resource_claims:
        return None
    stock = context.claims.devices
    text = allocator.prefilter_rejection(context.pod, stock)

    def ask(node: Node) -> tuple[str, ...]:
        reason = allocator.allocate_claims(context.pod, node, stock).reason
        return (reason,) if reason else ()

    return PreFilterRejection(text) if text else NodeOnlyFilterState(ask)


class InterPodAffinityFilterState(Struct, frozen=True):
    """PreFilter state of InterPodAffinity for one pod: counts of matching pods by topology domain."""

    pod: Pod
    found: InterPodAffinityState
    namespaces: Mapping[str, Mapping[str, str]]

    def refusal(self, node: Node) -> NodeRejection | None:
        text = inter_pod_affinity.refusal(self.pod, node, self.found)
        return NodeRejection((text,), is_unresolvable=text == inter_pod_affinity.AFFINITY) if text else None

    def with_pods_moved(self, node: Node, pods: Iterable[Pod], sign: int) -> "InterPodAffinityFilterState":
        return replace(
            self, found=inter_pod_affinity.with_pods_moved(self.found, self.pod, node, pods, self.namespaces, sign)
        )


class InterPodAffinityScores(Struct, frozen=True):
    """PreScore state of InterPodAffinity for one pod: the weight of matching preferred terms by topology domain."""

    found: Mapping[Domain, int]

    def raw(self, nodes: Sequence[Node]) -> Mapping[str, int]:
        return inter_pod_affinity.raw_scores(nodes, self.found)

    def normalised(self, nodes: Sequence[Node], raw: Mapping[str, int]) -> Mapping[str, int]:
        return inter_pod_affinity.normalised(raw)


def inter_pod_affinity_filter(
    profile: SchedulerProfile, context: PodContext, existing_pods: PodLister
) -> InterPodAffinityFilterState | None:
    """InterPodAffinity: required terms; None if the pod has none and no existing pod's anti-affinity matches it."""
    found = inter_pod_affinity.affinity_counts(context.pod, existing_pods)
    template = context.pod.template
    said = (template.pod_affinity, template.pod_anti_affinity)
    if not found.existing_anti_affinity and not any(one is not None and one.required for one in said):
        return None
    return InterPodAffinityFilterState(context.pod, found, existing_pods.namespaces)


def inter_pod_affinity_score(
    profile: SchedulerProfile, context: PodContext, existing_pods: PodLister
) -> InterPodAffinityScores | None:
    """InterPodAffinity: preferred terms of the pod and of existing pods; None if none applies."""
    found = inter_pod_affinity.preferred_weights(
        context.pod,
        existing_pods,
        hard_weight=profile.hard_affinity_weight,
        ignore_existing_preferred=profile.ignore_existing_preferred,
    )
    return InterPodAffinityScores(found) if found else None


PORTS_IN_USE = "node(s) didn't have free ports for the requested pod ports"
ALL_ADDRESSES = "0.0.0.0"


def host_ports(template: PodTemplate) -> tuple[HostPort, ...]:
    """The host ports that a pod uses while it runs."""
    running = (*(one for one in template.init_containers if one.sidecar), *template.containers)
    return tuple(port for container in running for port in container.ports)


def host_port_conflict(pod: Pod, others: Iterable[Pod]) -> str:
    """Why existing pods conflict with the pod's host ports; empty if they do not."""
    mine = host_ports(pod.template)
    clash = mine and any(
        _ports_conflict(port, taken) for other in others for taken in host_ports(other.template) for port in mine
    )
    return PORTS_IN_USE if clash else ""


def _ports_conflict(one: HostPort, other: HostPort) -> bool:
    same = one.port == other.port and one.protocol == other.protocol
    return same and (one.ip == other.ip or ALL_ADDRESSES in (one.ip, other.ip))


def node_ports_filter(
    profile: SchedulerProfile, context: PodContext, existing_pods: PodsByNodeLister
) -> NodePodsFilterState | None:
    """NodePorts: rejects nodes on which a host port of the pod is in use; None for a pod without host ports."""
    if not host_ports(context.pod.template):
        return None
    return NodePodsFilterState(lambda node, others: host_port_conflict(context.pod, others), existing_pods.pods_on)

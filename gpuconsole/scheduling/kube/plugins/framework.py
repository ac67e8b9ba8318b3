"""Interfaces of scheduler plugins, and all filter and score plugins except PodTopologySpread.

Some plugins look at one node at a time: at the Node object (`NodeLocalFilter`) or at its resource usage
(`NodeUsageFilter`, `Scoring`). They are prepared once per pod class. The others depend on pods of any node, or on the
ports, volumes and devices that the pod claims (`PodFilter`, `PodScore`); they are prepared for each pod. Preparing a
plugin returns None if it does not apply to the pod (Skip).

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
from gpuconsole.scheduling.kube.scores import MAX_SCORE, Images, allocation, ratio, scored
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
    final: bool = False
    """Preemption on the node would not help (UnschedulableAndUnresolvable)."""


class PreFilterRejection(Struct, frozen=True):
    """Why a plugin's PreFilter rejects the pod for all nodes."""

    text: str


class Nearby(PodLister, Protocol):
    """Read access to all existing pods, by group and by node, for plugins."""

    def on(self, node: str) -> Iterable[Pod]:
        """The pods of a node."""


class PreFilterState(Protocol):
    """A filter prepared for one pod (PreFilter state of a plugin)."""

    def refusal(self, node: Node) -> NodeRejection | None:
        """Why the node is rejected; None if it is not."""

    def moved(self, node: Node, pods: Iterable[Pod], by: int) -> "PreFilterState":
        """The state after these pods are removed from the node (`by` −1) or added to it (1)."""


class PreScoreState(Protocol):
    """A score prepared for one pod (PreScore state of a plugin)."""

    def raw(self, nodes: Sequence[Node]) -> Mapping[str, int]:
        """Each node's score by name, before it is normalised."""

    def normalised(self, nodes: Sequence[Node], raw: Mapping[str, int]) -> Mapping[str, int]:
        """Score of each node by name, 0 to 100, from the raw scores."""


class PodContext(Struct, frozen=True):
    """The pod that is being scheduled, as plugins that depend on other pods or claims see it."""

    pod: Pod
    shape: PodClass
    means: ClaimsAndVolumes


class NodeLocalFilter(Protocol):
    """Prepares a filter that depends only on the Node object, for one class of pods."""

    def __call__(self, rules: SchedulerProfile, shape: PodClass) -> NodeFilter | None:
        """The filter for pods of this class; None if it does not apply to them (Skip)."""


class NodeUsageFilter(Protocol):
    """Prepares a filter by the resource usage of the node, for one class of pods; None if it does not apply to them."""

    def __call__(self, rules: SchedulerProfile, shape: PodClass) -> UsageFilterFunction | None: ...


class Scoring(Protocol):
    """Prepares a score that depends only on the pod and one node, usually on the node's resource usage.

    Returns None for pods that it does not apply to.
    """

    def __call__(self, rules: SchedulerProfile, shape: PodClass, images: Images) -> UsageScoreFunction | None: ...


class PodFilter(Protocol):
    """Prepares a filter that depends on other pods or on claims, for one pod (PreFilter).

    Returns its state or rejection of the pod; None if it does not apply to the pod.
    """

    def __call__(
        self, rules: SchedulerProfile, asker: PodContext, around: Nearby
    ) -> PreFilterState | PreFilterRejection | None: ...


class PodScore(Protocol):
    """Prepares a score that depends on other pods, for one pod (PreScore).

    Returns its state; None if it does not apply to the pod.
    """

    def __call__(self, rules: SchedulerProfile, asker: PodContext, around: Nearby) -> PreScoreState | None: ...


Question = Callable[[Node, Iterable[Pod]], str]
"""Returns why the node rejects the pod being scheduled while these other pods are on it; empty if it does not."""


class Local(Struct, frozen=True):
    """PreFilter state of a filter that looks at the pods on the node, some of which preemption may remove."""

    ask: Question
    on: Callable[[str], Iterable[Pod]]
    gone: frozenset[str] = frozenset()
    """Keys of existing pods that are assumed to be removed."""
    come: tuple[tuple[str, Pod], ...] = ()
    """(node name, pod) of pods that are assumed to be added."""

    def refusal(self, node: Node) -> NodeRejection | None:
        there = [pod for pod in self.on(node.name) if pod.key not in self.gone]
        there += [pod for name, pod in self.come if name == node.name]
        text = self.ask(node, there)
        return NodeRejection((text,)) if text else None

    def moved(self, node: Node, pods: Iterable[Pod], by: int) -> "Local":
        if by < 0:
            return replace(self, gone=self.gone.union(pod.key for pod in pods))
        return replace(self, come=(*self.come, *((node.name, pod) for pod in pods)))


class Fixed(Struct, frozen=True):
    """PreFilter state of a filter that does not depend on other pods, so preemption never helps."""

    ask: Callable[[Node], tuple[str, ...]]

    def refusal(self, node: Node) -> NodeRejection | None:
        texts = self.ask(node)
        return NodeRejection(texts, final=True) if texts else None

    def moved(self, node: Node, pods: Iterable[Pod], by: int) -> "Fixed":
        return self


def node_unschedulable_filter(rules: SchedulerProfile, shape: PodClass) -> NodeFilter:
    """NodeUnschedulable: a cordoned node accepts only pods that tolerate its taint."""
    return lambda node: filters.unschedulable(node, shape)


def node_name_filter(rules: SchedulerProfile, shape: PodClass) -> None:
    """NodeName: no filter, as a pod that names its node is already bound to it."""


def taint_toleration_filter(rules: SchedulerProfile, shape: PodClass) -> NodeFilter:
    """TaintToleration: rejects nodes with untolerated NoSchedule and NoExecute taints; `scores` counts the others."""
    return lambda node: filters.tainted(node, shape)


def node_affinity_filter(rules: SchedulerProfile, shape: PodClass) -> NodeFilter | None:
    """NodeAffinity: node labels that the pod, or the scheduler for every pod, requires; None if neither does."""
    if rules.added_affinity is None and not shape.node_selector and shape.affinity is None:
        return None
    added = rules.added_affinity

    def refuse(node: Node) -> str:
        if added is not None and not any(filters.term_matches(term, node) for term in added):
            return filters.NO_ADDED_AFFINITY
        return "" if filters.affine(node, shape) else filters.NO_AFFINITY

    return refuse


def resources_fit_filter(rules: SchedulerProfile, shape: PodClass) -> UsageFilterFunction:
    """NodeResourcesFit: rejects nodes with too little free; the reasons are the resources that are lacking."""

    def refuse(state: NodeState, priority: int) -> tuple[str, ...]:
        left = filters.room(state, shape, priority)
        return () if filters.slots(left, shape) else filters.shortages(left, shape)

    return refuse


def resources_fit_score(rules: SchedulerProfile, shape: PodClass, images: Images) -> UsageScoreFunction:
    """NodeResourcesFit: scores utilization by LeastAllocated, MostAllocated or RequestedToCapacityRatio."""
    strategy, lines = rules.strategy, scored(rules.strategy.resources, shape)
    if strategy.type == "RequestedToCapacityRatio":
        return ratio(strategy.shape, lines)
    return allocation(strategy.type, lines)


ALWAYS = (CPU, MEMORY, "ephemeral-storage")
"""Resources that count even for a pod that does not request them."""


def balanced_allocation_score(rules: SchedulerProfile, shape: PodClass, images: Images) -> UsageScoreFunction | None:
    """NodeResourcesBalancedAllocation: prefers nodes whose resources would be used in equal proportion.

    ⌊(1 − standard deviation of the used fractions) · 100⌋; None for a pod that requests none of the balanced resources.
    Actual requests count, without the defaults of other scores (balanced_allocation.go, useRequested). As in
    kube-scheduler up to 1.35, only the balance with the pod on the node counts; later releases compare it with the
    balance without the pod (kubernetes pull request 135573).
    """
    asked = [name for name, _ in rules.balanced if name in ALWAYS or name in shape.requests]
    if not any(name in shape.requests for name in asked):
        return None
    return lambda state: balance(_used_fractions(state, shape, asked))


def _used_fractions(state: NodeState, shape: PodClass, names: list[str]) -> list[float]:
    assert state.node is not None
    sizes = ((name, state.node.allocatable.get(name, 0)) for name in names)
    return [min(1.0, (state.used.get(name, 0) + shape.requests.get(name, 0)) / size) for name, size in sizes if size]


def balance(parts: list[float]) -> int:
    """The balanced-allocation score, 0 to 100, of the used fraction (0 to 1) of each resource."""
    deviation = 0.0
    if len(parts) == 2:
        deviation = abs((parts[0] - parts[1]) / 2)
    elif len(parts) > 2:
        mean = sum(parts) / len(parts)
        deviation = math.sqrt(sum((part - mean) ** 2 for part in parts) / len(parts))
    return int((1 - deviation) * MAX_SCORE)


def image_locality_score(rules: SchedulerProfile, shape: PodClass, images: Images) -> UsageScoreFunction | None:
    """ImageLocality: prefers nodes that hold the pod's images; None if no node reports images, so that all score 0."""
    if not shape.images or not images.known:
        return None
    return lambda state: 0 if state.node is None else images.rate(shape.images, state.node)


def volume_binding_filter(
    rules: SchedulerProfile, asker: PodContext, around: Nearby
) -> Fixed | PreFilterRejection | None:
    """VolumeBinding: rejects nodes that cannot reach the pod's volumes or get volumes for its claims."""
    if not asker.pod.template.volumes:
        return None
    storage = asker.means.storage
    text = volumes.trouble(asker.pod, storage)
    return PreFilterRejection(text) if text else Fixed(lambda node: volumes.plan(asker.pod, node, storage).reasons)


def volume_restrictions_filter(rules: SchedulerProfile, asker: PodContext, around: Nearby) -> Local | None:
    """VolumeRestrictions: a ReadWriteOncePod claim can be used by one pod only."""
    if not asker.pod.template.volumes:
        return None
    storage = asker.means.storage
    return Local(lambda node, others: volumes.use_refusal(asker.pod, others, storage), around.on)


def node_volume_limits_filter(rules: SchedulerProfile, asker: PodContext, around: Nearby) -> Local | None:
    """NodeVolumeLimits: limits the volumes that a CSI driver attaches to a node."""
    if not asker.pod.template.volumes:
        return None
    storage = asker.means.storage
    return Local(lambda node, others: volumes.limit_refusal(asker.pod, node, others, storage), around.on)


def volume_zone_filter(rules: SchedulerProfile, asker: PodContext, around: Nearby) -> Fixed | PreFilterRejection | None:
    """VolumeZone: bound volumes restrict their pods to the volumes' zones."""
    if not asker.pod.template.volumes:
        return None
    storage = asker.means.storage
    text = volumes.zone_trouble(asker.pod, storage)

    def ask(node: Node) -> tuple[str, ...]:
        refusal = volumes.zone_refusal(asker.pod, node, storage)
        return (refusal,) if refusal else ()

    return PreFilterRejection(text) if text else Fixed(ask)


def dynamic_resources_filter(
    rules: SchedulerProfile, asker: PodContext, around: Nearby
) -> Fixed | PreFilterRejection | None:
    """DynamicResources: rejects nodes that cannot provide the devices that the pod claims."""
    if not asker.pod.template.resource_claims:
        return None
    stock = asker.means.stock
    text = allocator.trouble(asker.pod, stock)

    def ask(node: Node) -> tuple[str, ...]:
        reason = allocator.grant(asker.pod, node, stock).reason
        return (reason,) if reason else ()

    return PreFilterRejection(text) if text else Fixed(ask)


class Near(Struct, frozen=True):
    """PreFilter state of InterPodAffinity for one pod: counts of matching pods by topology domain."""

    pod: Pod
    found: InterPodAffinityState
    namespaces: Mapping[str, Mapping[str, str]]

    def refusal(self, node: Node) -> NodeRejection | None:
        text = inter_pod_affinity.refusal(self.pod, node, self.found)
        return NodeRejection((text,), final=text == inter_pod_affinity.AFFINITY) if text else None

    def moved(self, node: Node, pods: Iterable[Pod], by: int) -> "Near":
        return replace(self, found=inter_pod_affinity.moved(self.found, self.pod, node, pods, self.namespaces, by))


class InterPodAffinityScores(Struct, frozen=True):
    """PreScore state of InterPodAffinity for one pod: the weight of matching preferred terms by topology domain."""

    found: Mapping[Domain, int]

    def raw(self, nodes: Sequence[Node]) -> Mapping[str, int]:
        return inter_pod_affinity.raw_scores(nodes, self.found)

    def normalised(self, nodes: Sequence[Node], raw: Mapping[str, int]) -> Mapping[str, int]:
        return inter_pod_affinity.normalised(raw)


def inter_pod_affinity_filter(rules: SchedulerProfile, asker: PodContext, around: PodLister) -> Near | None:
    """InterPodAffinity: required terms; None if the pod has none and no existing pod's anti-affinity matches it."""
    found = inter_pod_affinity.nearness(asker.pod, around)
    template = asker.pod.template
    said = (template.pod_affinity, template.pod_anti_affinity)
    if not found.shunning and not any(one is not None and one.required for one in said):
        return None
    return Near(asker.pod, found, around.namespaces)


def inter_pod_affinity_score(
    rules: SchedulerProfile, asker: PodContext, around: PodLister
) -> InterPodAffinityScores | None:
    """InterPodAffinity: preferred terms of the pod and of existing pods; None if none applies."""
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
    """NodePorts: rejects nodes on which a host port of the pod is in use; None for a pod without host ports."""
    if not host_ports(asker.pod.template):
        return None
    return Local(lambda node, others: host_port_conflict(asker.pod, others), around.on)

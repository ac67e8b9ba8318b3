"""Interfaces of scheduler plugins, and filter states that several plugins share.

Interfaces of scheduler plugins, for the entries of the plugin registry.

Filter states for plugins that look at one node at a time: at the node and its pods, or at the node alone.

Plugins that filter and score one node at a time, by the node and its resource usage.

NodeUnschedulable: cordoned nodes accept only pods that tolerate the taint.

NodeName: a pod that names its node fits no other node; pending pods name none.

TaintToleration: rejects nodes with untolerated taints, and prefers nodes with fewer untolerated PreferNoSchedule
taints.

NodeAffinity: node labels that a pod, or the scheduler for every pod, requires and prefers.

NodeResourcesFit: filters by free resources, and scores utilization by one of three strategies.

NodeResourcesBalancedAllocation: prefers nodes whose resources would be used in equal proportion.

As in kube-scheduler up to 1.35: only the balance with the pod on the node counts. Later releases compare it with the
balance without the pod (kubernetes pull request 135573).

ImageLocality: scores nodes that already hold the pod's images.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from gpuconsole.model.cluster import Node, Pod
from gpuconsole.model.resources import CPU, MEMORY
from gpuconsole.scheduling.kube import filters
from gpuconsole.scheduling.kube import filters as messages
from gpuconsole.scheduling.kube.inter_pod_affinity import PodLister
from gpuconsole.scheduling.kube.nodes import NodeState
from gpuconsole.scheduling.kube.pod_classes import PodClass
from gpuconsole.scheduling.kube.profile import SchedulerProfile
from gpuconsole.scheduling.kube.scores import MAX_SCORE, Images, allocation, ratio, scored
from gpuconsole.scheduling.kube.volumes import ClaimsAndVolumes

NodeFilter = Callable[[Node], str]
"""Why a node can never take the pod, whatever runs on it; empty if it can. Preemption never helps."""

UsageFilterFunction = Callable[[NodeState, int], tuple[str, ...]]
"""Why a node has too little free for a pod of this priority; empty if it fits. Preemption may help."""

UsageScoreFunction = Callable[[NodeState], int]
"""Score of a node, 0 to 100, by its resource usage; such scores are not normalised."""


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
    """Read access to all pods, for plugins."""

    def on(self, node: str) -> Iterable[Pod]:
        """The pods of a node."""


class PreFilterState(Protocol):
    """PreFilter state of a plugin for one pod."""

    def refusal(self, node: Node) -> NodeRejection | None:
        """Why the node is rejected; None if it is not."""

    def moved(self, node: Node, pods: Iterable[Pod], by: int) -> "PreFilterState":
        """The state after these pods are removed from the node (`by` −1) or added to it (1)."""


class PreScoreState(Protocol):
    """PreScore state of a scoring plugin for one pod."""

    def raw(self, nodes: Sequence[Node]) -> Mapping[str, int]:
        """Each node's score by name, before it is normalised."""

    def normalised(self, nodes: Sequence[Node], raw: Mapping[str, int]) -> Mapping[str, int]:
        """Score of each node by name, 0 to 100, from the raw scores."""


class PodContext(Struct, frozen=True):
    """The pod that is being scheduled."""

    pod: Pod
    shape: PodClass
    means: ClaimsAndVolumes


class NodeLocalFilter(Protocol):
    """A filter that depends only on the pod and the node object, not on other pods."""

    def __call__(self, rules: SchedulerProfile, shape: PodClass) -> NodeFilter | None:
        """The filter for pods of this class; None if it does not apply to them (Skip)."""


class NodeUsageFilter(Protocol):
    """A filter by the resource usage of the node; returns None for pods that it does not apply to."""

    def __call__(self, rules: SchedulerProfile, shape: PodClass) -> UsageFilterFunction | None: ...


class Scoring(Protocol):
    """A score that depends only on the pod and one node, usually on the node's resource usage.

    Returns None for pods that it does not apply to.
    """

    def __call__(self, rules: SchedulerProfile, shape: PodClass, images: Images) -> UsageScoreFunction | None: ...


class PodFilter(Protocol):
    """A filter that depends on pods of any node, or on claims.

    Returns its PreFilter state or rejection of a pod; None if it does not apply to the pod.
    """

    def __call__(
        self, rules: SchedulerProfile, asker: PodContext, around: Nearby
    ) -> PreFilterState | PreFilterRejection | None: ...


class PodScore(Protocol):
    """A score that depends on pods of any node.

    Returns its PreScore state for a pod; None if it does not apply to the pod.
    """

    def __call__(self, rules: SchedulerProfile, asker: PodContext, around: Nearby) -> PreScoreState | None: ...


Question = Callable[[Node, Iterable[Pod]], str]
"""Why the node refuses the pod while these other pods are on it; empty if it does not."""


class Local(Struct, frozen=True):
    """A filter by the pods of each node, some of which preemption may remove."""

    ask: Question
    on: Callable[[str], Iterable[Pod]]
    gone: frozenset[str] = frozenset()
    """Pods that are assumed to be removed."""
    come: tuple[tuple[str, Pod], ...] = ()
    """(node, pod) of pods that are assumed to be there as well."""

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
    """A filter that does not depend on other pods, so preemption never helps."""

    ask: Callable[[Node], tuple[str, ...]]

    def refusal(self, node: Node) -> NodeRejection | None:
        texts = self.ask(node)
        return NodeRejection(texts, final=True) if texts else None

    def moved(self, node: Node, pods: Iterable[Pod], by: int) -> "Fixed":
        return self


def node_unschedulable_filter(rules: SchedulerProfile, shape: PodClass) -> NodeFilter:
    """The filter for pods of a class."""
    return lambda node: filters.unschedulable(node, shape)


def node_name_filter(rules: SchedulerProfile, shape: PodClass) -> None:
    """No filter: a pod that names its node is already bound to it."""


def taint_toleration_filter(rules: SchedulerProfile, shape: PodClass) -> NodeFilter:
    """The filter for pods of a class."""
    return lambda node: filters.tainted(node, shape)


def node_affinity_filter(rules: SchedulerProfile, shape: PodClass) -> NodeFilter | None:
    """The filter for pods of a class; None if neither they nor the scheduler require any label."""
    if rules.added_affinity is None and not shape.node_selector and shape.affinity is None:
        return None
    added = rules.added_affinity

    def refuse(node: Node) -> str:
        if added is not None and not any(filters.term_matches(term, node) for term in added):
            return messages.NO_ADDED_AFFINITY
        return "" if filters.affine(node, shape) else messages.NO_AFFINITY

    return refuse


def resources_fit_filter(rules: SchedulerProfile, shape: PodClass) -> UsageFilterFunction:
    """The filter for pods of a class; its reasons are the resources of which a node has too little."""

    def refuse(state: NodeState, priority: int) -> tuple[str, ...]:
        left = filters.room(state, shape, priority)
        return () if filters.slots(left, shape) else filters.shortages(left, shape)

    return refuse


def resources_fit_score(rules: SchedulerProfile, shape: PodClass, images: Images) -> UsageScoreFunction:
    """The score for pods of a class: LeastAllocated, MostAllocated or RequestedToCapacityRatio."""
    strategy, lines = rules.strategy, scored(rules.strategy.resources, shape)
    if strategy.type == "RequestedToCapacityRatio":
        return ratio(strategy.shape, lines)
    return allocation(strategy.type, lines)


ALWAYS = (CPU, MEMORY, "ephemeral-storage")
"""Resources that count even for a pod that does not ask for them."""


def balanced_allocation_score(rules: SchedulerProfile, shape: PodClass, images: Images) -> UsageScoreFunction | None:
    """⌊(1 − standard deviation of the used fractions) · 100⌋; None for a pod that requests none of the balanced
    resources.

    Actual requests count, without the defaults of other scores (balanced_allocation.go, useRequested).
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
    """The score of these used fractions, each 0 to 1."""
    deviation = 0.0
    if len(parts) == 2:
        deviation = abs((parts[0] - parts[1]) / 2)
    elif len(parts) > 2:
        mean = sum(parts) / len(parts)
        deviation = math.sqrt(sum((part - mean) ** 2 for part in parts) / len(parts))
    return int((1 - deviation) * MAX_SCORE)


def image_locality_score(rules: SchedulerProfile, shape: PodClass, images: Images) -> UsageScoreFunction | None:
    """The score for pods of a class; None if all nodes would score 0, as none reports images."""
    if not shape.images or not images.known:
        return None
    return lambda state: 0 if state.node is None else images.rate(shape.images, state.node)

"""Plugins that filter and score one node at a time, by the node and its resource usage.

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

from gpuconsole.model.cluster import Node
from gpuconsole.model.resources import CPU, MEMORY
from gpuconsole.scheduling.kube import filters, messages
from gpuconsole.scheduling.kube.nodes import NodeState
from gpuconsole.scheduling.kube.plugins.framework import NodeFilter, UsageFilterFunction, UsageScoreFunction
from gpuconsole.scheduling.kube.pod_classes import PodClass
from gpuconsole.scheduling.kube.profile import SchedulerProfile
from gpuconsole.scheduling.kube.scores import MAX_SCORE, Images, allocation, ratio, scored


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

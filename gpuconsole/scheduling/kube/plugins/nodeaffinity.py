"""NodeAffinity: node labels that a pod, or the scheduler for every pod, requires and prefers."""

from gpuconsole.model.cluster import Node
from gpuconsole.scheduling.kube import filters, messages
from gpuconsole.scheduling.kube.plugins.roles import NodeFilter
from gpuconsole.scheduling.kube.pod_classes import PodClass
from gpuconsole.scheduling.kube.profile import SchedulerProfile


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

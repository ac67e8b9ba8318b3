"""NodeAffinity: what a pod, or the scheduler for every pod, requires and prefers of a node's labels."""

from gpuconsole.model.cluster import Node
from gpuconsole.scheduling.kube import filters, messages
from gpuconsole.scheduling.kube.plugins.roles import NodeFilter
from gpuconsole.scheduling.kube.profile import Profile
from gpuconsole.scheduling.kube.shapes import Shape


def node_filter(rules: Profile, shape: Shape) -> NodeFilter | None:
    if rules.added_affinity is None and not shape.node_selector and shape.affinity is None:
        return None
    added = rules.added_affinity

    def refuse(node: Node) -> str:
        if added is not None and not any(filters.term_matches(term, node) for term in added):
            return messages.NO_ADDED_AFFINITY
        return "" if filters.affine(node, shape) else messages.NO_AFFINITY

    return refuse

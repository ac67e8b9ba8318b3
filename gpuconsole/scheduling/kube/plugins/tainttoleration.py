"""TaintToleration: taints keep pods away that do not tolerate them; the fewer that only would rather, the better."""

from gpuconsole.model.cluster import Node
from gpuconsole.scheduling.kube import filters, scores
from gpuconsole.scheduling.kube.plugins.roles import NodeFilter
from gpuconsole.scheduling.kube.profile import Profile
from gpuconsole.scheduling.kube.shapes import Shape


def node_filter(rules: Profile, shape: Shape) -> NodeFilter:
    return lambda node: filters.tainted(node, shape)


def raw_score(node: Node, shape: Shape) -> int:
    """How many PreferNoSchedule taints the pod does not tolerate; the most of all nodes become 0, none 100."""
    return scores.dislikes(node, shape)

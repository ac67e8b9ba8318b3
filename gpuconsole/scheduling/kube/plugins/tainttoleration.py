"""TaintToleration: taints keep pods away that do not tolerate them; the fewer that only would rather, the better."""

from gpuconsole.scheduling.kube import filters
from gpuconsole.scheduling.kube.plugins.roles import NodeFilter
from gpuconsole.scheduling.kube.profile import Profile
from gpuconsole.scheduling.kube.shapes import Shape


def node_filter(rules: Profile, shape: Shape) -> NodeFilter:
    return lambda node: filters.tainted(node, shape)

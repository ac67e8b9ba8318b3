"""kube-scheduler's plugins by name; a profile selects them and sets the weights of their scores."""

from collections.abc import Mapping

from gpuconsole.scheduling.kube.plugins import (
    dynamicresources,
    imagelocality,
    interpodaffinity,
    nodeaffinity,
    nodename,
    nodeports,
    noderesourcesbalancedallocation,
    noderesourcesfit,
    nodeunschedulable,
    nodevolumelimits,
    podtopologyspread,
    tainttoleration,
    volumebinding,
    volumerestrictions,
    volumezone,
)
from gpuconsole.scheduling.kube.plugins.roles import NodeLocalFilter, NodeUsageFilter, PodFilter, PodScore, Scoring
from gpuconsole.scheduling.kube.profile import (
    BALANCED,
    CLAIMS,
    FIT,
    IMAGES,
    NODE_AFFINITY,
    NODE_NAME,
    NODE_PORTS,
    NODE_UNSCHEDULABLE,
    NODE_VOLUME_LIMITS,
    POD_AFFINITY,
    SPREAD,
    TAINT_TOLERATION,
    VOLUME_BINDING,
    VOLUME_RESTRICTIONS,
    VOLUME_ZONE,
)

NODE_FILTERS: Mapping[str, NodeLocalFilter] = {
    NODE_UNSCHEDULABLE: nodeunschedulable.node_filter,
    NODE_NAME: nodename.node_filter,
    TAINT_TOLERATION: tainttoleration.node_filter,
    NODE_AFFINITY: nodeaffinity.node_filter,
}
"""Filters by the node alone."""
NODE_USAGE_FILTERS: Mapping[str, NodeUsageFilter] = {FIT: noderesourcesfit.usage_filter}
"""Filters by the resource usage of the node."""
MEETINGS: Mapping[str, PodFilter] = {
    NODE_PORTS: nodeports.meeting,
    VOLUME_RESTRICTIONS: volumerestrictions.meeting,
    NODE_VOLUME_LIMITS: nodevolumelimits.meeting,
    VOLUME_BINDING: volumebinding.meeting,
    VOLUME_ZONE: volumezone.meeting,
    SPREAD: podtopologyspread.meeting,
    POD_AFFINITY: interpodaffinity.meeting,
    CLAIMS: dynamicresources.meeting,
}
"""Filters by pods anywhere, or by the volumes and devices that the pod claims."""
NODE_USAGE_SCORES: Mapping[str, Scoring] = {
    FIT: noderesourcesfit.score,
    BALANCED: noderesourcesbalancedallocation.score,
    IMAGES: imagelocality.score,
}
WISHES: Mapping[str, PodScore] = {SPREAD: podtopologyspread.wish, POD_AFFINITY: interpodaffinity.wish}

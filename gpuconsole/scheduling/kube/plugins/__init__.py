"""kube-scheduler's plugins by name; a profile selects them and sets the weights of their scores."""

from collections.abc import Mapping

from gpuconsole.scheduling.kube.plugins import framework as dynamicresources
from gpuconsole.scheduling.kube.plugins import framework as imagelocality
from gpuconsole.scheduling.kube.plugins import framework as interpodaffinity
from gpuconsole.scheduling.kube.plugins import framework as nodeaffinity
from gpuconsole.scheduling.kube.plugins import framework as nodename
from gpuconsole.scheduling.kube.plugins import framework as nodeports
from gpuconsole.scheduling.kube.plugins import framework as noderesourcesbalancedallocation
from gpuconsole.scheduling.kube.plugins import framework as noderesourcesfit
from gpuconsole.scheduling.kube.plugins import framework as nodeunschedulable
from gpuconsole.scheduling.kube.plugins import framework as nodevolumelimits
from gpuconsole.scheduling.kube.plugins import framework as tainttoleration
from gpuconsole.scheduling.kube.plugins import framework as volumebinding
from gpuconsole.scheduling.kube.plugins import framework as volumerestrictions
from gpuconsole.scheduling.kube.plugins import framework as volumezone
from gpuconsole.scheduling.kube.plugins import pod_topology_spread as podtopologyspread
from gpuconsole.scheduling.kube.plugins.framework import NodeLocalFilter, NodeUsageFilter, PodFilter, PodScore, Scoring
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
    NODE_UNSCHEDULABLE: nodeunschedulable.node_unschedulable_filter,
    NODE_NAME: nodename.node_name_filter,
    TAINT_TOLERATION: tainttoleration.taint_toleration_filter,
    NODE_AFFINITY: nodeaffinity.node_affinity_filter,
}
"""Filters by the node alone."""
NODE_USAGE_FILTERS: Mapping[str, NodeUsageFilter] = {FIT: noderesourcesfit.resources_fit_filter}
"""Filters by the resource usage of the node."""
MEETINGS: Mapping[str, PodFilter] = {
    NODE_PORTS: nodeports.node_ports_filter,
    VOLUME_RESTRICTIONS: volumerestrictions.volume_restrictions_filter,
    NODE_VOLUME_LIMITS: nodevolumelimits.node_volume_limits_filter,
    VOLUME_BINDING: volumebinding.volume_binding_filter,
    VOLUME_ZONE: volumezone.volume_zone_filter,
    SPREAD: podtopologyspread.topology_spread_filter,
    POD_AFFINITY: interpodaffinity.inter_pod_affinity_filter,
    CLAIMS: dynamicresources.dynamic_resources_filter,
}
"""Filters by pods anywhere, or by the volumes and devices that the pod claims."""
NODE_USAGE_SCORES: Mapping[str, Scoring] = {
    FIT: noderesourcesfit.resources_fit_score,
    BALANCED: noderesourcesbalancedallocation.balanced_allocation_score,
    IMAGES: imagelocality.image_locality_score,
}
WISHES: Mapping[str, PodScore] = {
    SPREAD: podtopologyspread.topology_spread_score,
    POD_AFFINITY: interpodaffinity.inter_pod_affinity_score,
}

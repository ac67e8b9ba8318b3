"""kube-scheduler's plugins by name; a profile selects them and sets the weights of their scores."""

from collections.abc import Mapping

from gpuconsole.scheduling.kube.plugins.framework import (
    NodeLocalFilter,
    NodeUsageFilter,
    NodeUsageScore,
    PodFilter,
    PodScore,
    balanced_allocation_score,
    dynamic_resources_filter,
    image_locality_score,
    inter_pod_affinity_filter,
    inter_pod_affinity_score,
    node_affinity_filter,
    node_name_filter,
    node_ports_filter,
    node_unschedulable_filter,
    node_volume_limits_filter,
    resources_fit_filter,
    resources_fit_score,
    taint_toleration_filter,
    volume_binding_filter,
    volume_restrictions_filter,
    volume_zone_filter,
)
from gpuconsole.scheduling.kube.plugins.pod_topology_spread import topology_spread_filter, topology_spread_score
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
    NODE_UNSCHEDULABLE: node_unschedulable_filter,
    NODE_NAME: node_name_filter,
    TAINT_TOLERATION: taint_toleration_filter,
    NODE_AFFINITY: node_affinity_filter,
}
"""Filters by the node alone."""
NODE_USAGE_FILTERS: Mapping[str, NodeUsageFilter] = {FIT: resources_fit_filter}
"""Filters by the resource usage of the node."""
POD_FILTERS: Mapping[str, PodFilter] = {
    NODE_PORTS: node_ports_filter,
    VOLUME_RESTRICTIONS: volume_restrictions_filter,
    NODE_VOLUME_LIMITS: node_volume_limits_filter,
    VOLUME_BINDING: volume_binding_filter,
    VOLUME_ZONE: volume_zone_filter,
    SPREAD: topology_spread_filter,
    POD_AFFINITY: inter_pod_affinity_filter,
    CLAIMS: dynamic_resources_filter,
}
"""Filters that depend on other pods, or on the ports, volumes and devices that the pod claims."""
NODE_USAGE_SCORES: Mapping[str, NodeUsageScore] = {
    FIT: resources_fit_score,
    BALANCED: balanced_allocation_score,
    IMAGES: image_locality_score,
}
"""Scores by the resource usage of the node, or its images; they are not normalised."""
POD_SCORES: Mapping[str, PodScore] = {
    SPREAD: topology_spread_score,
    POD_AFFINITY: inter_pod_affinity_score,
}
"""Scores that depend on other pods; they are normalised."""

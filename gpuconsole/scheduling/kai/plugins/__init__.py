"""KAI's plugins by the names used in a scheduler configuration."""

from collections.abc import Callable, Mapping

from gpuconsole.scheduling.kai.config import KaiPluginArguments
from gpuconsole.scheduling.kai.plugins.node_scores import (
    GpuPack,
    GpuSharingOrder,
    GpuSpread,
    NodeAvailability,
    NodePlacement,
    NominatedNode,
    PodAffinityPlugin,
    ResourceType,
)
from gpuconsole.scheduling.kai.plugins.ordering import (
    Elastic,
    Kubeflow,
    MinRuntime,
    Priority,
    Ray,
    SubGroupOrder,
    TaskOrder,
)
from gpuconsole.scheduling.kai.plugins.predicates import DynamicResourcesPlugin, Predicates
from gpuconsole.scheduling.kai.plugins.proportion import Proportion
from gpuconsole.scheduling.kai.plugins.topology import TopologyAware
from gpuconsole.scheduling.kai.session import KaiPlugin

PLUGINS: Mapping[str, Callable[[KaiPluginArguments], KaiPlugin]] = {
    "dynamicresources": DynamicResourcesPlugin,
    "elastic": Elastic,
    "gpupack": GpuPack,
    "gpusharingorder": GpuSharingOrder,
    "gpuspread": GpuSpread,
    "kubeflow": Kubeflow,
    "minruntime": MinRuntime,
    "nodeavailability": NodeAvailability,
    "nodeplacement": NodePlacement,
    "nominatednode": NominatedNode,
    "podaffinity": PodAffinityPlugin,
    "predicates": Predicates,
    "priority": Priority,
    "proportion": Proportion,
    "ray": Ray,
    "resourcetype": ResourceType,
    "subgrouporder": SubGroupOrder,
    "taskorder": TaskOrder,
    "topology": TopologyAware,
}
"""Plugin name → its class. Other plugins, such as snapshot, are ignored: they do not affect decisions."""

"""KAI's plugins by the names used in a scheduler configuration."""

from collections.abc import Callable, Mapping

from gpuconsole.scheduling.kai.conf import KaiPluginArguments
from gpuconsole.scheduling.kai.plugin import KaiPlugin
from gpuconsole.scheduling.kai.plugins.dynamicresources import DynamicResourcesPlugin
from gpuconsole.scheduling.kai.plugins.elastic import Elastic
from gpuconsole.scheduling.kai.plugins.gpu_placement import GpuPack, GpuSpread
from gpuconsole.scheduling.kai.plugins.gpusharingorder import GpuSharingOrder
from gpuconsole.scheduling.kai.plugins.minruntime import MinRuntime
from gpuconsole.scheduling.kai.plugins.nodeavailability import NodeAvailability
from gpuconsole.scheduling.kai.plugins.nodeplacement import NodePlacement
from gpuconsole.scheduling.kai.plugins.nominatednode import NominatedNode
from gpuconsole.scheduling.kai.plugins.podaffinity import PodAffinityPlugin
from gpuconsole.scheduling.kai.plugins.predicates import Predicates
from gpuconsole.scheduling.kai.plugins.priority import Priority
from gpuconsole.scheduling.kai.plugins.proportion import Proportion
from gpuconsole.scheduling.kai.plugins.resourcetype import ResourceType
from gpuconsole.scheduling.kai.plugins.roles import Kubeflow, Ray
from gpuconsole.scheduling.kai.plugins.subgrouporder import SubGroupOrder
from gpuconsole.scheduling.kai.plugins.taskorder import TaskOrder
from gpuconsole.scheduling.kai.plugins.topology import TopologyAware

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
"""Other plugins, such as snapshot, are ignored: they do not affect decisions."""

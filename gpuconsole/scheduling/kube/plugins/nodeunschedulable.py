"""NodeUnschedulable: cordoned nodes accept only pods that tolerate the taint."""

from gpuconsole.scheduling.kube import filters
from gpuconsole.scheduling.kube.plugins.roles import NodeFilter
from gpuconsole.scheduling.kube.pod_classes import PodClass
from gpuconsole.scheduling.kube.profile import SchedulerProfile


def node_unschedulable_filter(rules: SchedulerProfile, shape: PodClass) -> NodeFilter:
    """The filter for pods of a class."""
    return lambda node: filters.unschedulable(node, shape)

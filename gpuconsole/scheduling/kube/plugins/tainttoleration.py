"""TaintToleration: rejects nodes with untolerated taints, and prefers nodes with fewer untolerated PreferNoSchedule
taints.
"""

from gpuconsole.scheduling.kube import filters
from gpuconsole.scheduling.kube.plugins.roles import NodeFilter
from gpuconsole.scheduling.kube.pod_classes import PodClass
from gpuconsole.scheduling.kube.profile import SchedulerProfile


def taint_toleration_filter(rules: SchedulerProfile, shape: PodClass) -> NodeFilter:
    """The filter for pods of a class."""
    return lambda node: filters.tainted(node, shape)

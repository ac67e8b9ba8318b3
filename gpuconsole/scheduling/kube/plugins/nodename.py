"""NodeName: a pod that names its node fits no other node; pending pods name none."""

from gpuconsole.scheduling.kube.pod_classes import PodClass
from gpuconsole.scheduling.kube.profile import SchedulerProfile


def node_name_filter(rules: SchedulerProfile, shape: PodClass) -> None:
    """No filter: a pod that names its node is already bound to it."""

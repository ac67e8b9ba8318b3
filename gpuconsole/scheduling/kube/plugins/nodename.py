"""NodeName: a pod that names its node goes nowhere else; one that waits for a scheduler names none."""

from gpuconsole.scheduling.kube.pod_classes import PodClass
from gpuconsole.scheduling.kube.profile import SchedulerProfile


def node_filter(rules: SchedulerProfile, shape: PodClass) -> None:
    """Never looked at: whoever names a node is bound to it already."""

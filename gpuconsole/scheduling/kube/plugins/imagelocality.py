"""ImageLocality: nodes that hold the pod's images already."""

from gpuconsole.scheduling.kube.images import Images
from gpuconsole.scheduling.kube.plugins.roles import UsageScoreFunction
from gpuconsole.scheduling.kube.pod_classes import PodClass
from gpuconsole.scheduling.kube.profile import SchedulerProfile


def score(rules: SchedulerProfile, shape: PodClass, images: Images) -> UsageScoreFunction | None:
    """None as long as no node says what images it holds: all would score 0."""
    if not shape.images or not images.known:
        return None
    return lambda state: 0 if state.node is None else images.rate(shape.images, state.node)

"""ImageLocality: scores nodes that already hold the pod's images."""

from gpuconsole.scheduling.kube.images import Images
from gpuconsole.scheduling.kube.plugins.roles import UsageScoreFunction
from gpuconsole.scheduling.kube.pod_classes import PodClass
from gpuconsole.scheduling.kube.profile import SchedulerProfile


def image_locality_score(rules: SchedulerProfile, shape: PodClass, images: Images) -> UsageScoreFunction | None:
    """The score for pods of a class; None if all nodes would score 0, as none reports images."""
    if not shape.images or not images.known:
        return None
    return lambda state: 0 if state.node is None else images.rate(shape.images, state.node)

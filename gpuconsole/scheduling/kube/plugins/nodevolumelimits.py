"""NodeVolumeLimits: limits the volumes that a CSI driver attaches to a node."""

from gpuconsole.scheduling.kube import volume_filters
from gpuconsole.scheduling.kube.plugins.local import Local
from gpuconsole.scheduling.kube.plugins.roles import Nearby, PodContext
from gpuconsole.scheduling.kube.profile import SchedulerProfile


def node_volume_limits_filter(rules: SchedulerProfile, asker: PodContext, around: Nearby) -> Local | None:
    """The filter for a pod; None for a pod without volumes."""
    if not asker.pod.template.volumes:
        return None
    storage = asker.means.storage
    return Local(lambda node, others: volume_filters.limit_refusal(asker.pod, node, others, storage), around.on)

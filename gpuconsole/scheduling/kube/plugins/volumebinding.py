"""VolumeBinding: filters nodes that cannot reach the pod's volumes or cannot get volumes for its claims."""

from gpuconsole.scheduling.kube import volumes
from gpuconsole.scheduling.kube.plugins.local import Fixed
from gpuconsole.scheduling.kube.plugins.roles import Nearby, PodContext, PreFilterRejection
from gpuconsole.scheduling.kube.profile import SchedulerProfile


def volume_binding_filter(
    rules: SchedulerProfile, asker: PodContext, around: Nearby
) -> Fixed | PreFilterRejection | None:
    """The filter for a pod, or the reason why it fits no node; None for a pod without volumes."""
    if not asker.pod.template.volumes:
        return None
    storage = asker.means.storage
    text = volumes.trouble(asker.pod, storage)
    return PreFilterRejection(text) if text else Fixed(lambda node: volumes.plan(asker.pod, node, storage).reasons)

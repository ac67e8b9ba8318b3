"""VolumeZone: bound volumes restrict their pods to the volumes' zones."""

from gpuconsole.model.cluster import Node
from gpuconsole.scheduling.kube import volume_filters
from gpuconsole.scheduling.kube.plugins.local import Fixed
from gpuconsole.scheduling.kube.plugins.roles import Nearby, PodContext, PreFilterRejection
from gpuconsole.scheduling.kube.profile import SchedulerProfile


def volume_zone_filter(rules: SchedulerProfile, asker: PodContext, around: Nearby) -> Fixed | PreFilterRejection | None:
    """The filter for a pod, or the reason why it fits no node; None for a pod without volumes."""
    if not asker.pod.template.volumes:
        return None
    storage = asker.means.storage
    text = volume_filters.zone_trouble(asker.pod, storage)

    def ask(node: Node) -> tuple[str, ...]:
        refusal = volume_filters.zone_refusal(asker.pod, node, storage)
        return (refusal,) if refusal else ()

    return PreFilterRejection(text) if text else Fixed(ask)

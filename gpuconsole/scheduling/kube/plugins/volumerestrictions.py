"""VolumeRestrictions: a ReadWriteOncePod claim can be used by one pod only."""

from gpuconsole.scheduling.kube import volume_filters
from gpuconsole.scheduling.kube.plugins.local import Local
from gpuconsole.scheduling.kube.plugins.roles import Nearby, PodContext
from gpuconsole.scheduling.kube.profile import SchedulerProfile


def volume_restrictions_filter(rules: SchedulerProfile, asker: PodContext, around: Nearby) -> Local | None:
    """The filter for a pod; None for a pod without volumes."""
    if not asker.pod.template.volumes:
        return None
    storage = asker.means.storage
    return Local(lambda node, others: volume_filters.use_refusal(asker.pod, others, storage), around.on)

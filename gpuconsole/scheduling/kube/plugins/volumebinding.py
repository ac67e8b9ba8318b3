"""VolumeBinding: nodes that reach the pod's volumes, and where those that are missing can be had."""

from gpuconsole.scheduling.kube import volumes
from gpuconsole.scheduling.kube.plugins.local import Fixed
from gpuconsole.scheduling.kube.plugins.roles import Asker, Nearby, Trouble
from gpuconsole.scheduling.kube.profile import Profile


def meeting(rules: Profile, asker: Asker, around: Nearby) -> Fixed | Trouble | None:
    if not asker.pod.template.volumes:
        return None
    storage = asker.means.storage
    text = volumes.trouble(asker.pod, storage)
    return Trouble(text) if text else Fixed(lambda node: volumes.plan(asker.pod, node, storage).reasons)

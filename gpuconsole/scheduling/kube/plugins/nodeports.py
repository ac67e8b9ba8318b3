"""NodePorts: pods that take ports of their node, each of which only one can have."""

from gpuconsole.scheduling.kube import ports
from gpuconsole.scheduling.kube.plugins.local import Local
from gpuconsole.scheduling.kube.plugins.roles import Nearby, PodContext
from gpuconsole.scheduling.kube.profile import SchedulerProfile


def meeting(rules: SchedulerProfile, asker: PodContext, around: Nearby) -> Local | None:
    if not ports.wanted(asker.pod.template):
        return None
    return Local(lambda node, others: ports.refusal(asker.pod, others), around.on)

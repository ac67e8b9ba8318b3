"""DynamicResources: filters nodes that cannot provide the devices claimed by the pod."""

from gpuconsole.model.cluster import Node
from gpuconsole.scheduling.devices import claims
from gpuconsole.scheduling.kube.plugins.local import Fixed
from gpuconsole.scheduling.kube.plugins.roles import Nearby, PodContext, PreFilterRejection
from gpuconsole.scheduling.kube.profile import SchedulerProfile


def dynamic_resources_filter(
    rules: SchedulerProfile, asker: PodContext, around: Nearby
) -> Fixed | PreFilterRejection | None:
    """The filter for a pod; None for a pod without resource claims."""
    if not asker.pod.template.resource_claims:
        return None
    stock = asker.means.stock
    text = claims.trouble(asker.pod, stock)

    def ask(node: Node) -> tuple[str, ...]:
        reason = claims.grant(asker.pod, node, stock).reason
        return (reason,) if reason else ()

    return PreFilterRejection(text) if text else Fixed(ask)

"""gpusharingorder plugin: nodes with a shared GPU that fits the task come first (KAI 0.13)."""

from gpuconsole.scheduling.kai.api import node_sharing
from gpuconsole.scheduling.kai.api.nodes import KaiNodeInfo
from gpuconsole.scheduling.kai.api.tasks import PodInfo
from gpuconsole.scheduling.kai.conf import KaiPluginArguments
from gpuconsole.scheduling.kai.functions import Scorer
from gpuconsole.scheduling.kai.plugins.scores import GPU_SHARING
from gpuconsole.scheduling.kai.session import KaiSession


class GpuSharingOrder:
    """Registers the node score."""

    def __init__(self, arguments: KaiPluginArguments) -> None:
        pass

    def open(self, session: KaiSession) -> None:
        session.functions.node_order.append(Scorer("gpusharingorder", GPU_SHARING, shared_gpu_score))


def shared_gpu_score(task: PodInfo, node: KaiNodeInfo) -> float:
    """`GPU_SHARING` if a shared GPU of the node fits the task, else 0."""
    takes = any(node_sharing.fits_shared(node, task.request, group) for group in node.shared.used)
    return GPU_SHARING if takes else 0

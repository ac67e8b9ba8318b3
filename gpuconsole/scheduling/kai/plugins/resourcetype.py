"""resourcetype plugin: tasks without GPUs prefer nodes without GPUs (KAI 0.13)."""

from gpuconsole.scheduling.kai.api.nodes import KaiNodeInfo
from gpuconsole.scheduling.kai.api.tasks import PodInfo
from gpuconsole.scheduling.kai.conf import KaiPluginArguments
from gpuconsole.scheduling.kai.functions import Scorer
from gpuconsole.scheduling.kai.plugins.scores import RESOURCE_TYPE
from gpuconsole.scheduling.kai.session import KaiSession


class ResourceType:
    """Registers the node score."""

    def __init__(self, arguments: KaiPluginArguments) -> None:
        pass

    def open(self, session: KaiSession) -> None:
        session.functions.node_order.append(Scorer("resourcetype", RESOURCE_TYPE, resource_type_score))


def resource_type_score(task: PodInfo, node: KaiNodeInfo) -> float:
    """`RESOURCE_TYPE` if neither the task nor the node has GPUs, else 0."""
    return RESOURCE_TYPE if not task.needs_gpu and node.cpu_only else 0

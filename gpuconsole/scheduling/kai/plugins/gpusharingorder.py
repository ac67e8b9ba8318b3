"""gpusharingorder: nodes with a shared GPU that has room come first (KAI 0.13)."""

from gpuconsole.scheduling.kai.api import node_sharing
from gpuconsole.scheduling.kai.api.nodes import NodeState
from gpuconsole.scheduling.kai.api.tasks import Task
from gpuconsole.scheduling.kai.conf import Arguments
from gpuconsole.scheduling.kai.functions import Scorer
from gpuconsole.scheduling.kai.plugins.scores import GPU_SHARING
from gpuconsole.scheduling.kai.session import Session


class GpuSharingOrder:
    def __init__(self, arguments: Arguments) -> None:
        pass

    def open(self, session: Session) -> None:
        session.functions.node_order.append(Scorer("gpusharingorder", GPU_SHARING, score))


def score(task: Task, node: NodeState) -> float:
    takes = any(node_sharing.takes(node, task.request, group) for group in node.shared.used)
    return GPU_SHARING if takes else 0

"""resourcetype: tasks without GPUs go to nodes without GPUs (KAI 0.13)."""

from gpuconsole.scheduling.kai.api.nodes import NodeState
from gpuconsole.scheduling.kai.api.tasks import Task
from gpuconsole.scheduling.kai.conf import Arguments
from gpuconsole.scheduling.kai.functions import Scorer
from gpuconsole.scheduling.kai.plugins.scores import RESOURCE_TYPE
from gpuconsole.scheduling.kai.session import Session


class ResourceType:
    def __init__(self, arguments: Arguments) -> None:
        pass

    def open(self, session: Session) -> None:
        session.functions.node_order.append(Scorer("resourcetype", RESOURCE_TYPE, score))


def score(task: Task, node: NodeState) -> float:
    return RESOURCE_TYPE if not task.needs_gpu and node.cpu_only else 0

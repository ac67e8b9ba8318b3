"""nominatednode: the node that a pod was nominated for beats all others (KAI 0.13)."""

from gpuconsole.scheduling.kai.api.nodes import NodeState
from gpuconsole.scheduling.kai.api.tasks import Task
from gpuconsole.scheduling.kai.conf import Arguments
from gpuconsole.scheduling.kai.functions import Scorer
from gpuconsole.scheduling.kai.plugins.scores import NOMINATED
from gpuconsole.scheduling.kai.session import Session


class NominatedNode:
    def __init__(self, arguments: Arguments) -> None:
        pass

    def open(self, session: Session) -> None:
        session.functions.node_order.append(Scorer("nominatednode", NOMINATED, score))


def score(task: Task, node: NodeState) -> float:
    return NOMINATED if task.spec.nominated == node.name else 0

"""nodeavailability: nodes where the task could start at once come first (KAI 0.13)."""

from gpuconsole.scheduling.kai.api.nodes import NodeState
from gpuconsole.scheduling.kai.api.tasks import Task
from gpuconsole.scheduling.kai.conf import Arguments
from gpuconsole.scheduling.kai.functions import Scorer
from gpuconsole.scheduling.kai.plugins.scores import AVAILABILITY
from gpuconsole.scheduling.kai.session import Session


class NodeAvailability:
    def __init__(self, arguments: Arguments) -> None:
        pass

    def open(self, session: Session) -> None:
        session.functions.node_order.append(Scorer("nodeavailability", AVAILABILITY, score))


def score(task: Task, node: NodeState) -> float:
    return AVAILABILITY if node.fits_idle(task) else 0

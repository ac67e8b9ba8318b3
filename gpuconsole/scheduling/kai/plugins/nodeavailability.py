"""nodeavailability plugin: nodes where the task could start at once come first (KAI 0.13)."""

from gpuconsole.scheduling.kai.api.nodes import KaiNodeInfo
from gpuconsole.scheduling.kai.api.tasks import PodInfo
from gpuconsole.scheduling.kai.conf import KaiPluginArguments
from gpuconsole.scheduling.kai.functions import Scorer
from gpuconsole.scheduling.kai.plugins.scores import AVAILABILITY
from gpuconsole.scheduling.kai.session import KaiSession


class NodeAvailability:
    """Registers the node score."""

    def __init__(self, arguments: KaiPluginArguments) -> None:
        pass

    def open(self, session: KaiSession) -> None:
        session.functions.node_order.append(Scorer("nodeavailability", AVAILABILITY, availability_score))


def availability_score(task: PodInfo, node: KaiNodeInfo) -> float:
    """`AVAILABILITY` if the task could start on the node now, else 0."""
    return AVAILABILITY if node.fits_idle(task) else 0

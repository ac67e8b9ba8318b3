"""nominatednode plugin: a pod's nominated node gets the highest score (KAI 0.13)."""

from gpuconsole.scheduling.kai.api.nodes import KaiNodeInfo
from gpuconsole.scheduling.kai.api.tasks import PodInfo
from gpuconsole.scheduling.kai.conf import KaiPluginArguments
from gpuconsole.scheduling.kai.functions import Scorer
from gpuconsole.scheduling.kai.plugins.scores import NOMINATED
from gpuconsole.scheduling.kai.session import KaiSession


class NominatedNode:
    """Registers the node score."""

    def __init__(self, arguments: KaiPluginArguments) -> None:
        pass

    def open(self, session: KaiSession) -> None:
        session.functions.node_order.append(Scorer("nominatednode", NOMINATED, nominated_node_score))


def nominated_node_score(task: PodInfo, node: KaiNodeInfo) -> float:
    """`NOMINATED` for the pod's nominated node, else 0."""
    return NOMINATED if task.spec.nominated == node.name else 0

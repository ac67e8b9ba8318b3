"""nodeplacement plugin: binpack or spread by GPUs or, for tasks without GPUs, by CPU (KAI 0.13)."""

from gpuconsole.scheduling.kai.api.amounts import CPU, GPU
from gpuconsole.scheduling.kai.api.nodes import KaiNodeInfo
from gpuconsole.scheduling.kai.api.tasks import PodInfo
from gpuconsole.scheduling.kai.conf import KaiPluginArguments
from gpuconsole.scheduling.kai.functions import Scorer
from gpuconsole.scheduling.kai.plugins.scores import DENSITY
from gpuconsole.scheduling.kai.session import KaiSession

SPREAD = "spread"


class NodePlacement:
    """Registers the node score; the arguments cpu and gpu are binpack (the default) or spread."""

    plugin, band = "nodeplacement", DENSITY

    def __init__(self, arguments: KaiPluginArguments) -> None:
        self._strategies = {CPU: arguments.text("cpu", "binpack"), GPU: arguments.text("gpu", "binpack")}

    def open(self, session: KaiSession) -> None:
        if SPREAD in self._strategies.values():
            session.functions.node_order.append(Scorer("nodeplacement", 1, self._spread))
        session.functions.measures.append(self)

    def _spread(self, task: PodInfo, node: KaiNodeInfo) -> float:
        name = resource_of(task)
        return node_spread_score(node, name) if self._strategies[name] == SPREAD else 0

    def measure(self, task: PodInfo, node: KaiNodeInfo) -> float | None:
        """Free amount of the resource by which the task is packed; None if it is spread or the node has none."""
        name = resource_of(task)
        if self._strategies[name] == SPREAD or not node.allocatable.get(name):
            return None
        return node.free_of(name)

    def weigh(self, value: float | None, least: float, most: float) -> float:
        """The binpack score; 0 without a value."""
        return 0 if value is None else node_pack_score(value, least, most)


def resource_of(task: PodInfo) -> str:
    """The resource by which the task is packed or spread."""
    return GPU if task.needs_gpu else CPU


def node_pack_score(free: float, least: float, most: float) -> float:
    """0 for the node with the most free, 9 for the one with the least."""
    if most == 0:
        return 0
    if least == most:
        return DENSITY
    return DENSITY * (1 - (free - least) / (most - least))


def node_spread_score(node: KaiNodeInfo, name: str) -> float:
    """The free fraction of the node's resource."""
    has = node.gpu_count if name == GPU else node.allocatable.get(name)
    return node.free_of(name) / has if has else 0

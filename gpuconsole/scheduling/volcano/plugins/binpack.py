"""binpack plugin: prefers the node that a task leaves fullest. GPUs count only if the configuration lists them."""

from typing import TYPE_CHECKING, ClassVar

from gpuconsole.scheduling.volcano.api.node import NodeInfo
from gpuconsole.scheduling.volcano.api.task import TaskInfo
from gpuconsole.scheduling.volcano.arguments import VolcanoArguments
from gpuconsole.scheduling.volcano.functions import always
from gpuconsole.scheduling.volcano.plugin import VolcanoPlugin
from gpuconsole.scheduling.volcano.plugins.resource_weights import resource_weights

if TYPE_CHECKING:
    from gpuconsole.scheduling.volcano.session import VolcanoSession

BINPACK_MAX_SCORE = 100


class BinpackPlugin(VolcanoPlugin):
    """Volcano 1.15 plugins/binpack."""

    name: ClassVar[str] = "binpack"

    def __init__(self, arguments: VolcanoArguments) -> None:
        self.weight = arguments.integer("binpack.weight", 1)
        self.weights = resource_weights(arguments, "binpack")
        self._asking: TaskInfo | None = None
        self._asked: list[tuple[str, int, float]] = []
        """Its requests for resources that have a weight: name, weight, amount."""

    def on_session_open(self, session: "VolcanoSession") -> None:
        if self.weight:
            session.functions.node_order[self.name] = self.score
            session.functions.alone[self.name] = always

    def score(self, task: TaskInfo, node: NodeInfo) -> float:
        """100 · weight · Σ w·(requested + used)/allocatable / Σ w over what is requested; 0 if it does not fit."""
        if self._asking is not task:
            request = task.request
            names = [name for name in request.names() if name in self.weights]
            self._asking, self._asked = task, [(name, self.weights[name], request.get(name)) for name in names]
        total, weights = 0.0, 0
        for name, weight, wanted in self._asked:
            capacity = node.allocatable.get(name)
            weights += weight
            if capacity and weight:
                used = wanted + node.used.get(name)
                if used > capacity:
                    return 0.0
                total += used * weight / capacity
        return (total / weights if weights else total) * (BINPACK_MAX_SCORE * self.weight)

"""nodeorder: kube-scheduler's scores with Volcano's weights. Of GPUs only the balance counts."""

import math
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, ClassVar

from gpuconsole.model.cluster import Node
from gpuconsole.model.quantity import CPU, GPU, MEMORY
from gpuconsole.model.resources import add
from gpuconsole.scheduling.kube import neighbours, spreading
from gpuconsole.scheduling.kube.neighbours import is_picky
from gpuconsole.scheduling.kube.scores import MAX_SCORE, dislikes, least_allocated, most_allocated, preference
from gpuconsole.scheduling.kube.shapes import Shape, Shapes
from gpuconsole.scheduling.volcano.api.node import NodeInfo
from gpuconsole.scheduling.volcano.api.task import TaskInfo
from gpuconsole.scheduling.volcano.arguments import Arguments
from gpuconsole.scheduling.volcano.placed import Placed
from gpuconsole.scheduling.volcano.plugin import Plugin

if TYPE_CHECKING:
    from gpuconsole.scheduling.volcano.session import Session

WEIGHTS = {
    "leastrequested": 1,
    "mostrequested": 0,
    "nodeaffinity": 2,
    "podaffinity": 2,
    "balancedresource": 1,
    "tainttoleration": 3,
    "imagelocality": 1,
    "podtopologyspread": 2,
}
BALANCED = (CPU, MEMORY, GPU)


class NodeorderPlugin(Plugin):
    """Volcano 1.15 plugins/nodeorder."""

    name: ClassVar[str] = "nodeorder"

    def __init__(self, arguments: Arguments) -> None:
        self.weights = {name: arguments.integer(f"{name}.weight", weight) for name, weight in WEIGHTS.items()}
        self._shapes = Shapes()

    def on_session_open(self, session: "Session") -> None:
        self._placed, self._around = session.placed, session.placed.without()
        self._books = Books(session.placed, self._shapes)
        session.functions.batch_node_order[self.name] = self.scores

    def scores(self, task: TaskInfo, nodes: Iterable[NodeInfo]) -> dict[str, float]:
        """The weighted sum of the scores, each 0 to 100, of each node."""
        shape = self._shapes.of(task.pod.template)
        described = [node.node for node in nodes if node.node is not None]
        totals = dict.fromkeys((node.name for node in described), 0)
        for name, measure in (("leastrequested", least_allocated), ("mostrequested", most_allocated)):
            if self.weights[name]:
                self._add(totals, name, {n.name: self._books.allocation(n, shape, measure) for n in described})
        if self.weights["balancedresource"] and any(shape.requests.get(name) for name in BALANCED):
            self._add(totals, "balancedresource", {n.name: self._books.balance(n, shape) for n in described})
        if self.weights["nodeaffinity"] and shape.preferred:
            self._add(totals, "nodeaffinity", _scaled({n.name: preference(n, shape) for n in described}))
        if self.weights["tainttoleration"]:
            disliked = _scaled({n.name: dislikes(n, shape) for n in described})
            self._add(totals, "tainttoleration", {name: MAX_SCORE - value for name, value in disliked.items()})
        if self.weights["podaffinity"] and (self._placed.picky or is_picky(task.pod)):
            self._add(totals, "podaffinity", neighbours.scores(task.pod, described, self._around, hard_weight=0))
        if self.weights["podtopologyspread"] and task.pod.template.spread:
            self._add(totals, "podtopologyspread", spreading.scores(task.pod, shape, described, self._around))
        return {name: float(total) for name, total in totals.items()}

    def _add(self, totals: dict[str, int], name: str, scores: Mapping[str, int]) -> None:
        for node, score in scores.items():
            totals[node] += self.weights[name] * score


def _scaled(scores: Mapping[str, int]) -> dict[str, int]:
    """Scores as a part of the highest, in hundredths (DefaultNormalizeScore)."""
    top = max(scores.values(), default=0)
    return {name: score * MAX_SCORE // top if top else 0 for name, score in scores.items()}


class Books:
    """What the pods of each node ask for, as kube-scheduler counts it. Remembers sums while the pods stay the same."""

    def __init__(self, placed: Placed, shapes: Shapes) -> None:
        self._placed = placed
        self._shapes = shapes
        self._known: dict[str, tuple[int, dict[str, int], dict[str, int]]] = {}

    def allocation(self, node: Node, shape: Shape, measure: Callable[[int, int], int]) -> int:
        """The mean of cpu and memory by a formula of (used with the pod, capacity); both count alike."""
        _, counted = self._sums(node.name)
        found = [
            measure(counted.get(name, 0) + shape.counted[name], node.allocatable[name])
            for name in (CPU, MEMORY)
            if node.allocatable.get(name)
        ]
        return sum(found) // len(found) if found else 0

    def balance(self, node: Node, shape: Shape) -> int:
        """(1 − the standard deviation of what is used of cpu, memory and, if asked for, GPUs) · 100."""
        requested, _ = self._sums(node.name)
        names = [name for name in BALANCED if name != GPU or shape.requests.get(GPU)]
        parts = [
            min(1.0, (requested.get(name, 0) + shape.requests.get(name, 0)) / node.allocatable[name])
            for name in names
            if node.allocatable.get(name)
        ]
        if len(parts) == 2:
            deviation = abs((parts[0] - parts[1]) / 2)
        else:
            mean = sum(parts) / len(parts) if parts else 0.0
            deviation = math.sqrt(sum((part - mean) ** 2 for part in parts) / len(parts)) if len(parts) > 2 else 0.0
        return int((1 - deviation) * MAX_SCORE)

    def _sums(self, node: str) -> tuple[dict[str, int], dict[str, int]]:
        version = self._placed.version(node)
        known = self._known.get(node)
        if known is None or known[0] != version:
            shapes = [self._shapes.of(pod.template) for pod in self._placed.on(node).values()]
            known = (version, add(*(s.requests for s in shapes)), add(*(s.counted for s in shapes)))
            self._known[node] = known
        return known[1], known[2]

"""nodeplacement: fill nodes up, or spread over them, by GPUs or, for tasks without GPUs, by CPU (KAI 0.13)."""

from collections.abc import Sequence

from gpuconsole.scheduling.kai.api.amounts import CPU, GPU
from gpuconsole.scheduling.kai.api.nodes import NodeState
from gpuconsole.scheduling.kai.api.tasks import Task
from gpuconsole.scheduling.kai.conf import Arguments
from gpuconsole.scheduling.kai.plugins.scores import DENSITY
from gpuconsole.scheduling.kai.session import Session

SPREAD = "spread"


class NodePlacement:
    """Arguments cpu and gpu: binpack or spread. Mutates: keeps the range of free amounts for each task."""

    def __init__(self, arguments: Arguments) -> None:
        self._strategies = {CPU: arguments.text("cpu", "binpack"), GPU: arguments.text("gpu", "binpack")}
        self._ranges: dict[str, tuple[float, float]] = {}

    def open(self, session: Session) -> None:
        session.functions.node_pre_order.append(self._prepare)
        session.functions.node_order.append(self._score)

    def _prepare(self, task: Task, nodes: Sequence[NodeState]) -> None:
        name = resource_of(task)
        if self._strategies[name] != SPREAD:
            self._ranges[task.uid] = free_range(nodes, name)

    def _score(self, task: Task, node: NodeState) -> float:
        name = resource_of(task)
        if self._strategies[name] == SPREAD:
            return spread(node, name)
        return pack(node, name, *self._ranges[task.uid])


def resource_of(task: Task) -> str:
    return GPU if task.needs_gpu else CPU


def free_range(nodes: Sequence[NodeState], name: str) -> tuple[float, float]:
    """The least and the most that is free on nodes that have any of the resource."""
    free = [node.free_of(name) for node in nodes if node.allocatable.get(name)]
    return (min(free), max(0.0, *free)) if free else (float("inf"), 0.0)


def pack(node: NodeState, name: str, least: float, most: float) -> float:
    """0 for the node with the most free, 9 for the one with the least."""
    if node.allocatable.get(name) == 0 or most == 0:
        return 0
    if least == most:
        return DENSITY
    return DENSITY * (1 - (node.free_of(name) - least) / (most - least))


def spread(node: NodeState, name: str) -> float:
    """The part of the node's resource that is free."""
    has = node.gpu_count if name == GPU else node.allocatable.get(name)
    return node.free_of(name) / has if has else 0

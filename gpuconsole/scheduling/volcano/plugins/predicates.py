"""predicates: kube-scheduler's filters, each of which an argument can switch off."""

from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar

from gpuconsole.model.cluster import Node
from gpuconsole.scheduling.kube import messages
from gpuconsole.scheduling.kube.filters import CORDONED, NOT_READY, affine, tolerated
from gpuconsole.scheduling.kube.shapes import Shape, Shapes
from gpuconsole.scheduling.volcano.api.fit_errors import POD_NUMBER_EXCEEDED, Code, FitError, Status
from gpuconsole.scheduling.volcano.api.node import NodeInfo
from gpuconsole.scheduling.volcano.api.task import TaskInfo
from gpuconsole.scheduling.volcano.arguments import Arguments
from gpuconsole.scheduling.volcano.functions import EventHandler
from gpuconsole.scheduling.volcano.plugin import Plugin

if TYPE_CHECKING:
    from gpuconsole.scheduling.volcano.session import Session

Filter = Callable[[Node, Shape], str]
"""Why a node is out of the question for pods of a shape, whatever runs on it; empty if it is not."""


class PredicatesPlugin(Plugin):
    """Volcano 1.15 plugins/predicates.

    What no eviction could change ends the search on a node; a full node is only noted, and the other filters go on.
    """

    name: ClassVar[str] = "predicates"

    def __init__(self, arguments: Arguments) -> None:
        self._arguments = arguments
        self._shapes = Shapes()
        self._stable: list[tuple[str, Filter]] = [("NodeUnschedulable", _cordoned)]
        if arguments.flag("predicate.NodeAffinityEnable", True):
            self._stable.append(("NodeAffinity", _astray))
        if arguments.flag("predicate.TaintTolerationEnable", True):
            self._stable.append(("TaintToleration", _tainted))

    def on_session_open(self, session: "Session") -> None:
        placed = session.placed

        def predicate(task: TaskInfo, node: NodeInfo) -> FitError | None:
            if node.node is None:
                return FitError((Status(Code.ERROR, "node info not found", self.name),), task.key, node.name)
            statuses = []
            if node.allocatable.max_tasks <= len(placed.on(node.name)):
                statuses.append(Status(Code.UNSCHEDULABLE, POD_NUMBER_EXCEEDED, self.name))
            refused = self._refusal(node.node, self._shapes.of(task.pod.template))
            if refused is not None:
                statuses.append(refused)
            return FitError(tuple(statuses), task.key, node.name) if statuses else None

        session.functions.predicates[self.name] = predicate
        session.functions.handlers.append(EventHandler(placed.add, placed.remove))

    def _refusal(self, node: Node, shape: Shape) -> Status | None:
        for name, refuse in self._stable:
            reason = refuse(node, shape)
            if reason:
                return Status(Code.UNRESOLVABLE, reason, name)
        return None


def _cordoned(node: Node, shape: Shape) -> str:
    return messages.UNSCHEDULABLE if node.unschedulable and not tolerated(CORDONED, shape.tolerations) else ""


def _astray(node: Node, shape: Shape) -> str:
    return "" if affine(node, shape) else messages.NO_AFFINITY


def _tainted(node: Node, shape: Shape) -> str:
    for taint in node.taints if node.ready else (NOT_READY, *node.taints):
        if taint.effect in ("NoSchedule", "NoExecute") and not tolerated(taint, shape.tolerations):
            return messages.untolerated(taint.key, taint.value)
    return ""

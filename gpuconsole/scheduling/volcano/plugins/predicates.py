"""predicates: kube-scheduler's filters, each of which an argument can switch off."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, ClassVar

from msgspec import Struct, field

from gpuconsole.model.cluster import Node, Pod
from gpuconsole.scheduling.kube import messages, neighbours, spreading
from gpuconsole.scheduling.kube.filters import CORDONED, NOT_READY, affine, tolerated
from gpuconsole.scheduling.kube.neighbours import Nearness, is_picky, nearness
from gpuconsole.scheduling.kube.shapes import Shape, Shapes
from gpuconsole.scheduling.kube.spreading import Spread
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
        self._near = arguments.flag("predicate.PodAffinityEnable", True)
        self._spread = arguments.flag("predicate.PodTopologySpreadEnable", True)
        self._outlook: tuple[str, int, Outlook] | None = None
        self._refused: dict[tuple[Shape, str], Status | None] = {}
        if arguments.flag("predicate.NodeAffinityEnable", True):
            self._stable.append(("NodeAffinity", _astray))
        if arguments.flag("predicate.TaintTolerationEnable", True):
            self._stable.append(("TaintToleration", _tainted))

    def on_session_open(self, session: "Session") -> None:
        self._placed = placed = session.placed
        self._refused = {}

        def predicate(task: TaskInfo, node: NodeInfo) -> FitError | None:
            if node.node is None:
                return FitError((Status(Code.ERROR, "node info not found", self.name),), task.key, node.name)
            statuses = []
            if node.allocatable.max_tasks <= len(placed.on(node.name)):
                statuses.append(Status(Code.UNSCHEDULABLE, POD_NUMBER_EXCEEDED, self.name))
            shape = self._shapes.of(task.pod.template)
            refused = self._refusal(node.node, shape)
            if refused is not None:
                statuses.append(refused)
            else:
                statuses += self._crowded(task, shape, node.node)
            return FitError(tuple(statuses), task.key, node.name) if statuses else None

        def removed(preemptor: TaskInfo, task: TaskInfo, node: NodeInfo) -> None:
            _trial(session, preemptor).gone.add(task.key)

        def added(preemptor: TaskInfo, task: TaskInfo, node: NodeInfo) -> None:
            _trial(session, preemptor).gone.discard(task.key)

        def simulated(task: TaskInfo, node: NodeInfo) -> FitError | None:
            gone = _trial(session, task).gone
            if not self._near or node.node is None or not (placed.picky or is_picky(task.pod)):
                return None
            reason = neighbours.refusal(task.pod, node.node, nearness(task.pod, placed.without(gone)))
            return FitError((_neighbour(reason),), task.key, node.name) if reason else None

        session.functions.predicates[self.name] = predicate
        session.functions.simulate_remove[self.name] = removed
        session.functions.simulate_add[self.name] = added
        session.functions.simulate_predicate[self.name] = simulated
        session.functions.handlers.append(EventHandler(placed.add, placed.remove))

    def _crowded(self, task: TaskInfo, shape: Shape, node: Node) -> Iterator[Status]:
        """What pods that are there already forbid; the first that no eviction changes ends it."""
        outlook = self._look(task.pod, task.key, shape)
        if outlook.near is not None:
            reason = neighbours.refusal(task.pod, node, outlook.near)
            if reason:
                yield _neighbour(reason)
                if reason == neighbours.AFFINITY:
                    return
        reason = spreading.refusal(node, outlook.spreads)
        if reason:
            code = Code.UNRESOLVABLE if reason == spreading.MISSING_LABEL else Code.UNSCHEDULABLE
            yield Status(code, reason, "PodTopologySpread")

    def _look(self, pod: Pod, key: str, shape: Shape) -> "Outlook":
        """What the pod meets, looked at again only when pods came or went."""
        known, placed = self._outlook, self._placed
        if known is None or known[:2] != (key, placed.changes):
            near = None
            if self._near and (placed.picky or is_picky(pod)):
                near = nearness(pod, placed.without())
            spreads = spreading.hard_spreads(pod, shape, placed.without()) if self._spread else ()
            known = self._outlook = key, placed.changes, Outlook(near, spreads)
        return known[2]

    def _refusal(self, node: Node, shape: Shape) -> Status | None:
        """Why a node is out of the question for pods of a shape. Found once in a session: nodes do not change in it."""
        key = shape, node.name
        if key not in self._refused:
            self._refused[key] = self._find_refusal(node, shape)
        return self._refused[key]

    def _find_refusal(self, node: Node, shape: Shape) -> Status | None:
        for name, refuse in self._stable:
            reason = refuse(node, shape)
            if reason:
                return Status(Code.UNRESOLVABLE, reason, name)
        return None


class Outlook(Struct, frozen=True):
    """What a pod meets on the nodes, as far as anybody minds."""

    near: Nearness | None
    spreads: tuple[Spread, ...]


class Trial(Struct):
    """Pods that a trial has taken off their nodes, by key. Mutates."""

    gone: set[str] = field(default_factory=set)

    def clone(self) -> "Trial":
        return Trial(set(self.gone))


def _trial(session: "Session", task: TaskInfo) -> Trial:
    kept = session.cycle_state(task).setdefault(PredicatesPlugin.name, Trial())
    assert isinstance(kept, Trial)
    return kept


def _neighbour(reason: str) -> Status:
    code = Code.UNRESOLVABLE if reason == neighbours.AFFINITY else Code.UNSCHEDULABLE
    return Status(code, reason, "InterPodAffinity")


def _cordoned(node: Node, shape: Shape) -> str:
    return messages.UNSCHEDULABLE if node.unschedulable and not tolerated(CORDONED, shape.tolerations) else ""


def _astray(node: Node, shape: Shape) -> str:
    return "" if affine(node, shape) else messages.NO_AFFINITY


def _tainted(node: Node, shape: Shape) -> str:
    for taint in node.taints if node.ready else (NOT_READY, *node.taints):
        if taint.effect in ("NoSchedule", "NoExecute") and not tolerated(taint, shape.tolerations):
            return messages.untolerated(taint.key, taint.value)
    return ""

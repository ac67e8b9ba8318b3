"""deviceshare plugin: GPU sharing by memory or cores, and exclusive rules for pods that never share a GPU with each
other.
"""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

from gpuconsole.model.cluster import Node, Pod
from gpuconsole.scheduling.volcano.api.fit_errors import FitError, PredicateCode
from gpuconsole.scheduling.volcano.api.node import NodeInfo
from gpuconsole.scheduling.volcano.api.status import TaskStatus
from gpuconsole.scheduling.volcano.api.task import TaskInfo
from gpuconsole.scheduling.volcano.arguments import VolcanoArguments
from gpuconsole.scheduling.volcano.functions import EventHandler, always
from gpuconsole.scheduling.volcano.plugin import VolcanoPlugin
from gpuconsole.scheduling.volcano.plugins.shared_gpus import (
    GPU_MEMORY,
    GPU_NUMBER,
    MIG_MODE,
    SOFTWARE_MODE,
    VGPU_MODE,
    Card,
    CardShare,
    assigned,
    choose,
    gpu_indices,
    limit_of,
    plain_cards,
    vgpu_cards,
    vgpu_wishes,
)

if TYPE_CHECKING:
    from gpuconsole.scheduling.volcano.session import VolcanoSession

Rule = Mapping[str, str]


class DevicesharePlugin(VolcanoPlugin):
    """Volcano 1.15 plugins/deviceshare: GPU sharing, GPU numbers and vGPUs, in software (hami-core) or by MIG.

    A pod without an annotation that names its cards is assumed to hold those that the scheduler would choose.
    """

    name: ClassVar[str] = "deviceshare"

    def __init__(self, arguments: VolcanoArguments) -> None:
        self.sharing = arguments.flag("deviceshare.GPUSharingEnable", False)
        self.numbers = arguments.flag("deviceshare.GPUNumberEnable", False)
        self.virtual = arguments.flag("deviceshare.VGPUEnable", False)
        self.policy = arguments.text("deviceshare.SchedulePolicy", "")
        self.weight = arguments.integer("deviceshare.ScheduleWeight", 0)
        self.rules = exclusive_rules(arguments.get("deviceshare.GPUExclusiveRules"))
        self._plain: dict[str, list[Card]] = {}
        self._virtual: dict[str, list[Card]] = {}

    def on_session_open(self, session: "VolcanoSession") -> None:
        self._known = session.mig_models
        for info in session.nodes.values():
            if info.node is not None:
                self._take_stock(info, info.node)
        if self.sharing or self.numbers or self.virtual:
            session.functions.predicates[self.name] = self._predicate
            session.functions.node_order[self.name] = self._score
            session.functions.alone[self.name] = always
            session.functions.handlers.append(EventHandler(self._allocate, self._deallocate))

    def _take_stock(self, info: NodeInfo, node: Node) -> None:
        if self.sharing or self.numbers:
            self._plain[node.name] = plain_cards(node)
        if self.virtual:
            self._virtual[node.name] = vgpu_cards(node, self._known)
        done = (TaskStatus.SUCCEEDED, TaskStatus.FAILED)
        held = [task for task in info.tasks.values() if task.status not in done]
        for task in sorted(held, key=lambda one: (one.pod.bound, one.key)):
            self._allocate(task)

    def _predicate(self, task: TaskInfo, node: NodeInfo) -> FitError | None:
        pod = task.pod
        if self._plain.get(node.name) and self._wants_plain(pod) and not self._plain_parts(pod, node.name):
            kind, what = ("GpuShare", "memory") if self.sharing else ("GpuNumber", "number")
            return FitError.saying(PredicateCode.UNSCHEDULABLE, f"{kind} no enough gpu {what} on node {node.name}")
        if self._virtual.get(node.name) and vgpu_wishes(pod) and self._choice(pod, node.name) is None:
            return FitError.saying(PredicateCode.UNSCHEDULABLE, "hami-vgpuDeviceSharing error")
        return None

    def _score(self, task: TaskInfo, node: NodeInfo) -> float:
        if self.weight <= 0 or not self._virtual.get(node.name) or not vgpu_wishes(task.pod):
            return 0.0
        choice = self._choice(task.pod, node.name)
        return math.floor(choice[1] + 0.5) * float(self.weight) if choice is not None else 0.0

    def _choice(self, pod: Pod, node: str) -> tuple[list[CardShare], float] | None:
        cards = self._virtual[node]
        # The last card that a node registers decides the node's mode.
        mode = MIG_MODE if cards[-1].groups else SOFTWARE_MODE
        if pod.annotations.get(VGPU_MODE, mode) != mode:
            return None
        # MIG instances isolate pods without such rules.
        mine = matching_rules(pod, self.rules) if mode == SOFTWARE_MODE else []
        reserved = {
            card.index
            for card in cards
            for other, _ in card.pods.values()
            if mine and set(mine) & set(matching_rules(other, self.rules))
        }
        return choose(pod, cards, self.policy, reserved)

    def _wants_plain(self, pod: Pod) -> bool:
        return (self.sharing and limit_of(pod, GPU_MEMORY) > 0) or (self.numbers and limit_of(pod, GPU_NUMBER) > 0)

    def _plain_parts(self, pod: Pod, node: str) -> list[CardShare]:
        """The first card with enough memory, or this number of unused cards."""
        cards = self._plain[node]
        if self.sharing:
            wanted = limit_of(pod, GPU_MEMORY)
            fitting = [card for card in cards if card.memory - card.used_memory >= wanted]
            return [CardShare(fitting[0].index, wanted)] if fitting else []
        count, idle = limit_of(pod, GPU_NUMBER), [card for card in cards if not card.pods]
        return [CardShare(card.index) for card in idle[:count]] if len(idle) >= count else []

    def _allocate(self, task: TaskInfo) -> None:
        pod, node = task.pod, task.node_name
        if self._plain.get(node) and self._wants_plain(pod):
            named = [CardShare(index, limit_of(pod, GPU_MEMORY)) for index in gpu_indices(pod)]
            _hold(self._plain[node], pod, named or self._plain_parts(pod, node))
        if self._virtual.get(node) and vgpu_wishes(pod):
            choice = self._choice(pod, node)
            _hold(self._virtual[node], pod, assigned(pod, self._virtual[node]) or (choice[0] if choice else []))

    def _deallocate(self, task: TaskInfo) -> None:
        for cards in (self._plain.get(task.node_name, ()), self._virtual.get(task.node_name, ())):
            for card in cards:
                card.pods = {key: held for key, held in card.pods.items() if held[0].key != task.key}


def _hold(cards: Sequence[Card], pod: Pod, parts: Sequence[CardShare]) -> None:
    known = {card.index: card for card in cards}
    for number, part in enumerate(parts):
        if part.index in known:
            known[part.index].pods[f"{pod.key}/{number}"] = (pod, part)


def exclusive_rules(given: object) -> list[Rule]:
    """Parse the rules, each a set of labels: pods with all of them never share a card. Invalid ones are left out."""
    listed = given if isinstance(given, list) else []
    rules = [
        {key: value for key, value in one.items() if isinstance(key, str) and isinstance(value, str)}
        for one in listed
        if isinstance(one, Mapping)
    ]
    return [rule for rule in rules if rule]


def matching_rules(pod: Pod, rules: Sequence[Rule]) -> list[int]:
    """Indices of the rules whose labels the pod has, all of them."""
    return [number for number, rule in enumerate(rules) if rule.items() <= pod.labels.items()]

"""deviceshare plugin: pods share GPUs by memory and cores, or get whole GPUs or MIG instances.

Cards are counted as Volcano's device plugins count them. By exclusive rules, pods with certain labels never share a
GPU with each other.

Volcano 1.15 api/devices/nvidia/vgpu/mig.go: the vGPU device plugin creates MIG instances on demand, from groups of
compatible instances. An unused card takes the first group that has an instance large enough; while a pod has an
instance of it, others get instances of that group only, and only of a size in use.
"""

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, ClassVar

from msgspec import Struct

from gpuconsole.model.cluster import Node, Pod
from gpuconsole.model.documents.yaml_json import FormError, named, read_yaml, sections, unwrapped
from gpuconsole.model.pod_template import Container
from gpuconsole.scheduling.volcano.api.job import FitError, PredicateCode
from gpuconsole.scheduling.volcano.api.node import NodeInfo
from gpuconsole.scheduling.volcano.api.task import TaskInfo, TaskStatus, group_of
from gpuconsole.scheduling.volcano.config import MigGroup, MigModel, MigSize, VolcanoArguments
from gpuconsole.scheduling.volcano.session import VolcanoPlugin, VolcanoSession
from gpuconsole.scheduling.volcano.session_plugins import EventHandler, depends_on_node_and_class

DEVICE_CONFIG_FILE = "device-config.yaml"


MigGroupInstance = tuple[str, int]
"""The name of the MIG group that a card is divided into, and the instance's position in it."""


def mig_groups_of(kind: str, known: Sequence[MigModel]) -> tuple[MigGroup, ...]:
    """The groups for a type of card; empty if none are configured."""
    return next((model.groups for model in known if any(name in kind for name in model.models)), ())


def pick_mig_instance(
    groups: Sequence[MigGroup], used: Collection[MigGroupInstance], memory: int
) -> tuple[MigGroupInstance, int] | None:
    """Choose a card's smallest free MIG instance with at least this memory (MiB); None if it has none (findMatch).

    Returns the instance and its memory.
    """
    taken = {name for name, _ in used}
    for group in [one for one in groups if one.name in taken] or groups:
        positions = sorted(position for name, position in used if name == group.name)
        held = Counter(size.name for position in positions if (size := group.size_at(position)) is not None)
        start = {size.name: sum(one.count for one in group.sizes[:n]) for n, size in enumerate(group.sizes)}
        for size in sorted(group.sizes, key=lambda size: size.memory):
            if size.memory < memory or (taken and not 0 < held[size.name] < size.count):
                continue
            first = start[size.name]
            free = next(at for at in range(first, first + size.count) if at not in positions)
            return (group.name, free), size.memory
    return None


def parse_mig_config(text: str) -> tuple[MigModel, ...]:
    """Parse the groups in a device-config.yaml, or in the ConfigMap that holds it.

    Raises:
        ValueError: the text is no such file; the message says what is wrong with it.
    """
    try:
        trees = [unwrapped(read_yaml(share, line), named(DEVICE_CONFIG_FILE)).value for share, line in sections(text)]
        tree = next((one for one in trees if isinstance(one, Mapping) and "nvidia" in one), trees[0] if trees else None)
        listed = (tree or {}).get("nvidia", {}).get("knownMigGeometries") or []
        return tuple(_parse_mig_model(one) for one in listed)
    except FormError as error:
        raise ValueError(f"line {error.problem.line}: {error.problem.problem}") from None
    except (AttributeError, KeyError, TypeError, ValueError):
        raise ValueError("nvidia.knownMigGeometries has models and allowedGeometries: group, geometries") from None


def _parse_mig_model(document: Mapping[str, Any]) -> MigModel:
    groups = (
        MigGroup(
            str(one["group"]),
            tuple(MigSize(str(size["name"]), int(size["memory"]), int(size["count"])) for size in one["geometries"]),
        )
        for one in document["allowedGeometries"]
    )
    return MigModel(tuple(map(str, document["models"])), tuple(groups))


GPU_MEMORY, GPU_NUMBER = "volcano.sh/gpu-memory", "volcano.sh/gpu-number"
GPU_INDEX = "volcano.sh/gpu-index"
UNHEALTHY = "volcano.sh/gpu-unhealthy-ids"
VGPU_NUMBER, VGPU_MEMORY = "volcano.sh/vgpu-number", "volcano.sh/vgpu-memory"
VGPU_PERCENTAGE, VGPU_CORES = "volcano.sh/vgpu-memory-percentage", "volcano.sh/vgpu-cores"
VGPU_REGISTER, VGPU_ASSIGNED = "volcano.sh/node-vgpu-register", "volcano.sh/vgpu-ids-new"
VGPU_MODE, VGPU_GROUP_POLICY = "volcano.sh/vgpu-mode", "volcano.sh/vgpu-podgroup-policy"
USE_TYPE, NO_USE_TYPE = "nvidia.com/use-gputype", "nvidia.com/nouse-gputype"
SOFTWARE_MODE, MIG_MODE = "hami-core", "mig"
ALL_CORES = 100


class CardShare(Struct, frozen=True):
    """The part of one card that a pod has: memory in MiB, cores in percent."""

    index: int
    memory: int = 0
    cores: int = 0
    instance: MigGroupInstance | None = None
    """The pod's MIG instance, if the card is divided."""


class CardRequest(Struct, frozen=True):
    """What one container requests: a number of cards, with memory (MiB) and cores (percent) of each."""

    cards: int
    memory: int = 0
    percentage: int | None = None
    """Percentage of the card's memory, used instead of `memory`; None if `memory` counts."""
    cores: int = 0


class Card:
    """One physical GPU, and the pods that share it. Mutates as pods come and go."""

    def __init__(
        self,
        index: int,
        memory: int,
        most: int = 1,
        kind: str = "",
        uuid: str = "",
        groups: tuple[MigGroup, ...] = (),
    ) -> None:
        self.index, self.memory, self.max_pods, self.kind, self.uuid = index, memory, most, kind, uuid
        self.groups = groups
        """The groups of MIG instances that it can be divided into; empty if it is shared in software."""
        self.pods: dict[str, tuple[Pod, CardShare]] = {}
        """(pod, its part of the card) by `namespace/name/number`, as one pod can have several parts."""

    @property
    def used_memory(self) -> int:
        return sum(share.memory for _, share in self.pods.values())

    @property
    def used_cores(self) -> int:
        return sum(share.cores for _, share in self.pods.values())

    def share_for(self, request: CardRequest, pod: Pod) -> CardShare | None:
        """The part of the card that a pod would get; None if the request does not fit.

        A request for all cores needs an unused card; a card with all cores allocated takes no other pod, even one that
        requests no cores.
        """
        memory = request.memory if request.percentage is None else self.memory * request.percentage // 100
        cores = self.used_cores
        alone = request.cores == ALL_CORES and bool(self.pods)
        full = (
            len(self.pods) >= self.max_pods
            or cores + request.cores > ALL_CORES
            or (cores == ALL_CORES and not request.cores)
        )
        if alone or full or self.memory - self.used_memory < memory or not _is_allowed_type(pod, self.kind):
            return None
        if not self.groups:
            return CardShare(self.index, memory, request.cores)
        found = pick_mig_instance(
            self.groups, [share.instance for _, share in self.pods.values() if share.instance], memory
        )
        return None if found is None else CardShare(self.index, found[1], request.cores, found[0])


def _is_allowed_type(pod: Pod, kind: str) -> bool:
    """True if the pod's annotations allow a card of this type."""
    if "NVIDIA" not in kind:
        return False
    for key, wanted in ((USE_TYPE, True), (NO_USE_TYPE, False)):
        if key in pod.annotations:
            named = any(share.upper() in kind.upper() for share in pod.annotations[key].split(","))
            return named is wanted
    return True


def vgpu_cards(node: Node, known: Sequence[MigModel] = ()) -> list[Card]:
    """Cards that a node registers (`uuid,number,memory,type,health,mode:`); empty if the annotation is invalid.

    In mode `mig`, `known` gives their MIG groups; an unknown model is shared in software.
    """
    if not all(node.allocatable.get(name) for name in (VGPU_NUMBER, VGPU_CORES, VGPU_MEMORY)):
        return []
    cards = []
    for index, text in enumerate(node.annotations.get(VGPU_REGISTER, "").split(":")):
        fields = text.split(",")
        if len(fields) < 2:
            continue
        if len(fields) < 6 or not (fields[1].isdecimal() and fields[2].isdecimal()):
            return []
        groups = mig_groups_of(fields[3], known) if fields[5] == MIG_MODE else ()
        cards.append(Card(index, int(fields[2]), int(fields[1]), fields[3], fields[0], groups))
    return cards


def plain_cards(node: Node) -> list[Card]:
    """Cards that share the node's GPU memory equally, without those annotated as unhealthy."""
    count, memory = node.capacity.get(GPU_NUMBER, 0), node.capacity.get(GPU_MEMORY)
    if not count or memory is None:
        return []
    unhealthy = node.annotations.get(UNHEALTHY, "").split(",")
    return [Card(index, memory // count) for index in range(count) if str(index) not in unhealthy]


def gpu_indices(pod: Pod) -> tuple[int, ...]:
    """Indices of the cards in a pod's annotation; empty if it is missing or invalid."""
    shares = pod.annotations.get(GPU_INDEX, "").split(",")
    return tuple(map(int, shares)) if all(share.isdecimal() for share in shares) else ()


def vgpu_requests(pod: Pod) -> list[CardRequest]:
    """The vGPU requests of a pod's containers that have one: by default one card, and all of its memory."""
    return [_card_request(container) for container in pod.template.containers if _requests_vgpu(container)]


def _requests_vgpu(container: Container) -> bool:
    return VGPU_NUMBER in container.limits or VGPU_MEMORY in container.limits


def _card_request(container: Container) -> CardRequest:
    asked = {**container.requests, **container.limits}
    percentage = asked.get(VGPU_PERCENTAGE)
    if percentage is None and not asked.get(VGPU_MEMORY):
        percentage = 100
    cards = container.limits.get(VGPU_NUMBER, 1)
    return CardRequest(cards, asked.get(VGPU_MEMORY, 0), percentage, asked.get(VGPU_CORES, 0))


def limit_of(pod: Pod, resource: str) -> int:
    """The pod's limit of a resource: the sum of its containers, or its largest init container if that is more."""
    running = sum(container.limits.get(resource, 0) for container in pod.template.containers)
    return max((running, *(container.limits.get(resource, 0) for container in pod.template.init_containers)))


def assigned_shares(pod: Pod, cards: Sequence[Card]) -> list[CardShare]:
    """The parts of cards that a pod's annotation assigns to it (`uuid,type,memory,cores:` for each container).

    A MIG instance is `uuid[group-position]`; it has the memory of its size.
    """
    known = {card.uuid: card for card in cards}
    found = []
    for text in pod.annotations.get(VGPU_ASSIGNED, "").replace(";", ":").split(":"):
        fields = text.split(",")
        uuid, _, rest = fields[0].partition("[")
        if len(fields) == 4 and uuid in known and fields[2].isdecimal() and fields[3].isdecimal():
            instance, memory = _named_instance(known[uuid], rest.rstrip("]"), int(fields[2]))
            found.append(CardShare(known[uuid].index, memory, int(fields[3]), instance))
    return found


def _named_instance(card: Card, text: str, asked: int) -> tuple[MigGroupInstance | None, int]:
    """The MIG instance that an annotation names, and its memory; otherwise None, and the memory `asked`."""
    name, _, position = text.partition("-")
    group = next((one for one in card.groups if one.name == name), None)
    size = group.size_at(int(position)) if group is not None and position.isdecimal() else None
    return ((name, int(position)), size.memory) if size is not None else (None, asked)


def choose_cards(
    pod: Pod, cards: Sequence[Card], policy: str, reserved: Collection[int] = ()
) -> tuple[list[CardShare], float] | None:
    """Cards for each container in turn, and the score; None if the pod does not fit.

    `binpack` tries the cards with the most used memory first, `spread` those with the fewest pods, otherwise the last
    come first. Reserved cards are left out and, with the pod's group policy `spread`, those with another pod of its
    PodGroup.
    """
    trial = {card.index: _copy_card(card) for card in cards}
    group = group_of(pod) if pod.annotations.get(VGPU_GROUP_POLICY) == "spread" else ""
    shares: list[CardShare] = []
    score = 0.0
    for number, request in enumerate(vgpu_requests(pod)):
        left = request.cards
        for index in _card_order(trial, policy):
            card = trial[index]
            if not left:
                break
            if index in reserved or (group and any(group_of(other) == group for other, _ in card.pods.values())):
                continue
            share = card.share_for(request, pod)
            if share is None:
                continue
            score += _card_score(card, share, policy)
            card.pods[f"{pod.key}/{number}"] = (pod, share)
            shares.append(share)
            left -= 1
        if left:
            return None
    return shares, score


def _copy_card(card: Card) -> Card:
    copied = Card(card.index, card.memory, card.max_pods, card.kind, card.uuid, card.groups)
    copied.pods = dict(card.pods)
    return copied


def _card_order(cards: Mapping[int, Card], policy: str) -> Iterable[int]:
    if policy == "binpack":
        return sorted(cards, key=lambda index: (-cards[index].used_memory, index))
    if policy == "spread":
        return sorted(cards, key=lambda index: (len(cards[index].pods), index))
    return sorted(cards, reverse=True)


def _card_score(card: Card, share: CardShare, policy: str) -> float:
    """How full the card's memory is with the pod, in percent (binpack).

    Upstream's spread never scores a card that is taken.
    """
    return 100 * (card.used_memory + share.memory) / card.memory if policy == "binpack" and card.memory else 0.0


ExclusiveRule = Mapping[str, str]


class DevicesharePlugin(VolcanoPlugin):
    """deviceshare plugin: shared GPUs, GPU numbers and vGPUs, in software (hami-core) or by MIG (Volcano 1.15).

    A pod without an annotation that names its cards is assumed to hold those that the scheduler would choose.
    """

    name: ClassVar[str] = "deviceshare"

    def __init__(self, arguments: VolcanoArguments) -> None:
        self.shares_memory = arguments.flag("deviceshare.GPUSharingEnable", False)
        self.assigns_numbers = arguments.flag("deviceshare.GPUNumberEnable", False)
        self.is_vgpu_enabled = arguments.flag("deviceshare.VGPUEnable", False)
        self.policy = arguments.text("deviceshare.SchedulePolicy", "")
        self.weight = arguments.integer("deviceshare.ScheduleWeight", 0)
        self.rules = parse_exclusive_rules(arguments.get("deviceshare.GPUExclusiveRules"))
        self._plain_cards: dict[str, list[Card]] = {}
        self._vgpu_cards: dict[str, list[Card]] = {}

    def on_session_open(self, session: VolcanoSession) -> None:
        self._mig_models = session.mig_models
        for info in session.nodes.values():
            if info.node is not None:
                self._register_node(info, info.node)
        if self.shares_memory or self.assigns_numbers or self.is_vgpu_enabled:
            session.functions.predicates[self.name] = self._predicate
            session.functions.node_order[self.name] = self._score
            session.functions.cacheable_tasks[self.name] = depends_on_node_and_class
            session.functions.handlers.append(EventHandler(self._allocate, self._deallocate))

    def _register_node(self, info: NodeInfo, node: Node) -> None:
        if self.shares_memory or self.assigns_numbers:
            self._plain_cards[node.name] = plain_cards(node)
        if self.is_vgpu_enabled:
            self._vgpu_cards[node.name] = vgpu_cards(node, self._mig_models)
        done = (TaskStatus.SUCCEEDED, TaskStatus.FAILED)
        held = [task for task in info.tasks.values() if task.status not in done]
        for task in sorted(held, key=lambda one: (one.pod.bound, one.key)):
            self._allocate(task)

    def _predicate(self, task: TaskInfo, node: NodeInfo) -> FitError | None:
        pod = task.pod
        if (
            self._plain_cards.get(node.name)
            and self._requests_plain_gpu(pod)
            and not self._plain_shares(pod, node.name)
        ):
            kind, what = ("GpuShare", "memory") if self.shares_memory else ("GpuNumber", "number")
            return FitError.from_reasons(
                PredicateCode.UNSCHEDULABLE, f"{kind} no enough gpu {what} on node {node.name}"
            )
        if self._vgpu_cards.get(node.name) and vgpu_requests(pod) and self._choose_cards(pod, node.name) is None:
            return FitError.from_reasons(PredicateCode.UNSCHEDULABLE, "hami-vgpuDeviceSharing error")
        return None

    def _score(self, task: TaskInfo, node: NodeInfo) -> float:
        if self.weight <= 0 or not self._vgpu_cards.get(node.name) or not vgpu_requests(task.pod):
            return 0.0
        choice = self._choose_cards(task.pod, node.name)
        return math.floor(choice[1] + 0.5) * float(self.weight) if choice is not None else 0.0

    def _choose_cards(self, pod: Pod, node: str) -> tuple[list[CardShare], float] | None:
        cards = self._vgpu_cards[node]
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
        return choose_cards(pod, cards, self.policy, reserved)

    def _requests_plain_gpu(self, pod: Pod) -> bool:
        return (self.shares_memory and limit_of(pod, GPU_MEMORY) > 0) or (
            self.assigns_numbers and limit_of(pod, GPU_NUMBER) > 0
        )

    def _plain_shares(self, pod: Pod, node: str) -> list[CardShare]:
        """The first card with enough memory, or this number of unused cards."""
        cards = self._plain_cards[node]
        if self.shares_memory:
            wanted = limit_of(pod, GPU_MEMORY)
            fitting = [card for card in cards if card.memory - card.used_memory >= wanted]
            return [CardShare(fitting[0].index, wanted)] if fitting else []
        count, idle = limit_of(pod, GPU_NUMBER), [card for card in cards if not card.pods]
        return [CardShare(card.index) for card in idle[:count]] if len(idle) >= count else []

    def _allocate(self, task: TaskInfo) -> None:
        pod, node = task.pod, task.node_name
        if self._plain_cards.get(node) and self._requests_plain_gpu(pod):
            named = [CardShare(index, limit_of(pod, GPU_MEMORY)) for index in gpu_indices(pod)]
            _add_pod(self._plain_cards[node], pod, named or self._plain_shares(pod, node))
        if self._vgpu_cards.get(node) and vgpu_requests(pod):
            choice = self._choose_cards(pod, node)
            _add_pod(
                self._vgpu_cards[node],
                pod,
                assigned_shares(pod, self._vgpu_cards[node]) or (choice[0] if choice else []),
            )

    def _deallocate(self, task: TaskInfo) -> None:
        for cards in (self._plain_cards.get(task.node_name, ()), self._vgpu_cards.get(task.node_name, ())):
            for card in cards:
                card.pods = {key: held for key, held in card.pods.items() if held[0].key != task.key}


def _add_pod(cards: Sequence[Card], pod: Pod, shares: Sequence[CardShare]) -> None:
    known = {card.index: card for card in cards}
    for number, share in enumerate(shares):
        if share.index in known:
            known[share.index].pods[f"{pod.key}/{number}"] = (pod, share)


def parse_exclusive_rules(given: object) -> list[ExclusiveRule]:
    """Parse the rules, each a set of labels: pods with all of them never share a card. Invalid ones are left out."""
    listed = given if isinstance(given, list) else []
    rules = [
        {key: value for key, value in one.items() if isinstance(key, str) and isinstance(value, str)}
        for one in listed
        if isinstance(one, Mapping)
    ]
    return [rule for rule in rules if rule]


def matching_rules(pod: Pod, rules: Sequence[ExclusiveRule]) -> list[int]:
    """Indices of the rules whose labels the pod has, all of them."""
    return [number for number, rule in enumerate(rules) if rule.items() <= pod.labels.items()]

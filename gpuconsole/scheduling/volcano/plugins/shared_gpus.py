"""GPU cards that pods share by memory and cores, as Volcano's device plugins count them."""

from collections.abc import Collection, Iterable, Mapping, Sequence

from msgspec import Struct

from gpuconsole.model.cluster import Node, Pod
from gpuconsole.model.pod_template import Container
from gpuconsole.scheduling.volcano.api.labels import group_of
from gpuconsole.scheduling.volcano.plugins.mig_groups import MigGroup, MigInstance, MigModel, groups_of, pick

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
    """A pod's part of one card; cores in percent."""

    index: int
    memory: int = 0
    cores: int = 0
    instance: MigInstance | None = None
    """The pod's MIG instance, if the card is divided."""


class CardRequest(Struct, frozen=True):
    """One container's request: a number of cards, with memory and cores (percent) of each."""

    cards: int
    memory: int = 0
    percentage: int | None = None
    """Percentage of the card's memory, which replaces `memory`; None if that counts."""
    cores: int = 0


class Card:
    """One physical GPU. Mutates as pods come and go."""

    def __init__(
        self,
        index: int,
        memory: int,
        most: int = 1,
        kind: str = "",
        uuid: str = "",
        groups: tuple[MigGroup, ...] = (),
    ) -> None:
        self.index, self.memory, self.most, self.kind, self.uuid = index, memory, most, kind, uuid
        self.groups = groups
        """The groups of MIG instances that it can be divided into; empty if it is shared in software."""
        self.pods: dict[str, tuple[Pod, CardShare]] = {}
        """(pod, its part of the card) by `namespace/name/number`, as one pod can have several parts."""

    @property
    def used_memory(self) -> int:
        return sum(part.memory for _, part in self.pods.values())

    @property
    def used_cores(self) -> int:
        return sum(part.cores for _, part in self.pods.values())

    def takes(self, wish: CardRequest, pod: Pod) -> CardShare | None:
        """The pod's part of the card; None if it does not fit.

        A request for all cores needs an unused card; a card with all cores allocated takes no other pod, even one that
        requests no cores.
        """
        memory = wish.memory if wish.percentage is None else self.memory * wish.percentage // 100
        cores = self.used_cores
        alone = wish.cores == ALL_CORES and bool(self.pods)
        full = len(self.pods) >= self.most or cores + wish.cores > ALL_CORES or (cores == ALL_CORES and not wish.cores)
        if alone or full or self.memory - self.used_memory < memory or not _suits(pod, self.kind):
            return None
        if not self.groups:
            return CardShare(self.index, memory, wish.cores)
        found = pick(self.groups, [part.instance for _, part in self.pods.values() if part.instance], memory)
        return None if found is None else CardShare(self.index, found[1], wish.cores, found[0])


def _suits(pod: Pod, kind: str) -> bool:
    """True if the pod's annotations allow a card of this type."""
    if "NVIDIA" not in kind:
        return False
    for key, wanted in ((USE_TYPE, True), (NO_USE_TYPE, False)):
        if key in pod.annotations:
            named = any(part.upper() in kind.upper() for part in pod.annotations[key].split(","))
            return named is wanted
    return True


def vgpu_cards(node: Node, known: Sequence[MigModel] = ()) -> list[Card]:
    """Cards that a node registers (`uuid,number,memory,type,health,mode:`); empty if the annotation is invalid.

    In mode `mig` `known` gives their MIG groups; an unknown model is shared in software.
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
        groups = groups_of(fields[3], known) if fields[5] == MIG_MODE else ()
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
    """The cards in a pod's annotation; empty if it is missing or invalid."""
    parts = pod.annotations.get(GPU_INDEX, "").split(",")
    return tuple(map(int, parts)) if all(part.isdecimal() for part in parts) else ()


def vgpu_wishes(pod: Pod) -> list[CardRequest]:
    """The vGPU request of each container with one: by default one card, and all of its memory."""
    return [_wish(container) for container in pod.template.containers if _asks(container)]


def _asks(container: Container) -> bool:
    return VGPU_NUMBER in container.limits or VGPU_MEMORY in container.limits


def _wish(container: Container) -> CardRequest:
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


def assigned(pod: Pod, cards: Sequence[Card]) -> list[CardShare]:
    """The parts of cards in a pod's annotation (`uuid,type,memory,cores:` for each container).

    A MIG instance is `uuid[group-position]`; it has the memory of its size.
    """
    known = {card.uuid: card for card in cards}
    found = []
    for text in pod.annotations.get(VGPU_ASSIGNED, "").replace(";", ":").split(":"):
        fields = text.split(",")
        uuid, _, rest = fields[0].partition("[")
        if len(fields) == 4 and uuid in known and fields[2].isdecimal() and fields[3].isdecimal():
            instance, memory = _instance(known[uuid], rest.rstrip("]"), int(fields[2]))
            found.append(CardShare(known[uuid].index, memory, int(fields[3]), instance))
    return found


def _instance(card: Card, text: str, asked: int) -> tuple[MigInstance | None, int]:
    """The MIG instance that an annotation names, and its memory; otherwise None, and the memory `asked`."""
    name, _, position = text.partition("-")
    group = next((one for one in card.groups if one.name == name), None)
    size = group.size_at(int(position)) if group is not None and position.isdecimal() else None
    return ((name, int(position)), size.memory) if size is not None else (None, asked)


def choose(
    pod: Pod, cards: Sequence[Card], policy: str, reserved: Collection[int] = ()
) -> tuple[list[CardShare], float] | None:
    """Cards for each container in turn, and the score; None if the pod does not fit.

    `binpack` tries the cards with the most used memory first, `spread` those with the fewest pods, otherwise the last
    come first. Reserved cards are left out and, with the pod's group policy `spread`, those with another pod of its
    PodGroup.
    """
    trial = {card.index: _copy(card) for card in cards}
    group = group_of(pod) if pod.annotations.get(VGPU_GROUP_POLICY) == "spread" else ""
    parts: list[CardShare] = []
    score = 0.0
    for number, wish in enumerate(vgpu_wishes(pod)):
        left = wish.cards
        for index in _order(trial, policy):
            card = trial[index]
            if not left:
                break
            if index in reserved or (group and any(group_of(other) == group for other, _ in card.pods.values())):
                continue
            part = card.takes(wish, pod)
            if part is None:
                continue
            score += _score(card, part, policy)
            card.pods[f"{pod.key}/{number}"] = (pod, part)
            parts.append(part)
            left -= 1
        if left:
            return None
    return parts, score


def _copy(card: Card) -> Card:
    twin = Card(card.index, card.memory, card.most, card.kind, card.uuid, card.groups)
    twin.pods = dict(card.pods)
    return twin


def _order(cards: Mapping[int, Card], policy: str) -> Iterable[int]:
    if policy == "binpack":
        return sorted(cards, key=lambda index: (-cards[index].used_memory, index))
    if policy == "spread":
        return sorted(cards, key=lambda index: (len(cards[index].pods), index))
    return sorted(cards, reverse=True)


def _score(card: Card, part: CardShare, policy: str) -> float:
    """How full the card's memory is with the pod, in percent (binpack).

    Upstream's spread never scores a card that is taken.
    """
    return 100 * (card.used_memory + part.memory) / card.memory if policy == "binpack" and card.memory else 0.0

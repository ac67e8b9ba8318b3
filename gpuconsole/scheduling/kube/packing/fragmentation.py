"""GPU fragmentation as FGD measures it: how much of a node's idle GPU capacity typical pods cannot use.

For one typical pod, all idle milli of a node is fragment if the pod has no GPU or the node does not fit it (model, cpu,
or fewer GPUs with enough left than it requests); otherwise only what is left of GPUs with too little for it. F(n) is
the mean over the typical pods, by frequency. Memory does not count.

Typical pods: the most frequent demands of a workload's pods, with their number.

As in the simulator's GetTypicalPods with the paper's settings: demands differ by cpu, GPUs, milli and models (not by
memory), the most frequent are taken until they make up 95% of the pods, and pods without GPUs count.

Free capacity of a node by GPU, and the demand of a pod: the inputs of every packing policy.
"""

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cached_property
from itertools import accumulate
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

MILLI = 1000
"""Milli of a whole GPU."""
NO_GPU = "no-gpu"
SHARED_GPU = "share-gpu"


class PodDemand(Struct, frozen=True, kw_only=True):
    """Requests of a pod: cpu in milli, memory in the unit of the capacity, and `milli` of each of its GPUs.

    Only a pod with a single GPU may ask for part of it.
    """

    cpu: int
    memory: int = 0
    gpus: int = 0
    milli: int = 0
    models: tuple[str, ...] = ()
    """Accepted GPU models, compared as written; empty accepts any."""

    @property
    def shared(self) -> bool:
        """True if the pod requests part of one GPU."""
        return self.gpus == 1 and self.milli < MILLI

    @property
    def total(self) -> int:
        """Milli of all its GPUs together."""
        return self.gpus * self.milli

    @property
    def kind(self) -> str:
        """The class that GPU clustering distinguishes: by the number of GPUs, and shared GPUs separately."""
        if not self.gpus:
            return NO_GPU
        return SHARED_GPU if self.shared else f"{self.gpus}-gpu"


class FreeCapacity(Struct, frozen=True, dict=True):
    """Free cpu, memory and GPU capacity of a node."""

    cpu: int
    memory: int
    gpus: tuple[int, ...] = ()
    """Milli left of each GPU, by index."""
    model: str = ""
    """The model of its GPUs; empty without any."""
    kinds: frozenset[str] = frozenset()
    """Kinds of the pods with GPUs on the node (`PodDemand.kind`)."""

    @cached_property
    def idle(self) -> int:
        """Milli left of all GPUs together."""
        return sum(self.gpus)

    @cached_property
    def ordered(self) -> tuple[int, ...]:
        """Milli left of each GPU, the least first."""
        return tuple(sorted(self.gpus))

    @property
    def free(self) -> int:
        """How many GPUs are wholly free."""
        return self.gpus.count(MILLI)


def suits(model: str, models: tuple[str, ...]) -> bool:
    """True if the pod accepts GPUs of this model."""
    return not models or model in models


def fits(room: FreeCapacity, demand: PodDemand) -> bool:
    """True if the pod fits the node: model, cpu, memory, and enough GPUs with enough left of each."""
    if room.cpu < demand.cpu or room.memory < demand.memory:
        return False
    count = demand.gpus
    if not count:
        return True
    # If the GPU with the `count`-th most left has enough, those with more have, too.
    return len(room.gpus) >= count and room.ordered[-count] >= demand.milli and suits(room.model, demand.models)


def whole(room: FreeCapacity, count: int) -> tuple[int, ...]:
    """Indices of the first `count` wholly free GPUs; fewer if there are not enough."""
    return tuple(index for index, left in enumerate(room.gpus) if left == MILLI)[:count]


def tightest(room: FreeCapacity, demand: PodDemand) -> tuple[int, ...]:
    """GPUs by best fit: for a shared GPU the one with the least sufficient rest, the first on ties; else whole ones."""
    if not demand.shared:
        return whole(room, demand.gpus)
    return (room.gpus.index(min(left for left in room.gpus if left >= demand.milli)),)


POPULAR = 95
"""Percent of all pods that the typical ones make up at least."""

Typical: TypeAlias = tuple[tuple[PodDemand, int], ...]
"""(demand, how many pods have it), the most frequent first."""


def typical(demands: Iterable[PodDemand] | Mapping[PodDemand, int]) -> Typical:
    """The typical pods among these; a mapping gives the number of pods by demand."""
    counts: Counter[PodDemand] = Counter()
    for demand, count in Counter(demands).items():
        counts[replace(demand, memory=0)] += count
    ranked = sorted(counts.items(), key=_rank, reverse=True)
    total, reached, chosen = sum(counts.values()), 0, 0
    while reached * 100 < POPULAR * total:
        reached += ranked[chosen][1]
        chosen += 1
    return tuple(ranked[:chosen])


def _rank(entry: tuple[PodDemand, int]) -> tuple[int, int, int, int, str]:
    demand, count = entry
    return (count, demand.cpu, demand.milli, demand.gpus, "|".join(demand.models))


_REMEMBERED = 200_000

Steps = tuple[list[int], list[int]]
"""(cpu from which on each further typical pod fits, fragment in milli × pods below the first and from each on)."""


class Fragmentation:
    """Measures the fragmentation of free capacity against typical pods. Mutates, but only as a cache.

    Amounts are exact integers: milli summed over the typical pods. Divided by `weight` they are F(n) in milli.
    """

    def __init__(self, pods: Typical) -> None:
        self.weight = max(1, sum(count for _, count in pods))
        """Number of typical pods that F(n) is a mean over, at least 1."""
        self._pods = sorted(((pod, count) for pod, count in pods if pod.gpus), key=lambda entry: entry[0].cpu)
        self._equal_models: dict[str, int] = {}
        self._classes: dict[tuple[int, ...], int] = {}
        self._suited: list[list[tuple[int, int, int, int]]] = []
        self._steps: dict[tuple[int, tuple[int, ...]], Steps] = {}

    def of(self, room: FreeCapacity) -> float:
        """F(n): fragmented milli of the node's idle GPUs."""
        return self.amount(room.model, room.cpu, room.ordered) / self.weight

    def amount(self, model: str, cpu: int, ordered: tuple[int, ...]) -> int:
        """F(n) × `weight` of a node with this free cpu; `ordered` has the milli left of each GPU, the least first."""
        equal_pods = self._equal_models.get(model)
        if equal_pods is None:
            equal_pods = self._class(model)
        steps = self._steps.get((equal_pods, ordered))
        if steps is None:
            steps = self._find(equal_pods, ordered)
        return steps[1][bisect_right(steps[0], cpu)]

    def _class(self, model: str) -> int:
        """A number for the model; models that the same typical pods can use share one."""
        suited = tuple(n for n, (pod, _) in enumerate(self._pods) if suits(model, pod.models))
        number = self._classes.setdefault(suited, len(self._classes))
        if number == len(self._suited):
            chosen = [self._pods[n] for n in suited]
            self._suited.append([(pod.cpu, pod.gpus, pod.milli, count) for pod, count in chosen])
        self._equal_models[model] = number
        return number

    def _find(self, equal_pods: int, ordered: tuple[int, ...]) -> Steps:
        if len(self._steps) >= _REMEMBERED:
            self._steps.clear()
        below = [0, *accumulate(ordered)]
        idle, number = below[-1], len(ordered)
        cpus: list[int] = []
        useless = [idle * self.weight]
        for cpu, gpus, milli, count in self._suited[equal_pods]:
            first = bisect_left(ordered, milli)
            if number - first >= gpus:
                cpus.append(cpu)
                useless.append(useless[-1] - count * (idle - below[first]))
        steps = self._steps[equal_pods, ordered] = (cpus, useless)
        return steps

"""Packing policies by name: how each scores a node's free capacity and chooses GPUs on the node.

The higher the score the better; call them only if the pod fits. Integer and floating-point steps follow the simulator's
Go code.

FGD (Fragmentation Gradient Descent) places a pod where it adds least to GPU fragmentation: the part of a node's idle
GPU capacity that typical pods cannot use. For one typical pod, all idle milli of a node is fragment if the pod has no
GPU or the node does not fit it (model, cpu, or fewer GPUs with enough left than it requests); otherwise only what is
left of GPUs with too little for it. F(n) is the mean over the typical pods, by frequency. Memory does not count.
"""

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from itertools import accumulate
from math import exp
from random import Random
from typing import Literal, TypeAlias

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
        """True if the pod requests only part of one GPU."""
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


def accepts_model(model: str, models: tuple[str, ...]) -> bool:
    """True if the pod accepts GPUs of this model."""
    return not models or model in models


def fits(capacity: FreeCapacity, demand: PodDemand) -> bool:
    """True if the pod fits the node: model, cpu, memory, and enough GPUs with enough left of each."""
    if capacity.cpu < demand.cpu or capacity.memory < demand.memory:
        return False
    count = demand.gpus
    if not count:
        return True
    # If the GPU with the `count`-th most left has enough, those with more have, too.
    return (
        len(capacity.gpus) >= count
        and capacity.ordered[-count] >= demand.milli
        and accepts_model(capacity.model, demand.models)
    )


def first_free_gpus(capacity: FreeCapacity, count: int) -> tuple[int, ...]:
    """Indices of the first `count` wholly free GPUs of a node; fewer if there are not enough."""
    return tuple(index for index, left in enumerate(capacity.gpus) if left == MILLI)[:count]


def best_fit_gpus(capacity: FreeCapacity, demand: PodDemand) -> tuple[int, ...]:
    """GPU indices by best fit: for part of a GPU, the one with the least sufficient rest, else whole GPUs."""
    if not demand.shared:
        return first_free_gpus(capacity, demand.gpus)
    return (capacity.gpus.index(min(left for left in capacity.gpus if left >= demand.milli)),)


TYPICAL_PERCENT = 95
"""Percent of all pods that the typical pods make up at least."""

TypicalPods: TypeAlias = tuple[tuple[PodDemand, int], ...]
"""(demand, how many pods have it), the most frequent first."""


def typical_pods_of(demands: Iterable[PodDemand] | Mapping[PodDemand, int]) -> TypicalPods:
    """The typical pods among these; a mapping gives the number of pods by demand.

    As in the simulator's GetTypicalPods with the paper's settings: demands differ by cpu, GPUs, milli and models (not
    by memory), the most frequent are taken until they make up 95% of the pods, and pods without GPUs count.
    """
    counts: Counter[PodDemand] = Counter()
    for demand, count in Counter(demands).items():
        counts[replace(demand, memory=0)] += count
    ranked = sorted(counts.items(), key=_frequency_rank, reverse=True)
    total, reached, chosen = sum(counts.values()), 0, 0
    while reached * 100 < TYPICAL_PERCENT * total:
        reached += ranked[chosen][1]
        chosen += 1
    return tuple(ranked[:chosen])


def _frequency_rank(entry: tuple[PodDemand, int]) -> tuple[int, int, int, int, str]:
    demand, count = entry
    return (count, demand.cpu, demand.milli, demand.gpus, "|".join(demand.models))


_MAX_CACHED = 200_000

Steps = tuple[list[int], list[int]]
"""(cpu from which on each further typical pod fits, fragment in milli × pods below the first and from each on)."""


class Fragmentation:
    """Measures the fragmentation of free capacity against typical pods. Mutates, but only as a cache.

    Amounts are exact integers: milli summed over the typical pods. Divided by `weight` they are F(n) in milli.
    """

    def __init__(self, pods: TypicalPods) -> None:
        self.weight = max(1, sum(count for _, count in pods))
        """Number of typical pods that F(n) is a mean over, at least 1."""
        self._pods = sorted(((pod, count) for pod, count in pods if pod.gpus), key=lambda entry: entry[0].cpu)
        self._equal_models: dict[str, int] = {}
        self._classes: dict[tuple[int, ...], int] = {}
        self._usable_by: list[list[tuple[int, int, int, int]]] = []
        self._steps: dict[tuple[int, tuple[int, ...]], Steps] = {}

    def of(self, capacity: FreeCapacity) -> float:
        """F(n): fragmented milli of the node's idle GPUs."""
        return self.amount(capacity.model, capacity.cpu, capacity.ordered) / self.weight

    def amount(self, model: str, cpu: int, ordered: tuple[int, ...]) -> int:
        """F(n) × `weight` of a node with this free cpu; `ordered` has the milli left of each GPU, the least first."""
        equal_pods = self._equal_models.get(model)
        if equal_pods is None:
            equal_pods = self._class(model)
        steps = self._steps.get((equal_pods, ordered))
        if steps is None:
            steps = self._fragment_steps(equal_pods, ordered)
        return steps[1][bisect_right(steps[0], cpu)]

    def _class(self, model: str) -> int:
        """A number for the model; models that the same typical pods can use share one."""
        suited = tuple(n for n, (pod, _) in enumerate(self._pods) if accepts_model(model, pod.models))
        number = self._classes.setdefault(suited, len(self._classes))
        if number == len(self._usable_by):
            chosen = [self._pods[n] for n in suited]
            self._usable_by.append([(pod.cpu, pod.gpus, pod.milli, count) for pod, count in chosen])
        self._equal_models[model] = number
        return number

    def _fragment_steps(self, equal_pods: int, ordered: tuple[int, ...]) -> Steps:
        if len(self._steps) >= _MAX_CACHED:
            self._steps.clear()
        below = [0, *accumulate(ordered)]
        idle, number = below[-1], len(ordered)
        cpus: list[int] = []
        useless = [idle * self.weight]
        for cpu, gpus, milli, count in self._usable_by[equal_pods]:
            first = bisect_left(ordered, milli)
            if number - first >= gpus:
                cpus.append(cpu)
                useless.append(useless[-1] - count * (idle - below[first]))
        steps = self._steps[equal_pods, ordered] = (cpus, useless)
        return steps


MAX_SCORE = 100
MAX_NODE_CPU = 128_000
"""milli-CPU of the largest node of the paper's cluster; cpu is measured as a share of it, GPUs of `MAX_NODE_GPUS`."""
MAX_NODE_GPUS = 8_000


def best_fit(capacity: FreeCapacity, demand: PodDemand) -> int:
    """Score that is higher the less is left: ⌊100 · (1 − ½ · cpu left / 128 − ½ · GPUs left / 8)⌋ (best_fit_score.go).

    The simulator stretches the scores to 0 … 100 afterwards, which keeps their order.
    """
    unused = 0.0
    unused += (capacity.cpu - demand.cpu) / MAX_NODE_CPU * 0.5
    unused += (capacity.idle - demand.total) / MAX_NODE_GPUS * 0.5
    return int((1.0 - unused) * MAX_SCORE)


def dot_product(capacity: FreeCapacity, demand: PodDemand) -> int:
    """Score that is higher the smaller the dot product of free capacity and requests (dot_product_score.go).

    Its dimensions are cpu and all GPUs together, as shares of the largest node (dimExtMethod merge, normMethod max).
    """
    product = 0.0
    product += capacity.cpu / MAX_NODE_CPU * (demand.cpu / MAX_NODE_CPU)
    product += capacity.idle / MAX_NODE_GPUS * (demand.total / MAX_NODE_GPUS)
    return int(MAX_SCORE * (1 - product / 2))


def gpu_packing(capacity: FreeCapacity, demand: PodDemand) -> int:
    """Score that prefers shared GPUs, then free GPUs of a node in use, then an unused node (gpu_packing_score.go).

    100 − a tenth of the percent left on the GPUs in use, at least 50; 50 − the wholly free GPUs that it takes, at least
    33; 33 − the GPUs of the free node, at least their number. 0 for a pod without GPUs.
    """
    if not demand.gpus:
        return 0
    free = capacity.free
    if free == len(capacity.gpus):
        return max(MAX_SCORE // 3 - free, free)
    enough = [left for left in capacity.ordered if left >= demand.milli][: demand.gpus]
    opened = enough.count(MILLI)
    if opened:
        return max(MAX_SCORE // 2 - opened, MAX_SCORE // 3)
    return max(MAX_SCORE - sum(left * 100 // MILLI for left in enough) // 10, MAX_SCORE // 2)


def gpu_clustering(capacity: FreeCapacity, demand: PodDemand) -> int:
    """Score that keeps pods of one kind together (gpu_clustering_score.go). 0 for a pod without GPUs.

    Four bands of 25, in each the fuller node first: nodes with only this kind, with this kind and others, empty, with
    only others.
    """
    kind = demand.kind
    if kind == NO_GPU:
        return 0
    fullness = MAX_SCORE // 4 * max(0, MAX_NODE_GPUS - capacity.idle) // MAX_NODE_GPUS
    if kind in capacity.kinds:
        return fullness + MAX_SCORE * (3 if len(capacity.kinds) == 1 else 2) // 4
    return fullness + (0 if capacity.kinds else MAX_SCORE // 4)


def fgd_score(capacity: FreeCapacity, demand: PodDemand, measure: Fragmentation) -> int:
    """Score by the change of fragmentation that the pod causes: 50 for no change, more for a decrease.

    ⌊100 · sigmoid((F before − F after) / 1000)⌋; a pod that shares a GPU is tried on each of them (fgd_score.go).
    """
    before = measure.amount(capacity.model, capacity.cpu, capacity.ordered)
    if demand.shared:
        return max(
            _fgd_score_of(measure, before, after) for _, after in _fragmentation_by_gpu(capacity, demand, measure)
        )
    return _fgd_score_of(
        measure,
        before,
        measure.amount(capacity.model, capacity.cpu - demand.cpu, _without_free_gpus(capacity, demand.gpus)),
    )


def fgd_choose(capacity: FreeCapacity, demand: PodDemand, measure: Fragmentation) -> tuple[int, ...]:
    """The GPUs for a pod: for part of a GPU, the one with the highest FGD score, the first on ties; else by index."""
    if not demand.shared:
        return first_free_gpus(capacity, demand.gpus)
    before = measure.amount(capacity.model, capacity.cpu, capacity.ordered)
    scores = {
        left: _fgd_score_of(measure, before, after) for left, after in _fragmentation_by_gpu(capacity, demand, measure)
    }
    best = max(scores.values())
    return (next(index for index, left in enumerate(capacity.gpus) if scores.get(left) == best),)


def _fragmentation_by_gpu(capacity: FreeCapacity, demand: PodDemand, measure: Fragmentation) -> list[tuple[int, int]]:
    """(milli left of a GPU, F × weight with the pod on it); GPUs with equal milli left need only one trial."""
    cpu, milli, ordered = capacity.cpu - demand.cpu, demand.milli, capacity.ordered
    trials = []
    for place, left in enumerate(ordered):
        if left >= milli and (not place or ordered[place - 1] != left):
            after = list(ordered)
            after[place] = left - milli
            after.sort()
            trials.append((left, measure.amount(capacity.model, cpu, tuple(after))))
    return trials


def _without_free_gpus(capacity: FreeCapacity, count: int) -> tuple[int, ...]:
    """Milli left of the GPUs in rising order after `count` whole GPUs are taken, which must be available."""
    return (0,) * count + capacity.ordered[: len(capacity.ordered) - count] if count else capacity.ordered


def _fgd_score_of(measure: Fragmentation, before: int, after: int) -> int:
    return int(MAX_SCORE / (1 + exp((after - before) / (measure.weight * MILLI))))


PolicyName = Literal["random", "dot-product", "gpu-clustering", "gpu-packing", "best-fit", "fgd"]


class Policy(Struct, frozen=True, kw_only=True):
    """A packing policy: a score of nodes and a choice of GPUs. Both apply only to nodes that fit the pod."""

    score: Callable[[FreeCapacity, PodDemand, Fragmentation], int]
    """The score of a node for a pod; the higher the better."""
    choose: Callable[[FreeCapacity, PodDemand, Fragmentation, Random], tuple[int, ...]]
    """Indices of the GPUs that a pod gets on a node."""
    is_random: bool = False
    """True if the node is drawn at random from all that fit the pod, so that `score` is not used."""


def _capacity_policy(score: Callable[[FreeCapacity, PodDemand], int]) -> Policy:
    """A policy that depends on free capacity alone and assigns GPUs by best fit."""
    return Policy(
        score=lambda capacity, demand, measure: score(capacity, demand),
        choose=lambda capacity, demand, measure, random: best_fit_gpus(capacity, demand),
    )


def _random_gpus(capacity: FreeCapacity, demand: PodDemand, measure: Fragmentation, random: Random) -> tuple[int, ...]:
    if not demand.shared:
        return first_free_gpus(capacity, demand.gpus)
    return (random.choice([index for index, left in enumerate(capacity.gpus) if left >= demand.milli]),)


POLICIES: Mapping[PolicyName, Policy] = {
    "random": Policy(score=lambda capacity, demand, measure: 0, choose=_random_gpus, is_random=True),
    "dot-product": _capacity_policy(dot_product),
    "gpu-clustering": _capacity_policy(gpu_clustering),
    "gpu-packing": _capacity_policy(gpu_packing),
    "best-fit": _capacity_policy(best_fit),
    "fgd": Policy(
        score=fgd_score, choose=lambda capacity, demand, measure, random: fgd_choose(capacity, demand, measure)
    ),
}

"""Packing policies by name: how each scores a node's free capacity and chooses GPUs on the node.

The policies that FGD is compared with, as scores: best-fit, dot-product, GPU packing, GPU clustering.

The higher the better; call them only if the pod fits. Integer and floating-point steps follow the simulator's Go code.

Fragmentation Gradient Descent: places the pod where it adds least to GPU fragmentation.

⌊100 · sigmoid((F before − F after) / 1000)⌋; a pod that shares a GPU is tried on each of them (fgd_score.go).
"""

from collections.abc import Callable, Mapping
from math import exp
from random import Random
from typing import Literal

from msgspec import Struct

from gpuconsole.scheduling.kube.packing.fragmentation import (
    MILLI,
    NO_GPU,
    Fragmentation,
    FreeCapacity,
    PodDemand,
    tightest,
    whole,
)

MAX_SCORE = 100
MOST_CPU = 128_000
"""milli-CPU of the largest node of the paper's cluster; cpu is measured as a share of it, GPUs of `MOST_GPU`."""
MOST_GPU = 8_000


def best_fit(room: FreeCapacity, demand: PodDemand) -> int:
    """Higher the less is left with the pod: ⌊100 · (1 − ½ · cpu left / 128 − ½ · GPUs left / 8)⌋ (best_fit_score.go).

    The simulator stretches the scores to 0 … 100 afterwards, which keeps their order.
    """
    unused = 0.0
    unused += (room.cpu - demand.cpu) / MOST_CPU * 0.5
    unused += (room.idle - demand.total) / MOST_GPU * 0.5
    return int((1.0 - unused) * MAX_SCORE)


def dot_product(room: FreeCapacity, demand: PodDemand) -> int:
    """Higher the smaller the dot product of free capacity and requests (dot_product_score.go).

    Its dimensions are cpu and all GPUs together, as shares of the largest node (dimExtMethod merge, normMethod max).
    """
    product = 0.0
    product += room.cpu / MOST_CPU * (demand.cpu / MOST_CPU)
    product += room.idle / MOST_GPU * (demand.total / MOST_GPU)
    return int(MAX_SCORE * (1 - product / 2))


def gpu_packing(room: FreeCapacity, demand: PodDemand) -> int:
    """Shared GPUs first, then free GPUs of a node in use, then a free node (gpu_packing_score.go).

    100 − a tenth of the percent left on the GPUs in use, at least 50; 50 − the wholly free GPUs that it takes, at
    least 33; 33 − the GPUs of the free node, at least their number. 0 for a pod without GPUs.
    """
    if not demand.gpus:
        return 0
    free = room.free
    if free == len(room.gpus):
        return max(MAX_SCORE // 3 - free, free)
    enough = [left for left in room.ordered if left >= demand.milli][: demand.gpus]
    opened = enough.count(MILLI)
    if opened:
        return max(MAX_SCORE // 2 - opened, MAX_SCORE // 3)
    return max(MAX_SCORE - sum(left * 100 // MILLI for left in enough) // 10, MAX_SCORE // 2)


def gpu_clustering(room: FreeCapacity, demand: PodDemand) -> int:
    """Pods of one kind together (gpu_clustering_score.go). 0 for a pod without GPUs.

    Four bands of 25, in each the fuller node first: nodes with this kind alone, with others too, empty, with others.
    """
    kind = demand.kind
    if kind == NO_GPU:
        return 0
    fullness = MAX_SCORE // 4 * max(0, MOST_GPU - room.idle) // MOST_GPU
    if kind in room.kinds:
        return fullness + MAX_SCORE * (3 if len(room.kinds) == 1 else 2) // 4
    return fullness + (0 if room.kinds else MAX_SCORE // 4)


def fgd_score(room: FreeCapacity, demand: PodDemand, measure: Fragmentation) -> int:
    """Score by the change of fragmentation that the pod causes: 50 for no change, more for a decrease."""
    before = measure.amount(room.model, room.cpu, room.ordered)
    if demand.shared:
        return max(_descent(measure, before, after) for _, after in _trials(room, demand, measure))
    return _descent(measure, before, measure.amount(room.model, room.cpu - demand.cpu, _without(room, demand.gpus)))


def fgd_choose(room: FreeCapacity, demand: PodDemand, measure: Fragmentation) -> tuple[int, ...]:
    """The GPU with the highest score, the lowest index among equals; whole GPUs by index."""
    if not demand.shared:
        return whole(room, demand.gpus)
    before = measure.amount(room.model, room.cpu, room.ordered)
    scores = {left: _descent(measure, before, after) for left, after in _trials(room, demand, measure)}
    best = max(scores.values())
    return (next(index for index, left in enumerate(room.gpus) if scores.get(left) == best),)


def _trials(room: FreeCapacity, demand: PodDemand, measure: Fragmentation) -> list[tuple[int, int]]:
    """(milli left of a GPU, F × weight with the pod on it); GPUs with equal milli left need only one trial."""
    cpu, milli, ordered = room.cpu - demand.cpu, demand.milli, room.ordered
    trials = []
    for place, left in enumerate(ordered):
        if left >= milli and (not place or ordered[place - 1] != left):
            after = list(ordered)
            after[place] = left - milli
            after.sort()
            trials.append((left, measure.amount(room.model, cpu, tuple(after))))
    return trials


def _without(room: FreeCapacity, count: int) -> tuple[int, ...]:
    """Milli left of the GPUs in rising order after `count` whole GPUs are taken, which must be available."""
    return (0,) * count + room.ordered[: len(room.ordered) - count] if count else room.ordered


def _descent(measure: Fragmentation, before: int, after: int) -> int:
    return int(MAX_SCORE / (1 + exp((after - before) / (measure.weight * MILLI))))


Name = Literal["random", "dot-product", "gpu-clustering", "gpu-packing", "best-fit", "fgd"]


class Policy(Struct, frozen=True, kw_only=True):
    """A packing policy. Call it only for capacity that fits the demand."""

    score: Callable[[FreeCapacity, PodDemand, Fragmentation], int]
    """The higher the better."""
    choose: Callable[[FreeCapacity, PodDemand, Fragmentation, Random], tuple[int, ...]]
    """Indices of the GPUs that the pod gets there."""
    draws: bool = False
    """The node is drawn at random from all that fit the pod; `score` is not used."""


def _by_room(score: Callable[[FreeCapacity, PodDemand], int]) -> Policy:
    """A policy that depends on free capacity alone and assigns GPUs by best fit."""
    return Policy(
        score=lambda room, demand, measure: score(room, demand),
        choose=lambda room, demand, measure, chance: tightest(room, demand),
    )


def _any_gpu(room: FreeCapacity, demand: PodDemand, measure: Fragmentation, chance: Random) -> tuple[int, ...]:
    if not demand.shared:
        return whole(room, demand.gpus)
    return (chance.choice([index for index, left in enumerate(room.gpus) if left >= demand.milli]),)


POLICIES: Mapping[Name, Policy] = {
    "random": Policy(score=lambda room, demand, measure: 0, choose=_any_gpu, draws=True),
    "dot-product": _by_room(dot_product),
    "gpu-clustering": _by_room(gpu_clustering),
    "gpu-packing": _by_room(gpu_packing),
    "best-fit": _by_room(best_fit),
    "fgd": Policy(score=fgd_score, choose=lambda room, demand, measure, chance: fgd_choose(room, demand, measure)),
}

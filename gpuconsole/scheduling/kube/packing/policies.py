"""Packing policies by name: how each scores a node's free capacity and chooses GPUs on the node."""

from collections.abc import Callable, Mapping
from random import Random
from typing import Literal

from msgspec import Struct

from gpuconsole.scheduling.kube.packing import fgd, scores
from gpuconsole.scheduling.kube.packing.fragmentation import Fragmentation
from gpuconsole.scheduling.kube.packing.free_capacity import FreeCapacity, PodDemand, tightest, whole

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
    "dot-product": _by_room(scores.dot_product),
    "gpu-clustering": _by_room(scores.gpu_clustering),
    "gpu-packing": _by_room(scores.gpu_packing),
    "best-fit": _by_room(scores.best_fit),
    "fgd": Policy(
        score=fgd.fgd_score, choose=lambda room, demand, measure, chance: fgd.fgd_choose(room, demand, measure)
    ),
}

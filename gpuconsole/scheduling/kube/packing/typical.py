"""Typical pods: the most frequent demands of a workload's pods, with their number.

As in the simulator's GetTypicalPods with the paper's settings: demands differ by cpu, GPUs, milli and models (not by
memory), the most frequent are taken until they make up 95% of the pods, and pods without GPUs count.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TypeAlias

from msgspec.structs import replace

from gpuconsole.scheduling.kube.packing.free_capacity import PodDemand

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

"""Topology-aware GPU selection: uses as few NVLink domains as possible, then PCIe switches, then NUMA nodes.

Ties go to the lowest indices. Topology Manager and the device plugin's preferred allocation aim at that too.
"""

from functools import lru_cache
from itertools import combinations
from math import comb

from gpuconsole.model.cluster import Node
from gpuconsole.model.gpus.models import Groups, Wiring, wiring_of
from gpuconsole.model.gpus.sharing import replicas

_MOST_TRIED = 13_000
"""Limit of combinations, enough for 8 of 16 GPUs; with more, the first free GPUs are taken."""


def choose_gpus(node: Node | None, free: tuple[int, ...], wanted: int) -> tuple[int, ...]:
    """Return the GPUs that a pod gets out of the free ones; fewer than `wanted` if fewer are free.

    GPUs with time-slicing or MPS replicas are taken in the given order, regardless of topology.
    """
    if node is None or not 1 < wanted < len(free) or replicas(node.labels) > 1:
        return free[:wanted]
    wiring = wiring_of(node.gpus, node.labels, node.annotations)
    return free[:wanted] if wiring is None else closest(wiring, free, wanted)


@lru_cache(maxsize=65536)
def closest(wiring: Wiring, free: tuple[int, ...], wanted: int) -> tuple[int, ...]:
    """Return the `wanted` free GPUs that are closest to each other."""
    if comb(len(free), wanted) > _MOST_TRIED:
        return free[:wanted]
    return min(combinations(free, wanted), key=lambda some: (*spread(wiring, some), some))


def spread(wiring: Wiring, gpus: tuple[int, ...]) -> tuple[int, int, int]:
    """Return the numbers of NVLink domains, PCIe switches and NUMA nodes over which the GPUs are spread."""
    return _count(wiring.nvlink, gpus), _count(wiring.switch, gpus), _count(wiring.numa, gpus)


def _count(groups: Groups, gpus: tuple[int, ...]) -> int:
    return len({groups[gpu] for gpu in gpus})

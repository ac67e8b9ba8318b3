"""Fragmentation Gradient Descent: places the pod where it adds least to GPU fragmentation.

⌊100 · sigmoid((F before − F after) / 1000)⌋; a pod that shares a GPU is tried on each of them (fgd_score.go).
"""

from math import exp

from gpuconsole.scheduling.kube.packing.fragmentation import Fragmentation
from gpuconsole.scheduling.kube.packing.free_capacity import MILLI, FreeCapacity, PodDemand, whole
from gpuconsole.scheduling.kube.packing.scores import MAX_SCORE


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

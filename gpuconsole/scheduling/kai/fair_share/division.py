"""Division of an amount over sibling queues: quotas first, then the surplus by weight and past usage.

KAI 0.13 proportion/resource_division. Each resource is divided separately.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby

from gpuconsole.scheduling.kai.api.queues import UNLIMITED
from gpuconsole.scheduling.kai.fair_share.quantities import RESOURCES
from gpuconsole.scheduling.kai.fair_share.shares import QueueShares


def divide(total: Mapping[str, float], k: float, queues: Iterable[QueueShares]) -> None:
    """Set the fair share of every queue for every resource."""
    siblings = sorted(queues, key=lambda queue: queue.uid)
    for name in RESOURCES:
        divide_resource(total.get(name, 0), k, siblings, name)


def divide_resource(total: float, k: float, queues: Sequence[QueueShares], name: str) -> float:
    """Divide one resource; returns what is left when no queue requests more."""
    rest = _give_quotas(total, queues, name)
    if rest <= 0:
        return 0
    wanting: list[dict[str, tuple[QueueShares, float]]] = []
    for band in bands(queues):
        rest, fractions = _divide_in_rounds(rest, k, band, name)
        wanting.append(fractions)
    for fractions in wanting:
        if rest <= 0:
            break
        rest = _give_single_units(rest, fractions, name)
    return rest


def _give_quotas(total: float, queues: Sequence[QueueShares], name: str) -> float:
    rest = total
    for queue in queues:
        share = queue.of[name]
        deserved = total if share.deserved == UNLIMITED else share.deserved
        amount = min(deserved, share.requestable)
        share.fair += amount
        rest -= amount
    return rest


def bands(queues: Iterable[QueueShares]) -> Iterator[list[QueueShares]]:
    """The queues of each priority, highest first."""
    falling = sorted(queues, key=lambda queue: -queue.priority)
    for _, band in groupby(falling, key=lambda queue: queue.priority):
        yield list(band)


def _divide_in_rounds(
    total: float, k: float, queues: Sequence[QueueShares], name: str
) -> tuple[float, dict[str, tuple[QueueShares, float]]]:
    """Divide by weight in rounds until no queue gets its full request; returns the rest, and by queue the fractions
    that were cut off.
    """
    fractions: dict[str, tuple[QueueShares, float]] = {}
    again = True
    while again and total != 0:
        again, budget = False, total
        weights = _weights(queues, name, k)
        weight_sum = sum(weights.values())
        if weight_sum == 0:
            break
        for queue in queues:
            share = queue.of[name]
            if total == 0:
                break
            if share.satisfied or share.weight == 0:
                continue
            wanted = _wanted(queue, name)
            fair = budget * (weights[queue.uid] / weight_sum)
            amount = wanted if wanted <= fair else float(math.floor(fair))
            if wanted <= fair:
                fractions.pop(queue.uid, None)
            elif fair - amount > 0:
                fractions[queue.uid] = (queue, fair - amount)
            if amount == 0:
                continue
            share.fair += amount
            total -= amount
            again = again or wanted < fair
    return total, fractions


def _weights(queues: Sequence[QueueShares], name: str, k: float) -> dict[str, float]:
    """Weight of each unsatisfied queue: its share of all weights, corrected by its usage history."""
    total = sum(queue.of[name].weight for queue in queues if _wanted(queue, name) > 0)
    if total == 0:
        return {}
    weights = {}
    for queue in queues:
        share = queue.of[name]
        if not share.satisfied:
            part = share.weight / total
            weights[queue.uid] = max(0.0, part + k * (part - share.usage))
    return weights


def _wanted(queue: QueueShares, name: str) -> float:
    share = queue.of[name]
    return max(0.0, share.requestable - share.fair)


def _give_single_units(total: float, fractions: Mapping[str, tuple[QueueShares, float]], name: str) -> float:
    """Give single units by the largest fraction that was cut off, then to the oldest queue, then by name."""
    for queue, _ in sorted(fractions.values(), key=lambda item: (-item[1], item[0].created, item[0].uid)):
        if total == 0:
            break
        unit = min(1.0, total)
        queue.of[name].fair += unit
        total -= unit
    return total

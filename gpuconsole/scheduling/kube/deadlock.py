"""Detection of partially scheduled gangs that deadlock: each holds GPUs and needs more than is free."""

from collections import Counter
from collections.abc import Callable, Iterable

from gpuconsole.scheduling.kube.pending import PodGang
from gpuconsole.scheduling.kube.pod_classes import PodClass
from gpuconsole.scheduling.placement import HalfPlaced, PlacementDeadlock

Fitting = Callable[[PodClass, int], int]
"""How many pods of a class and a priority would fit now."""


def find_deadlock(torn: Iterable[PodGang], fitting: Fitting, free_gpus: int) -> PlacementDeadlock | None:
    """The partially scheduled gangs whose other pods do not fit; None if there are none.

    Call after each pass. With all-or-nothing gangs it happens only if a running gang lost pods that cannot be replaced.
    """
    jobs = tuple(_half_placed(gang) for gang in torn if _stuck(gang, fitting))
    return PlacementDeadlock(jobs, free_gpus) if jobs else None


def _stuck(gang: PodGang, fitting: Fitting) -> bool:
    if not sum(gang.seated.values()) or not gang.needed:
        return False
    kinds = Counter((waiter.shape, waiter.priority) for waiter in gang.waiters.values())
    places = sum(min(count, fitting(shape, priority)) for (shape, priority), count in kinds.items())
    return places < gang.needed


def _half_placed(gang: PodGang) -> HalfPlaced:
    missing = sorted((waiter.shape.gpus for waiter in gang.waiters.values()), reverse=True)[: gang.needed]
    return HalfPlaced(
        gang=gang.name,
        job=gang.job,
        placed=len(gang.seated),
        size=len(gang.seated) + gang.needed,
        gpus_held=sum(gang.seated.values()),
        gpus_missing=sum(missing),
    )

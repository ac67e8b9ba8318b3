"""Evictions that a what-if causes, by workload: direct victims, knock-on evictions, own evictions."""

from collections import Counter
from collections.abc import Container, Iterable, Sequence

from msgspec import Struct

from gpuconsole.insight.future_events import WhatIfEviction
from gpuconsole.model.clock import Time
from gpuconsole.model.device_units import WHOLE_GPU
from gpuconsole.scheduling.kueue import conditions
from gpuconsole.scheduling.kueue.workload_controller import TIME_EXCEEDED

_FOLLOWS = frozenset({conditions.PODS_READY_TIMEOUT, conditions.ADMISSION_CHECK, TIME_EXCEEDED})
"""Kueue's reasons for evictions that are never the direct effect of a change."""


class EvictedWorkload(Struct, frozen=True, kw_only=True):
    """The evictions of one workload (or lone pod) that happen in only one of the two forks."""

    workload: str
    queue: str
    gpus: int
    """The largest amount that one eviction took from it; GPUs, or what `unit` names."""
    unit: str = WHOLE_GPU.noun
    priority: int
    evictions: int
    first: Time
    last: Time
    by: tuple[str, ...]
    """Its preemptors, the most frequent first; empty where the change itself evicts it."""
    rules: tuple[str, ...]
    """In words, the most frequent first."""
    lost_gpu_hours: float
    cost: float
    """USD of the lost work."""
    returns: Time | None
    """Time at which all its pods run again after the last eviction; None if not before the horizon."""
    released: Time | None = None
    """Time of quota release after the first eviction; None if not before the horizon, or if only pods are evicted."""
    pods_gone: Time | None = None
    """Time at which the last of its pods has terminated after the first eviction; None as for `released`."""


class EvictionsByCause(Struct, frozen=True, kw_only=True):
    """Evictions by workload, split by cause."""

    direct: tuple[EvictedWorkload, ...]
    """Evicted by a change, or preempted by the requested work; in order of time."""
    knock_on: tuple[EvictedWorkload, ...]
    """Evicted by workloads that the changes displace; most lost work first."""
    own: tuple[EvictedWorkload, ...]
    """Evictions of the requested work itself."""


def evictions_by_cause(
    evictions: Iterable[WhatIfEviction], subjects: Container[str], *, only_work: bool
) -> EvictionsByCause:
    """Split evictions by cause; `subjects` are keys of the requested work and of its pods.

    With `only_work` the changes only submit work, so that no change evicts by itself. A direct victim that is evicted
    again without a preemptor, because its pods find no nodes in time, counts as a direct victim again.
    """
    hit: set[str] = set()
    direct: list[WhatIfEviction] = []
    knock_on: list[WhatIfEviction] = []
    own: list[WhatIfEviction] = []
    for one in evictions:
        if one.workload in subjects:
            own.append(one)
        elif one.by in subjects or (not one.by and (one.workload in hit or _by_change(one, only_work))):
            hit.add(one.workload)
            direct.append(one)
        else:
            knock_on.append(one)
    return EvictionsByCause(direct=by_workload(direct), knock_on=costliest_first(knock_on), own=by_workload(own))


def _by_change(one: WhatIfEviction, only_work: bool) -> bool:
    return not only_work and one.rule not in _FOLLOWS


def by_workload(evictions: Iterable[WhatIfEviction]) -> tuple[EvictedWorkload, ...]:
    """Group evictions by workload, in order of the first eviction."""
    groups: dict[str, list[WhatIfEviction]] = {}
    for one in evictions:
        groups.setdefault(one.workload, []).append(one)
    return tuple(_group(group) for group in groups.values())


def costliest_first(evictions: Iterable[WhatIfEviction]) -> tuple[EvictedWorkload, ...]:
    """Group evictions by workload, most lost GPU-hours first; a preemption loop without lost work comes last."""
    groups = by_workload(evictions)
    return tuple(sorted(groups, key=lambda one: (-one.lost_gpu_hours, -one.evictions, one.workload)))


def _group(evictions: Sequence[WhatIfEviction]) -> EvictedWorkload:
    first, last, most = evictions[0], evictions[-1], max(evictions, key=lambda one: one.gpus)
    return EvictedWorkload(
        workload=first.workload,
        queue=first.queue,
        gpus=most.gpus,
        unit=most.unit,
        priority=first.priority,
        evictions=len(evictions),
        first=first.time,
        last=last.time,
        by=_most_frequent(one.by for one in evictions if one.by),
        rules=_most_frequent(one.rule for one in evictions),
        lost_gpu_hours=sum(one.lost_gpu_hours for one in evictions),
        cost=sum(one.cost for one in evictions),
        returns=last.returns,
        released=first.released,
        pods_gone=first.pods_gone,
    )


def _most_frequent(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(name for name, _ in Counter(names).most_common())

"""Events of a what-if fork so far, with its evictions and lost work."""

from collections import Counter
from collections.abc import Iterable, Sequence

from msgspec import Struct, field

from gpuconsole.insight.preemptions import rule_in_words, subject
from gpuconsole.model.clock import Span, Time
from gpuconsole.model.device_units import ANY_DEVICE, WHOLE_GPU
from gpuconsole.model.events import HistoryEvent, HistoryEventKind

LOSSES = (HistoryEventKind.EVICTED, HistoryEventKind.POD_EVICTED, HistoryEventKind.POD_FAILED)
"""Kinds of lines about a workload or pod that lost its place."""


class WhatIfEviction(Struct, frozen=True, kw_only=True):
    """An eviction, or the loss of pods with their node, in one fork."""

    time: Time
    workload: str
    queue: str
    gpus: int
    """GPUs, or what `unit` names."""
    unit: str = WHOLE_GPU.noun
    priority: int
    by: str
    by_priority: int
    rule: str
    """In words."""
    lost_gpu_hours: float
    cost: float
    returns: Time | None
    """Time at which all its pods run again; None if not before the horizon."""
    released: Time | None = None
    """Time at which its quota is released; None if not before the horizon, or if only some of its pods are evicted."""
    pods_gone: Time | None = None
    """Time at which the last of its pods has terminated; None as for `released`."""


class EvictionTimes(Struct, kw_only=True):
    """Times of one eviction. Mutated by `Future`."""

    workload: str
    evicted: Time
    released: Time | None = None
    pods_gone: Time | None = None


class FutureEvents(Struct, kw_only=True):
    """Events of a fork since its start. Mutated by `Future`."""

    begun: Time
    lines: list[HistoryEvent] = field(default_factory=list)
    """In order, without lines that only report a pending workload."""
    admitted: dict[str, list[HistoryEvent]] = field(default_factory=dict)
    """Workload → its admissions."""
    started: dict[str, Time] = field(default_factory=dict)
    """Workload → when all its pods ran for the first time."""
    placed: dict[str, list[HistoryEvent]] = field(default_factory=dict)
    """Job or lone pod without a Workload → POD_BOUND lines of its pods."""
    withdrawn: list[EvictionTimes] = field(default_factory=list)
    """Evictions of whole workloads, in order."""
    asked: set[str] = field(default_factory=set)
    """The requested work (`subjects_of`), deleted work included."""

    def first_admission(self, key: str) -> Time | None:
        """Return the time of the first admission of a workload; None if it was not admitted."""
        lines = self.admitted.get(key)
        return lines[0].time if lines else None

    def let_in(self, key: str) -> Time | None:
        """Return the first admission; of a job without a Workload the first binding of a pod, otherwise the start."""
        admitted, placed = self.first_admission(key), self.placed.get(key)
        if admitted is None and placed:
            return placed[0].time
        return self.started.get(key) if admitted is None else admitted

    def waits(self) -> list[Span]:
        """Return the wait of each admission."""
        return [line.waited for lines in self.admitted.values() for line in lines]

    def lost(self) -> tuple[float, float]:
        """Return the lost work in GPU-hours and USD, without PREEMPTED lines, which repeat the loss of an eviction."""
        paid = [line for line in self.lines if line.what is not HistoryEventKind.PREEMPTED]
        return sum(line.lost_gpu_seconds for line in paid) / 3600, sum(line.cost for line in paid)

    def evictions(self) -> list[WhatIfEviction]:
        """Return the evictions, one per time, workload (or lone pod) and preemptor.

        A workload that loses its pods to a drain may be preempted at the same moment: that is a separate eviction.
        """
        preempted = (line for line in self.lines if line.what is HistoryEventKind.PREEMPTED)
        rules = {(line.time, subject(line), line.by): line.reason for line in preempted}
        losses: dict[tuple[Time, str, str], list[HistoryEvent]] = {}
        back: dict[tuple[Time, str, str], Time] = {}
        gone: dict[str, list[tuple[Time, str, str]]] = {}
        missing: dict[str, int | None] = {}
        """Workload with quota → number of lost pods; None for one that has to restart."""
        for line in self.lines:
            key = subject(line)
            if line.what in LOSSES:
                loss = (line.time, key, line.by)
                losses.setdefault(loss, []).append(line)
                gone.setdefault(key, []).append(loss)
                lost = missing.get(key, 0)
                missing[key] = (
                    None if (line.what is HistoryEventKind.EVICTED and not line.pod) or lost is None else lost + 1
                )
            elif line.what is HistoryEventKind.POD_BOUND and (lost := missing.get(key)):
                missing[key] = lost - 1
            if line.what is HistoryEventKind.STARTED or missing.get(key) == 0:
                back.update(dict.fromkeys(gone.pop(key, ()), line.time))
                missing.pop(key, None)
        withdrawn = {(one.evicted, one.workload): one for one in self.withdrawn}
        return [
            _victim(rules.get(loss, ""), lines, back.get(loss), withdrawn.get(loss[:2]))
            for loss, lines in losses.items()
        ]


def unit_of_lines(lines: Iterable[HistoryEvent]) -> str:
    """Return the common unit of the accelerators in these lines."""
    units = {line.unit for line in lines if line.gpus}
    return units.pop() if len(units) == 1 else ANY_DEVICE if units else WHOLE_GPU.noun


def more_evictions(course: Iterable[WhatIfEviction], other: Iterable[WhatIfEviction]) -> tuple[WhatIfEviction, ...]:
    """Return the evictions of `course` that exceed those of `other`, counted per workload and preemptor."""
    known = Counter((victim.workload, victim.by) for victim in other)
    more = []
    for victim in course:
        if known[victim.workload, victim.by]:
            known[victim.workload, victim.by] -= 1
        else:
            more.append(victim)
    return tuple(more)


def _victim(
    rule: str, lines: Sequence[HistoryEvent], returns: Time | None, withdrawn: EvictionTimes | None
) -> WhatIfEviction:
    first = lines[0]
    # The eviction of a whole workload includes pods that were evicted before it at the same moment.
    of_all = max((line.gpus for line in lines if not line.pod), default=0)
    return WhatIfEviction(
        time=first.time,
        workload=subject(first),
        queue=first.queue,
        gpus=max(of_all, sum(line.gpus for line in lines if line.pod)),
        unit=unit_of_lines(lines),
        priority=first.priority,
        by=first.by,
        by_priority=first.by_priority,
        rule=rule_in_words(rule or first.reason),
        lost_gpu_hours=sum(line.lost_gpu_seconds for line in lines) / 3600,
        cost=sum(line.cost for line in lines),
        returns=returns,
        released=withdrawn.released if withdrawn is not None else None,
        pods_gone=withdrawn.pods_gone if withdrawn is not None else None,
    )

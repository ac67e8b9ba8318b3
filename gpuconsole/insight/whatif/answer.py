"""Outcome of a what-if: differences between the changed fork and the baseline, evictions by cause, and the verdict.

Evictions are grouped by workload: direct victims, knock-on evictions, and evictions of the requested work itself. The
verdict is one sentence about the requested work and its victims.
"""

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Sequence
from itertools import groupby

from msgspec import Struct

from gpuconsole.insight.pending.reasons import PendingReason
from gpuconsole.insight.tables import counted
from gpuconsole.insight.whatif.futures import WhatIfEviction, more_evictions
from gpuconsole.model.clock import Span, Time, format_span, format_tenths
from gpuconsole.model.devices import WHOLE_GPU
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
    """Rules of its preemptions in words, the most frequent first."""
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
    evictions: Iterable[WhatIfEviction],
    subjects: Container[str],
    *,
    only_work: bool,
    without: Iterable[WhatIfEviction] = (),
) -> EvictionsByCause:
    """Split evictions by cause; `subjects` are keys of the requested work and of its pods.

    An eviction `without` the commands by another preemptor is no knock-on eviction, nor is it avoided.
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
    more = more_evictions(knock_on, more_evictions(without, direct, by_anyone=True), by_anyone=True)
    return EvictionsByCause(direct=by_workload(direct), knock_on=costliest_first(more), own=by_workload(own))


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


FEASIBLE = "feasible, nothing is reserved"
"""Qualification of every answer: the real cluster may change before the work is submitted."""


class TimeRange(Struct, frozen=True, kw_only=True):
    """Earliest and latest time of one event, over runs that differ only in controller latencies."""

    earliest: Time
    latest: Time
    times: int
    """Number of runs in which the event happens before the horizon."""
    runs: int
    """Number of compared runs, the first included."""


class WhatIfOutcome(Struct, frozen=True, kw_only=True):
    """Outcome of one requested workload, or of a job without a Workload."""

    workload: str
    queue: str
    """ClusterQueue, if any."""
    gpus: int
    """GPUs, or what `unit` names."""
    unit: str = WHOLE_GPU.noun
    priority: int
    admitted: Time | None
    """None if it is not admitted (or, without queueing, does not start) before the horizon.

    Before the fork's start for one that was admitted already and stays so.
    """
    started: Time | None
    """None while some of its pods have no node at the horizon."""
    flavors: tuple[str, ...]
    nodes: tuple[str, ...]
    """Nodes of its pods at its first start."""
    code: PendingReason
    """Why it, or some of its pods, are pending at the horizon; `not-waiting` if they are not."""
    why: str
    """The reason as a sentence; `FEASIBLE` if it was admitted and its pods have nodes."""
    text: str
    """The scheduler's own message."""
    new: bool = True
    """True if it does not exist in the baseline."""
    admitted_without: Time | None = None
    """Time of its admission in the baseline."""
    admitted_range: TimeRange | None = None
    """None if latencies are not drawn, if it was admitted before, or if no run admits it."""
    started_range: TimeRange | None = None
    """Like `admitted_range`, for `started`."""

    @property
    def lacking(self) -> str:
        """Why an admitted workload does not run completely at the horizon; empty if it does."""
        if self.code is not PendingReason.NOT_WAITING:
            return self.why.removesuffix(".")
        return "" if self.started is not None else "not all of its pods run before the horizon"

    @property
    def same(self) -> bool:
        """True if the commands do not change the outcome of this workload."""
        return not self.new and self.admitted == self.admitted_without


class StartShift(Struct, frozen=True, kw_only=True):
    """Another workload whose admission time differs between the forks (None = not before the horizon).

    For a job without a Workload it is the time of the binding of its pods.
    """

    workload: str
    queue: str
    gpus: int
    """GPUs, or what `unit` names; for a job without a Workload those of its pods that are bound at another time."""
    unit: str = WHOLE_GPU.noun
    without: Time | None
    changed: Time | None


class QueueChange(Struct, frozen=True, kw_only=True):
    """A ClusterQueue that differs between the forks: used GPUs (or what `unit` names), and % of its maximum quota.

    For a queue of Volcano or KAI, `nominal` is its deserved amount.
    """

    queue: str
    unit: str = WHOLE_GPU.noun
    used_now: int
    used_without: int
    used: int
    nominal_now: int
    nominal: int
    borrowed_now: int
    borrowed_without: int
    borrowed: int
    share_now: float
    share_without: float
    share: float


class ClosedQueue(Struct, frozen=True, kw_only=True):
    """A queue that admits no workloads at the horizon because of the commands."""

    queue: str
    why: str


class VaryingVictim(Struct, frozen=True, kw_only=True):
    """A workload that is a direct victim in some runs only, up to the start of the requested work."""

    workload: str
    queue: str
    gpus: int
    """GPUs, or what `unit` names."""
    unit: str = WHOLE_GPU.noun
    by: tuple[str, ...]
    """Its preemptors; empty where the change itself evicts it."""
    times: int
    """Number of runs in which it is evicted."""
    runs: int
    """Number of compared runs: the first, and those with other latencies that were complete."""


class WhatIf(Struct, frozen=True, kw_only=True):
    """Outcome of a what-if. `…_now` is at the fork, `…_without` in the baseline, the rest in the changed fork."""

    time: Time
    """Time of the fork."""
    compared: Time
    """Time at which GPUs and shares are compared: when all requested work runs, otherwise the horizon."""
    horizon: Time
    refused: tuple[str, ...]
    """Reasons why commands could not be applied."""
    so_already: tuple[str, ...] = ()
    """Commands without effect, as the cluster already has that state."""
    closed: tuple[ClosedQueue, ...] = ()
    """Queues that can no longer admit workloads because of the commands."""
    outcomes: tuple[WhatIfOutcome, ...]
    evictions: tuple[WhatIfEviction, ...]
    """Evictions that happen with the commands only, in order of time."""
    evictions_without: tuple[WhatIfEviction, ...]
    """Evictions that happen without the commands only, in order of time."""
    subjects: tuple[str, ...] = ()
    """Keys of the requested work, and of the pods of jobs without a Workload."""
    only_work: bool = False
    """True if the commands only submit work: they change no node, queue or setting, and stop nothing."""
    shifts: tuple[StartShift, ...]
    queues: tuple[QueueChange, ...]
    gpus_total: int
    gpus_now: int
    gpus_without: int
    gpus: int
    """GPUs in use, or what `unit` names, at the time `compared`."""
    unit: str = WHOLE_GPU.noun
    """Unit of the cluster's accelerators; `device` if there are several units."""
    latency: str = ""
    """Assumed controller latencies, in a sentence; empty if they are not drawn."""
    median_wait_without: Span | None
    """Median wait of workloads that are admitted before the horizon; None if there are none."""
    median_wait: Span | None
    lost_gpu_hours_without: float
    lost_gpu_hours: float
    cost_without: float
    cost: float
    """USD of work lost to evictions before the horizon."""
    against: tuple[WhatIfOutcome, ...] = ()
    """Outcomes of the work that the baseline's own commands request."""
    p95_wait_without: Span | None = None
    p95_wait: Span | None = None
    waiting_without: int = 0
    waiting: int = 0
    """Workloads without quota at the horizon."""
    checking_without: int = 0
    checking: int = 0
    """Workloads that hold quota at the horizon and wait for admission checks."""
    placeless_without: int = 0
    placeless: int = 0
    """Admitted workloads (jobs, pods), some of whose pods have no node at the horizon."""
    gpu_hours_without: float = 0.0
    gpu_hours: float = 0.0
    """GPU-hours held by pods before the horizon; a MIG instance or a time-slicing replica is a part of a GPU."""
    capacity_hours_without: float = 0.0
    capacity_hours: float = 0.0
    """GPU-hours of the nodes that were ready before the horizon."""
    gpus_total_without: int = 0
    gpus_total_with: int = 0
    """GPUs (or what `unit` names) of the cluster at the horizon."""
    hourly_without: float = 0.0
    hourly: float = 0.0
    """USD per hour for the GPUs of all nodes, used or not, at the horizon."""
    fairness_without: float | None = None
    fairness: float | None = None
    """Jain's index over the shares of ClusterQueues with used or requested quota, 1 = equal; None if there are none."""
    runs: int = 1
    """Number of runs behind the ranges: the first, and those with other latencies that got far enough."""
    varying_victims: tuple[VaryingVictim, ...] = ()
    """The most frequent first."""

    @property
    def victims(self) -> tuple[EvictedWorkload, ...]:
        """Workloads that the commands evict, or that the requested work preempts; in order of time."""
        return self._by_cause().direct

    @property
    def knock_on(self) -> tuple[EvictedWorkload, ...]:
        """Workloads evicted by others that the commands displace; most lost work first."""
        return self._by_cause().knock_on

    @property
    def own_evictions(self) -> tuple[EvictedWorkload, ...]:
        """Evictions of the requested work itself."""
        return self._by_cause().own

    @property
    def spared(self) -> tuple[EvictedWorkload, ...]:
        """Workloads that are evicted in the baseline only, or more often; most lost work first."""
        return costliest_first(more_evictions(self.evictions_without, self.evictions, by_anyone=True))

    def _by_cause(self) -> EvictionsByCause:
        subjects = frozenset(self.subjects)
        return evictions_by_cause(self.evictions, subjects, only_work=self.only_work, without=self.evictions_without)

    @property
    def empty(self) -> bool:
        """True if the commands make no difference."""
        return not self.refused and self._has_equal_outcomes

    @property
    def in_vain(self) -> bool:
        """True if commands were refused and nothing is different."""
        return bool(self.refused) and self._has_equal_outcomes

    @property
    def _has_equal_outcomes(self) -> bool:
        named = (self.evictions, self.evictions_without, self.shifts, self.queues, self.closed)
        is_equal = all(outcome.same for outcome in (*self.outcomes, *self.against))
        return is_equal and not any(named) and self._with() == self._without()

    def _with(self) -> tuple[object, ...]:
        waits = (self.median_wait, self.p95_wait, self.waiting, self.checking, self.placeless)
        held = (self.gpus, self.gpu_hours, self.capacity_hours)
        return *held, *waits, self.lost_gpu_hours, self.cost, self.hourly, self.gpus_total_with

    def _without(self) -> tuple[object, ...]:
        still = (self.waiting_without, self.checking_without, self.placeless_without)
        waits = (self.median_wait_without, self.p95_wait_without, *still)
        held = (self.gpus_without, self.gpu_hours_without, self.capacity_hours_without)
        lost = (self.lost_gpu_hours_without, self.cost_without)
        return *held, *waits, *lost, self.hourly_without, self.gpus_total_without


NAMED = 3
"""Maximum number of victims that the verdict names; the tables below it have all."""
PRODUCTS = ("Kueue", "Volcano")
"""Names that stay capitalized where a reason that starts with one becomes part of a sentence."""


def verdict(answer: WhatIf, within: str = "before the horizon") -> str:
    """Summarize an answer in one sentence; `within` names the horizon."""
    if answer.empty:
        return f"These changes make no difference {within}."
    if answer.in_vain:
        return "No difference: no change can be applied."
    return f"{'; '.join(_parts(answer, within))}."


def in_runs(found: TimeRange | None, start: Time) -> str:
    """Format the range of a time over all runs, in parentheses; empty if it is the same in all."""
    if found is None:
        return ""
    runs = counted(found.runs, "run") if found.times == found.runs else f"{found.times} of {found.runs} runs"
    first, last = format_tenths(found.earliest - start), format_tenths(found.latest - start)
    if found.runs == 1:
        return f" ({runs})"
    if first == last:
        return "" if found.times == found.runs else f" ({first} in {runs})"
    return f" ({first} to {last} in {runs})"


def in_some_runs(found: TimeRange | None) -> str:
    """Format the number of runs that admit a workload that the first run does not admit, in parentheses."""
    return f" (admitted in {found.times} of {found.runs} runs)" if found is not None else ""


def rests_on(answer: WhatIf) -> str:
    """Describe how many runs the ranges of times come from; empty without ranges."""
    return f"; {answer.runs} runs with different controller latencies" if answer.runs > 1 else ""


def _parts(answer: WhatIf, within: str) -> Iterator[str]:
    if answer.refused:
        yield f"{counted(len(answer.refused), 'change')} cannot be applied"
    if answer.closed:
        names = ", ".join(one.queue for one in answer.closed[:NAMED])
        more = f" and {len(answer.closed) - NAMED} more queues" if len(answer.closed) > NAMED else ""
        yield f"{names}{more} can no longer admit workloads"
    yield from _starts(answer, within)
    yield from _direct(answer, within)
    yield from _varying(answer)
    if answer.knock_on:
        times = sum(one.evictions for one in answer.knock_on)
        yield f"{counted(times, 'knock-on eviction')} of {counted(len(answer.knock_on), 'workload')}"
    yield from _own(answer)
    if answer.spared:
        times = sum(one.evictions for one in answer.spared)
        yield f"avoids {counted(times, 'eviction')} of {counted(len(answer.spared), 'workload')}"
    if not answer.outcomes:
        yield from _others(answer, within)


def _starts(answer: WhatIf, within: str) -> Iterator[str]:
    """Describe the starts of the requested work."""
    match answer.outcomes:
        case ():
            return
        case (one,):
            ran = any(evicted.lost_gpu_hours for evicted in answer.own_evictions)
            yield f"{one.workload} {_start(one, answer.time, within, ran=ran)}"
        case many:
            started = [(one.started, one.started_range) for one in many if one.started is not None]
            admitted = sum(one.admitted is not None for one in many)
            yield f"{len(started)} of {len(many)} workloads start{_last(started, answer.time)}"
            if admitted > len(started):
                yield f"{admitted - len(started)} admitted, but not all their pods run {within}"
            if len(many) > admitted:
                yield f"{len(many) - admitted} not admitted {within}"


def _last(started: Iterable[tuple[Time, TimeRange | None]], now: Time) -> str:
    """Describe the last start."""
    last = max(started, key=lambda one: one[0], default=None)
    return "" if last is None else f", the last {_after(last[0], now)}{in_runs(last[1], now)}"


def _start(one: WhatIfOutcome, now: Time, within: str, *, ran: bool) -> str:
    """Describe the outcome of the only requested workload; with `ran` it was evicted after it ran."""
    if one.admitted is None:
        return f"is not admitted {within}{in_some_runs(one.admitted_range)}: {_clause(one.why)}"
    if one.started is None:
        lacking = f": {one.lacking}" if one.lacking else ""
        when = "" if one.admitted < now else f" {_after(one.admitted, now)}{in_runs(one.admitted_range, now)}"
        starts = ", is evicted and does not restart" if ran else " but does not start"
        return f"is admitted{when}{starts} {within}{lacking}"
    return (
        "runs already" if one.started < now else f"starts {_after(one.started, now)}{in_runs(one.started_range, now)}"
    )


def _direct(answer: WhatIf, within: str) -> Iterator[str]:
    """Name the direct victims, most GPUs first."""
    victims = sorted(answer.victims, key=lambda one: (-one.gpus, one.workload))
    varying = {one.workload: one for one in answer.varying_victims}
    for verb, some in (
        ("preempts", [one for one in victims if one.by]),
        ("evicts", [one for one in victims if not one.by]),
    ):
        if some:
            priced = [
                (one.workload, ", ".join(_price(one, varying.get(one.workload), answer.time, within))) for one in some
            ]
            named = ", ".join(f"{workload} ({price})" for workload, price in priced[:NAMED])
            more = f" and {counted(len(some) - NAMED, 'more workload')}" if len(some) > NAMED else ""
            yield f"{verb} {named}{more}"
    if not victims and any(one.started is not None for one in answer.outcomes):
        yield "preempts no workload"


def _varying(answer: WhatIf) -> Iterator[str]:
    """Name the direct victims of other runs that are not in the first run."""
    first = {one.workload for one in answer.victims}
    others = [one for one in answer.varying_victims if one.workload not in first]
    for (times, runs), group in groupby(others, key=lambda one: (one.times, one.runs)):
        some = list(group)
        verb = "preempts" if all(one.by for one in some) else "evicts"
        more = f" and {counted(len(some) - NAMED, 'more workload')}" if len(some) > NAMED else ""
        yield f"in {times} of {runs} runs also {verb} {', '.join(one.workload for one in some[:NAMED])}{more}"


def _price(one: EvictedWorkload, varying: VaryingVictim | None, now: Time, within: str) -> Iterator[str]:
    """Describe the lost work and restart of a victim, and the number of runs in which it is one."""
    if one.gpus:
        yield counted(one.gpus, one.unit)
    if varying is not None:
        yield f"in {varying.times} of {varying.runs} runs"
    if one.evictions > 1:
        yield f"evicted {one.evictions} times"
    yield f"loses {one.lost_gpu_hours:.1f} GPU-hours"
    yield f"restarts {_after(one.returns, now, 'about ')}" if one.returns is not None else f"does not restart {within}"


def _own(answer: WhatIf) -> Iterator[str]:
    own: Sequence[EvictedWorkload] = answer.own_evictions
    times = sum(one.evictions for one in own)
    if own and len(answer.outcomes) == 1:
        preemptor = f" by {own[0].by[0]}" if own[0].by else ""
        first = "" if times == 1 else "first "
        yield f"it is itself evicted {_times(times)}, {first}{_after(own[0].first, answer.time)}{preemptor}"
    elif own:
        yield f"{len(own)} of them are evicted again, {_times(times)} in all"


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count:,} times"


def _others(answer: WhatIf, within: str) -> Iterator[str]:
    """Describe the effects on other pending workloads."""
    shifts = answer.shifts
    both = [one.changed - one.without for one in shifts if one.changed is not None and one.without is not None]
    for count, words in (
        (sum(move < 0 for move in both), "admitted earlier"),
        (sum(one.without is None for one in shifts), f"admitted that would not be {within}"),
        (sum(move > 0 for move in both), "admitted later"),
        (sum(one.changed is None for one in shifts), f"no longer admitted {within}"),
    ):
        if count:
            yield f"{counted(count, 'pending workload')} {words}"
    if not (shifts or answer.victims or answer.knock_on or answer.spared or answer.closed):
        yield "evicts no workload, and no admission time changes"


def _clause(sentence: str) -> str:
    """Turn a sentence into a clause of another one: lower case at the start, unless it starts with a name."""
    words = sentence.removesuffix(".")
    first = words.partition(" ")[0]
    is_name = first.startswith(PRODUCTS) or first[1:] != first[1:].lower()
    return words if is_name else f"{words[:1].lower()}{words[1:]}"


def _after(moment: Time, now: Time, about: str = "") -> str:
    return f"in {about}{format_span(moment - now)}" if moment > now else "at once"

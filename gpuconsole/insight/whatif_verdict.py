"""Verdict of a what-if: one sentence about the requested work and its victims."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from gpuconsole.insight.tables import counted
from gpuconsole.insight.whatif_answer import TimeRange, VaryingVictim, WhatIf, WhatIfOutcome
from gpuconsole.insight.whatif_evictions import EvictedWorkload
from gpuconsole.model.clock import Time, format_span, format_tenths

NAMED = 3
"""Maximum number of victims by name; the tables below the verdict have all."""
PRODUCTS = ("Kueue", "Volcano")
"""Names with a single capital letter with which a reason may start."""


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
    """Format the number of runs behind the ranges; empty without ranges."""
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

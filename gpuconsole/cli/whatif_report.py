"""Text of a what-if: outcome of the requested work, victims, and baseline and changed numbers side by side."""

from collections.abc import Iterator, Sequence

from gpuconsole.insight.tables import counted, seconds, table
from gpuconsole.insight.whatif.answer import EvictedWorkload, in_runs, in_some_runs, rests_on, verdict
from gpuconsole.insight.whatif.whatif import FEASIBLE, StartShift, WhatIf, WhatIfOutcome
from gpuconsole.model.clock import Span, Time, format_seconds, format_tenths
from gpuconsole.model.device_units import device_cell
from gpuconsole.ui.names import called, named

NOTHING = "–"
MOST = 50
"""Maximum lines per table; the JSON document has all."""


def as_text(answer: WhatIf, against: str = "", *, of_nodes: bool = True) -> list[str]:
    """The outcome: verdict, requested work, victims, numbers; `against` names the changes of the baseline, if any.

    Without `of_nodes`, numbers that depend on nodes are unknown.
    """
    said = "no change can be applied" if answer.in_vain else FEASIBLE
    head = f"At {seconds(answer.time)}, to +{format_seconds(answer.horizon - answer.time)}; {said}{rests_on(answer)}"
    lines = [named(verdict(answer)), head, *_first([f"refused: {text}" for text in answer.refused])]
    lines += _first([f"no change (already so): {named(text)}" for text in answer.so_already])
    lines += _first([f"admits no workloads: {closed.queue}: {closed.why}" for closed in answer.closed])
    lines += _outcomes(answer.outcomes, answer.time)
    lines += [f"with {against}: {line}" for line in _outcomes(answer.against, answer.time)]
    if answer.in_vain or answer.empty:
        return lines
    lines += _evicted("DIRECT VICTIMS", answer.victims, answer.time, freed=True)
    lines += _evicted("OWN EVICTIONS", answer.own_evictions, answer.time)
    lines += _evicted("KNOCK-ON EVICTIONS", answer.knock_on, answer.time)
    lines += _evicted("AVOIDED EVICTIONS", answer.spared, answer.time)
    lines += _shifts(answer.shifts, answer.time)
    return [*lines, "", *_numbers(answer, against, of_nodes)]


def _first(lines: Sequence[str], more: str = "") -> list[str]:
    """The first lines and the number of the others; `more` describes these."""
    return [*lines[:MOST], *_left(len(lines), more)]


def _left(count: int, more: str = "") -> list[str]:
    """A line with the number of omitted lines; none if all are shown."""
    return [f"… and {count - MOST:,} more{more} (-o json has all)"] if count > MOST else []


def _outcomes(outcomes: Sequence[WhatIfOutcome], start: Time) -> list[str]:
    rest = outcomes[MOST:]
    late = sum(outcome.admitted is None for outcome in rest)
    return _first([_outcome(one, start) for one in outcomes], f", {late:,} of them not admitted before the horizon")


def _outcome(outcome: WhatIfOutcome, start: Time) -> str:
    what = f"{called(outcome.workload)}, {counted(outcome.gpus, outcome.unit)}"
    if outcome.admitted is None:
        own = f" ({outcome.text})" if outcome.text and outcome.text != outcome.why else ""
        runs = in_some_runs(outcome.admitted_range)
        return f"{what}: not admitted before the horizon{runs}. {named(outcome.why)}{own}"
    where = f" from {', '.join(outcome.flavors)}" if outcome.flavors else ""
    nodes = f" on {', '.join(outcome.nodes[:4])}{' …' if len(outcome.nodes) > 4 else ''}" if outcome.nodes else ""
    late = f"; {named(outcome.lacking)}" if outcome.lacking else ""
    if outcome.admitted < start:
        return f"{what}: already admitted since {seconds(outcome.admitted)}{late}"
    runs = in_runs(outcome.admitted_range, start)
    at = _at_tenths(outcome.admitted, start) if runs else _at(outcome.admitted, start)
    return f"{what}: admitted at {at}{runs}{where}{nodes}{_starts(outcome, start)}{late}"


def _starts(outcome: WhatIfOutcome, start: Time) -> str:
    """The start, if it is a range."""
    runs = in_runs(outcome.started_range, start)
    return f", starts at {_at(outcome.started, start)}{runs}" if runs and outcome.started is not None else ""


def _evicted(title: str, workloads: Sequence[EvictedWorkload], start: Time, *, freed: bool = False) -> list[str]:
    """A table of evicted workloads; with `freed`, also when their quota and nodes are free."""
    if not workloads:
        return []
    rows = [
        (
            called(one.workload),
            one.queue,
            device_cell(one.gpus, one.unit),
            one.evictions,
            _at(one.first, start),
            *((_at_tenths(one.released, start), _at_tenths(one.pods_gone, start)) if freed else ()),
            _and_more([called(name) for name in one.by]),
            _and_more(one.rules),
            f"{one.lost_gpu_hours:.1f}",
            f"${one.cost:,.2f}",
            _at(one.returns, start),
        )
        for one in workloads
    ]
    when = ("TIMES", "FIRST", *(("RELEASED", "PODS GONE") if freed else ()))
    head = (title, "QUEUE", "GPUS", *when, "BY", "RULE", "LOST GPU-H", "COST", "RESTART")
    return ["", *_table(head, rows)]


def _and_more(names: Sequence[str]) -> str:
    """The first name and the number of the others."""
    if not names:
        return NOTHING
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"


def _shifts(shifts: tuple[StartShift, ...], start: Time) -> list[str]:
    if not shifts:
        return []
    rows = [
        (called(s.workload), s.queue, device_cell(s.gpus, s.unit), _at(s.without, start), _at(s.changed, start))
        for s in shifts
    ]
    return ["", *_table(("START TIME CHANGES", "QUEUE", "GPUS", "BASELINE", "CHANGED"), rows)]


def _table(head: Sequence[str], rows: Sequence[tuple[object, ...]]) -> list[str]:
    """The first rows and the number of the others."""
    return [*table(head, rows[:MOST]), *_left(len(rows))]


def _numbers(answer: WhatIf, against: str, of_nodes: bool) -> list[str]:
    used = (
        (f"{answer.unit}s in use", answer.gpus_now, answer.gpus_without, answer.gpus),
        (f"{answer.unit}s in the cluster", answer.gpus_total, answer.gpus_total_without, answer.gpus_total_with),
        (
            "mean utilization",
            NOTHING,
            _percent(answer.gpu_hours_without, answer.capacity_hours_without),
            _percent(answer.gpu_hours, answer.capacity_hours),
        ),
    )
    hourly = ("node cost per hour", NOTHING, f"${answer.hourly_without:,.2f}", f"${answer.hourly:,.2f}")
    rows = [
        *_queues(answer),
        *(used if of_nodes else [_unknown(row[0]) for row in used]),
        ("wait p50", NOTHING, _span(answer.median_wait_without), _span(answer.median_wait)),
        ("wait p95", NOTHING, _span(answer.p95_wait_without), _span(answer.p95_wait)),
        ("pending: quota", NOTHING, answer.waiting_without, answer.waiting),
        *_besides("admission checks", answer.checking_without, answer.checking),
        *(_besides("scheduling", answer.placeless_without, answer.placeless) if of_nodes else ()),
        ("fairness (Jain's index)", NOTHING, _index(answer.fairness_without), _index(answer.fairness)),
        ("GPU-hours lost", NOTHING, f"{answer.lost_gpu_hours_without:.1f}", f"{answer.lost_gpu_hours:.1f}"),
        ("cost of lost work", NOTHING, f"${answer.cost_without:,.2f}", f"${answer.cost:,.2f}"),
        hourly if of_nodes else _unknown(hourly[0]),
    ]
    baseline = f"WITH {against}" if against else "BASELINE"
    when = f"QUEUES AND GPUS AT {_at(answer.compared, answer.time)}"
    left = _left(len(answer.queues), " queues")
    return [*table((when, "NOW", baseline, "CHANGED"), [tuple(map(str, row)) for row in rows]), *left]


def _unknown(what: str) -> tuple[object, ...]:
    return (what, NOTHING, NOTHING, NOTHING)


def _besides(what: str, without: int, changed: int) -> Iterator[tuple[object, ...]]:
    """A row for workloads that hold quota and do not run yet; none if there are none."""
    if without or changed:
        yield f"pending: {what}", NOTHING, without, changed


def _queues(answer: WhatIf) -> Iterator[tuple[object, ...]]:
    for queue in answer.queues[:MOST]:
        with_quota = f"{queue.used}/{queue.nominal}" if queue.nominal != queue.nominal_now else queue.used
        amounts = (f"{queue.used_now}/{queue.nominal_now}", queue.used_without, with_quota)
        yield (f"{queue.queue}, {queue.unit}s", *amounts)
        if {queue.borrowed_now, queue.borrowed_without, queue.borrowed} != {queue.borrowed}:
            yield (f"{queue.queue}, borrowed", queue.borrowed_now, queue.borrowed_without, queue.borrowed)
        shares = (f"{share:.0f}%" for share in (queue.share_now, queue.share_without, queue.share))
        yield (f"{queue.queue}, % of max quota", *shares)


def _percent(gpu_hours: float, capacity: float) -> str:
    return f"{100 * gpu_hours / capacity:.1f}%" if capacity else NOTHING


def _index(fairness: float | None) -> str:
    return NOTHING if fairness is None else f"{fairness:.2f}"


def _span(span: Span | None) -> str:
    return NOTHING if span is None else format_seconds(span)


def _at_tenths(moment: Time | None, start: Time) -> str:
    return NOTHING if moment is None else f"+{format_tenths(moment - start)}"


def _at(moment: Time | None, start: Time) -> str:
    return NOTHING if moment is None else f"+{format_seconds(moment - start)}"

"""Lines of a what-if: its introduction, and its result with outcomes, evictions and the table of numbers."""

from collections.abc import Sequence

from rich.cells import set_cell_size

from gpuconsole.insight.tables import counted, seconds
from gpuconsole.insight.whatif.answer import EvictedWorkload, in_runs, in_some_runs, rests_on, verdict
from gpuconsole.insight.whatif.whatif import FEASIBLE, QueueChange, StartShift, WhatIf, WhatIfOutcome
from gpuconsole.model.clock import Span, Time, format_seconds, format_tenths
from gpuconsole.model.device_units import short_plural
from gpuconsole.ui import format as fmt
from gpuconsole.ui.names import called, named
from gpuconsole.ui.paint import GLYPHS, Painted
from gpuconsole.ui.widgets.textpane import BLANK, heading, text_line

LABEL, CELL = 22, 13
ALONE = "baseline", "changed"
"""Names of the two forks where changes are compared with the unchanged cluster."""
MOST = 12
"""Most victims and shifted workloads that are listed."""
INTRODUCTION: tuple[Painted, ...] = (
    BLANK,
    text_line("  No changes yet. A what-if never touches the cluster."),
    BLANK,
    text_line(("  a  ", "key"), "add a change: manifest, stop, priority, quota, node failure"),
    text_line(("  8  ", "key"), "open the submit form; ", ("ctrl+o", "key"), " in it adds its job to the what-if"),
    text_line(("  i  ", "key"), "on any workload, node or queue adds a change for it"),
    text_line(("  ⏎  ", "key"), "simulate baseline and changes to the horizon, and compare"),
    text_line(("  t  ", "key"), "add a delay before the next changes"),
    text_line(("  b  ", "key"), "save as A, then build B to compare"),
    text_line(("  p  ", "key"), "find changes that let the submitted jobs run in time"),
    text_line(("  W  ", "key"), "write the changes to a file for ", ("gpuconsole whatif -f", "strong")),
)
"""Shown before there is a change."""
KEPT_FOR_COMPARISON: tuple[Painted, ...] = (
    BLANK,
    text_line("  New changes form B, which is compared with A."),
    BLANK,
    text_line(("  a  ", "key"), "add a change to B"),
    text_line(("  b  ", "key"), "edit A again, or compare it with the baseline"),
)
"""Shown before there is a change in B."""


def result_lines(result: WhatIf, names: tuple[str, str] = ALONE, within: str = "before the horizon") -> list[Painted]:
    """The whole result, verdict first; `names` are those of the two forks, `within` names their horizon."""
    lines = [text_line(("VERDICT  ", "dim"), (named(verdict(result, within)), "strong")), BLANK]
    lines += [text_line((f"{GLYPHS['fault']} refused: {text}", "fault")) for text in result.refused]
    lines += [text_line((f"no change: {named(text)}", "dim")) for text in result.so_already]
    lines += [
        text_line((f"{GLYPHS['fault']} {one.queue} admits no workloads: {one.why}", "fault"))
        for one in result.closed[:MOST]
    ]
    lines += _more(len(result.closed))
    for outcome in result.outcomes:
        lines += _outcome(outcome, result.time, within, rests_on(result))
    for outcome in result.against:
        lines += [text_line((f"{names[0]}:", "dim")), *_outcome(outcome, result.time, within)]
    only = "" if names == ALONE else f" (only in {names[0]})"
    lines += _evicted("Direct victims", result.victims, result.time, within)
    lines += _evicted("Evictions of submitted jobs", result.own_evictions, result.time, within)
    lines += _evicted("Knock-on evictions", result.knock_on, result.time, within)
    lines += _evicted(f"Avoided evictions{only}", result.spared, result.time, within, "good")
    lines += [BLANK, *_table(result, names)]
    if result.shifts:
        lines += [BLANK, heading(f"Admission shifted: {len(result.shifts)}")]
        lines += [_shift(shift, result.time, within) for shift in result.shifts[:MOST]]
        lines += _more(len(result.shifts))
    if result.latency:
        lines += [BLANK, text_line((f"assumed: {result.latency}", "dim"))]
    return lines


def _more(count: int) -> list[Painted]:
    return [text_line((f"  … and {count - MOST} more", "dim"))] if count > MOST else []


def _outcome(outcome: WhatIfOutcome, start: Time, within: str, runs: str = "") -> list[Painted]:
    """The outcome of one workload; `runs` says what its ranges are based on."""
    name = (called(outcome.workload), "strong")
    gpus = f", {counted(outcome.gpus, outcome.unit)}"
    if outcome.admitted is None:
        some = in_some_runs(outcome.admitted_range)
        first = text_line((f"{GLYPHS['pending']} ", "pending"), name, f"{gpus}: not admitted {within}{some}")
        own = [text_line(("  ", ""), (outcome.text, "dim"))] if outcome.text and outcome.text != outcome.why else []
        return [first, text_line(f"  {named(outcome.why)}"), *own]
    where = f" from {', '.join(outcome.flavors)}" if outcome.flavors else ""
    nodes = f" on {', '.join(outcome.nodes[:4])}{' …' if len(outcome.nodes) > 4 else ''}" if outcome.nodes else ""
    late = f"; {named(outcome.lacking)}" if outcome.lacking else ""
    ranged = in_runs(outcome.admitted_range, start)
    at = f"+{format_tenths(outcome.admitted - start)}" if ranged else _at(outcome.admitted, start)
    when = f"{gpus}: admitted at {at}{ranged}{where}{nodes}{_starts(outcome, start)}{late}"
    if outcome.admitted < start:
        when = f"{gpus}: already admitted, since {seconds(outcome.admitted)}{late}"
    return [text_line((f"{GLYPHS['good']} ", "good"), name, when), text_line((f"  {FEASIBLE}{runs}", "dim"))]


def _starts(outcome: WhatIfOutcome, start: Time) -> str:
    """The start, where it is a range."""
    runs = in_runs(outcome.started_range, start)
    return f", starts at {_at(outcome.started, start)}{runs}" if runs and outcome.started is not None else ""


def _evicted(
    title: str, workloads: Sequence[EvictedWorkload], start: Time, within: str, role: str = "victim"
) -> list[Painted]:
    """A title with the number of evictions, and a line per workload; none without evictions."""
    if not workloads:
        return []
    times = sum(one.evictions for one in workloads)
    of = f" of {counted(len(workloads), 'workload')}" if times > len(workloads) else ""
    rows = [_evicted_line(one, start, within, role) for one in workloads[:MOST]]
    return [BLANK, heading(f"{title}: {times}{of}"), *rows, *_more(len(workloads))]


def _evicted_line(one: EvictedWorkload, start: Time, within: str, role: str) -> Painted:
    times = (
        f", {one.evictions} times from {_at(one.first, start)}" if one.evictions > 1 else f" at {_at(one.first, start)}"
    )
    cost = f"{counted(one.gpus, one.unit)}{times}, {one.lost_gpu_hours:.1f} GPU-hours lost ({fmt.money(one.cost)})"
    more = f" and {len(one.by) - 1} more" if len(one.by) > 1 else ""
    by = f" by {called(one.by[0])}{more}" if one.by else ""
    back = f"restarts at {_at(one.returns, start)}" if one.returns is not None else f"does not restart {within}"
    why = f"{one.rules[0]}{by}; {_freed(one, start)}{back}"
    return text_line((f"{GLYPHS['victim']} ", role), (called(one.workload), "strong"), f"  {cost}, {why}")


def _freed(one: EvictedWorkload, start: Time) -> str:
    """When the first eviction frees quota and nodes, where known."""
    times = (("quota released", one.released), ("pods gone", one.pods_gone))
    moments = [f"{what} at +{format_tenths(time - start)}" for what, time in times if time is not None]
    return f"{', '.join(moments)}; " if moments else ""


def _shift(shift: StartShift, start: Time, within: str) -> Painted:
    before = _at(shift.without, start) if shift.without is not None else f"not {within}"
    after = _at(shift.changed, start) if shift.changed is not None else f"not {within}"
    return text_line(f"  {called(shift.workload)}, {counted(shift.gpus, shift.unit)}: {before} → {after}")


def _at(moment: Time, start: Time) -> str:
    return f"+{format_seconds(moment - start)}"


def _table(result: WhatIf, names: tuple[str, str]) -> list[Painted]:
    at = _at(result.compared, result.time)
    rows = [
        _row("", "now", f"{names[0]}, {at}", f"{names[1]}, {at}", "difference", role="dim"),
        _row(
            f"{short_plural(result.unit)} in use",
            f"{result.gpus_now}/{result.gpus_total}",
            str(result.gpus_without),
            str(result.gpus),
            _signed(result.gpus - result.gpus_without),
        ),
    ]
    rows += [row for queue in result.queues for row in _queue(queue)]
    end = _at(result.horizon, result.time)
    rows += [
        BLANK,
        _row("", "", f"{names[0]}, {end}", f"{names[1]}, {end}", "difference", role="dim"),
        _row("wait p50", "", _span(result.median_wait_without), _span(result.median_wait), _longer(result)),
        _row("wait p95", "", _span(result.p95_wait_without), _span(result.p95_wait), ""),
        _still("pending on quota", result.waiting_without, result.waiting),
        *_besides("… on admission checks", result.checking_without, result.checking),
        *_besides("… on scheduling", result.placeless_without, result.placeless),
        _hours("GPU-hours allocated", result.gpu_hours_without, result.gpu_hours),
        _row("fairness index", "", _index(result.fairness_without), _index(result.fairness), ""),
        _money("node cost per hour", result.hourly_without, result.hourly),
        _hours("lost work", result.lost_gpu_hours_without, result.lost_gpu_hours, " GPU-h"),
        _money("cost of lost work", result.cost_without, result.cost),
    ]
    return rows


def _still(label: str, without: int, fork: int) -> Painted:
    """The number of workloads that are still pending."""
    return _row(label, "", str(without), str(fork), _signed(fork - without))


def _besides(label: str, without: int, fork: int) -> list[Painted]:
    """The number of workloads that have quota but do not run; none where both are 0."""
    return [_still(label, without, fork)] if without or fork else []


def _queue(queue: QueueChange) -> list[Painted]:
    used = _row(
        f"{queue.queue} {short_plural(queue.unit)}",
        f"{queue.used_now}/{queue.nominal_now}",
        str(queue.used_without),
        str(queue.used) if queue.nominal == queue.nominal_now else f"{queue.used}/{queue.nominal}",
        _signed(queue.used - queue.used_without),
    )
    if queue.borrowed_without == queue.borrowed == queue.borrowed_now:
        borrowed = []
    else:
        change = _signed(queue.borrowed - queue.borrowed_without)
        amounts = (str(queue.borrowed_now), str(queue.borrowed_without), str(queue.borrowed))
        borrowed = [_row(f"  {GLYPHS['borrowed']} borrowed", *amounts, change)]
    share = _row(
        "  % of max quota",
        f"{queue.share_now:.0f}%",
        f"{queue.share_without:.0f}%",
        f"{queue.share:.0f}%",
        f"{queue.share - queue.share_without:+.0f}%",
    )
    return [used, *borrowed, share]


def _row(label: str, now: str, without: str, fork: str, difference: str, role: str = "") -> Painted:
    cells = "".join(set_cell_size(cell, CELL) + " " for cell in (now, without, fork))
    return text_line((set_cell_size(label, LABEL) + " ", "dim"), (cells, role), (difference, role or "strong"))


def _hours(label: str, without: float, fork: float, unit: str = "") -> Painted:
    return _row(label, "", f"{without:.1f}{unit}", f"{fork:.1f}{unit}", f"{fork - without:+.1f}{unit}")


def _money(label: str, without: float, fork: float) -> Painted:
    more = "+" if fork >= without else ""
    return _row(label, "", fmt.money(without), fmt.money(fork), f"{more}{fmt.money(fork - without)}")


def _signed(amount: int) -> str:
    return f"{amount:+d}" if amount else "same"


def _span(span: Span | None) -> str:
    return f"~{fmt.age(span)}" if span is not None else fmt.NOTHING


def _index(fairness: float | None) -> str:
    return fmt.NOTHING if fairness is None else f"{fairness:.2f}"


def _longer(result: WhatIf) -> str:
    if result.median_wait is None or result.median_wait_without is None:
        return fmt.NOTHING
    change = result.median_wait - result.median_wait_without
    return f"{'+' if change >= 0 else '-'}{fmt.age(abs(change))}"

"""Weekly report as Markdown and as a self-contained HTML page."""

from collections.abc import Callable, Iterable, Sequence

from msgspec import Struct

from gpuconsole.insight.tables import Table, html_lines, in_html, in_markdown, markdown_lines, seconds, table_of
from gpuconsole.insight.weekly_report import Compared, WaitWeek, WeeklyReport
from gpuconsole.model.clock import SECOND
from gpuconsole.model.text import clean
from gpuconsole.ui import format as fmt
from gpuconsole.ui.answers.cost import html_page
from gpuconsole.ui.names import called

BEFORE = "Week before"
Number = Callable[[float], str]


class Section(Struct, frozen=True, kw_only=True):
    """A part of the report: a heading, a table, and sentences below it."""

    title: str
    heads: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    """The first cell of each row is a name."""
    sentences: tuple[str, ...] = ()

    @property
    def table(self) -> Table:
        return table_of(self.heads, self.rows, numeric=True)


def title_of(report: WeeklyReport, source: str) -> str:
    """Return the title of a report on the cluster `source`."""
    return f"GPU cluster {clean(source)}, week {report.week}"


def sections(report: WeeklyReport) -> tuple[Section, ...]:
    """Return the parts of a report."""
    until = seconds(report.end)
    return (
        Section(
            title="Summary",
            heads=("", "This week", BEFORE, "Change"),
            rows=(
                _row("Hours recorded", (report.recorded_hours,), _count),
                _row("Cost", (report.total_cost_usd,), fmt.money),
                _row("Preemptions", (report.preemptions.preemptions,), _count),
                _row("Cost of lost work", (report.preemptions.lost_usd,), fmt.money),
                _row("Idle GPU-hours", (report.idle_unallocated_gpu_hours,), _amount),
            ),
            sentences=(f"From {seconds(report.begin)} to {until}, compared with the week before.", *report.notes),
        ),
        Section(
            title="Utilization",
            heads=("GPU type", *_pair("GPUs"), *_pair("Allocated"), *_pair("Utilization"), *_pair("Unhealthy")),
            rows=tuple(
                (
                    one.gpu_type,
                    *_both(one.gpus, _amount),
                    *_both(one.allocated_percent, _percent),
                    *_both(one.utilization_percent, _percent),
                    *_both(one.unhealthy, _amount),
                )
                for one in report.gpus
            ),
            sentences=("Means over the recorded hours; utilization is that of GPUs that pods ran on.",),
        ),
        Section(
            title="ClusterQueues",
            heads=(
                "ClusterQueue",
                *("Nominal", "Used", BEFORE, "Borrowed", "Lent"),
                *("Admitted", BEFORE, "Preempted", BEFORE, "Highest wait p95", BEFORE),
            ),
            rows=tuple(
                (
                    one.queue,
                    _one(one.nominal.value, _amount),
                    *_both(one.used, _amount),
                    _one(one.borrowed.value, _amount),
                    _one(one.lent.value, _amount),
                    *_both(one.admitted, _count),
                    *_both(one.preempted, _count),
                    *_both(one.wait_p95_seconds, _wait),
                )
                for one in report.queues
            ),
            sentences=("GPUs are means over the recorded hours.",),
        ),
        _waits("Waits by team", "Team", report.waits_by_team),
        _waits("Waits by size", "Size", report.waits_by_size),
        Section(
            title="Preemptions and lost work",
            heads=("", "This week", BEFORE, "Change"),
            rows=(
                _row("Preemptions", (report.preemptions.preemptions,), _count),
                _row("Evictions", (report.preemptions.evictions,), _count),
                *(
                    _row(f"Evictions: {one.name or 'no reason'}", (one.count,), _count)
                    for one in report.preemptions.evictions_by_reason
                ),
                _row("GPU-hours lost by preemptions", (report.preemptions.lost_gpu_hours,), _amount),
                _row("Cost of lost work", (report.preemptions.lost_usd,), fmt.money),
                *(_row(one.name, (one.count,), _count) for one in report.preemptions.pairs),
            ),
            sentences=("Rows with ← count preemptions by queue: victim ← preemptor.",),
        ),
        Section(
            title="Unused GPUs by owner",
            heads=(
                "Team",
                *_pair("Allocated GPU-hours"),
                *_pair("Unused GPU-hours"),
                *_pair("Utilization"),
                *_pair("Cost of underutilized GPUs"),
            ),
            rows=tuple(
                (
                    called(one.team),
                    *_both(one.allocated_gpu_hours, _amount),
                    *_both(one.idle_gpu_hours, _amount),
                    *_both(one.utilization_percent, _percent),
                    *_both(one.underutilized_usd, fmt.money),
                )
                for one in report.idle
            ),
            sentences=(
                "Unused GPU-hours: allocated GPU-hours × (100% − measured utilization). A dash means: not measured.",
                "Idle GPUs, which are not allocated, are below Cost.",
            ),
        ),
        Section(
            title="Cost",
            heads=("Team", *_pair("GPU-hours"), *_pair("Cost"), "Change"),
            rows=(
                *(
                    (
                        called(one.name),
                        *_both(one.gpu_hours, _amount),
                        *_both(one.cost_usd, fmt.money),
                        _change(one.cost_usd),
                    )
                    for one in report.costs
                ),
                ("total", "", "", *_both(report.total_cost_usd, fmt.money), _change(report.total_cost_usd)),
            ),
        ),
        Section(
            title="Anti-patterns",
            heads=("Finding", "Kind", "Week before") if report.findings else (),
            rows=tuple((one.text, one.code.value, "yes" if one.repeated else "no") for one in report.findings),
            sentences=() if report.findings else ("None found.",),
        ),
    )


def _waits(title: str, head: str, waits: Sequence[WaitWeek]) -> Section:
    return Section(
        title=title,
        heads=(head, *_pair("Admitted"), *_pair("Median"), *_pair("p95")),
        rows=tuple(
            (
                called(one.name),
                *_both(one.admitted, _count),
                *_both(one.wait_p50_seconds, _wait),
                *_both(one.wait_p95_seconds, _wait),
            )
            for one in waits
        ),
        sentences=("From submission, or the last eviction, to admission.",),
    )


def _pair(head: str) -> tuple[str, str]:
    return head, BEFORE


def _both(compared: Compared, number: Number) -> tuple[str, str]:
    return _one(compared.value, number), _one(compared.before, number)


def _one(value: float | None, number: Number) -> str:
    return fmt.NOTHING if value is None else number(value)


def _row(name: str, numbers: Iterable[Compared], number: Number) -> tuple[str, ...]:
    return (name, *(cell for one in numbers for cell in (*_both(one, number), _change(one))))


def _change(compared: Compared) -> str:
    """Difference in percent: `+12%`; a dash if one number is unknown or the earlier one is 0."""
    if compared.value is None or not compared.before:
        return fmt.NOTHING
    return f"{100 * (compared.value - compared.before) / compared.before:+.0f}%"


def _count(value: float) -> str:
    return f"{round(value):,}"


def _amount(value: float) -> str:
    return f"{value:,.1f}"


def _percent(value: float) -> str:
    return f"{value:.0f}%"


def _wait(value: float) -> str:
    return fmt.age(round(value * SECOND))


def as_markdown(report: WeeklyReport, source: str) -> list[str]:
    """Format a report as lines of Markdown."""
    lines = [f"# {in_markdown(title_of(report, source))}"]
    for section in sections(report):
        lines += ["", f"## {section.title}", ""]
        if section.rows:
            lines += [*markdown_lines(section.table), ""]
        elif section.heads:
            lines += ["Nothing is known.", ""]
        lines += [in_markdown(sentence) for sentence in section.sentences]
    return [line for before, line in zip(["", *lines], lines, strict=False) if line or before]


def as_html(report: WeeklyReport, source: str) -> list[str]:
    """Format a report as lines of a self-contained HTML page, which loads nothing."""
    lines: list[str] = []
    for section in sections(report):
        lines.append(f"<h2>{in_html(section.title)}</h2>")
        if section.rows:
            lines += html_lines(section.table)
        elif section.heads:
            lines.append("<p>Nothing is known.</p>")
        lines += [f"<p>{in_html(sentence)}</p>" for sentence in section.sentences]
    return html_page(title_of(report, source), lines)

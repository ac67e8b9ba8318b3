"""Costs as text, Markdown, HTML and CSV: by workload, team or another dimension, and the monthly report of a team."""

import io
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from gpuconsole.insight.cost.report import NO_LOANS, BudgetStatus, CostItem, CostSummary, LoanRates, TeamMonth
from gpuconsole.insight.tables import (
    Cell,
    Table,
    Valued,
    html_lines,
    in_html,
    in_markdown,
    markdown_lines,
    seconds,
    table_of,
    text_lines,
    write_csv,
)
from gpuconsole.model.text import clean
from gpuconsole.ui import format as fmt
from gpuconsole.ui.names import called

NO_NAME = "(none)"
"""Shown for cost without a value of the dimension, such as pods without a queue or a project."""


class CostDocument(Struct, frozen=True, kw_only=True):
    """A report on costs before it is formatted: a title, a table, and sentences after it."""

    title: str
    table: Table
    sums: tuple[tuple[str, str], ...] = ()
    """Sums and facts after the table, as name and value."""
    notes: tuple[str, ...] = ()


def cost_document(
    summary: CostSummary,
    *,
    per_hour: bool = False,
    loans: LoanRates = NO_LOANS,
    borrowed: Mapping[str, float] = NO_LOANS.borrowed,
    budgets: Sequence[BudgetStatus] = (),
    notes: Sequence[str] = (),
) -> CostDocument:
    """Return the report on a summary. With `per_hour` its amounts are present rates in USD per hour.

    `borrowed` is the borrowed part of each item, which has a column if anything is borrowed.
    """
    of_which = [("borrowed, of the total", _usd(sum(borrowed.values())))] if borrowed else []
    usd = "USD/H" if per_hour else "USD"
    since, until = summary.window
    when = f"per hour at {seconds(since)}" if per_hour else f"from {seconds(since)} to {seconds(until)}"
    return CostDocument(
        title=f"Cost by {summary.by.replace('-', ' ').replace('gpu type', 'GPU type')}, {when}",
        table=table_of(
            (
                str(summary.by).upper().replace("-", " "),
                *("GPUS" if per_hour else "GPU-HOURS", usd, "USED", "UNDERUTILIZED", "LOST"),
                *(["BORROWED"] if borrowed else []),
                *("SPOT SAVES", "UTILIZATION"),
            ),
            [_cells(item, [borrowed.get(item.name, 0.0)] if borrowed else []) for item in summary.items],
            numeric=True,
        ),
        sums=(
            ("idle", _usd(summary.idle_cost_usd)),
            ("system", _usd(summary.system_cost_usd)),
            ("total", _usd(summary.total_cost_usd)),
            *of_which,
        ),
        notes=(*map(_lent_text, sorted(loans.lent.items())), *map(budget_text, budgets), *notes),
    )


def _lent_text(lender: tuple[str, float]) -> str:
    return f"{clean(lender[0])} lends quota for {_usd(lender[1])} per hour of this cost."


def _cells(item: CostItem, borrowed: Sequence[float]) -> tuple[Cell, ...]:
    """The cells of an item, with its borrowed part if there is such a column."""
    amounts = (item.cost_usd, item.used_usd, item.underutilized_usd, item.lost_usd, *borrowed, item.saved_usd)
    return (
        called(item.name) or NO_NAME,
        f"{item.gpu_hours:,.2f}",
        *map(_usd, amounts),
        None if item.utilization is None else f"{item.utilization:.0f}%",
    )


def _usd(amount: float) -> str:
    return fmt.money(amount, cents=True)


def budget_text(status: BudgetStatus) -> str:
    """Say in a sentence how much of its budget a team has spent, and whether it will suffice."""
    budget = status.budget
    text = f"team {clean(budget.team)}: {_usd(status.spent_usd)} of {_usd(budget.usd_per_month)} spent this month"
    forecast = f"forecast for the month's end {_usd(status.forecast_usd)}"
    if status.spent_usd > budget.usd_per_month:
        return f"ALERT: {text}: the budget is exceeded; {forecast}"
    if status.alert:
        return f"ALERT: {text}; {forecast}, which exceeds the budget"
    return f"{text}; {forecast}"


def team_document(report: TeamMonth, notes: Sequence[str] = ()) -> CostDocument:
    """Return the monthly report of a team, with more `notes` below it."""
    average = report.gpu_utilization_avg
    return CostDocument(
        title=f"Team {clean(report.team)}, {report.month}",
        table=table_of(
            ("JOB", "GPU-HOURS", "USD", "UTILIZATION"),
            [
                (
                    called(job.job_name),
                    f"{job.gpu_hours:,.2f}",
                    _usd(job.cost_usd),
                    None if job.gpu_util is None else f"{job.gpu_util:.0f}%",
                )
                for job in report.top_5_costly_jobs
            ],
            numeric=True,
        ),
        sums=(
            ("GPU-hours", f"{report.total_gpu_hours:,.2f}"),
            ("jobs", f"{report.jobs_count:,}"),
            ("mean utilization of jobs", "unknown" if average is None else f"{average:.0f}%"),
            ("total", _usd(report.total_cost_usd)),
        ),
        notes=(
            *(
                (f"The table has the {shown} most expensive of {report.jobs_count:,} jobs.",)
                if (shown := len(report.top_5_costly_jobs)) < report.jobs_count
                else ()
            ),
            *notes,
        ),
    )


def as_text(document: CostDocument) -> list[str]:
    """Format a report as lines for a terminal."""
    width = max((len(name) for name, _ in document.sums), default=0)
    amounts = max((len(value) for _, value in document.sums), default=0)
    return [
        document.title,
        "",
        *(text_lines(document.table) if document.table.rows else ["no cost of workloads"]),
        "",
        *(f"{name:<{width}}  {value:>{amounts}}" for name, value in document.sums),
        *([""] if document.notes else []),
        *document.notes,
    ]


def as_markdown(document: CostDocument) -> list[str]:
    """Format a report as lines of Markdown."""
    return [
        f"# {in_markdown(document.title)}",
        "",
        *markdown_lines(document.table),
        "",
        *(f"- {name}: {value}" for name, value in document.sums),
        *(line for note in document.notes for line in ("", in_markdown(note))),
    ]


STYLE = """
body { font: 14px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 70rem; padding: 0 1rem; color: #222; background: #fff }
table { border-collapse: collapse; width: 100% }
th, td { padding: .3rem .6rem; border-bottom: 1px solid #ddd; text-align: right; white-space: nowrap }
th:first-child, td:first-child { text-align: left; white-space: normal; overflow-wrap: anywhere }
dl { display: grid; grid-template-columns: max-content max-content; gap: .2rem 1.5rem }
dd { margin: 0; text-align: right }
""".strip()  # noqa: E501


def as_html(document: CostDocument) -> list[str]:
    """Format a report as lines of a self-contained HTML page, which loads nothing."""
    sums = "".join(f"<dt>{in_html(name)}</dt><dd>{in_html(value)}</dd>" for name, value in document.sums)
    body = [
        *html_lines(document.table),
        f"<dl>{sums}</dl>",
        *(f"<p>{in_html(note)}</p>" for note in document.notes),
    ]
    return html_page(document.title, body)


def html_page(title: str, body: Iterable[str]) -> list[str]:
    """Return the lines of a self-contained HTML page; `title` is text, `body` has lines of HTML below it."""
    head = in_html(title)
    return [
        "<!doctype html>",
        '<html lang="en">',
        f'<head><meta charset="utf-8"><title>{head}</title><style>{STYLE}</style></head>',
        "<body>",
        f"<h1>{head}</h1>",
        *body,
        "</body>",
        "</html>",
    ]


CSV_HEADS = (
    *("name", "gpu_hours", "cost_usd", "used_usd", "underutilized_usd", "lost_usd", "idle_usd", "system_usd"),
    *("saved_usd", "utilization"),
)


def as_csv(summary: CostSummary) -> str:
    """Format a summary as a CSV file with a row for each item, for idle GPUs and for system pods."""
    rows: list[tuple[Cell, ...]] = []
    for item in summary.items:
        amounts = (item.cost_usd, item.used_usd, item.underutilized_usd, item.lost_usd, 0.0, 0.0, item.saved_usd)
        used = None if item.utilization is None else _fixed(item.utilization, 1)
        rows.append((called(item.name) or NO_NAME, _fixed(item.gpu_hours, 4), *map(_fixed, amounts), used))
    idle, system, zero = _fixed(summary.idle_cost_usd), _fixed(summary.system_cost_usd), _fixed(0.0)
    rows.append(("(idle)", _fixed(summary.idle_gpu_hours, 4), idle, *[zero] * 3, idle, zero, zero, None))
    rows.append(("(system)", None, system, *[zero] * 4, system, zero, None))
    text = io.StringIO()
    write_csv(CSV_HEADS, rows, text)
    return text.getvalue()


def _fixed(value: float, digits: int = 2) -> Valued:
    return Valued(f"{value:.{digits}f}", value)

"""`gpuconsole cost`: cost of GPUs over time by workload, team or queue; monthly reports, budgets, FOCUS export."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import msgspec
from msgspec import Struct

from gpuconsole.cli.answering import CommandAnswer, Origin, document, mode_of, nothing_said, provenance, say
from gpuconsole.cli.options import BUDGETS, OpenRequest, budgets_of, clustered, configured, cost_labels, print_json
from gpuconsole.cli.simulate import Duration, events_until
from gpuconsole.cli.sources import open_simulation
from gpuconsole.config import Config
from gpuconsole.errors import UsageError
from gpuconsole.garbage import uncollected
from gpuconsole.insight.cost.allocation import CostAllocator, CostHour, CostKind
from gpuconsole.insight.cost.focus import focus_csv
from gpuconsole.insight.cost.report import (
    NO_LOANS,
    Budget,
    BudgetStatus,
    CostBy,
    CostItem,
    CostSummary,
    JobFacts,
    LoanRates,
    Window,
    budget_status,
    budget_window,
    cost_summary,
    job_facts,
    loan_rates,
    month_of,
    month_window,
    present_rates,
    team_month,
    workload_costs,
)
from gpuconsole.insight.tables import time_range
from gpuconsole.model.clock import DAY, HOUR, Span, Time, format_time, parse_span, parse_time
from gpuconsole.model.cluster import Node, Pod
from gpuconsole.model.text import clean
from gpuconsole.store import queries
from gpuconsole.store.schema import earlier_sessions
from gpuconsole.ui.answers import cost as texts
from gpuconsole.ui.names import called

VERSION = 1
"""Version of the JSON document."""
MOST_TEAMS = 10
"""Maximum teams that are named where the requested one has no cost."""
RATES = "Present rates. The cost over time needs a recording (`gpuconsole record`) or a simulation (--until)."
PAST_RATES = "Rates at that time. The cost over time is that of `gpuconsole cost --since TIME`."
UNRECORDED = "no cost has been recorded; the console records it while it runs, and so does `gpuconsole record`"
TIMES = "write it as 2026-01-05, 2026-01-05T08:00Z, or 24h for the last 24 hours"


class CostSource(Struct, frozen=True, kw_only=True):
    """The rows that a report is made of, and where they come from."""

    origin: Origin
    rows: Sequence[CostHour]
    window: Window
    per_hour: bool = False
    """Whether the rows are what the next hour costs, of a cluster whose past is unknown."""
    recent: Sequence[CostHour] = ()
    """The rows that budgets need: those of `budget_window`."""
    jobs: Mapping[str, JobFacts] = {}
    """Facts about the jobs of workloads, as far as known."""
    loans: LoanRates | None = None
    """What borrowed quota costs per hour; None if the rows are not present rates."""
    notes: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    """What is missing because RBAC forbids reading it, as sentences; then the cost is not known."""


@click.command()
@clustered
@click.option("--until", type=Duration(), help="Simulate this long. [default: 24h for FILES, else nothing]")
@click.option(
    "--history",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Read a recorded history (with --month or --since and no cluster: the newest one).",
)
@click.option("--month", metavar="YYYY-MM", help="Only this month, in UTC.")
@click.option("--since", metavar="TIME", help="Only from this time on: 2026-01-05, 2026-01-05T08:00Z, or 24h ago.")
@click.option(
    "--by",
    type=click.Choice([by.value for by in CostBy]),
    default=CostBy.TEAM.value,
    show_default=True,
    help="What the cost is grouped by.",
)
@click.option("--team", help="Monthly report of one team (with --month; default: the last month of the data).")
@BUDGETS
@click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "json", "csv", "markdown", "html", "focus"]),
    default="text",
    show_default=True,
)
def command(
    request: OpenRequest,
    until: Span | None,
    history: Path | None,
    month: str | None,
    since: str | None,
    by: str,
    team: str | None,
    budgets: tuple[Budget, ...],
    output: str,
) -> int:
    """Show the cost of GPUs by workload, team or queue: used, underutilized, lost and idle.

    FILES are manifests, folders, a scenario, or the name of a bundled fixture; they are simulated for --until. A live
    or saved cluster has only present rates per hour; what was recorded of it (`gpuconsole record`) is read with
    --history, --month or --since. Exit status 1 if a team exceeds its budget, or will by the forecast.
    """
    if month is not None and since is not None:
        raise UsageError("use only one of --month and --since")
    if month is not None:
        _month_window(month)
    if team is not None and output in ("csv", "focus"):
        raise UsageError(f"-o {output} has no monthly report of a team; use text, json, markdown or html")
    request, settings = configured(request)
    limits = budgets_of(budgets, settings.cost)
    has_cluster = bool(request.files) or request.live or request.snapshot is not None or request.recorded is not None
    with uncollected():
        if history is not None or (not has_cluster and (month is not None or since is not None)):
            if has_cluster or until is not None:
                raise UsageError("--history reads what was recorded; omit FILES, --live, --snapshot and --until")
            by_hour = output == "focus"
            source = _recorded(
                history or settings.newest_history_file, month, since, by_hour=by_hour, budgets=bool(limits)
            )
        else:
            source = _accrued(request, settings, until, month, since)
        if source.unknown:
            nothing = nothing_said("Cost", source.unknown, VERSION)
            return say(source.origin, nothing, "json" if output == "json" else "text")
        if team is not None:
            return _print_team(source, team, month or month_of(source.window[1] - 1), output)
        return _print(source, CostBy(by), limits, output)


def _window(month: str | None, since: str | None, first: Time, last: Time) -> Window:
    """Return the requested window within the time that is known, from `first` to `last`. Raises UsageError."""
    begin, end = first, last
    if month is not None:
        begin, end = _month_window(month)
    elif since is not None:
        begin = _moment(since, last) // HOUR * HOUR
    begin, end = max(begin, first), min(end, last)
    if begin > end:
        raise UsageError(f"nothing is known of that time; the data are from {time_range(first, last)}")
    return begin, end


def _month_window(month: str) -> Window:
    try:
        return month_window(month)
    except ValueError as error:
        raise UsageError(f"--month {month!r}: write it as 2026-01") from error


def _moment(text: str, now: Time) -> Time:
    """Read a time, or a duration before `now`. Raises UsageError."""
    try:
        return now - parse_span(text.removeprefix("-"))
    except ValueError:
        pass
    try:
        return parse_time(text)
    except (ValueError, OverflowError) as error:
        raise UsageError(f"--since {text!r}: {TIMES}") from error


def _accrued(
    request: OpenRequest, settings: Config, until: Span | None, month: str | None, since: str | None
) -> CostSource:
    """Simulate the cluster and allocate its cost; a live or saved cluster without --until has present rates only."""
    opened = open_simulation(request, settings)
    for notice in opened.notices:
        click.echo(clean(f"gpuconsole: {notice}"), err=True)
    simulation, found = opened.simulation, opened.found
    span = until if until is not None else 0 if found is not None else DAY
    simulation.drain()
    begin = found if found is not None and not span else simulation.snapshot()
    prices, labels = simulation.policy.prices, cost_labels(settings.cost)
    origin = Origin(
        source=opened.about.source,
        mode="simulated" if span else mode_of(request),
        now=begin.time + span,
        assumed=opened.notices if found is not None else (),
        staged=opened.staged,
    )
    unknown = begin.seen.missing_reasons(Node, Pod)
    if not span:
        if month is not None or since is not None:
            if request.recorded is not None:
                raise UsageError("`gpuconsole at` shows rates at one time; for --month and --since omit `at TIME`")
            raise UsageError("a cluster has only present rates; --month and --since need --history or --until")
        notes = (RATES if request.recorded is None else PAST_RATES,)
        rows, window = present_rates(begin, prices, labels), (begin.time, begin.time + HOUR)
        return CostSource(
            origin=origin,
            rows=rows,
            window=window,
            per_hour=True,
            loans=loan_rates(begin, workload_costs(rows)),
            notes=notes,
            unknown=unknown,
        )
    allocator = CostAllocator(begin, prices, labels)
    for event in events_until(simulation, span):
        allocator.note(event)
    allocator.advance(simulation.now)
    rows = allocator.drain()
    return CostSource(
        origin=origin,
        rows=rows,
        window=_window(month, since, begin.time, simulation.now),
        recent=rows,
        jobs=job_facts(simulation.snapshot()),
        unknown=unknown,
    )


def _recorded(file: Path, month: str | None, since: str | None, *, by_hour: bool, budgets: bool) -> CostSource:
    """Read the costs of the newest recording. Raises UsageError, HistoryError."""
    if not file.exists():
        raise UsageError(UNRECORDED)
    with earlier_sessions(file) as db:
        known = queries.recordings(db)
        if not known:
            raise UsageError(UNRECORDED)
        newest = known[-1]
        window = _window(month, since, newest.first, newest.last)
        read = queries.cost_hours if by_hour else queries.cost_sums
        rows = read(db, newest.id, window[0] // HOUR * HOUR, window[1])
        recent = queries.cost_hours(db, newest.id, *budget_window(newest.last)) if budgets else ()
    origin = Origin(source=newest.source, mode="recorded", now=newest.last, staged=newest.staged)
    return CostSource(origin=origin, rows=rows, window=window, recent=recent, notes=_gap(month, window))


def _gap(month: str | None, window: Window) -> tuple[str, ...]:
    """Say that a month was not recorded from its begin on."""
    if month is None or window[0] == month_window(month)[0]:
        return ()
    return (f"The recording begins at {format_time(window[0])}; the cost before it is not known.",)


def _print(source: CostSource, by: CostBy, budgets: Sequence[Budget], output: str) -> int:
    """Print the report in the requested format; return the exit status."""
    if source.per_hour and output == "focus":
        raise UsageError("-o focus has the cost of past hours; use --history or --until")
    summary = cost_summary(source.rows, by, source.window)
    statuses = budget_status(source.recent, budgets, source.window[1]) if not source.per_hour else ()
    match output:
        case "focus":
            click.echo(focus_csv(source.rows, source.origin.source), nl=False)
        case "csv":
            click.echo(texts.as_csv(summary), nl=False)
        case "json":
            _print_json(source, _summary_body(source, summary, statuses))
        case _:
            document = texts.cost_document(
                summary,
                per_hour=source.per_hour,
                loans=source.loans or NO_LOANS,
                borrowed=_borrowed(source, by) or {},
                budgets=statuses,
                notes=source.notes,
            )
            _print_document(source, document, output)
    return 1 if any(one.alert for one in statuses) else 0


def _borrowed(source: CostSource, by: CostBy) -> Mapping[str, float] | None:
    """Return the cost of borrowed quota in USD per hour by item; None if it is not known."""
    if source.loans is None:
        return None
    names = {row.owner.workload: str(getattr(row.owner, by.value.replace("-", "_"))) for row in source.rows}
    return source.loans.borrowed_by(names.__getitem__)


def _print_team(source: CostSource, team: str, month: str, output: str) -> int:
    if source.per_hour:
        raise UsageError("a monthly report needs the cost over time; use --history or --until")
    report = team_month(source.rows, team, month, source.jobs)
    notes = (*_other_teams(source.rows, team), *source.notes)
    if output == "json":
        jobs = [{**msgspec.structs.asdict(job), "job_name": called(job.job_name)} for job in report.top_5_costly_jobs]
        _print_json(source, {**msgspec.to_builtins(report), "top_5_costly_jobs": jobs, "notes": notes})
    else:
        _print_document(source, texts.team_document(report, notes), output)
    return 0


def _other_teams(rows: Iterable[CostHour], team: str) -> tuple[str, ...]:
    """Name the teams that have cost, if the requested one has none, as its name may be misspelled."""
    teams = sorted({row.owner.team for row in rows if row.owner.kind is CostKind.WORKLOAD})
    if not teams or team in teams:
        return ()
    more = f" and {len(teams) - MOST_TEAMS} more" if len(teams) > MOST_TEAMS else ""
    return (f"Team {clean(team)} has no cost; teams with cost: {clean(', '.join(teams[:MOST_TEAMS]))}{more}.",)


def _print_json(source: CostSource, body: Mapping[str, Any]) -> None:
    """Print a JSON document that has the fields of the answer beside those about the data."""
    facts = document(source.origin, CommandAnswer(kind="Cost", body=None, lines=(), version=VERSION))
    del facts["answer"]
    print_json({**facts, **body})


def _print_document(source: CostSource, document: texts.CostDocument, output: str) -> None:
    form = {"text": texts.as_text, "markdown": texts.as_markdown, "html": texts.as_html}[output]
    for line in form(document):
        click.echo(line)
    click.echo(clean(f"gpuconsole: {provenance(source.origin)}"), err=True)


def _summary_body(source: CostSource, summary: CostSummary, budgets: Iterable[BudgetStatus]) -> dict[str, Any]:
    """The fields of the JSON document; with `per_hour` amounts are USD per hour, and `gpu_hours` are GPUs.

    What is borrowed and lent is null without `per_hour`.
    """
    loans, borrowed = source.loans, _borrowed(source, summary.by)
    return {
        "by": summary.by,
        "per_hour": source.per_hour,
        "window": {"since": format_time(summary.window[0]), "until": format_time(summary.window[1])},
        "items": [_item_body(source, summary, item, borrowed) for item in summary.items],
        "total_cost_usd": summary.total_cost_usd,
        "idle_cost_usd": summary.idle_cost_usd,
        "system_cost_usd": summary.system_cost_usd,
        "idle_gpu_hours": summary.idle_gpu_hours,
        "saved_usd": summary.saved_usd,
        "borrowed_usd": round(sum(loans.borrowed.values()), 2) if loans is not None else None,
        "lent_usd": {name: round(usd, 2) for name, usd in sorted(loans.lent.items())} if loans is not None else None,
        "budgets": [
            {
                "team": one.budget.team,
                "usd_per_month": one.budget.usd_per_month,
                "spent_usd": one.spent_usd,
                "forecast_usd": one.forecast_usd,
                "alert": one.alert,
            }
            for one in budgets
        ],
        "notes": source.notes,
    }


def _item_body(
    source: CostSource, summary: CostSummary, item: CostItem, borrowed: Mapping[str, float] | None
) -> dict[str, Any]:
    body = {
        "name": called(item.name),
        "gpu_hours": item.gpu_hours,
        "cost_usd": item.cost_usd,
        "used_usd": item.used_usd,
        "underutilized_usd": item.underutilized_usd,
        "lost_usd": item.lost_usd,
        "saved_usd": item.saved_usd,
        "borrowed_usd": round(borrowed.get(item.name, 0.0), 2) if borrowed is not None else None,
        "utilization": item.utilization,
    }
    if summary.by is CostBy.WORKLOAD:
        facts = source.jobs.get(item.name)
        epochs = facts.epochs if facts is not None else None
        body["workload"] = item.name
        body["cost_per_epoch"] = round(item.cost_usd / max(epochs, 1), 2) if epochs is not None else None
    return body

"""`gpuconsole report`: weekly report of a recorded cluster, compared with the week before."""

import sqlite3
from pathlib import Path

import click
import msgspec

from gpuconsole.cli.answering import CommandAnswer, Origin, document
from gpuconsole.cli.options import OpenRequest, configured, print_json, recording_numbered
from gpuconsole.errors import UsageError
from gpuconsole.insight.series import Samples, by_hour
from gpuconsole.insight.tables import time_range
from gpuconsole.insight.weekly_report import WEEK, WeekData, week_begin, week_of, weekly_report
from gpuconsole.model.clock import HOUR, MINUTE, Time, format_time
from gpuconsole.store import queries
from gpuconsole.store.queries import Recording
from gpuconsole.store.schema import earlier_sessions
from gpuconsole.ui.answers.weekly_report import as_html, as_markdown

VERSION = 1
"""Version of the JSON document."""
LAST = "last"
"""Value of --week without a week."""


@click.command()
@click.option(
    "--week",
    is_flag=False,
    flag_value=LAST,
    default=LAST,
    metavar="[YYYY-Www]",
    help="ISO 8601 week, such as 2026-W47 [default: the last complete week that is recorded].",
)
@click.option(
    "--history",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The recorded history (default: that of the console).",
)
@click.option("--recording", type=int, help="Number of the recording (default: the newest).")
@click.option(
    "-o",
    "--output",
    type=click.Choice(["markdown", "html", "json"]),
    default="markdown",
    show_default=True,
)
def command(week: str, history: Path | None, recording: int | None, output: str) -> int:
    """Report on a week of a recorded cluster, compared with the week before.

    The report has utilization, waits by team and size, preemptions and lost work, unused GPUs by owner, cost and
    anti-patterns. Weeks begin on Monday, 00:00 UTC. The cluster is recorded by the console, or by `gpuconsole record`.
    """
    file = history or configured(OpenRequest())[1].newest_history_file
    if not file.exists():
        raise UsageError(f"{file}: nothing is recorded yet; run the console or `gpuconsole record`")
    with earlier_sessions(file) as db:
        chosen = _chosen(queries.recordings(db), recording, file)
        begin = _begin(week, chosen)
        report = weekly_report(week_data(db, chosen, begin), week_data(db, chosen, begin - WEEK))
    match output:
        case "json":
            times = {"begin": format_time(report.begin), "end": format_time(report.end)}
            body = {**msgspec.to_builtins(report), **times}
            answer = CommandAnswer(kind="WeeklyReport", body=body, lines=(), version=VERSION)
            print_json(document(_origin(chosen), answer))
        case "html":
            click.echo("\n".join(as_html(report, chosen.source)))
        case _:
            click.echo("\n".join(as_markdown(report, chosen.source)))
    return 0


def _origin(chosen: Recording) -> Origin:
    return Origin(source=chosen.source, mode="recorded", now=chosen.last, staged=chosen.staged)


def _chosen(recordings: list[Recording], number: int | None, file: Path) -> Recording:
    if not recordings:
        raise UsageError(f"{file}: nothing is recorded yet; run the console or `gpuconsole record`")
    return recordings[-1] if number is None else recording_numbered(recordings, number)


def _begin(week: str, chosen: Recording) -> Time:
    """Return the start of the requested week. Raises UsageError if nothing is recorded in it."""
    first, last = (week_begin(week_of(time)) for time in (chosen.first, chosen.last))
    if week == LAST:
        return max(first, last - WEEK)
    try:
        begin = week_begin(week)
    except ValueError as error:
        raise UsageError(f"--week: {error}") from error
    if not first <= begin <= last:
        recorded = time_range(chosen.first, chosen.last)
        raise UsageError(
            f"--week {week}: nothing is recorded then; {chosen.source} is recorded from {recorded}"
            f" ({week_of(chosen.first)} to {week_of(chosen.last)})"
        )
    return begin


def week_data(db: sqlite3.Connection, chosen: Recording, begin: Time) -> WeekData:
    """Read what is recorded of one week. Raises HistoryError."""
    end = begin + WEEK
    return WeekData(
        begin=begin,
        samples=_hours(db, chosen.id, begin, end),
        costs=queries.cost_sums(db, chosen.id, begin, end),
        events=queries.counted_events(db, chosen.id, begin, end),
        events_since=queries.counted_since(db, chosen.id),
    )


def _hours(db: sqlite3.Connection, recording: int, begin: Time, end: Time) -> list[Samples]:
    """Read the hours of a week; hours at its end that are not reduced yet are reduced from their minutes."""
    hours = queries.samples(db, recording, begin, end, span=HOUR)
    rest = hours[-1].time + HOUR if hours else begin
    minutes = queries.samples(db, recording, rest, end, span=MINUTE)
    return [*hours, *by_hour(minutes)]

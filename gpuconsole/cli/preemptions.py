"""`gpuconsole preemptions`: who had to make room for whom, by which rule, who else was considered, at what cost."""

import sqlite3
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import closing
from functools import wraps
from pathlib import Path
from typing import Any

import click
from msgspec import Struct
from msgspec.structs import replace

from gpuconsole.cli.answering import Answer, Asked, Origin, answering, lines_of, say
from gpuconsole.cli.bundled import fixtures
from gpuconsole.cli.options import Request, configured
from gpuconsole.cli.subjects import workload_named
from gpuconsole.cli.tables import counted, table
from gpuconsole.errors import HistoryError, UsageError
from gpuconsole.insight.choices import WORDS, shares, whose
from gpuconsole.insight.preemptions import PreemptionRow, rows
from gpuconsole.insight.who import Circle, Count, Who, about, chain, who
from gpuconsole.model.choices import Choice
from gpuconsole.model.clock import SECOND, format_span, format_time
from gpuconsole.model.events import Happened
from gpuconsole.model.snapshot import EMPTY, Snapshot
from gpuconsole.store import queries, sessions
from gpuconsole.store.schema import open_for_writing
from gpuconsole.ui.names import called

MOST = 20
"""Preemptions that are listed for people, and names of each count."""
RECORDED = 10_000
UNRECORDED = "no session is recorded yet; the console keeps a history while it runs"


class Preemption(Struct, frozen=True, kw_only=True):
    """One preemption for programs."""

    time: str
    victim: str
    victim_queue: str
    victim_path: str
    victim_priority: int
    gpus: int
    by: str
    by_queue: str
    by_path: str
    by_priority: int
    reason: str
    rule: str
    lost_gpu_hours: float
    cost: float
    freed_after_seconds: float | None
    by_admitted: str | None
    in_vain: bool
    nth: int
    thrash: bool
    chain: tuple[str, ...]
    message: str
    choice: Choice | None
    choice_as_of: str | None
    """The moment on whose cluster our engine was asked how; null where the one who decided told it."""


class Body(Struct, frozen=True):
    """The answer for programs: newest preemption first."""

    workload: str
    summary: Who
    preemptions: tuple[Preemption, ...]


def _naming(function: Callable[..., int]) -> Callable[..., int]:
    """Let the first of FILES name a workload where it is no file; with --history nothing is opened at all."""

    @click.option("--history", is_flag=True, help="Of what the console recorded in its last session; takes no cluster.")
    @wraps(function)
    def command(files: tuple[str, ...], history: bool, output: str, **options: Any) -> int:
        alone = history or options["live"] or options["snapshot"] is not None
        named = files and _names(files[0], beside=bool(files[1:]) or alone)
        workload, files = (files[0], files[1:]) if named else ("", files)
        if not history:
            return function(files=files, output=output, workload=workload, **options)
        if files or options["live"] or options["snapshot"] is not None:
            raise UsageError("--history reads what was recorded; it takes no cluster")
        origin, lines = recorded()
        return say(origin, answer_about(lines, workload, EMPTY), output)

    return command


def _names(text: str, *, beside: bool) -> bool:
    """True for `namespace/name` that is no file; for the name alone where a cluster is given `beside` it."""
    path = Path(text)
    if not path.parts or path.is_absolute() or path.suffix or path.exists():
        return False
    return len(path.parts) > 1 or (beside and text not in fixtures())


@click.command()
@_naming
@answering
def command(asked: Asked, workload: str) -> Answer:
    """Show who was preempted for whom, by which rule, who else was considered, and what it lost.

    FILES are manifests, folders, a scenario, or the name of a bundled fixture; --until runs it first. A workload before
    them (`namespace/name`) keeps to what it lost and what it made others lose, and shows who else was considered. With
    --history the answer comes from what the console recorded: it is there when the cluster's events are gone.
    """
    return answer_about(lines_of(asked), workload, asked.simulation.snapshot())


def answer_about(lines: Sequence[Happened], workload: str, snapshot: Snapshot) -> Answer:
    """The preemptions among these lines, oldest first; those of one workload, where one is named.

    Raises UsageError for a workload that neither they nor the cluster, as it is now, know.
    """
    everything = rows(lines)
    name = workload_named(snapshot, workload, _names_in(everything)) if workload else ""
    found = about(everything, name) if name else everything
    summary = who(found)
    body = Body(name, summary, tuple(_preemption(row, everything) for row in found))
    return Answer(kind="Preemptions", body=body, lines=as_text(body))


def _names_in(found: Iterable[PreemptionRow]) -> Collection[str]:
    return dict.fromkeys(name for row in found for name in (row.victim, row.by))


def recorded() -> tuple[Origin, Sequence[Happened]]:
    """The preemptions of the newest session of the history, oldest line first. Raises UsageError, HistoryError."""
    _, settings = configured(Request())
    if not settings.history_file.exists():
        raise UsageError(UNRECORDED)
    try:
        # Opened for writing, as it may have to be brought up to date.
        with closing(open_for_writing(settings.history_file)) as db:
            session = sessions.newest(db)
            if session is None:
                raise UsageError(UNRECORDED)
            lines = tuple(queries.preemptions(db, session.number, RECORDED).values())
    except sqlite3.Error as error:
        raise HistoryError(f"{settings.history_file}: {error}") from error
    return Origin(source=session.source, mode="recorded", now=session.last), lines


def _preemption(row: PreemptionRow, everything: Sequence[PreemptionRow]) -> Preemption:
    return Preemption(
        time=format_time(row.time),
        victim=row.victim,
        victim_queue=row.victim_queue,
        victim_path=row.path,
        victim_priority=row.priority,
        gpus=row.gpus,
        by=row.by,
        by_queue=row.by_queue,
        by_path=row.by_path,
        by_priority=row.by_priority,
        reason=row.reason,
        rule=row.rule,
        lost_gpu_hours=row.lost_gpu_hours,
        cost=row.cost,
        freed_after_seconds=row.latency / SECOND if row.latency is not None else None,
        by_admitted=format_time(row.admitted_at) if row.admitted_at is not None else None,
        in_vain=row.in_vain,
        nth=row.nth,
        thrash=row.thrash,
        chain=chain(row, everything),
        message=row.message,
        choice=replace(row.choice, as_of=0) if row.choice is not None else None,
        choice_as_of=format_time(row.choice.as_of) if row.choice is not None and row.choice.as_of else None,
    )


def as_text(body: Body) -> list[str]:
    """The answer for people: each preemption in full where a workload is named, else the newest and the counts."""
    found, summary = body.preemptions, body.summary
    if not found:
        return [f"nobody was preempted{f' by or for {called(body.workload)}' if body.workload else ''}"]
    lines = _sums(summary)
    if body.workload:
        for one in found[:MOST]:
            lines += ["", *_told(one)]
    else:
        lines += ["", *table(HEAD, [_row(one) for one in found[:MOST]])]
    if len(found) > MOST:
        lines.append(f"and {len(found) - MOST} before; -o json has all")
    return lines if body.workload else [*lines, *_counts(summary)]


def _sums(summary: Who) -> list[str]:
    lost = f"{summary.lost_gpu_hours:.1f} GPU-hours lost, {summary.cost:.2f} $"
    lines = [f"{counted(summary.preemptions, 'preemption')}: {lost}"]
    if summary.unplaced:
        lines.append(f"{summary.unplaced} whose preemptor has no place yet")
    if summary.in_vain:
        lines.append(f"{summary.in_vain} in vain: the preemptor went without ever having had a place")
    for what, circles in (("queues", summary.queue_circles), ("workloads", summary.circles)):
        lines += [_circle(what, circle) for circle in circles[:MOST]]
    return lines


def _circle(what: str, circle: Circle) -> str:
    names = ", ".join(map(called, circle.names))
    return (
        f"in circles: the {what} {names} evict each other, {counted(circle.times, 'time')},"
        f" {circle.lost_gpu_hours:.1f} GPU-hours and {circle.cost:.2f} $ lost"
    )


HEAD = ("WHEN", "VICTIM", "GPUS", "BY", "RULE", "PRIORITY", "LOST GPU-H", "COST $", "FREED AFTER", "NTH")


def _row(one: Preemption) -> tuple[object, ...]:
    priorities = f"{one.victim_priority} < {one.by_priority}"
    if one.victim_priority >= one.by_priority:
        priorities = f"{one.victim_priority}, {one.by_priority}"
    lost, cost = f"{one.lost_gpu_hours:.1f}", f"{one.cost:.2f}"
    again = f"{one.nth}{' in circles' if one.thrash else ''}"
    victim, by = called(one.victim), called(one.by)
    return one.time, victim, one.gpus, by, one.rule, priorities, lost, cost, _freed(one), again


def _freed(one: Preemption) -> str:
    return "not yet" if one.freed_after_seconds is None else format_span(round(one.freed_after_seconds * SECOND))


def _told(one: Preemption) -> list[str]:
    victim, by = one.victim_path or one.victim_queue, one.by_path or one.by_queue
    fate = f"{called(one.by)} was admitted at {one.by_admitted}"
    if one.by_admitted is None:
        fate = f"{called(one.by)} {'was gone before it had a place' if one.in_vain else 'has no place yet'}"
    lines = [
        f"{one.time}  {called(one.victim)} ({victim}, priority {one.victim_priority}, {counted(one.gpus, 'GPU')})",
        f"  made room for {called(one.by)} ({by}, priority {one.by_priority}): {one.rule}",
        f"  lost {one.lost_gpu_hours:.1f} GPU-hours, {one.cost:.2f} $; GPUs free after {_freed(one)}; {fate}",
    ]
    if len(one.chain) > 2:
        lines.append(f"  chain: {' <- '.join(map(called, one.chain))}")
    return [*lines, *_considered(one.choice, one.choice_as_of or "")] if one.choice is not None else lines


def _considered(choice: Choice, as_of: str) -> list[str]:
    if choice.differs:
        return [f"  {whose(choice, as_of)}"]
    title = f"  considered, in order ({'; '.join(filter(None, (shares(choice), whose(choice, as_of))))}):"
    rows = [("   ", called(one.workload), one.queue, one.priority, WORDS[one.verdict]) for one in choice.considered]
    lines = table(("", "WORKLOAD", "QUEUE", "PRIORITY", "WHAT BECAME OF IT"), rows)
    return [title, *lines, *([f"     and {choice.left_out} more"] if choice.left_out else [])]


def _counts(summary: Who) -> list[str]:
    parts = (
        ("RULE", summary.rules),
        ("VICTIM", summary.victims),
        ("FOR WHOM", summary.causers),
        ("QUEUE THAT LOSES", summary.victim_queues),
        ("QUEUE THAT GAINS", summary.causing_queues),
    )
    return [text for name, counts in parts for text in ("", *_counted(name, counts))]


def _counted(name: str, counts: Sequence[Count]) -> list[str]:
    return table(
        (name, "TIMES", "LOST GPU-H", "COST $"),
        [(called(one.name), one.times, f"{one.lost_gpu_hours:.1f}", f"{one.cost:.2f}") for one in counts[: MOST // 2]],
    )

"""`gpuconsole history`: what a recorded history contains, whether it is whole, and how to prune, copy and export it."""

import os
import shutil
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import click
import msgspec

from gpuconsole.cli.answering import CommandAnswer, Origin, printing, say
from gpuconsole.cli.options import OpenRequest, configured
from gpuconsole.config import Config
from gpuconsole.errors import HistoryError, UsageError
from gpuconsole.insight.preemption.history import NEEDED, rows
from gpuconsole.insight.tables import seconds, text_table, write_csv
from gpuconsole.model.change_log import rebuild
from gpuconsole.model.clock import HOUR, MINUTE, SECOND, Span, Time, format_time
from gpuconsole.model.events import HistoryEvent, HistoryEventKind
from gpuconsole.model.text import clean
from gpuconsole.services.time_travel import parse_moment
from gpuconsole.store import queries
from gpuconsole.store.event_blocks import EventBlockReader
from gpuconsole.store.private import make_private_file, make_private_folder
from gpuconsole.store.queries import Recording
from gpuconsole.store.retention import Deleted, planned, prune, used_bytes_too_many
from gpuconsole.store.rows import AMOUNTS, OWNER
from gpuconsole.store.schema import (
    earlier_sessions,
    history_errors,
    lock_for_writing,
    open_for_writing,
)
from gpuconsole.store.writer import pack_samples

MOST_PROBLEMS = 20
"""Maximum problems that `check` lists."""
_ROWS_AT_ONCE = 50_000
"""Rows of a row group of a Parquet file."""
_HISTORY = click.option(
    "--history",
    "file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The recorded history (default: the one that was written last).",
)


class HistoryCommands(click.Group):
    """The subcommands; `pull` is imported when it is used, because it needs the live cluster."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*super().list_commands(ctx), "pull"]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name != "pull":
            return super().get_command(ctx, cmd_name)
        from gpuconsole.cli.record import pull

        return pull


@click.group(cls=HistoryCommands)
def command() -> None:
    """Inspect, prune, copy and export recorded history.

    The console and `gpuconsole record` write it: simulations to history.db in the state folder, each live cluster to a
    file of its own beside it.
    """


def _file(file: Path | None) -> tuple[Path, Config]:
    """The history to read, and the settings. Raises UsageError."""
    _, settings = configured(OpenRequest())
    file = file or settings.newest_history_file
    if not file.exists():
        raise UsageError(f"{file}: nothing is recorded yet; run the console or `gpuconsole record`")
    return file, settings


class _TableSize(NamedTuple):
    name: str
    rows: int
    size: int | None
    """Bytes with its indexes; None if SQLite cannot tell."""


@command.command()
@_HISTORY
@printing
def info(file: Path | None, output: str) -> int:
    """Show the recordings of a history, its size, and how fast it grows."""
    file, _ = _file(file)
    with earlier_sessions(file) as db:
        recordings = queries.recordings(db)
        sizes = _table_sizes(db)
        steps = db.execute("select count(*), max(id) from _sqlite_migrations").fetchone()[0]
        (recorded,) = db.execute("select coalesce(sum(flushed - started), 0) from sessions").fetchone()
    size = sum(one.stat().st_size for one in (file, file.with_name(f"{file.name}-wal")) if one.exists())
    growth = size * HOUR / recorded if recorded >= MINUTE else None
    body = {
        "file": str(file),
        "bytes": size,
        "schema_version": steps,
        "recorded_hours": recorded / HOUR,
        "bytes_per_hour": growth,
        "recordings": [
            {**msgspec.structs.asdict(one), "first": format_time(one.first), "last": format_time(one.last)}
            for one in recordings
        ],
        "tables": [one._asdict() for one in sizes],
    }
    lines = [
        f"{file}: {_bytes(size)}, schema version {steps}",
        f"recorded for {recorded / HOUR:,.1f} hours of wall-clock time"
        + (f", {_bytes(growth)} per hour" if growth is not None else "; too short to tell its growth"),
        "",
        *text_table(
            ("RECORDING", "MODE", "SOURCE", "FIRST", "LAST"),
            [(one.id, one.mode, one.source, seconds(one.first), seconds(one.last)) for one in recordings],
        ),
        "",
        *text_table(
            ("TABLE", "ROWS", "SIZE"),
            [(one.name, one.rows, _bytes(one.size) if one.size is not None else "unknown") for one in sizes],
        ),
    ]
    return say(_origin(file), CommandAnswer(kind="HistoryInfo", body=body, lines=lines), output)


def _origin(file: Path) -> Origin:
    return Origin(source=str(file), mode="recorded", now=None)


def _bytes(size: float) -> str:
    return f"{size / 1e6:,.1f} MB" if size >= 1e6 else f"{size / 1e3:,.1f} kB"


def _table_sizes(db: sqlite3.Connection) -> list[_TableSize]:
    names = [
        name
        for (name,) in db.execute("select name from sqlite_master where type = 'table' order by name")
        if not name.startswith(("sqlite_", "_"))
    ]
    sizes: dict[str, int] = {}
    try:
        query = (
            "select tbl_name, sum(pgsize) from dbstat join sqlite_master using (name)"
            " where aggregate = true group by tbl_name"
        )
        sizes = dict(db.execute(query).fetchall())
    except sqlite3.OperationalError:
        # This SQLite was built without the table dbstat.
        sizes = {}
    return [
        _TableSize(name, db.execute(f'select count(*) from "{name}"').fetchone()[0], sizes.get(name)) for name in names
    ]


@command.command()
@_HISTORY
@printing
def check(file: Path | None, output: str) -> int:
    """Check that a history is whole. Exits with 1 on problems."""
    file, _ = _file(file)
    with earlier_sessions(file) as db:
        # One state of the file, also while it is written: else the newest events seem to be damaged.
        db.execute("begin")
        problems = list(_problems(db))
    body = {"file": str(file), "problems": problems[:MOST_PROBLEMS], "problem_count": len(problems)}
    lines = [*problems[:MOST_PROBLEMS]] if problems else [f"{file}: no problems found"]
    if len(problems) > MOST_PROBLEMS:
        lines.append(f"and {len(problems) - MOST_PROBLEMS} more problems")
    answer = CommandAnswer(kind="HistoryCheck", body=body, lines=lines, status=1 if problems else 0)
    return say(_origin(file), answer, output)


def _problems(db: sqlite3.Connection) -> Iterator[str]:
    """What is damaged in a history, in sentences."""
    try:
        for (text,) in db.execute("pragma integrity_check(20)"):
            if text != "ok":
                yield f"SQLite: {clean(str(text))}"
    except sqlite3.DatabaseError as error:
        yield f"SQLite: {clean(str(error))}"
        return
    for question, what in _INVARIANTS.items():
        try:
            (count,) = db.execute(question).fetchone()
        except sqlite3.DatabaseError as error:
            yield f"{what}: {clean(str(error))}"
        else:
            if count:
                yield f"{what}: {count:,}"
    for (session,) in db.execute("select id from sessions order by id").fetchall():
        yield from _event_problems(db, session)
    for recording in queries.recordings(db):
        yield from _recording_problems(db, recording)


_INVARIANTS = {
    "select count(*) from sessions where recording is null"
    " or recording not in (select id from recordings)": "sessions without a recording",
    "select count(*) from event_blocks where session not in (select id from sessions)"
    " or id >> 32 != session": "event blocks without a session",
    "select count(*) from event_blocks where first > last": "event blocks that end before they begin",
    "select count(*) from checkpoints where recording not in (select id from recordings)"
    " or session not in (select id from sessions)": "checkpoints without a recording",
    "select count(*) from change_batches"
    " where id >> 24 not in (select id from checkpoints)": "changes without a checkpoint",
    "select count(*) from (select id >> 24 as checkpoint, count(*) as found, max(id & 16777215) as last"
    " from change_batches group by checkpoint) where found != last + 1": "checkpoints of which changes are missing",
    "select count(*) from cost_owners"
    " where id >> 24 not in (select id from recordings)": "owners of costs without a recording",
    "select count(*) from cost_hours where ((id >> 44) << 24) + (id & 16777215) not in (select id from cost_owners)": (
        "costs without an owner"
    ),
    "select count(*) from series where name != 0 and name not in (select id from names)": "time series without a name",
    "select count(*) from losses where session not in (select id from sessions)": "losses without a session",
}
"""Query that counts violations → what is wrong."""


def _event_problems(db: sqlite3.Connection, session: int) -> Iterator[str]:
    """Events that cannot be read, or whose number or time is not that of their block."""
    written = queries.written(db, session)
    after, before = -1, 0
    while True:
        row = db.execute(
            "select id, first, last from event_blocks where session = ? and id > ? order by id limit 1",
            (session, max(after, (session << 32) - 1)),
        ).fetchone()
        if row is None:
            return
        after = row[0]
        reader, first = EventBlockReader(db, session), row[0] & 0xFFFFFFFF
        try:
            found = reader.find(first) if before <= first else None
            if found is None:
                yield f"session {session}: the events of two blocks overlap at event {first}"
                continue
            block, _ = found
            if (min(block.times), max(block.times)) != row[1:] or block.numbers[-1] >= written:
                yield f"session {session}: the block of event {block.numbers[0]} has other events than it should have"
            for place in range(len(block.numbers)):
                reader.event(block, place)
            before = block.numbers[-1] + 1
        except HistoryError as error:
            yield str(error)


def _recording_problems(db: sqlite3.Connection, recording: Recording) -> Iterator[str]:
    """Time series, costs and changes that cannot be read."""
    for span in (MINUTE, HOUR):
        first, last = queries.recorded_series(db, recording.id, span)
        while first <= last:
            try:
                queries.samples(db, recording.id, first, first + 24 * HOUR, span=span)
            except HistoryError as error:
                yield f"recording {recording.id} at {format_time(first)}: {error}"
            first += 24 * HOUR
    try:
        queries.cost_sums(db, recording.id, 0, recording.last + HOUR)
    except HistoryError as error:
        yield f"recording {recording.id}: {error}"
    times = db.execute("select time from checkpoints where recording = ? order by time", (recording.id,)).fetchall()
    for (begin,), (end,) in pairwise([*times, (recording.last + 1,)]):
        try:
            checkpoint, batches = queries.rebuild_at(db, recording.id, max(begin, min(end - 1, recording.last)))
            rebuild(checkpoint, batches, max(checkpoint.time, batches[-1].until if batches else checkpoint.time))
        except HistoryError as error:
            # Between two sessions nothing is recorded.
            if not str(error).startswith("nothing is recorded at"):
                yield f"recording {recording.id}: {error}"
        except ValueError as error:
            yield f"recording {recording.id}: {clean(str(error))}"


@command.command("prune")
@_HISTORY
@click.option("--yes", is_flag=True, help="Delete; without it the command says what it would delete.")
def prune_command(file: Path | None, yes: bool) -> int:
    """Delete what the retention settings do not keep.

    A console or recorder that runs does this once an hour. The settings are history.raw_days, minutes_days, hours_days
    and max_gib of the configuration.
    """
    file, settings = _file(file)
    if not yes:
        with earlier_sessions(file) as db:
            for line in _deleted_lines(planned(db, settings.history, _now()), "would delete"):
                click.echo(line)
            if too_many := used_bytes_too_many(db, settings.history):
                click.echo(
                    f"{_bytes(too_many)} more than history.max_gib; would delete the oldest data, raw data first"
                )
        click.echo("gpuconsole: nothing was deleted; add --yes to delete", err=True)
        return 0
    lock = lock_for_writing(file)
    try:
        with history_errors(file), closing(open_for_writing(file)) as db:
            pack_samples(db, _now())
            deleted = prune(db, settings.history, _now())
            _make_smaller(db)
    finally:
        lock.release()
    for line in _deleted_lines(deleted, "deleted"):
        click.echo(line)
    return 0


def _make_smaller(db: sqlite3.Connection) -> None:
    """Give the free pages of a file of an earlier version back, which the hourly pruning cannot."""
    (mode,) = db.execute("pragma auto_vacuum").fetchone()
    (free,) = db.execute("pragma freelist_count").fetchone()
    if mode == 0 and free:
        db.execute("pragma auto_vacuum = incremental")
        db.execute("vacuum")


def _deleted_lines(deleted: Deleted, verb: str) -> list[str]:
    found = [
        f"{verb} {count:,} {name.replace('_', ' ')}" for name, count in msgspec.structs.asdict(deleted).items() if count
    ]
    return found or ["nothing is older than the settings allow"]


def _now() -> Time:
    return time.time_ns() // 1_000


@command.command()
@_HISTORY
@click.argument("target", metavar="FILE", type=click.Path(dir_okay=False, allow_dash=True, path_type=Path))
def backup(file: Path | None, target: Path) -> int:
    """Copy a history to FILE, also while it is written; - is stdout.

    The copy is one file that only you can read.
    """
    file, _ = _file(file)
    if str(target) == "-":
        with tempfile.TemporaryDirectory() as folder:
            copy = Path(folder) / "history.db"
            _copy(file, copy)
            with copy.open("rb") as source:
                shutil.copyfileobj(source, sys.stdout.buffer)
        return 0
    if target.exists():
        raise UsageError(f"{target} exists; name another file")
    _copy(file, target)
    click.echo(f"{target}: {_bytes(target.stat().st_size)}")
    return 0


def _copy(file: Path, target: Path) -> None:
    """Copy a history by SQLite's backup. Raises HistoryError; then there is no copy."""
    with history_errors(target):
        make_private_folder(target.parent)
        make_private_file(target)
    try:
        with earlier_sessions(file) as source, history_errors(target), closing(sqlite3.connect(target)) as copy:
            source.backup(copy)
            copy.execute("pragma journal_mode = delete").fetchone()
    except BaseException:
        target.unlink(missing_ok=True)
        raise


# Export


_TABLES = ("events", "decisions", "preemptions", "audit", "series", "gpus", "costs")


@command.command()
@_HISTORY
@click.argument("what", metavar="TABLE", type=click.Choice(_TABLES))
@click.option("-o", "--output", type=click.Choice(["csv", "jsonl", "parquet"]), default="csv", show_default=True)
@click.option("--to", type=click.Path(dir_okay=False, path_type=Path), help="File to write (default: stdout).")
@click.option("--recording", type=int, help="Number of the recording (default: the newest).")
@click.option("--since", metavar="TIME", help="Begin, such as 2026-01-05T14:00Z, or -2h before the end.")
@click.option("--until", metavar="TIME", help="End, likewise (default: the end of the recording).")
@click.option(
    "--span", type=click.Choice(["minute", "hour"]), default="hour", show_default=True, help="Of time series."
)
def export(
    file: Path | None,
    what: str,
    output: str,
    to: Path | None,
    recording: int | None,
    since: str | None,
    until: str | None,
    span: str,
) -> int:
    """Export a TABLE of a recording: events, decisions, preemptions, audit, series, gpus or costs.

    Preemptions have their victims and lost work, series those of queues, cohorts and flavors. Text that a spreadsheet
    would take for a formula begins with an apostrophe in CSV. Parquet needs the extra `parquet`.
    """
    file, _ = _file(file)
    with earlier_sessions(file) as db:
        chosen = _chosen(queries.recordings(db), recording, file)
        window = (_moment(since, chosen, chosen.first), _moment(until, chosen, chosen.last + 1))
        if since is None and what in ("events", "decisions", "audit"):
            # A live cluster reports events from before it was recorded.
            window = (0, window[1])
        records = _EXPORTS[what](db, chosen, window, MINUTE if span == "minute" else HOUR)
        _write(records, output, to)
    return 0


class _Records(NamedTuple):
    """Rows to export."""

    columns: dict[str, type]
    """Name → str, int, float, or Time for times."""
    rows: Iterable[Sequence[Any]]


class _Time(int):
    """Type of a column with times, in µs."""


_Window = tuple[Time, Time]


def _chosen(recordings: list[Recording], number: int | None, file: Path) -> Recording:
    found = [one for one in recordings if number in (None, one.id)]
    if not found:
        known = ", ".join(f"{one.id} ({one.source})" for one in recordings[-8:]) or "none"
        raise UsageError(f"{file}: there is no recording {number if number is not None else 'yet'}; it has {known}")
    return found[-1]


def _moment(text: str | None, recording: Recording, default: Time) -> Time:
    try:
        return parse_moment(text, recording.last) if text is not None else default
    except ValueError as error:
        raise UsageError(str(error)) from error


_EVENT = {
    "time": _Time,
    "kind": str,
    "workload": str,
    "pod": str,
    "queue": str,
    "by": str,
    "by_queue": str,
    "reason": str,
    "message": str,
    "node": str,
    "flavor": str,
    "gpus": int,
    "unit": str,
    "borrowed": int,
    "priority": int,
    "by_priority": int,
    "lost_gpu_hours": float,
    "lost_usd": float,
    "lost_unknown": int,
    "waited_seconds": float,
    "count": int,
    "last_time": _Time,
}
_DECISIONS = (
    HistoryEventKind.RESERVED,
    HistoryEventKind.ADMITTED,
    HistoryEventKind.PENDING,
    HistoryEventKind.PREEMPTED,
    HistoryEventKind.EVICTED,
    HistoryEventKind.REQUEUED,
    HistoryEventKind.PLACES,
    HistoryEventKind.POD_BOUND,
    HistoryEventKind.POD_EVICTED,
    HistoryEventKind.GANG_WAITING,
)


def _event_row(line: HistoryEvent) -> Sequence[Any]:
    return (
        line.time,
        line.what.value,
        line.workload,
        line.pod,
        line.queue,
        line.by,
        line.by_queue,
        line.reason,
        line.message,
        line.node,
        line.flavor,
        line.gpus,
        line.unit,
        line.borrowed,
        line.priority,
        line.by_priority,
        line.lost_gpu_seconds / 3600,
        line.cost,
        int(line.lost_unknown),
        line.waited / SECOND,
        line.count,
        line.last_time or line.time,
    )


def _events(db: sqlite3.Connection, recording: Recording, window: _Window, span: Span) -> _Records:
    return _Records(_EVENT, map(_event_row, queries.events(db, recording.id, *window)))


def _decisions(db: sqlite3.Connection, recording: Recording, window: _Window, span: Span) -> _Records:
    return _Records(_EVENT, map(_event_row, queries.events(db, recording.id, *window, _DECISIONS)))


def _preemptions(db: sqlite3.Connection, recording: Recording, window: _Window, span: Span) -> _Records:
    columns = {
        "time": _Time,
        "victim": str,
        "victim_queue": str,
        "gpus": int,
        "unit": str,
        "priority": int,
        "by": str,
        "by_queue": str,
        "by_priority": int,
        "reason": str,
        "rule": str,
        "lost_gpu_hours": float,
        "lost_usd": float,
        "freed_after_seconds": float,
        "preemptor_admitted": _Time,
        "nth": int,
    }
    events = list(queries.events(db, recording.id, 0, recording.last + 1, NEEDED))
    found = [row for row in reversed(rows(events)) if window[0] <= row.time < window[1]]
    return _Records(
        columns,
        (
            (
                row.time,
                row.victim,
                row.victim_queue,
                row.gpus,
                row.unit,
                row.priority,
                row.by,
                row.by_queue,
                row.by_priority,
                row.reason,
                row.rule,
                row.lost_gpu_hours,
                row.cost,
                row.latency / SECOND if row.latency is not None else None,
                row.admitted_at,
                row.nth,
            )
            for row in found
        ),
    )


def _audit(db: sqlite3.Connection, recording: Recording, window: _Window, span: Span) -> _Records:
    columns = {"wall_time": _Time, "time": _Time, "session": int, "command": str, "outcome": str, "detail": str}
    found = db.execute(
        "select wall, time, session, command, outcome, detail from audit join sessions on sessions.id = session"
        " where recording = ? and time >= ? and time < ? order by session, n",
        (recording.id, *window),
    )
    return _Records(columns, (tuple(clean(one) if isinstance(one, str) else one for one in row) for row in found))


def _series(db: sqlite3.Connection, recording: Recording, window: _Window, span: Span) -> _Records:
    columns = {
        "time": _Time,
        "kind": str,
        "name": str,
        "flavor": str,
        "nominal_gpus": float,
        "used_gpus": float,
        "borrowed_gpus": float,
        "lent_gpus": float,
        "pending_workloads": int,
        "pending_gpus": float,
        "wait_p50_seconds": float,
        "wait_p95_seconds": float,
        "admitted": int,
        "preempted": int,
        "evicted": int,
    }

    def found() -> Iterator[Sequence[Any]]:
        for samples in _samples(db, recording, window, span):
            for queue in samples.queues:
                yield samples.time, queue.kind.value, *msgspec.structs.astuple(queue)[1:]

    return _Records(columns, found())


def _gpus(db: sqlite3.Connection, recording: Recording, window: _Window, span: Span) -> _Records:
    columns = {
        "time": _Time,
        "gpu_type": str,
        "total": int,
        "allocated": float,
        "idle": float,
        "unhealthy": float,
        "utilization_percent": float,
    }

    def found() -> Iterator[Sequence[Any]]:
        for samples in _samples(db, recording, window, span):
            for gpu in samples.gpus:
                yield samples.time, *msgspec.structs.astuple(gpu)

    return _Records(columns, found())


def _samples(db: sqlite3.Connection, recording: Recording, window: _Window, span: Span) -> Iterator[Any]:
    """Samples of a window, read day by day; the hour or minute in which it begins is included."""
    begin = window[0] // span * span
    while begin < window[1]:
        end = min(window[1], begin + 24 * HOUR)
        yield from queries.samples(db, recording.id, begin, end, span=span)
        begin = end


def _costs(db: sqlite3.Connection, recording: Recording, window: _Window, span: Span) -> _Records:
    owner, amounts = OWNER, (*AMOUNTS, "cost_usd")
    columns = {"hour": _Time, **dict.fromkeys(owner, str), **dict.fromkeys(amounts, float)}

    def found() -> Iterator[Sequence[Any]]:
        for row in queries.cost_hours(db, recording.id, *window):
            yield (
                row.hour,
                *(str(getattr(row.owner, name)) for name in owner),
                *(float(getattr(row, name)) for name in amounts),
            )

    return _Records(columns, found())


_EXPORTS: dict[str, Callable[[sqlite3.Connection, Recording, _Window, Span], _Records]] = {
    "events": _events,
    "decisions": _decisions,
    "preemptions": _preemptions,
    "audit": _audit,
    "series": _series,
    "gpus": _gpus,
    "costs": _costs,
}


def _write(records: _Records, output: str, to: Path | None) -> None:
    """Write rows to a file or stdout; a file that already exists is not replaced. Raises UsageError."""
    if to is None:
        if output == "parquet" and sys.stdout.isatty():
            raise UsageError("Parquet is binary; name a file with --to")
        sys.stdout.flush()
        _write_to(records, output, sys.stdout.buffer)
        return
    try:
        descriptor = os.open(to, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    except FileExistsError:
        raise UsageError(f"{to} exists; name another file") from None
    except OSError as error:
        raise UsageError(f"{to}: {error.strerror}") from error
    try:
        with open(descriptor, "wb") as file:
            _write_to(records, output, file)
    except BaseException:
        to.unlink()
        raise


def _write_to(records: _Records, output: str, file: BinaryIO) -> None:
    times = {place for place, kind in enumerate(records.columns.values()) if kind is _Time}
    match output:
        case "parquet":
            _write_parquet(records, file)
        case "jsonl":
            for row in records.rows:
                values = dict(zip(records.columns, _with_times(row, times), strict=True))
                file.write(msgspec.json.encode(values) + b"\n")
        case _:
            _write_csv(records, times, file)


def _write_csv(records: _Records, times: set[int], file: BinaryIO) -> None:
    class Lines:
        """Encodes what the csv module writes."""

        def write(self, text: str) -> int:
            return file.write(text.encode(errors="replace"))

    write_csv(records.columns, (_with_times(row, times) for row in records.rows), Lines())


def _with_times(row: Sequence[Any], times: set[int]) -> list[Any]:
    return [format_time(one) if place in times and one is not None else one for place, one in enumerate(row)]


def _write_parquet(records: _Records, file: BinaryIO) -> None:
    try:
        import pyarrow
        from pyarrow import parquet

        # It may have been installed with a NumPy that it does not support.
        pyarrow.array([""])
    except ImportError as error:
        problem = f" ({clean(str(error))})" if not isinstance(error, ModuleNotFoundError) else ""
        need = f"-o parquet needs pyarrow{problem}; install it with: pip install 'gpuconsole[parquet]'"
        raise UsageError(need) from error
    kinds = {
        str: pyarrow.string(),
        int: pyarrow.int64(),
        float: pyarrow.float64(),
        _Time: pyarrow.timestamp("us", "UTC"),
    }
    schema = pyarrow.schema([(name, kinds[kind]) for name, kind in records.columns.items()])
    with parquet.ParquetWriter(file, schema, compression="zstd") as writer:
        waiting: list[Sequence[Any]] = []
        for row in records.rows:
            waiting.append(row)
            if len(waiting) >= _ROWS_AT_ONCE:
                writer.write_table(_arrow(pyarrow, schema, waiting))
                waiting = []
        writer.write_table(_arrow(pyarrow, schema, waiting))


def _arrow(pyarrow: Any, schema: Any, found: list[Sequence[Any]]) -> Any:
    columns = list(zip(*found, strict=True)) or [()] * len(schema)
    arrays = [pyarrow.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    return pyarrow.Table.from_arrays(arrays, schema=schema)

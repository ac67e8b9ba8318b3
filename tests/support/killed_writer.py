"""Processes that write or migrate a history until they are killed, and what of it must be there afterwards."""

import multiprocessing
import random
import sqlite3
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from multiprocessing.connection import Connection
from pathlib import Path

from gpuconsole.config import HistorySettings
from gpuconsole.insight.cost.allocation import CostHour, CostKind, CostOwner
from gpuconsole.insight.forecast.agreement import AgreementCounts, AgreementRecord
from gpuconsole.insight.series import QueueSample, Samples, SeriesKind
from gpuconsole.model.change_log import ChangeBatch, Checkpoint
from gpuconsole.model.clock import HOUR, MINUTE
from gpuconsole.model.events import HistoryEvent, HistoryEventKind
from gpuconsole.store import queries
from gpuconsole.store.event_blocks import EventBlockReader
from gpuconsole.store.recorder import Opening, Recorder, Recovered
from gpuconsole.store.schema import migrations, open_for_reading, open_for_writing

INTERVAL = 0.05
LINES = 10
"""Given to the recorder at once."""
PRUNED_EACH = 20
"""Number of calls after which the writer prunes: everything of the sessions before."""
SECOND_AGO = HistorySettings(raw_days=1 / 86_400, minutes_days=1 / 86_400, hours_days=1 / 86_400)
OLD_EVENTS = 20_000
"""Events of the history of an earlier version."""
_CONTEXT = multiprocessing.get_context("forkserver")


def write_for_ever(path: Path, said: Connection) -> None:
    """Record and prune; say how many events were given to the recorder, and how many are safe."""
    recorder = Recorder(
        path,
        Opening(version="test", mode="SIM"),
        wall=lambda: time.time_ns() // 1_000,
        interval=INTERVAL,
        retention=SECOND_AGO,
    )
    n = 0
    while True:
        recorder.record(
            [
                HistoryEvent(time=n + i, what=HistoryEventKind.SUBMITTED, workload=f"team/job-{n + i}")
                for i in range(LINES)
            ]
        )
        owner = CostOwner(kind=CostKind.WORKLOAD, workload=f"team/job-{n}")
        recorder.add_costs([CostHour(owner=owner, hour=n // 1_000 * HOUR, used_usd=1.0)])
        queue = QueueSample(kind=SeriesKind.QUEUE, name="q", used=float(n))
        recorder.add_agreement(AgreementRecord(hours={0: AgreementCounts(decisions=1, agreed=1)}))
        recorder.add_samples(Samples(time=n // LINES * MINUTE, span=MINUTE, queues=(queue,)))
        changes = ChangeBatch(n, n + LINES, bytes(100))
        recorder.add_changes(Checkpoint(n, bytes(1_000)) if n % 1_000 == 0 else None, changes)
        n += LINES
        said.send((n, n - len(recorder.unflushed())))
        if n // LINES % PRUNED_EACH == 0:
            recorder.prune()
        time.sleep(0.002)


def migrate(path: Path, said: Connection) -> None:
    """Open a history of an earlier version, which migrates it."""
    said.send((OLD_EVENTS, OLD_EVENTS))
    open_for_writing(path).close()
    said.send((0, 0))


def make_old_history(path: Path) -> None:
    """Create a history as the version before recordings had it, with one live session."""
    from sqlite_utils import Database

    with closing(sqlite3.connect(path)) as db:
        db.execute("pragma journal_mode = wal")
        migrations().apply(Database(db), stop_before="recordings")
        with db:
            db.execute(
                "insert into sessions (pid, version, mode, source, started, flushed, ended)"
                " values (1, '0.2', 'live', 'prod', 0, 1, 1)"
            )
            db.executemany(
                "insert into events (session, n, time, what, workload, pod, queue, by, by_queue, reason, message, node,"
                " flavor, gpus, borrowed, priority, by_priority, lost_gpu_seconds, cost, waited)"
                " values (1, ?, ?, 'pending', ?, '', 'q', '', '', 'NoFit', '8 more needed', '', '', 8, 0, 0, 0, 0, 0,"
                " 0)",
                ((n, n, f"team/job-{n % 100}") for n in range(OLD_EVENTS)),
            )


def killed(work: Callable[[Path, Connection], None], path: Path, wait: float) -> tuple[int, int]:
    """Run `work` in another process, kill it `wait` seconds after it began; return what it said last."""
    # The fork server imports once; its children have no threads when they are forked.
    _CONTEXT.set_forkserver_preload(["tests.support.killed_writer", "sqlite_utils"])
    said, tell = _CONTEXT.Pipe(duplex=False)
    process = _CONTEXT.Process(target=work, args=(path, tell))
    process.start()
    tell.close()
    last: tuple[int, int] = said.recv()
    time.sleep(wait)
    process.kill()
    process.join()
    try:
        while True:
            last = said.recv()
    except EOFError:
        return last
    finally:
        said.close()


def kept_after_kill(path: Path) -> int:
    """Start anew on a killed writer's file, check that it is whole, and return how many events it recovered."""
    recorder = Recorder(path, Opening(version="test"), wall=lambda: time.time_ns() // 1_000)
    recorder.close()
    [recovered] = recorder.recovered
    with closing(open_for_reading(path)) as db:
        check_whole(db, recovered)
    return recovered.lines


def check_whole(db: sqlite3.Connection, recovered: Recovered) -> None:
    """Check that what was written together is there together."""
    assert db.execute("pragma integrity_check").fetchone() == ("ok",)
    numbers = [n for block in EventBlockReader(db, recovered.session).blocks() for n in block.numbers]
    assert numbers == list(range(recovered.lines)), "what is kept has no holes"
    (recording,) = db.execute("select recording from sessions where id = ?", (recovered.session,)).fetchone()
    costs = queries.cost_hours(db, recording, 0, 2**50)
    assert sum(one.used_usd for one in costs) * LINES == recovered.lines, "costs are written with the events"
    samples = queries.samples(db, recording, 0, 2**60, span=MINUTE)
    assert len(samples) * LINES == recovered.lines, "samples are written with the events"
    compared = queries.agreement(db, recording, 0).counts
    assert compared.agreed * LINES == recovered.lines, "compared decisions are written with the events"
    if recovered.lines:
        checkpoint, batches = queries.rebuild_at(db, recording, recovered.lines)
        assert batches[-1].until == recovered.lines, "changes are written with the events"
        assert checkpoint.time == (recovered.lines - 1) // 1_000 * 1_000


def old_events_after_kill(path: Path) -> Sequence[int]:
    """Numbers of the events of a history whose migration was killed, after it was migrated."""
    open_for_writing(path).close()
    with closing(open_for_reading(path)) as db:
        assert db.execute("pragma integrity_check").fetchone() == ("ok",)
        return [n for block in EventBlockReader(db, 1).blocks() for n in block.numbers]


def kill_writers(path: Path, kills: int, chance: random.Random) -> int:
    """Kill writers of one file; returns how many of them had written something, and checks what each left."""
    written = 0
    for _ in range(kills):
        given, safe = killed(write_for_ever, path, chance.uniform(0.05, 0.25))
        assert safe <= kept_after_kill(path) <= given + LINES
        written += safe > 0
    return written


def kill_migrations(folder: Path, kills: int, chance: random.Random) -> int:
    """Kill migrations of old histories; returns how many were killed before their end, and checks what each left."""
    original = folder / "original.db"
    make_old_history(original)
    before = time.monotonic()
    (folder / "timed.db").write_bytes(original.read_bytes())
    open_for_writing(folder / "timed.db").close()
    longest = time.monotonic() - before
    interrupted = 0
    for number in range(kills):
        path = folder / f"history-{number}.db"
        path.write_bytes(original.read_bytes())
        given, _ = killed(migrate, path, chance.uniform(0, 1.2 * longest))
        interrupted += given > 0
        assert old_events_after_kill(path) == list(range(OLD_EVENTS)), "every event was migrated"
        for file in folder.glob(f"{path.name}*"):
            file.unlink()
    return interrupted

"""A kill -9 loses at most what was not flushed yet, and the next start says what it kept."""

import multiprocessing
import random
import sqlite3
import time
from multiprocessing.connection import Connection
from pathlib import Path

from gpuconsole.store.event_blocks import EventBlockReader
from gpuconsole.store.recorder import Opening, Recorder, Recovered
from tests.support.killed_writer import LINES, write_for_ever

KILLS = 20


def test_twenty_killed_writers_lose_nothing_that_was_flushed(tmp_path: Path) -> None:
    path, chance = tmp_path / "history.db", random.Random(7)
    # The fork server imports once; its children have no threads when they are forked.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.support.killed_writer", "sqlite_utils"])
    flushed = []
    for _ in range(KILLS):
        said, tell = context.Pipe(duplex=False)
        writer = context.Process(target=write_for_ever, args=(path, tell))
        writer.start()
        tell.close()
        said.recv()
        time.sleep(chance.uniform(0.05, 0.25))
        writer.kill()
        writer.join()
        given, safe = _last(said)
        flushed.append(safe)
        assert safe <= _kept_after(path) <= given + LINES
    assert sum(safe > 0 for safe in flushed) > KILLS // 2, "the timer wrote while the writers lived"


def _last(said: Connection) -> tuple[int, int]:
    """The last thing that the writer said before it died."""
    last = (0, 0)
    try:
        while True:
            last = said.recv()
    except EOFError:
        return last
    finally:
        said.close()


def _kept_after(path: Path) -> int:
    """Start anew on a killed session's file, check what it recovered, and say how many lines that is."""
    recorder = Recorder(path, Opening(version="test"), wall=lambda: 2_000_000_000_000_000)
    recorder.close()
    [recovered] = recorder.recovered
    db = sqlite3.connect(path)
    numbers = [n for block in EventBlockReader(db, recovered.session).blocks() for n in block.numbers]
    assert numbers == list(range(len(numbers))), "what is kept has no holes"
    assert recovered.lines == len(numbers)
    assert db.execute("pragma integrity_check").fetchone() == ("ok",)
    db.close()
    return len(numbers)


def test_the_next_start_says_what_it_recovered_in_words() -> None:
    recovered = Recovered(session=1, lines=1234, flushed=1_767_600_000_000_000)
    assert str(recovered) == ("recovered 1,234 events of a session that ended abnormally at 2026-01-05T08:00:00Z")

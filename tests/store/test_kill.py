"""A kill -9 loses at most what was not flushed yet, and the next start says what it kept.

`python -m tests.tools.kill_history` (`make kill-history`) kills 200 times.
"""

import random
from pathlib import Path

from gpuconsole.store.recorder import Recovered
from tests.support.killed_writer import kill_migrations, kill_writers

KILLS = 10


def test_killed_writers_that_also_prune_lose_nothing_that_was_flushed(tmp_path: Path) -> None:
    written = kill_writers(tmp_path / "history.db", KILLS, random.Random(7))
    assert written > KILLS // 2, "the timer wrote while the writers lived"


def test_a_killed_migration_is_repeated_and_loses_nothing(tmp_path: Path) -> None:
    interrupted = kill_migrations(tmp_path, 4, random.Random(7))
    assert interrupted > 0, "a migration was under way when it was killed"


def test_the_next_start_says_what_it_recovered_in_words() -> None:
    recovered = Recovered(session=1, lines=1234, flushed=1_767_600_000_000_000)
    assert str(recovered) == ("recovered 1,234 events of a session that ended abnormally at 2026-01-05T08:00:00Z")

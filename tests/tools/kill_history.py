"""Kill the writer of a history with signal 9, 150 times while it writes and prunes and 50 times while it migrates.

`make kill-history`, or `python -m tests.tools.kill_history [NUMBER]`. Each time the file must open, be whole, and have
everything that was committed.
"""

import argparse
import random
import tempfile
import time
from pathlib import Path

from tests.support.killed_writer import kill_migrations, kill_writers


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.tools.kill_history", description=__doc__)
    parser.add_argument("number", nargs="?", type=int, default=200, help="kills, a quarter of them of migrations")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    options = parser.parse_args()
    print(f"seed {options.seed}")
    chance, migrations = random.Random(options.seed), options.number // 4
    with tempfile.TemporaryDirectory() as folder:
        written = kill_writers(Path(folder) / "history.db", options.number - migrations, chance)
        print(
            f"{options.number - migrations} writers killed, {written} of which had written: nothing committed was lost"
        )
        interrupted = kill_migrations(Path(folder), migrations, chance)
        print(f"{migrations} migrations killed, {interrupted} of them under way: nothing was lost")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

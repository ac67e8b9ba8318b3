"""The console ends in order however it is ended: by a signal, or because its terminal is closed."""

import os
import signal
import sqlite3
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.tools.pty_console import PtyConsole

PAINTED = r"admitted"
PATIENCE = 20.0
LEFT_ALTERNATE_SCREEN = b"\x1b[?1049l"
SHOWN_CURSOR = b"\x1b[?25h"


@pytest.fixture
def console(tmp_path: Path) -> Iterator[PtyConsole]:
    environment = {
        "GPUCONSOLE_STATE_DIR": str(tmp_path),
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
        "GPUCONSOLE_SIMULATION__SPEED": "600",
    }
    with PtyConsole([sys.executable, "-m", "gpuconsole"], 120, 36, environment) as console:
        console.wait(PAINTED)
        yield console


def cordon_a_node(console: PtyConsole) -> None:
    """Do something that the audit has to tell, in the second before the end."""
    console.insist("4", "GPUs in use")
    console.write("c")
    console.wait("Cordoning")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP], ids=["SIGTERM", "SIGHUP"])
def test_a_signal_ends_the_console_like_a_quit(console: PtyConsole, tmp_path: Path, number: signal.Signals) -> None:
    before = termios.tcgetattr(console.terminal)
    cordon_a_node(console)
    os.kill(console.pid, number)
    painted, status = console.end(PATIENCE)
    assert status == 0
    assert LEFT_ALTERNATE_SCREEN in painted
    assert SHOWN_CURSOR in painted
    assert b"Traceback" not in painted
    assert before[3] & termios.ICANON == 0, "the console took the terminal"
    assert ended(tmp_path) == ["sent"]


def test_a_closed_terminal_ends_the_console_like_a_quit(console: PtyConsole, tmp_path: Path) -> None:
    cordon_a_node(console)
    console.hang_up()
    deadline = time.monotonic() + PATIENCE
    while os.waitpid(console.pid, os.WNOHANG) == (0, 0):
        assert time.monotonic() < deadline, "the console goes on without a terminal"
        time.sleep(0.05)
    console.ended = True
    assert ended(tmp_path) == ["sent"]


def test_the_console_opens_also_where_neither_history_nor_log_can_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    environment = {"GPUCONSOLE_STATE_DIR": str(tmp_path / "file" / "state"), "XDG_CONFIG_HOME": str(tmp_path)}
    with PtyConsole([sys.executable, "-m", "gpuconsole"], 160, 50, environment) as console:
        console.wait("NO HISTORY")
        os.kill(console.pid, signal.SIGTERM)
        painted, status = console.end(PATIENCE)
    assert status == 0
    assert b"Traceback" not in painted


def ended(state: Path) -> list[str]:
    """Check that the only session was closed with all that happened in it; returns what the audit says."""
    with closing(sqlite3.connect(state / "history.db")) as db:
        [(session, end, flushed, recovered)] = db.execute("select id, ended, flushed, recovered from sessions")
        assert (end is not None, end == flushed, recovered) == (True, True, None)
        (lines,) = db.execute("select sum(events) from event_totals where session = ?", (session,)).fetchone()
        assert lines > 0
        return [outcome for (outcome,) in db.execute("select outcome from audit where outcome = 'sent' order by n")]

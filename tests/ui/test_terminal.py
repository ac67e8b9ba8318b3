"""The terminal that the console is on."""

import os
import pty
import select
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

COMMAND = Path(sys.executable).with_name("gpuconsole")
PATIENCE = 60.0


@pytest.mark.skipif(sys.platform != "linux", reason="what a closed terminal looks like is Linux'")
def test_a_console_whose_terminal_is_closed_ends_though_nobody_tells_it(tmp_path: Path) -> None:
    """As under `make run`: make gets the signal, and waits for the console, which gets none."""
    told, tells = os.pipe()
    os.set_inheritable(tells, True)
    leader, terminal = pty.fork()
    if leader == 0:
        os.environ.update(TERM="xterm-256color", GPUCONSOLE_STATE_DIR=str(tmp_path))
        os.execvp("sh", ["sh", "-c", f"trap : HUP; '{COMMAND}' run; true"])
    os.close(tells)
    try:
        _read_until(terminal, b"dash")
        os.close(terminal)
        # The other end of the pipe is held by the shell, the console and its worker, and by nobody else.
        ready, _, _ = select.select([told], [], [], PATIENCE)
        assert ready
    finally:
        with suppress(ProcessLookupError):
            os.killpg(leader, signal.SIGKILL)
        os.waitpid(leader, 0)
        os.close(told)


def _read_until(terminal: int, wanted: bytes) -> None:
    seen, deadline = b"", time.monotonic() + PATIENCE
    while wanted not in seen:
        assert time.monotonic() < deadline
        ready, _, _ = select.select([terminal], [], [], 1)
        seen += os.read(terminal, 1 << 16) if ready else b""

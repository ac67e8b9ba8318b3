"""The console in a bare pseudo-terminal: every byte that it paints, with the time at which it came."""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import termios
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self

OVERLAP = 1 << 16
"""Bytes kept between two reads, so that what came in several parts is found, and last words are told."""


class PtyConsole:
    """A console process whose terminal we are. Mutates: it writes keys and reads what is painted."""

    def __init__(self, command: Sequence[str], columns: int, lines: int, environment: Mapping[str, str]) -> None:
        self.ended = False
        """True once the process is gone."""
        self.pid, self._terminal = pty.fork()
        if self.pid == 0:
            os.environ.update(environment, TERM="xterm-256color", COLORTERM="truecolor")
            # The environment as Python knows it: readline, which pytest loads, adds COLUMNS and LINES behind its back,
            # and they would win over the terminal's size.
            os.execvpe(command[0], list(command), os.environ)
        fcntl.ioctl(self._terminal, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def _read(self, seconds: float) -> bytes:
        ready, _, _ = select.select([self._terminal], [], [], seconds)
        return os.read(self._terminal, 1 << 16) if ready else b""

    def settle(self, seconds: float) -> None:
        """Read and forget whatever is painted for a while."""
        deadline = time.perf_counter() + seconds
        while (left := deadline - time.perf_counter()) > 0:
            self._read(left)

    def write(self, keys: str) -> None:
        os.write(self._terminal, keys.encode())

    def wait(self, pattern: str, seconds: float = 60) -> float:
        """Seconds until something that matches has been painted. Raises TimeoutError."""
        started, seen, wanted = time.perf_counter(), b"", re.compile(pattern.encode())
        while (passed := time.perf_counter() - started) < seconds:
            try:
                seen = seen[-OVERLAP:] + self._read(seconds - passed)
            except OSError:
                raise RuntimeError(f"the console ended: {seen.decode(errors='replace')}") from None
            if wanted.search(seen):
                return time.perf_counter() - started
        raise TimeoutError(f"{pattern!r} was not painted within {seconds} s")

    def insist(self, keys: str, pattern: str, *, every: float = 10, times: int = 6) -> None:
        """Press keys until something that matches is painted: a screen that is not drawn yet takes none.

        Only for keys that may be pressed twice. Raises TimeoutError.
        """
        for _ in range(times):
            self.write(keys)
            with suppress(TimeoutError):
                self.wait(pattern, every)
                return
        raise TimeoutError(f"{pattern!r} was not painted, {times} times {keys!r} were pressed")

    def latency(self, keys: str, pattern: str) -> float:
        """Seconds from pressing keys until something that matches, and was not painted before, is painted."""
        self.write(keys)
        return self.wait(pattern, 10)

    def memory(self) -> int:
        """Resident bytes of the console and its worker processes."""
        pids, total = [self.pid], 0
        for pid in pids:
            try:
                tasks = Path(f"/proc/{pid}/task")
                pids += [int(c) for task in tasks.iterdir() for c in (task / "children").read_text().split()]
                total += int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
            except OSError:
                continue
        return total

    @property
    def terminal(self) -> int:
        """The descriptor of our end of the terminal."""
        return self._terminal

    def end(self, seconds: float) -> tuple[bytes, int]:
        """Read until the console has ended by itself: its last bytes, and its exit status. Raises TimeoutError."""
        deadline, painted = time.perf_counter() + seconds, b""
        with suppress(OSError):
            while (left := deadline - time.perf_counter()) > 0:
                painted = (painted + self._read(left))[-OVERLAP:]
        while time.perf_counter() < deadline:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.ended = True
                return painted, os.waitstatus_to_exitcode(status)
            time.sleep(0.02)
        raise TimeoutError(f"the console did not end within {seconds} s: {painted[-500:]!r}")

    def hang_up(self) -> None:
        """Close the terminal, as somebody who closes its window does."""
        os.close(self._terminal)
        self._terminal = -1

    def close(self) -> None:
        if self._terminal < 0 or self.ended:
            self._reap()
            return
        try:
            os.kill(self.pid, signal.SIGTERM)
            self.settle(0.5)
            os.kill(self.pid, signal.SIGKILL)
        except OSError:
            pass
        self._reap()

    def _reap(self) -> None:
        if not self.ended:
            with suppress(OSError):
                os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
            self.ended = True
        if self._terminal >= 0:
            os.close(self._terminal)
            self._terminal = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

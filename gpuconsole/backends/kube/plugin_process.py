"""The process of an exec plugin, within bounds: one that hangs, or never stops talking, must not stop the console."""

import os
import selectors
import signal
import subprocess
import time
from contextlib import suppress
from typing import Any

LIMIT = 60.0
"""Seconds that a plugin may take which has no terminal to ask anybody."""
MOST = 2**20
"""Bytes that it may say."""
_CHUNK = 65_536


class PluginProcess:
    """Stands for `subprocess.Popen` in kubernetes' exec_provider, as far as that uses it."""

    def __init__(self, arguments: list[str], *, stdin: Any, stderr: Any, universal_newlines: bool, **more: Any) -> None:
        """`stdin` is None without a terminal; the answer is text whatever `universal_newlines` says."""
        self._alone = stdin is None
        self._process = subprocess.Popen(
            arguments,
            stdin=subprocess.DEVNULL if self._alone else stdin,
            stderr=stderr,
            start_new_session=self._alone,
            **more,
        )

    def communicate(self) -> tuple[str, str]:
        """What it says on stdout and stderr. Raises ValueError for what is too much, no text, or comes too late."""
        process = self._process
        deadline = time.monotonic() + LIMIT if self._alone else None
        pipes = [pipe for pipe in (process.stdout, process.stderr) if pipe is not None]
        said = {pipe.fileno(): bytearray() for pipe in pipes}
        try:
            with selectors.DefaultSelector() as waiting:
                for pipe in pipes:
                    waiting.register(pipe, selectors.EVENT_READ)
                while waiting.get_map():
                    left = None if deadline is None else deadline - time.monotonic()
                    if left is not None and left <= 0:
                        raise ValueError(f"no output within {LIMIT:g} s")
                    for key, _ in waiting.select(left):
                        chunk = os.read(key.fd, _CHUNK)
                        said[key.fd] += chunk
                        if not chunk:
                            waiting.unregister(key.fileobj)
                        elif len(said[key.fd]) > MOST:
                            raise ValueError(f"its output exceeds {MOST // 2**20} MiB")
            answer, complaint = (
                bytes(said[pipe.fileno()]) if pipe else b"" for pipe in (process.stdout, process.stderr)
            )
            return answer.decode(), complaint.decode(errors="replace")
        except BaseException:
            self._kill()
            raise
        finally:
            for pipe in pipes:
                pipe.close()

    def wait(self) -> int:
        """Its exit status. Raises ValueError where it does not end in time."""
        try:
            return self._process.wait(LIMIT if self._alone else None)
        except subprocess.TimeoutExpired as error:
            self._kill()
            raise ValueError(f"it did not exit within {LIMIT:g} s") from error

    def _kill(self) -> None:
        """End it, with all that it started where it has a session of its own."""
        with suppress(ProcessLookupError):
            if self._alone:
                os.killpg(self._process.pid, signal.SIGKILL)
            else:
                self._process.kill()
        self._process.wait()

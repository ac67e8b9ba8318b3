"""Process of a kubeconfig exec plugin, with limits on time and output, so that it cannot block the console."""

import os
import selectors
import signal
import subprocess
import time
from contextlib import suppress
from typing import Any

LIMIT = 60.0
"""Timeout in seconds for a plugin that has no terminal for a prompt."""
MOST = 2**20
"""Most bytes of its output."""
_CHUNK = 65_536


class PluginProcess:
    """Replaces `subprocess.Popen` in kubernetes' exec_provider, with the interface that it uses."""

    def __init__(self, arguments: list[str], *, stdin: Any, stderr: Any, universal_newlines: bool, **more: Any) -> None:
        """`stdin` is None without a terminal; output is text whatever `universal_newlines` says."""
        self._alone = stdin is None
        self._process = subprocess.Popen(
            arguments,
            stdin=subprocess.DEVNULL if self._alone else stdin,
            stderr=stderr,
            start_new_session=self._alone,
            **more,
        )

    def communicate(self) -> tuple[str, str]:
        """Return stdout and stderr. Raises ValueError for too much output, invalid text, or a timeout."""
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
        """Return the exit status. Raises ValueError on timeout."""
        try:
            return self._process.wait(LIMIT if self._alone else None)
        except subprocess.TimeoutExpired as error:
            self._kill()
            raise ValueError(f"it did not exit within {LIMIT:g} s") from error

    def _kill(self) -> None:
        """Kill the process, and its children if it has its own session."""
        with suppress(ProcessLookupError):
            if self._alone:
                os.killpg(self._process.pid, signal.SIGKILL)
            else:
                self._process.kill()
        self._process.wait()

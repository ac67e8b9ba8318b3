"""Port-forwards: kubectl processes that listen on this machine's loopback address and end with the console."""

import itertools
import logging
import re
import subprocess
import threading
from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from gpuconsole.model.text import clean

LOG = logging.getLogger(__name__)
PATIENCE = 3.0
"""Seconds that a process gets to end before it is killed."""
_KEEPER = (
    "exec 3<&0; "
    '"$@" </dev/null 3<&- & child=$!; '
    '{ read -r _ <&3; kill "$child" 2>/dev/null; } & keeper=$!; '
    'wait "$child"; code=$?; kill "$keeper" 2>/dev/null; exit "$code"'
)
"""Shell script that ends kubectl when its stdin closes, which happens even if the console is killed."""
_LISTENS = re.compile(r"Forwarding from 127\.0\.0\.1:(\d+)")


class Forward(Struct, frozen=True, kw_only=True):
    """The state of one port-forward."""

    id: int
    pod: str
    """`ns/name`"""
    local: int
    """Local port; 0 until kubectl has chosen it."""
    remote: int
    state: str = "starting"
    """Last output of kubectl, or how it ended."""
    open: bool = True


class _Running:
    """A process and its last output. Mutates in its own thread."""

    def __init__(self, id: int, pod: str, local: int, remote: int, command: Sequence[str]) -> None:
        self.now = Forward(id=id, pod=pod, local=local, remote=remote)
        self._process = subprocess.Popen(
            ["sh", "-c", _KEEPER, "sh", *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        threading.Thread(target=self._listen, name=f"port-forward {id}", daemon=True).start()

    def stop(self) -> None:
        """Terminate it, and wait for its end."""
        process = self._process
        if process.stdin is not None and not process.stdin.closed:
            process.stdin.close()
        try:
            process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _listen(self) -> None:
        said = ""
        assert self._process.stdout is not None, "it was asked for"
        with self._process.stdout as output:
            for text in output:
                said = clean(text.strip(), 300)
                listens = _LISTENS.search(said)
                self.now = replace(self.now, local=int(listens[1]) if listens else self.now.local, state=said)
        code = self._process.wait()
        LOG.info("port-forward to %s ended with %s: %s", self.now.pod, code, said)
        self.now = replace(self.now, state=f"ended: {said}" if code > 0 and said else "ended", open=False)


class Forwards:
    """Starts, lists and stops the port-forwards of a console. Mutates; thread-safe."""

    def __init__(self) -> None:
        self._ids = itertools.count(1)
        self._running: dict[int, _Running] = {}
        self._lock = threading.Lock()

    def all(self) -> tuple[Forward, ...]:
        """Port-forwards that the user has not stopped, oldest first."""
        with self._lock:
            return tuple(running.now for running in self._running.values())

    def start(self, pod: str, local: int, remote: int, command: Sequence[str]) -> Forward:
        """Start a port-forward; `command` is kubectl's command line. Raises OSError if it cannot be run."""
        with self._lock:
            id = next(self._ids)
            running = self._running[id] = _Running(id, pod, local, remote, command)
        return running.now

    def stop(self, id: int) -> None:
        """Stop the port-forward with this number and remove it."""
        with self._lock:
            running = self._running.pop(id, None)
        if running is not None:
            running.stop()

    def close(self) -> None:
        """Stop all port-forwards."""
        for forward in self.all():
            self.stop(forward.id)

"""Runs one future of a what-if (baseline or changed) in a forked process, so that two futures take the time of one.

The forked process has the cluster in its memory, and sends back only what has changed when its status is requested.
"""

import os
import signal
import sys
from contextlib import suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Union

import msgspec
from msgspec import Struct

from gpuconsole.garbage import collect_by_hand
from gpuconsole.insight.whatif.futures import Future, FutureEvents, FutureRunner, FutureStatus, FutureTotals
from gpuconsole.model.clock import Time
from gpuconsole.model.cooperative import Steps
from gpuconsole.model.events import Applied, Deleted, HistoryEvent
from gpuconsole.model.snapshot import change_events
from gpuconsole.model.state import ClusterState


class _Advance(Struct, frozen=True, tag=True):
    until: Time


class _GetStatus(Struct, frozen=True, tag=True):
    pass


class _StatusReply(Struct, frozen=True, kw_only=True):
    """A future's status, as sent by the process: of the Snapshot only what differs from the start."""

    course: FutureEvents
    time: Time
    news: list[Union[Applied, Deleted]]
    recent: tuple[HistoryEvent, ...]
    sums: FutureTotals
    gpu_hours: float
    capacity_hours: float
    hourly: float


PATIENCE = 60.0
"""Seconds without a request after which the process ends."""
_ENCODER = msgspec.msgpack.Encoder()
_ORDERS = msgspec.msgpack.Decoder(Union[_Advance, _GetStatus])
_ANSWERS = msgspec.msgpack.Decoder(_StatusReply)
_THREADS = Path("/proc/self/task")
_FILES = Path("/proc/self/fd")


def fork_future(future: Future, end: Time) -> FutureRunner:
    """Move a future of a what-if to a forked process if a core is free and forking is safe; else return it unchanged.

    `end` is the last moment to which it will be advanced.
    """
    if sys.platform != "linux" or len(os.sched_getaffinity(0)) < 2 or len(list(_THREADS.iterdir())) > 1:
        return future
    with suppress(OSError):
        return ForkedFuture(future, end)
    return future


class ForkedFuture:
    """A future in a forked process. Mutates. If the process dies, the future runs here, with the same results."""

    def __init__(self, future: Future, end: Time) -> None:
        """Fork. Raises OSError if no process can be created; no other thread may run in this one."""
        self._future = future
        """The future at the start of the process; it is continued here if the process is lost."""
        self._until = future.simulation.now
        self._pipe, theirs = Pipe()
        self.process: int | None = os.fork()
        if not self.process:
            _live(future, end, theirs)
        theirs.close()

    def advancing(self, until: Time) -> Steps[None]:
        """Let the process advance the future to `until`, without waiting for it."""
        self._until = until
        if self.process is not None:
            with suppress(OSError):
                self._pipe.send_bytes(_ENCODER.encode(_Advance(until)))
        yield

    def look(self) -> FutureStatus:
        """Wait until the future has advanced as far as requested, and return its status."""
        if self.process is not None:
            try:
                self._pipe.send_bytes(_ENCODER.encode(_GetStatus()))
                return self._standing(_ANSWERS.decode(self._pipe.recv_bytes()))
            except (EOFError, OSError):
                self.close()
        self._future.advance(self._until)
        return self._future.look()

    def close(self) -> None:
        """End the process."""
        process, self.process = self.process, None
        if process is not None:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)
            self._pipe.close()

    def _standing(self, stands: _StatusReply) -> FutureStatus:
        state = ClusterState.of(self._future.begun, stands.recent)
        for event in stands.news:
            state.apply(event)
        state.time = stands.time
        return FutureStatus(
            course=stands.course,
            snapshot=state.freeze(),
            sums=stands.sums,
            gpu_hours=stands.gpu_hours,
            capacity_hours=stands.capacity_hours,
            hourly=stands.hourly,
        )


def _live(future: Future, end: Time, pipe: Connection) -> None:
    """Main function of the process; never returns."""
    try:
        _keep_only(pipe)
        # The process is short-lived, and a garbage collection would copy memory that it shares with the parent.
        collect_by_hand()
        reply = b""
        while pipe.poll(PATIENCE):
            match _ORDERS.decode(pipe.recv_bytes()):
                case _Advance(until):
                    future.advance(until)
                    if until == end:
                        # The request may still be on its way; the reply is then ready.
                        reply = reply or _ENCODER.encode(_status_reply(future))
                case _GetStatus():
                    pipe.send_bytes(reply or _ENCODER.encode(_status_reply(future)))
    finally:
        # The parent is gone or sends no more requests; or an error occurred, which the parent will meet, too.
        os._exit(0)


def _keep_only(pipe: Connection) -> None:
    """Close all other inherited file descriptors, so that readers of the parent's pipes see their end."""
    for file in [int(path.name) for path in _FILES.iterdir()]:
        if file > 2 and file != pipe.fileno():
            with suppress(OSError):
                os.close(file)


def _status_reply(future: Future) -> _StatusReply:
    standing = future.look()
    snapshot = standing.snapshot
    return _StatusReply(
        course=standing.course,
        time=snapshot.time,
        news=change_events(future.begun, snapshot),
        recent=snapshot.recent,
        sums=standing.sums,
        gpu_hours=standing.gpu_hours,
        capacity_hours=standing.capacity_hours,
        hourly=standing.hourly,
    )

"""The console's facade: all that the screens know of the world behind them."""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from gpuconsole.backends.base import Backend, Clocked, Forkable
from gpuconsole.backends.guard import Guard
from gpuconsole.errors import NotSupportedError
from gpuconsole.model.clock import Span
from gpuconsole.model.commands import Command
from gpuconsole.model.events import Happened, What
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.services.loop import Loop
from gpuconsole.services.status import Status

if TYPE_CHECKING:
    from gpuconsole.insight.whatif import WhatIf
    from gpuconsole.model.manifests import Loaded

LOG = logging.getLogger(__name__)
UNKNOWN = Status()


class Console:
    """One cluster, watched and operated. Mutates; methods may be called from any thread unless they say otherwise."""

    def __init__(self, backend: Backend, *, about: Status = UNKNOWN, read_only: bool = False) -> None:
        """`about` carries what does not change: mode, source, engine, policy."""
        self._backend = backend
        self._clocked = backend if isinstance(backend, Clocked) else None
        self._about = about
        self._guard = Guard(backend, read_only=read_only)
        self._subscribers: list[Callable[[Snapshot], None]] = []
        self._subscribing = threading.Lock()
        self._loop = Loop(backend, publish=self._published, record=self._recorded)
        backend.open()
        self.notices: tuple[str, ...] = ()
        """What the start has to say to people, such as what was recovered."""

    @property
    def snapshot(self) -> Snapshot:
        """The newest Snapshot; an empty one before the first tick."""
        return self._loop.snapshot

    @property
    def status(self) -> Status:
        renewed, clocked = self._loop.renewed, self._clocked
        return replace(
            self._about,
            speed=clocked.speed if clocked else None,
            reached=clocked.reached if clocked else None,
            paused=clocked.paused if clocked else False,
            read_only=self._guard.read_only,
            time=self.snapshot.time,
            age=time.monotonic() - renewed if renewed is not None else 0.0,
            loading=renewed is None,
            stalled=self._loop.stalled,
        )

    def start(self) -> None:
        """Let the time run, by a timer in another thread."""
        self._loop.start()

    def stop(self) -> None:
        """Stop the time and let go of everything."""
        self._loop.stop()
        self._backend.close()

    def tick(self, elapsed: float) -> None:
        """Let `elapsed` wall-clock seconds pass now; for tests, which start no timer."""
        self._loop.tick(elapsed)

    def subscribe(self, callback: Callable[[Snapshot], None]) -> Callable[[], None]:
        """Have every new Snapshot told, from the loop's thread; returns what ends that."""
        with self._subscribing:
            self._subscribers.append(callback)

        def unsubscribe() -> None:
            with self._subscribing:
                if callback in self._subscribers:
                    self._subscribers.remove(callback)

        return unsubscribe

    def submit(self, command: Command) -> None:
        """Ask for a change; its effect comes with a later Snapshot. Raises ReadOnlyError."""
        self._guard.submit(command, self.snapshot.time)

    def pause(self) -> None:
        """Stop the virtual time; a running tick notices within milliseconds."""
        self._clockwork().pause()

    def resume(self) -> None:
        self._clockwork().resume()

    def step(self) -> None:
        """Run the next moment at which something happens, with the next tick."""
        self._clockwork().step()

    def set_speed(self, speed: float) -> None:
        """Virtual seconds a second, clipped to ×1 … ×10,000."""
        self._clockwork().set_speed(speed)

    def preemptions(self, limit: int = 500) -> tuple[Happened, ...]:
        """The newest preemptions, oldest first."""
        return tuple(line for line in self.snapshot.recent if line.what is What.PREEMPTED)[-limit:]

    def history(self, workload: str) -> tuple[Happened, ...]:
        """All that happened to a workload (`ns/name`), or that it did to others, oldest first."""
        return tuple(line for line in self.snapshot.recent if workload in (line.workload, line.by))

    def what_if(self, commands: Sequence[Command], horizon: Span) -> "WhatIf":
        """Try commands in a fork and compare its future with what comes anyway.

        Blocks while it computes: call it in a thread. Raises NotSupportedError where no future can be computed.
        """
        from gpuconsole.insight.whatif import what_if

        if not isinstance(self._backend, Forkable):
            raise NotSupportedError("A recording has no other future; open its snapshot with --snapshot FILE")
        return what_if(self._backend.fork(), commands, horizon)

    def check(self, text: str) -> "Loaded":
        """Read manifests from a text and say what is wrong with them; changes nothing."""
        from gpuconsole.model.manifests import load_text

        return load_text(text, now=self.snapshot.time)

    def _clockwork(self) -> Clocked:
        if self._clocked is None:
            raise NotSupportedError("The time of a live cluster cannot be stopped or hurried")
        return self._clocked

    def _published(self, snapshot: Snapshot) -> None:
        with self._subscribing:
            subscribers = tuple(self._subscribers)
        for callback in subscribers:
            try:
                callback(snapshot)
            except Exception:
                LOG.exception("A subscriber failed")

    def _recorded(self, lines: Sequence[Happened]) -> None:
        for line in lines:
            self._guard.came_back(line)

"""The worker process: it keeps a replica of the simulation and computes there what the screens ask.

The replica is fed by the same commands at the same virtual times, so it is the same simulation; a digest of all that
happened, sent along, proves it. Parent and worker talk in turns: one request, one reply, msgspec bytes over a pipe.
Start it before the app runs: Textual replaces stderr, and a process cannot be spawned after that.
"""

import logging
import multiprocessing
import os
import signal
import threading
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Union, assert_never

import msgspec
from msgspec import Struct

from gpuconsole.backends.simulated import digest
from gpuconsole.errors import WorkerError
from gpuconsole.insight.whatif import WhatIf, what_if
from gpuconsole.model.clock import Span, Time
from gpuconsole.model.commands import Command
from gpuconsole.sim.engine import Simulation

LOG = logging.getLogger(__name__)
PATIENCE = 120.0
"""Seconds after which a worker that does not answer is given up."""
SECOND_CHANCES = 3
"""How often a replica that went its own way may start anew."""


class Carried(Struct, frozen=True):
    at: Time
    command: Command


class Begin(Struct, frozen=True, tag=True):
    """Start from a saved simulation."""

    state: bytes
    digest: int


class Follow(Struct, frozen=True, tag=True):
    """Do what the simulation did, and come to where it stands."""

    steps: tuple[Carried, ...]
    now: Time
    digest: int


class Ask(Struct, frozen=True, tag=True):
    """Follow (if there is news), and then say what would happen."""

    follow: Follow | None
    commands: tuple[Command, ...]
    horizon: Span


class Done(Struct, frozen=True, tag=True):
    """The replica is where it should be; `same` is False if it is not what it should be."""

    same: bool = True


class Answer(Struct, frozen=True, tag=True):
    what_if: WhatIf


class Failed(Struct, frozen=True, tag=True):
    problem: str


Request = Union[Begin, Follow, Ask]
Reply = Union[Done, Answer, Failed]

_ENCODER = msgspec.msgpack.Encoder()
_REQUESTS = msgspec.msgpack.Decoder(Request)
_REPLIES = msgspec.msgpack.Decoder(Reply)


class Worker:
    """The parent's side: a process, the pipe to it, and what it has not been told yet.

    A `Follower` of the simulation. Mutates. `what_if` may be called from any thread, the rest from the polling one.
    """

    def __init__(self, state: bytes, log_file: Path | None = None) -> None:
        """Start the process; `state` is a simulation that was just saved, before anything else happens in it."""
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self.process = context.Process(target=serve, args=(theirs, log_file), name="gpuconsole-worker", daemon=True)
        self.process.start()
        theirs.close()
        self._talking = threading.Lock()
        """Held by who uses the pipe; `_telling` guards what waits to be told."""
        self._telling = threading.Lock()
        self._owed = False
        self.begun = 1
        """How often the replica started; more than once means that it went its own way."""
        self._steps: list[Carried] = []
        self._stands: tuple[Time, int] | None = None
        self._anew: Begin | None = Begin(state, 0)
        self._differs = False
        self.lost = ""
        """What became of the process, if it is gone."""
        # The process needs half a second to start; nobody has to wait for that but this thread.
        self._talking.acquire()
        threading.Thread(target=self._introduce, name="worker-start", daemon=True).start()

    def carried(self, at: Time, command: Command) -> None:
        if not self.lost:
            with self._telling:
                self._steps.append(Carried(at, command))

    def reached(self, now: Time, digest: int) -> bool:
        """Tell the worker how far the simulation is, unless it is busy. Never waits for it."""
        if self.lost:
            return False
        with self._telling:
            self._stands = (now, digest)
        if self._talking.acquire(blocking=False):
            try:
                self._tell()
            except (EOFError, OSError):
                self._give_up("the worker process died")
            finally:
                self._talking.release()
        return self._wants_anew()

    def begin(self, state: bytes, digest: int) -> None:
        self.begun += 1
        with self._telling:
            self._anew, self._steps, self._stands, self._differs = Begin(state, digest), [], None, False

    def what_if(self, commands: Sequence[Command], horizon: Span) -> WhatIf:
        """Have the worker compute it, from where the simulation stands. Raises WorkerError."""
        with self._talking:
            if self.lost:
                raise WorkerError(self.lost)
            try:
                reply = self._ask(tuple(commands), horizon)
            except (EOFError, OSError) as error:
                self._give_up("the worker process died")
                raise WorkerError(self.lost) from error
        match reply:
            case Answer(answer):
                return answer
            case Failed(problem):
                raise WorkerError(problem)
            case Done():
                raise WorkerError("the worker's replica differs from the simulation and starts anew")
            case _:
                assert_never(reply)

    def close(self) -> None:
        """End the process; whoever waits for an answer gets a WorkerError."""
        self.lost = self.lost or "the worker process was closed"
        self.process.terminate()
        self.process.join()
        with self._talking:
            self._pipe.close()
        self.process.close()

    def _introduce(self) -> None:
        try:
            self._tell()
            self._settle()
        except (EOFError, OSError):
            self._give_up("the worker process died")
        finally:
            self._talking.release()

    def _tell(self) -> None:
        """Send what is new, if the last request was answered."""
        if self._owed and not self._pipe.poll(0):
            return
        self._settle()
        news = self._news()
        if news is not None:
            self._send(news)

    def _ask(self, commands: tuple[Command, ...], horizon: Span) -> Reply:
        self._settle()
        news = self._news()
        if isinstance(news, Begin):
            self._send(news)
            self._settle()
            news = self._news()
        self._send(Ask(news if isinstance(news, Follow) else None, commands, horizon))
        return self._settle()

    def _news(self) -> Begin | Follow | None:
        with self._telling:
            if self._anew is not None:
                anew, self._anew = self._anew, None
                return anew
            if self._stands is None:
                return None
            follow = Follow(tuple(self._steps), *self._stands)
            self._steps, self._stands = [], None
            return follow

    def _send(self, request: Request) -> None:
        self._pipe.send_bytes(_ENCODER.encode(request))
        self._owed = True

    def _settle(self) -> Reply:
        """Wait for the reply that is owed, if one is."""
        if not self._owed:
            return Done()
        if not self._pipe.poll(PATIENCE):
            raise EOFError
        reply: Reply = _REPLIES.decode(self._pipe.recv_bytes())
        self._owed = False
        if isinstance(reply, Done) and not reply.same:
            with self._telling:
                self._differs = True
        return reply

    def _wants_anew(self) -> bool:
        if not self._differs or self.lost:
            return False
        if self.begun > SECOND_CHANCES:
            self._give_up("the replica did not stay equal to the simulation")
            return False
        LOG.warning("The replica differs from the simulation and starts anew")
        return True

    def _give_up(self, reason: str) -> None:
        if not self.lost:
            LOG.warning("What-ifs are computed here from now on: %s", reason)
            self.lost = reason
        self.process.terminate()


class Replica:
    """The worker's side: a simulation that does what it is told. Mutates."""

    def __init__(self, begin: Begin) -> None:
        self._simulation = Simulation.load(begin.state)
        self._simulation.drain()
        self._digest = begin.digest

    def follow(self, follow: Follow) -> bool:
        """Do what the simulation did; True if the same came of it."""
        for step in follow.steps:
            self._simulation.advance(step.at)
            self._simulation.submit(step.command)
        self._simulation.advance(follow.now)
        self._digest = digest(self._simulation.drain(), self._digest)
        return self._digest == follow.digest

    def answer(self, ask: Ask) -> Reply:
        if ask.follow is not None and not self.follow(ask.follow):
            return Done(same=False)
        return Answer(what_if(self._simulation, ask.commands, ask.horizon))


def serve(pipe: Connection, log_file: Path | None) -> None:
    """The worker process: answer until the parent is gone."""
    # Ctrl-C goes to the whole group; the parent decides when this process ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _write_to(log_file)
    replica: Replica | None = None
    while True:
        try:
            request: Request = _REQUESTS.decode(pipe.recv_bytes())
        except EOFError:
            return
        try:
            replica, reply = _replied(replica, request)
        except Exception as error:
            LOG.exception("The worker could not answer")
            reply = Failed(f"{type(error).__name__}: {error}") if isinstance(request, Ask) else Done(same=False)
        pipe.send_bytes(_ENCODER.encode(reply))


def _replied(replica: Replica | None, request: Request) -> tuple[Replica | None, Reply]:
    if isinstance(request, Begin):
        return Replica(request), Done()
    if replica is None:
        return None, Done(same=False)
    if isinstance(request, Follow):
        return replica, Done(same=replica.follow(request))
    return replica, replica.answer(request)


def _write_to(log_file: Path | None) -> None:
    """Send what this process prints to the log, for the terminal belongs to the console."""
    target = os.open(log_file or os.devnull, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.dup2(target, 1)
    os.dup2(target, 2)
    os.close(target)
    logging.basicConfig(stream=None, level=logging.WARNING)

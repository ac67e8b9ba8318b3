"""The worker's side: a process that keeps a replica of the simulation and answers from it."""

import logging
import os
import signal
from multiprocessing.connection import Connection
from pathlib import Path
from typing import assert_never

from gpuconsole.backends.simulated import digest
from gpuconsole.insight.forecast_check import Observer
from gpuconsole.insight.whatif import what_if
from gpuconsole.model.text import clean
from gpuconsole.sim.engine import Simulation
from gpuconsole.sim.files import open_file, picture_in
from gpuconsole.workers.protocol import (
    ENCODER,
    REQUESTS,
    Adopt,
    Answer,
    Ask,
    AskScores,
    Begin,
    Done,
    Failed,
    Follow,
    Foresee,
    Foreseen,
    Question,
    Reply,
    Request,
    Scored,
)

LOG = logging.getLogger(__name__)


class Replica:
    """A simulation that does what another one did. Mutates."""

    def __init__(self, begin: Begin | Adopt) -> None:
        self._simulation = Simulation.load(begin.state) if isinstance(begin, Begin) else open_file(begin.file)
        self._simulation.drain()
        self._digest = begin.digest if isinstance(begin, Begin) else 0

    def follow(self, follow: Follow) -> bool:
        """Do what the simulation did; True if the same came of it."""
        for step in follow.steps:
            self._simulation.advance(step.at)
            self._simulation.submit(step.command)
        self._simulation.advance(follow.now)
        self._digest = digest(self._simulation.drain(), self._digest)
        return self._digest == follow.digest

    def answer(self, question: Question) -> Reply:
        if question.follow is not None and not self.follow(question.follow):
            return Done(same=False)
        match question:
            case Ask():
                return Answer(what_if(self._simulation, question.commands, question.horizon))
            case AskScores():
                return Scored(self._simulation.placement.scores(question.pod))
            case _:
                assert_never(question)


def serve(pipe: Connection, log_file: Path | None) -> None:
    """The worker process: answer until the parent is gone."""
    # Ctrl-C goes to the whole group; the parent decides when this process ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _write_to(log_file)
    replica: Replica | None = None
    observer, looker = Observer(), 0
    try:
        while True:
            request: Request = REQUESTS.decode(pipe.recv_bytes())
            if isinstance(request, Foresee):
                if request.looker != looker:
                    observer, looker = Observer(), request.looker
                reply = _foreseen(observer, request)
            else:
                replica, reply = _replied(replica, request)
            pipe.send_bytes(ENCODER.encode(reply))
    except (EOFError, OSError):
        # The parent ended, or was killed.
        return


def _foreseen(observer: Observer, request: Foresee) -> Reply:
    """What comes next; what goes wrong is a reply too."""
    try:
        snapshot, policy = picture_in(request.file)
        return Foreseen(*observer.look(snapshot, policy, request.assumed, request.unseen))
    except Exception as error:
        LOG.exception("The worker could not look ahead")
        return Failed(clean(f"{type(error).__name__}: {error}"))


def _replied(replica: Replica | None, request: Begin | Adopt | Follow | Question) -> tuple[Replica | None, Reply]:
    """The replica afterwards, and the reply; what goes wrong is a reply too."""
    try:
        return _carried_out(replica, request)
    except Exception as error:
        LOG.exception("The worker could not answer")
        failed = Failed(clean(f"{type(error).__name__}: {error}"))
        return replica, failed if isinstance(request, Ask | AskScores) else Done(same=False)


def _carried_out(replica: Replica | None, request: Begin | Adopt | Follow | Question) -> tuple[Replica | None, Reply]:
    if isinstance(request, Begin | Adopt):
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

"""Client of the worker process: starts it, keeps its replica up to date, and asks it questions.

`Worker` sends one request at a time; by the `PriorityLock`, questions that a user waits for run before those that fill
columns.

Start it before the app runs: Textual replaces stderr, and a process cannot be spawned after that.
"""

import logging
import multiprocessing
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import NamedTuple, TypeAlias, assert_never

import msgspec
from msgspec.structs import replace

from gpuconsole.errors import WorkerError
from gpuconsole.insight.forecast.agreement import ShadowReport
from gpuconsole.insight.forecast.backtest import ForecastDifferences
from gpuconsole.insight.forecast.forecast import Forecast
from gpuconsole.model.clock import Time
from gpuconsole.model.commands import Command
from gpuconsole.model.cooperative import Progress
from gpuconsole.model.events import Applied, Deleted, Event
from gpuconsole.model.snapshot import EMPTY, Snapshot, change_events
from gpuconsole.sim.policy import SimPolicy
from gpuconsole.workers.process import serve
from gpuconsole.workers.protocol import (
    ANALYSES,
    ENCODER,
    FOLLOWED,
    REPLIES,
    Analysis,
    AnswerPiece,
    Arguments,
    AskForecast,
    Begin,
    BeginShadow,
    Carried,
    Done,
    Expect,
    Failed,
    FollowChanges,
    ForecastReply,
    NextPiece,
    Question,
    ReplaySteps,
    Reply,
    Request,
    ShadowReply,
    T,
    UpdateSnapshot,
    estimate_outlook,
    estimate_starts,
)

LOW_PRIORITY = (estimate_outlook.__name__, estimate_starts.__name__)
"""Analyses that wait for those that a user waits for."""
LONGEST = 10.0
"""Maximum seconds that a question of low priority waits."""


class PriorityLock:
    """Lets questions that a user waits for run before the others. Thread-safe."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._awaited = 0

    @contextmanager
    def awaited(self) -> Iterator[None]:
        """Mark a question as urgent for the duration of this context."""
        with self._changed:
            self._awaited += 1
        try:
            yield
        finally:
            with self._changed:
                self._awaited -= 1
                self._changed.notify_all()

    def let_pass(self) -> None:
        """Wait until no question is urgent, but not longer than `LONGEST`."""
        with self._changed:
            self._changed.wait_for(lambda: not self._awaited, LONGEST)


LOG = logging.getLogger(__name__)
AT_ONCE = 500
"""Events encoded before other threads get a turn, which takes some milliseconds."""
_Asked: TypeAlias = Question | NextPiece | AskForecast | Expect | BeginShadow | FollowChanges
UNDECIDED = "telemetry"
"""The table that is not sent to the worker: telemetry changes all the time, and no decision depends on it."""
_NUMBERS = count(1)
"""Numbers of long questions, unique in this process."""
PATIENCE = 120.0
"""Seconds without an answer after which the worker is no longer used."""
SECOND_CHANCES = 3
"""How often a replica that differs from the simulation is rebuilt, before the worker is no longer used."""


class ObservedCluster(NamedTuple):
    """A live cluster at one moment, with the settings (policy) by which to simulate it."""

    cluster: object
    """Object whose identity tells this cluster from another one."""
    snapshot: Snapshot
    policy: SimPolicy


def _encoded(events: Sequence[Event]) -> tuple[bytes, ...]:
    """Encode events in chunks, between which other threads get a turn."""
    return tuple(ENCODER.encode(events[first : first + AT_ONCE]) for first in range(0, len(events), AT_ONCE))


def _process_context() -> str:
    """How to start the process. A fork has all imported modules; it is safe before other threads exist."""
    return "fork" if sys.platform == "linux" and threading.active_count() == 1 else "spawn"


class Worker:
    """Starts the worker process, keeps its replica up to date and sends it requests; a `Follower`. Mutates.

    Questions are thread-safe, the other methods are for the polling thread.
    """

    def __init__(self, log_file: Path | None = None) -> None:
        """Start the process, best before a cluster is loaded, because a fork keeps the memory of this process.

        The cluster is introduced later, or sent with each question.
        """
        context = multiprocessing.get_context(_process_context())
        self._pipe, theirs = context.Pipe()
        arguments = (theirs, self._pipe, log_file)
        self.process = context.Process(target=serve, args=arguments, name="gpuconsole-worker", daemon=True)  # type: ignore[attr-defined]
        self.process.start()
        theirs.close()
        self._talking = threading.Lock()
        """Held while the pipe is used; `_telling` guards the steps that are not sent yet."""
        self._telling = threading.Lock()
        self._turns = PriorityLock()
        self._owed = False
        """True while a request has not been answered yet."""
        self.begun = 1
        """How often the replica was started; more than once means that it differed from the simulation."""
        self._steps: list[Carried] = []
        self._stands: tuple[Time, int] | None = None
        """Time and digest of the simulation, if it advanced since the last steps were sent."""
        self._anew: Begin | None = None
        """The saved simulation from which the replica starts, until it is sent."""
        self._shown: ObservedCluster | None = None
        """The state of the live cluster that the process has."""
        self._differs = False
        self.lost = ""
        """Why the process is no longer used; empty while it is."""

    def introduce(self, state: bytes) -> None:
        """Start the replica from a simulation that was just saved as `state`, before anything else happens in it."""
        self._anew = Begin(state, 0)
        # The process needs half a second to start; only this thread waits for it.
        self._talking.acquire()
        threading.Thread(target=self._introduce, name="worker-start", daemon=True).start()

    def carried(self, at: Time, command: Command) -> None:
        """Note that the simulation carried out a command, as a step to replay."""
        if not self.lost:
            with self._telling:
                self._steps.append(Carried(at, command))

    def reached(self, now: Time, digest: int) -> bool:
        """Send the simulation's progress to the worker, unless it is busy. Never blocks.

        Returns True if the replica differs from the simulation: call `begin` with its saved state.
        """
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
        """Rebuild the replica from a saved simulation, with the next request."""
        self.begun += 1
        with self._telling:
            self._anew, self._steps, self._stands, self._differs = Begin(state, digest), [], None, False

    def close(self) -> None:
        """End the process; pending questions raise WorkerError."""
        self.lost = self.lost or "the worker process was closed"
        self.process.terminate()
        self.process.join()
        with self._talking:
            self._pipe.close()
        self.process.close()

    def ask(
        self, analysis: Analysis[*Arguments, T], seen: ObservedCluster | None, *arguments: *Arguments
    ) -> Iterator[Progress[T]]:
        """Run an analysis in the live cluster `seen` (None: in the replicated simulation). Raises WorkerError.

        Other questions may run between two results, and stopping cancels it. Estimates for columns have low priority:
        they wait for answers that a user waits for.
        """
        if analysis.__name__ in LOW_PRIORITY:
            yield from self._in_turn(analysis, seen, arguments, self._turns.let_pass)
        else:
            with self._turns.awaited():
                yield from self._in_turn(analysis, seen, arguments, lambda: None)

    def _in_turn(
        self,
        analysis: Analysis[*Arguments, T],
        seen: ObservedCluster | None,
        arguments: tuple[*Arguments],
        turn: Callable[[], None],
    ) -> Iterator[Progress[T]]:
        number, name = next(_NUMBERS), analysis.__name__
        raw = msgspec.Raw(ENCODER.encode(arguments))
        request: Question | NextPiece = Question(number=number, analysis=name, arguments=raw, seen=seen is not None)
        while True:
            turn()
            reply = self._answer(request, seen)
            assert isinstance(reply, AnswerPiece)
            progress: Progress[T] = ANALYSES[name].progress.decode(reply.progress)
            yield progress
            if progress.last:
                return
            request, seen = NextPiece(number), None

    def forecast(
        self, seen: ObservedCluster, assumed: tuple[str, ...], unseen: tuple[str, ...], *, followed: bool = False
    ) -> tuple[Forecast, ForecastDifferences]:
        """Forecast Kueue's next decisions in a live cluster; see `ForecastChecker.look`. Raises WorkerError.

        `assumed` and `unseen` are sentences about what is assumed, and what is not visible, in it. `followed` says that
        the shadow has followed all its changes.
        """
        reply = self._answer(AskForecast(assumed, unseen, followed), seen)
        assert isinstance(reply, ForecastReply)
        return reply.forecast, reply.said

    def begin_shadow(self, cluster: Snapshot, policy: SimPolicy) -> None:
        """Begin to check the decisions of a live cluster's Kueue, from this Snapshot. Raises WorkerError."""
        events = [event for event in change_events(EMPTY, cluster, without=UNDECIDED) if event.table in FOLLOWED]
        reply = self._reply(BeginShadow(cluster.time, _encoded(events), msgspec.json.encode(policy)), None)
        if isinstance(reply, Failed):
            raise WorkerError(reply.problem)

    def follow(self, changes: Sequence[Applied | Deleted]) -> ShadowReport:
        """Check the decisions that changes show; return what was found since `begin_shadow`. Raises WorkerError."""
        reply = self._answer(FollowChanges(ENCODER.encode(changes)), None)
        assert isinstance(reply, ShadowReply)
        return reply.report

    def expect(self, seen: ObservedCluster) -> None:
        """Send the newest state of a cluster, because a question about it is likely to follow. Raises WorkerError."""
        self._reply(Expect(), seen)

    def _answer(
        self, request: Question | NextPiece | AskForecast | FollowChanges, seen: ObservedCluster | None
    ) -> AnswerPiece | ForecastReply | ShadowReply:
        """Send a request about `seen` (None: the replicated simulation) and wait for its result. Raises WorkerError."""
        reply = self._reply(request, seen)
        match reply:
            case AnswerPiece() | ForecastReply() | ShadowReply():
                return reply
            case Failed(problem):
                raise WorkerError(problem)
            case Done():
                raise WorkerError("the worker's replica differs from the simulation and is rebuilt")
            case _:
                assert_never(reply)

    def _reply(self, request: _Asked, seen: ObservedCluster | None) -> Reply:
        """Send the changes of the cluster, then the question."""
        with self._talking:
            if self.lost:
                raise WorkerError(self.lost)
            try:
                reply = self._show(seen) if seen is not None else Done()
                return self._ask(request) if isinstance(reply, Done) else reply
            except (EOFError, OSError) as error:
                self._give_up("the worker process died")
                raise WorkerError(self.lost) from error

    def _show(self, seen: ObservedCluster) -> Reply:
        """Send the changes of a cluster since the last time."""
        self._settle()
        known, self._shown = self._shown, None
        if known is not None and known.cluster is seen.cluster and known.snapshot.time > seen.snapshot.time:
            # While this question waited for the pipe, another one sent a newer Snapshot.
            seen = known
        before = known.snapshot if known is not None and known.cluster is seen.cluster else None
        events = change_events(before or EMPTY, seen.snapshot, without=UNDECIDED)
        now, parts = seen.snapshot, _encoded(events)
        self._send(UpdateSnapshot(before is None, now.time, parts, msgspec.json.encode(seen.policy), now.seen))
        reply = self._settle()
        if isinstance(reply, Done):
            self._shown = seen
        return reply

    def _introduce(self) -> None:
        try:
            self._tell()
            self._settle()
        except (EOFError, OSError):
            self._give_up("the worker process died")
        finally:
            self._talking.release()

    def _tell(self) -> None:
        """Send new steps if the last request was answered."""
        if self._owed and not self._pipe.poll(0):
            return
        self._settle()
        news = self._news()
        if news is not None:
            self._send(news)

    def _ask(self, question: _Asked) -> Reply:
        self._settle()
        if isinstance(question, Question) and not question.seen:
            news = self._news()
            if isinstance(news, Begin):
                self._send(news)
                self._settle()
                news = self._news()
            if isinstance(news, ReplaySteps):
                question = replace(question, follow=news)
        self._send(question)
        return self._settle()

    def _news(self) -> Begin | ReplaySteps | None:
        with self._telling:
            if self._anew is not None:
                anew, self._anew = self._anew, None
                return anew
            if self._stands is None:
                return None
            follow = ReplaySteps(tuple(self._steps), *self._stands)
            self._steps, self._stands = [], None
            return follow

    def _send(self, request: Request) -> None:
        self._pipe.send_bytes(ENCODER.encode(request))
        self._owed = True

    def _settle(self) -> Reply:
        """Wait for an outstanding reply, if any."""
        if not self._owed:
            return Done()
        if not self._pipe.poll(PATIENCE):
            raise EOFError
        reply: Reply = REPLIES.decode(self._pipe.recv_bytes())
        self._owed = False
        if isinstance(reply, Done) and not reply.same:
            with self._telling:
                self._differs = True
        return reply

    def _wants_anew(self) -> bool:
        if not self._differs or self.lost:
            return False
        if self.begun > SECOND_CHANCES:
            self._give_up("the replica diverged from the simulation")
            return False
        LOG.warning("The replica differs from the simulation and is rebuilt")
        return True

    def _give_up(self, reason: str) -> None:
        if not self.lost:
            LOG.warning("What-ifs are computed in this process from now on: %s", reason)
            self.lost = reason
        self.process.terminate()

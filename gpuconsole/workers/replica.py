"""Request handling in the worker: keeps a replica of the simulation or of a live cluster, and answers from it."""

import logging
import time
from collections.abc import Iterator
from typing import assert_never

from gpuconsole.backends.simulated import digest
from gpuconsole.insight.forecast.estimates import start_estimate_steps
from gpuconsole.insight.forecast.workload_outlook import outlook_steps
from gpuconsole.insight.pending.why import rehearsal_of, trying, view_on
from gpuconsole.insight.preemption.risk import eviction_risk_steps
from gpuconsole.insight.whatif.plan import plan_steps
from gpuconsole.insight.whatif.whatif import prepare, what_if_steps
from gpuconsole.model.cooperative import run_to_end
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.model.text import clean
from gpuconsole.sim.engine import Simulation
from gpuconsole.workers.forked_future import fork_future
from gpuconsole.workers.live_replica import LiveReplica, named_in
from gpuconsole.workers.protocol import (
    AskForecast,
    AskOutlook,
    AskPlan,
    AskRisk,
    AskScores,
    AskStarts,
    AskWhatIf,
    AskWhy,
    Begin,
    Done,
    Expect,
    Failed,
    ForecastReply,
    Long,
    NextPiece,
    OutlookReply,
    PlanReply,
    Question,
    QuestionMessage,
    ReplaySteps,
    Reply,
    Request,
    RiskReply,
    ScoresReply,
    StartsReply,
    UpdateSnapshot,
    WhatIfReply,
    WhyReply,
)

LOG = logging.getLogger(__name__)


class Replica:
    """A simulation that repeats the steps of another one. Mutates."""

    def __init__(self, begin: Begin) -> None:
        self._simulation = Simulation.load(begin.state)
        self._simulation.drain()
        self._digest = begin.digest
        run_to_end(prepare(self._simulation))

    def follow(self, follow: ReplaySteps) -> bool:
        """Repeat the steps of the simulation; True if the events are the same."""
        for step in follow.steps:
            self._simulation.advance(step.at)
            self._simulation.submit(step.command)
        self._simulation.advance(follow.now)
        self._digest = digest(self._simulation.drain(), self._digest)
        return self._digest == follow.digest

    def followed(self, question: Question) -> Simulation | None:
        """The replicated simulation; None if it differs from the original."""
        if question.follow is not None and not self.follow(question.follow):
            return None
        return self._simulation


def pieces(simulation: Simulation, question: Long, found: Snapshot | None) -> Iterator[Reply]:
    """The results of a long question about a simulation, computed in forks, one by one.

    `found` is the live cluster from which the simulation started, if any.
    """
    match question:
        case AskWhatIf():
            asked = (question.commands, question.horizon, question.against, question.places, found)
            return map(WhatIfReply, what_if_steps(simulation, *asked, elsewhere=fork_future, clock=time.thread_time))
        case AskWhy():
            snapshot = simulation.snapshot()
            tried = trying(snapshot, rehearsal_of(simulation, snapshot), question.workload, lambda: simulation)
            return map(WhyReply, tried)
        case AskPlan():
            return map(PlanReply, plan_steps(simulation.fork(), question.commands, question.wanted))
        case AskRisk():
            standing = view_on(found, simulation.policy) if found is not None else None
            return map(RiskReply, eviction_risk_steps(simulation.fork(), found=standing, clock=time.monotonic))
        case AskOutlook():
            return map(OutlookReply, outlook_steps(simulation.fork(), question.workload, found=found))
        case AskStarts():
            return map(StartsReply, start_estimate_steps(simulation.fork()))
        case _:
            assert_never(question)


class RequestHandler:
    """State of the process between requests. Mutates by `reply`."""

    def __init__(self) -> None:
        self._replica: Replica | None = None
        self._mirror = LiveReplica()
        self._trials: dict[type[Long], tuple[int, Iterator[Reply]]] = {}
        """Type of long question → number and remaining results of the last one, computed in forks of its own."""

    def reply(self, request: Request) -> Reply:
        """Handle a request; errors become replies, too."""
        try:
            return self._carried_out(request)
        except Exception as error:
            LOG.exception("The worker could not answer")
            failed = Failed(clean(f"{type(error).__name__}: {error}"))
            return Done(same=False) if isinstance(request, Begin | ReplaySteps) else failed

    def prepare_step(self) -> bool:
        """Do a part of the preparation for the next question; False if there is none."""
        try:
            return self._mirror.prepare_step()
        except Exception:
            LOG.exception("The worker could not prepare for a request")
            return False

    def _carried_out(self, request: Request) -> Reply:
        match request:
            case Begin():
                self._replica = Replica(request)
                return Done()
            case UpdateSnapshot():
                self._mirror.see(request)
                return Done()
            case AskForecast():
                return ForecastReply(*self._mirror.look(request.assumed, request.unseen))
            case AskWhy(seen=True):
                return self._begun(request, map(WhyReply, self._mirror.why(request.workload)))
            case NextPiece():
                return self._go_on(request.number)
            case Expect():
                self._mirror.expect()
                return Done()
            case QuestionMessage(seen=True):
                if isinstance(request, AskWhatIf | AskPlan):
                    self._mirror.expect()
                base = self._mirror.base(named_in(request))
                return self._answer(base.simulation, request, base.completed)
            case _ if self._replica is None:
                return Done(same=False)
            case ReplaySteps():
                return Done(same=self._replica.follow(request))
            case QuestionMessage():
                simulation = self._replica.followed(request)
                return Done(same=False) if simulation is None else self._answer(simulation, request, None)
            case _:
                assert_never(request)

    def _answer(self, simulation: Simulation, question: Question, found: Snapshot | None) -> Reply:
        if isinstance(question, AskScores):
            return ScoresReply(simulation.placement.scores(question.pod))
        return self._begun(question, pieces(simulation, question, found))

    def _begun(self, question: Long, trial: Iterator[Reply]) -> Reply:
        self._trials[type(question)] = question.number, trial
        return self._go_on(question.number)

    def _go_on(self, number: int) -> Reply:
        trial = next((trial for known, trial in self._trials.values() if known == number), iter(()))
        return next(trial, Failed("replaced by another request"))

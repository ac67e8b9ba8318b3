"""Request handling in the worker: keeps a replica of the simulation or of a live cluster, and answers from it.

`RequestHandler` handles each request. `Replica` repeats the steps of the console's simulation; `LiveReplica` follows
the changes of a live cluster, and prepares the simulation from which futures are forked.
"""

import logging
from collections.abc import Iterator
from typing import Any, NamedTuple, assert_never

import msgspec

from gpuconsole.backends.simulated import digest
from gpuconsole.insight.forecast.agreement import ShadowReport
from gpuconsole.insight.forecast.backtest import ForecastChecker, ForecastDifferences
from gpuconsole.insight.forecast.forecast import Forecast
from gpuconsole.insight.forecast.shadow import Shadow
from gpuconsole.insight.whatif.whatif import prepare
from gpuconsole.model.clock import MINUTE, SECOND, Span, Time
from gpuconsole.model.cooperative import Progress, Steps, run_to_end
from gpuconsole.model.events import Applied, Deleted, Event
from gpuconsole.model.objects import TABLES, intern
from gpuconsole.model.snapshot import EMPTY, Snapshot, change_events
from gpuconsole.model.state import ClusterState
from gpuconsole.model.text import clean
from gpuconsole.scheduling.kueue.config import KueueConfig
from gpuconsole.scheduling.kueue.observation import Observation
from gpuconsole.sim.engine import Simulation
from gpuconsole.sim.live_base import LiveBase
from gpuconsole.sim.policy import SimPolicy
from gpuconsole.workers.forked_future import fork_future
from gpuconsole.workers.protocol import (
    ANALYSES,
    ENCODER,
    FOLLOWED,
    NEWS,
    AdmissionTrialBase,
    AnalysedCluster,
    AnswerPiece,
    AskForecast,
    Begin,
    BeginShadow,
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
    UpdateSnapshot,
    find_plan,
    simulated_cluster,
    try_commands,
)

FRESH: Span = MINUTE
"""Maximum age of a prepared simulation that is used for another question, if the cluster has not changed."""
BEHIND: Span = 5 * SECOND
"""Maximum age of a prepared simulation if only tables of `WORK` have changed, except objects that the question names.
"""
REST: Span = 2 * SECOND
"""Age at which the prepared simulation is replaced before the next question, if the cluster has changed."""
INTEREST: Span = 2 * MINUTE
"""Time after a what-if for which a new simulation is kept prepared, because another what-if is likely."""
WORK = ("workloads", "jobs", "pods", "pod_groups", "kai_pod_groups")
"""Tables of workloads and pods, which change all the time; the others describe the configuration of the cluster."""


class SimulationBase(NamedTuple):
    """A simulation of the live cluster from which the futures of questions are forked, with its Snapshots."""

    found: Snapshot
    """The cluster as it was observed."""
    completed: Snapshot
    """The cluster, with unknown facts about pods filled in."""
    simulation: Simulation
    """The simulation that continues from it; only its forks are advanced."""

    def changed(self, now: Snapshot) -> set[str]:
        """Names of the tables that differ between the observed cluster and `now`."""
        return {name for name in TABLES.values() if not _same_rows(self.found, now, name)}

    def stands_for(self, now: Snapshot, named: frozenset[str]) -> bool:
        """True if it is recent enough for a question that names these objects, when the cluster has become `now`."""
        if now.time - self.found.time > FRESH:
            return False
        changed = self.changed(now)
        if not changed:
            return True
        if now.time - self.found.time > BEHIND or not changed <= {*WORK}:
            return False
        return all(getattr(self.found, name).get(key) == getattr(now, name).get(key) for name in WORK for key in named)


def _same_rows(before: Snapshot, now: Snapshot, name: str) -> bool:
    old, new = getattr(before, name), getattr(now, name)
    return old is new or old.rows == new.rows


class LiveReplica:
    """Keeps the worker's copy of a live cluster and answers questions about it. Mutates."""

    def __init__(self) -> None:
        self.state = ClusterState()
        """The cluster; only `see` changes it."""
        self._observer = ForecastChecker()
        self.snapshot: Snapshot = EMPTY
        """The cluster at the last update."""
        self._policy = SimPolicy()
        self._footing: LiveBase | None = None
        """Engines loaded with the cluster, after the first question; they follow its changes and decide nothing."""
        self._base: SimulationBase | None = None
        self._making: Steps[SimulationBase] | None = None
        """The preparation of the next base, if under way."""
        self._asked: Time | None = None
        """Time of the last what-if."""

    def see(self, seen: UpdateSnapshot, followed: ClusterState | None = None) -> None:
        """Apply the changes of the cluster; drops what was prepared for another cluster, policy or visibility.

        Objects that `followed`, another copy of the cluster, has already are shared with it.
        """
        policy = msgspec.json.decode(seen.policy, type=SimPolicy)
        if seen.anew:
            self.state, self._observer = ClusterState(), ForecastChecker()
        if seen.anew or policy != self._policy:
            self._footing = None
        if seen.anew or policy != self._policy or seen.seen != self.state.seen:
            self._base = self._making = None
        for part in seen.news:
            for event in NEWS.decode(part):
                self.state.apply(_shared(event, followed))
        self.state.seen, self.state.time = seen.seen, seen.time
        self.snapshot, self._policy = self.state.freeze(), policy

    def look(
        self, assumed: tuple[str, ...], unseen: tuple[str, ...], followed: tuple[Snapshot, Observation] | None = None
    ) -> tuple[Forecast, ForecastDifferences]:
        """The forecast, and the differences from the previous one; see `ForecastChecker.look`.

        `followed` is the cluster as a shadow followed it event by event, with Kueue's queues.
        """
        snapshot, observed = followed or (self.snapshot, None)
        return self._observer.look(snapshot, self._policy, assumed, unseen, observed)

    def cluster(self, named: frozenset[str]) -> AnalysedCluster:
        """Return the cluster as the subject of a question that names these objects."""
        return AnalysedCluster(
            lambda: self.base(named).simulation,
            self._admission,
            lambda: self.base(named).completed,
            fork_future,
        )

    def _admission(self) -> AdmissionTrialBase:
        """The current cluster without simulated decisions, and its admission state."""
        snapshot, footing = self.snapshot, run_to_end(self._known_to_engines())
        run_to_end(footing.update(snapshot))
        return snapshot, footing.admission_simulator()

    def base(self, named: frozenset[str]) -> SimulationBase:
        """Return the simulation whose forks answer a question that names these objects: the prepared or a new one."""
        base = self._base
        if (base is None or not base.stands_for(self.snapshot, named)) and self._making is not None:
            # A preparation under way ends sooner than a new one, and its result may be recent enough.
            base, self._making = run_to_end(self._making), None
        if base is None or not base.stands_for(self.snapshot, named):
            base = run_to_end(self._make())
        self._base = base
        return base

    def expect(self) -> None:
        """Note that a what-if is being edited: the next question comes soon."""
        self._asked = self.snapshot.time

    def prepare_step(self) -> bool:
        """Do a part of the preparation for the next question; False if none is needed or expected."""
        if self._making is None:
            if self._asked is None or self.snapshot.time - self._asked > INTEREST or not self._outdated():
                return False
            self._making = self._make()
        try:
            next(self._making)
        except StopIteration as end:
            self._base, self._making = end.value, None
        except Exception:
            # The next question reports the error.
            self._making = self._asked = None
            raise
        return True

    def _outdated(self) -> bool:
        base, now = self._base, self.snapshot
        if base is None:
            return True
        return now.time - base.found.time > (REST if base.changed(now) else FRESH)

    def _make(self) -> Steps[SimulationBase]:
        footing = yield from self._known_to_engines()
        yield from footing.update(self.snapshot)
        found = footing.at
        simulation = yield from Simulation.from_live_base(footing)
        yield
        completed = footing.completed_snapshot() if footing.at is found else found
        yield from prepare(simulation, completed)
        return SimulationBase(found, completed, simulation)

    def _known_to_engines(self) -> Steps[LiveBase]:
        """Engines loaded with the cluster, including the observed state of Kueue's queues."""
        if self._footing is None:
            self._footing = footing = LiveBase(self._policy, seed=0)
            followed = self._observer.followed(self._policy)
            if followed is not None:
                yield from footing.update_with_observation(followed)
            return footing
        return self._footing


def named_in(arguments: msgspec.Raw) -> frozenset[str]:
    """All strings in the arguments of a question: they include the names of the objects that it is about."""
    found, left = set(), [msgspec.msgpack.decode(arguments)]
    while left:
        match left.pop():
            case str(text):
                found.add(text)
            case dict(fields):
                left += fields.values()
            case list(parts):
                left += parts
            case _:
                pass
    return frozenset(found)


def _shared(event: Event, other: ClusterState | None = None) -> Event:
    """Return an event with an equal object of `other`, so that two copies of a cluster differ only in what changed."""
    if not isinstance(event, Applied):
        return event
    known = other.get(type(event.object), event.object.key) if other is not None else None
    return Applied(event.time, known if known == event.object else intern(event.object))


class FollowedCluster:
    """The shadow of a live cluster, and the cluster as it followed it. Mutates by `follow`."""

    def __init__(self, request: BeginShadow, config: KueueConfig, mirror: LiveReplica) -> None:
        """Begin with the objects of the request; equal ones are shared with `mirror`."""
        self._mirror = mirror
        events = [_shared(event, mirror.state) for part in request.objects for event in NEWS.decode(part)]
        objects = [event.object for event in events if isinstance(event, Applied)]
        self._shadow = Shadow(config, objects, request.time)
        self.state = ClusterState(request.time)
        for event in events:
            self.state.apply(event)

    def follow(self, request: FollowChanges) -> ShadowReport:
        """Check the decisions that changes show; returns what was found since the begin."""
        for change in NEWS.decode(request.changes):
            event = _shared(change, self._mirror.state)
            if isinstance(event, Applied | Deleted):
                self._shadow.follow(event, event.time)
                self.state.apply(event)
        return self._shadow.report

    def now(self) -> tuple[Snapshot, Observation]:
        """Return the cluster, with what the mirror knows besides, and Kueue's queues."""
        newest = self._mirror.snapshot
        self.state.time, self.state.seen = max(self.state.time, newest.time), newest.seen
        for event in change_events(self.state.freeze(), newest):
            if event.table not in FOLLOWED:
                self.state.apply(event)
        return self.state.freeze(), self._shadow.observation


LOG = logging.getLogger(__name__)


REPEATED = (try_commands.__name__, find_plan.__name__)
"""Analyses after which another one is likely, so that a simulation is kept prepared."""


class Replica:
    """The worker's copy of the console's simulation: repeats its steps. Mutates."""

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


class RequestHandler:
    """Answers the requests to the worker, and keeps its replicas. Mutates by `reply`."""

    def __init__(self) -> None:
        self._replica: Replica | None = None
        self._mirror = LiveReplica()
        self._shadow: FollowedCluster | None = None
        self._trials: dict[str, tuple[int, Iterator[Progress[Any]]]] = {}
        """Name of an analysis → number and remaining results of the last question, computed in forks of its own."""

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
                self._mirror.see(request, self._shadow.state if self._shadow is not None else None)
                return Done()
            case AskForecast():
                shadow = self._shadow if request.followed else None
                followed = shadow.now() if shadow is not None else None
                return ForecastReply(*self._mirror.look(request.assumed, request.unseen, followed))
            case NextPiece():
                return self._go_on(request.number)
            case BeginShadow():
                config = msgspec.json.decode(request.policy, type=SimPolicy).kueue
                self._shadow = FollowedCluster(request, config, self._mirror) if config is not None else None
                return Done()
            case FollowChanges():
                return self._follow(request)
            case Expect():
                self._mirror.expect()
                return Done()
            case Question(seen=True):
                if request.analysis in REPEATED:
                    self._mirror.expect()
                return self._begun(request, self._mirror.cluster(named_in(request.arguments)))
            case _ if self._replica is None:
                return Done(same=False)
            case ReplaySteps():
                return Done(same=self._replica.follow(request))
            case Question():
                simulation = self._replica.followed(request)
                if simulation is None:
                    return Done(same=False)
                return self._begun(request, simulated_cluster(simulation, fork_future))
            case _:
                assert_never(request)

    def _follow(self, request: FollowChanges) -> Reply:
        if self._shadow is None:
            return Failed("the shadow has not begun")
        return ShadowReply(self._shadow.follow(request))

    def _begun(self, question: Question, cluster: AnalysedCluster) -> Reply:
        codec = ANALYSES[question.analysis]
        trial = codec.run(cluster, *codec.arguments.decode(question.arguments))
        self._trials[question.analysis] = question.number, trial
        return self._go_on(question.number)

    def _go_on(self, number: int) -> Reply:
        trial = next((trial for known, trial in self._trials.values() if known == number), iter(()))
        progress = next(trial, None)
        if progress is None:
            return Failed("replaced by another request")
        return AnswerPiece(msgspec.Raw(ENCODER.encode(progress)))

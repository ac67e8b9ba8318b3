"""The worker's replica of a live cluster, on which forecasts and what-ifs are computed."""

from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from gpuconsole.insight.forecast.backtest import ForecastChecker, ForecastDifferences
from gpuconsole.insight.forecast.forecast import Forecast
from gpuconsole.insight.pending.why import Tried, trying
from gpuconsole.insight.whatif.whatif import prepare
from gpuconsole.model.clock import MINUTE, SECOND, Span, Time
from gpuconsole.model.cooperative import Steps, run_to_end
from gpuconsole.model.events import Applied, Event
from gpuconsole.model.interning import intern
from gpuconsole.model.objects import TABLES
from gpuconsole.model.snapshot import EMPTY, Snapshot
from gpuconsole.model.state import ClusterState
from gpuconsole.sim.engine import Simulation
from gpuconsole.sim.live_base import LiveBase
from gpuconsole.sim.policy import SimPolicy
from gpuconsole.workers.protocol import NEWS, Question, UpdateSnapshot

FRESH: Span = MINUTE
"""Maximum age of a simulation that answers another question, if nothing has changed."""
BEHIND: Span = 5 * SECOND
"""Its maximum age if only work (`WORK`) has changed, and none that the question names."""
REST: Span = 2 * SECOND
"""Age at which a new simulation is prepared before the next question, if the cluster has changed."""
INTEREST: Span = 2 * MINUTE
"""Time after a what-if within which another one is expected."""
WORK = ("workloads", "jobs", "pods", "pod_groups", "kai_pod_groups")
"""Tables that change all the time; the others describe the set-up of the cluster."""


class SimulationBase(NamedTuple):
    """The simulation from which futures are forked, with its Snapshot."""

    found: Snapshot
    """The cluster as it was observed."""
    completed: Snapshot
    """The cluster, with unknown facts about pods filled in."""
    simulation: Simulation
    """The simulation that continues from it; only its forks are advanced."""

    def changed(self, now: Snapshot) -> set[str]:
        """Names of the tables that have changed since then."""
        return {name for name in TABLES.values() if not _same_rows(self.found, now, name)}

    def stands_for(self, now: Snapshot, named: frozenset[str]) -> bool:
        """True if it is recent enough to answer a question about these names `now`."""
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
    """The replica of one cluster. Mutates."""

    def __init__(self) -> None:
        self._state = ClusterState()
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

    def see(self, seen: UpdateSnapshot) -> None:
        """Apply the changes of the cluster."""
        policy = msgspec.json.decode(seen.policy, type=SimPolicy)
        if seen.anew:
            self._state, self._observer = ClusterState(), ForecastChecker()
        if seen.anew or policy != self._policy:
            self._footing = None
        if seen.anew or policy != self._policy or seen.seen != self._state.seen:
            self._base = self._making = None
        for part in seen.news:
            for event in map(_shared, NEWS.decode(part)):
                self._state.apply(event)
        self._state.seen, self._state.time = seen.seen, seen.time
        self.snapshot, self._policy = self._state.freeze(), policy

    def look(self, assumed: tuple[str, ...], unseen: tuple[str, ...]) -> tuple[Forecast, ForecastDifferences]:
        """The forecast, and the differences from the previous one; see `ForecastChecker.look`."""
        return self._observer.look(self.snapshot, self._policy, assumed, unseen)

    def why(self, workload: str) -> Iterator[Tried]:
        """Explain why a workload is pending, and try suggestions, in the current cluster without simulated decisions.

        Suggestions are tried in a fork, one per step; later changes do not affect the answer.
        """
        snapshot, footing = self.snapshot, run_to_end(self._known_to_engines())
        run_to_end(footing.update(snapshot))
        return trying(snapshot, footing.rehearsal(), workload, lambda: self.base(frozenset({workload})).simulation)

    def base(self, named: frozenset[str]) -> SimulationBase:
        """The simulation from which futures of a question about these names are forked."""
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
        simulation = yield from Simulation.on(footing)
        yield
        completed = footing.completed() if footing.at is found else found
        yield from prepare(simulation, completed)
        return SimulationBase(found, completed, simulation)

    def _known_to_engines(self) -> Steps[LiveBase]:
        """Engines loaded with the cluster, including the observed state of Kueue's queues."""
        if self._footing is None:
            self._footing = footing = LiveBase(self._policy, seed=0)
            followed = self._observer.followed(self._policy)
            if followed is not None:
                yield from footing.go_on(followed)
            return footing
        return self._footing


def named_in(question: Question) -> frozenset[str]:
    """All strings in a question, which may be names of objects."""
    found, left = set(), [msgspec.to_builtins(question)]
    while left:
        match left.pop():
            case str(text):
                found.add(text)
            case dict(fields):
                left += fields.values()
            case list(parts) | tuple(parts):
                left += parts
            case _:
                pass
    return frozenset(found)


def _shared(event: Event) -> Event:
    return Applied(event.time, intern(event.object)) if isinstance(event, Applied) else event

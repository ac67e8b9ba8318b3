"""A cluster that others run, as a worker process knows it: told what changed, it is looked at and tried out."""

from collections.abc import Iterator

import msgspec

from gpuconsole.insight.forecast import Forecast
from gpuconsole.insight.forecast_check import Differences, Observer
from gpuconsole.insight.why import Tried, rehearsal_on, trying
from gpuconsole.model.clock import MINUTE, Span
from gpuconsole.model.events import Applied, Event
from gpuconsole.model.sharing import shared
from gpuconsole.model.snapshot import EMPTY, Snapshot
from gpuconsole.model.state import ClusterState
from gpuconsole.sim.engine import Simulation
from gpuconsole.sim.policy import SimPolicy
from gpuconsole.sim.rehearsal import Rehearsal
from gpuconsole.workers.protocol import NEWS, See

FRESH: Span = MINUTE
"""How old a simulation may be that is asked again, where nothing changed meanwhile."""


class Mirror:
    """One cluster, as it was seen last. Mutates by `see` and `look`."""

    def __init__(self) -> None:
        self._state = ClusterState()
        self._observer = Observer()
        self.snapshot: Snapshot = EMPTY
        """It, as a value."""
        self._policy = SimPolicy()
        self._simulation: Simulation | None = None
        self._rehearsal: Rehearsal | None = None
        """Its admission, once somebody asked why; it is told what changes, and decides nothing itself."""

    def see(self, seen: See) -> None:
        """Take in what changed."""
        policy = msgspec.json.decode(seen.policy, type=SimPolicy)
        if seen.anew:
            self._state, self._observer = ClusterState(), Observer()
        if seen.anew or policy != self._policy:
            self._rehearsal = None
        for part in seen.news:
            for event in map(_shared, NEWS.decode(part)):
                self._state.apply(event)
                if self._rehearsal is not None:
                    self._rehearsal.follow(event)
        if seen.seen != self._state.seen:
            self._state.seen, self._simulation = seen.seen, None
        self._state.time = seen.time
        if seen.anew or seen.news or policy != self._policy:
            self._simulation = None
        self.snapshot, self._policy = self._state.freeze(), policy

    def look(self, assumed: tuple[str, ...], unseen: tuple[str, ...]) -> tuple[Forecast, Differences]:
        """What comes next, and what came of the look before; see `Observer.look`."""
        return self._observer.look(self.snapshot, self._policy, assumed, unseen)

    def why(self, workload: str) -> Iterator[Tried]:
        """Why a workload waits, and what would let it in; the cluster as it is, with nothing decided by us.

        It is tried piece by piece, in a fork: what is seen meanwhile changes nothing in the answer.
        """
        kept, now = self._rehearsal, self.snapshot.time
        if kept is None or (kept.session.next_requeue or now) < now or kept.session.next_sample is not None:
            # Time that passed counts where backoffs end or usage is forgotten: there nothing is kept.
            kept = rehearsal_on(self.snapshot, self._policy.kueue)
        self._rehearsal = kept
        if kept is not None:
            kept.now = now
        return trying(self.snapshot, kept.fork() if kept is not None else None, workload, lambda: self.simulation)

    @property
    def simulation(self) -> Simulation:
        """The cluster going on by our rules; it is to be forked, not driven."""
        if self._simulation is None or self.snapshot.time - self._simulation.now > FRESH:
            self._simulation = Simulation.from_snapshot(self.snapshot, policy=self._policy, seed=0)
            self._simulation.drain()
        return self._simulation


def _shared(event: Event) -> Event:
    return Applied(event.time, shared(event.object)) if isinstance(event, Applied) else event

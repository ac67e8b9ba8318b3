"""What simulations of a cluster that others run begin from: engines that know it as it is, and have decided nothing.

Most of what it costs to go on from a cluster is to tell the engines of all that is in it. Here they are told once, and
then only what changed.
"""

from gpuconsole.model.events import Applied, Deleted
from gpuconsole.model.job import Job
from gpuconsole.model.objects import TABLES
from gpuconsole.model.pieces import Pieces
from gpuconsole.model.scan import news
from gpuconsole.model.snapshot import EMPTY, Snapshot
from gpuconsole.model.state import ClusterState
from gpuconsole.model.workloads import Workload
from gpuconsole.sim import adoption, arriving
from gpuconsole.sim.autoscaling import loop as providing
from gpuconsole.sim.enlisting import Counted
from gpuconsole.sim.policy import SimPolicy
from gpuconsole.sim.rehearsal import Rehearsal
from gpuconsole.sim.world import World

AT_ONCE = 500
"""So many changes are told in a piece: some milliseconds."""


class Footing:
    """A cluster as it was seen last. Mutates by `catch_up`; what begins from it are forks."""

    def __init__(self, policy: SimPolicy, seed: int) -> None:
        self._policy, self._seed = policy, seed
        self._world = World(policy, seed, 0, ClusterState())
        self._at = EMPTY
        """What was told so far."""
        self._counted: dict[str, Counted] = {}
        """Groups of pods, as they were counted last."""

    def catch_up(self, snapshot: Snapshot) -> Pieces[None]:
        """Take in what changed; the more the Snapshot shares with the one before, the quicker."""
        if self._begins_anew(snapshot):
            self._world, self._at = World(self._policy, self._seed, 0, ClusterState()), EMPTY
        world = self._world
        world.now = snapshot.time
        for number, event in enumerate(news(self._at, snapshot), start=1):
            _tell(world, event)
            if number % AT_ONCE == 0:
                yield
        # The same rows in the same order, whatever became of them on the way.
        world.state = ClusterState.of(snapshot, ())
        world.state.recall(snapshot.recent)
        self._at = snapshot

    def _begins_anew(self, snapshot: Snapshot) -> bool:
        """True where time that passed counts: where backoffs end, or usage is forgotten."""
        session = self._world.session
        if session is None:
            return False
        ended = session.next_requeue is not None and session.next_requeue <= snapshot.time
        return ended or session.next_sample is not None

    def begin(self) -> Pieces[World]:
        """A world that goes on from here: every group of pods has its crew and its timers.

        Those who wait in its queues are not told why: their own scheduler tells them.
        """
        world = self._world.fork()
        yield from adoption.take_over(world, self._counted)
        arriving.continue_streams(world, self._at.recent)
        providing.resume(world)
        return world

    def rehearsal(self) -> Rehearsal | None:
        """Its admission alone; None without Kueue."""
        session = self._world.session
        return Rehearsal(session.fork(), self._at.time, self._at.workloads.all()) if session is not None else None


def _tell(world: World, event: Applied | Deleted) -> None:
    if isinstance(event, Applied):
        world.state.apply(event)
        world.introduce(event.object)
        return
    if event.table == TABLES[Job]:
        job = world.job(event.key)
        world.children.get(job.owner if job is not None else "", {}).pop(event.key, None)
        world.parents.pop(event.key, None)
    elif event.table == TABLES[Workload]:
        workload = world.workload(event.key)
        world.broods.get(workload.parent if workload is not None else "", {}).pop(event.key, None)
    world.state.apply(event)
    world.withdraw(event.table, event.key)

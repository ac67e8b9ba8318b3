"""Base state for simulations of a live cluster: engines loaded with its current state, before any decision.

Loading the engines dominates the cost of such a simulation. Here they are loaded once, and then updated with changes.
"""

from collections.abc import Iterable, Iterator
from itertools import islice

from gpuconsole.model.cluster import Pod
from gpuconsole.model.cooperative import Steps
from gpuconsole.model.device_requests import DeviceCounter
from gpuconsole.model.events import Applied, Deleted, Event
from gpuconsole.model.job import Job
from gpuconsole.model.objects import TABLES, Object
from gpuconsole.model.snapshot import EMPTY, Snapshot, change_events
from gpuconsole.model.state import ClusterState
from gpuconsole.model.workloads import Workload
from gpuconsole.scheduling.kueue.observation import Observation
from gpuconsole.sim import adoption
from gpuconsole.sim.admission_simulator import AdmissionSimulator
from gpuconsole.sim.adoption import GroupCounts
from gpuconsole.sim.autoscaling import loop
from gpuconsole.sim.controllers import object_commands
from gpuconsole.sim.kernel import RequeueInadmissible
from gpuconsole.sim.policy import SimPolicy
from gpuconsole.sim.world import World

CHANGES_PER_STEP = 500
"""Changes applied per step, which takes some milliseconds."""


class LiveBase:
    """The last observed state of a cluster; simulations start from forks of it.

    Mutates by `update`, `update_with_observation` and `keep_filled_in_facts`.
    """

    def __init__(self, policy: SimPolicy, seed: int) -> None:
        self._policy, self._seed = policy, seed
        self._world = World(policy, seed, 0, ClusterState())
        self.at = EMPTY
        """The cluster at the last complete update."""
        self._pending_changes: Iterator[Applied | Deleted] = iter(())
        self._next_snapshot: Snapshot | None = None
        """The Snapshot to which `_pending_changes` leads; None once it is reached."""
        self._observed = self._observation()
        """The state of Kueue's queues that its writes reveal; None without Kueue."""
        self._stale_observation: Observation | None = None
        """The previous `_observed`, while the engines are loaded again because their time-dependent state is stale."""
        self._group_counts: dict[str, GroupCounts] = {}
        """Running group → its last counts."""
        self._filled_in: dict[tuple[type[Object], str], tuple[Object, Object]] = {}
        """Object → its version in the cluster, and the version with facts filled in."""

    def update(self, snapshot: Snapshot) -> Steps[None]:
        """Apply the changes of a new Snapshot; faster the more it shares with the previous one.

        A second call before the first one is finished finishes that first. A Snapshot older than the last one is
        ignored.
        """
        yield from self._apply_changes()
        if snapshot.time < self.at.time:
            return
        session = self._world.session
        outlived = session is not None and self.at is not EMPTY and session.is_stale(snapshot.time)
        self._pending_changes, self._next_snapshot = iter(change_events(self.at, snapshot)), snapshot
        yield from self._apply_changes()
        if outlived and self.at is snapshot:
            self._world, self._filled_in = World(self._policy, self._seed, 0, ClusterState()), {}
            self._observed, self._stale_observation = None, self._observed
            self._pending_changes, self._next_snapshot = iter(change_events(EMPTY, snapshot)), snapshot
            yield from self._apply_changes()

    def update_with_observation(self, followed: tuple[Snapshot, Observation]) -> Steps[None]:
        """Update to a Snapshot, with the state of Kueue's queues that another observer tracked up to it."""
        snapshot, observed = followed
        yield from self.update(snapshot)
        if self._observed is not None and self.at is snapshot:
            self._observed.adopt(observed)

    def _apply_changes(self) -> Steps[None]:
        """Apply the remaining changes to the engines."""
        reached, world = self._next_snapshot, self._world
        if reached is None:
            return
        world.now = reached.time
        while piece := tuple(islice(self._pending_changes, CHANGES_PER_STEP)):
            for event in piece:
                self._reset_readiness(event)
                self._apply_events(event)
            yield
        if self._next_snapshot is reached:
            # Use the Snapshot's tables: the same objects in the same order.
            world.state = ClusterState.of(reached, ())
            world.devices = DeviceCounter.of_state(world.state)
            world.state.recall(reached.recent)
            self.at, self._next_snapshot = reached, None
            self._put_completed()
            if self._stale_observation is not None and world.session is not None:
                self._observed, self._stale_observation = self._stale_observation.continue_in(world.session), None
            elif self._observed is not None:
                self._observed.update_queues(reached.time)

    def start_world(self, *, typical: bool = False) -> Steps[World]:
        """A world that continues from this state: every group of pods has its RunningGroup and timers.

        `typical`: each latency is its median, not drawn.
        Pending workloads get no messages: those come from their own scheduler.
        """
        world, history = self._world.fork(), self.at.recent
        world.has_typical_latencies = typical
        if self._observed is not None and world.session is not None:
            wake_at = self._observed.prepare_fork(world.session, self.at.time)
            if wake_at is not None and self._policy.requeue_batch_interval:
                world.wake_at = wake_at
                world.kernel.set_timer(wake_at, RequeueInadmissible())
        yield from adoption.adopt_cluster(world, self._group_counts)
        object_commands.continue_arrival_streams(world, history)
        loop.resume_autoscaling(world)
        return world

    def _apply_events(self, event: Applied | Deleted) -> None:
        """Apply events to the engines, and note what they show of Kueue's queues."""
        if self._observed is not None:
            self._observed.before_event(event, self._world.now)
        _apply_event(self._world, event)
        if self._observed is not None:
            self._observed.after_event(event, self._world.now)

    def _observation(self) -> Observation | None:
        session = self._world.session
        return Observation(session) if session is not None else None

    def keep_filled_in_facts(self, events: Iterable[Event]) -> Steps[None]:
        """Keep facts that a simulation filled in at its start (its `events`), so that later ones need not repeat that.

        Once the cluster shows another value, that replaces the filled-in one.
        """
        last = {(type(e.object), e.object.key): e.object for e in events if isinstance(e, Applied)}
        for number, (key, obj) in enumerate(last.items(), start=1):
            found = self._world.state.get(*key) if self._next_snapshot is None else None
            if found is not None and adoption.only_adds_unknown_facts(found, obj):
                real, _ = self._filled_in.get(key, (found, found))
                self._filled_in[key] = real, obj
                _apply_event(self._world, Applied(self._world.now, obj))
            if number % CHANGES_PER_STEP == 0:
                yield

    def completed_snapshot(self) -> Snapshot:
        """The observed cluster with unknown facts filled in; simulations started here share its unchanged objects."""
        return self._world.state.freeze()

    def _reset_readiness(self, event: Applied | Deleted) -> None:
        """Reset a Workload to the cluster's state when one of its pods changes."""
        pod = self._world.pod(event.key) if event.table == TABLES[Pod] else None
        pair = self._filled_in.pop((Workload, pod.workload), None) if pod is not None else None
        if pair is not None and self._world.workload(pair[1].key) is pair[1]:
            _apply_event(self._world, Applied(self._world.now, pair[0]))

    def _put_completed(self) -> None:
        """Use the filled-in objects where the cluster's objects are unchanged."""
        state = self._world.state
        stands = {key: pair for key, pair in self._filled_in.items() if state.get(*key) is pair[0]}
        for _, obj in stands.values():
            state.apply(Applied(self._world.now, obj))
        self._filled_in = stands

    def admission_simulator(self) -> AdmissionSimulator | None:
        """A simulation of admission alone, in which inadmissible workloads are tried again; None without Kueue."""
        if self._world.session is None:
            return None
        session = self._world.session.fork()
        session.requeue_all_inadmissible(self.at.time)
        return AdmissionSimulator(session, self.at.time, self.at.workloads)


def _apply_event(world: World, event: Applied | Deleted) -> None:
    world.quota_usage.clear()
    if isinstance(event, Applied):
        world.state.apply(event)
        world.apply_to_schedulers(event.object)
        return
    if event.table == TABLES[Job]:
        job = world.job(event.key)
        world.children.get(job.owner if job is not None else "", {}).pop(event.key, None)
        world.creators_to_reconcile.pop(event.key, None)
    elif event.table == TABLES[Workload]:
        workload = world.workload(event.key)
        world.children_workloads.get(workload.parent if workload is not None else "", {}).pop(event.key, None)
    world.state.apply(event)
    world.delete_from_schedulers(event.table, event.key)

"""The simulation of a cluster: advances on its own, takes commands, can be forked and saved.

`estimating_fork` makes forks that know only what an observer of the cluster can know about its future: work under way
ends when similar work ends, whatever the simulation has planned; nothing arrives except what is submitted to the fork,
or what its arrival streams draw again; later steps of a scenario are omitted. `write_snapshot` writes the cluster at
one moment, with the policy, as a Snapshot file; `Simulation.save` keeps timers as well.

`save_world` serializes a simulation with its timers, so that `load_world` continues exactly from the saved state.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Generic, TypeVar, assert_never

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from gpuconsole.model.clock import Span, Time
from gpuconsole.model.cluster import Pod
from gpuconsole.model.commands import Command
from gpuconsole.model.cooperative import Steps, run_to_end
from gpuconsole.model.events import Event, HistoryEvent
from gpuconsole.model.objects import TABLES, Object, intern
from gpuconsole.model.snapshot import Snapshot, SnapshotFile, Visibility, encode
from gpuconsole.model.state import ClusterState
from gpuconsole.model.workloads import Workload
from gpuconsole.scheduling.kueue.scheduler import ReportRefusals
from gpuconsole.scheduling.kueue.session import KueueSession, SessionState
from gpuconsole.scheduling.placement import PlacementEngine
from gpuconsole.scheduling.volcano.jobs.states import DelayedAction
from gpuconsole.sim import adoption, scheduling
from gpuconsole.sim.autoscaling import loop
from gpuconsole.sim.controllers import (
    commands,
    eviction,
    generators,
    job_lifecycle,
    jobs,
    multikueue,
    nodes,
    object_commands,
    pods,
    reconcile,
    volcano_jobs,
    work,
    workload_controller,
    workloads,
)
from gpuconsole.sim.kernel import (
    AnswerRequest,
    AutoscalerAction,
    AutoscalerTick,
    BackoffEnds,
    CreateUnsuspendedPods,
    CronDue,
    ExamineNode,
    JobArrival,
    JobDeadline,
    Kernel,
    PodEnds,
    PodsGone,
    PodsStart,
    Rank,
    ReconcileVariants,
    ReconcileWorkload,
    RecreatePods,
    ReleaseQuota,
    RemoveFinished,
    RequeueBackoffEnds,
    RequeueInadmissible,
    RetryWorkloadCreation,
    RunCommands,
    RunPlacement,
    SampleUsage,
    SavedTimer,
    SyncWorkerClusters,
    Timer,
    VolcanoActionDue,
    WorkEnds,
)
from gpuconsole.sim.live_base import LiveBase
from gpuconsole.sim.policy import AutoscalerState, SimPolicy
from gpuconsole.sim.run_times import RunTimes
from gpuconsole.sim.world import Dispatch, MultiKueueMember, RunningGroup, WorkerCluster, World


def observed_progress(world: World) -> Mapping[str, Span]:
    """How long the work of each running group (or independent pod) has run so far, with that before checkpoints."""
    found: dict[str, Span] = {}
    for group in world.groups.values():
        if group.is_independent:
            found |= {pod.key: world.now - pod.started for pod in _working_pods(world, group)}
        elif group.start is not None:
            found[group.key] = world.now - group.start + work.work_of_group(world, group).done
    return found


def _working_pods(world: World, group: RunningGroup) -> list[Pod]:
    pods = (world.pod(key) for key in group.pods)
    return [pod for pod in pods if pod is not None and pod.started and not pod.deleted and not pod.done]


def estimating_fork(world: World, run_times: RunTimes, seed: int, *, redraw: bool = False) -> World:
    """Fork the simulation without knowledge of its planned future, with `seed` for random draws; only between moments.

    With `redraw` the simulation's arrival streams continue, and their jobs take as long as the streams say; each next
    arrival is drawn again from now on, and existing spot nodes are interrupted only on command.
    """
    copied = world.fork()
    copied.seed, copied.events, copied.refusals = seed, [], ReportRefusals.CHANGED_REASON
    copied.has_typical_latencies = False
    stated = world.now if redraw and world.policy.arrivals else None
    arrivals = world.policy.arrivals if redraw else ()
    copied.policy = replace(world.policy, arrivals=arrivals, run_times=replace(run_times, stated_from=stated))
    entries = world.kernel.dump()
    kept = (
        entry for entry in entries if not (_is_unobservable(entry.timer) or (redraw and _is_spot_reclaim(entry.timer)))
    )
    copied.kernel = Kernel.load(tuple(kept))
    if redraw:
        for entry in entries:
            if isinstance(entry.timer, JobArrival):
                object_commands.redraw_arrival(copied, entry.timer)
    for group in list(copied.groups.values()):
        if group.is_independent:
            for pod in _working_pods(copied, group):
                work.begin_pod_work(copied, pod)
        elif group.start is not None:
            todo = work.work_of_group(copied, group)
            if todo.duration is not None:
                end = max(world.now, group.start + todo.duration - todo.done)
                copied.kernel.set_timer(end, WorkEnds(group.key, group.start))
    return copied


def _is_unobservable(timer: Timer) -> bool:
    """True for timers that only the simulation itself can know."""
    return isinstance(timer, JobArrival | RunCommands | WorkEnds | PodEnds)


def _is_spot_reclaim(timer: Timer) -> bool:
    return isinstance(timer, AutoscalerTick) and timer.action is AutoscalerAction.RECLAIM


NO_CLUSTERS: Mapping[str, Iterable[Object]] = {}


class Simulation:
    """A simulated cluster.

    Mutates by `submit`, `schedule_commands`, `advance`, `run_next_moment`, `drain` and `show_inadmissible` only.

    At each moment: due timers fire, controllers react, inadmissible workloads are requeued, admission cycles run until
    they change nothing, pods are placed; this repeats until nothing changes. Then time moves on to the next timer. The
    same objects, policy, seed and commands give the same events, however `advance` divides the time.
    """

    __slots__ = ("_world",)

    def __init__(self, world: World) -> None:
        self._world = world

    @classmethod
    def from_objects(
        cls,
        objects: Iterable[Object],
        *,
        policy: SimPolicy,
        seed: int,
        start: Time,
        clusters: Mapping[str, Iterable[Object]] = NO_CLUSTERS,
    ) -> "Simulation":
        """Start a simulation of a cluster with these objects at `start`; `drain()` returns their events.

        `clusters` are the objects of its MultiKueue worker clusters, if it is a manager; only the manager sends work
        there.
        """
        world = World(policy, seed, start, ClusterState(start))
        worker = replace(policy, arrivals=())
        for name, objs in clusters.items():
            member = cls.from_objects(objs, policy=worker, seed=seed, start=start)
            world.members[name] = MultiKueueMember(cluster=member)
        adoption.create_initial_objects(world, objects)
        object_commands.open_arrival_streams(world)
        loop.start_autoscaling(world)
        simulation = cls(world)
        simulation._run_moment()
        return simulation

    @classmethod
    def from_snapshot(cls, snapshot: Snapshot, *, policy: SimPolicy, seed: int) -> "Simulation":
        """Start a simulation that continues from a Snapshot; `drain()` does not repeat what the Snapshot contains.

        Unknown facts are filled in: unknown run times are drawn from the policy.
        """
        base = LiveBase(policy, seed)
        run_to_end(base.update(snapshot))
        world = run_to_end(base.start_world())
        adoption.record_obstacles(world)
        simulation = cls(world)
        simulation._run_moment()
        return simulation

    @classmethod
    def from_live_base(cls, base: LiveBase) -> Steps["Simulation"]:
        """Start a simulation of a live cluster from its current state in `base`, faster than `from_snapshot`.

        It has run one scheduling cycle, which Kueue has begun before anything that is submitted now can reach it; what
        else happens at this moment is still to come. Pending workloads get no new messages in that cycle, and are not
        marked inadmissible; decisions are the same. Latencies are the medians of their distributions, except in forks
        with another latency run.
        """
        world = yield from base.start_world(typical=True)
        simulation = cls(world)
        world.is_unsettled, world.refusals = True, ReportRefusals.CHANGED_REASON
        if world.session is not None:
            world.session.observe_only(())
        yield from simulation._moment_steps(to_first_cycle=True)
        if world.session is not None:
            world.session.observe_all()
        world.refusals = ReportRefusals.CHANGED
        yield from base.keep_filled_in_facts(simulation.drain())
        return simulation

    @property
    def now(self) -> Time:
        return self._world.now

    @property
    def next_time(self) -> Time | None:
        """The next moment at which something may happen; None if nothing will."""
        if self._world.is_unsettled:
            return self._world.now
        times = [self._world.kernel.next_time, *(m.cluster.next_time for m in self._world.members.values())]
        return min((time for time in times if time is not None), default=None)

    def workload(self, key: str) -> Workload | None:
        """The Workload with this `namespace/name` as it is now; None if it does not exist."""
        return self._world.workload(key)

    @property
    def clusters(self) -> Mapping[str, WorkerCluster]:
        """The worker clusters of a MultiKueue manager, by name."""
        return {name: member.cluster for name, member in self._world.members.items()}

    @property
    def policy(self) -> SimPolicy:
        return self._world.policy

    @property
    def seed(self) -> int:
        return self._world.seed

    @property
    def session(self) -> KueueSession | None:
        """Kueue's simulated scheduler, for queue positions and quota; None without Kueue."""
        return self._world.session

    @property
    def placement(self) -> PlacementEngine:
        """The engine that places pods; it knows the free GPUs of each node."""
        return self._world.placement

    def submit(self, command: Command, source: str = "") -> None:
        """Carry out a command at `now`, with all its consequences; a refusal is a COMMAND_REFUSED event.

        `source` is the command's position in its file, with which a refusal begins.
        """
        commands.execute_command(self._world, command, source)
        self._run_moment()

    def schedule_commands(self, at: Time, *commands: Command) -> None:
        """Carry out commands together at a later moment (at the next `advance`, if that moment has passed).

        The commands of one call run in order, without anything between them; those of another call for the same moment
        run after all consequences of the first.
        """
        self._world.kernel.set_timer(max(at, self._world.now), RunCommands(commands))

    def advance(self, until: Time) -> None:
        """Run everything up to and including `until`; `now == until` afterwards."""
        run_to_end(self.advance_in_steps(until))

    def advance_in_steps(self, until: Time) -> Steps[None]:
        """Like `advance`, in steps with other work in between, but no queries or commands of this simulation."""
        world = self._world
        next_time = self.next_time
        while next_time is not None and next_time <= until:
            world.now = max(world.now, next_time)
            yield from self._moment_steps()
            next_time = self.next_time
        world.now = max(world.now, until)
        for member in world.members.values():
            member.cluster.advance(world.now)

    def run_next_moment(self) -> bool:
        """Run the next moment at which something happens; False if nothing will."""
        world = self._world
        seen = len(world.events)
        while (next_time := self.next_time) is not None:
            world.now = max(world.now, next_time)
            self._run_moment()
            if len(world.events) > seen:
                return True
        return False

    def drain(self) -> list[Event]:
        """Return the events since the last drain, in order."""
        events, self._world.events = self._world.events, []
        return events

    def snapshot(self) -> Snapshot:
        """Return an immutable Snapshot of the cluster as it is now."""
        state = self._world.state
        state.time = self._world.now
        return state.freeze()

    def fork(self) -> "Simulation":
        """An independent copy, with the same events to drain."""
        return Simulation(self._world.fork())

    def fork_with_latency_run(self, run: int) -> "Simulation":
        """An independent copy with newly drawn controller latencies; run 0 keeps those of this one."""
        copied = self._world.fork()
        copied.latency_run = run
        copied.has_typical_latencies = copied.has_typical_latencies and run == 0
        return Simulation(copied)

    def forecast_fork(self, observed: Iterable[str]) -> "Simulation":
        """Fork the simulation for many forecast runs, without records that these do not need.

        Pending workloads get no messages, except those in `observed`; later ones get no new message when only a missing
        amount changes; inadmissible workloads are marked by `show_inadmissible` only.
        """
        copied = self._world.fork()
        copied.refusals = ReportRefusals.CHANGED_REASON
        if copied.session is not None:
            copied.session.observe_only(observed)
        return Simulation(copied)

    def show_inadmissible(self, workloads: Iterable[str]) -> None:
        """Mark the workloads with these keys that are inadmissible now, so that `snapshot` shows them so.

        Forecasts (forks from `forecast_fork` and `estimating_fork`) save time by marking none by themselves;
        `from_live_base` marks none at the start either.
        """
        self._world.show_inadmissible(workloads)

    def progress(self) -> Mapping[str, Span]:
        """Running group (or independent pod) → duration of its work so far."""
        return observed_progress(self._world)

    def estimating_fork(self, run_times: RunTimes, seed: int, *, redraw: bool = False) -> "Simulation":
        """A fork that knows only what an observer can know: past run times, nothing planned.

        With `redraw` its arrival streams continue at random, and existing spot nodes are interrupted only on command.
        """
        return Simulation(estimating_fork(self._world, run_times, seed, redraw=redraw))

    def save(self) -> bytes:
        """Serialize the whole simulation; `load` continues exactly from this state."""
        return save_world(self._world)

    @classmethod
    def load(cls, data: bytes) -> "Simulation":
        """Read the result of `save`. Raises msgspec.ValidationError (or DecodeError) for anything else."""
        return cls(load_world(data, cls.load))

    def _run_moment(self) -> None:
        run_to_end(self._moment_steps())

    def _moment_steps(self, *, to_first_cycle: bool = False) -> Steps[None]:
        """Run everything that belongs to this moment, or what comes up to the end of its first admission cycle."""
        world = self._world
        while True:
            yield from reconcile.reconcile_all(world)
            # Commands run and autoscalers scan only when the schedulers are idle.
            if not world.kernel.is_due(world.now, Rank.CARRY, Rank.LOOK) or scheduling.is_idle(world):
                timer = world.kernel.pop_due(world.now)
                if timer is not None:
                    self._handle_timer(timer)
                    yield
                    continue
            if scheduling.is_idle(world):
                if world.members and multikueue.sync_worker_clusters(world):
                    continue
                if world.autoscaler_state.has_changes and loop.react_to_changes(world):
                    continue
                world.is_unsettled = False
                return
            if to_first_cycle:
                scheduling.run_first_cycle(world)
                return
            yield from scheduling.run_schedulers(world)

    def _handle_timer(self, timer: Timer) -> None:
        world = self._world
        match timer:
            case PodsGone():
                pods.delete_terminated(world, timer)
            case CreateUnsuspendedPods():
                workloads.create_unsuspended_pods(world, timer)
            case PodsStart():
                work.start_pods(world, timer.pods)
            case WorkEnds():
                workloads.complete_work(world, timer)
            case PodEnds():
                # All pods that end at this moment end before their jobs are reconciled.
                work.end_pod_work(world, timer)
                while (another := world.kernel.pop_pod_ends(world.now)) is not None:
                    work.end_pod_work(world, another)
            case JobDeadline():
                workloads.fail_over_deadline(world, timer)
            case CronDue():
                generators.run_cron_job(world, timer)
            case RetryWorkloadCreation():
                jobs.retry_workload_creation(world, timer)
            case RecreatePods():
                reconcile.recreate_failed_pods(world, timer)
            case ReleaseQuota():
                reconcile.release_quota_when_due(world, timer)
            case ReconcileWorkload():
                workload_controller.reconcile_when_due(world, timer)
            case BackoffEnds():
                eviction.backoff_ends(world, timer)
            case AnswerRequest():
                workload_controller.answer_request(world, timer)
            case VolcanoActionDue():
                volcano_jobs.run_delayed_action(world, timer)
            case RemoveFinished():
                job_lifecycle.remove_finished(world, timer)
            case RunCommands(orders, source):
                for order in orders:
                    commands.execute_command(world, order, source)
            case ExamineNode(node):
                nodes.reconcile_node(world, node)
            case JobArrival():
                object_commands.submit_arrival(world, timer)
            case SyncWorkerClusters():
                pass
            case RequeueInadmissible() | RequeueBackoffEnds():
                scheduling.requeue_inadmissible(world)
            case ReconcileVariants(workload):
                world.families_to_reconcile[workload] = None
            case AutoscalerTick():
                loop.handle_timer(world, timer)
            case SampleUsage():
                scheduling.sample_usage(world)
            case RunPlacement():
                world.placement.request_pass()
                world.placement_due = True
            case _:
                assert_never(timer)


def write_snapshot(
    simulation: Simulation, recent: tuple[HistoryEvent, ...] | None = None, *, staged: bool = True
) -> bytes:
    """Write the cluster of a simulation with its policy and seed, as JSON.

    Timers are not written: when it is loaded, work resumes from the start of its pods, and scheduled commands are lost.
    `recent` is its history, if more of it is known than the simulation keeps. A simulation of a real cluster that has
    not advanced is not `staged`.
    """
    policy = msgspec.Raw(msgspec.json.encode(simulation.policy))
    return encode(simulation.snapshot(), policy, simulation.seed, recent, staged=staged)


def policy_of_snapshot(file: SnapshotFile) -> SimPolicy | None:
    """The policy of the simulation that a Snapshot was taken from; None for one of a live cluster.

    Raises msgspec.ValidationError with the path of what is wrong.
    """
    return msgspec.json.decode(file.policy, type=SimPolicy | None)


FORMAT = 4
_OBJECTS = msgspec.msgpack.Decoder(Object)
_O = TypeVar("_O", Object, msgspec.Raw)


class SavedMember(Struct, frozen=True, kw_only=True):
    """A worker cluster of a MultiKueue manager, in its saved form."""

    name: str
    state: bytes
    lost: Time | None


class Saved(Struct, Generic[_O], frozen=True, kw_only=True):
    """The saved form of a simulation: everything that it needs to continue."""

    format: int = FORMAT
    policy: SimPolicy
    seed: int
    latency_run: int = 0
    now: Time
    objects: tuple[_O, ...]
    """Still encoded when read: `load` decodes and interns one object at a time."""
    recent: tuple[HistoryEvent, ...]
    out: tuple[Event, ...]
    timers: tuple[SavedTimer, ...]
    groups: tuple[RunningGroup, ...] = field(name="crews")
    looks: dict[str, Time] = {}
    delays: dict[str, dict[str, DelayedAction]] = {}
    births: int
    cycle_at: Time
    wake_at: Time | None
    backoff_at: Time | None
    sample_at: Time | None
    deadlock: str
    admission: SessionState | None
    members: tuple[SavedMember, ...] = ()
    dispatches: Mapping[str, Dispatch] = {}
    placement: tuple[str, ...]
    fleet: AutoscalerState
    seen: Visibility


def save_world(world: World) -> bytes:
    """Serialize a world; only valid between moments."""
    snapshot = world.state.freeze()
    return msgspec.msgpack.encode(
        Saved(
            policy=world.policy,
            seed=world.seed,
            latency_run=world.latency_run,
            now=world.now,
            objects=tuple(snapshot.objects()),
            recent=snapshot.recent,
            out=tuple(world.events),
            timers=world.kernel.dump(),
            groups=tuple(world.groups.values()),
            looks=world.reconcile_timers,
            delays=world.delayed_actions,
            births=world.uid_counter,
            cycle_at=world.cycle_at,
            wake_at=world.wake_at,
            backoff_at=world.backoff_at,
            sample_at=world.sample_at,
            deadlock=world.deadlock,
            admission=None if world.session is None else world.session.dump(),
            members=tuple(
                SavedMember(name=name, state=member.cluster.save(), lost=member.disconnected_since)
                for name, member in world.members.items()
            ),
            dispatches=world.dispatches,
            placement=world.placement.dump(),
            fleet=world.autoscaler_state,
            seen=snapshot.seen,
        )
    )


def load_world(data: bytes, cluster: Callable[[bytes], WorkerCluster]) -> World:
    """Read what `save` wrote; `cluster` reads a worker cluster.

    Raises msgspec.ValidationError or msgspec.DecodeError.
    """
    saved = msgspec.msgpack.decode(data, type=Saved[msgspec.Raw])
    if saved.format != FORMAT:
        raise msgspec.ValidationError(f"format {saved.format} is not known; this version reads format {FORMAT}")
    world = World(saved.policy, saved.seed, saved.now, ClusterState(saved.now))
    for obj in map(intern, map(_OBJECTS.decode, saved.objects)):
        world.state.table(TABLES[type(obj)]).put(obj.key, obj)
        world.apply_to_schedulers(obj)
    world.families_to_reconcile.clear()
    world.creators_to_reconcile.clear()
    for line in saved.recent:
        world.state.apply(line)
    world.events = list(saved.out)
    world.kernel = Kernel.load(saved.timers)
    world.reconcile_timers = dict(saved.looks)
    world.delayed_actions = {job: dict(delays) for job, delays in saved.delays.items()}
    world.groups = {group.key: group for group in saved.groups}
    world.members = {
        m.name: MultiKueueMember(cluster=cluster(m.state), disconnected_since=m.lost) for m in saved.members
    }
    world.dispatches = dict(saved.dispatches)
    world.uid_counter, world.cycle_at = saved.births, saved.cycle_at
    world.wake_at, world.backoff_at, world.deadlock = saved.wake_at, saved.backoff_at, saved.deadlock
    world.sample_at, world.latency_run = saved.sample_at, saved.latency_run
    if world.session is not None and saved.admission is not None:
        world.session.load(saved.admission)
    world.placement.load(saved.placement)
    world.autoscaler_state = saved.fleet
    world.state.seen = saved.seen
    world.cycles_due = world.placement_due = False
    return world

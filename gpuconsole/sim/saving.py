"""Serializes a simulation with its timers, so that it continues exactly from the saved state."""

from collections.abc import Callable, Mapping
from typing import Generic, TypeVar

import msgspec
from msgspec import Struct, field

from gpuconsole.model.clock import Time
from gpuconsole.model.events import Event, HistoryEvent
from gpuconsole.model.interning import intern
from gpuconsole.model.objects import TABLES, Object
from gpuconsole.model.snapshot import Visibility
from gpuconsole.model.state import ClusterState
from gpuconsole.scheduling.kueue.session import SessionState
from gpuconsole.scheduling.volcano.jobs.requests import DelayedAction
from gpuconsole.sim.autoscaling.policy import AutoscalerState
from gpuconsole.sim.kernel import Kernel, SavedTimer
from gpuconsole.sim.policy import SimPolicy
from gpuconsole.sim.world import Dispatch, MultiKueueMember, RunningGroup, WorkerCluster, World

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


def save(world: World) -> bytes:
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


def load(data: bytes, cluster: Callable[[bytes], WorkerCluster]) -> World:
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

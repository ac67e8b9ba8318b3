"""The simulated backend: commands, the budget of a poll, the pause, forks, and who follows it."""

from collections.abc import Callable
from itertools import count

from gpuconsole.backends.base import Forkable
from gpuconsole.backends.simulated import BUDGET, SimulatedBackend, digest
from gpuconsole.model.clock import HOUR, MINUTE, SECOND, Time
from gpuconsole.model.commands import Command, Cordon, Submit
from gpuconsole.model.events import Applied, HistoryEvent, HistoryEventKind
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.services.console import Console
from gpuconsole.sim.engine import Simulation
from tests.support.contended_cluster import job, simulation
from tests.support.recorded_events import START


def backend(clock: Callable[[], float] = lambda: 0.0) -> SimulatedBackend:
    return SimulatedBackend(simulation(), speed=1000, clock=clock)


def told(events: object) -> list[HistoryEventKind]:
    return [event.what for event in events if isinstance(event, HistoryEvent)]  # type: ignore[attr-defined]


def same_objects(one: Snapshot, other: Snapshot) -> bool:
    return list(one.objects()) == list(other.objects())


def test_a_command_shows_in_the_events_of_the_next_poll() -> None:
    tried = backend()
    tried.open()
    tried.poll(1)
    tried.submit(Cordon("node-0", True))
    nodes = [event.object for event in tried.poll(0) if isinstance(event, Applied)]
    assert [(node.key, getattr(node, "unschedulable", None)) for node in nodes] == [("node-0", True)]


def test_a_refused_command_comes_back_as_a_line() -> None:
    tried = backend()
    tried.open()
    tried.poll(0)
    tried.submit(Cordon("node-9", True))
    assert told(tried.poll(0)) == [HistoryEventKind.COMMAND_REFUSED]


def test_the_state_from_its_events_is_the_simulations_own_state() -> None:
    world = simulation()
    console = Console(SimulatedBackend(world, speed=1000, clock=lambda: 0.0))
    for _ in range(5):
        console.submit(Submit((job(f"late-{console.snapshot.serial}", 2, 5),)))
        console.tick(1)
    assert same_objects(console.snapshot, world.snapshot())
    assert console.snapshot.recent == world.snapshot().recent
    assert console.snapshot.time == world.now


def test_lines_that_were_told_before_it_opened_are_not_lost() -> None:
    tried = backend()
    tried.open()
    first = told(tried.poll(0))
    assert first.count(HistoryEventKind.SUBMITTED) == 20


def test_a_poll_ends_when_its_work_took_too_long_and_the_reached_speed_says_so() -> None:
    ticking = count()
    tried = backend(clock=lambda: next(ticking) * BUDGET / 4)
    tried.open()
    tried.poll(100)
    behind = tried.now
    assert START < behind < START + 100_000 * SECOND
    assert tried.reached < 1000
    tried.poll(0)
    assert tried.now == behind, "what was not reached is not caught up on"


def test_a_pause_stops_a_running_poll() -> None:
    ticking = count()

    def clock() -> float:
        if next(ticking) == 3:
            tried.pause()
        return 0.0

    tried = backend(clock=clock)
    tried.open()
    tried.poll(1000)
    assert START < tried.now < START + 1_000_000 * SECOND


def test_a_fork_lives_on_its_own() -> None:
    tried = backend()
    tried.open()
    tried.poll(1)
    assert isinstance(tried, Forkable)
    fork, now = tried.fork(), tried.now
    fork.advance(now + HOUR)
    assert (tried.now, fork.now) == (now, now + HOUR)
    tried.poll(3600)
    assert tried.now == now + 3_600_000 * SECOND


class Remembering:
    """A follower that notes what it is told, and wants to start anew when it is told to."""

    def __init__(self) -> None:
        self.steps: list[tuple[Time, Command]] = []
        self.stands: tuple[Time, int] = (0, 0)
        self.wants_anew = False
        self.begun: list[tuple[bytes, int]] = []

    def carried(self, at: Time, command: Command) -> None:
        self.steps.append((at, command))

    def reached(self, now: Time, digest: int) -> bool:
        self.stands = (now, digest)
        return self.wants_anew

    def begin(self, state: bytes, digest: int) -> None:
        self.begun.append((state, digest))


def test_a_follower_can_keep_an_equal_replica() -> None:
    follower, original = Remembering(), simulation()
    replica = Simulation.load(original.save())
    replica.drain()
    followed = SimulatedBackend(original, speed=1000, follower=follower, clock=lambda: 0.0)
    followed.open()
    for number in range(8):
        followed.submit(Submit((job(f"late-{number}", 1 + number, 7),)))
        followed.poll(0.1 * number)
    for at, command in follower.steps:
        replica.advance(at)
        replica.submit(command)
    replica.advance(follower.stands[0])
    assert (len(follower.steps), digest(replica.drain())) == (8, follower.stands[1])
    assert same_objects(original.snapshot(), replica.snapshot())


def test_a_follower_that_lost_its_way_gets_the_whole_simulation() -> None:
    follower = Remembering()
    followed = SimulatedBackend(simulation(), speed=60, follower=follower, clock=lambda: 0.0)
    followed.open()
    followed.poll(1)
    follower.wants_anew = True
    followed.poll(1)
    [(state, sum_so_far)] = follower.begun
    assert Simulation.load(state).now == followed.now == START + 2 * MINUTE
    assert sum_so_far == follower.stands[1]

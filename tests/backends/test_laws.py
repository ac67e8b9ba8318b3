"""Laws of the simulated backend, however it is driven: polls of any length, pauses, steps, speeds, commands."""

from collections.abc import Iterable

from hypothesis import given, settings
from hypothesis import strategies as st

from gpuconsole.backends.simulated import SimulatedBackend, digest
from gpuconsole.model.clock import Time
from gpuconsole.model.commands import Command, Cordon, Delete, Drain, Requeue, Submit
from gpuconsole.model.events import Event
from gpuconsole.model.objects import Object
from gpuconsole.model.state import ClusterState
from tests.support.contended_cluster import job, simulation

COMMANDS: list[Command] = [
    Submit((job("late", 3, 20),)),
    Cordon("node-0", True),
    Cordon("node-0", False),
    Drain("node-1"),
    Delete("jobs", "Job/team/job-1"),
    Requeue("team/nobody"),
]
drives = st.lists(
    st.one_of(
        st.floats(0, 2).map(lambda seconds: ("poll", seconds)),
        st.sampled_from(COMMANDS).map(lambda command: ("submit", command)),
        st.sampled_from([("pause", None), ("resume", None), ("step", None), ("speed", 10_000.0), ("speed", 1.0)]),
    ),
    max_size=25,
)


class Notes:
    """A follower that notes what it is told."""

    def __init__(self) -> None:
        self.steps: list[tuple[Time, Command]] = []
        self.stands: tuple[Time, int] = (0, 0)

    def carried(self, at: Time, command: Command) -> None:
        self.steps.append((at, command))

    def reached(self, now: Time, digest: int) -> bool:
        self.stands = (now, digest)
        return False

    def begin(self, state: bytes, digest: int) -> None:
        raise AssertionError("nobody asked for it")


def driven(backend: SimulatedBackend, drive: list[tuple[str, object]]) -> list[Event]:
    backend.open()
    events = list(backend.poll(0))
    for action, value in drive:
        match action, value:
            case "poll", float(seconds):
                events += backend.poll(seconds)
            case "speed", float(speed):
                backend.set_speed(speed)
            case "submit", command:
                backend.submit(command)  # type: ignore[arg-type]
            case _:
                getattr(backend, action)()
    events += backend.poll(0)
    return events


def objects_after(events: list[Event]) -> list[Object]:
    state = ClusterState()
    for event in events:
        state.apply(event)
    return list(state.freeze().objects())


def by_key(objects: Iterable[Object]) -> dict[tuple[str, str], Object]:
    return {(type(thing).__name__, thing.key): thing for thing in objects}


@settings(max_examples=40, deadline=None)
@given(drives)
def test_its_events_rebuild_the_simulations_own_state(drive: list[tuple[str, object]]) -> None:
    world = simulation()
    events = driven(SimulatedBackend(world, speed=1000, clock=lambda: 0.0), drive)
    assert by_key(objects_after(events)) == by_key(world.snapshot().objects())
    assert [event.time for event in events] == sorted(event.time for event in events)


@settings(max_examples=40, deadline=None)
@given(drives)
def test_who_is_told_commands_and_times_can_follow(drive: list[tuple[str, object]]) -> None:
    notes, replica = Notes(), simulation()
    replica.drain()
    driven(SimulatedBackend(simulation(), speed=1000, follower=notes, clock=lambda: 0.0), drive)
    for at, command in notes.steps:
        replica.advance(at)
        replica.submit(command)
    replica.advance(notes.stands[0])
    assert digest(replica.drain()) == notes.stands[1]

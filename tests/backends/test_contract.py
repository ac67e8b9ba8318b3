"""What every backend keeps to, whatever stands behind it."""

from collections.abc import Callable, Sequence

import pytest

from gpuconsole.backends.base import Backend, Clocked
from gpuconsole.backends.simulated import SimulatedBackend
from gpuconsole.model.events import Event
from gpuconsole.model.objects import Object
from gpuconsole.model.state import ClusterState
from tests.support.contended_cluster import simulation
from tests.support.recorded_backend import RecordedBackend
from tests.support.recorded_events import START


def recorded() -> list[Event]:
    """The recording of the simulated cluster's first hours."""
    backend = simulated()
    backend.open()
    return [event for _ in range(10) for event in backend.poll(1)]


def simulated() -> SimulatedBackend:
    # A clock that stands: no budget is ever spent, so that a busy machine changes nothing.
    return SimulatedBackend(simulation(), speed=1000, clock=lambda: 0.0)


BACKENDS: dict[str, Callable[[], SimulatedBackend | RecordedBackend]] = {
    "simulated": simulated,
    "recorded": lambda: RecordedBackend(recorded(), speed=1000),
}
every = pytest.mark.parametrize("make", BACKENDS.values(), ids=BACKENDS)
Make = Callable[[], SimulatedBackend | RecordedBackend]


def polled(backend: SimulatedBackend | RecordedBackend, elapsed: Sequence[float]) -> list[Event]:
    backend.open()
    return [event for seconds in elapsed for event in backend.poll(seconds)]


def built(events: Sequence[Event]) -> list[Object]:
    state = ClusterState()
    for event in events:
        state.apply(event)
    return list(state.freeze().objects())


@every
def test_it_is_a_backend_with_a_clock(make: Make) -> None:
    backend = make()
    assert isinstance(backend, Backend)
    assert isinstance(backend, Clocked)


@every
def test_the_first_poll_tells_what_exists_and_the_rest_follows_in_order_of_time(make: Make) -> None:
    events = polled(make(), [0, 1, 1])
    assert len(built(polled(make(), [0]))) >= 24, "flavor, queues, nodes, jobs, workloads"
    assert [event.time for event in events] == sorted(event.time for event in events)
    assert events[0].time == START


@every
def test_how_the_polls_cut_the_time_changes_nothing(make: Make) -> None:
    whole, halves, crumbs = polled(make(), [0, 4]), polled(make(), [0, 2, 2]), polled(make(), [0] + [0.125] * 32)
    assert whole == halves == crumbs
    assert built(whole) == built(crumbs)


@every
def test_nothing_happens_while_it_is_paused(make: Make) -> None:
    backend = make()
    polled(backend, [0])
    backend.pause()
    now = backend.now
    assert ([*backend.poll(1000)], backend.now) == ([], now)
    backend.resume()
    assert [*backend.poll(1)] != []


@every
def test_a_step_goes_on_to_the_next_thing_that_happens(make: Make) -> None:
    backend = make()
    polled(backend, [0])
    backend.pause()
    now = backend.now
    backend.step()
    events = [*backend.poll(1000)]
    assert events != []
    assert {event.time for event in events} == {backend.now}
    assert backend.now > now


@every
def test_it_reaches_the_speed_that_was_asked_for_where_there_is_little_to_do(make: Make) -> None:
    backend = make()
    polled(backend, [0, 0.5, 0.5])
    assert backend.reached == backend.speed == 1000


@every
def test_it_can_be_closed(make: Make) -> None:
    backend = make()
    backend.open()
    backend.close()

"""Speed, pause and steps, and the speed that was reached."""

from gpuconsole.backends.simulated import SimulationClock
from gpuconsole.model.clock import SECOND


def test_virtual_time_is_wall_clock_time_times_speed() -> None:
    clock = SimulationClock(60, paused=False)
    assert clock.span(0.5) == 30 * SECOND
    clock.set_speed(1000)
    assert clock.span(0.04) == 40 * SECOND


def test_a_speed_is_kept_between_1_and_10_000() -> None:
    clock = SimulationClock(0, paused=False)
    speeds = [clock.speed]
    for speed in (-5, 1, 2.5, 10_000, 1e9):
        clock.set_speed(speed)
        speeds.append(clock.speed)
    assert speeds == [1, 1, 1, 2.5, 10_000, 10_000]


def test_a_paused_clock_stands_until_it_is_resumed() -> None:
    clock = SimulationClock(60, paused=True)
    assert (clock.paused, clock.span(1)) == (True, 0)
    clock.resume()
    assert (clock.paused, clock.span(1)) == (False, 60 * SECOND)
    clock.pause()
    assert (clock.paused, clock.span(1)) == (True, 0)


def test_the_reached_speed_is_that_of_late_and_forgets_another_speeds_past() -> None:
    clock = SimulationClock(1000, paused=False)
    assert clock.reached == 0
    clock.note(0.5, 500 * SECOND)
    clock.note(0.5, 140 * SECOND)
    assert clock.reached == 640
    clock.set_speed(10)
    clock.note(0.1, 1 * SECOND)
    assert clock.reached == 10


def test_steps_are_taken_once() -> None:
    clock = SimulationClock(1, paused=True)
    clock.step()
    clock.step()
    assert [clock.take_steps(), clock.take_steps()] == [2, 0]

"""Arrival streams at work: each arrival submits its job and sets the timer of the next."""

from gpuconsole.model.clock import Time
from gpuconsole.sim import arrivals
from gpuconsole.sim.controllers import creating
from gpuconsole.sim.kernel import Arrive
from gpuconsole.sim.world import World


def open_streams(world: World) -> None:
    """Submit what is there at the start, and set the timer of each stream's first arrival."""
    for index, stream in enumerate(world.policy.arrivals):
        for number in range(1, stream.at_start + 1):
            creating.create(world, arrivals.job(stream, world.seed, number))
        _await(world, index, stream.at_start + 1, world.now + stream.first)


def continue_streams(world: World) -> None:
    """Go on after the last jobs of each stream that are still there."""
    names = [job.name for job in world.state.table("jobs").all()]
    for index, stream in enumerate(world.policy.arrivals):
        prefix = f"{stream.name}-"
        numbers = (name.removeprefix(prefix) for name in names if name.startswith(prefix))
        last = max((int(number) for number in numbers if number.isdecimal()), default=0)
        _await(world, index, last + 1, world.now)


def arrive(world: World, timer: Arrive) -> None:
    """A job arrives."""
    stream = world.policy.arrivals[timer.stream]
    creating.create(world, arrivals.job(stream, world.seed, timer.number))
    _await(world, timer.stream, timer.number + 1, world.now)


def _await(world: World, index: int, number: int, after: Time) -> None:
    time = arrivals.next_arrival(world.policy.arrivals[index], world.seed, number, after)
    if time is not None:
        world.kernel.at(time, Arrive(index, number))

"""Runs arrival streams: each arrival submits its job and sets the timer of the next one."""

from collections.abc import Iterable

from gpuconsole.model.clock import Time
from gpuconsole.model.events import HistoryEvent, HistoryEventKind
from gpuconsole.sim import arrivals
from gpuconsole.sim.controllers import creating
from gpuconsole.sim.kernel import Arrive
from gpuconsole.sim.world import World


def open_arrival_streams(world: World) -> None:
    """Submit the jobs present at the start, and set the timer of each stream's first arrival."""
    for index, stream in enumerate(world.policy.arrivals):
        for number in range(1, stream.at_start + 1):
            creating.create(world, arrivals.job(stream, world.seed, number))
        _await(world, index, stream.at_start + 1, world.now + stream.first)


def continue_arrival_streams(world: World, history: Iterable[HistoryEvent]) -> None:
    """Resume each stream after its last job in the cluster or in the history."""
    known = {f"{job.namespace}/{job.name}": job.created for job in world.state.table("jobs").all()}
    known |= {line.workload: line.time for line in history if line.what is HistoryEventKind.SUBMITTED}
    for index, stream in enumerate(world.policy.arrivals):
        came = [
            (number, time) for key, time in known.items() if (number := arrivals.number_of(stream, key)) is not None
        ]
        last, time = max(came, default=(stream.at_start, world.now))
        first = stream.first if came and last <= stream.at_start else 0
        _await(world, index, last + 1, time + first)


def submit_arrival(world: World, timer: Arrive) -> None:
    """Submit the job of an arrival."""
    stream = world.policy.arrivals[timer.stream]
    creating.create(world, arrivals.job(stream, world.seed, timer.number))
    _await(world, timer.stream, timer.number + 1, world.now)


def redraw_arrival(world: World, timer: Arrive) -> None:
    """Draw the next arrival of a timer again from now, because an observer cannot know it in advance."""
    _await(world, timer.stream, timer.number, world.now)


def _await(world: World, index: int, number: int, after: Time) -> None:
    time = arrivals.next_arrival(world.policy.arrivals[index], world.seed, number, after)
    if time is not None:
        world.kernel.at(max(time, world.now), Arrive(index, number))

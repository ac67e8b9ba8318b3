"""Work: when it begins, what an interruption loses, when it ends.

A crew works while all its pods run. A checkpoint bounds what an interruption loses: what was done since the last one is
done again later. Work done and work lost add up to the time that the crew ran.
"""

from collections.abc import Mapping

from msgspec import Struct
from msgspec.structs import replace

from gpuconsole.model.clock import SECOND, Span, Time, parse_span
from gpuconsole.model.cluster import Pod
from gpuconsole.model.jobs.labels import CHECKPOINT, DURATION, ON_NOTICE
from gpuconsole.model.prices import gpu_hourly
from gpuconsole.model.workloads import Job, Workload
from gpuconsole.sim.chance import draw
from gpuconsole.sim.controllers.pods import pods_of
from gpuconsole.sim.crews import Crew
from gpuconsole.sim.kernel import WorkEnds
from gpuconsole.sim.world import World


class Loss(Struct, frozen=True):
    """Work that has to be done again."""

    span: Span = 0
    gpu_seconds: float = 0.0
    cost: float = 0.0
    """USD at the prices of the nodes that it ran on."""


NOTHING = Loss()


class Task(Struct, frozen=True):
    """What a crew has to do, read from its object."""

    duration: Span | None = None
    """None goes on until it is deleted."""
    checkpoint: Span | None = None
    done: Span = 0
    on_notice: Span | None = None
    """How long it takes to write a checkpoint when told to stop; None where nothing is written then."""
    drawn: bool = False
    """The duration is a guess."""


def task(world: World, crew: Crew) -> Task:
    """Read a crew's task; how long it takes is drawn if nothing says so."""
    match owner(world, crew):
        case Job() as job:
            return _task(world, crew, job.duration, job.checkpoint_interval, job.done, job.annotations)
        case Workload(annotations=notes, done=done):
            return _task(world, crew, _span(notes.get(DURATION)), _span(notes.get(CHECKPOINT)), done, notes)
        case Pod() as pod:
            notes = {**pod.template.annotations, **pod.annotations}
            duration = _span(notes.get(DURATION))
            if duration is None and pod.template.restart_policy in ("", "Always"):
                return Task()
            return _task(world, crew, duration, _span(notes.get(CHECKPOINT)), 0, notes)
        case None:
            return Task()


def _task(
    world: World, crew: Crew, said: Span | None, checkpoint: Span | None, done: Span, notes: Mapping[str, str]
) -> Task:
    on_notice = _span(notes.get(ON_NOTICE))
    if said is not None:
        return Task(said, checkpoint, done, on_notice)
    drawn = world.policy.durations.sample(draw(world.seed, "duration", crew.key))
    return Task(drawn, checkpoint, done, on_notice, drawn=True)


def owner(world: World, crew: Crew) -> Job | Workload | Pod | None:
    """The object that says what a crew does: its job, else its bare Workload, else the lone pod itself."""
    if crew.job:
        return world.job(crew.job)
    if crew.workload:
        return world.workload(crew.workload)
    return world.pod(crew.pods[0])


def begin(world: World, crew: Crew) -> None:
    """All pods run: the work goes on from its last checkpoint."""
    todo = task(world, crew)
    world.crews[crew.key] = replace(crew, start=world.now, told=False)
    if todo.duration is not None:
        world.kernel.at(world.now + max(0, todo.duration - todo.done), WorkEnds(crew.key, world.now))


def resume(world: World, crew: Crew, start: Time) -> None:
    """The work goes on since an earlier moment.

    Work that should be over by now ends at once if its length is known; one that was only drawn begins anew.
    """
    todo = task(world, crew)
    world.crews[crew.key] = replace(crew, start=start)
    if todo.duration is not None:
        end = start + max(0, todo.duration - todo.done)
        if end < world.now:
            end = world.now + (todo.duration if todo.drawn else 0)
        world.kernel.at(end, WorkEnds(crew.key, start))


def ended(world: World, crew: Crew) -> bool:
    """True if nothing is left to do for these pods: their owner ended, or the lone pod did."""
    match owner(world, crew):
        case Job() as job:
            return job.ended
        case Workload() as workload:
            return workload.finished
        case Pod() as pod:
            return pod.done
        case None:
            return False


def interrupt(world: World, key: str, notice: Span = 0) -> Loss:
    """The work of a crew stops: what its checkpoints do not cover is lost. Nothing is lost that did not run.

    Work that writes a checkpoint when it is told to stop loses nothing if the notice is long enough for that.
    """
    crew = world.crews.get(key)
    if crew is None or crew.start is None:
        return NOTHING
    todo = task(world, crew)
    ran = world.now - crew.start
    safe = ran - ran % todo.checkpoint if todo.checkpoint else 0
    if todo.on_notice is not None and todo.on_notice <= notice:
        safe = ran
    world.crews[key] = replace(crew, start=None)
    if safe:
        _remember(world, crew, todo.done + safe)
    return _price(world, crew, ran - safe)


def _remember(world: World, crew: Crew, done: Span) -> None:
    match owner(world, crew):
        case Job() as job:
            world.put(replace(job, done=done))
        case Workload() as workload:
            world.put(replace(workload, done=done))


def _price(world: World, crew: Crew, lost: Span) -> Loss:
    seconds, cost, prices = 0.0, 0.0, world.policy.prices
    for pod in pods_of(world, crew):
        if pod.gpus and lost:
            share = len(pod.gpus) * lost / SECOND
            node = world.node(pod.node)
            seconds += share
            cost += share / 3600 * (gpu_hourly(node, prices) if node is not None else prices.hourly({}))
    return Loss(lost, seconds, cost)


def _span(text: str | None) -> Span | None:
    """Read an annotation; manifests report a wrong one, here it counts as absent."""
    if text is None:
        return None
    try:
        return parse_span(text) or None
    except ValueError:
        return None

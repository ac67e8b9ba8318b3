"""A twin of a cluster that knows of the future only what somebody who watches the cluster can know.

What is under way ends when work like it ends, whatever the simulation has planned for it; nothing arrives but what is
submitted to the twin; the steps of a scenario that are still to come do not come.
"""

from collections.abc import Mapping

from msgspec.structs import replace

from gpuconsole.model.clock import Span
from gpuconsole.model.cluster import Pod
from gpuconsole.scheduling.kueue.heads import Refusals
from gpuconsole.sim.controllers import work
from gpuconsole.sim.controllers.solo import running
from gpuconsole.sim.crews import Crew
from gpuconsole.sim.kernel import Arrive, Carry, Kernel, PodEnds, WorkEnds
from gpuconsole.sim.run_times import RunTimes
from gpuconsole.sim.world import World


def progress(world: World) -> Mapping[str, Span]:
    """Crew (or pod, where each works for itself) → how long its work has been going on, with what was saved of it."""
    found: dict[str, Span] = {}
    for crew in world.crews.values():
        if crew.solo:
            found |= {pod.key: world.now - pod.started for pod in _at_work(world, crew)}
        elif crew.start is not None:
            found[crew.key] = world.now - crew.start + work.task(world, crew).done
    return found


def _at_work(world: World, crew: Crew) -> list[Pod]:
    pods = (world.pod(key) for key in crew.pods)
    return [pod for pod in pods if pod is not None and pod.node and not pod.deleted and not pod.done]


def estimating(world: World, run_times: RunTimes, seed: int) -> World:
    """The twin, in which chance is drawn by `seed`; only taken when the moment is quiet."""
    twin = world.fork()
    twin.seed, twin.out, twin.refusals = seed, [], Refusals.OTHER
    twin.policy = replace(world.policy, arrivals=(), run_times=run_times)
    kept = (
        entry for entry in world.kernel.entries() if not isinstance(entry.timer, Arrive | Carry | WorkEnds | PodEnds)
    )
    twin.kernel = Kernel.from_entries(tuple(kept))
    for crew in list(twin.crews.values()):
        if crew.solo:
            for pod in _at_work(twin, crew):
                running.begin(twin, pod)
        elif crew.start is not None:
            todo = work.task(twin, crew)
            if todo.duration is not None:
                end = max(world.now, crew.start + todo.duration - todo.done)
                twin.kernel.at(end, WorkEnds(crew.key, crew.start))
    return twin

"""Forks that know only what an observer of the cluster can know about its future.

Work under way ends when similar work ends, whatever the simulation has planned; nothing arrives except what is
submitted to the fork, or what its arrival streams draw again; later steps of a scenario are omitted.
"""

from collections.abc import Mapping

from msgspec.structs import replace

from gpuconsole.model.clock import Span
from gpuconsole.model.cluster import Pod
from gpuconsole.scheduling.kueue.scheduler import ReportRefusals
from gpuconsole.sim import arrival_submission
from gpuconsole.sim.controllers import work
from gpuconsole.sim.controllers.solo import running
from gpuconsole.sim.kernel import Act, Arrive, AutoscalerTick, Kernel, PodEnds, RunCommands, Timer, WorkEnds
from gpuconsole.sim.pod_group_state import RunningGroup
from gpuconsole.sim.run_times import RunTimes
from gpuconsole.sim.world import World


def observed_progress(world: World) -> Mapping[str, Span]:
    """Running group (or pod, where pods work independently) → duration of its work so far, with checkpointed work."""
    found: dict[str, Span] = {}
    for group in world.groups.values():
        if group.solo:
            found |= {pod.key: world.now - pod.started for pod in _at_work(world, group)}
        elif group.start is not None:
            found[group.key] = world.now - group.start + work.task(world, group).done
    return found


def _at_work(world: World, group: RunningGroup) -> list[Pod]:
    pods = (world.pod(key) for key in group.pods)
    return [pod for pod in pods if pod is not None and pod.started and not pod.deleted and not pod.done]


def estimating_fork(world: World, run_times: RunTimes, seed: int, *, redraw: bool = False) -> World:
    """The fork, with `seed` for random draws; only valid between moments.

    With `redraw` the simulation's arrival streams continue, and their jobs take as long as the streams say; each next
    arrival is drawn again from now on, and existing spot nodes are interrupted only on command.
    """
    twin = world.fork()
    twin.seed, twin.out, twin.refusals = seed, [], ReportRefusals.CHANGED_REASON
    stated = world.now if redraw and world.policy.arrivals else None
    arrivals = world.policy.arrivals if redraw else ()
    twin.policy = replace(world.policy, arrivals=arrivals, run_times=replace(run_times, stated_from=stated))
    entries = world.kernel.entries()
    kept = (entry for entry in entries if not (_is_planned(entry.timer) or (redraw and _is_reclaim(entry.timer))))
    twin.kernel = Kernel.from_entries(tuple(kept))
    if redraw:
        for entry in entries:
            if isinstance(entry.timer, Arrive):
                arrival_submission.redraw_arrival(twin, entry.timer)
    for group in list(twin.groups.values()):
        if group.solo:
            for pod in _at_work(twin, group):
                running.begin_pod(twin, pod)
        elif group.start is not None:
            todo = work.task(twin, group)
            if todo.duration is not None:
                end = max(world.now, group.start + todo.duration - todo.done)
                twin.kernel.at(end, WorkEnds(group.key, group.start))
    return twin


def _is_planned(timer: Timer) -> bool:
    """True for timers that only the simulation itself can know."""
    return isinstance(timer, Arrive | RunCommands | WorkEnds | PodEnds)


def _is_reclaim(timer: Timer) -> bool:
    return isinstance(timer, AutoscalerTick) and timer.act is Act.RECLAIM

"""What happens to finished objects after a while: they are removed, if the policy says so."""

from collections.abc import Iterable

from gpuconsole.model.cluster import Pod
from gpuconsole.model.objects import TABLES
from gpuconsole.model.workloads import Job, Workload
from gpuconsole.sim.controllers import deadlines
from gpuconsole.sim.kernel import Retire
from gpuconsole.sim.world import World

_KINDS: dict[str, type[Pod] | type[Job] | type[Workload]] = {TABLES[kind]: kind for kind in (Pod, Job, Workload)}


def later(world: World, things: Iterable[Workload | Job | Pod | None]) -> None:
    """Set the timer that removes these finished objects."""
    if world.policy.keep_finished is None:
        return
    objects = tuple((TABLES[type(thing)], thing.key, thing.uid) for thing in things if thing is not None)
    world.kernel.at(world.now + world.policy.keep_finished, Retire(objects))


def when_due(world: World, job: Job | None) -> None:
    """Set the timer of a job that says itself how long it is kept when it has ended (ttlSecondsAfterFinished)."""
    kept = None if job is None else deadlines.kept_for(job)
    if job is None or kept is None:
        return
    everything: Iterable[Pod] = world.state.table("pods").all()
    workloads: Iterable[Workload] = world.state.table("workloads").all()
    own = [pod for pod in everything if pod.job == job.key]
    standing = [workload for workload in workloads if workload.owner == job.key]
    things: list[Job | Workload | Pod] = [job, *standing, *own]
    objects = tuple((TABLES[type(thing)], thing.key, thing.uid) for thing in things)
    world.kernel.at(world.now + kept, Retire(objects))


def retire(world: World, timer: Retire) -> None:
    """Remove finished objects."""
    for table, key, uid in timer.objects:
        thing = world.state.table(table).get(key)
        if thing is not None and thing.uid == uid:
            world.drop(_KINDS[table], key)

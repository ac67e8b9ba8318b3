"""Removal of finished objects, after the policy's `keep_finished` or the job's ttlSecondsAfterFinished."""

from collections.abc import Iterable

from gpuconsole.model.cluster import Pod
from gpuconsole.model.documents.reader import INT32
from gpuconsole.model.job import BatchRules, Job
from gpuconsole.model.jobs.batch import count_numbers
from gpuconsole.model.objects import TABLES
from gpuconsole.model.workloads import Workload
from gpuconsole.sim.controllers import deadlines
from gpuconsole.sim.kernel import Retire
from gpuconsole.sim.world import World

_KINDS: dict[str, type[Pod] | type[Job] | type[Workload]] = {TABLES[kind]: kind for kind in (Pod, Job, Workload)}


def retire_later(world: World, objs: Iterable[Workload | Job | Pod | None]) -> None:
    """Set the timer that removes these finished objects, if the policy has `keep_finished`."""
    if world.policy.keep_finished is None:
        return
    objects = tuple((TABLES[type(obj)], obj.key, obj.uid) for obj in objs if obj is not None)
    world.kernel.at(world.now + world.policy.keep_finished, Retire(objects))


def retire_when_due(world: World, job: Job | None, others: Iterable[Workload | Pod | None]) -> None:
    """Set the timer of a finished job with ttlSecondsAfterFinished.

    The objects in `others` are removed with it.
    """
    kept = None if job is None else deadlines.ttl_of(job)
    if job is None or kept is None:
        return
    objects = tuple((TABLES[type(obj)], obj.key, obj.uid) for obj in (job, *others) if obj is not None)
    world.kernel.at(world.now + kept, Retire(objects))


def pods_left(world: World, job: Job | None, last: Iterable[Pod]) -> list[Pod]:
    """The finished pods of a job: its last ones, and those of earlier waves, which no running group has any more."""
    found = {pod.key: pod for one in last if (pod := world.pod(one.key)) is not None}
    if job is not None and isinstance(job.rules, BatchRules) and job.solo:
        over = count_numbers((job.batch.completed, job.batch.failed), INT32)
        if over > len(found):
            found |= {pod.key: pod for pod in world.state.table("pods").all() if pod.job == job.key}
    return list(found.values())


def retire(world: World, timer: Retire) -> None:
    """Remove finished objects."""
    for table, key, uid in timer.objects:
        obj = world.state.table(table).get(key)
        if obj is not None and obj.uid == uid:
            world.drop(_KINDS[table], key)

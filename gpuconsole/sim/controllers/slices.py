"""Elastic jobs: their workload slices when the job grows, shrinks or is evicted (Kueue job reconciler)."""

from msgspec.structs import replace

from gpuconsole.model.decisions import Admit
from gpuconsole.model.job import Job
from gpuconsole.model.jobs.workloads import workload_name
from gpuconsole.model.pod_template import PodSet
from gpuconsole.model.workloads import Workload
from gpuconsole.scheduling.kueue import slices
from gpuconsole.scheduling.kueue.podset import reclaim
from gpuconsole.sim.controllers import jobs, pods, ttl_after_finished, work, workloads
from gpuconsole.sim.world import World


def follow_slices(world: World, job: Job) -> None:
    """Reconcile the slices of a job: edit its current one, or create one that replaces it."""
    existing = slices.not_finished(world.state.table("workloads").all(), job.key)
    plan = slices.ensure(existing, job.pod_sets)
    for ending in plan.endings:
        _end(world, ending)
    if plan.keep is not None and plan.edited:
        _resize_slice(world, plan.keep)
    elif plan.keep is None and plan.compatible:
        ended = {ending.workload.key for ending in plan.endings}
        _grow(world, job, next((old for old in existing if old.key not in ended), None))


def _grow(world: World, job: Job, old: Workload | None) -> None:
    """Create a slice of the job's new size; the old one runs until that is admitted."""
    generation = sum(workload.owner == job.key for workload in world.state.table("workloads").all())
    new = jobs.workload_for(world, job)
    named = replace(new, name=workload_name(job.kind, job.name, job.uid, generation))
    jobs.create_workload(world, slices.prepared(named, old))


def _resize_slice(world: World, changed: Workload) -> None:
    """Edit a slice in place: a pending one, or one that needs fewer pods."""
    before = world.workload(changed.key)
    world.put(reclaim(changed, changed.reclaimable))
    group = world.groups.get(changed.key)
    if before is not None and group is not None and before.pod_sets != changed.pod_sets:
        surplus = _surplus(before.pod_sets, changed.pod_sets)
        gone = {key for key, lost in zip(group.pods, surplus, strict=False) if lost}
        pods.dismiss(world, group, gone, "ScaledDown")


def _surplus(before: tuple[PodSet, ...], after: tuple[PodSet, ...]) -> list[bool]:
    """For each pod, in the order of the pod sets, whether it is surplus now."""
    sizes = {pod_set.name: pod_set.count for pod_set in after}
    return [index >= sizes.get(pod_set.name, 0) for pod_set in before for index in range(pod_set.count)]


def take_over_slice(world: World, decision: Admit) -> None:
    """Finish the slice that an admitted slice replaces; the new one owns its pods, which keep running."""
    new, old = world.workload(decision.workload), world.workload(decision.replaces)
    if new is None or old is None or old.finished:
        return
    group = world.groups.pop(old.key, None)
    world.dirty.pop(old.key, None)
    if group is not None:
        heir = replace(group, key=new.key, workload=new.key)
        world.put_group(heir)
        for pod in pods.pods_of(world, group):
            world.put(replace(pod, workload=new.key))
        if group.start is not None:
            work.resume(world, heir, group.start)
    _end(world, slices.Ending(old, slices.REPLACED, slices.replacement_message(new)))


def _end(world: World, ending: slices.Ending) -> None:
    group = world.groups.get(ending.workload.key)
    workloads.finish(world, ending.workload, ending.reason, ending.message)
    if group is not None:
        pods.remove(world, pods.pods_of(world, group), ending.reason, ending.message)
        world.dirty[group.key] = None
    ttl_after_finished.retire_later(world, (world.workload(ending.workload.key),))


def reconcile_evicted_slices(world: World, key: str) -> None:
    """Reconcile the slices of an evicted job: only a pending replacement slice is kept."""
    workload = world.workload(key)
    job = world.job(workload.owner) if workload is not None else None
    if job is not None and jobs.elastic(world, job):
        follow_slices(world, job)

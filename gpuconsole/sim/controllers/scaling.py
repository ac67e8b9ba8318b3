"""Scaling of jobs by command: services at once, elastic jobs by workload slices, Volcano's by its controller."""

from msgspec.structs import replace

from gpuconsole.model.commands import Scale
from gpuconsole.model.job import GroupRules, Job
from gpuconsole.model.workloads import Workload
from gpuconsole.scheduling.kueue import conditions
from gpuconsole.scheduling.kueue.podset import ELASTIC
from gpuconsole.sim.controllers import jobs, pods, queue_conditions, slices, work
from gpuconsole.sim.controllers.refusals import DONE, Refusal
from gpuconsole.sim.controllers.volcano import orders
from gpuconsole.sim.world import World

MOST_PODS = 100_000
ON_HOLD = "StatefulSet scaled to zero; workload on hold"
NO_LONGER = "Workload no longer on hold; waiting for quota reservation"


def scale(world: World, order: Scale) -> Refusal:
    """Set a job's number of pods; for a LeaderWorkerSet, of groups."""
    job = _job(world, order.job)
    if job is None or job.ended:
        return f"there is no unfinished job {order.job}"
    if not 0 <= order.count <= MOST_PODS:
        return f"a job has 0 to {MOST_PODS} pods, not {order.count}"
    if isinstance(job.rules, GroupRules):
        return _scale_groups(world, job, job.rules, order)
    names = [pod_set.name for pod_set in job.pod_sets]
    name = order.pod_set or (names[0] if len(names) == 1 else "")
    if name not in names:
        return f"job {job.key} has no pod set {name or 'of its own'}; it has: {', '.join(names)}"
    sizes = tuple(replace(p, count=order.count) if p.name == name else p for p in job.pod_sets)
    return _resize(world, job, replace(job, pod_sets=sizes))


def _job(world: World, key: str) -> Job | None:
    kinds = ("Job", "Deployment", "StatefulSet", "LeaderWorkerSet", "RayCluster", "RayService")
    found = (world.job(f"{kind}/{key}") for kind in kinds)
    return (
        world.job(key) or next((job for job in found if job is not None), None) or orders.volcano_job_named(world, key)
    )


def _scale_groups(world: World, job: Job, rules: GroupRules, order: Scale) -> Refusal:
    if order.pod_set:
        return f"job {job.key} is scaled by groups; leave the pod set out"
    world.put(replace(job, rules=replace(rules, replicas=order.count)))
    world.parents[job.key] = None
    return DONE


def _resize(world: World, before: Job, job: Job) -> Refusal:
    if job.volcano is not None:
        return orders.scaled_volcano_job(world, before, job)
    managed = jobs.managed(world, job)
    if jobs.makes_jobs(world, job):
        world.put(job)
        world.parents[job.key] = None
    elif managed and job.kind == "StatefulSet":
        return _scale_stateful_set(world, before, job)
    elif managed and jobs.elastic(world, job):
        world.put(job)
        slices.follow_slices(world, job)
    elif job.solo and not managed:
        world.put(job)
        _fit(world, job)
    else:
        return f'job {job.key} is not elastic: only a queued job with {ELASTIC}: "true" can be scaled'
    return DONE


def _fit(world: World, job: Job) -> None:
    """Delete surplus pods; missing ones are created."""
    group = world.groups.get(job.key)
    if group is None:
        return
    sizes = {part.name: part.count for part in job.pod_sets}
    members = [pod for pod in pods.pods_of(world, group) if not pod.done]
    kept = {
        part.name: sorted(p.index for p in members if p.pod_set == part.name)[: part.count] for part in job.pod_sets
    }
    gone = {pod.key for pod in members if pod.pod_set in sizes and pod.index not in kept[pod.pod_set]}
    for pod in members:
        if pod.key in gone:
            work.interrupt(world, group.key, pod=pod)
    pods.dismiss(world, world.groups[group.key], gone, "ScaledDown")


def _scale_stateful_set(world: World, before: Job, job: Job) -> Refusal:
    """Scale a StatefulSet, which Kueue allows only to zero and back; its Workload is on hold meanwhile."""
    old, new = before.pod_sets[0].count, job.pod_sets[0].count
    if old and new and old != new:
        return f"spec.replicas: Invalid value: {new}: field is immutable"
    group = next((group for group in world.groups.values() if group.job == job.key), None)
    if new and group is not None:
        return "spec.replicas: Forbidden: scaling down is still in progress"
    world.put(job)
    workload = next((w for w in world.state.table("workloads").all() if w.owner == job.key and not w.finished), None)
    if new and workload is None:
        jobs.stand_for(world, job)
    elif new and workload is not None and conditions.on_hold(workload):
        _wait(world, replace(workload, pod_sets=job.pod_sets), "Pending", NO_LONGER)
    elif not new and workload is not None:
        work.interrupt(world, workload.key)
        if group is not None:
            pods.remove(world, pods.pods_of(world, group), "ScaledDown")
        _wait(world, workload, "OnHold", ON_HOLD)
    return DONE


def _wait(world: World, workload: Workload, reason: str, message: str) -> None:
    """Record why a workload holds no quota."""
    shown = "PendingEvaluation" if reason == "Pending" and world.granular else reason
    world.put(conditions.refuse(workload, shown, message, world.now, granular=world.granular))
    current = world.workload(workload.key)
    if current is not None and reason == "Pending":
        queue_conditions.record_obstacle(world, current)

"""Scaling of jobs by command, and the workload slices of elastic jobs.

Services are scaled at once, elastic jobs by workload slices, Volcano Jobs by Volcano's controller. A slice is the
Workload of an elastic job at one size: a larger one replaces it when it is admitted (Kueue: job reconciler).
"""

from msgspec.structs import replace

from gpuconsole.model.commands import Scale
from gpuconsole.model.events import Admit
from gpuconsole.model.job import GroupRules, Job
from gpuconsole.model.jobs.workloads import workload_name
from gpuconsole.model.pod_template import PodSet
from gpuconsole.model.workloads import Workload
from gpuconsole.scheduling.kueue import conditions, slices
from gpuconsole.scheduling.kueue.podset import ELASTIC, with_reclaimable_pods
from gpuconsole.sim.controllers import job_lifecycle, jobs, pods, work, workload_commands, workloads
from gpuconsole.sim.controllers.admission_plugins import CARRIED_OUT, Refusal
from gpuconsole.sim.world import World


def reconcile_slices(world: World, job: Job) -> None:
    """Reconcile the slices of a job: edit its current one, or create one that replaces it."""
    existing = slices.unfinished_slices(world.state.table("workloads").all(), job.key)
    plan = slices.plan_slices(existing, job.pod_sets)
    for ending in plan.endings:
        _finish_slice(world, ending)
    if plan.current is not None and plan.is_edited:
        _resize_slice(world, plan.current)
    elif plan.current is None and plan.is_compatible:
        ended = {ending.workload.key for ending in plan.endings}
        _create_larger_slice(world, job, next((old for old in existing if old.key not in ended), None))


def _create_larger_slice(world: World, job: Job, old: Workload | None) -> None:
    """Create a slice of the job's new size; the old one runs until that is admitted."""
    generation = sum(workload.owner == job.key for workload in world.state.table("workloads").all())
    new = jobs.new_workload_of(world, job)
    named = replace(new, name=workload_name(job.kind, job.name, job.uid, generation))
    jobs.create_workload(world, slices.new_slice(named, old))


def _resize_slice(world: World, changed: Workload) -> None:
    """Edit a slice in place: a pending one, or one that needs fewer pods."""
    before = world.workload(changed.key)
    world.put(with_reclaimable_pods(changed, changed.reclaimable))
    group = world.groups.get(changed.key)
    if before is not None and group is not None and before.pod_sets != changed.pod_sets:
        surplus = _surplus_pods(before.pod_sets, changed.pod_sets)
        gone = {key for key, lost in zip(group.pods, surplus, strict=False) if lost}
        pods.delete_surplus(world, group, gone, "ScaledDown")


def _surplus_pods(before: tuple[PodSet, ...], after: tuple[PodSet, ...]) -> list[bool]:
    """For each pod, in the order of the pod sets, whether it is surplus now."""
    sizes = {pod_set.name: pod_set.count for pod_set in after}
    return [index >= sizes.get(pod_set.name, 0) for pod_set in before for index in range(pod_set.count)]


def replace_slice(world: World, decision: Admit) -> None:
    """Move the running pods of an elastic job's old slice to the slice just admitted, and finish the old slice."""
    new, old = world.workload(decision.workload), world.workload(decision.replaces)
    if new is None or old is None or old.finished:
        return
    group = world.groups.pop(old.key, None)
    world.groups_to_reconcile.pop(old.key, None)
    if group is not None:
        heir = replace(group, key=new.key, workload=new.key)
        world.put_group(heir)
        for pod in pods.pods_of(world, group):
            world.put(replace(pod, workload=new.key))
        if group.start is not None:
            work.resume_work(world, heir, group.start)
    _finish_slice(world, slices.FinishedSlice(old, slices.REPLACED, slices.replacement_message(new)))


def _finish_slice(world: World, ending: slices.FinishedSlice) -> None:
    group = world.groups.get(ending.workload.key)
    workloads.finish_workload(world, ending.workload, ending.reason, ending.message)
    if group is not None:
        pods.delete_pods(world, pods.pods_of(world, group), ending.reason, ending.message)
        world.groups_to_reconcile[group.key] = None
    job_lifecycle.schedule_removal(world, (world.workload(ending.workload.key),))


def reconcile_evicted_slices(world: World, key: str) -> None:
    """Reconcile the slices of an evicted job: only a pending replacement slice is kept."""
    workload = world.workload(key)
    job = world.job(workload.owner) if workload is not None else None
    if job is not None and jobs.is_elastic_job(world, job):
        reconcile_slices(world, job)


MOST_PODS = 100_000
ON_HOLD = "StatefulSet scaled to zero; workload on hold"
SCALED_TO_ZERO_ENDED = "Workload no longer on hold; waiting for quota reservation"


def scale(world: World, order: Scale) -> Refusal:
    """Set a job's number of pods; for a LeaderWorkerSet, of groups."""
    job = _scalable_job(world, order.job)
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
    return _resize_job(world, job, replace(job, pod_sets=sizes))


def _scalable_job(world: World, key: str) -> Job | None:
    kinds = ("Job", "Deployment", "StatefulSet", "LeaderWorkerSet", "RayCluster", "RayService")
    found = (world.job(f"{kind}/{key}") for kind in kinds)
    return (
        world.job(key)
        or next((job for job in found if job is not None), None)
        or workload_commands.volcano_job_named(world, key)
    )


def _scale_groups(world: World, job: Job, rules: GroupRules, order: Scale) -> Refusal:
    if order.pod_set:
        return f"job {job.key} is scaled by groups; leave the pod set out"
    world.put(replace(job, rules=replace(rules, replicas=order.count)))
    world.creators_to_reconcile[job.key] = None
    return CARRIED_OUT


def _resize_job(world: World, before: Job, job: Job) -> Refusal:
    if job.volcano is not None:
        return workload_commands.scaled_volcano_job(world, before, job)
    managed = jobs.is_managed(world, job)
    if jobs.is_job_creator(world, job):
        world.put(job)
        world.creators_to_reconcile[job.key] = None
    elif managed and job.kind == "StatefulSet":
        return _scale_stateful_set(world, before, job)
    elif managed and jobs.is_elastic_job(world, job):
        world.put(job)
        reconcile_slices(world, job)
    elif job.solo and not managed:
        world.put(job)
        _delete_surplus_pods(world, job)
    else:
        return f'job {job.key} is not elastic: only a queued job with {ELASTIC}: "true" can be scaled'
    return CARRIED_OUT


def _delete_surplus_pods(world: World, job: Job) -> None:
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
            work.interrupt_work(world, group.key, pod=pod)
    pods.delete_surplus(world, world.groups[group.key], gone, "ScaledDown")


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
        jobs.create_workload_of_job(world, job)
    elif new and workload is not None and conditions.is_on_hold(workload):
        _record_pending(world, replace(workload, pod_sets=job.pod_sets), "Pending", SCALED_TO_ZERO_ENDED)
    elif not new and workload is not None:
        work.interrupt_work(world, workload.key)
        if group is not None:
            pods.delete_pods(world, pods.pods_of(world, group), "ScaledDown")
        _record_pending(world, workload, "OnHold", ON_HOLD)
    return CARRIED_OUT


def _record_pending(world: World, workload: Workload, reason: str, message: str) -> None:
    """Record why a workload holds no quota."""
    shown = "PendingEvaluation" if reason == "Pending" and world.granular else reason
    world.put(conditions.set_pending_reason(workload, shown, message, world.now, granular=world.granular))
    current = world.workload(workload.key)
    if current is not None and reason == "Pending":
        workloads.record_obstacle(world, current)

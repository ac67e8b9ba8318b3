"""Takes over an existing cluster: groups its pods, and resumes running work, evictions, deadlines and other timers."""

from collections.abc import Iterable

from msgspec.structs import replace

from gpuconsole.model.cluster import Pod, PodPhase
from gpuconsole.model.cooperative import Steps, run_to_end
from gpuconsole.model.events import HistoryEventKind
from gpuconsole.model.job import CronRules, FlowRules, Job, MemberRules
from gpuconsole.model.jobs.workloads import POD
from gpuconsole.model.objects import TABLES, Object
from gpuconsole.model.workloads import Workload
from gpuconsole.scheduling.kueue.requests import reserved_at
from gpuconsole.scheduling.kueue.slices import replacement_for
from gpuconsole.scheduling.kueue.workload_controller import PODS_READY
from gpuconsole.sim.controllers import (
    active_checks,
    creating,
    deadlines,
    eviction,
    jobs,
    queue_conditions,
    requeue_after,
    workloads,
)
from gpuconsole.sim.controllers.making import cron
from gpuconsole.sim.controllers.priorities import pod_priority
from gpuconsole.sim.controllers.volcano import actions
from gpuconsole.sim.pod_group_adoption import GroupCounts, adopt_group, leave_behind
from gpuconsole.sim.pod_group_state import running_group_key
from gpuconsole.sim.world import World

AT_ONCE = 200
"""Groups of pods adopted per step, which takes some milliseconds."""
MOST_OWNERS = 8
"""Maximum levels of owner references to follow; they come from outside, and may be cyclic."""


def begin_with(world: World, objects: Iterable[Object]) -> None:
    """Create the objects of a new cluster; objects with a status keep it."""
    order = {kind: place for place, kind in enumerate(TABLES)}
    everything = sorted(objects, key=lambda obj: order[type(obj)])
    known = _owners(everything)
    for obj in everything:
        if not isinstance(obj, (Job, Workload, Pod)):
            world.put(obj)
    active_checks.refresh_active_checks(world)
    for queue in list(world.state.table("local_queues").all()):
        jobs.ensure_namespace(world, queue.namespace)
    fresh = []
    for obj in everything:
        if isinstance(obj, (Job, Workload, Pod)):
            if _lived(obj) or obj.key in known:
                world.put(obj)
            else:
                fresh.append(obj)
    run_to_end(take_over(world, {}))
    tell_waiting(world)
    for obj in fresh:
        refusal = creating.create(world, obj)
        if refusal:
            world.tell(HistoryEventKind.COMMAND_REFUSED, reason="Submit", message=str(refusal))


def take_over(world: World, counted: dict[str, GroupCounts]) -> Steps[None]:
    """Give every group of pods its RunningGroup and timers, create missing objects; `counted` as for `adopt_group`."""
    _complete_pods(world)
    deadlines.resume_deadlines(world)
    yield
    grouped: dict[str, list[Pod]] = {}
    for pod in list(world.state.table("pods").all()):
        if _is_left_behind(world, pod):
            leave_behind(world, pod)
        else:
            grouped.setdefault(running_group_key(pod), []).append(pod)
    for number, (key, members) in enumerate(grouped.items(), start=1):
        adopt_group(world, key, members, counted)
        if number % AT_ONCE == 0:
            yield
    for key in counted.keys() - grouped.keys():
        del counted[key]
    for workload in [one for one in world.state.table("workloads").all() if one.reserved and not one.finished]:
        _continue_workload(world, workload)
    yield
    owned = {workload.owner for workload in world.state.table("workloads").all()}
    going = owned | {_whole(world, group.job) for group in world.groups.values()}
    for job in list(world.state.table("jobs").all()):
        if job.volcano is None:
            _continue_job(world, job, going)
        elif not job.ended and job.key not in owned:
            actions.start(world, job)


def tell_waiting(world: World) -> None:
    """Record for each pending workload what keeps it from being tried, if anything."""
    for workload in list(world.state.table("workloads").all()):
        queue_conditions.record_obstacle(world, workload)


def _complete_pods(world: World) -> None:
    """Fill in unknown fields of pods: Workload, priority, GPUs, MIG instances.

    A bound pod without a start time starts now.
    """
    owned = {workload.owner: workload.key for workload in world.state.table("workloads").all() if workload.owner}
    for pod in list(world.state.table("pods").all()):
        job = _job_of(world, pod)
        workload = pod.workload
        if world.workload(workload) is None:
            workload = owned.get(job) or ("" if pod.gates else owned.get(f"{POD}/{pod.key}", ""))
        priority = pod.priority or pod_priority(world, pod.template)
        gpus = pod.gpus or world.placement.gpus_of(pod.key)
        slices = pod.slices or world.placement.slices_of(pod.key)
        starts = bool(pod.node and not pod.done and not pod.started and not pod.deleted)
        said = (pod.job, pod.workload, pod.priority, pod.gpus, pod.slices)
        if starts or said != (job, workload, priority, gpus, slices):
            full = replace(pod, job=job, workload=workload, priority=priority, gpus=gpus, slices=slices)
            world.put(replace(full, started=world.now, phase=PodPhase.RUNNING) if starts else full)


def says_more(found: Object, obj: Object) -> bool:
    """True if `obj` is `found` with facts filled in.

    These are fields and the start of a pod, or the PodsReady condition of a Workload.
    """
    match found, obj:
        case Pod(), Pod():
            full = replace(
                found,
                workload=obj.workload,
                priority=obj.priority,
                gpus=obj.gpus,
                slices=obj.slices,
                pod_set=obj.pod_set,
                index=obj.index,
            )
            if not found.started and obj.phase is PodPhase.RUNNING:
                full = replace(full, started=obj.started, phase=obj.phase)
            return full == obj
        case Workload(), Workload():
            others = (tuple(one for one in of.conditions if one.type != PODS_READY) for of in (found, obj))
            same = len({*others}) == 1 and replace(found, conditions=obj.conditions) == obj
            return same and obj.is_true(PODS_READY)
        case _:
            return False


def _job_of(world: World, pod: Pod) -> str:
    """The job of a pod; a Deployment's ReplicaSet, named with a hash, resolves to the Deployment."""
    kind, _, rest = pod.job.partition("/")
    deployment = f"Deployment/{rest.rpartition('-')[0]}" if kind == "ReplicaSet" else ""
    return deployment if deployment and world.job(deployment) is not None else _whole(world, pod.job)


def _whole(world: World, key: str) -> str:
    """The job whose controller created this one: the RayJob of a RayCluster, the TrainJob of a JobSet.

    Jobs of a CronJob or a JobFlow, and parts that Kueue admits separately, are jobs of their own.
    """
    for _ in range(MOST_OWNERS):
        job = world.job(key)
        owner = world.job(job.owner) if job is not None and not isinstance(job.rules, MemberRules) else None
        if owner is None or isinstance(owner.rules, CronRules | FlowRules):
            break
        key = owner.key
    return key


def _owners(objects: Iterable[Object]) -> set[str]:
    """Jobs that own a Workload or pods in the input."""
    keys: set[str] = set()
    for obj in objects:
        match obj:
            case Workload(owner=owner) if owner:
                keys.add(owner)
            case Pod(job=job) if job:
                keys.add(job)
            case _:
                pass
    return keys


def _lived(obj: Job | Workload | Pod) -> bool:
    match obj:
        case Job():
            return obj.ended
        case Workload():
            return bool(obj.conditions)
        case Pod():
            return bool(obj.node or obj.done or obj.workload or obj.job)


def _is_left_behind(world: World, pod: Pod) -> bool:
    """True for a terminating pod whose job restarts without waiting for it."""
    workload = world.workload(pod.workload) if pod.deleted and pod.workload else None
    if workload is None or workload.finished or not eviction.starts_before_old_pods_end(world, workload):
        return False
    if replacement_for(workload) is not None:
        return False  # It reserved quota while pods of the slice that it replaces ran.
    return not workload.reserved or pod.created < reserved_at(workload, world.now)


def _continue_workload(world: World, workload: Workload) -> None:
    """Resume a workload that has quota; an admitted one without pods gets them."""
    if workload.admitted and workload.condition(PODS_READY) is None:
        # Whether its pods were ready before is unknown: they get the recovery timeout.
        workload = queue_conditions.with_pods_not_ready(
            queue_conditions.with_pods_ready(workload, world.now), world.now
        )
        world.put(workload)
    requeue_after.watch_requeue(world, workload)
    if workload.is_true("Evicted"):
        eviction.go_on(world, workload)
    elif workload.admitted and workload.key not in world.groups:
        workloads.make_pods(world, workload)


def _continue_job(world: World, job: Job, going: set[str]) -> None:
    """Start a job that has neither a Workload nor pods; `going` are the jobs that have them."""
    if job.ended or job.key in going or _whole(world, job.key) != job.key:
        return
    if jobs.makes_jobs(world, job):
        world.parents[job.key] = None
        cron.arm_cron(world, job)
        return
    if jobs.managed(world, job):
        jobs.stand_for(world, job)
    elif not job.suspended:
        jobs.start_unmanaged(world, job)

"""Creation, copying and deletion of objects, by commands and by arrival streams.

`create_object` treats jobs, Workloads and pods as new work, and replaces other objects as `kubectl apply` does.
`copy_work` resubmits existing work under another name. `delete_object` deletes an object with its dependents, unless it
is in use. Each arrival of a stream submits its job and sets the timer of the next one.
"""

from collections.abc import Iterable

from msgspec.structs import replace

from gpuconsole.model.autoscaling import ProvisioningRequestConfig
from gpuconsole.model.clock import Time
from gpuconsole.model.cluster import Node, PersistentVolumeClaim, Pod, SchedulingWorkload
from gpuconsole.model.devices import ResourceClaim
from gpuconsole.model.events import HistoryEvent, HistoryEventKind
from gpuconsole.model.job import Job, again
from gpuconsole.model.jobs import pod_name
from gpuconsole.model.objects import TABLES, Object
from gpuconsole.model.queues import AdmissionCheck, ClusterQueue, Cohort, LocalQueue, ResourceFlavor, Topology
from gpuconsole.model.workloads import Workload, anew
from gpuconsole.sim import run_times
from gpuconsole.sim.controllers import (
    admission_plugins,
    jobs,
    nodes,
    pods,
    queue_commands,
    work,
    workload_controller,
    workloads,
)
from gpuconsole.sim.controllers.admission_plugins import CARRIED_OUT, NoChange, Refusal
from gpuconsole.sim.controllers.jobs import missing_runtime
from gpuconsole.sim.controllers.volcano_jobs import new_job_refusal
from gpuconsole.sim.kernel import JobArrival
from gpuconsole.sim.world import World, running_group_key


def create_object(world: World, obj: Object) -> Refusal:
    """Create an object as the API server would, now if it has no creation time, or return why that is refused."""
    match obj:
        case Job() | Workload() | Pod():
            return _name_conflict(world, obj) or _creation_refusal(world, obj) or _create_new_work(world, obj)
        case _:
            return _apply_configuration(world, obj)


def _create_new_work(world: World, obj: Job | Workload | Pod) -> Refusal:
    match obj:
        case Job():
            jobs.create_job(world, obj)
        case Workload():
            jobs.create_workload(world, obj)
        case Pod():
            jobs.create_pod(world, obj)
    return CARRIED_OUT


def _creation_refusal(world: World, obj: Job | Workload | Pod) -> Refusal:
    match obj:
        case Job():
            wanted = new_job_refusal(world, obj) if obj.volcano is not None else missing_runtime(world, obj)
            return wanted or admission_plugins.quota_refusal(world, obj)
        case Pod():
            return admission_plugins.quota_refusal(world, obj)
        case Workload():
            return admission_plugins.quota_refusal(world, obj)


def _name_conflict(world: World, obj: Job | Workload | Pod) -> Refusal:
    kind = obj.kind if isinstance(obj, Job) else type(obj).__name__
    if world.state.get(type(obj), obj.key) is not None:
        return f"{kind} {obj.namespace}/{obj.name} exists already; delete it first, or choose another name"
    if _has_terminating_pods(world, obj):
        return f"pods of an earlier {kind} {obj.namespace}/{obj.name} are still terminating; retry in a moment"
    return CARRIED_OUT


def _has_terminating_pods(world: World, obj: Job | Workload | Pod) -> bool:
    """True if pods of an earlier object of this name still exist."""
    if isinstance(obj, Pod):
        return running_group_key(obj) in world.groups
    if obj.key in world.groups:
        return True
    job = obj if isinstance(obj, Job) else Job(namespace=obj.namespace, name=obj.name)
    first = obj.pod_sets[0].name if obj.pod_sets else ""
    pod = world.pod(f"{obj.namespace}/{pod_name(job, first, 0)}")
    return pod is not None and pod.deleted > 0


def _apply_configuration(world: World, obj: Object) -> Refusal:
    """Create or replace a configuration object, as `kubectl apply` does."""
    if isinstance(obj, LocalQueue):
        jobs.ensure_namespace(world, obj.namespace)
    known = world.state.get(type(obj), obj.key)
    new = known is None
    if (
        new
        and isinstance(obj, PersistentVolumeClaim | ResourceClaim)
        and (no := admission_plugins.quota_refusal(world, obj))
    ):
        return no
    if known is not None:
        obj = _with_applied_fields(known, obj)
    elif getattr(obj, "created", world.now) == 0:
        obj = replace(obj, created=world.now)
    if obj == known:
        return CARRIED_OUT
    world.put(obj)
    match obj:
        case Node():
            world.record_event(
                HistoryEventKind.NODE_UP if new else HistoryEventKind.NODE_CHANGED,
                node=obj.name,
                **world.devices.of_node(obj),
            )
        case ClusterQueue(name=name):
            world.record_event(HistoryEventKind.QUEUE_CHANGED, queue=name, reason="Created" if new else "Updated")
            queue_commands.record_obstacles(world, obj)
        case LocalQueue(cluster_queue=name):
            world.record_event(
                HistoryEventKind.QUEUE_CHANGED, queue=name, reason="Created" if new else "Updated", message=obj.key
            )
            queue_commands.record_obstacles(world, obj)
        case Cohort(name=name):
            world.record_event(
                HistoryEventKind.QUEUE_CHANGED, reason="Created" if new else "Updated", message=f"Cohort {name}"
            )
            queue_commands.record_all_obstacles(world)
        case AdmissionCheck() | ProvisioningRequestConfig():
            workload_controller.refresh_active_checks(world)
            queue_commands.record_all_obstacles(world)
        case SchedulingWorkload():
            pods.ensure_waiting_pod_groups(world, obj)
        case ResourceFlavor() | Topology():
            queue_commands.record_all_obstacles(world)
        case _:
            pass
    return CARRIED_OUT


_KEPT_FIELDS = ("uid", "created", "consumed", "sampled", "usage")
"""Fields of the existing object that a manifest does not change."""


def _with_applied_fields(known: Object, obj: Object) -> Object:
    """The object after its manifest was applied to the existing one."""
    kept = {name: getattr(known, name) for name in _KEPT_FIELDS if name in known.__struct_fields__}
    return replace(obj, **kept)


def copy_work(world: World, key: str, name: str) -> Refusal:
    """Submit a copy of a job, a workload or a lone pod, whether that is pending, running or finished."""
    copied = _new_copy(world, key, name)
    if copied is None:
        return f"there is no job, workload or pod {key} to resubmit"
    return create_object(world, copied)


def _new_copy(world: World, key: str, name: str) -> Job | Workload | Pod | None:
    workload = world.workload(key)
    job = _find_job(world, workload.owner if workload is not None else key)
    if job is not None:
        return again(job, name)
    if workload is not None:
        return replace(anew(workload), name=name, created=world.now)
    pod = world.pod(key.removeprefix("Pod/"))
    return _pod_copy(pod, name) if pod is not None and not pod.job and not pod.workload else None


def _find_job(world: World, key: str) -> Job | None:
    """The job with this `Kind/namespace/name`, or the only one with this `namespace/name`."""
    exact = world.job(key)
    if exact is not None:
        return exact
    same = [job for job in world.state.table("jobs").all() if job.key.partition("/")[2] == key]
    return same[0] if len(same) == 1 else None


def _pod_copy(pod: Pod, name: str) -> Pod:
    return Pod(
        namespace=pod.namespace,
        name=name,
        labels=pod.labels,
        annotations=pod.annotations,
        template=pod.template,
        priority=pod.priority,
        gang=pod.gang,
        gang_size=pod.gang_size,
        gates=pod.template.scheduling_gates,
    )


_KINDS: dict[str, type[Object]] = {table: kind for kind, table in TABLES.items()}


def delete_object(world: World, table: str, key: str) -> Refusal:
    """Delete an object by table and key, or return why not.

    A workload or job may be named by `namespace/name`; without a table, a lone pod as well.
    """
    if not table or (table in _WORK_TABLES and world.state.table(table).get(key) is None):
        table, key = _resolve_work(world, key, table)
    kind = _KINDS.get(table)
    if kind is None:
        return f"there is no table {table}; the tables are {', '.join(_KINDS)}"
    obj = world.state.table(table).get(key)
    match obj:
        case None:
            return f"there is no {kind.__name__} {key}"
        case Workload():
            return _delete_owner(world, Workload, key)
        case Job():
            workload = _workload_of(world, key)
            return _delete_owner(world, Workload if workload else Job, workload or key)
        case Pod():
            return _delete_pod(world, obj)
        case Node():
            nodes.fail_pods_of_lost_node(world, key)
            world.drop(Node, key)
            world.record_event(HistoryEventKind.NODE_DOWN, node=key, reason="Deleted", **world.devices.of_node(obj))
        case ClusterQueue() | LocalQueue():
            return _delete_queue(world, obj)
        case ResourceFlavor() | AdmissionCheck() | Topology() | Cohort() | ProvisioningRequestConfig():
            world.drop(kind, key)
            workload_controller.refresh_active_checks(world)
            queue_commands.record_all_obstacles(world)
        case _:
            world.drop(kind, key)
    return CARRIED_OUT


_WORK_TABLES = (TABLES[Workload], TABLES[Job])


def _resolve_work(world: World, name: str, table: str = "") -> tuple[str, str]:
    """Table and key of the workload, else the job, else the pod with this `namespace/name`; else unchanged."""
    if world.workload(name) is None:
        job = next((job for job in world.state.table("jobs").all() if f"{job.namespace}/{job.name}" == name), None)
        if job is not None:
            return TABLES[Job], job.key
        if world.pod(name) is not None and not table:
            return TABLES[Pod], name
    return table or TABLES[Workload], name


def _delete_owner(world: World, kind: type[Workload] | type[Job], key: str) -> Refusal:
    workloads.delete_owner(world, kind, key)
    return CARRIED_OUT


def _workload_of(world: World, job: str) -> str:
    """The Workload of a job; for an elastic job, which may have several, an unfinished one."""
    owned = [workload for workload in world.state.table("workloads").all() if workload.owner == job]
    return min(owned, key=lambda workload: workload.finished).key if owned else ""


def _delete_pod(world: World, pod: Pod) -> Refusal:
    if pod.deleted:
        return NoChange(f"pod {pod.key} is already terminating")
    if pod.done or not pod.node:
        pods.delete_pods(world, (pod,), "Deleted")
    elif pod.workload or pod.job:
        nodes.evict_pod(world, pod, reason="Deleted", message="the pod is deleted")
    else:
        work.interrupt_work(world, running_group_key(pod), pod=pod)
        world.record_event(
            HistoryEventKind.DELETED, workload=pod.key, pod=pod.key, node=pod.node, **world.devices.held([pod])
        )
        pods.delete_pods(world, (pod,), "Deleted")
    return CARRIED_OUT


def _delete_queue(world: World, queue: ClusterQueue | LocalQueue) -> Refusal:
    """Delete a queue once no workload holds quota through it (Kueue keeps it by a finalizer until then)."""
    holding = queue_commands.workloads_with_quota(world, queue)
    if holding:
        some = ", ".join(sorted(workload.key for workload in holding)[:3])
        who = "1 workload holds" if len(holding) == 1 else f"{len(holding)} workloads hold"
        return f"{who} quota through {queue.name} ({some}); drain it first"
    waiting = queue_commands.workloads_without_quota(world, queue)
    world.drop(type(queue), queue.key)
    name = queue.name if isinstance(queue, ClusterQueue) else queue.cluster_queue
    world.record_event(HistoryEventKind.QUEUE_CHANGED, queue=name, reason="Deleted", message=queue.key)
    for workload in waiting:
        workloads.record_obstacle(world, workload)
    return CARRIED_OUT


def open_arrival_streams(world: World) -> None:
    """Submit the jobs present at the start, and set the timer of each stream's first arrival."""
    for index, stream in enumerate(world.policy.arrivals):
        for number in range(1, stream.at_start + 1):
            create_object(world, run_times.stream_job(stream, world.seed, number))
        _set_arrival_timer(world, index, stream.at_start + 1, world.now + stream.first)


def continue_arrival_streams(world: World, history: Iterable[HistoryEvent]) -> None:
    """Resume each stream after its last job in the cluster or in the history."""
    known = {f"{job.namespace}/{job.name}": job.created for job in world.state.table("jobs").all()}
    known |= {line.workload: line.time for line in history if line.what is HistoryEventKind.SUBMITTED}
    for index, stream in enumerate(world.policy.arrivals):
        came = [
            (number, time) for key, time in known.items() if (number := run_times.number_of(stream, key)) is not None
        ]
        last, time = max(came, default=(stream.at_start, world.now))
        first = stream.first if came and last <= stream.at_start else 0
        _set_arrival_timer(world, index, last + 1, time + first)


def submit_arrival(world: World, timer: JobArrival) -> None:
    """Submit the job of an arrival."""
    stream = world.policy.arrivals[timer.stream]
    create_object(world, run_times.stream_job(stream, world.seed, timer.number))
    _set_arrival_timer(world, timer.stream, timer.number + 1, world.now)


def redraw_arrival(world: World, timer: JobArrival) -> None:
    """Draw the next arrival of a timer again from now, because an observer cannot know it in advance."""
    _set_arrival_timer(world, timer.stream, timer.number, world.now)


def _set_arrival_timer(world: World, index: int, number: int, after: Time) -> None:
    time = run_times.next_arrival(world.policy.arrivals[index], world.seed, number, after)
    if time is not None:
        world.kernel.set_timer(max(time, world.now), JobArrival(index, number))

"""Deletion of objects with their dependents; objects in use are not deleted."""

from gpuconsole.model.autoscaling import ProvisioningRequestConfig
from gpuconsole.model.cluster import Node, Pod
from gpuconsole.model.events import HistoryEventKind
from gpuconsole.model.job import Job
from gpuconsole.model.objects import TABLES, Object
from gpuconsole.model.queues import AdmissionCheck, ClusterQueue, Cohort, LocalQueue, ResourceFlavor, Topology
from gpuconsole.model.workloads import Workload
from gpuconsole.sim.controllers import active_checks, completion, nodes, pods, queue_conditions, queues, work
from gpuconsole.sim.controllers.refusals import DONE, NoChange, Refusal
from gpuconsole.sim.pod_group_state import running_group_key
from gpuconsole.sim.world import World

_KINDS: dict[str, type[Object]] = {table: kind for kind, table in TABLES.items()}


def delete(world: World, table: str, key: str) -> Refusal:
    """Delete an object by table and key, or return why not.

    A workload or job may be named by `namespace/name`; without a table, a lone pod as well.
    """
    if not table or (table in _WORK and world.state.table(table).get(key) is None):
        table, key = _meant(world, key, table)
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
            nodes.lose_pods(world, key)
            world.drop(Node, key)
            world.tell(HistoryEventKind.NODE_DOWN, node=key, reason="Deleted", **world.devices.of_node(obj))
        case ClusterQueue() | LocalQueue():
            return _delete_queue(world, obj)
        case ResourceFlavor() | AdmissionCheck() | Topology() | Cohort() | ProvisioningRequestConfig():
            world.drop(kind, key)
            active_checks.refresh_active_checks(world)
            queues.recheck_all(world)
        case _:
            world.drop(kind, key)
    return DONE


_WORK = (TABLES[Workload], TABLES[Job])


def _meant(world: World, name: str, table: str = "") -> tuple[str, str]:
    """Table and key of the workload, else the job, else the pod with this `namespace/name`; else unchanged."""
    if world.workload(name) is None:
        job = next((job for job in world.state.table("jobs").all() if f"{job.namespace}/{job.name}" == name), None)
        if job is not None:
            return TABLES[Job], job.key
        if world.pod(name) is not None and not table:
            return TABLES[Pod], name
    return table or TABLES[Workload], name


def _delete_owner(world: World, kind: type[Workload] | type[Job], key: str) -> Refusal:
    completion.delete_owner(world, kind, key)
    return DONE


def _workload_of(world: World, job: str) -> str:
    """The Workload of a job; for an elastic job, which may have several, an unfinished one."""
    owned = [workload for workload in world.state.table("workloads").all() if workload.owner == job]
    return min(owned, key=lambda workload: workload.finished).key if owned else ""


def _delete_pod(world: World, pod: Pod) -> Refusal:
    if pod.deleted:
        return NoChange(f"pod {pod.key} is already terminating")
    if pod.done or not pod.node:
        pods.remove(world, (pod,), "Deleted")
    elif pod.workload or pod.job:
        nodes.evict_pod(world, pod, reason="Deleted", message="the pod is deleted")
    else:
        work.interrupt(world, running_group_key(pod), pod=pod)
        world.tell(HistoryEventKind.DELETED, workload=pod.key, pod=pod.key, node=pod.node, **world.devices.held([pod]))
        pods.remove(world, (pod,), "Deleted")
    return DONE


def _delete_queue(world: World, queue: ClusterQueue | LocalQueue) -> Refusal:
    """Delete a queue once no workload holds quota through it (Kueue keeps it by a finalizer until then)."""
    holding = queues.holders(world, queue)
    if holding:
        some = ", ".join(sorted(workload.key for workload in holding)[:3])
        who = "1 workload holds" if len(holding) == 1 else f"{len(holding)} workloads hold"
        return f"{who} quota through {queue.name} ({some}); drain it first"
    waiting = queues.waiting_in(world, queue)
    world.drop(type(queue), queue.key)
    name = queue.name if isinstance(queue, ClusterQueue) else queue.cluster_queue
    world.tell(HistoryEventKind.QUEUE_CHANGED, queue=name, reason="Deleted", message=queue.key)
    for workload in waiting:
        queue_conditions.record_obstacle(world, workload)
    return DONE

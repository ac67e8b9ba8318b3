"""Creation of objects, and replacement of configuration objects."""

from msgspec.structs import replace

from gpuconsole.model.autoscaling import ProvisioningRequestConfig
from gpuconsole.model.cluster import Node, Pod, SchedulingWorkload
from gpuconsole.model.devices import ResourceClaim
from gpuconsole.model.events import HistoryEventKind
from gpuconsole.model.job import Job
from gpuconsole.model.jobs import pod_name
from gpuconsole.model.objects import Object
from gpuconsole.model.queues import AdmissionCheck, ClusterQueue, Cohort, LocalQueue, ResourceFlavor, Topology
from gpuconsole.model.storage import PersistentVolumeClaim
from gpuconsole.model.workloads import Workload
from gpuconsole.sim.controllers import active_checks, jobs, pod_groups, queues, quotas
from gpuconsole.sim.controllers.making.training import missing_runtime
from gpuconsole.sim.controllers.refusals import DONE, Refusal
from gpuconsole.sim.controllers.volcano.queues import new_job_refusal
from gpuconsole.sim.pod_group_state import running_group_key
from gpuconsole.sim.world import World


def create(world: World, obj: Object) -> Refusal:
    """Create an object as the API server would, or return why that is refused."""
    match obj:
        case Job() | Workload() | Pod():
            return _taken(world, obj) or _unwanted(world, obj) or _arrive(world, obj)
        case _:
            return _configure(world, obj)


def _arrive(world: World, obj: Job | Workload | Pod) -> Refusal:
    match obj:
        case Job():
            jobs.create_job(world, obj)
        case Workload():
            jobs.create_workload(world, obj)
        case Pod():
            jobs.create_pod(world, obj)
    return DONE


def _unwanted(world: World, obj: Job | Workload | Pod) -> Refusal:
    match obj:
        case Job():
            wanted = new_job_refusal(world, obj) if obj.volcano is not None else missing_runtime(world, obj)
            return wanted or quotas.quota_refusal(world, obj)
        case Pod():
            return quotas.quota_refusal(world, obj)
        case Workload():
            return quotas.quota_refusal(world, obj)


def _taken(world: World, obj: Job | Workload | Pod) -> Refusal:
    kind = obj.kind if isinstance(obj, Job) else type(obj).__name__
    if world.state.get(type(obj), obj.key) is not None:
        return f"{kind} {obj.namespace}/{obj.name} exists already; delete it first, or choose another name"
    if _leaving(world, obj):
        return f"pods of an earlier {kind} {obj.namespace}/{obj.name} are still terminating; retry in a moment"
    return DONE


def _leaving(world: World, obj: Job | Workload | Pod) -> bool:
    """True if pods of an earlier object of this name still exist."""
    if isinstance(obj, Pod):
        return running_group_key(obj) in world.groups
    if obj.key in world.groups:
        return True
    job = obj if isinstance(obj, Job) else Job(namespace=obj.namespace, name=obj.name)
    first = obj.pod_sets[0].name if obj.pod_sets else ""
    pod = world.pod(f"{obj.namespace}/{pod_name(job, first, 0)}")
    return pod is not None and pod.deleted > 0


def _configure(world: World, obj: Object) -> Refusal:
    """Create or replace a configuration object, as `kubectl apply` does."""
    if isinstance(obj, LocalQueue):
        jobs.ensure_namespace(world, obj.namespace)
    known = world.state.get(type(obj), obj.key)
    new = known is None
    if new and isinstance(obj, PersistentVolumeClaim | ResourceClaim) and (no := quotas.quota_refusal(world, obj)):
        return no
    obj = obj if known is None else _applied(known, obj)
    if obj == known:
        return DONE
    world.put(obj)
    match obj:
        case Node():
            world.tell(
                HistoryEventKind.NODE_UP if new else HistoryEventKind.NODE_CHANGED,
                node=obj.name,
                **world.devices.of_node(obj),
            )
        case ClusterQueue(name=name):
            world.tell(HistoryEventKind.QUEUE_CHANGED, queue=name, reason="Created" if new else "Updated")
            queues.recheck(world, obj)
        case LocalQueue(cluster_queue=name):
            world.tell(
                HistoryEventKind.QUEUE_CHANGED, queue=name, reason="Created" if new else "Updated", message=obj.key
            )
            queues.recheck(world, obj)
        case Cohort(name=name):
            world.tell(HistoryEventKind.QUEUE_CHANGED, reason="Created" if new else "Updated", message=f"Cohort {name}")
            queues.recheck_all(world)
        case AdmissionCheck() | ProvisioningRequestConfig():
            active_checks.refresh_active_checks(world)
            queues.recheck_all(world)
        case SchedulingWorkload():
            pod_groups.ensure_waiting_pod_groups(world, obj)
        case ResourceFlavor() | Topology():
            queues.recheck_all(world)
        case _:
            pass
    return DONE


_KEPT = ("uid", "created", "consumed", "sampled", "usage")
"""Fields of the existing object that a manifest does not change."""


def _applied(known: Object, obj: Object) -> Object:
    """The object after its manifest was applied to the existing one."""
    kept = {name: getattr(known, name) for name in _KEPT if name in known.__struct_fields__}
    return replace(obj, **kept)

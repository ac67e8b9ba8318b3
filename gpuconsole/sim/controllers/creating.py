"""Objects that are created or, for configuration, replaced."""

from msgspec.structs import replace

from gpuconsole.model.cluster import Node, Pod
from gpuconsole.model.devices import ResourceClaim
from gpuconsole.model.events import HistoryEventKind
from gpuconsole.model.job import Job
from gpuconsole.model.jobs import pod_name
from gpuconsole.model.objects import Object
from gpuconsole.model.provisioning import ProvisioningRequestConfig
from gpuconsole.model.queues import AdmissionCheck, ClusterQueue, Cohort, LocalQueue, ResourceFlavor, Topology
from gpuconsole.model.scheduling_groups import SchedulingWorkload
from gpuconsole.model.storage import PersistentVolumeClaim
from gpuconsole.model.workloads import Workload
from gpuconsole.sim.controllers import active_checks, jobs, pod_groups, queues, quotas
from gpuconsole.sim.controllers.making.training import missing_runtime
from gpuconsole.sim.controllers.refusals import DONE, Refusal
from gpuconsole.sim.controllers.volcano.queues import takes
from gpuconsole.sim.crews import crew_key
from gpuconsole.sim.world import World


def create(world: World, thing: Object) -> Refusal:
    """Create an object as the API server would, or say why not."""
    match thing:
        case Job() | Workload() | Pod():
            return _taken(world, thing) or _unwanted(world, thing) or _arrive(world, thing)
        case _:
            return _configure(world, thing)


def _arrive(world: World, thing: Job | Workload | Pod) -> Refusal:
    match thing:
        case Job():
            jobs.create_job(world, thing)
        case Workload():
            jobs.create_workload(world, thing)
        case Pod():
            jobs.create_pod(world, thing)
    return DONE


def _unwanted(world: World, thing: Job | Workload | Pod) -> Refusal:
    match thing:
        case Job():
            wanted = takes(world, thing) if thing.volcano is not None else missing_runtime(world, thing)
            return wanted or quotas.refusal_of(world, thing)
        case Pod():
            return quotas.refusal_of(world, thing)
        case Workload():
            return quotas.refusal_of(world, thing)


def _taken(world: World, thing: Job | Workload | Pod) -> Refusal:
    kind = thing.kind if isinstance(thing, Job) else type(thing).__name__
    if world.state.get(type(thing), thing.key) is not None:
        return f"{kind} {thing.namespace}/{thing.name} exists already; delete it first, or choose another name"
    if _leaving(world, thing):
        return f"pods of an earlier {kind} {thing.namespace}/{thing.name} are still terminating; retry in a moment"
    return DONE


def _leaving(world: World, thing: Job | Workload | Pod) -> bool:
    """True if pods of an earlier object of this name are still there."""
    if isinstance(thing, Pod):
        return crew_key(thing) in world.crews
    if thing.key in world.crews:
        return True
    job = thing if isinstance(thing, Job) else Job(namespace=thing.namespace, name=thing.name)
    first = thing.pod_sets[0].name if thing.pod_sets else ""
    pod = world.pod(f"{thing.namespace}/{pod_name(job, first, 0)}")
    return pod is not None and pod.deleted > 0


def _configure(world: World, thing: Object) -> Refusal:
    """Put configuration in place, as `kubectl apply` does."""
    if isinstance(thing, LocalQueue):
        jobs.ensure_namespace(world, thing.namespace)
    known = world.state.get(type(thing), thing.key)
    new = known is None
    if new and isinstance(thing, PersistentVolumeClaim | ResourceClaim) and (no := quotas.refusal_of(world, thing)):
        return no
    thing = thing if known is None else _applied(known, thing)
    if thing == known:
        return DONE
    world.put(thing)
    match thing:
        case Node():
            world.tell(
                HistoryEventKind.NODE_UP if new else HistoryEventKind.NODE_CHANGED,
                node=thing.name,
                **world.devices.of_node(thing),
            )
        case ClusterQueue(name=name):
            world.tell(HistoryEventKind.QUEUE_CHANGED, queue=name, reason="Created" if new else "Updated")
            queues.recheck(world, thing)
        case LocalQueue(cluster_queue=name):
            world.tell(
                HistoryEventKind.QUEUE_CHANGED, queue=name, reason="Created" if new else "Updated", message=thing.key
            )
            queues.recheck(world, thing)
        case Cohort(name=name):
            world.tell(HistoryEventKind.QUEUE_CHANGED, reason="Created" if new else "Updated", message=f"Cohort {name}")
            queues.recheck_all(world)
        case AdmissionCheck() | ProvisioningRequestConfig():
            active_checks.refresh(world)
            queues.recheck_all(world)
        case SchedulingWorkload():
            pod_groups.ensure_all(world, thing)
        case ResourceFlavor() | Topology():
            queues.recheck_all(world)
        case _:
            pass
    return DONE


_KEPT = ("uid", "created", "consumed", "sampled", "usage")
"""Fields that no manifest changes."""


def _applied(known: Object, thing: Object) -> Object:
    """The object as it is after its manifest was applied over what is there."""
    kept = {name: getattr(known, name) for name in _KEPT if name in known.__struct_fields__}
    return replace(thing, **kept)

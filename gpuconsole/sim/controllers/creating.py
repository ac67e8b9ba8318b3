"""Objects that are created or, for configuration, replaced."""

from gpuconsole.model.cluster import Node, Pod
from gpuconsole.model.events import What
from gpuconsole.model.objects import Object
from gpuconsole.model.queues import ClusterQueue, Cohort, LocalQueue
from gpuconsole.model.workloads import Job, Workload
from gpuconsole.sim.controllers import jobs, queues
from gpuconsole.sim.controllers.refusals import DONE, Refusal
from gpuconsole.sim.crews import crew_key
from gpuconsole.sim.world import World


def create(world: World, thing: Object) -> Refusal:
    """Create an object as the API server would, or say why not."""
    match thing:
        case Job() | Workload() | Pod():
            return _taken(world, thing) or _arrive(world, thing)
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


def _taken(world: World, thing: Job | Workload | Pod) -> Refusal:
    kind = thing.kind if isinstance(thing, Job) else type(thing).__name__
    if world.state.get(type(thing), thing.key) is not None:
        return f"{kind} {thing.namespace}/{thing.name} exists already; delete it first, or choose another name"
    if (crew_key(thing) if isinstance(thing, Pod) else thing.key) in world.crews:
        return f"pods of an earlier {kind} {thing.namespace}/{thing.name} are still leaving; try again when they are"
    return DONE


def _configure(world: World, thing: Object) -> Refusal:
    """Put configuration in place, as `kubectl apply` does."""
    if isinstance(thing, LocalQueue):
        jobs.ensure_namespace(world, thing.namespace)
    new = world.state.get(type(thing), thing.key) is None
    world.put(thing)
    match thing:
        case Node():
            world.tell(What.NODE_UP if new else What.NODE_CHANGED, node=thing.name, gpus=thing.gpus)
        case ClusterQueue(name=name):
            world.tell(What.QUEUE_CHANGED, queue=name, reason="Created" if new else "Updated")
            queues.recheck(world, thing)
        case LocalQueue(cluster_queue=name):
            world.tell(What.QUEUE_CHANGED, queue=name, reason="Created" if new else "Updated", message=thing.key)
            queues.recheck(world, thing)
        case Cohort(name=name):
            world.tell(What.QUEUE_CHANGED, reason="Created" if new else "Updated", message=f"Cohort {name}")
        case _:
            pass
    return DONE

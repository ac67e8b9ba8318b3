"""Where a Workload stands with its queues: which ClusterQueue it belongs to, and why it cannot even be tried."""

from msgspec.structs import replace

from gpuconsole.model.clock import Time
from gpuconsole.model.events import What
from gpuconsole.model.queues import ClusterQueue, StopPolicy
from gpuconsole.model.workloads import Condition, Workload
from gpuconsole.scheduling.kueue import conditions
from gpuconsole.sim.world import World

INADMISSIBLE = "Inadmissible"
PODS_READY = "PodsReady"


def cluster_queue(world: World, workload: Workload) -> str:
    """The ClusterQueue that a Workload is in, or would be in by its LocalQueue."""
    if workload.admission is not None:
        return workload.admission.cluster_queue
    queue = world.local_queue(workload.local_queue)
    return queue.cluster_queue if queue is not None else ""


def check(world: World, workload: Workload) -> None:
    """Write down why a pending Workload is not tried at all (Kueue workload controller, before scheduling)."""
    current = world.workload(workload.key)
    if current is None or current.reserved or current.finished:
        return
    reason, message = obstacle(world, current)
    if not message:
        return
    changed = conditions.refuse(current, reason, message, world.now)
    if changed is current:
        return
    world.put(replace(changed, parked=False))
    world.tell(
        What.PENDING,
        workload=current.key,
        queue=cluster_queue(world, current),
        reason=reason,
        message=message,
        gpus=current.gpus,
        priority=current.priority,
    )


def obstacle(world: World, workload: Workload) -> tuple[str, str]:
    """Reason and text of what keeps a Workload from being tried; two empty strings if nothing does."""
    if not workload.active:
        return INADMISSIBLE, "The workload is deactivated"
    queue = world.local_queue(workload.local_queue)
    if queue is None:
        return INADMISSIBLE, f"LocalQueue {workload.queue} doesn't exist"
    if queue.stop_policy is not StopPolicy.NONE:
        return INADMISSIBLE, f"LocalQueue {workload.queue} is stopped"
    pool = world.cluster_queue(queue.cluster_queue)
    if pool is None:
        return INADMISSIBLE, f"ClusterQueue {queue.cluster_queue} doesn't exist"
    if pool.stop_policy is not StopPolicy.NONE:
        return INADMISSIBLE, f"ClusterQueue {pool.name} is stopped"
    if not _can_admit(world, pool):
        return INADMISSIBLE, f"ClusterQueue {pool.name} is inactive"
    return "", ""


def _can_admit(world: World, queue: ClusterQueue) -> bool:
    """True if all that a ClusterQueue refers to exists, and its cohorts make no circle."""
    session = world.session
    return session is None or (session.readiness(queue.name).active and queue.name in session.tree.tree.queues)


def ready(workload: Workload, now: Time) -> Workload:
    """All its pods run."""
    message = "All pods reached readiness and the workload is running"
    return workload.with_condition(Condition(PODS_READY, True, "Started", message, now))


def not_ready(workload: Workload, now: Time) -> Workload:
    """Some of its pods do not run any more."""
    if not workload.is_true(PODS_READY):
        return workload
    message = "At least one pod has failed, waiting for recovery"
    return workload.with_condition(Condition(PODS_READY, False, "WaitForRecovery", message, now))

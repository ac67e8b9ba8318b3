"""A Workload's ClusterQueue, and the obstacles that keep it from being tried at all."""

from msgspec.structs import replace

from gpuconsole.model.clock import Time
from gpuconsole.model.events import HistoryEventKind
from gpuconsole.model.workloads import Workload
from gpuconsole.scheduling.kueue import conditions
from gpuconsole.scheduling.kueue.admissibility import inadmissible_reason
from gpuconsole.scheduling.kueue.workload_controller import with_readiness
from gpuconsole.sim.world import World


def cluster_queue_of(world: World, workload: Workload) -> str:
    """The ClusterQueue of a Workload: that of its quota, else that of its LocalQueue."""
    if workload.admission is not None:
        return workload.admission.cluster_queue
    queue = world.local_queue(workload.local_queue)
    return queue.cluster_queue if queue is not None else ""


def record_obstacle(world: World, workload: Workload) -> None:
    """Record why a pending Workload is not tried at all (Kueue workload controller, before scheduling)."""
    current = world.workload(workload.key)
    if current is None or current.reserved or current.finished:
        return
    reason, message = obstacle_of(world, current)
    if not message:
        return
    granular = world.session is not None and world.session.config.granular
    changed = conditions.refuse(current, reason, message, world.now, granular=granular)
    if changed is current:
        return
    world.put(replace(changed, inadmissible=False))
    world.tell(
        HistoryEventKind.PENDING,
        workload=current.key,
        queue=cluster_queue_of(world, current),
        reason=reason,
        message=message,
        priority=current.priority,
        **world.devices.of_workload(current),
    )


def obstacle_of(world: World, workload: Workload) -> tuple[str, str]:
    """Reason and message of what keeps a Workload from being tried; empty strings without an obstacle."""
    session = world.session
    if session is None:
        return "", ""
    if not workload.active and not session.config.granular:
        return conditions.INADMISSIBLE, "The workload is deactivated"
    return inadmissible_reason(workload, session.look_up_queues(workload), session.config)


def with_pods_ready(workload: Workload, now: Time) -> Workload:
    """The workload with PodsReady true: all its pods run."""
    return with_readiness(workload, True, now)


def with_pods_not_ready(workload: Workload, now: Time) -> Workload:
    """The workload with PodsReady false: pods do not run yet, or no longer."""
    return with_readiness(workload, False, now)

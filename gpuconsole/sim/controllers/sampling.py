"""Admission fair sharing: periodic samples of LocalQueue usage (Kueue: localqueue_controller)."""

from msgspec.structs import replace

from gpuconsole.model.events import Applied
from gpuconsole.sim.world import World


def sample_usage(world: World) -> None:
    """Take the samples that are due. Inadmissible workloads are not requeued; only the order of the others changes."""
    world.sample_at = None
    if world.session is not None:
        world.session.sample(world.now)
        world.cycles_due = True


def publish_usage(world: World) -> None:
    """Update the status of LocalQueues whose sampled usage changed."""
    for lately in world.session.afs_usage_changes() if world.session is not None else ():
        queue = world.local_queue(lately.local_queue)
        if queue is not None:
            # The session has it already, and no other decision depends on the status.
            sampled = replace(queue, consumed=lately.consumed, sampled=lately.sampled, usage=lately.usage)
            event = Applied(world.now, sampled)
            world.state.apply(event)
            world.out.append(event)

"""Admission fair sharing: what LocalQueues use is looked at from time to time (Kueue: localqueue_controller)."""

from msgspec.structs import replace

from gpuconsole.model.events import Applied
from gpuconsole.sim.world import World


def sample(world: World) -> None:
    """Take the samples that are due, and write down in their status what the LocalQueues are charged with.

    This wakes nobody who is parked; it changes who of the others is next.
    """
    world.sample_at = None
    if world.session is None:
        return
    for key, ledger in world.session.sample(world.now).items():
        queue = world.local_queue(key)
        if queue is not None:
            # The session knows it already, and nobody else looks at the status.
            event = Applied(world.now, replace(queue, consumed=ledger.consumed, sampled=ledger.updated))
            world.state.apply(event)
            world.out.append(event)
    world.cycles_due = True

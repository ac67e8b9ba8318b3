"""Places in the topology that a workload with quota is given late, or anew because a node failed (the second pass)."""

from gpuconsole.model.clock import Time
from gpuconsole.model.decisions import Admit, Evict, KeepWaiting
from gpuconsole.model.events import HistoryEventKind
from gpuconsole.scheduling.kueue import conditions
from gpuconsole.sim.controllers import eviction, workloads
from gpuconsole.sim.controllers.ungating import ungate
from gpuconsole.sim.world import World

SECOND_PASS_FAILED = "SecondPassFailed"
REPLACED = "NodeReplaced"


def settle(world: World, decision: Admit, at: Time) -> bool:
    """Write down the places of a workload that has its quota already; False if it has none, so that it is admitted.

    Pods that run stay where they are; those that a failed node lost are made again for the new places.
    """
    workload = world.workload(decision.workload)
    if workload is None or not workload.reserved:
        return False
    placed = conditions.reserve(workload, decision.admission, at)
    if not workload.admitted:
        workloads.start(world, placed)
    else:
        world.put(placed)
        nodes = ", ".join(workload.unhealthy_nodes)
        workloads.tell(
            world, HistoryEventKind.PLACES, placed, reason=REPLACED, message=f"Replaced unhealthy node(s): {nodes}"
        )
        ungate(world, placed)
    return True


def still_missing(world: World, decision: KeepWaiting) -> None:
    """A second pass found no places; it is told, and tried again."""
    workload = world.workload(decision.workload)
    if workload is not None:
        workloads.tell(world, HistoryEventKind.PLACES, workload, reason=SECOND_PASS_FAILED, message=decision.message)


def give_up(world: World, decision: Evict) -> None:
    """The scheduler evicts a workload, to make room for nobody."""
    workload = world.workload(decision.workload)
    if workload is not None and workload.reserved and not workload.is_true(conditions.EVICTED):
        if decision.detail:
            workloads.tell(world, HistoryEventKind.PLACES, workload, reason=SECOND_PASS_FAILED, message=decision.detail)
        eviction.evict(world, workload, decision.reason, decision.message)

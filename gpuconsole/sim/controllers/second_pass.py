"""The second scheduling pass: topology assignments for workloads with quota, late or after a node failure."""

from gpuconsole.model.clock import Time
from gpuconsole.model.decisions import Admit, Evict, KeepWaiting
from gpuconsole.model.events import HistoryEventKind
from gpuconsole.scheduling.kueue import conditions
from gpuconsole.sim.controllers import eviction, workloads
from gpuconsole.sim.controllers.ungating import ungate
from gpuconsole.sim.world import World

SECOND_PASS_FAILED = "SecondPassFailed"
NODE_REPLACED = "NodeReplaced"


def settle_second_pass(world: World, decision: Admit, at: Time) -> bool:
    """Record the topology assignment of a workload with quota; False if it has no quota, so that it is admitted.

    Running pods stay where they are; those lost with a node are recreated in the new domains.
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
            world, HistoryEventKind.PLACES, placed, reason=NODE_REPLACED, message=f"Replaced unhealthy node(s): {nodes}"
        )
        ungate(world, placed)
    return True


def retry_second_pass(world: World, decision: KeepWaiting) -> None:
    """Record that a second pass found no assignment, and try again."""
    workload = world.workload(decision.workload)
    if workload is not None:
        workloads.tell(world, HistoryEventKind.PLACES, workload, reason=SECOND_PASS_FAILED, message=decision.message)


def give_up_second_pass(world: World, decision: Evict) -> None:
    """Evict a workload that the scheduler gives up in its second pass."""
    workload = world.workload(decision.workload)
    if workload is not None and workload.reserved and not workload.is_true(conditions.EVICTED):
        if decision.detail:
            workloads.tell(world, HistoryEventKind.PLACES, workload, reason=SECOND_PASS_FAILED, message=decision.detail)
        eviction.evict(world, workload, decision.reason, decision.message)

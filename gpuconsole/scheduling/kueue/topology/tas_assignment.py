"""Adds topology assignments to a flavor assignment, and again once its preemption victims are known.

Kueue 0.19 flavorassigner.assignFlavors and scheduler.updateAssignmentForTAS.
"""

from collections.abc import Sequence

from gpuconsole.scheduling.kueue.assignment import Assignment
from gpuconsole.scheduling.kueue.compiled_config import ClusterQueueConfig
from gpuconsole.scheduling.kueue.context import Context
from gpuconsole.scheduling.kueue.flavor_assignment_mode import FlavorAssignmentMode
from gpuconsole.scheduling.kueue.requests import Holding, WorkloadRequest
from gpuconsole.scheduling.kueue.topology.demand import TasPodSetRequest, demands_of
from gpuconsole.scheduling.kueue.topology.placement import TopologyPlacements, find_places
from gpuconsole.scheduling.kueue.topology_assignments import on_failed_node

Demands = dict[str, list[TasPodSetRequest]]


def demands(context: Context, rules: ClusterQueueConfig, request: WorkloadRequest, assignment: Assignment) -> Demands:
    """Return the topology requests of an assignment by flavor; empty if TAS is disabled or not requested."""
    if not context.gates.topology or not (rules.tas_only or request.asks_for_topology):
        return {}
    elastic = context.gates.layouts.elastic
    return demands_of(assignment, rules, request, context.setup.topologies, elastic=elastic)


def find(context: Context, wanted: Demands, *, empty: bool = False) -> TopologyPlacements:
    """Find topology assignments for the current usage, or with `empty` on topologies without pods."""
    return find_places(wanted, context.snapshot.sites, gates=context.gates.layouts, empty=empty)


def place(context: Context, rules: ClusterQueueConfig, request: WorkloadRequest, assignment: Assignment) -> None:
    """Add topology assignments to an assignment that fits; without them it needs preemption.

    An assignment that needs preemption must fit on topologies without TAS pods, or its mode becomes NO_FIT; then all
    its pod sets with a topology request need preemption. A workload with a failed node skips this check.
    """
    wanted = demands(context, rules, request, assignment) if assignment.mode != FlavorAssignmentMode.NO_FIT else {}
    if not wanted:
        return
    if assignment.mode == FlavorAssignmentMode.FIT:
        placed = find(context, wanted)
        if not placed.failed:
            assignment.settle(placed.places)
            return
        failed = assignment.result(placed.failed)
        failed.reasons.append(placed.reason)
        assignment.downgrade(failed, FlavorAssignmentMode.PREEMPT)
    if assignment.mode == FlavorAssignmentMode.PREEMPT and not request.workload.unhealthy_nodes:
        placed = find(context, wanted, empty=True)
        if placed.failed:
            named = ((flavor, demand.pod_set.name) for flavor, group in wanted.items() for demand in group)
            flavor = next(flavor for flavor, name in named if name == placed.failed)
            assignment.unplace(assignment.result(placed.failed), flavor)
            return
        for demand in (demand for group in wanted.values() for demand in group):
            assignment.downgrade(assignment.result(demand.pod_set.name), FlavorAssignmentMode.PREEMPT)


def place_after_preemption(
    context: Context,
    rules: ClusterQueueConfig,
    request: WorkloadRequest,
    assignment: Assignment,
    victims: Sequence[Holding],
) -> None:
    """Record the topology assignment once the victims are removed; without victims, the one on empty topologies.

    That one reserves its capacity, so that later entries of the cycle do not take it.
    """
    if assignment.mode != FlavorAssignmentMode.PREEMPT or on_failed_node(request.workload):
        return
    wanted = demands(context, rules, request, assignment)
    if wanted:
        with context.snapshot.revertible():
            context.snapshot.remove_all(victims)
            placed = find(context, wanted, empty=not victims)
        assignment.settle(placed.places)

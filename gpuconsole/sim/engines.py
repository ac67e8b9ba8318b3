"""Selects the placement engine of a simulation by its policy."""

from typing import assert_never

from gpuconsole.scheduling.kai.config import KaiPolicy
from gpuconsole.scheduling.kube.profile import PlacementPolicy
from gpuconsole.scheduling.kube.session import KubePlacement
from gpuconsole.scheduling.multi_scheduler import MultiScheduler
from gpuconsole.scheduling.placement import PlacementEngine
from gpuconsole.scheduling.volcano.config import VolcanoPolicy
from gpuconsole.sim.policy import SimPolicy


def first_group_phase(policy: SimPolicy) -> str:
    """The initial phase of a PodGroup: Pending with Volcano, else Inqueue, as no other engine enqueues PodGroups."""
    return (
        "Pending" if isinstance(policy.placement, VolcanoPolicy) or policy.second_scheduler is not None else "Inqueue"
    )


def placement_engine(policy: SimPolicy) -> PlacementEngine:
    """The placement of a simulation's pods: one engine, or two side by side."""
    first = _engine(policy.placement)
    return (
        first
        if policy.second_scheduler is None
        else MultiScheduler(first, _engine(policy.second_scheduler), policy.second_scheduler.scheduler)
    )


def _engine(policy: PlacementPolicy | VolcanoPolicy | KaiPolicy) -> PlacementEngine:
    """A new engine for this policy; imports only that engine."""
    match policy:
        case PlacementPolicy():
            return KubePlacement(policy)
        case VolcanoPolicy():
            from gpuconsole.scheduling.volcano.engine import VolcanoPlacement

            return VolcanoPlacement(policy)
        case KaiPolicy():
            from gpuconsole.scheduling.kai.engine import KaiPlacement

            return KaiPlacement(policy)
        case _:
            assert_never(policy)

"""Which engine places pods: the policy's type says it."""

from gpuconsole.scheduling.kube.policy import PlacementPolicy
from gpuconsole.scheduling.kube.session import Placement
from gpuconsole.scheduling.placement import PlacementEngine


def first_group_phase(policy: PlacementPolicy) -> str:
    """The phase that a new PodGroup has: an engine that knows no queue of PodGroups lets each in at once."""
    return "Inqueue"


def placement_engine(policy: PlacementPolicy) -> PlacementEngine:
    """A new engine for this policy."""
    return Placement(policy)

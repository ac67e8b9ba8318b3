"""Which engine places pods: the policy's type says it."""

from gpuconsole.scheduling.kube.policy import PlacementPolicy
from gpuconsole.scheduling.kube.session import Placement
from gpuconsole.scheduling.placement import PlacementEngine


def placement_engine(policy: PlacementPolicy) -> PlacementEngine:
    """A new engine for this policy."""
    return Placement(policy)

"""Pod placement by kube-scheduler's rules, with gangs that are placed whole.

Deterministic: where kube-scheduler breaks ties at random, the first node by name wins (plain text order, so `n10` comes
before `n2`); every node is filtered and scored, not a sample; pods of equal priority and creation go by key. Left out
here: disruption budgets, host ports, volumes, pod affinity and spread constraints, balanced allocation, image locality.
"""

from gpuconsole.scheduling.kube.policy import PlacementPolicy
from gpuconsole.scheduling.kube.session import Placement

__all__ = ["Placement", "PlacementPolicy"]

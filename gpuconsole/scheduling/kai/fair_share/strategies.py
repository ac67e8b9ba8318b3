"""Reclaim strategies: conditions under which a queue's resources may be reclaimed (KAI 0.13
proportion/reclaimable/strategies).
"""

from collections.abc import Mapping

from gpuconsole.scheduling.kai.fair_share.quantities import plus, within
from gpuconsole.scheduling.kai.fair_share.shares import QueueShares


def maintains_fair_share(victim: QueueShares, left: Mapping[str, float]) -> bool:
    """True if the victim's queue still holds more than its allocatable share."""
    return not within(left, victim.allocatable)


def guarantees_quota(
    needed: Mapping[str, float], reclaimer: QueueShares, victim: QueueShares, left: Mapping[str, float]
) -> bool:
    """True if the reclaimer stays within its quota in all resources and the victim's queue is above its own in one."""
    return within(plus(reclaimer.allocated, needed), reclaimer.deserved) and not within(left, victim.deserved)


def may_take(
    needed: Mapping[str, float], reclaimer: QueueShares, victim: QueueShares, left: Mapping[str, float]
) -> bool:
    """True if one of the strategies allows it; `left` is what the victim's queue holds after what was taken so far."""
    return maintains_fair_share(victim, left) or guarantees_quota(needed, reclaimer, victim, left)

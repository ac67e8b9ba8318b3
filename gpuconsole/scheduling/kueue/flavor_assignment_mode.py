"""Rates how well a flavor suits a request, and compares two ratings for a ClusterQueue (Kueue 0.19 flavorassigner)."""

from enum import IntEnum

from gpuconsole.model.queues import FlavorFungibility, Fungibility, FungibilityPreference


class FlavorAssignmentMode(IntEnum):
    """Degree to which a flavor is usable, worst first."""

    NO_FIT = 0
    """Neither now nor by preemption."""
    NO_CANDIDATES = 1
    """Preemption could help, but there are no candidates."""
    PREEMPT = 2
    """By preemption, also in the own ClusterQueue."""
    RECLAIM = 3
    """By preemption in other ClusterQueues only."""
    FIT = 4


ModeAndHeight = tuple[FlavorAssignmentMode, int]
"""A mode and its borrowing level (0 = does not borrow)."""

WORST: ModeAndHeight = (FlavorAssignmentMode.NO_FIT, 1 << 62)
BEST: ModeAndHeight = (FlavorAssignmentMode.FIT, 0)


def preferred(a: ModeAndHeight, b: ModeAndHeight, fungibility: FlavorFungibility) -> bool:
    """True if outcome `a` is better than `b` for a ClusterQueue with this fungibility (isPreferred)."""
    if a[0] == FlavorAssignmentMode.NO_FIT:
        return False
    if b[0] == FlavorAssignmentMode.NO_FIT:
        return True
    if (a[0] == FlavorAssignmentMode.NO_CANDIDATES) != (b[0] == FlavorAssignmentMode.NO_CANDIDATES):
        return a[0] != FlavorAssignmentMode.NO_CANDIDATES
    if fungibility.preference == FungibilityPreference.PREEMPTION_OVER_BORROWING:
        return (a[1], -a[0]) < (b[1], -b[0])
    return (-a[0], a[1]) < (-b[0], b[1])


def stops_search(outcome: ModeAndHeight, fungibility: FlavorFungibility) -> bool:
    """True if the search stops at a flavor with this outcome (shouldTryNextFlavor)."""
    mode, height = outcome
    if mode in (FlavorAssignmentMode.NO_FIT, FlavorAssignmentMode.NO_CANDIDATES):
        return False
    if (
        mode in (FlavorAssignmentMode.PREEMPT, FlavorAssignmentMode.RECLAIM)
        and fungibility.when_can_preempt == Fungibility.TRY_NEXT_FLAVOR
    ):
        return False
    return height == 0 or fungibility.when_can_borrow != Fungibility.TRY_NEXT_FLAVOR

"""What Kueue's Configuration and feature gates say, as far as admission depends on them (0.19.2 defaults)."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from msgspec import Struct

GATES: Mapping[str, bool] = {
    "FairSharingPreemptWithinNominal": True,
    "FairSharingPrioritizeNonBorrowing": True,
    "FlavorFungibility": True,
    "FlavorFungibilityPreserveScanProgress": True,
    "PartialAdmission": True,
    "PrioritizePreemptorWorkloads": False,
    "PriorityBoost": False,
    "PrioritySortingWithinCohort": True,
    "ReclaimablePods": True,
    "RecomputeAssignmentUponPreemptionTargetsOverlap": False,
    "SchedulerTimestampPreemptionBuffer": False,
    "SchedulingEquivalenceHashing": True,
    "TASBalancedPlacement": False,
    "TASProfileMixed": True,
    "TASRespectNodeAffinityPreferred": False,
    "TASRecomputeAssignmentWithinSchedulingCycle": True,
    "TopologyAwareScheduling": True,
}
"""The feature gates that change a decision here, with their defaults. Any other gate has no effect on admission."""


class Strategy(StrEnum):
    """When fair sharing may preempt: compares shares after the incoming workload."""

    LESS_THAN_OR_EQUAL_TO_FINAL_SHARE = "LessThanOrEqualToFinalShare"
    LESS_THAN_INITIAL_SHARE = "LessThanInitialShare"


BOTH = (Strategy.LESS_THAN_OR_EQUAL_TO_FINAL_SHARE, Strategy.LESS_THAN_INITIAL_SHARE)


class KueueConfig(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The settings of one Kueue installation."""

    fair_sharing: bool = False
    strategies: tuple[Strategy, ...] = BOTH
    """Preemption strategies of fair sharing, in the order in which they are tried."""
    requeuing_timestamp: str = "Eviction"
    """waitForPodsReady.requeuingStrategy.timestamp: `Eviction` or `Creation`."""
    ignore_undeclared: bool = False
    """resources.quotaCheckStrategy IgnoreUndeclared: resources that a ClusterQueue does not name need no quota."""
    exclude_resource_prefixes: tuple[str, ...] = ()
    gates: Mapping[str, bool] = {}
    """Feature gates that differ from their defaults."""

    def enabled(self, gate: str) -> bool:
        """True if a gate of `GATES` is on."""
        return self.gates.get(gate, GATES[gate])


DEFAULT = KueueConfig()


def from_scenario(document: Mapping[str, Any]) -> KueueConfig:
    """Read what a scenario says: `fairSharingEnabled`, `fairSharing`, `featureGates`. ValueError for a bad strategy."""
    return KueueConfig(
        fair_sharing=bool(document.get("fairSharingEnabled", False)),
        strategies=tuple(Strategy(name) for name in document.get("fairSharing") or ()) or BOTH,
        gates=dict(document.get("featureGates") or {}),
    )

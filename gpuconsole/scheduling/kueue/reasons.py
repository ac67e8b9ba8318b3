"""Granular reasons: why a workload has no quota, in QuotaReserved=False (gate UnadmittedWorkloadsObservability).

Without that gate the reason is `PENDING` or `WAITING` (Kueue 0.19 workload_types.go, flavorassigner.go).
"""

from collections.abc import Iterable
from enum import StrEnum


class GranularReason(StrEnum):
    """The granular reasons that the scheduler sets."""

    NONE = ""
    TOPOLOGY_PLACEMENT_FAILED = "TopologyPlacementFailed"
    WAITING_FOR_QUOTA = "WaitingForQuota"
    EXCEEDS_MAX_QUOTA = "ExceedsMaxQuota"
    NO_MATCHING_FLAVOR = "NoMatchingFlavor"
    WAITING_FOR_PREEMPTED_WORKLOADS = "WaitingForPreemptedWorkloads"
    WAITING_FOR_PODS_READY = "WaitingForPodsReady"
    MISCONFIGURED = "Misconfigured"
    SUSPENDED = "Suspended"
    PENDING_EVALUATION = "PendingEvaluation"
    ADMISSION_GATED = "AdmissionGated"


PENDING = "Pending"
"""The reason for all other causes while the gate is off."""
WAITING = "Waiting"
"""The reason, while the gate is off, of a workload blocked by waitForPodsReady."""

_SEVERITY = {
    GranularReason.TOPOLOGY_PLACEMENT_FAILED: 1,
    GranularReason.WAITING_FOR_QUOTA: 2,
    GranularReason.EXCEEDS_MAX_QUOTA: 3,
    GranularReason.NO_MATCHING_FLAVOR: 4,
}


def severity(reason: GranularReason) -> int:
    """Return how little waiting helps, 4 the least; 0 for reasons other than those why no flavor fits."""
    return _SEVERITY.get(reason, 0)


def most_severe(reasons: Iterable[GranularReason]) -> GranularReason:
    """Return the most severe reason; NONE if there are none."""
    return max(reasons, key=severity, default=GranularReason.NONE)

"""Why a workload has no quota, in one word: what QuotaReserved=False says behind UnadmittedWorkloadsObservability.

Without that gate the word is `Pending`, whatever the cause (Kueue 0.19 workload_types.go, flavorassigner.go).
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
"""The word for all of them while the gate is off."""
WAITING = "Waiting"
"""While the gate is off: for a workload that waits until those before it are ready."""

_SEVERITY = {
    GranularReason.TOPOLOGY_PLACEMENT_FAILED: 1,
    GranularReason.WAITING_FOR_QUOTA: 2,
    GranularReason.EXCEEDS_MAX_QUOTA: 3,
    GranularReason.NO_MATCHING_FLAVOR: 4,
}


def severity(reason: GranularReason) -> int:
    """How little waiting helps; only the reasons why no flavor fits are compared."""
    return _SEVERITY.get(reason, 0)


def most_severe(reasons: Iterable[GranularReason]) -> GranularReason:
    """The one that has to be overcome in any case; none of none."""
    return max(reasons, key=severity, default=GranularReason.NONE)

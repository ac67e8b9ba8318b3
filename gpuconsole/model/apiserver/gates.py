"""Kueue's feature gates that change what its API accepts, with the defaults of 0.19."""

from collections.abc import Mapping

Gates = Mapping[str, bool]
"""Gates that differ from their defaults, by name."""

NO_GATES: Gates = {}
DEFAULTS: Gates = {
    "AdmissionGatedBy": True,
    "ConcurrentAdmission": False,
    "ElasticJobsViaWorkloadSlices": True,
    "LWSImmutableGroupSize": True,
    "PartialAdmission": True,
    "PriorityBoost": False,
    "RejectUpdatesToCQWithInvalidOnFlavors": False,
    "TASMultiLayerTopology": True,
    "TASValidateWorkloadSliceSize": True,
    "TopologyAwareScheduling": True,
    "ValidateRayAndSparkJobUpdates": True,
    "WorkloadIdentifierAnnotations": True,
    "WorkloadValidateResourcesAreNonNegative": True,
    "WorkloadValidationForPodSetMetadata": True,
}


def enabled(gates: Gates, name: str) -> bool:
    """True if a feature gate is on: as set, or else by default."""
    return gates.get(name, DEFAULTS[name])

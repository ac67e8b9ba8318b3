"""Kueue's feature gates (0.19.2): each with its default and stage, and what an unknown or locked one is answered."""

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from enum import StrEnum

from msgspec import Struct


class Stage(StrEnum):
    """How far a feature has come."""

    ALPHA = "Alpha"
    BETA = "Beta"
    GA = "GA"
    DEPRECATED = "Deprecated"


class Gate(Struct, frozen=True):
    """One feature gate."""

    default: bool
    stage: Stage
    locked: bool = False
    """The default cannot be changed."""


_GROUPS: tuple[tuple[Gate, str], ...] = (
    (
        Gate(True, Stage.GA, locked=True),
        """HierarchicalCohorts ManagedJobsNamespaceSelectorAlwaysRespected MultiKueueRedoAdmissionOnEvictionInWorker
        MultiKueueWaitForWorkloadAdmitted ObjectRetentionPolicies PropagateBatchJobLabelsToWorkload
        SkipFinalizersForPodsSuspendedByParent""",
    ),
    (
        Gate(True, Stage.BETA),
        """AdmissionFairSharing AdmissionGatedBy AssignQueueLabelsForPods CleanupProvisioningRequestsOnEviction
        DeferRayServiceFinalizationForRedisCleanup ElasticJobsViaWorkloadSlices FairSharingPreemptWithinNominal
        FairSharingPrioritizeNonBorrowing FinishOrphanedWorkloads FlavorFungibility
        FlavorFungibilityPreserveScanProgress KueueDRAIntegration KueueDRAIntegrationExtendedResource
        KueueDRAIntegrationPartitionableDevices KueueDRARejectWorkloadsWhenDRADisabled LWSImmutableGroupSize
        LocalQueueMetrics MetricForWorkloadCreationLatency MetricsForCohorts MultiKueue
        MultiKueueAdaptersForCustomJobs MultiKueueIncrementalDispatcherConfig
        MultiKueueIncrementalDispatcherRespectConfigOrder MultiKueueRemoteSpecSync PartialAdmission
        PodIntegrationValidateGroupOwner PrioritySortingWithinCohort QuotaCheckStrategy ReclaimablePods
        RemoveFinalizersWithStrictPatch SchedulingEquivalenceHashing SkipAncestorCheckForDeletedWorkloads
        SkipReassignmentForPodOwnedWorkloads TASAssignmentsEncodingByHostnamePrefix TASCacheNodeMatchResults
        TASCachingRemainingResources TASFailedNodeReplacement TASFailedNodeReplacementFailFast
        TASHandleOverlappingFlavors TASMultiLayerTopology TASProfileMixed TASRecomputeAssignmentWithinSchedulingCycle
        TASReplaceNodeOnNodeTaints TASReplaceNodeOnPodTermination TASValidateWorkloadSliceSize TLSOptions
        TopologyAwareScheduling ValidateRayAndSparkJobUpdates VectorizedResourceRequests VisibilityOnDemand
        WorkloadIdentifierAnnotations WorkloadValidateResourcesAreNonNegative WorkloadValidationForPodSetMetadata""",
    ),
    (Gate(False, Stage.BETA), "UnadmittedWorkloadsExplicitStatus UnadmittedWorkloadsObservability"),
    (
        Gate(False, Stage.ALPHA),
        """ConcurrentAdmission CustomMetricLabels DisableWaitForPodsReady ElasticJobsViaWorkloadSlicesWithTAS
        FailureRecoveryPolicy FastQuotaReleaseInPodIntegration KueueDRAIntegrationConsumableCapacity
        MultiKueueClusterProfile MultiKueueKubeConfigPathValidation MultiKueueManagerQuotaAutomation
        MultiKueueOrchestratedPreemption PrioritizePreemptorWorkloads PriorityBoost
        RecomputeAssignmentUponPreemptionTargetsOverlap RejectUpdatesToCQWithInvalidOnFlavors
        SchedulerLibraryIntegration SchedulerLongRequeueInterval SchedulerTimestampPreemptionBuffer ShortWorkloadNames
        SparkApplicationIntegration TASBalancedPlacement TASCacheTopologyTree TASRespectNodeAffinityPreferred
        WorkloadPriorityClassDefaulting WorkloadRequestUseMergePatch""",
    ),
    (Gate(False, Stage.DEPRECATED), "TASReplaceNodeDueToNotReadyOverFixedTime"),
    (Gate(False, Stage.DEPRECATED, locked=True), "MultiKueueAllowInsecureKubeconfigs"),
)

KNOWN: Mapping[str, Gate] = {name: gate for gate, names in _GROUPS for name in sorted(names.split())}
"""Every gate, by its name."""

DEFAULTS: Mapping[str, bool] = {name: gate.default for name, gate in KNOWN.items()}

STAGES = {"AllAlpha": Stage.ALPHA, "AllBeta": Stage.BETA}
"""Names that stand for all gates of a stage that are not named themselves."""

_NEEDS: Mapping[str, tuple[str, ...]] = {
    "TASHandleOverlappingFlavors": ("TopologyAwareScheduling",),
    "TASFailedNodeReplacement": ("TopologyAwareScheduling",),
    "TASFailedNodeReplacementFailFast": ("TopologyAwareScheduling", "TASFailedNodeReplacement"),
    "TASReplaceNodeOnPodTermination": ("TopologyAwareScheduling", "TASFailedNodeReplacement"),
    "TASReplaceNodeDueToNotReadyOverFixedTime": ("TopologyAwareScheduling", "TASFailedNodeReplacement"),
    "TASBalancedPlacement": ("TopologyAwareScheduling",),
    "TASReplaceNodeOnNodeTaints": ("TopologyAwareScheduling",),
    "TASMultiLayerTopology": ("TopologyAwareScheduling",),
    "TASRespectNodeAffinityPreferred": ("TopologyAwareScheduling",),
    "TASRecomputeAssignmentWithinSchedulingCycle": ("TopologyAwareScheduling",),
    "UnadmittedWorkloadsExplicitStatus": ("UnadmittedWorkloadsObservability",),
    "ElasticJobsViaWorkloadSlicesWithTAS": ("ElasticJobsViaWorkloadSlices", "TopologyAwareScheduling"),
    "KueueDRAIntegrationExtendedResource": ("KueueDRAIntegration",),
    "KueueDRAIntegrationPartitionableDevices": ("KueueDRAIntegration",),
    "KueueDRAIntegrationConsumableCapacity": ("KueueDRAIntegration",),
}
"""Gates without effect unless others are on, in the order in which Kueue checks them."""


def resolve(named: Mapping[str, bool]) -> dict[str, bool]:
    """The gates that differ from their defaults, `AllAlpha` and `AllBeta` spelled out; unknown names are dropped."""
    chosen: dict[str, bool] = {}
    for name, gate in KNOWN.items():
        stages = [all_of for all_of, stage in STAGES.items() if stage is gate.stage and all_of in named]
        wanted = named.get(name, named[stages[0]] if stages and not gate.locked else gate.default)
        if wanted != gate.default:
            chosen[name] = wanted
    return chosen


def refusals(named: Mapping[str, bool]) -> Iterator[tuple[str, str]]:
    """Names that cannot be set so, each with why (Kubernetes featuregate SetFromMap)."""
    for name, on in named.items():
        gate = KNOWN.get(name)
        if gate is None and name not in STAGES:
            yield name, f"unrecognized feature gate: {name}; did you mean {nearest(name)}?"
        elif gate is not None and gate.locked and on != gate.default:
            locked = _word(gate.default)
            yield name, f"cannot set feature gate {name} to {_word(on)}, feature is locked to {locked}"


def nearest(name: str) -> str:
    """The known gate whose name is most like `name`."""
    by_lower = {known.lower(): known for known in KNOWN}
    return by_lower[get_close_matches(name.lower(), by_lower, n=1, cutoff=0.0)[0]]


def contradictions(named: Mapping[str, bool]) -> Iterator[tuple[object, str]]:
    """Gates that are on without those they need (Kueue 0.19 config: LoadAndValidateFeatureGates): what, and why."""
    on = {**DEFAULTS, **resolve(named)}
    if on["TASProfileMixed"] and not on["TopologyAwareScheduling"]:
        yield 1, "cannot use a TAS profile with TAS disabled"
    for name, needed in _NEEDS.items():
        for other in needed:
            if on[name] and not on[other]:
                yield name, f"{name} requires {other} to be enabled"


def _word(on: bool) -> str:
    return "true" if on else "false"

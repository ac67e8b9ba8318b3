"""Kueue's feature gates (0.19.2) with defaults and stages, and the errors for unknown or locked gates."""

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from enum import StrEnum

from msgspec import Struct


class FeatureStage(StrEnum):
    """Maturity stage of a feature."""

    ALPHA = "Alpha"
    BETA = "Beta"
    GA = "GA"
    DEPRECATED = "Deprecated"


class FeatureGate(Struct, frozen=True):
    """One feature gate."""

    default: bool
    stage: FeatureStage
    locked: bool = False
    """The default cannot be changed."""


_GROUPS: tuple[tuple[FeatureGate, str], ...] = (
    (
        FeatureGate(True, FeatureStage.GA, locked=True),
        """HierarchicalCohorts ManagedJobsNamespaceSelectorAlwaysRespected MultiKueueRedoAdmissionOnEvictionInWorker
        MultiKueueWaitForWorkloadAdmitted ObjectRetentionPolicies PropagateBatchJobLabelsToWorkload
        SkipFinalizersForPodsSuspendedByParent""",
    ),
    (
        FeatureGate(True, FeatureStage.BETA),
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
    (FeatureGate(False, FeatureStage.BETA), "UnadmittedWorkloadsExplicitStatus UnadmittedWorkloadsObservability"),
    (
        FeatureGate(False, FeatureStage.ALPHA),
        """ConcurrentAdmission CustomMetricLabels DisableWaitForPodsReady ElasticJobsViaWorkloadSlicesWithTAS
        FailureRecoveryPolicy FastQuotaReleaseInPodIntegration KueueDRAIntegrationConsumableCapacity
        MultiKueueClusterProfile MultiKueueKubeConfigPathValidation MultiKueueManagerQuotaAutomation
        MultiKueueOrchestratedPreemption PrioritizePreemptorWorkloads PriorityBoost
        RecomputeAssignmentUponPreemptionTargetsOverlap RejectUpdatesToCQWithInvalidOnFlavors
        SchedulerLibraryIntegration SchedulerLongRequeueInterval SchedulerTimestampPreemptionBuffer ShortWorkloadNames
        SparkApplicationIntegration TASBalancedPlacement TASCacheTopologyTree TASRespectNodeAffinityPreferred
        WorkloadPriorityClassDefaulting WorkloadRequestUseMergePatch""",
    ),
    (FeatureGate(False, FeatureStage.DEPRECATED), "TASReplaceNodeDueToNotReadyOverFixedTime"),
    (FeatureGate(False, FeatureStage.DEPRECATED, locked=True), "MultiKueueAllowInsecureKubeconfigs"),
)

KNOWN: Mapping[str, FeatureGate] = {name: gate for gate, names in _GROUPS for name in sorted(names.split())}
"""Every gate, by its name."""

DEFAULTS: Mapping[str, bool] = {name: gate.default for name, gate in KNOWN.items()}

STAGES = {"AllAlpha": FeatureStage.ALPHA, "AllBeta": FeatureStage.BETA}
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
"""Gate → gates that it requires, in the order in which Kueue checks them."""


_WORDS = {
    **dict.fromkeys(("1", "t", "T", "true", "TRUE", "True"), True),
    **dict.fromkeys(("0", "f", "F", "false", "FALSE", "False"), False),
}


def resolve(named: Mapping[str, bool]) -> dict[str, bool]:
    """Return the gates that differ from their defaults, with `AllAlpha` and `AllBeta` applied; unknown names are
    dropped.
    """
    chosen: dict[str, bool] = {}
    for name, gate in KNOWN.items():
        stages = [all_of for all_of, stage in STAGES.items() if stage is gate.stage and all_of in named]
        wanted = named.get(name, named[stages[0]] if stages and not gate.locked else gate.default)
        if wanted != gate.default:
            chosen[name] = wanted
    return chosen


def parse(text: str) -> dict[str, bool]:
    """Read `A=true,B=false`, as Kueue's option --feature-gates. Raises ValueError with Kueue's message."""
    named: dict[str, bool] = {}
    for part in filter(None, map(str.strip, text.split(","))):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals:
            raise ValueError(f"missing bool value for {name}")
        if value not in _WORDS:
            syntax = f'strconv.ParseBool: parsing "{value}": invalid syntax'
            raise ValueError(f"invalid value of {name}={value}, err: {syntax}")
        named[name] = _WORDS[value]
    return named


def refusals(named: Mapping[str, bool]) -> Iterator[tuple[str, str]]:
    """Yield the gates that cannot be set to these values, with the reason (Kubernetes featuregate SetFromMap)."""
    for name, on in named.items():
        gate = KNOWN.get(name)
        if gate is None and name not in STAGES:
            yield name, f"unrecognized feature gate: {name}"
        elif gate is not None and gate.locked and on != gate.default:
            locked = _word(gate.default)
            yield name, f"cannot set feature gate {name} to {_word(on)}, feature is locked to {locked}"


def remedy(name: str) -> str:
    """Suggest a correction for a rejected gate name."""
    return "leave it out" if name in KNOWN else f"did you mean {nearest(name)}?"


def problems(text: str, named: Mapping[str, bool] | None, before: Mapping[str, bool] = {}) -> list[str]:
    """Return Kueue's errors for gates given as an option and in the Configuration, on top of `before`.

    Gates that cannot be set hide all other errors (0.19 config: LoadAndValidateFeatureGates).
    """
    try:
        chosen = parse(text) if text else dict(named or {})
    except ValueError as error:
        return [str(error)]
    refused = [why for _, why in refusals(chosen)]
    if refused:
        return [refused[0] if len(refused) == 1 else f"[{', '.join(refused)}]"]
    twice = ["feature gates for CLI and configuration cannot both specified"] if text and named is not None else []
    return [*twice, *(why for _, why in contradictions({**before, **chosen}))]


def nearest(name: str) -> str:
    """Return the known gate with the most similar name."""
    by_lower = {known.lower(): known for known in KNOWN}
    return by_lower[get_close_matches(name.lower(), by_lower, n=1, cutoff=0.0)[0]]


def contradictions(named: Mapping[str, bool]) -> Iterator[tuple[object, str]]:
    """Yield gates that lack a gate they require, with the reason (0.19 config: LoadAndValidateFeatureGates)."""
    on = {**DEFAULTS, **resolve(named)}
    if on["TASProfileMixed"] and not on["TopologyAwareScheduling"]:
        yield 1, "cannot use a TAS profile with TAS disabled"
    for name, needed in _NEEDS.items():
        for other in needed:
            if on[name] and not on[other]:
                yield name, f"{name} requires {other} to be enabled"


def _word(on: bool) -> str:
    return "true" if on else "false"

"""The settings and feature gates of one Kueue installation, as far as admission depends on them (0.19.2 defaults).

`KueueConfig` holds them. The gates come with their defaults and stages, and with Kueue's errors for unknown, locked and
contradictory ones. `without_excluded` and `apply_transformations` turn a pod's requests into quota requests
(Configuration: `resources`; Kueue 0.19 pkg/workload/workload.go dropExcludedResources, applyResourceTransformations).
`ClassMap` maps device classes to the quota resources that are charged for them (Configuration:
`resources.deviceClassMappings`).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from enum import StrEnum
from fractions import Fraction
from functools import lru_cache
from typing import Any

from msgspec import Struct

from gpuconsole.model.clock import MINUTE, SECOND, Span
from gpuconsole.model.queues import ClusterQueue, Cohort
from gpuconsole.model.resources import CPU, GPU, HAMI_CORES, HAMI_MEMORY, Resources, parse_quantity, to_int


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
    is_locked: bool = False
    """True if the default cannot be changed."""


_GATE_GROUPS: tuple[tuple[FeatureGate, str], ...] = (
    (
        FeatureGate(True, FeatureStage.GA, is_locked=True),
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
    (FeatureGate(False, FeatureStage.DEPRECATED, is_locked=True), "MultiKueueAllowInsecureKubeconfigs"),
)

KNOWN_GATES: Mapping[str, FeatureGate] = {name: gate for gate, names in _GATE_GROUPS for name in sorted(names.split())}
"""Every gate, by its name."""

GATE_DEFAULTS: Mapping[str, bool] = {name: gate.default for name, gate in KNOWN_GATES.items()}
"""Every feature gate of Kueue 0.19.2 with its default; those that no rule here reads change no decision."""

STAGE_GATES = {"AllAlpha": FeatureStage.ALPHA, "AllBeta": FeatureStage.BETA}
"""Names that stand for all gates of a stage that are not named themselves."""

_REQUIRED_GATES: Mapping[str, tuple[str, ...]] = {
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


_BOOLEANS = {
    **dict.fromkeys(("1", "t", "T", "true", "TRUE", "True"), True),
    **dict.fromkeys(("0", "f", "F", "false", "FALSE", "False"), False),
}


def resolve_gates(named: Mapping[str, bool]) -> dict[str, bool]:
    """Return the gates that differ from their defaults, with `AllAlpha` and `AllBeta` applied; unknown names are
    dropped.
    """
    chosen: dict[str, bool] = {}
    for name, gate in KNOWN_GATES.items():
        stages = [all_of for all_of, stage in STAGE_GATES.items() if stage is gate.stage and all_of in named]
        wanted = named.get(name, named[stages[0]] if stages and not gate.is_locked else gate.default)
        if wanted != gate.default:
            chosen[name] = wanted
    return chosen


def parse_gates(text: str) -> dict[str, bool]:
    """Read `A=true,B=false`, as Kueue's option --feature-gates. Raises ValueError with Kueue's message."""
    named: dict[str, bool] = {}
    for part in filter(None, map(str.strip, text.split(","))):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals:
            raise ValueError(f"missing bool value for {name}")
        if value not in _BOOLEANS:
            syntax = f'strconv.ParseBool: parsing "{value}": invalid syntax'
            raise ValueError(f"invalid value of {name}={value}, err: {syntax}")
        named[name] = _BOOLEANS[value]
    return named


def gate_refusals(named: Mapping[str, bool]) -> Iterator[tuple[str, str]]:
    """Yield the gates that cannot be set to these values, with the reason (Kubernetes featuregate SetFromMap)."""
    for name, on in named.items():
        gate = KNOWN_GATES.get(name)
        if gate is None and name not in STAGE_GATES:
            yield name, f"unrecognized feature gate: {name}"
        elif gate is not None and gate.is_locked and on != gate.default:
            locked = _boolean_text(gate.default)
            yield name, f"cannot set feature gate {name} to {_boolean_text(on)}, feature is locked to {locked}"


def gate_remedy(name: str) -> str:
    """Suggest a correction for a rejected gate name."""
    return "leave it out" if name in KNOWN_GATES else f"did you mean {nearest_gate(name)}?"


def gate_errors(text: str, named: Mapping[str, bool] | None, before: Mapping[str, bool] = {}) -> list[str]:
    """Return Kueue's errors for gates given as the option --feature-gates (`text`) and in the Configuration (`named`).

    `before` are the gates that are set already.

    Gates that cannot be set hide all other errors (0.19 config: LoadAndValidateFeatureGates).
    """
    try:
        chosen = parse_gates(text) if text else dict(named or {})
    except ValueError as error:
        return [str(error)]
    refused = [why for _, why in gate_refusals(chosen)]
    if refused:
        return [refused[0] if len(refused) == 1 else f"[{', '.join(refused)}]"]
    twice = ["feature gates for CLI and configuration cannot both specified"] if text and named is not None else []
    return [*twice, *(why for _, why in contradictory_gates({**before, **chosen}))]


def nearest_gate(name: str) -> str:
    """Return the known gate with the most similar name."""
    by_lower = {known.lower(): known for known in KNOWN_GATES}
    return by_lower[get_close_matches(name.lower(), by_lower, n=1, cutoff=0.0)[0]]


def contradictory_gates(named: Mapping[str, bool]) -> Iterator[tuple[object, str]]:
    """Yield (gate, error) for gates that require a gate that is off (0.19 config: LoadAndValidateFeatureGates)."""
    on = {**GATE_DEFAULTS, **resolve_gates(named)}
    if on["TASProfileMixed"] and not on["TopologyAwareScheduling"]:
        yield 1, "cannot use a TAS profile with TAS disabled"
    for name, needed in _REQUIRED_GATES.items():
        for other in needed:
            if on[name] and not on[other]:
                yield name, f"{name} requires {other} to be enabled"


def _boolean_text(on: bool) -> str:
    return "true" if on else "false"


RETAIN = "Retain"
REPLACE = "Replace"


class Transformation(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A resource that counts as others: `outputs` for each unit of `input`."""

    input: str
    strategy: str = RETAIN
    """`Retain` counts the input as well, `Replace` does not."""
    multiply_by: str = ""
    """A resource of the same pod whose quantity multiplies the outputs, if the pod requests it."""
    outputs: Mapping[str, str] = {}
    """Resource → quantity, as written, per whole unit (one core) of the input; negative ones reduce other outputs."""


_HAMI_TRANSFORMATIONS = {
    "nvidia.com/total-gpucores": Transformation(
        input=HAMI_CORES, strategy=REPLACE, multiply_by=GPU, outputs={"nvidia.com/total-gpucores": "1"}
    ),
    "nvidia.com/total-gpumem": Transformation(
        input=HAMI_MEMORY, strategy=REPLACE, multiply_by=GPU, outputs={"nvidia.com/total-gpumem": "1"}
    ),
}
"""Quota resource → transformation of HAMi's vGPUs into it (Kueue's documentation, tasks/run/using_hami)."""


def hami_transformations(objects: Iterable[object]) -> dict[str, Transformation]:
    """Return Kueue's documented transformations of HAMi's vGPUs whose outputs have quotas, keyed by input."""
    queues = [obj for obj in objects if isinstance(obj, (ClusterQueue, Cohort))]
    covered = {resource for queue in queues for _, resource in queue.quotas()}
    return {rule.input: rule for output, rule in _HAMI_TRANSFORMATIONS.items() if output in covered}


def without_excluded(requests: Resources, prefixes: tuple[str, ...]) -> Resources:
    """Return the requests whose names start with none of the prefixes."""
    return (
        {name: amount for name, amount in requests.items() if not name.startswith(prefixes)} if prefixes else requests
    )


def apply_transformations(requests: Resources, transformations: Mapping[str, Transformation]) -> Resources:
    """Return one pod's requests after the transformations, which are keyed by input.

    Outputs for one resource are summed; a negative sum counts as 0, so that it does not reduce the pod's own requests.
    """
    if not transformations or transformations.keys().isdisjoint(requests):
        return requests
    kept: dict[str, Fraction] = {}
    generated: dict[str, Fraction] = {}
    for name, amount in requests.items():
        quantity = _quantity(name, amount)
        rule = transformations.get(name)
        if rule is None or rule.strategy == RETAIN:
            kept[name] = quantity
        if rule is not None:
            if rule.multiply_by in requests:
                quantity *= _quantity(rule.multiply_by, requests[rule.multiply_by])
            for output, factor in rule.outputs.items():
                generated[output] = generated.get(output, Fraction(0)) + quantity * _factor(factor)
    for output, quantity in generated.items():
        kept[output] = kept.get(output, Fraction(0)) + max(Fraction(0), quantity)
    return {name: to_int(name, quantity) for name, quantity in kept.items()}


def _quantity(resource: str, amount: int) -> Fraction:
    return Fraction(amount, 1000) if resource == CPU else Fraction(amount)


@lru_cache(maxsize=4096)
def _factor(text: str) -> Fraction:
    return parse_quantity(text)


class CounterSource(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Charges quota for DRA devices by how much of a shared counter (`name`) the driver's matching devices consume."""

    name: str
    driver: str
    device_selector: str = ""
    """A CEL expression; an empty one selects all."""


class CapacitySource(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Charges quota for DRA devices by how much of a capacity (`name`) of the driver's devices a claim requests."""

    name: str
    driver: str
    device_selector: str = ""
    """A CEL expression; an empty one selects all."""


class DeviceClassMapping(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Device classes charged to one quota resource: 1 per device, unless there are sources."""

    name: str
    device_class_names: tuple[str, ...] = ()
    counters: tuple[CounterSource, ...] = ()
    capacities: tuple[CapacitySource, ...] = ()


class ClassMap:
    """Finds the quota resource that a DRA device class is charged to. Frozen after construction."""

    __slots__ = ("_resources", "capacities", "counters", "drivers")

    def __init__(self, mappings: Sequence[DeviceClassMapping]) -> None:
        self._resources: dict[str, str] = {}
        self.counters: dict[str, list[tuple[str, CounterSource]]] = {}
        """Class → (quota resource, source) of each counter."""
        self.capacities: dict[str, list[CapacitySource]] = {}
        for mapping in mappings:
            for name in mapping.device_class_names:
                self._resources.setdefault(name, mapping.name)
                if mapping.counters:
                    self.counters.setdefault(name, []).extend((mapping.name, source) for source in mapping.counters)
                if mapping.capacities:
                    self.capacities.setdefault(name, []).extend(mapping.capacities)
        drivers = [source.driver for mapping in mappings for source in mapping.counters]
        drivers += [source.driver for mapping in mappings for source in mapping.capacities]
        self.drivers = frozenset(drivers)
        """Drivers of all sources: their devices determine charges."""

    def resource_of(self, device_class: str) -> str | None:
        """The quota resource of a class, from the first mapping that names it; None if none does."""
        return self._resources.get(device_class)


class PreemptionStrategy(StrEnum):
    """Rule by which fair sharing compares shares, with the incoming workload included, before it preempts."""

    LESS_THAN_OR_EQUAL_TO_FINAL_SHARE = "LessThanOrEqualToFinalShare"
    LESS_THAN_INITIAL_SHARE = "LessThanInitialShare"


DEFAULT_STRATEGIES = (PreemptionStrategy.LESS_THAN_OR_EQUAL_TO_FINAL_SHARE, PreemptionStrategy.LESS_THAN_INITIAL_SHARE)
"""Kueue's default: the second strategy is tried if the first finds too few victims."""


class RequeuingStrategy(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Requeuing of workloads whose pods were not ready in time."""

    timestamp: str = "Eviction"
    """Timestamp that orders such a workload in its queue: `Eviction` or `Creation`."""
    backoff_base_seconds: int = 60
    backoff_max_seconds: int = 3600
    backoff_limit_count: int | None = None
    """Retries before the workload is deactivated; None = any number."""


class WaitForPodsReady(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Timeouts for the pods of admitted workloads to be ready."""

    timeout: Span = 30 * MINUTE
    """From the admission to the first readiness."""
    recovery_timeout: Span | None = None
    """From the loss of a ready pod to the next readiness. None = as long as `timeout`; 0 = without limit."""
    block_admission: bool = False
    """True if no further workload is admitted until all admitted ones are ready."""
    requeuing_strategy: RequeuingStrategy = RequeuingStrategy()

    @property
    def effective_recovery_timeout(self) -> Span:
        """The recovery timeout in effect; 0 = none."""
        return self.timeout if self.recovery_timeout is None else self.recovery_timeout


class AdmissionFairSharing(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Settings of admission fair sharing, which orders the LocalQueues of a ClusterQueue by recent usage."""

    usage_half_life: Span = 0
    """Span after which past usage counts half; 0 = past usage does not count."""
    usage_sampling_interval: Span = 5 * MINUTE
    """Time between two usage samples."""
    resource_weights: Mapping[str, float] = {}
    """Weight of one unit of a resource (a core, a byte, a GPU); 1 if not listed."""


class ObjectRetention(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Retention of finished and deactivated Workloads; None keeps them."""

    after_finished: Span | None = None
    after_deactivated_by_kueue: Span | None = None
    """Those that Kueue itself deactivated, with their jobs."""


class MultiKueueSettings(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Settings by which a MultiKueue manager dispatches workloads to worker clusters."""

    incremental: bool = False
    """True to nominate `step_size` more clusters in each round, instead of all at once."""
    step_size: int = 3
    worker_lost_timeout: Span = 15 * MINUTE


class KueueConfig(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The settings of one Kueue installation."""

    fair_sharing: bool = False
    strategies: tuple[PreemptionStrategy, ...] = DEFAULT_STRATEGIES
    """Preemption strategies of fair sharing, in the order in which they are tried."""
    wait_for_pods_ready: WaitForPodsReady | None = WaitForPodsReady()
    """None = no timeout. Use `pods_ready_settings`, which applies the gate."""
    object_retention: ObjectRetention = ObjectRetention()
    admission_fair_sharing: AdmissionFairSharing | None = None
    """Use `usage_based_fair_sharing`, which applies the gate."""
    ignore_undeclared: bool = False
    """True if resources that a ClusterQueue lacks need no quota (resources.quotaCheckStrategy IgnoreUndeclared)."""
    exclude_resource_prefixes: tuple[str, ...] = ()
    """resources.excludeResourcePrefixes: resources that need no quota."""
    transformations: Mapping[str, Transformation] = {}
    """resources.transformations by their inputs."""
    device_class_mappings: tuple[DeviceClassMapping, ...] = ()
    """resources.deviceClassMappings: the quota that DRA devices are charged to."""
    multi_kueue: MultiKueueSettings = MultiKueueSettings()
    gates: Mapping[str, bool] = {}
    """Feature gates that differ from their defaults."""

    def enabled(self, gate: str) -> bool:
        """True if a gate is on. Raises KeyError for an unknown gate that is not set."""
        return self.gates.get(gate, GATE_DEFAULTS[gate])

    @property
    def pods_ready_settings(self) -> WaitForPodsReady | None:
        """The waitForPodsReady settings, unless gate DisableWaitForPodsReady is on."""
        return None if self.enabled("DisableWaitForPodsReady") else self.wait_for_pods_ready

    @property
    def usage_based_fair_sharing(self) -> AdmissionFairSharing | None:
        """The admission fair sharing settings, if configured and the gate is on."""
        return self.admission_fair_sharing if self.enabled("AdmissionFairSharing") else None

    def orders_local_queues(self, queue: ClusterQueue) -> bool:
        """True if admission fair sharing orders the LocalQueues of this ClusterQueue."""
        return self.usage_based_fair_sharing is not None and queue.admission_mode == "UsageBasedAdmissionFairSharing"

    @property
    def requeuing_timestamp(self) -> str:
        """Timestamp that orders workloads evicted by PodsReadyTimeout: `Eviction` or `Creation`."""
        settings = self.pods_ready_settings
        return "Eviction" if settings is None else settings.requeuing_strategy.timestamp

    @property
    def requeue_interval(self) -> Span:
        """Batch period before inadmissible workloads are requeued after an event."""
        return 10 * SECOND if self.enabled("SchedulerLongRequeueInterval") else SECOND

    @property
    def has_granular_reasons(self) -> bool:
        """True with granular reasons for missing quota (gate UnadmittedWorkloadsObservability)."""
        return self.enabled("UnadmittedWorkloadsObservability")


DEFAULT = KueueConfig()


def from_scenario(document: Mapping[str, Any]) -> KueueConfig:
    """Read a scenario's `fairSharingEnabled`, `fairSharing` and `featureGates`. ValueError for a bad strategy."""
    return KueueConfig(
        fair_sharing=bool(document.get("fairSharingEnabled", False)),
        strategies=tuple(PreemptionStrategy(name) for name in document.get("fairSharing") or ()) or DEFAULT_STRATEGIES,
        gates=dict(document.get("featureGates") or {}),
    )

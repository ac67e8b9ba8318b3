"""The parts of Kueue's Configuration and feature gates that admission depends on (0.19.2 defaults).

Transforms a pod's requests into quota requests: excludes some resources and converts others.

Kueue 0.19 pkg/workload/workload.go (dropExcludedResources, applyResourceTransformations); set by `resources` in Kueue's
Configuration.

Maps device classes to the quota resources charged for them (Configuration: resources.deviceClassMappings).
"""

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from fractions import Fraction
from functools import cache
from typing import Any

from msgspec import Struct

from gpuconsole.model.clock import MINUTE, SECOND, Span
from gpuconsole.model.queues import ClusterQueue, Cohort
from gpuconsole.model.resources import CPU, GPU, HAMI_CORES, HAMI_MEMORY, Resources, parse_quantity, to_int
from gpuconsole.scheduling.kueue.gates import DEFAULTS

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


_HAMI = {
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
    return {rule.input: rule for output, rule in _HAMI.items() if output in covered}


def without_excluded(requests: Resources, prefixes: tuple[str, ...]) -> Resources:
    """Return the requests whose names start with none of the prefixes."""
    return (
        {name: amount for name, amount in requests.items() if not name.startswith(prefixes)} if prefixes else requests
    )


def transformed(requests: Resources, transformations: Mapping[str, Transformation]) -> Resources:
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


@cache
def _factor(text: str) -> Fraction:
    return parse_quantity(text)


class CounterSource(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A charge by the amount of a shared counter that matching devices of a driver consume."""

    name: str
    driver: str
    device_selector: str = ""
    """A CEL expression; an empty one selects all."""


class CapacitySource(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A charge by the amount that a claim requests of a capacity of a driver's devices."""

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
    """The mappings by class. Frozen after construction."""

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

    def resource(self, device_class: str) -> str | None:
        """The quota resource of a class, from the first mapping that names it; None if none does."""
        return self._resources.get(device_class)


GATES = DEFAULTS
"""Every feature gate of Kueue 0.19.2 with its default; those that no rule here reads change no decision."""


class PreemptionStrategy(StrEnum):
    """Rule by which fair sharing compares shares, with the incoming workload included, before it preempts."""

    LESS_THAN_OR_EQUAL_TO_FINAL_SHARE = "LessThanOrEqualToFinalShare"
    LESS_THAN_INITIAL_SHARE = "LessThanInitialShare"


BOTH = (PreemptionStrategy.LESS_THAN_OR_EQUAL_TO_FINAL_SHARE, PreemptionStrategy.LESS_THAN_INITIAL_SHARE)


class RequeuingStrategy(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Requeuing of workloads whose pods were not ready in time."""

    timestamp: str = "Eviction"
    """Timestamp that orders it in its queue: `Eviction` or `Creation`."""
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
    """No further workload is admitted until all admitted ones are ready."""
    requeuing_strategy: RequeuingStrategy = RequeuingStrategy()

    @property
    def recovery(self) -> Span:
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
    """Nominate `step_size` more clusters in each round, instead of all at once."""
    step_size: int = 3
    worker_lost_timeout: Span = 15 * MINUTE


class KueueConfig(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The settings of one Kueue installation."""

    fair_sharing: bool = False
    strategies: tuple[PreemptionStrategy, ...] = BOTH
    """Preemption strategies of fair sharing, in the order in which they are tried."""
    wait_for_pods_ready: WaitForPodsReady | None = WaitForPodsReady()
    """None = no timeout. Use `pods_ready`, which applies the gate."""
    object_retention: ObjectRetention = ObjectRetention()
    admission_fair_sharing: AdmissionFairSharing | None = None
    """Use `usage_based`, which applies the gate."""
    ignore_undeclared: bool = False
    """resources.quotaCheckStrategy IgnoreUndeclared: resources that a ClusterQueue does not name need no quota."""
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
        """True if a gate of `GATES` is on."""
        return self.gates.get(gate, GATES[gate])

    @property
    def pods_ready(self) -> WaitForPodsReady | None:
        """The waitForPodsReady settings, unless gate DisableWaitForPodsReady is on."""
        return None if self.enabled("DisableWaitForPodsReady") else self.wait_for_pods_ready

    @property
    def usage_based(self) -> AdmissionFairSharing | None:
        """The admission fair sharing settings, if configured and the gate is on."""
        return self.admission_fair_sharing if self.enabled("AdmissionFairSharing") else None

    def takes_turns(self, queue: ClusterQueue) -> bool:
        """True if admission fair sharing orders the LocalQueues of this ClusterQueue."""
        return self.usage_based is not None and queue.admission_mode == "UsageBasedAdmissionFairSharing"

    @property
    def requeuing_timestamp(self) -> str:
        """Timestamp that orders workloads evicted by PodsReadyTimeout: `Eviction` or `Creation`."""
        settings = self.pods_ready
        return "Eviction" if settings is None else settings.requeuing_strategy.timestamp

    @property
    def requeue_interval(self) -> Span:
        """Batch period before inadmissible workloads are requeued after an event."""
        return 10 * SECOND if self.enabled("SchedulerLongRequeueInterval") else SECOND

    @property
    def granular(self) -> bool:
        """True with granular reasons for missing quota (gate UnadmittedWorkloadsObservability)."""
        return self.enabled("UnadmittedWorkloadsObservability")


DEFAULT = KueueConfig()


def from_scenario(document: Mapping[str, Any]) -> KueueConfig:
    """Read a scenario's `fairSharingEnabled`, `fairSharing` and `featureGates`. ValueError for a bad strategy."""
    return KueueConfig(
        fair_sharing=bool(document.get("fairSharingEnabled", False)),
        strategies=tuple(PreemptionStrategy(name) for name in document.get("fairSharing") or ()) or BOTH,
        gates=dict(document.get("featureGates") or {}),
    )

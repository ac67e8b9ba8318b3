"""The parts of Kueue's Configuration and feature gates that admission depends on (0.19.2 defaults)."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from msgspec import Struct

from gpuconsole.model.clock import MINUTE, SECOND, Span
from gpuconsole.model.queues import ClusterQueue
from gpuconsole.scheduling.kueue.dra.mapping import DeviceClassMapping
from gpuconsole.scheduling.kueue.gates import DEFAULTS
from gpuconsole.scheduling.kueue.transformations import Transformation

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

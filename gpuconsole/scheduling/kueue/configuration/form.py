"""Kueue's Configuration as written (config.kueue.x-k8s.io/v1beta2): every field, None or empty where it is not set.

Durations and quantities stay text; `policy` converts those that admission depends on to numbers.
"""

from collections.abc import Mapping

from msgspec import Struct

from gpuconsole.scheduling.kueue.configuration.durations import Duration
from gpuconsole.scheduling.kueue.configuration.manager import (
    ClientConnection,
    Controller,
    ControllerHealth,
    InternalCertManagement,
    LeaderElection,
    Metrics,
    TLSOptions,
    VisibilityServer,
    Webhook,
)
from gpuconsole.scheduling.kueue.configuration.multikueue import MultiKueueForm
from gpuconsole.scheduling.kueue.configuration.selectors import SelectorForm

GROUP = "config.kueue.x-k8s.io"
VERSION = "v1beta2"
KIND = "Configuration"


class RequeuingStrategyForm(Struct, frozen=True, kw_only=True, rename="camel"):
    """The fields of waitForPodsReady.requeuingStrategy."""

    timestamp: str | None = None
    backoff_limit_count: int | None = None
    backoff_base_seconds: int | None = None
    backoff_max_seconds: int | None = None


class WaitForPodsReadyForm(Struct, frozen=True, kw_only=True, rename="camel"):
    """The fields of waitForPodsReady."""

    timeout: Duration = "0s"
    block_admission: bool | None = None
    requeuing_strategy: RequeuingStrategyForm | None = None
    recovery_timeout: Duration | None = None


class Integrations(Struct, frozen=True, kw_only=True, rename="camel"):
    """The fields of integrations."""

    frameworks: tuple[str, ...] | None = None
    external_frameworks: tuple[str, ...] | None = None
    label_keys_to_copy: tuple[str, ...] | None = None


class FairSharingForm(Struct, frozen=True, kw_only=True, rename="camel"):
    """The fields of fairSharing."""

    preemption_strategies: tuple[str, ...] = ()


class AdmissionFairSharingForm(Struct, frozen=True, kw_only=True, rename="camel"):
    """The fields of admissionFairSharing."""

    usage_half_life_time: Duration = "0s"
    usage_sampling_interval: Duration = "0s"
    resource_weights: Mapping[str, float] = {}


class TransformationForm(Struct, frozen=True, kw_only=True, rename="camel"):
    """The fields of one entry of resources.transformations."""

    input: str = ""
    strategy: str | None = None
    multiply_by: str = ""
    outputs: Mapping[str, str | int | float] = {}


class CelForm(Struct, frozen=True, kw_only=True):
    """The CEL expression of a device selector."""

    expression: str = ""


class DeviceSelectorForm(Struct, frozen=True, kw_only=True):
    """A selector of devices in a device class mapping."""

    cel: CelForm | None = None


class SourceForm(Struct, frozen=True, kw_only=True, rename="camel"):
    """A shared counter or a capacity of a driver's devices, which a source of a charge names."""

    name: str = ""
    driver: str = ""
    device_selector: DeviceSelectorForm = DeviceSelectorForm()

    @property
    def expression(self) -> str:
        """The CEL expression of the device selector; empty if there is none."""
        cel = self.device_selector.cel
        return "" if cel is None else cel.expression


class SourcesForm(Struct, frozen=True, kw_only=True):
    """One entry of resources.deviceClassMappings[].sources: a counter or a capacity."""

    counter: SourceForm | None = None
    capacity: SourceForm | None = None


class DeviceClassMappingForm(Struct, frozen=True, kw_only=True, rename="camel"):
    """One entry of resources.deviceClassMappings."""

    name: str = ""
    device_class_names: tuple[str, ...] = ()
    sources: tuple[SourcesForm, ...] = ()


class Resources(Struct, frozen=True, kw_only=True, rename="camel"):
    """The fields of resources."""

    quota_check_strategy: str | None = None
    exclude_resource_prefixes: tuple[str, ...] = ()
    transformations: tuple[TransformationForm, ...] = ()
    device_class_mappings: tuple[DeviceClassMappingForm, ...] = ()


class WorkloadRetention(Struct, frozen=True, kw_only=True, rename="camel"):
    """The fields of objectRetentionPolicies.workloads."""

    after_finished: Duration | None = None
    after_deactivated_by_kueue: Duration | None = None


class ObjectRetentionPolicies(Struct, frozen=True, kw_only=True):
    """The fields of objectRetentionPolicies."""

    workloads: WorkloadRetention | None = None


class KueueConfigurationForm(Struct, frozen=True, kw_only=True, rename="camel"):
    """The Configuration of one Kueue installation."""

    api_version: str = f"{GROUP}/{VERSION}"
    kind: str = KIND
    namespace: str | None = None
    webhook: Webhook = Webhook()
    leader_election: LeaderElection | None = None
    metrics: Metrics = Metrics()
    health: ControllerHealth = ControllerHealth()
    pprof_bind_address: str = ""
    controller: Controller | None = None
    tls: TLSOptions | None = None
    manage_jobs_without_queue_name: bool = False
    managed_jobs_namespace_selector: SelectorForm | None = None
    internal_cert_management: InternalCertManagement | None = None
    wait_for_pods_ready: WaitForPodsReadyForm | None = None
    client_connection: ClientConnection | None = None
    integrations: Integrations | None = None
    multi_kueue: MultiKueueForm | None = None
    fair_sharing: FairSharingForm | None = None
    admission_fair_sharing: AdmissionFairSharingForm | None = None
    resources: Resources | None = None
    feature_gates: Mapping[str, bool] | None = None
    object_retention_policies: ObjectRetentionPolicies | None = None
    visibility_server: VisibilityServer | None = None

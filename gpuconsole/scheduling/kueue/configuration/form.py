"""Kueue's Configuration as written (config.kueue.x-k8s.io/v1beta2): every field, None or empty where it is not set.

Durations and quantities stay text; `policy` converts those that admission depends on to numbers.

Settings of Kueue's manager process: servers, leader election, metrics, clients. None affects admission.

The MultiKueue settings of a Configuration.

Label selectors in the Configuration: fields, validation and matching.
"""

from collections.abc import Iterator, Mapping

from msgspec import Struct

from gpuconsole.model.documents import field_errors as syntax
from gpuconsole.model.documents.field_errors import FieldError, forbidden, invalid, required
from gpuconsole.model.documents.findings import Path
from gpuconsole.model.labels import LabelSelector, Requirement
from gpuconsole.scheduling.kueue.configuration.durations import Duration

ALL_AT_ONCE = "kueue.x-k8s.io/multikueue-dispatcher-all-at-once"
INCREMENTAL = "kueue.x-k8s.io/multikueue-dispatcher-incremental"


class ExternalFramework(Struct, frozen=True, kw_only=True):
    """One entry of multiKueue.externalFrameworks."""

    name: str = ""


class EnvironmentVariable(Struct, frozen=True, kw_only=True):
    """An environment variable of the credentials command."""

    name: str = ""
    value: str = ""


class ExecConfig(Struct, frozen=True, kw_only=True, rename="camel"):
    """The command that returns credentials for a cluster (client-go ExecConfig)."""

    command: str = ""
    args: tuple[str, ...] = ()
    env: tuple[EnvironmentVariable, ...] = ()
    api_version: str = ""
    install_hint: str = ""
    provide_cluster_info: bool = False
    interactive_mode: str = ""


class AccessProvider(Struct, frozen=True, kw_only=True, rename="camel"):
    """One entry of multiKueue.clusterProfile.accessProviders."""

    name: str = ""
    exec_config: ExecConfig = ExecConfig()


class ClusterProfile(Struct, frozen=True, kw_only=True, rename="camel"):
    """The fields of multiKueue.clusterProfile."""

    access_providers: tuple[AccessProvider, ...] = ()
    credentials_providers: tuple[AccessProvider, ...] = ()
    """The older name of `access_providers`."""


class IncrementalDispatcher(Struct, frozen=True, kw_only=True, rename="camel"):
    """The fields of multiKueue.incrementalDispatcherConfig."""

    step_size: int | None = None


class MultiKueueForm(Struct, frozen=True, kw_only=True, rename="camel"):
    """The fields of multiKueue."""

    gc_interval: Duration | None = None
    origin: str | None = None
    worker_lost_timeout: Duration | None = None
    dispatcher_name: str | None = None
    external_frameworks: tuple[ExternalFramework, ...] = ()
    cluster_profile: ClusterProfile | None = None
    incremental_dispatcher_config: IncrementalDispatcher | None = None


class ExpressionForm(Struct, frozen=True, kw_only=True):
    """One entry of matchExpressions."""

    key: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()


class SelectorForm(Struct, frozen=True, kw_only=True, rename="camel"):
    """A label selector as written."""

    match_labels: Mapping[str, str] = {}
    match_expressions: tuple[ExpressionForm, ...] = ()

    @property
    def selector(self) -> LabelSelector:
        """The selector in the form that matches labels."""
        wanted = (Requirement(part.key, part.operator, part.values) for part in self.match_expressions)
        return LabelSelector(self.match_labels, tuple(wanted))


def selector_errors(form: SelectorForm, path: Path) -> Iterator[FieldError]:
    """Yield the errors in a label selector (apimachinery ValidateLabelSelector)."""
    for key in form.match_labels:
        faults = syntax.label_key(key)
        yield from (invalid((*path, "matchLabels"), fault) for fault in faults)
    for number, part in enumerate(form.match_expressions):
        yield from _expression_errors(part, (*path, "matchExpressions", number))


def _expression_errors(part: ExpressionForm, path: Path) -> Iterator[FieldError]:
    if part.operator in ("In", "NotIn"):
        if not part.values:
            yield required((*path, "values"), "must be specified when `operator` is 'In' or 'NotIn'")
    elif part.operator in ("Exists", "DoesNotExist"):
        if part.values:
            yield forbidden((*path, "values"), "may not be specified when `operator` is 'Exists' or 'DoesNotExist'")
    else:
        yield invalid((*path, "operator"), "not a valid selector operator")
    yield from (invalid((*path, "key"), fault) for fault in syntax.label_key(part.key))
    for number, value in enumerate(part.values):
        yield from (invalid((*path, "values", number), fault) for fault in syntax.label_value(value))


class Webhook(Struct, frozen=True, kw_only=True, rename="camel"):
    """The fields of webhook."""

    port: int | None = None
    host: str = ""
    cert_dir: str = ""


class LeaderElection(Struct, frozen=True, kw_only=True, rename="camel"):
    """The fields of leaderElection."""

    leader_elect: bool | None = None
    lease_duration: Duration = "0s"
    renew_deadline: Duration = "0s"
    retry_period: Duration = "0s"
    resource_lock: str = ""
    resource_name: str = ""
    resource_namespace: str = ""


class CustomLabel(Struct, frozen=True, kw_only=True, rename="camel"):
    """A label or annotation of an object that becomes a label of Kueue's metrics."""

    name: str = ""
    source_label_key: str = ""
    source_annotation_key: str = ""
    source_kind: str | None = None
    tracked_values: tuple[str, ...] = ()


class LocalQueueMetrics(Struct, frozen=True, kw_only=True, rename="camel"):
    """The fields of metrics.localQueueMetrics."""

    enable: bool = False
    local_queue_selector: SelectorForm | None = None


class Metrics(Struct, frozen=True, kw_only=True, rename="camel"):
    """The fields of metrics."""

    bind_address: str = ""
    enable_cluster_queue_resources: bool = False
    custom_labels: tuple[CustomLabel, ...] = ()
    local_queue_metrics: LocalQueueMetrics | None = None


class ControllerHealth(Struct, frozen=True, kw_only=True, rename="camel"):
    """The fields of health."""

    health_probe_bind_address: str = ""
    readiness_endpoint_name: str = ""
    liveness_endpoint_name: str = ""


class Controller(Struct, frozen=True, kw_only=True, rename="camel"):
    """The fields of controller."""

    group_kind_concurrency: Mapping[str, int] = {}
    cache_sync_timeout: int | None = None
    """Nanoseconds: the only duration that is written as a number."""


class TLSOptions(Struct, frozen=True, kw_only=True, rename="camel"):
    """The fields of tls."""

    min_version: str = ""
    cipher_suites: tuple[str, ...] = ()
    curve_preferences: tuple[int, ...] = ()


class InternalCertManagement(Struct, frozen=True, kw_only=True, rename="camel"):
    """The fields of internalCertManagement."""

    enable: bool | None = None
    webhook_service_name: str | None = None
    webhook_secret_name: str | None = None


class ClientConnection(Struct, frozen=True, kw_only=True):
    """The fields of clientConnection."""

    qps: float | None = None
    burst: int | None = None


class VisibilityServer(Struct, frozen=True, kw_only=True, rename="camel"):
    """The fields of visibilityServer."""

    bind_address: str | None = None
    bind_port: int | None = None


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

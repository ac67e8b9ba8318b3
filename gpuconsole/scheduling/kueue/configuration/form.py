"""Kueue's Configuration as written (config.kueue.x-k8s.io/v1beta2): every field, None or empty where it is not set.

Durations and quantities stay text; `to_kueue_config` in `loading` converts those that admission depends on to numbers.
Durations are written as in Go: `1h30m0s`, `1.5s`, `-1s`; Kueue accepts no other format. `with_defaults` fills in the
defaults (Kueue 0.19 SetDefaults_Configuration). The settings of Kueue's manager process (servers, leader election,
metrics, clients) do not affect admission.
"""

import re
from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Annotated

from msgspec import Meta, Struct
from msgspec.structs import replace

from gpuconsole.model.clock import Span
from gpuconsole.model.documents.findings import FieldError, Path, forbidden, invalid, label_key, label_value, required
from gpuconsole.model.labels import LabelSelector, Requirement

Duration = Annotated[str, Meta(title="duration")]
"""Text of a duration; `loading` normalizes it to Go's format."""

Nanoseconds = int

_MICROSECOND = 1_000
_SECOND = 1_000_000_000
_UNITS = {
    "ns": 1,
    "us": _MICROSECOND,
    "µs": _MICROSECOND,
    "μs": _MICROSECOND,
    "ms": 1_000_000,
    "s": _SECOND,
    "m": 60 * _SECOND,
    "h": 3600 * _SECOND,
}
_PART = re.compile(r"(\d+\.?\d*|\.\d+)(ns|us|µs|μs|ms|s|m|h)")
_WHOLE = re.compile(rf"[-+]?(?:0|(?:{_PART.pattern})+)")


def nanoseconds(text: str) -> Nanoseconds:
    """Return a duration in nanoseconds. Raises ValueError with Go's message."""
    if len(text) > 100 or not _WHOLE.fullmatch(text):
        raise ValueError(f'time: invalid duration "{text[:100]}"')
    total = int(sum(Fraction(f"0{number}") * _UNITS[unit] for number, unit in _PART.findall(text)))
    return -total if text.startswith("-") else total


def parse_duration(text: str) -> Span:
    """Return a duration in microseconds, rounded away from zero. Raises ValueError."""
    nanoseconds_total = nanoseconds(text)
    return -(-nanoseconds_total // _MICROSECOND) if nanoseconds_total > 0 else nanoseconds_total // _MICROSECOND


def format_duration(nanoseconds_total: Nanoseconds) -> str:
    """Write a duration as Go's Duration.String does: from hours down to seconds; below 1 s in one smaller unit."""
    if nanoseconds_total == 0:
        return "0s"
    sign, left = ("-", -nanoseconds_total) if nanoseconds_total < 0 else ("", nanoseconds_total)
    if left < _SECOND:
        unit = next(unit for unit in ("ms", "µs", "ns") if left >= _UNITS[unit])
        return f"{sign}{_decimal(left, _UNITS[unit])}{unit}"
    minutes, left = divmod(left, 60 * _SECOND)
    hours, minutes = divmod(minutes, 60)
    seconds = f"{_decimal(left, _SECOND)}s"
    if hours:
        return f"{sign}{hours}h{minutes}m{seconds}"
    return f"{sign}{minutes}m{seconds}" if minutes else sign + seconds


def _decimal(amount: int, size: int) -> str:
    whole, rest = divmod(amount, size)
    digits = f"{rest:0{len(str(size)) - 1}d}".rstrip("0") if rest else ""
    return f"{whole}.{digits}" if digits else str(whole)


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
        faults = label_key(key)
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
    yield from (invalid((*path, "key"), fault) for fault in label_key(part.key))
    for number, value in enumerate(part.values):
        yield from (invalid((*path, "values", number), fault) for fault in label_value(value))


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
    """The counter or capacity of a driver's devices by which a device class mapping charges quota."""

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


NAMESPACE_LABEL = "kubernetes.io/metadata.name"
SYSTEM_NAMESPACE = "kube-system"
NAMESPACE = "kueue-system"
"""Kueue's own namespace by default."""
ZERO_DURATION = "0s"
"""A zero duration, which Kueue treats as not set."""


def with_defaults(given: KueueConfigurationForm) -> KueueConfigurationForm:
    """Return the Configuration with every default filled in; explicit values stay."""
    namespace = NAMESPACE if given.namespace is None else given.namespace
    integrations = given.integrations or Integrations()
    client = given.client_connection or ClientConnection()
    return replace(
        given,
        namespace=namespace,
        webhook=replace(
            given.webhook,
            port=9443 if given.webhook.port is None else given.webhook.port,
            cert_dir=given.webhook.cert_dir or "/tmp/k8s-webhook-server/serving-certs",
        ),
        metrics=replace(
            given.metrics,
            bind_address=given.metrics.bind_address or ":8443",
            local_queue_metrics=given.metrics.local_queue_metrics or LocalQueueMetrics(enable=True),
        ),
        health=replace(given.health, health_probe_bind_address=given.health.health_probe_bind_address or ":8081"),
        leader_election=_leader_election(given.leader_election or LeaderElection()),
        internal_cert_management=_certificates(given.internal_cert_management or InternalCertManagement()),
        client_connection=ClientConnection(
            qps=300 if client.qps is None else client.qps, burst=500 if client.burst is None else client.burst
        ),
        wait_for_pods_ready=_pods_ready(given.wait_for_pods_ready or WaitForPodsReadyForm()),
        integrations=integrations if integrations.frameworks else replace(integrations, frameworks=("batch/job",)),
        managed_jobs_namespace_selector=given.managed_jobs_namespace_selector or _all_but(SYSTEM_NAMESPACE, namespace),
        multi_kueue=_multi_kueue(given.multi_kueue or MultiKueueForm()),
        admission_fair_sharing=_admission_fair_sharing(given.admission_fair_sharing),
        visibility_server=_visibility(given.visibility_server or VisibilityServer()),
        resources=_resources(given.resources),
    )


def _leader_election(given: LeaderElection) -> LeaderElection:
    return replace(
        given,
        leader_elect=True if given.leader_elect is None else given.leader_elect,
        lease_duration=_or_default(given.lease_duration, "15s"),
        renew_deadline=_or_default(given.renew_deadline, "10s"),
        retry_period=_or_default(given.retry_period, "2s"),
        resource_lock=given.resource_lock or "leases",
        resource_name=given.resource_name or "c1f6bfd2.kueue.x-k8s.io",
    )


def _certificates(given: InternalCertManagement) -> InternalCertManagement:
    if given.enable is False:
        return given
    service, secret = given.webhook_service_name, given.webhook_secret_name
    return InternalCertManagement(
        enable=True,
        webhook_service_name="kueue-webhook-service" if service is None else service,
        webhook_secret_name="kueue-webhook-server-cert" if secret is None else secret,
    )


def _pods_ready(given: WaitForPodsReadyForm) -> WaitForPodsReadyForm:
    timeout = _or_default(given.timeout, "30m0s")
    strategy = given.requeuing_strategy or RequeuingStrategyForm()
    base, most = strategy.backoff_base_seconds, strategy.backoff_max_seconds
    return WaitForPodsReadyForm(
        timeout=timeout,
        block_admission=bool(given.block_admission),
        recovery_timeout=timeout if given.recovery_timeout is None else given.recovery_timeout,
        requeuing_strategy=RequeuingStrategyForm(
            timestamp="Eviction" if strategy.timestamp is None else strategy.timestamp,
            backoff_limit_count=strategy.backoff_limit_count,
            backoff_base_seconds=60 if base is None else base,
            backoff_max_seconds=3600 if most is None else most,
        ),
    )


def _all_but(*namespaces: str) -> SelectorForm:
    excluded = ExpressionForm(key=NAMESPACE_LABEL, operator="NotIn", values=namespaces)
    return SelectorForm(match_expressions=(excluded,))


def _multi_kueue(given: MultiKueueForm) -> MultiKueueForm:
    dispatcher = ALL_AT_ONCE if given.dispatcher_name is None else given.dispatcher_name
    steps = given.incremental_dispatcher_config
    if dispatcher == INCREMENTAL and (steps is None or steps.step_size is None):
        steps = IncrementalDispatcher(step_size=3)
    return replace(
        given,
        gc_interval="1m0s" if given.gc_interval is None else given.gc_interval,
        origin=given.origin or "multikueue",
        worker_lost_timeout="15m0s" if given.worker_lost_timeout is None else given.worker_lost_timeout,
        dispatcher_name=dispatcher,
        incremental_dispatcher_config=steps,
    )


def _admission_fair_sharing(given: AdmissionFairSharingForm | None) -> AdmissionFairSharingForm | None:
    if given is None:
        return None
    return replace(given, usage_sampling_interval=_or_default(given.usage_sampling_interval, "5m0s"))


def _visibility(given: VisibilityServer) -> VisibilityServer:
    return given if given.bind_port is not None else replace(given, bind_port=8082)


def _resources(given: Resources | None) -> Resources | None:
    if given is None:
        return None
    transformations = (replace(part, strategy=part.strategy or "Retain") for part in given.transformations)
    return replace(given, transformations=tuple(transformations))


def _or_default(duration: str, otherwise: str) -> str:
    return otherwise if duration == ZERO_DURATION else duration

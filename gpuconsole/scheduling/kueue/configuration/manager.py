"""Settings of Kueue's manager process: servers, leader election, metrics, clients. None affects admission."""

from collections.abc import Mapping

from msgspec import Struct

from gpuconsole.scheduling.kueue.configuration.durations import Duration
from gpuconsole.scheduling.kueue.configuration.selectors import SelectorForm


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

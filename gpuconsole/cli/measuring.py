"""Telemetry sources of a live cluster, from command-line options and the configuration."""

from gpuconsole.backends.kube.backend import KubeBackend, wall
from gpuconsole.backends.kube.client import FIND, SCHEME, RateLimiter, ServiceProxy
from gpuconsole.backends.telemetry.dcgm import Exporters
from gpuconsole.backends.telemetry.feed import Feed, TelemetrySource
from gpuconsole.backends.telemetry.http import Http, HttpAccess, HttpFetcher
from gpuconsole.backends.telemetry.kueue_metrics import PATH as METRICS
from gpuconsole.backends.telemetry.kueue_metrics import KueueEndpoint, KueueMetrics, KueueQueries
from gpuconsole.backends.telemetry.prometheus import Prometheus
from gpuconsole.cli.options import OpenRequest
from gpuconsole.config import TelemetrySettings
from gpuconsole.errors import UsageError


def measure(backend: KubeBackend, request: OpenRequest, settings: TelemetrySettings) -> None:
    """Attach the configured sources of GPU telemetry and Kueue metrics to a backend.

    Sends no request yet. Raises UsageError.
    """
    asked = bool(request.prometheus or request.dcgm)
    prometheus = (request.prometheus or "") if asked else settings.prometheus
    exporters = request.dcgm if asked else settings.dcgm
    if prometheus and exporters:
        raise UsageError("GPU telemetry has one source: name Prometheus or the DCGM exporters, not both")
    access = HttpAccess(token_file=settings.token_file, ca_file=settings.ca_file, headers=settings.headers)
    budget = RateLimiter(settings.requests, max(1, int(settings.requests))).take
    source: TelemetrySource | None = None
    if prometheus:
        source = Prometheus(_ask(prometheus, backend, access), budget=budget)
        backend.kueue_metrics = KueueMetrics(KueueQueries(source), wall)
    elif exporters:
        source = Exporters(exporters, lambda: backend.gpu_nodes, access=access, budget=budget)
    if source is not None:
        backend.telemetry = Feed(source, interval=settings.interval, known=backend.has_node)
    manager = request.kueue_metrics or settings.kueue.address
    if manager:
        endpoint = KueueEndpoint(_manager(manager, backend, settings), budget=budget)
        backend.kueue_metrics = KueueMetrics(endpoint, wall)


def _manager(address: str, backend: KubeBackend, settings: TelemetrySettings) -> HttpFetcher:
    """Access to the metrics endpoint of Kueue's manager, which takes precedence over Prometheus."""
    kueue = settings.kueue
    access = HttpAccess(
        token_file=kueue.token_file,
        ca_file=kueue.ca_file,
        insecure=kueue.insecure_skip_tls_verify,
        settings="live.telemetry.kueue",
    )
    return _ask(address.removesuffix("/").removesuffix(METRICS), backend, access)


def _ask(address: str, backend: KubeBackend, access: HttpAccess) -> HttpFetcher:
    if address == FIND or address.startswith(SCHEME):
        return ServiceProxy(address, lambda: backend.connection)
    return Http(address, access)

"""Opens a live cluster: its backend, which reads the API server, with the configured telemetry sources.

The console keeps the backend open, and can switch to another context of the kubeconfig; other commands open it with
`connected`, and read the cluster once with `look`.
"""

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase

from msgspec import Struct
from msgspec.structs import replace

from gpuconsole.backends.kube.backend import KubeBackend, wall
from gpuconsole.backends.kube.client import FIND, SCHEME, RateLimiter, ServiceProxy
from gpuconsole.backends.kube.target import RequestedCluster, context_names, find
from gpuconsole.backends.telemetry.dcgm import Exporters
from gpuconsole.backends.telemetry.feed import Feed, TelemetrySource
from gpuconsole.backends.telemetry.http import Http, HttpAccess, HttpFetcher
from gpuconsole.backends.telemetry.kueue_metrics import PATH as METRICS
from gpuconsole.backends.telemetry.kueue_metrics import KueueEndpoint, KueueMetrics, KueueQueries
from gpuconsole.backends.telemetry.prometheus import Prometheus
from gpuconsole.cli.options import OpenRequest
from gpuconsole.config import Config, TelemetrySettings
from gpuconsole.errors import ClusterError, UsageError
from gpuconsole.model.events import Event
from gpuconsole.model.snapshot import Snapshot, only_namespaces_text
from gpuconsole.scheduling.kueue.config import KueueConfig
from gpuconsole.services.console import Console
from gpuconsole.services.status import ConsoleMode, ConsoleStatus
from gpuconsole.sim.policy import SimPolicy
from gpuconsole.workers.client import Worker


def measure(backend: KubeBackend, request: OpenRequest, settings: TelemetrySettings) -> None:
    """Set the configured sources of GPU telemetry and Kueue metrics on a backend; sends no request yet.

    Options of the command line replace the GPU telemetry settings of the configuration. Raises UsageError.
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


READ_TIMEOUT = 120.0
"""Timeout for reading the whole cluster once, in seconds."""
POLL = 0.02
"""Seconds between two polls of the backend."""


class LiveCluster(Struct, frozen=True, kw_only=True):
    """A live cluster with its backend, not connected yet if `open_live` made it."""

    backend: KubeBackend
    about: ConsoleStatus
    context: str
    notices: tuple[str, ...] = ()


def open_live(request: OpenRequest, settings: Config | None = None) -> LiveCluster:
    """Set up the backend of the requested cluster without connecting it. Raises UsageError, ClusterError."""
    target = RequestedCluster(
        kubeconfig=request.kubeconfig,
        context=request.context,
        namespaces=request.namespace,
        insecure=request.insecure_skip_tls_verify,
    )
    limits = (settings or Config()).live
    place = find(target)
    unchecked = (f"{place.server}: TLS verification is off (insecure-skip-tls-verify)",) if target.insecure else ()
    backend = KubeBackend(target, budget=RateLimiter(limits.requests, limits.burst), kueue=_kueue(request), place=place)
    measure(backend, request, limits.telemetry)
    return LiveCluster(
        backend=backend,
        about=ConsoleStatus(mode=ConsoleMode.LIVE, source=place.context),
        context=place.context,
        notices=(*unchecked, *([only_namespaces_text(target.namespaces)] if target.namespaces else ())),
    )


@contextmanager
def connected(
    request: OpenRequest, settings: Config | None = None, prepare: Callable[[KubeBackend], None] | None = None
) -> Iterator[LiveCluster]:
    """Connect to the requested live cluster, and disconnect after the block. Raises UsageError, ClusterError.

    `prepare` is called before anything is read.
    """
    opened = open_live(request, settings)
    if prepare is not None:
        prepare(opened.backend)
    try:
        opened.backend.open()
        yield opened
    finally:
        opened.backend.close()


def _kueue(request: OpenRequest) -> KueueConfig | None:
    """The Configuration given on the command line, which replaces the cluster's own."""
    if request.kueue_config is None and not request.feature_gates:
        return None
    from gpuconsole.cli.policy import with_kueue

    return with_kueue(SimPolicy(), request).kueue


def protection(context: str, settings: Config) -> str:
    """Return why a context is read-only by the configuration; empty if changes are allowed."""
    for pattern in settings.live.protected:
        if fnmatchcase(context, pattern):
            return f"Context {context} is read-only: it matches {pattern} of live.protected in the configuration"
    return ""


def look(backend: KubeBackend, timeout: float = READ_TIMEOUT) -> Snapshot:
    """Read the whole cluster once. Raises ClusterError if it takes longer than `timeout` seconds."""
    deadline = time.monotonic() + timeout
    while True:
        backend.poll(POLL)
        if not backend.health.loading:
            return backend.snapshot()
        if time.monotonic() > deadline:
            sight = backend.health
            why = sight.lost or "; ".join(sight.unread) or "its API server responds too slowly"
            raise ClusterError(f"could not read the cluster within {timeout:g}s: {why}")
        time.sleep(POLL)


def polled(backend: KubeBackend, end: float) -> Iterator[Iterable[Event]]:
    """Yield the events of one poll after the other until `end`, in seconds of `time.monotonic`."""
    while time.monotonic() < end:
        yield backend.poll(POLL)
        time.sleep(POLL)


Open = Callable[[OpenRequest, Worker | None], Console]
"""Function that opens a console on a live cluster; it takes over the worker process, if given."""


class KubeContexts:
    """Opens consoles on other contexts of the kubeconfig, with the command-line options of the first one."""

    def __init__(self, request: OpenRequest, open: Open) -> None:
        self._request = request
        self._open = open
        self.namespaces: Collection[str] = request.namespace

    def names(self) -> Sequence[str]:
        """All contexts of the kubeconfig. Raises UsageError."""
        return context_names(self._request.kubeconfig)

    def open(self, context: str, namespaces: Collection[str], leaving: Console) -> Console:
        """Open a console on another context, in which it reads these namespaces; empty for all.

        It takes over the worker process of the console `leaving`, as no process can be started once the screen is
        drawn.
        """
        request = replace(self._request, context=context, namespace=tuple(namespaces))
        console = self._open(request, leaving.answers.worker)
        self.namespaces = request.namespace
        leaving.hand_over()
        return console

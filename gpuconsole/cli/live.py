"""Opens a live cluster: its backend, and a single read of it for commands without a screen."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from fnmatch import fnmatchcase

from msgspec import Struct

from gpuconsole.backends.kube.backend import KubeBackend
from gpuconsole.backends.kube.client import RateLimiter
from gpuconsole.backends.kube.target import RequestedCluster, find
from gpuconsole.cli.measuring import measure
from gpuconsole.cli.options import OpenRequest
from gpuconsole.config import Config
from gpuconsole.errors import ClusterError
from gpuconsole.model.snapshot import Snapshot, only_namespaces_text
from gpuconsole.scheduling.kueue.config import KueueConfig
from gpuconsole.services.status import ConsoleMode, ConsoleStatus
from gpuconsole.sim.policy import SimPolicy

PATIENCE = 120.0
"""Timeout for reading the whole cluster once, in seconds."""
POLL = 0.02


class LiveCluster(Struct, frozen=True, kw_only=True):
    """A live cluster whose kubeconfig was read, but which is not connected yet."""

    backend: KubeBackend
    about: ConsoleStatus
    context: str
    notices: tuple[str, ...] = ()


def open_live(request: OpenRequest, settings: Config | None = None) -> LiveCluster:
    """Set up the backend of the requested cluster. Raises UsageError, ClusterError."""
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
def connected(request: OpenRequest, settings: Config | None = None) -> Iterator[LiveCluster]:
    """Connect to the requested cluster, and close the connection at the end. Raises UsageError, ClusterError."""
    opened = open_live(request, settings)
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
    """Reason why a context is read-only; empty where changes are allowed."""
    for pattern in settings.live.protected:
        if fnmatchcase(context, pattern):
            return f"Context {context} is read-only: it matches {pattern} of live.protected in the configuration"
    return ""


def look(backend: KubeBackend, patience: float = PATIENCE) -> Snapshot:
    """Read the whole cluster once. Raises ClusterError if it takes longer than `patience` seconds."""
    deadline = time.monotonic() + patience
    while True:
        backend.poll(POLL)
        if not backend.health.loading:
            return backend.snapshot()
        if time.monotonic() > deadline:
            sight = backend.health
            why = sight.lost or "; ".join(sight.unread) or "its API server responds too slowly"
            raise ClusterError(f"could not read the cluster within {patience:g}s: {why}")
        time.sleep(POLL)

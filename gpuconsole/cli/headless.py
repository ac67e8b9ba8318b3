"""Runs the console without a screen until a signal, and serves metrics and its state over HTTP.

Shared by `gpuconsole record` and `gpuconsole metrics`: their options, the status lines on stderr, and the pages for
Prometheus (`/metrics`) and for probes (`/-/healthy`, `/-/ready`).
"""

import signal
import socket
import socketserver
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from types import FrameType
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

import click
from msgspec import Struct
from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.exposition import make_wsgi_app
from prometheus_client.registry import Collector

from gpuconsole import __version__
from gpuconsole.errors import UsageError
from gpuconsole.garbage import limit_arenas, return_memory
from gpuconsole.insight.cost.report import Budget
from gpuconsole.model.clock import format_span
from gpuconsole.model.snapshot import EMPTY
from gpuconsole.model.text import clean
from gpuconsole.services.alerting import AlertNews
from gpuconsole.services.console import Console
from gpuconsole.services.metrics import BackgroundEstimates, ClusterCollector, Estimates, MetricsSource
from gpuconsole.services.status import ConsoleStatus
from gpuconsole.ui.names import called

REPORT = 60.0
"""Seconds between two status lines on stderr."""
STALLED = 120.0
"""Seconds without a tick of the loop after which `/-/healthy` asks for a restart; of a live cluster that cannot be
reached it does not, because the backend reconnects."""


class Listener(Struct, frozen=True):
    """The address on which metrics are served; an empty host stands for all interfaces."""

    host: str
    port: int

    def __str__(self) -> str:
        host = self.host or "0.0.0.0"
        return f"http://[{host}]:{self.port}" if ":" in host else f"http://{host}:{self.port}"


class ListenerType(click.ParamType[Listener]):
    """An address to listen on, `HOST:PORT` or `:PORT` for all interfaces; of IPv6 `[HOST]:PORT`."""

    name = "address"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Listener:
        if isinstance(value, Listener):
            return value
        host, colon, port = str(value).rpartition(":")
        if not colon or not port.isascii() or not port.isdigit() or not 0 <= int(port) < 65_536:
            self.fail(f"{value!r} is not an address; use HOST:PORT, or :PORT for all interfaces", param, ctx)
        if ":" in host and not (host.startswith("[") and host.endswith("]")):
            self.fail(f"{value!r}: write an IPv6 address in brackets, as in [::1]:9090", param, ctx)
        return Listener(host.strip("[]"), int(port))


ESTIMATES = click.option(
    "--estimates",
    is_flag=True,
    help="Also compute forecasts, estimated starts and preemption risk, in a worker process (more CPU and memory).",
)


def say(text: str) -> None:
    """Write a line to stderr, with the time; nobody may be reading it."""
    with suppress(OSError):
        click.echo(f"{time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())} {clean(text)}", err=True)


def wait_for_signals() -> threading.Event:
    """Return an event that SIGTERM, SIGINT or SIGHUP sets from now on."""
    stopped = threading.Event()

    def stop(number: int, frame: FrameType | None) -> None:
        stopped.set()

    for name in ("SIGTERM", "SIGINT", "SIGHUP"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), stop)
    return stopped


def run_headless(
    console: Console, recorded: Path | None, metrics: Listener | None, budgets: Sequence[Budget] = ()
) -> int:
    """Run a console without a screen until SIGTERM, SIGINT or SIGHUP; returns the exit status.

    `recorded` is the file of the history, for the status lines. Raises UsageError if the metrics cannot be served.
    """
    limit_arenas()
    stopped = wait_for_signals()
    serving = ExitStack()
    try:
        if metrics is not None:
            _serve(console, metrics, budgets, serving)
        if console.alerting is not None:
            console.alerting.listen(_say_alerts)
        console.start()
        due = time.monotonic() + REPORT
        while not stopped.wait(max(0.0, due - time.monotonic())):
            due += REPORT
            say(status_line(console, recorded))
            # Loading a cluster takes more memory than having it.
            return_memory()
        say(f"stopping; {status_line(console, recorded)}")
    finally:
        serving.close()
        console.stop()
    return 0


def _say_alerts(news: AlertNews) -> None:
    for alert in news.fired:
        say(f"ALERT {alert.severity} {alert.name}: {alert.summary}")
    for alert in news.resolved:
        say(f"resolved {alert.name}: {alert.summary}")


def _serve(console: Console, listener: Listener, budgets: Sequence[Budget], serving: ExitStack) -> None:
    """Serve the metrics of a console until `serving` is closed."""
    estimates = BackgroundEstimates(console.answers) if console.answers.foretells else None
    if estimates is not None:
        serving.callback(estimates.stop)
    server = serve(
        console,
        listener,
        budgets,
        estimates=estimates,
        unhealthy=lambda: unhealthy(console.status),
        unready=lambda: unready(console.status),
    )
    serving.callback(server.close)
    say(f"serving metrics of {console.status.source} on {server.listener}/metrics")


def status_line(console: Console, recorded: Path | None) -> str:
    """Return the state of a headless console in one line: its cluster, and what is wrong."""
    snapshot, status = console.snapshot, console.status
    parts = ["loading" if status.loading or snapshot is EMPTY else _sizes(console)]
    if recorded is not None:
        with suppress(OSError):
            parts.append(f"history {sum(map(_size, (recorded, Path(f'{recorded}-wal')))) / 1e6:.1f} MB")
    problems = _problems(status)
    return "; ".join([*parts, *(f"PROBLEM: {problem}" for problem in problems)])


def _sizes(console: Console) -> str:
    snapshot = console.snapshot
    return f"{len(snapshot.nodes):,} nodes, {len(snapshot.workloads):,} workloads, {len(snapshot.pods):,} pods"


def _size(file: Path) -> int:
    return file.stat().st_size if file.exists() else 0


def _problems(status: ConsoleStatus) -> Iterable[str]:
    if status.stalled:
        yield status.stalled
    if status.sight is not None and status.sight.lost:
        yield f"not connected for {format_span(int(status.age * 1e6))}: {status.sight.lost}"
    if status.history:
        yield f"the history is not written: {status.history}"
    if status.lost_events:
        yield f"{status.lost_events:,} events are missing in the history"
    if unseen := status.unseen(()):
        yield unseen


def unhealthy(status: ConsoleStatus) -> str:
    """Return why the process should be restarted; empty if it should not."""
    if status.stalled and status.age > STALLED:
        return f"the cluster's state has not been renewed for {status.age:.0f} s: {status.stalled}"
    return ""


def unready(status: ConsoleStatus) -> str:
    """Return why the process does not yet, or no longer, do its work; empty if it does."""
    if status.loading:
        return "the cluster is being loaded"
    return next(iter(_problems(status)), "")


def serve(
    source: MetricsSource,
    listener: Listener,
    budgets: Sequence[Budget],
    *,
    estimates: Estimates | None = None,
    unhealthy: Callable[[], str] = str,
    unready: Callable[[], str] = str,
) -> "MetricsServer":
    """Serve the metrics of a source. Raises UsageError if the address cannot be used.

    `unhealthy` and `unready` return why a probe must fail; empty if it must not.
    """
    collector = ClusterCollector(source, version=__version__, job_name=called, estimates=estimates, budgets=budgets)
    try:
        return MetricsServer(listener, collector, unhealthy=unhealthy, unready=unready)
    except OSError as error:
        raise UsageError(f"cannot serve metrics on {listener}: {error.strerror}; choose another address") from error


class MetricsServer:
    """Serves metrics and the state of this process over HTTP, in threads of its own. Mutates.

    `/metrics` is for Prometheus. `/-/healthy` responds 200 while the process works, even if the cluster cannot be
    reached, and 503 with the reason if it should be restarted; `/-/ready` responds 200 once the cluster is loaded.
    """

    def __init__(
        self,
        listener: Listener,
        collector: Collector,
        *,
        unhealthy: Callable[[], str] = str,
        unready: Callable[[], str] = str,
    ) -> None:
        """Listen; the functions return a reason, or an empty text. Raises OSError if the address cannot be used."""
        registry = CollectorRegistry()
        registry.register(collector)
        ProcessCollector(registry=registry)
        self._server = make_server(
            listener.host,
            listener.port,
            _pages(make_wsgi_app(registry), {"/-/healthy": unhealthy, "/-/ready": unready}),
            _server_class(listener.host),
            _Handler,
        )
        self.listener = Listener(listener.host, self._server.server_port)
        threading.Thread(target=self._server.serve_forever, name="metrics", daemon=True).start()

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()


def _pages(metrics: WSGIApplication, checks: Mapping[str, Callable[[], str]]) -> WSGIApplication:
    def respond(environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        path = environ.get("PATH_INFO", "")
        if path == "/metrics":
            return metrics(environ, start)
        if path in checks:
            problem = checks[path]()
            status, text = ("503 Service Unavailable", problem) if problem else ("200 OK", "ok")
        else:
            status, text = "404 Not Found", "Metrics are at /metrics, probes at /-/healthy and /-/ready"
        start(status, [("Content-Type", "text/plain; charset=utf-8")])
        return [f"{text}\n".encode()]

    return respond


class _Handler(WSGIRequestHandler):
    timeout = 10
    """Seconds after which a client that sends nothing is disconnected."""

    def log_message(self, format: str, *arguments: object) -> None:
        """Requests are not logged."""


def _server_class(host: str) -> type[WSGIServer]:
    class Server(socketserver.ThreadingMixIn, WSGIServer):
        daemon_threads = True
        address_family = socket.AF_INET6 if ":" in host else socket.AF_INET

        def server_bind(self) -> None:
            # WSGIServer looks up the name of this machine, which may take long.
            socketserver.TCPServer.server_bind(self)
            self.server_name, self.server_port = "localhost", self.server_address[1]
            self.setup_environ()

    return Server

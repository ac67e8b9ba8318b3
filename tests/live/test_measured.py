"""The whole console with what others measure: GPUs by a real Prometheus, a queue by the endpoint of Kueue's manager."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuconsole.backends.kube.backend import wall
from gpuconsole.backends.telemetry.http import Http, HttpAccess
from gpuconsole.backends.telemetry.kueue_metrics import KueueEndpoint
from gpuconsole.errors import TelemetryError
from gpuconsole.insight.index.queues import QueueMetrics
from gpuconsole.model.clock import SECOND
from tests.live import stock
from tests.live.api import Api, Manifest, path_of, until
from tests.live.controlplane import ControlPlane
from tests.live.identities import KUEUE, READER, VIEWER, Identity
from tests.live.kueue.metrics import EVICTIONS, STARTED, MetricsEndpoint
from tests.live.paths import CLUSTER_QUEUES, JOBS, PODS
from tests.live.telemetry import Exporter, Gpu, Prometheus, prometheus_binary
from tests.tools.pty_console import PtyConsole

BINARY = prometheus_binary()
pytestmark = pytest.mark.live
COMMAND = Path(sys.executable).with_name("gpuconsole")
HOME = "\x1b[H"
RBAC = "rbac.authorization.k8s.io"
METRICS_READER = "kueue-metrics-reader"
"""The ClusterRole that comes with Kueue."""


@pytest.fixture(scope="module")
def measured(queued: Api) -> Manifest:
    """The one pod of a job that runs."""
    queued.create(stock.job("measured", "lq-a", gpus=1))
    until(lambda: queued.get(f"{JOBS}/measured")["status"].get("ready") == 1)
    until(lambda: queued.get(f"{CLUSTER_QUEUES}/cq-a")["status"].get("admittedWorkloads") == 1)
    (pod,) = (one for one in queued.items(PODS) if one["metadata"].get("labels", {}).get("job-name") == "measured")
    return pod


@pytest.fixture
def endpoint(plane: ControlPlane, queued: Api) -> Iterator[MetricsEndpoint]:
    """Kueue's metrics, which a reader may get and a viewer may not."""
    role = {"nonResourceURLs": ["/metrics"], "verbs": ["get"]}
    granted = [
        {"apiVersion": f"{RBAC}/v1", "kind": "ClusterRole", "metadata": {"name": METRICS_READER}, "rules": [role]},
        {
            "apiVersion": f"{RBAC}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": METRICS_READER},
            "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": METRICS_READER},
            "subjects": [{"kind": "User", "name": READER.user, "apiGroup": RBAC}],
        },
    ]
    queued.apply(*granted)
    with MetricsEndpoint(plane.api(KUEUE), plane.certificates.serving) as endpoint:
        yield endpoint
    for thing in granted:
        queued.delete(path_of(thing))


def asked_as(who: Identity, endpoint: MetricsEndpoint, plane: ControlPlane, folder: Path) -> QueueMetrics:
    token = folder / who.name
    token.write_text(who.token)
    access = HttpAccess(token_file=str(token), ca_file=str(plane.authority), settings="live.telemetry.kueue")
    kueue = KueueEndpoint(Http(endpoint.url, access))
    return kueue.of("cq-a", wall())


def test_who_may_read_kueues_metrics_gets_those_of_a_queue(
    plane: ControlPlane, measured: Manifest, endpoint: MetricsEndpoint, tmp_path: Path
) -> None:
    told = asked_as(READER, endpoint, plane, tmp_path)
    assert told == QueueMetrics(
        queue="cq-a",
        source=endpoint.url,
        time=told.time,
        since=STARTED * SECOND,
        pending=0,
        inadmissible=0,
        reserving=1,
        admitted=1,
        evicted={"Preempted": EVICTIONS},
    )


@pytest.mark.parametrize(
    ("who", "why"),
    [
        (VIEWER, "HTTP 403 Authorization denied for user viewer; the credentials have no permission"),
        (
            Identity("stranger", "stranger"),
            "HTTP 401 Unauthorized; set live.telemetry.kueue.token_file to a file with a bearer token",
        ),
    ],
    ids=["without the right", "without a valid token"],
)
def test_who_may_not_is_told_why(
    plane: ControlPlane, endpoint: MetricsEndpoint, tmp_path: Path, who: Identity, why: str
) -> None:
    with pytest.raises(TelemetryError) as raised:
        asked_as(who, endpoint, plane, tmp_path)
    assert str(raised.value) == f"{endpoint.url}/metrics: {why}"


def narrow(console: PtyConsole, name: str) -> None:
    """Filter a table; what is asked for is painted anyway, so that nothing tells when it has been."""
    for typed in ("/", name, "\r"):
        console.write(typed)
        console.settle(1.0)


@pytest.mark.skipif(BINARY is None, reason="there is no Prometheus here (Debian: prometheus)")
def test_gpus_and_queues_are_shown_as_they_are_measured(
    plane: ControlPlane, measured: Manifest, endpoint: MetricsEndpoint, tmp_path: Path
) -> None:
    node, name = measured["spec"]["nodeName"], measured["metadata"]["name"]
    # Its guess would be GPU 0; DCGM knows better.
    gpus = [Gpu(node=node, index=5, namespace="team-a", pod=name, utilisation=97, sm=0.81, memory=60_000, power=643)]
    (tmp_path / "token").write_text(READER.token)
    environment = {
        "GPUCONSOLE_STATE_DIR": str(tmp_path),
        "GPUCONSOLE_LIVE__TELEMETRY__KUEUE__TOKEN_FILE": str(tmp_path / "token"),
        "GPUCONSOLE_LIVE__TELEMETRY__KUEUE__CA_FILE": str(plane.authority),
    }
    assert BINARY is not None
    with Exporter(gpus) as exporter, Prometheus(BINARY, tmp_path, exporter) as prometheus:
        until(lambda: prometheus.query("DCGM_FI_DEV_GPU_UTIL"))
        arguments = ["run", "--live", "--kubeconfig", str(plane.kubeconfig(READER)), "--context", READER.name]
        arguments += ["--prometheus", prometheus.url, "--kueue-metrics", endpoint.url]
        with PtyConsole([str(COMMAND), *arguments], 180, 100, environment) as console:
            console.wait("QUEUE|GPU")
            console.insist("4", node)
            narrow(console, node)
            console.insist("\r", f"sampled .* by {prometheus.url}")
            console.insist(HOME + "jjjjj", r"team-a/measured[^\n]* 97%[^\n]* 81%[^\n]* 643 ")
            console.insist(HOME + "jjjjj", "GPU 5 utilization: last hour")
            console.insist("2", "cq-a")
            narrow(console, "cq-a")
            console.insist("d", rf"{endpoint.url}, [\s\S]*Preempted {EVICTIONS}, since Kueue's manager started")
    assert "Traceback" not in (tmp_path / "gpuconsole.log").read_text()

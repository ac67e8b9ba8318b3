"""Where GPUs are measured: options win over the configuration, and what is no address is said at once."""

import pytest

from gpuconsole.backends.kube.backend import KubeBackend
from gpuconsole.backends.kube.target import RequestedCluster
from gpuconsole.cli.measuring import measure
from gpuconsole.cli.options import Request
from gpuconsole.config import KueueEndpointSettings, TelemetrySettings
from gpuconsole.errors import UsageError


@pytest.mark.parametrize(
    ("request_", "settings", "address"),
    [
        (Request(), TelemetrySettings(prometheus="https://user:pw@thanos/"), "https://thanos"),
        (Request(), TelemetrySettings(dcgm=("http://{node}:9400",)), "http://{node}:9400"),
        (Request(prometheus="http://p:9090"), TelemetrySettings(dcgm=("http://{node}:9400",)), "http://p:9090"),
        (Request(dcgm=("http://a:1", "http://b:1", "http://c:1")), TelemetrySettings(), "http://a:1, http://b:1 …"),
        (Request(prometheus="find"), TelemetrySettings(), "find"),
        (Request(prometheus="service:monitoring/p:9090"), TelemetrySettings(), "service:monitoring/p:9090"),
    ],
)
def test_options_win_over_the_configuration(request_: Request, settings: TelemetrySettings, address: str) -> None:
    backend = KubeBackend(RequestedCluster())
    measure(backend, request_, settings)
    assert backend.telemetry is not None
    assert backend.telemetry.sight.address == address


@pytest.mark.parametrize(
    ("request_", "settings", "address"),
    [
        (Request(prometheus="http://p:9090"), TelemetrySettings(), "http://p:9090"),
        (Request(kueue_metrics="https://kueue:8443/metrics"), TelemetrySettings(), "https://kueue:8443"),
        (
            Request(),
            TelemetrySettings(kueue=KueueEndpointSettings(address="service:k/https:m:8443")),
            "service:k/https:m:8443",
        ),
        (
            Request(kueue_metrics="http://a"),
            TelemetrySettings(kueue=KueueEndpointSettings(address="http://b")),
            "http://a",
        ),
        (Request(prometheus="http://p", kueue_metrics="http://kueue"), TelemetrySettings(), "http://kueue"),
    ],
)
def test_kueue_itself_is_asked_before_a_prometheus(
    request_: Request, settings: TelemetrySettings, address: str
) -> None:
    backend = KubeBackend(RequestedCluster())
    measure(backend, request_, settings)
    assert backend.kueue_metrics is not None
    assert backend.kueue_metrics.address == address
    assert (backend.telemetry is None) is (not request_.prometheus)


def test_nobody_is_asked_unless_it_was_said() -> None:
    backend = KubeBackend(RequestedCluster())
    measure(backend, Request(), TelemetrySettings())
    assert (backend.telemetry, backend.kueue_metrics) == (None, None)


@pytest.mark.parametrize(
    ("request_", "text"),
    [
        (Request(prometheus="prometheus:9090"), "prometheus:9090: no URL; write it as http://"),
        (Request(dcgm=("{node}:9400",)), "node:9400: no URL"),
        (Request(kueue_metrics="kueue:8443"), "kueue:8443: no URL"),
        (Request(prometheus="service:p"), "write it as service:NAMESPACE/NAME:PORT"),
        (Request(prometheus="http://p", dcgm=("http://a",)), "not both"),
    ],
)
def test_what_is_no_address_is_said(request_: Request, text: str) -> None:
    with pytest.raises(UsageError, match=text):
        measure(KubeBackend(RequestedCluster()), request_, TelemetrySettings())

"""Where GPUs are measured: options win over the configuration, and what is no address is said at once."""

import pytest

from gpuconsole.backends.kube.backend import KubeBackend
from gpuconsole.backends.kube.target import RequestedCluster
from gpuconsole.cli.live import measure
from gpuconsole.cli.options import OpenRequest
from gpuconsole.config import KueueEndpointSettings, TelemetrySettings
from gpuconsole.errors import UsageError


@pytest.mark.parametrize(
    ("request_", "settings", "address"),
    [
        (OpenRequest(), TelemetrySettings(prometheus="https://user:pw@thanos/"), "https://thanos"),
        (OpenRequest(), TelemetrySettings(dcgm=("http://{node}:9400",)), "http://{node}:9400"),
        (OpenRequest(prometheus="http://p:9090"), TelemetrySettings(dcgm=("http://{node}:9400",)), "http://p:9090"),
        (OpenRequest(dcgm=("http://a:1", "http://b:1", "http://c:1")), TelemetrySettings(), "http://a:1, http://b:1 …"),
        (OpenRequest(prometheus="find"), TelemetrySettings(), "find"),
        (OpenRequest(prometheus="service:monitoring/p:9090"), TelemetrySettings(), "service:monitoring/p:9090"),
    ],
)
def test_options_win_over_the_configuration(request_: OpenRequest, settings: TelemetrySettings, address: str) -> None:
    backend = KubeBackend(RequestedCluster())
    measure(backend, request_, settings)
    assert backend.telemetry is not None
    assert backend.telemetry.sight.address == address


@pytest.mark.parametrize(
    ("request_", "settings", "address"),
    [
        (OpenRequest(prometheus="http://p:9090"), TelemetrySettings(), "http://p:9090"),
        (OpenRequest(kueue_metrics="https://kueue:8443/metrics"), TelemetrySettings(), "https://kueue:8443"),
        (
            OpenRequest(),
            TelemetrySettings(kueue=KueueEndpointSettings(address="service:k/https:m:8443")),
            "service:k/https:m:8443",
        ),
        (
            OpenRequest(kueue_metrics="http://a"),
            TelemetrySettings(kueue=KueueEndpointSettings(address="http://b")),
            "http://a",
        ),
        (OpenRequest(prometheus="http://p", kueue_metrics="http://kueue"), TelemetrySettings(), "http://kueue"),
    ],
)
def test_kueue_itself_is_asked_before_a_prometheus(
    request_: OpenRequest, settings: TelemetrySettings, address: str
) -> None:
    backend = KubeBackend(RequestedCluster())
    measure(backend, request_, settings)
    assert backend.kueue_metrics is not None
    assert backend.kueue_metrics.address == address
    assert (backend.telemetry is None) is (not request_.prometheus)


def test_nobody_is_asked_unless_it_was_said() -> None:
    backend = KubeBackend(RequestedCluster())
    measure(backend, OpenRequest(), TelemetrySettings())
    assert (backend.telemetry, backend.kueue_metrics) == (None, None)


@pytest.mark.parametrize(
    ("request_", "text"),
    [
        (OpenRequest(prometheus="prometheus:9090"), "prometheus:9090: not a URL; write it as http://"),
        (OpenRequest(dcgm=("{node}:9400",)), "node:9400: not a URL"),
        (OpenRequest(kueue_metrics="kueue:8443"), "kueue:8443: not a URL"),
        (OpenRequest(prometheus="service:p"), "write it as service:NAMESPACE/NAME:PORT"),
        (OpenRequest(prometheus="http://p", dcgm=("http://a",)), "not both"),
    ],
)
def test_what_is_no_address_is_said(request_: OpenRequest, text: str) -> None:
    with pytest.raises(UsageError, match=text):
        measure(KubeBackend(RequestedCluster()), request_, TelemetrySettings())

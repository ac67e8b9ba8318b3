"""A Prometheus inside the cluster, asked through the API server: by its name, or found by what it looks like."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

import msgspec
import pytest

from gpuconsole.backends.kube.client import ApiResponse, ApiServerConnection, ServiceProxy
from gpuconsole.errors import ClusterError, TelemetryError, UsageError


class Cluster:
    """Answers what is asked of its API server."""

    def __init__(self, services: Sequence[Any] = (), refuse: str = "") -> None:
        self.asked: list[str] = []
        self._services = services
        self._refuse = refuse

    def get(self, path: str, query: Mapping[str, str] | None = None, *, read: float = 0) -> ApiResponse:
        self.asked.append(path)
        if self._refuse and path.startswith(self._refuse):
            raise ClusterError("staging: services is forbidden (HTTP 403: ask for a role that allows it)")
        return ApiResponse(200, msgspec.json.encode({"items": self._services} if path == "/api/v1/services" else {}))


def through(address: str, cluster: Cluster) -> ServiceProxy:
    return ServiceProxy(address, lambda: cast(ApiServerConnection, cluster))


def service(namespace: str, name: str, *ports: int, **labels: str) -> dict[str, Any]:
    return {
        "metadata": {"namespace": namespace, "name": name, "labels": {"app.kubernetes.io/name": labels.get("app", "")}},
        "spec": {"ports": [{"port": port} for port in ports]},
    }


@pytest.mark.parametrize(
    ("address", "path"),
    [
        ("service:monitoring/prometheus-k8s:9091", "/api/v1/namespaces/monitoring/services/prometheus-k8s:9091/proxy"),
        ("service:obs/prom", "/api/v1/namespaces/obs/services/prom:9090/proxy"),
        ("service:kueue-system/https:kueue:8443", "/api/v1/namespaces/kueue-system/services/https:kueue:8443/proxy"),
    ],
)
def test_a_service_is_asked_through_the_api_server(address: str, path: str) -> None:
    cluster = Cluster()
    through(address, cluster).get("/api/v1/query", {"query": "up"})
    assert cluster.asked == [f"{path}/api/v1/query"]


@pytest.mark.parametrize("address", ["service:prom", "service:/x:1", "service:a/b/../../secrets:1", "service:a/b:x y"])
def test_what_names_no_service_is_refused_at_once(address: str) -> None:
    with pytest.raises(UsageError, match="write it as service:NAMESPACE/NAME:PORT"):
        through(address, Cluster())


def test_what_looks_most_like_a_prometheus_is_found_once() -> None:
    cluster = Cluster(
        [
            service("a", "web", 80),
            service("b", "prometheus-operator", 9090),
            service("c", "prometheus-node-exporter", 9100),
            service("d", "kube-prometheus-stack-prometheus", 9090, 8080),
            service("e", "other-prometheus-thing", 9090),
        ]
    )
    found = through("find", cluster)
    for _ in range(2):
        found.get("/api/v1/query", {})
    path = "/api/v1/namespaces/d/services/kube-prometheus-stack-prometheus:9090/proxy/api/v1/query"
    assert cluster.asked == ["/api/v1/services", path, path]
    assert found.address == "service:d/kube-prometheus-stack-prometheus:9090"


def test_none_that_looks_like_it_is_said() -> None:
    with pytest.raises(TelemetryError, match=r"^found no Prometheus service in the cluster; give one"):
        through("find", Cluster([service("a", "web", 9090)])).get("/api/v1/query", {})


def test_what_is_forbidden_is_said_with_the_service() -> None:
    cluster = Cluster(refuse="/api/v1/namespaces")
    with pytest.raises(TelemetryError, match=r"^service:m/p:1/api/v1/query: staging: services is forbidden"):
        through("service:m/p:1", cluster).get("/api/v1/query", {})

"""The throw-away control plane is a real one: what it is used for in the other tests holds here first."""

import threading
from collections.abc import Iterator

import httpx
import pytest

from tests.live import stock
from tests.live.api import Api, Refused, until
from tests.live.controlplane import ControlPlane
from tests.live.identities import ADMIN, NOBODY, NODELESS, READER, VIEWER
from tests.live.proxy import Fault, Proxy

pytestmark = pytest.mark.live


def test_a_job_runs_and_ends_on_a_node_that_is_none(plane: ControlPlane) -> None:
    api, path = plane.api(), "/apis/batch/v1/namespaces/team-a/jobs/quick"
    api.create(stock.job("quick", gpus=4, pods=2, seconds=0.2))
    done = until(lambda: api.get(path)["status"].get("succeeded") == 2)
    api.delete(f"{path}?propagationPolicy=Background")
    assert done


def test_pods_print_what_kwok_says(plane: ControlPlane) -> None:
    api = plane.api()
    api.create(stock.job("talks", gpus=1))
    pods = "/api/v1/namespaces/team-a/pods"

    def running() -> list[str]:
        found = api.items(f"{pods}?labelSelector=job-name%3Dtalks")
        return [pod["metadata"]["name"] for pod in found if pod["status"].get("phase") == "Running"]

    (name,) = until(running)
    said = api.http.get(f"{pods}/{name}/log").text
    api.delete("/apis/batch/v1/namespaces/team-a/jobs/talks?propagationPolicy=Background")
    assert said.splitlines()[-1] == "step 19"


@pytest.mark.parametrize(
    ("who", "path", "status"),
    [
        (ADMIN, "/api/v1/nodes", 200),
        (READER, "/api/v1/nodes", 200),
        (READER, "/api/v1/namespaces/team-a/secrets", 403),
        (NODELESS, "/api/v1/nodes", 403),
        (NODELESS, "/apis/kueue.x-k8s.io/v1beta2/workloads", 200),
        (VIEWER, "/apis/kueue.x-k8s.io/v1beta2/workloads", 403),
        (VIEWER, "/apis/kueue.x-k8s.io/v1beta2/namespaces/team-a/workloads", 200),
        (VIEWER, "/apis/kueue.x-k8s.io/v1beta2/clusterqueues", 403),
        (NOBODY, "/api/v1/namespaces/team-a/pods", 403),
    ],
    ids=lambda value: value.name if hasattr(value, "name") else str(value),
)
def test_everybody_may_do_what_their_role_says(plane: ControlPlane, who: object, path: str, status: int) -> None:
    assert plane.api(who).http.get(path).status_code == status  # type: ignore[arg-type]


def test_the_audit_log_tells_who_read_and_who_wrote(plane: ControlPlane) -> None:
    log, admin = plane.audit.skip(), plane.api(ADMIN)
    admin.get("/api/v1/nodes")
    review = {"spec": {"resourceAttributes": {"verb": "delete", "resource": "pods", "namespace": "team-a"}}}
    kind = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview"}
    admin.call("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", kind | review)
    assert ([request.resource for request in log.lists("admin")], log.writes("admin")) == (["nodes"], [])
    admin.patch("/api/v1/nodes/h100-0000", {"metadata": {"annotations": {"touched": "yes"}}})
    assert [(request.verb, request.resource, request.object_ref.name) for request in log.writes("admin")] == [
        ("patch", "nodes", "h100-0000")
    ]


def test_the_api_server_comes_back_after_it_was_killed(plane: ControlPlane) -> None:
    before = plane.api().get("/api/v1/nodes/h100-0001")["metadata"]["uid"]
    plane.restart_apiserver()
    assert plane.api().get("/api/v1/nodes/h100-0001")["metadata"]["uid"] == before


def test_a_paused_api_server_answers_nothing_until_it_goes_on(plane: ControlPlane) -> None:
    plane.apiserver.pause()
    try:
        with pytest.raises(httpx.TimeoutException):
            plane.api().http.get("/api/v1/nodes/h100-0001", timeout=0.5)
    finally:
        plane.apiserver.resume()
    until(plane.api().is_ready)


class TestProxy:
    """In front of the real API server it does what is asked, and nothing else."""

    @pytest.fixture
    def proxied(self, plane: ControlPlane, proxy: Proxy) -> Iterator[Api]:
        with Api(proxy.server, plane.authority, ADMIN.token) as api:
            yield api

    def test_everything_passes_at_first(self, proxied: Api) -> None:
        proxied.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "passed", "namespace": "team-a"}})
        proxied.delete("/api/v1/namespaces/team-a/configmaps/passed")
        assert len(proxied.items("/api/v1/nodes")) == 8

    def test_it_answers_in_the_servers_place(self, proxied: Api, proxy: Proxy) -> None:
        proxy.do(Fault(match="GET /api/v1/nodes", status=429, retry_after=1, times=1))
        with pytest.raises(Refused) as refused:
            proxied.get("/api/v1/nodes")
        assert refused.value.status == 429
        assert len(proxied.items("/api/v1/nodes")) == 8

    def test_a_watch_is_cut_in_the_middle_of_a_line(self, proxied: Api, proxy: Proxy) -> None:
        version = proxied.get("/api/v1/nodes")["metadata"]["resourceVersion"]
        with proxied.http.stream("GET", f"/api/v1/nodes?watch=1&resourceVersion={version}") as response:
            assert until(lambda: proxy.cut_watches("nodes")) == 1
            with pytest.raises(httpx.RemoteProtocolError):
                list(response.iter_bytes())

    def test_a_watch_says_that_its_version_is_too_old(self, proxied: Api, proxy: Proxy) -> None:
        version = proxied.get("/api/v1/nodes")["metadata"]["resourceVersion"]
        ordered = threading.Thread(target=until, args=(lambda: proxy.expire_watches("nodes"),))
        ordered.start()
        changes = list(proxied.watch("/api/v1/nodes", version))
        ordered.join()
        assert [(kind, thing["code"]) for kind, thing in changes if kind == "ERROR"] == [("ERROR", 410)]

    def test_it_hangs_until_it_is_healed(self, proxied: Api, proxy: Proxy) -> None:
        proxy.hang()
        with pytest.raises(httpx.TimeoutException):
            proxied.http.get("/api/v1/nodes", timeout=0.5)
        proxy.heal()
        assert len(proxied.items("/api/v1/nodes")) == 8

"""Kueue's visibility API: asked now and then, for one queue; what is not there, or not for us, is left alone."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from gpuconsole.backends.kube.client import ApiServerConnection
from gpuconsole.backends.kube.kueue_config import RENEW, VISIBILITY_AGAIN, VisibilityClient
from gpuconsole.backends.kube.target import RequestedCluster
from gpuconsole.insight.index.queues import QueuePosition, VisibilityPositions

NOW = 1_767_600_000_000_000
GROUP = "/apis/visibility.kueue.x-k8s.io"
WAITING = {
    "items": [
        {
            "metadata": {"name": "first", "namespace": "team-a"},
            "priority": 10,
            "localQueueName": "lq-a",
            "positionInClusterQueue": 0,
            "positionInLocalQueue": 0,
        },
        {
            "metadata": {"name": "evil\u001b[2J", "namespace": "team-b"},
            "positionInClusterQueue": 1,
            "positionInLocalQueue": 0,
        },
    ]
}
PLACES = {"team-a/first": QueuePosition(1, 1), "team-b/evil\ufffd[2J": QueuePosition(2, 1)}


class Kueue:
    """A server that answers some paths, and refuses others."""

    def __init__(self, folder: Path) -> None:
        self.answers: dict[str, tuple[int, Any]] = {}
        self.asked: list[str] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.asked.append(self.path)
                code, body = outer.answers.get(self.path.partition("?")[0], (404, {"code": 404}))
                content = json.dumps(body).encode()
                self.send_response(code)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: object) -> None:
                """Quiet."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()
        cluster = {"server": f"http://127.0.0.1:{self.server.server_port}"}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "it",
            "contexts": [{"name": "it", "context": {"cluster": "it", "user": "me"}}],
            "clusters": [{"name": "it", "cluster": cluster}],
            "users": [{"name": "me", "user": {"token": "t"}}],
        }
        path = folder / "kubeconfig"
        path.write_text(json.dumps(config))
        self.now = 1000.0
        self.connection = ApiServerConnection(RequestedCluster(kubeconfig=str(path)))
        self.visibility = VisibilityClient(self.connection, lambda: NOW, clock=lambda: self.now)

    def ask(self, cluster_queue: str = "cq-a", local_queue: str = "team-a/lq-a") -> VisibilityPositions:
        return self.visibility.standings(cluster_queue, local_queue)


@pytest.fixture
def kueue(tmp_path: Path) -> Iterator[Kueue]:
    made = Kueue(tmp_path)
    yield made
    made.server.shutdown()
    made.server.server_close()


def path(version: str = "v1beta2", queue: str = "clusterqueues/cq-a") -> str:
    return f"{GROUP}/{version}/{queue}/pendingworkloads"


def test_places_are_counted_from_one_and_strange_names_are_cleaned(kueue: Kueue) -> None:
    kueue.answers[path()] = (200, WAITING)
    assert kueue.ask() == VisibilityPositions(queue="cq-a", source="visibility API v1beta2", time=NOW, places=PLACES)
    assert kueue.asked == [f"{path()}?limit=1000"]


def test_an_answer_stands_for_a_while(kueue: Kueue) -> None:
    kueue.answers[path()] = (200, WAITING)
    for _ in range(100):
        kueue.ask()
        kueue.now += RENEW / 100 - 0.001
    assert len(kueue.asked) == 1
    kueue.now += 1
    kueue.ask()
    assert len(kueue.asked) == 2


def test_an_older_kueue_answers_in_its_version_which_is_remembered(kueue: Kueue) -> None:
    kueue.answers[path("v1beta1")] = (200, WAITING)
    assert kueue.ask().source == "visibility API v1beta1"
    kueue.now += RENEW
    kueue.ask()
    assert kueue.asked == [f"{path(version)}?limit=1000" for version in ("v1beta2", "v1beta1", "v1beta1")]


def test_who_may_not_see_the_cluster_queue_asks_for_the_local_queue(kueue: Kueue) -> None:
    kueue.answers[path()] = (403, {"code": 403, "message": "no"})
    kueue.answers[path(queue="namespaces/team-a/localqueues/lq-a")] = (200, WAITING)
    found = kueue.ask()
    assert (found.queue, found.places) == ("team-a/lq-a", PLACES)


ABSENT = "the visibility API is not served"


@pytest.mark.parametrize(
    ("code", "requests", "trouble"), [(404, 2, ABSENT), (503, 2, ABSENT), (403, 2, "no (HTTP 403:")]
)
def test_what_is_not_there_or_not_for_us_is_left_alone_for_long_and_it_is_told_why(
    kueue: Kueue, code: int, requests: int, trouble: str
) -> None:
    for version in ("v1beta2", "v1beta1"):
        for queue in ("clusterqueues/cq-a", "namespaces/team-a/localqueues/lq-a"):
            kueue.answers[path(version, queue)] = (code, {"code": code, "message": "no"})
    found = kueue.ask()
    assert (found.source, found.places, trouble in found.trouble) == ("", {}, True)
    assert len(kueue.asked) == requests
    kueue.now += VISIBILITY_AGAIN - 1
    assert kueue.ask().places == {}
    assert len(kueue.asked) == requests
    kueue.now += 2
    kueue.ask()
    assert len(kueue.asked) > requests


def test_an_answer_that_is_none_is_no_answer(kueue: Kueue) -> None:
    kueue.answers[path()] = (200, ["what"])
    found = kueue.ask()
    assert (found.places, bool(found.trouble)) == ({}, True)

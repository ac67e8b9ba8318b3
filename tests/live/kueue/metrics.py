"""The metrics endpoint of Kueue's manager: TLS on loopback, and the API server says who may ask, as with Kueue."""

import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.live.api import Api
from tests.live.certificates import Pair
from tests.live.paths import CLUSTER_QUEUES

STARTED = 1_760_000_000
"""When the manager was started, in seconds."""
EVICTIONS = 3
"""Of cq-a since then."""
REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews", "/apis/authorization.k8s.io/v1/subjectaccessreviews"


class MetricsEndpoint:
    """Tells what the ClusterQueues' statuses say. Use it as a context manager."""

    def __init__(self, kueue: Api, serving: Pair) -> None:
        self._kueue = kueue
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(serving.certificate, serving.key)
        # Shaken by the thread that answers, so that one who hangs holds nobody up.
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True, do_handshake_on_connect=False)

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> "MetricsEndpoint":
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def answer(self, token: str) -> tuple[int, str]:
        """Status and text for whoever has this token."""
        tokens, access = REVIEWS
        told = self._kueue.call("POST", tokens, _review("authentication", "TokenReview", {"token": token}))["status"]
        if not told.get("authenticated"):
            return 401, "Unauthorized"
        user = {"user": told["user"]["username"], "groups": told["user"].get("groups", [])}
        asked = {**user, "nonResourceAttributes": {"path": "/metrics", "verb": "get"}}
        said = self._kueue.call("POST", access, _review("authorization", "SubjectAccessReview", asked))["status"]
        if not said["allowed"]:
            return 403, f"Authorization denied for user {user['user']}"
        return 200, self._text()

    def _text(self) -> str:
        lines = [f"process_start_time_seconds {STARTED:e}", "go_goroutines 312"]
        for queue in self._kueue.items(CLUSTER_QUEUES):
            name, status = f'cluster_queue="{queue["metadata"]["name"]}"', queue.get("status", {})
            role = 'replica_role="leader"'
            lines += [
                f'kueue_pending_workloads{{{name},{role},status="active"}} {status.get("pendingWorkloads", 0)}',
                f'kueue_pending_workloads{{{name},{role},status="inadmissible"}} 0',
                f"kueue_reserving_active_workloads{{{name},{role}}} {status.get('reservingWorkloads', 0)}",
                f"kueue_admitted_active_workloads{{{name},{role}}} {status.get('admittedWorkloads', 0)}",
            ]
        evicted = 'cluster_queue="cq-a",reason="Preempted",replica_role="leader",underlying_cause=""'
        return "\n".join([*lines, f"kueue_evicted_workloads_total{{{evicted}}} {EVICTIONS}", ""])


def _review(group: str, kind: str, spec: dict[str, object]) -> dict[str, object]:
    return {"apiVersion": f"{group}.k8s.io/v1", "kind": kind, "spec": spec}


def _handler(endpoint: MetricsEndpoint) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            token = self.headers.get("Authorization", "").removeprefix("Bearer ")
            status, text = endpoint.answer(token) if self.path == "/metrics" else (404, "404 page not found")
            self.send_response(status)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.send_header("Content-Length", str(len(text.encode())))
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, format: str, *args: object) -> None:
            """Nothing is printed."""

    return Handler

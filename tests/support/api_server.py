"""A tiny API server on loopback: lists in pages, watches, bookmarks, streaming lists, access reviews, and its moods.

It speaks the parts of Kubernetes' API that a watch needs, from what the documentation says of them; the live tests run
against the real one.
"""

import json
import queue
import random
import re
import socket
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.support.api_server_faults import Fault

Document = dict[str, Any]
KINDS: dict[str, tuple[str, str, str, bool]] = {
    "namespaces": ("", "v1", "Namespace", False),
    "nodes": ("", "v1", "Node", False),
    "pods": ("", "v1", "Pod", True),
    "events": ("", "v1", "Event", True),
    "jobs": ("batch", "v1", "Job", True),
    "resourceflavors": ("kueue.x-k8s.io", "v1beta2", "ResourceFlavor", False),
    "clusterqueues": ("kueue.x-k8s.io", "v1beta2", "ClusterQueue", False),
    "localqueues": ("kueue.x-k8s.io", "v1beta2", "LocalQueue", True),
    "workloads": ("kueue.x-k8s.io", "v1beta2", "Workload", True),
}
"""Plural → group, version, kind, namespaced."""
VERBS = ["create", "delete", "get", "list", "patch", "update", "watch"]


class ApiServer:
    """Objects by resource, and everybody who watches them. `moods` are answers to give instead, once each."""

    def __init__(self, folder: Path) -> None:
        self.objects: dict[str, dict[str, Document]] = {plural: {} for plural in KINDS}
        self.deleted: list[tuple[str, Document]] = []
        """Resource and last state of what was deleted: a watch that is taken up hears of it."""
        self.version = 100
        self.oldest = 0
        """A watch from before this is too old: 410."""
        self.streaming = True
        """Offer sendInitialEvents."""
        self.page = 10_000
        self.asked: Counter[str] = Counter()
        """Requests by `VERB path`."""
        self.requests: list[tuple[str, str, Document]] = []
        """Writes: method, path with query, body."""
        self.agents: set[str] = set()
        self.reviews: Counter[str] = Counter()
        """Reviews of one `right`, and of all `rules`."""
        self.selectors: defaultdict[str, set[str]] = defaultdict(set)
        """Resource → the field selectors of its lists."""
        self.tokens = {"secret"}
        self.forbidden: Callable[[str, str, str], bool] = lambda verb, plural, namespace: False
        self.knows_rules = True
        """Answer SelfSubjectRulesReviews; else they are incomplete, as those of a webhook."""
        self.moods: list[tuple[str, int, dict[str, str]]] = []
        """(part of the path, status, headers)"""
        self.says = "not now"
        """With a mood."""
        self.faults: list[tuple[str, Fault]] = []
        """(pattern of `VERB path`, what is done instead of answering), until `heal`."""
        self.healed = threading.Event()
        """Set while there are no faults."""
        self.broken: set[str] = set()
        """Resources whose watches are cut in the middle of their next line."""
        self.watchers: list[tuple[str, queue.SimpleQueue[bytes | None]]] = []
        self.lock = threading.RLock()
        self.connections: set[socket.socket] = set()
        self.healed.set()
        server = self

        class Handler(_Handler):
            api = server

        self._handler = Handler
        self._http: ThreadingHTTPServer | None = None
        self.port = 0
        self.listen()
        self.kubeconfig = folder / "kubeconfig"
        self.write_kubeconfig()

    def write_kubeconfig(self, token: str = "secret", **cluster: Any) -> None:
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "contexts": [{"name": "test", "context": {"cluster": "c", "user": "u", "namespace": "team"}}],
            "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{self.port}", **cluster}}],
            "users": [{"name": "u", "user": {"token": token}}],
        }
        self.kubeconfig.write_text(json.dumps(config))

    def listen(self) -> None:
        """Accept connections, again at the same port after `hang_up`."""
        self._http = ThreadingHTTPServer(("127.0.0.1", self.port), self._handler)
        self._http.daemon_threads = True
        self.port = self._http.server_address[1]
        threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True).start()

    def hang_up(self) -> None:
        """Refuse connections, and break those that stand."""
        self.cut()
        if self._http is not None:
            self._http.shutdown()
            self._http.server_close()
            self._http = None
        for connection in tuple(self.connections):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self.heal()
        self.cut()
        if self._http is not None:
            self._http.shutdown()
            self._http.server_close()

    # Faults

    def misbehave(self, fault: Fault, match: str = "") -> None:
        """From now on do this instead of answering what matches (a pattern of `VERB path`), and end watches that do."""
        with self.lock:
            self.faults.append((match, fault))
            self.healed.clear()
            for kind, watcher in self.watchers:
                if re.search(match, f"watch {kind}"):
                    watcher.put(None)

    def heal(self) -> None:
        """Behave again."""
        with self.lock:
            self.faults.clear()
            self.healed.set()

    def fault(self, request: str) -> Fault | None:
        """What is done instead of answering a request (`VERB path`)."""
        with self.lock:
            return next((fault for match, fault in self.faults if re.search(match, request)), None)

    # Objects

    def put(self, plural: str, document: Document) -> Document:
        """Create or change an object, and tell the watchers."""
        with self.lock:
            meta = document["metadata"]
            name = f"{meta.get('namespace', '')}/{meta['name']}"
            type = "MODIFIED" if name in self.objects[plural] else "ADDED"
            self.version += 1
            meta.setdefault("uid", f"uid-{plural}-{meta['name']}")
            meta.setdefault("creationTimestamp", "2026-01-05T08:00:00Z")
            meta["resourceVersion"] = str(self.version)
            self.objects[plural][name] = document
            self._tell(plural, {"type": type, "object": document})
            return document

    def delete(self, plural: str, name: str, *, silently: bool = False) -> None:
        with self.lock:
            document = self.objects[plural].pop(name)
            self.version += 1
            document["metadata"]["resourceVersion"] = str(self.version)
            if not silently:
                self.deleted.append((plural, document))
                self._tell(plural, {"type": "DELETED", "object": document})

    def bookmark(self, plural: str) -> None:
        with self.lock:
            self._tell(plural, _mark(self.version))

    def cut(self, plural: str = "") -> None:
        """End the watches of a resource, or all."""
        with self.lock:
            for kind, watcher in self.watchers:
                if plural in ("", kind):
                    watcher.put(None)

    def expire(self) -> None:
        """All watches from before now are too old."""
        with self.lock:
            self.oldest = self.version
            self.version += 1

    def _tell(self, plural: str, event: Document) -> None:
        line = json.dumps(event).encode() + b"\n"
        for kind, watcher in self.watchers:
            if kind == plural:
                watcher.put(line)


def _selected(document: Document, selector: str) -> bool:
    """Whether a field selector of metadata matches; others match everything."""
    wanted = dict(part.split("=", 1) for part in selector.split(","))
    metadata = {f"metadata.{field}": value for field, value in document["metadata"].items()}
    return all(metadata.get(field) == value for field, value in wanted.items() if field.startswith("metadata."))


def _version(document: Document) -> int:
    return int(document["metadata"]["resourceVersion"])


def _mark(version: int, *, end: bool = False) -> Document:
    notes = {"annotations": {"k8s.io/initial-events-end": "true"}} if end else {}
    return {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": str(version), **notes}}}


class _Handler(BaseHTTPRequestHandler):
    api: ApiServer
    protocol_version = "HTTP/1.1"

    def handle(self) -> None:
        with suppress(ConnectionError):
            super().handle()

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""

    def setup(self) -> None:
        super().setup()
        self.api.connections.add(self.connection)

    def finish(self) -> None:
        self.api.connections.discard(self.connection)
        super().finish()

    def do_GET(self) -> None:
        path, query = self._arrived()
        if path is None:
            return None
        if path == "/readyz":
            return self._answer(200, b"ok")
        if path in ("/api", "/apis"):
            return self._json(200, _discovery(core=path == "/api"))
        plural, namespace, name = _parts(path)
        if plural not in KINDS:
            return self._status(404, "NotFound", f"{path} is not served")
        if name:
            named = [one for one in self._found(plural, namespace) if one["metadata"]["name"] == name]
            return self._json(200, named[0]) if named else self._status(404, "NotFound", f'"{name}" not found')
        verb = "watch" if query.get("watch") else "list"
        if self.api.forbidden(verb, plural, namespace):
            return self._status(403, "Forbidden", f'User "test" cannot {verb} {plural}')
        self.api.asked[f"{verb} {plural}"] += 1
        if verb == "watch":
            return self._watch(plural, namespace, query)
        return self._list(plural, namespace, query)

    def do_POST(self) -> None:
        path, _ = self._arrived()
        if path is None:
            return None
        body = self._body()
        if path.endswith("selfsubjectaccessreviews"):
            asked = body["spec"]["resourceAttributes"]
            allowed = not self.api.forbidden(asked["verb"], asked["resource"], asked.get("namespace", ""))
            self.api.reviews["right"] += 1
            return self._json(201, {"status": {"allowed": allowed}})
        if path.endswith("selfsubjectrulesreviews"):
            self.api.reviews["rules"] += 1
            return self._json(201, {"status": self._rules(body["spec"]["namespace"])})
        return self._written(body)

    def _rules(self, namespace: str) -> Document:
        rules = [
            {"verbs": [verb], "apiGroups": [group], "resources": [plural]}
            for plural, (group, _, _, namespaced) in KINDS.items()
            for verb in ("list", "watch")
            if not self.api.forbidden(verb, plural, namespace if namespaced else "")
        ]
        random.shuffle(rules)
        return {"resourceRules": rules, "nonResourceRules": [], "incomplete": not self.api.knows_rules}

    def do_PATCH(self) -> None:
        if self._arrived()[0] is not None:
            self._written(self._body())

    do_PUT = do_DELETE = do_PATCH

    def _written(self, body: Document) -> None:
        self.api.requests.append((self.command, self.path, body))
        self._json(200, body or {"kind": "Status", "status": "Success"})

    def _arrived(self) -> tuple[str | None, dict[str, str]]:
        """Path and query; None where the answer was given already."""
        url = urlsplit(self.path)
        self.api.agents.add(self.headers.get("User-Agent", ""))
        fault = self.api.fault(f"{self._verb(url.path, url.query)} {url.path}")
        if fault is not None:
            # What was sent is read first: a connection that is closed before loses the answer.
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            with self.api.lock:
                self.api.asked["faults"] += 1
            fault(self, self.api.healed)
            self.close_connection = True
            return None, {}
        for mood in self.api.moods:
            if mood[0] in self.path:
                self.api.moods.remove(mood)
                self._status(mood[1], "Mood", self.api.says, mood[2])
                return None, {}
        if self.headers.get("Authorization", "").removeprefix("Bearer ") not in self.api.tokens:
            self._status(401, "Unauthorized", "Unauthorized")
            return None, {}
        return url.path, {key: values[0] for key, values in parse_qs(url.query).items()}

    def _verb(self, path: str, query: str) -> str:
        """As RBAC calls it."""
        if self.command != "GET":
            return {"POST": "create", "PATCH": "patch", "PUT": "update", "DELETE": "delete"}[self.command]
        if "watch=" in query:
            return "watch"
        plural, _, name = _parts(path)
        return "list" if plural in KINDS and not name else "get"

    def _body(self) -> Document:
        size = int(self.headers.get("Content-Length") or 0)
        body: Document = json.loads(self.rfile.read(size) or b"{}")
        return body

    def _list(self, plural: str, namespace: str, query: dict[str, str]) -> None:
        with self.api.lock:
            found = self._found(plural, namespace)
            if selector := query.get("fieldSelector", ""):
                self.api.selectors[plural].add(selector)
                found = [one for one in found if _selected(one, selector)]
            start = int(query.get("continue", "0"))
            end = start + int(query.get("limit", self.api.page))
            more = {"continue": str(end)} if end < len(found) else {}
            metadata = {"resourceVersion": str(self.api.version), **more}
            self._json(200, {"kind": "List", "metadata": metadata, "items": found[start:end]})

    def _found(self, plural: str, namespace: str) -> list[Document]:
        objects = self.api.objects[plural].values()
        return [one for one in objects if namespace in ("", one["metadata"].get("namespace"))]

    def _watch(self, plural: str, namespace: str, query: dict[str, str]) -> None:
        initial = "sendInitialEvents" in query
        if initial and not self.api.streaming:
            return self._status(422, "Invalid", "sendInitialEvents is forbidden for watch")
        if not initial and int(query["resourceVersion"]) <= self.api.oldest:
            return self._chunks(iter([_line(410, "Expired", "too old resource version")]))
        watcher: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        with self.api.lock:
            if initial:
                for document in self._found(plural, namespace):
                    watcher.put(json.dumps({"type": "ADDED", "object": document}).encode() + b"\n")
                watcher.put(json.dumps(_mark(self.api.version, end=True)).encode() + b"\n")
            else:
                gone = [("DELETED", document) for kind, document in self.api.deleted if kind == plural]
                there = [("MODIFIED", document) for document in self._found(plural, namespace)]
                for type, document in sorted((*gone, *there), key=lambda event: _version(event[1])):
                    if _version(document) > int(query["resourceVersion"]):
                        watcher.put(json.dumps({"type": type, "object": document}).encode() + b"\n")
            self.api.watchers.append((plural, watcher))
        try:
            self._chunks(self._lines(plural, watcher))
        finally:
            with self.api.lock:
                self.api.watchers.remove((plural, watcher))
        return None

    def _lines(self, plural: str, watcher: "queue.SimpleQueue[bytes | None]") -> Iterator[bytes]:
        while (line := watcher.get()) is not None:
            if plural in self.api.broken:
                self.api.broken.discard(plural)
                yield line[: len(line) // 2]
                raise ConnectionAbortedError
            yield line

    def _chunks(self, lines: Iterator[bytes]) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.close_connection = True
        try:
            for line in lines:
                self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
            self.wfile.write(b"0\r\n\r\n")
        except OSError:
            return

    def _json(self, code: int, document: Document) -> None:
        self._answer(code, json.dumps(document).encode())

    def _status(self, code: int, reason: str, message: str, headers: dict[str, str] | None = None) -> None:
        body = {"kind": "Status", "code": code, "reason": reason, "message": message}
        self._answer(code, json.dumps(body).encode(), headers)

    def _answer(self, code: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(code)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def _line(code: int, reason: str, message: str) -> bytes:
    status = {"kind": "Status", "code": code, "reason": reason, "message": message}
    return json.dumps({"type": "ERROR", "object": status}).encode() + b"\n"


def _parts(path: str) -> tuple[str, str, str]:
    """(plural, namespace, name) of a path."""
    parts = path.strip("/").split("/")
    rest = parts[2:] if parts[0] == "api" else parts[3:]
    namespace = ""
    if len(rest) > 2 and rest[0] == "namespaces":
        namespace, rest = rest[1], rest[2:]
    return (rest[0] if rest else ""), namespace, (rest[1] if len(rest) > 1 else "")


def _discovery(*, core: bool) -> Document:
    groups: dict[str, dict[str, list[Document]]] = {}
    for plural, (group, version, kind, namespaced) in KINDS.items():
        if core == (group == ""):
            resource = {
                "resource": plural,
                "responseKind": {"group": group, "version": version, "kind": kind},
                "scope": "Namespaced" if namespaced else "Cluster",
                "verbs": VERBS,
            }
            groups.setdefault(group, {}).setdefault(version, []).append(resource)
    items = [
        {"metadata": {"name": group}, "versions": [{"version": v, "resources": r} for v, r in versions.items()]}
        for group, versions in groups.items()
    ]
    return {"kind": "APIGroupDiscoveryList", "items": items}

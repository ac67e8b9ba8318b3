"""A plain client of the API server for the tests: it arranges what the console is to find, and looks at what it did."""

import ssl
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import msgspec

Manifest = dict[str, Any]
RESOURCES = {
    "APIService": "apiservices",
    "NetworkPolicy": "networkpolicies",
    "PriorityClass": "priorityclasses",
    "RuntimeClass": "runtimeclasses",
    "DeviceClass": "deviceclasses",
    "StorageClass": "storageclasses",
    "WorkloadPriorityClass": "workloadpriorityclasses",
    "Topology": "topologies",
}
"""Kinds whose plural is not their name with an s."""
CLUSTER_WIDE = frozenset(
    (
        *("Namespace", "Node", "PriorityClass", "RuntimeClass", "DeviceClass", "ResourceSlice", "APIService"),
        *("CustomResourceDefinition", "ClusterRole", "ClusterRoleBinding"),
        *("ClusterQueue", "Cohort", "ResourceFlavor", "Topology", "WorkloadPriorityClass", "AdmissionCheck"),
        *("MultiKueueConfig", "MultiKueueCluster", "ProvisioningRequestConfig"),
        *("HyperNode", "Numatopology", "NodePool", "NodeClaim"),
    )
)
VOLCANO_QUEUE = ("scheduling.volcano.sh", "Queue")
BUSY = (429, 500, 503, 504)
PATIENCE = 90.0
"""Seconds that anything is waited for, also on a machine that has much else to do; what is fast is for the bench."""


class Refused(Exception):
    """The API server said no: `status` is its HTTP status, `answer` its Status object."""

    def __init__(self, response: httpx.Response) -> None:
        self.status = response.status_code
        self.answer = response.text
        super().__init__(f"{response.request.method} {response.request.url}: {self.status} {self.answer[:400]}")


class Api:
    """The API server as one identity sees it."""

    def __init__(self, server: str, authority: Path, token: str, *, timeout: float = 30) -> None:
        context = ssl.create_default_context(cafile=str(authority))
        limits = httpx.Limits(max_connections=64, max_keepalive_connections=64)
        headers = {"Authorization": f"Bearer {token}", "User-Agent": "live-tests"}
        self.http = httpx.Client(base_url=server, verify=context, headers=headers, timeout=timeout, limits=limits)

    def __enter__(self) -> "Api":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.http.close()

    def call(self, method: str, path: str, body: object = None, kind: str = "application/json") -> Any:
        """Send a request and decode its answer; Refused where the status is not one of success."""
        content = body if isinstance(body, bytes) else msgspec.json.encode(body) if body is not None else None
        headers = {"Content-Type": kind} if content is not None else {}
        response = self.http.request(method, path, content=content, headers=headers)
        if response.status_code >= 300:
            raise Refused(response)
        return msgspec.json.decode(response.content)

    def patiently(self, method: str, path: str, body: object = None, kind: str = "application/json") -> Any:
        """The same, again and again while the server is busy (a fresh kind has no storage for a moment: 429)."""
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                return self.call(method, path, body, kind)
            except Refused as refused:
                if refused.status not in BUSY or time.monotonic() > deadline:
                    raise
            time.sleep(0.1)

    def get(self, path: str) -> Any:
        return self.call("GET", path)

    def items(self, path: str) -> list[Manifest]:
        """All objects of a list."""
        found: list[Manifest] = self.get(path)["items"]
        return found

    def create(self, manifest: Manifest) -> Manifest:
        made: Manifest = self.patiently("POST", collection(manifest), manifest)
        return made

    def apply(self, *manifests: Manifest) -> None:
        """Create or change objects by server-side apply."""
        for manifest in manifests:
            path = f"{path_of(manifest)}?fieldManager=live-tests&force=true"
            self.patiently("PATCH", path, manifest, "application/apply-patch+yaml")

    def patch(self, path: str, change: Manifest) -> Manifest:
        """A merge patch."""
        changed: Manifest = self.call("PATCH", path, change, "application/merge-patch+json")
        return changed

    def delete(self, path: str) -> None:
        """Delete an object; it is all the same if it is gone already."""
        try:
            self.call("DELETE", path)
        except Refused as refused:
            if refused.status != 404:
                raise

    def exists(self, path: str) -> bool:
        try:
            self.get(path)
        except Refused as refused:
            if refused.status == 404:
                return False
            raise
        return True

    def is_ready(self) -> bool:
        """True if the API server answers and calls itself ready."""
        try:
            return self.http.get("/readyz", timeout=2).status_code == 200
        except httpx.HTTPError:
            return False

    def watch(self, path: str, version: str) -> Iterator[tuple[str, Manifest]]:
        """Changes of a kind after a version, until the server ends the watch."""
        query = f"{path}{'&' if '?' in path else '?'}watch=1&allowWatchBookmarks=true&resourceVersion={version}"
        with self.http.stream("GET", query, timeout=httpx.Timeout(30, read=None)) as response:
            if response.status_code >= 300:
                response.read()
                raise Refused(response)
            for line in response.iter_lines():
                change = msgspec.json.decode(line)
                yield change["type"], change["object"]


def collection(manifest: Manifest) -> str:
    """The path that objects of this kind (and namespace) are created at."""
    kind, version = manifest["kind"], manifest["apiVersion"]
    group = version.partition("/")[0] if "/" in version else ""
    root = f"/apis/{version}" if group else f"/api/{version}"
    plural = RESOURCES.get(kind, kind.lower() if kind.endswith("s") else f"{kind.lower()}s")
    if kind in CLUSTER_WIDE or (group, kind) == VOLCANO_QUEUE:
        return f"{root}/{plural}"
    return f"{root}/namespaces/{manifest['metadata'].get('namespace', 'default')}/{plural}"


def path_of(manifest: Manifest) -> str:
    """The path of one object."""
    return f"{collection(manifest)}/{manifest['metadata']['name']}"


def until(what: Callable[[], Any], limit: float = PATIENCE, *, pause: float = 0.05) -> Any:
    """Wait until `what` gives something true, and give it back; raises AssertionError after `limit` seconds."""
    deadline = time.monotonic() + limit
    while not (found := what()):
        if time.monotonic() > deadline:
            raise AssertionError(f"Not within {limit:.0f} s: {getattr(what, '__doc__', None) or what}")
        time.sleep(pause)
    return found

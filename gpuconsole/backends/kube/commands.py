"""Carries out commands: sends their requests in threads, and reports each outcome as a history event."""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any
from urllib.parse import quote

import msgspec
from msgspec import Struct

from gpuconsole.backends.kube.api_requests import (
    CLUSTER_QUEUE,
    MANAGER,
    MERGE,
    NODE,
    POD,
    ApiRequest,
    KnownObjects,
    Source,
    UnsupportedCommand,
    api_requests,
    with_quota,
    with_taint,
)
from gpuconsole.backends.kube.client import ApiResponse, ApiServerConnection
from gpuconsole.backends.kube.discovery import Served, find
from gpuconsole.backends.kube.errors import Busy, Refused
from gpuconsole.errors import ClusterError
from gpuconsole.model.clock import Time
from gpuconsole.model.commands import Command, Cordon, Drain, Requeue, SetActive, SetQuota, SetTaint, Submit
from gpuconsole.model.documents.pods_and_selectors import format_taint
from gpuconsole.model.events import HistoryEvent, HistoryEventKind
from gpuconsole.model.labels import Taint
from gpuconsole.model.text import clean

LOG = logging.getLogger(__name__)
AT_ONCE = 4
RELEASE = 120.0
"""Seconds within which an evicted workload must release its quota."""
LOOK = 1.0
CREATED, CONFLICT = 201, 409
_LEFT = ("DaemonSet", "Node")
"""Kinds of owners whose pods a drain leaves."""


class _Owner(Struct, frozen=True):
    kind: str = ""


class _Meta(Struct, frozen=True, rename="camel"):
    name: str = ""
    namespace: str = ""
    owner_references: list[_Owner] | None = None


class _Object(Struct, frozen=True):
    metadata: _Meta


class _PodStatus(Struct, frozen=True):
    phase: str = ""


class _Pod(_Object, frozen=True):
    status: _PodStatus = _PodStatus()


class _Pods(Struct, frozen=True):
    items: list[_Pod] | None


class CommandExecutor:
    """Sends commands to the API server. Calls `tell` from its threads with an event about each outcome."""

    def __init__(
        self,
        connection: ApiServerConnection,
        served: Callable[[], Sequence[Served]],
        known: KnownObjects,
        tell: Callable[[HistoryEvent], None],
        wall: Callable[[], Time],
    ) -> None:
        self._connection = connection
        self._served = served
        self._known = known
        self._tell = tell
        self._wall = wall
        self._pool = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="kube command")
        self._stopped = threading.Event()

    def take(self, command: Command) -> None:
        """Queue a command. Raises UnsupportedCommand for one that only a simulation supports."""
        match command:
            case Requeue() | Drain() | SetQuota() | SetTaint():
                self._pool.submit(self._carry_out, command, ())
            case _:
                self._pool.submit(self._carry_out, command, api_requests(command, self._known))

    def close(self) -> None:
        """Stop without waiting for commands in progress."""
        self._stopped.set()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _carry_out(self, command: Command, asked: Sequence[ApiRequest]) -> None:
        """Carry out a command and report its outcome. Never raises."""
        try:
            what, message = HistoryEventKind.COMMAND_DONE, self._do(command, asked)
        except ClusterError as error:
            what, message = HistoryEventKind.COMMAND_REFUSED, str(error)
            if isinstance(error, Refused) and error.code == CONFLICT:
                message += "; the object changed, or another field manager owns the field: reload it"
        except Exception as error:
            LOG.exception("A command failed")
            what, message = HistoryEventKind.COMMAND_REFUSED, clean(repr(error))
        subject: dict[str, Any] = _subject(command)
        self._tell(HistoryEvent(time=self._wall(), what=what, message=message, **subject))

    def _do(self, command: Command, asked: Sequence[ApiRequest]) -> str:
        """Carry out a command and describe what was done. Raises ClusterError."""
        match command:
            case Requeue(workload):
                return self._requeue(workload)
            case Drain():
                return self._drain(command)
            case SetQuota():
                return self._set_quota(command)
            case SetTaint():
                return self._set_taint(command)
            case _:
                return self._send_all(asked)

    def _send_all(self, asked: Sequence[ApiRequest]) -> str:
        """Dry-run the requests that ask for it, then send all. Raises ClusterError; earlier requests are not undone."""
        for order in asked:
            if order.rehearsed:
                self._send(order, rehearsal=True)
        for order in asked:
            self._send(order)
        return ", ".join(order.words for order in asked)

    def _send(self, order: ApiRequest, *, rehearsal: bool = False) -> ApiResponse:
        served = self._kind(order.source, order.version)
        query: dict[str, str | int] = {} if order.method == "DELETE" else {"fieldManager": MANAGER}
        if order.rehearsed:
            # Unknown fields are errors, as in kubectl.
            query["fieldValidation"] = "Strict"
        if rehearsal:
            query["dryRun"] = "All"
        namespace = quote(order.namespace or (self._connection.place.namespace if served.namespaced else ""))
        path = served.path(namespace, quote(order.name))
        return self._connection.send(order.method, path, query, order.body, content=order.content)

    def _kind(self, source: Source, version: str = "") -> Served:
        for served in self._served():
            if served.source == source and version in ("", served.version):
                return served
        found = find(self._connection, *source, version) if version else None
        if found is None:
            group, kind = source
            raise UnsupportedCommand(
                f"the cluster does not serve {kind}{f' of {group}' if group else ''}{version and '/'}{version}"
            )
        return found

    def path(self, source: Source, namespace: str, name: str) -> str:
        """Return the API path of an object. Raises UnsupportedCommand, Unreachable, Refused."""
        served = self._kind(source)
        return served.path(quote(namespace), quote(name))

    def rehearse(self, documents: Sequence[str]) -> tuple[str, ...]:
        """Dry-run manifests on the server, and return a result line for each. Raises ClusterError."""
        return tuple(self._rehearsed(order) for order in api_requests(Submit((), tuple(documents)), self._known))

    def _rehearsed(self, order: ApiRequest) -> str:
        """Describe a dry run's result: created or changed, with the name that the server generated."""
        answer = self._send(order, rehearsal=True)
        meta = answer.decode(_Object).metadata
        name = "/".join(filter(None, (meta.namespace, meta.name or order.name)))
        what = "created" if answer.code == CREATED else "changed"
        return clean(f"{order.source[1]} {name} would be {what}", 300)

    # Commands with several steps

    def _requeue(self, workload: str) -> str:
        """Deactivate a workload, wait until it has released its quota, and activate it again."""
        self._send_all(api_requests(SetActive(workload, False), self._known))
        deadline = time.monotonic() + RELEASE
        while (seen := self._known.workload(workload)) is not None and (seen.active or seen.reserved):
            if self._stopped.wait(LOOK) or time.monotonic() > deadline:
                raise UnsupportedCommand(
                    f"{workload} is stopped but still holds its quota; resume it when its quota is released"
                )
        self._send_all(api_requests(SetActive(workload, True), self._known))
        return f"requeues {workload}"

    def _set_quota(self, command: SetQuota) -> str:
        """Change one quota of a ClusterQueue; a conflict if it changed since it was read."""
        path = self._kind(CLUSTER_QUEUE).path("", quote(command.cluster_queue))
        change = _changed(self._connection.get(path), partial(with_quota, command=command))
        query = {"fieldManager": MANAGER}
        self._connection.send("PATCH", path, query, msgspec.json.encode(change), content=MERGE)
        return f"sets the quota of {command.resource} in {command.flavor} of {command.cluster_queue}"

    def _set_taint(self, command: SetTaint) -> str:
        """Add or remove one taint of a node; a conflict if the node was changed since it was read."""
        path = self.path(NODE, "", command.node)
        change = _changed(self._connection.get(path), partial(with_taint, command=command))
        self._connection.send("PATCH", path, {"fieldManager": MANAGER}, msgspec.json.encode(change), content=MERGE)
        taint = format_taint(Taint(command.key, command.value, command.effect))
        return f"removes taint {taint} from {command.node}" if command.removed else f"taints {command.node} {taint}"

    def _drain(self, command: Drain) -> str:
        """Cordon a node, then evict its pods, which PodDisruptionBudgets may refuse."""
        node = command.node
        self._send_all(api_requests(Cordon(node, True), self._known))
        pods = self._kind(POD)
        answer = self._connection.get(pods.path(), {"fieldSelector": f"spec.nodeName={node}"})
        gone, spared, refused = 0, 0, []
        for pod in answer.decode(_Pods).items or ():
            if not _leaves(pod):
                continue
            if command.sparing and not pod.metadata.owner_references:
                spared += 1
                continue
            try:
                self._evict(pods, pod.metadata, command)
                gone += 1
            except Busy as error:
                refused.append(f"{pod.metadata.name}: {error.message}")
        if refused:
            raise UnsupportedCommand(f"{node}: {gone} pods evicted, {len(refused)} refused: {refused[0]}")
        left = f", unmanaged pods skipped: {spared}" if spared else ""
        return f"drains {node}: {gone} pods evicted{left}"

    def _evict(self, pods: Served, meta: _Meta, how: Drain) -> None:
        path = pods.path(quote(meta.namespace), quote(meta.name))
        options = {} if how.grace is None else {"gracePeriodSeconds": how.grace}
        if how.forced:
            self._connection.send("DELETE", path, body=msgspec.json.encode(options))
            return
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": meta.name, "namespace": meta.namespace},
            **({"deleteOptions": options} if options else {}),
        }
        self._connection.send("POST", f"{path}/eviction", body=msgspec.json.encode(body))


def _changed(answer: ApiResponse, change: Callable[[dict[str, Any]], dict[str, Any]]) -> dict[str, Any]:
    """Return the patch of an object that was read. Raises UnsupportedCommand, Unreadable."""
    document = answer.document()
    try:
        return change(document)
    except (LookupError, TypeError, AttributeError, ValueError) as error:
        raise answer.unreadable(f"unexpected structure: {error}") from error


def _leaves(pod: _Pod) -> bool:
    ended = pod.status.phase in ("Succeeded", "Failed")
    return not ended and not any(owner.kind in _LEFT for owner in pod.metadata.owner_references or ())


def _subject(command: Command) -> dict[str, str]:
    """Return the history event fields that name the object of a command."""
    for field in ("workload", "node", "queue", "pod", "cluster_queue"):
        value = getattr(command, field, "")
        if isinstance(value, str) and value:
            return {"queue" if field == "cluster_queue" else field: value}
    key = getattr(command, "key", "") or getattr(command, "job", "")
    return {"workload": key} if key else {}

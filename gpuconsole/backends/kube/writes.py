"""Writes to the API server: the requests of each command, and their execution.

`api_requests` translates a command into requests, and sends nothing. A change of one field is a merge patch of that
field alone, under our field manager. Manifests are applied on the server (server-side apply), without force, so that a
field with another owner is a conflict and is shown as one.

`CommandExecutor` sends the requests in threads, and reports each outcome as a history event. Commands with several
steps or whose patch depends on the object (`Requeue`, `Drain`, `SetQuota`, `SetTaint`) have a method there.
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any
from urllib.parse import quote

import msgspec
from msgspec import UNSET, Struct

from gpuconsole.backends.kube.client import ApiResponse, ApiServerConnection
from gpuconsole.backends.kube.discovery import Served, find
from gpuconsole.backends.kube.errors import Busy, Refused
from gpuconsole.errors import ClusterError
from gpuconsole.model.clock import Time
from gpuconsole.model.commands import (
    Command,
    Cordon,
    Delete,
    Drain,
    Edit,
    MoveToQueue,
    Requeue,
    Scale,
    SetActive,
    SetPriority,
    SetQuota,
    SetStopPolicy,
    SetTaint,
    Submit,
)
from gpuconsole.model.documents.pods_and_selectors import format_taint
from gpuconsole.model.events import HistoryEvent, HistoryEventKind
from gpuconsole.model.jobs.workloads import API_GROUPS, OWNER_KINDS, POD_GROUP, PRIORITY_CLASS, QUEUE, SUSPENDED_BY
from gpuconsole.model.labels import Taint
from gpuconsole.model.manifests.kinds import KUEUE
from gpuconsole.model.resources import format_quantity
from gpuconsole.model.text import clean
from gpuconsole.model.workloads import Workload

MANAGER = "gpuconsole"
"""The console's field manager in server-side apply."""
MERGE, APPLY, JSON = "application/merge-patch+json", "application/apply-patch+yaml", "application/json"
Source = tuple[str, str]
"""API group and kind of an object."""
NODE, POD = ("", "Node"), ("", "Pod")
WORKLOAD, CLUSTER_QUEUE, LOCAL_QUEUE = (KUEUE, "Workload"), (KUEUE, "ClusterQueue"), (KUEUE, "LocalQueue")
OLDER = "v1beta1"
"""API version in which a Workload has its priority class as two strings (name and source), not as a reference."""
_TABLES: dict[str, Source] = {
    "namespaces": ("", "Namespace"),
    "nodes": NODE,
    "pods": POD,
    "workloads": WORKLOAD,
    "cluster_queues": CLUSTER_QUEUE,
    "local_queues": LOCAL_QUEUE,
    "cohorts": (KUEUE, "Cohort"),
    "flavors": (KUEUE, "ResourceFlavor"),
    "topologies": (KUEUE, "Topology"),
    "admission_checks": (KUEUE, "AdmissionCheck"),
    "workload_priority_classes": (KUEUE, "WorkloadPriorityClass"),
    "volcano_queues": ("scheduling.volcano.sh", "Queue"),
    "kai_queues": ("scheduling.run.ai", "Queue"),
    "node_pools": ("karpenter.sh", "NodePool"),
}
"""Table → kind, for objects that can be deleted by name."""
_OWN_KINDS = {own: kind for (_, kind), own in OWNER_KINDS.items()}
JOB_KEY = 2
"""Number of slashes in the key of a job in the model: `Kind/namespace/name`."""


class UnsupportedCommand(ClusterError):
    """A command cannot be carried out on this cluster: only a simulation can, or the object or kind is missing."""


class ApiRequest(Struct, frozen=True, kw_only=True):
    """A request to the API server about one object, as part of a command."""

    method: str
    source: Source
    namespace: str = ""
    name: str = ""
    version: str = ""
    """Version of a manifest; empty for the one that is watched."""
    body: bytes | None = None
    content: str = JSON
    rehearsed: bool = False
    """True if it is sent as a dry run first; all dry runs of a command precede its requests."""
    words: str = ""
    """What the request does, for messages."""


class KnownObjects(Struct, frozen=True):
    """Callbacks by which the translation of a command looks up objects and versions in the current state."""

    workload: Callable[[str], Workload | None]
    version: Callable[[Source], str] = lambda source: ""
    """Version in which a kind is read; empty if it is not read."""


def api_requests(command: Command, known: KnownObjects) -> tuple[ApiRequest, ...]:
    """Return the requests that carry out a command, in order. Raises UnsupportedCommand."""
    match command:
        case Submit():
            return _submit(command.documents)
        case SetActive(job, active) if job.partition("/")[0] in SUSPENDED_BY and job.count("/") == JOB_KEY:
            return (_suspend(job, active),)
        case SetActive(workload, active):
            words = f"{'resumes' if active else 'stops'} {workload}"
            return (_merge(WORKLOAD, workload, {"spec": {"active": active}}, words),)
        case SetPriority():
            return (_priority(command, known),)
        case MoveToQueue(workload, queue):
            return (_move(workload, queue, known),)
        case SetStopPolicy(queue, policy):
            source = LOCAL_QUEUE if "/" in queue else CLUSTER_QUEUE
            return (_merge(source, queue, {"spec": {"stopPolicy": policy.value}}, f"sets {queue} to {policy.value}"),)
        case Cordon(node, cordoned):
            words = f"{'cordons' if cordoned else 'uncordons'} {node}"
            return (_merge(NODE, node, {"spec": {"unschedulable": cordoned or None}}, words),)
        case Scale(job, count, pod_set) if not pod_set or pod_set == "main":
            return (_merge(*_job(job), {"spec": {"parallelism": count}}, f"scales {job} to {count} pods"),)
        case Delete(table, key):
            return (_delete(table, key, known),)
        case Edit():
            return (_edit(command),)
        case _:
            name = type(command).__name__
            raise UnsupportedCommand(f"{name} is not supported on a live cluster; use a what-if")


def _merge(source: Source, key: str, change: dict[str, Any], words: str) -> ApiRequest:
    namespace, _, name = key.rpartition("/")
    body = msgspec.json.encode(change)
    return ApiRequest(
        method="PATCH", source=source, namespace=namespace, name=name, body=body, content=MERGE, words=words
    )


def _suspend(job: str, active: bool) -> ApiRequest:
    """Suspend or resume a job that has no Workload object."""
    change: Any = not active
    for field in reversed(SUSPENDED_BY[job.partition("/")[0]]):
        change = {field: change}
    return _merge(*_job(job), {"spec": change}, f"{'resumes' if active else 'suspends'} {job}")


def _owner(key: str, known: KnownObjects) -> str:
    """Return the job whose labels Kueue follows for a workload; empty for a workload without owner or of pods."""
    workload = known.workload(key)
    owner = workload.owner if workload is not None else ""
    return "" if owner.startswith(("Pod/", f"{POD_GROUP}/")) else owner


def _move(key: str, queue: str, known: KnownObjects) -> ApiRequest:
    """Move a workload by its job's queue label, which Kueue follows, or by its own queueName if it has no job."""
    words = f"moves {key} to {queue}"
    if owner := _owner(key, known):
        return _merge(*_job(owner), {"metadata": {"labels": {QUEUE: queue}}}, words)
    return _merge(WORKLOAD, key, {"spec": {"queueName": queue}}, words)


def _priority(command: SetPriority, known: KnownObjects) -> ApiRequest:
    """Set a priority class by the job's label, which Kueue follows, or a bare number on the workload."""
    key, priority, name = command.workload, command.priority, command.priority_class
    words = f"sets the priority of {key} to {f'{name} ({priority})' if name else priority}"
    if not name:
        return _merge(WORKLOAD, key, {"spec": {"priority": priority}}, words)
    if owner := _owner(key, known):
        return _merge(*_job(owner), {"metadata": {"labels": {PRIORITY_CLASS: name}}}, words)
    if known.version(WORKLOAD) == OLDER:
        named: dict[str, Any] = {"priorityClassName": name, "priorityClassSource": f"{KUEUE}/workloadpriorityclass"}
    else:
        named = {"priorityClassRef": {"group": KUEUE, "kind": "WorkloadPriorityClass", "name": name}}
    return _merge(WORKLOAD, key, {"spec": {"priority": priority, **named}}, words)


def object_of(table: str, key: str) -> tuple[Source, str, str]:
    """Return (kind, namespace, name) of an object by its table and key. Raises UnsupportedCommand."""
    source, name = _job(key) if table == "jobs" else (_TABLES.get(table), key)
    if source is None:
        raise UnsupportedCommand(f"{key}: changing {table} is not supported")
    namespace, _, name = name.rpartition("/")
    return source, namespace, name


def _edit(command: Edit) -> ApiRequest:
    """Patch only the changed fields, and only if the object is unchanged since it was read."""
    source, namespace, name = object_of(command.table, command.key)
    change = msgspec.json.decode(command.change)
    change.setdefault("metadata", {})["resourceVersion"] = command.version
    return ApiRequest(
        method="PATCH",
        source=source,
        namespace=namespace,
        name=name,
        body=msgspec.json.encode(change),
        content=MERGE,
        rehearsed=True,
        words=f"edits {source[1]} {command.key}",
    )


def _job(key: str) -> tuple[Source, str]:
    """Return (kind, `namespace/name`) of a job by its key. Raises UnsupportedCommand."""
    kind, _, name = key.partition("/")
    group = API_GROUPS.get(kind)
    if group is None:
        raise UnsupportedCommand(f"{key}: changing jobs of kind {kind} is not supported")
    return (group, _OWN_KINDS.get(kind, kind)), name


def _delete(table: str, key: str, known: KnownObjects) -> ApiRequest:
    """Delete the job instead of its workload: the job controller would recreate the workload."""
    if table in ("", "workloads"):
        workload = known.workload(key)
        if workload is not None and workload.owner:
            return _delete("jobs", workload.owner, known)
        table = table or ("workloads" if workload is not None else "pods")
    source, namespace, name = object_of(table, key)
    body = msgspec.json.encode({"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background"})
    words = f"deletes {key}"
    return ApiRequest(method="DELETE", source=source, namespace=namespace, name=name, body=body, words=words)


def _submit(documents: Sequence[str]) -> tuple[ApiRequest, ...]:
    if not documents:
        raise UnsupportedCommand("this job has no manifest; submit one with a manifest")
    return tuple(_create(msgspec.json.decode(document)) for document in documents)


def _create(document: dict[str, Any]) -> ApiRequest:
    """Create an object from its manifest: server-side apply, or POST if it uses generateName."""
    group, _, version = str(document.get("apiVersion", "")).rpartition("/")
    meta = document.get("metadata") or {}
    kind, name = str(document.get("kind", "")), str(meta.get("name") or "")
    return ApiRequest(
        method="PATCH" if name else "POST",
        source=(group, kind),
        namespace=str(meta.get("namespace") or ""),
        name=name,
        version=version,
        body=msgspec.json.encode(document),
        content=APPLY if name else JSON,
        rehearsed=True,
        words=f"submits {kind} {name or meta.get('generateName', '')}",
    )


def with_taint(document: dict[str, Any], command: SetTaint) -> dict[str, Any]:
    """Return the merge patch of a Node that adds or removes one taint, bound to the resourceVersion.

    A taint is known by its key and effect; adding it again changes its value (core/v1 Node.spec.taints). Raises
    UnsupportedCommand if a taint to remove is gone.
    """
    here = document.get("spec", {}).get("taints") or []
    others = [taint for taint in here if (taint.get("key"), taint.get("effect")) != (command.key, command.effect)]
    if command.removed and len(others) == len(here):
        raise UnsupportedCommand(f"node {command.node} no longer has taint {command.key}:{command.effect}")
    value = {"value": command.value} if command.value else {}
    added = [] if command.removed else [{"key": command.key, **value, "effect": command.effect}]
    return {
        "metadata": {"resourceVersion": document["metadata"]["resourceVersion"]},
        "spec": {"taints": [*others, *added] or None},
    }


def with_quota(document: dict[str, Any], command: SetQuota) -> dict[str, Any]:
    """Return the merge patch of a ClusterQueue that changes one quota, bound to the resourceVersion.

    Raises UnsupportedCommand if the quota is gone.
    """
    groups = document.get("spec", {}).get("resourceGroups") or []
    flavors = [flavor for group in groups for flavor in group.get("flavors", ()) if flavor["name"] == command.flavor]
    quotas = [quota for flavor in flavors for quota in flavor.get("resources", ()) if quota["name"] == command.resource]
    if not quotas:
        raise UnsupportedCommand(
            f"{command.cluster_queue} no longer has a quota of {command.resource} in {command.flavor}"
        )
    amounts = {
        "nominalQuota": command.nominal,
        "borrowingLimit": command.borrowing_limit,
        "lendingLimit": command.lending_limit,
    }
    for name, value in amounts.items():
        if value is UNSET:
            continue
        quotas[0].pop(name, None)
        if value is not None:
            quotas[0][name] = format_quantity(command.resource, value)
    return {
        "metadata": {"resourceVersion": document["metadata"]["resourceVersion"]},
        "spec": {"resourceGroups": groups},
    }


LOG = logging.getLogger(__name__)
AT_ONCE = 4
"""Commands that are carried out at the same time."""
RELEASE = 120.0
"""Seconds within which an evicted workload must release its quota."""
LOOK = 1.0
"""Seconds between two checks whether an evicted workload has released its quota."""
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
    """Sends the API requests of commands in threads, and reports each outcome as an event to the callback `tell`."""

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
        """Carry out a command in a thread. Raises UnsupportedCommand for one that only a simulation supports."""
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

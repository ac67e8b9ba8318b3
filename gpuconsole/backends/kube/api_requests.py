"""Translates commands into API requests. Pure: sends nothing.

A change of one field is a merge patch of that field alone, under our field manager. Manifests are applied on the server
(server-side apply), without force, so that a field with another owner is a conflict and is shown as one.
"""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from msgspec import UNSET, Struct

from gpuconsole.errors import ClusterError
from gpuconsole.model.commands import (
    Command,
    Cordon,
    Delete,
    Edit,
    MoveToQueue,
    Scale,
    SetActive,
    SetPriority,
    SetQuota,
    SetStopPolicy,
    SetTaint,
    Submit,
)
from gpuconsole.model.jobs.workloads import GROUPS, OWNER_KINDS, POD_GROUP, PRIORITY_CLASS, QUEUE, SUSPENDED_BY
from gpuconsole.model.manifests.kinds import KUEUE
from gpuconsole.model.resources import format_quantity
from gpuconsole.model.workloads import Workload

MANAGER = "gpuconsole"
MERGE, APPLY, JSON = "application/merge-patch+json", "application/apply-patch+yaml", "application/json"
Source = tuple[str, str]
NODE, POD = ("", "Node"), ("", "Pod")
WORKLOAD, CLUSTER_QUEUE, LOCAL_QUEUE = (KUEUE, "Workload"), (KUEUE, "ClusterQueue"), (KUEUE, "LocalQueue")
OLDER = "v1beta1"
"""Version of Kueue's kinds that names a priority class by two strings."""
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
"""Number of slashes in the key of a job: `Kind/namespace/name`."""
_MORE_GROUPS = {
    "CronJob": "batch",
    "RayCronJob": "ray.io",
    "VolcanoCronJob": "batch.volcano.sh",
    "LeaderWorkerSet": "leaderworkerset.x-k8s.io",
    **dict.fromkeys(("Deployment", "ReplicaSet", "StatefulSet"), "apps"),
    **dict.fromkeys(("JobTemplate", "JobFlow"), "flow.volcano.sh"),
}
"""Kind → API group of jobs for which `GROUPS` has none."""


class UnsupportedCommand(ClusterError):
    """Only a simulation can carry out the command, or this version cannot send it."""


class ApiRequest(Struct, frozen=True, kw_only=True):
    """One API request for one object."""

    method: str
    source: Source
    namespace: str = ""
    name: str = ""
    version: str = ""
    """Version of a manifest; empty for the one that is watched."""
    body: bytes | None = None
    content: str = JSON
    rehearsed: bool = False
    """It is sent as a dry run first, together with all others, before any of them is sent."""
    words: str = ""
    """Description for messages."""


class KnownObjects(Struct, frozen=True):
    """Lookups in the current cluster state that translating a command needs."""

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
    group = GROUPS.get(kind, _MORE_GROUPS.get(kind))
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
    """Return the merge patch of a Node that adds or removes one taint, bound to the resourceVersion. Raises
    UnsupportedCommand.

    A taint is known by its key and effect; adding it again changes its value (core/v1 Node.spec.taints).
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
    """Return the merge patch of a ClusterQueue that changes one quota, bound to the resourceVersion. Raises
    UnsupportedCommand.
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

"""Webhooks of Deployment, StatefulSet and LeaderWorkerSet, with the fields that are immutable while their pods run
(Kueue 0.19).
"""

from collections.abc import Iterator
from typing import Any

from gpuconsole.model.apiserver.gated_by import check_gates, check_gates_change
from gpuconsole.model.apiserver.gates import Gates, enabled
from gpuconsole.model.apiserver.jobs.defaulting import PARENT, is_managed
from gpuconsole.model.apiserver.jobs.framework import (
    JobView,
    check_class_change,
    check_elastic,
    check_queue_name,
    immutable,
)
from gpuconsole.model.apiserver.jobs.parts import Document, at, entries, number, pods_of
from gpuconsole.model.apiserver.jobs.topology import Pods, check_bound, check_groups, check_request
from gpuconsole.model.apiserver.refusals import forbidden, invalid
from gpuconsole.model.documents.fields import FieldError
from gpuconsole.model.documents.findings import MapKey, Path
from gpuconsole.model.jobs.labels import QUEUE

MOST_GROUPS = 1_000_000
_REPLICAS: Path = ("spec", "replicas")
_GROUP: Path = ("spec", "leaderWorkerTemplate")
_SHAPE = (
    *("nodeSelector", "affinity", "tolerations", "runtimeClassName", "priority", "topologySpreadConstraints"),
    *("overhead", "resourceClaims"),
)
_NO_RESIZING = "scale it to 0 first, or leave it"


def check_service(document: Document, job: JobView, gates: Gates) -> Iterator[FieldError]:
    """Validate a new Deployment or StatefulSet, except a StatefulSet that another integration manages."""
    if _is_left(document):
        return
    yield from _check_labels(job, gates)
    if enabled(gates, "AdmissionGatedBy"):
        yield from check_gates(job.notes)


def _is_left(document: Document) -> bool:
    parent = at(document, "spec", "template", "metadata", "annotations", PARENT)
    return at(document, "kind") == "StatefulSet" and parent not in (None, "statefulset")


def change_deployment(
    document: Document, job: JobView, old: Document, before: JobView, gates: Gates, *, default_queue: bool
) -> Iterator[FieldError]:
    """Validate the update of a Deployment: its queue cannot be removed, nor changed while it has ready pods."""
    yield from _check_labels(job, gates)
    yield from _check_change(job, old, before, gates)


def change_stateful_set(
    document: Document, job: JobView, old: Document, before: JobView, gates: Gates, *, default_queue: bool
) -> Iterator[FieldError]:
    """Validate the update of a StatefulSet: one with a queue scales only to zero and back."""
    if _is_left(document):
        return
    yield from change_deployment(document, job, old, before, gates, default_queue=default_queue)
    if not is_managed(document):
        return
    path: Path = ("spec", "template", "spec")
    yield from check_shape(at(document, *path), at(old, *path), path)
    new_count, old_count = number(document, *_REPLICAS), number(old, *_REPLICAS)
    if new_count and old_count:
        yield from immutable(_REPLICAS, new_count, old_count, _NO_RESIZING)
    elif new_count and number(document, "status", "replicas", default=0) > 0:
        yield forbidden(_REPLICAS, "scaling down is still in progress", "wait until its pods are gone")


def check_worker_set(document: Document, job: JobView, gates: Gates) -> Iterator[FieldError]:
    """Validate a new LeaderWorkerSet."""
    yield from _check_labels(job, gates)
    replicas = number(document, *_REPLICAS)
    if not 0 <= replicas <= MOST_GROUPS:
        bound = "must be >= 0" if replicas < 0 else f"must be <= {MOST_GROUPS}"
        detail = f"invalid LeaderWorkerSet replicas: {bound}, got {replicas}"
        yield invalid(_REPLICAS, replicas, detail, f"write 0 to {MOST_GROUPS}", "bad-number")
    if enabled(gates, "AdmissionGatedBy"):
        yield from check_gates(job.notes)
    if enabled(gates, "TopologyAwareScheduling"):
        parts = list(_parts(document))
        for part in parts:
            yield from check_request(part.notes, part.path, gates)
            yield from check_bound(part)
        yield from check_groups(parts)


def change_worker_set(
    document: Document, job: JobView, old: Document, before: JobView, gates: Gates, *, default_queue: bool
) -> Iterator[FieldError]:
    """Validate the update of a LeaderWorkerSet: with a queue, the shape and size of its groups are immutable."""
    yield from check_worker_set(document, job, gates)
    yield from _check_change(job, old, before, gates)
    if not is_managed(document):
        return
    for key in ("leaderTemplate", "workerTemplate"):
        path: Path = (*_GROUP, key)
        new, was = at(document, *path), at(old, *path)
        if key == "leaderTemplate" and (new is None or was is None):
            yield from immutable(path, new, was, "leave it as it was")
        else:
            yield from check_shape(at(new, "spec"), at(was, "spec"), (*path, "spec"))
    if enabled(gates, "LWSImmutableGroupSize"):
        path = (*_GROUP, "size")
        yield from immutable(path, number(document, *path), number(old, *path), "leave it as it was")


def _parts(document: Document) -> Iterator[Pods]:
    """Yield the pod sets of one group."""
    size, leader = number(document, *_GROUP, "size"), at(document, *_GROUP, "leaderTemplate")
    if leader is not None:
        yield pods_of(leader, "leader", 1, (*_GROUP, "leaderTemplate"))
        size -= 1
    path: Path = (*_GROUP, "workerTemplate")
    yield pods_of(at(document, *path), "main" if leader is None else "worker", size, path)


def _check_labels(job: JobView, gates: Gates) -> Iterator[FieldError]:
    yield from check_queue_name(job)
    yield from check_elastic(job, gates)


def _check_change(job: JobView, old: Document, before: JobView, gates: Gates) -> Iterator[FieldError]:
    ready = number(old, "status", "readyReplicas", default=0) > 0
    if ready or not job.queue:
        path: Path = ("metadata", "labels", MapKey(QUEUE))
        yield from immutable(path, job.queue, before.queue, f"leave it {before.queue}")
    yield from check_class_change(job, before, suspended=not ready)
    if enabled(gates, "AdmissionGatedBy"):
        yield from check_gates_change(job.notes, before.notes)
        yield from check_gates(job.notes)


def check_shape(new: Any, old: Any, path: Path) -> Iterator[FieldError]:
    """Validate that the scheduling-related fields of a pod template are unchanged
    (ValidateImmutablePodGroupPodSpec).
    """
    for key in ("initContainers", "containers"):
        ours, theirs = entries(new, key), entries(old, key)
        if len(ours) != len(theirs):
            yield from immutable((*path, key), ours, theirs, "leave them as they were")
            continue
        for n, (one, other) in enumerate(zip(ours, theirs, strict=True)):
            where: Path = (*path, key, n)
            yield from _same((*where, "resources", "requests"), one, other, "resources", "requests")
            yield from _same((*where, "ports"), one, other, "ports")
    for key in _SHAPE:
        yield from _same((*path, key), new, old, key)
    yield from _same((*path, "resources"), new, old, "resources", "requests")


def _same(path: Path, new: Any, old: Any, *keys: str) -> Iterator[FieldError]:
    ours, theirs = at(new, *keys) or None, at(old, *keys) or None
    yield from immutable(path, ours, theirs, "leave it as it was")

"""Kueue's mutating webhooks for new jobs: default queue, suspension, scheduling gates."""

from collections.abc import Mapping
from typing import Any

from gpuconsole.model.apiserver.common_validation import Gates, enabled
from gpuconsole.model.apiserver.jobs.framework import Document, at, entries
from gpuconsole.model.apiserver.workload_webhook import ELASTIC
from gpuconsole.model.jobs.common import GROUP
from gpuconsole.model.jobs.kubeflow import ALL
from gpuconsole.model.jobs.workloads import PRIORITY_CLASS, QUEUE

DEFAULT_QUEUE = "default"
"""LocalQueue of jobs without a queue name, if their namespace has a LocalQueue of this name."""
MANAGED = "kueue.x-k8s.io/managed"
PARENT = "kueue.x-k8s.io/pod-suspending-parent"
SERVING = "kueue.x-k8s.io/pod-group-serving"
OFFSET = "kueue.x-k8s.io/pod-index-offset"
ELASTIC_GATE = {"name": ELASTIC}
_INTEGRATED = {
    ("batch", "Job"),
    ("jobset.x-k8s.io", "JobSet"),
    ("ray.io", "RayJob"),
    ("ray.io", "RayCluster"),
    ("ray.io", "RayService"),
    ("apps", "Deployment"),
    ("apps", "StatefulSet"),
    ("leaderworkerset.x-k8s.io", "LeaderWorkerSet"),
    ("trainer.kubeflow.org", "TrainJob"),
    ("workload.codeflare.dev", "AppWrapper"),
    ("sparkoperator.k8s.io", "SparkApplication"),
    *(("kubeflow.org", replicas.kind) for replicas in ALL),
}
"""(group, kind) of the job kinds that Kueue can manage."""
_GROUP = ("spec", "leaderWorkerTemplate")
_ELASTIC_TEMPLATES: Mapping[tuple[str, str], tuple[str, ...]] = {
    ("ray.io", "RayCluster"): ("spec",),
    ("ray.io", "RayService"): ("spec", "rayClusterConfig"),
    ("ray.io", "RayJob"): ("spec", "rayClusterSpec"),
}


def defaulted(
    group: str,
    kind: str,
    document: Document,
    gates: Gates,
    *,
    suspend: tuple[str, ...] | None,
    default_queue: bool = False,
    manage_all: bool = False,
) -> Document:
    """Return a new job as Kueue's mutating webhooks change it.

    `suspend` is the path of its suspend field, or None. `default_queue`: its namespace has a default LocalQueue.
    `manage_all`: Kueue also manages jobs without a queue name (manageJobsWithoutQueueName). A job whose controller is a
    job that Kueue can manage gets no default queue and is not suspended.
    """
    owned = is_owned(document)
    if group == "apps" and at(document, *_notes("spec", "template"), PARENT) not in (None, kind.lower()):
        return document  # Another integration manages it.
    if default_queue and not owned and not at(document, "metadata", "labels", QUEUE):
        document = edited(document, ("metadata", "labels", QUEUE), DEFAULT_QUEUE)
    managed = is_managed(document) or (manage_all and not owned)
    if managed and suspend is not None and at(document, *suspend) is not True:
        document = edited(document, suspend, True)
    match kind:
        case "Deployment" if managed:
            document = _deployment(document)
        case "StatefulSet" if managed:
            document = edited(document, (*_notes("spec", "template"), PARENT), "statefulset")
        case "LeaderWorkerSet" if managed:
            document = _worker_set(document, gates)
        case "MPIJob":
            document = _mpi(document, gates)
    elastic = at(document, "metadata", "annotations", ELASTIC) == "true"
    if elastic and enabled(gates, "ElasticJobsViaWorkloadSlices"):
        document = _gated(group, kind, document)
    return document


def is_owned(document: Document) -> bool:
    """True if a job's controller is of a kind that Kueue can manage."""
    owners = (reference for reference in entries(document, "metadata", "ownerReferences"))
    return any(at(owner, "controller") is True and _group_kind(owner) in _INTEGRATED for owner in owners)


def is_managed(document: Document) -> bool:
    """True for a job that has a queue name and is not owned by a job that Kueue can manage."""
    return bool(at(document, "metadata", "labels", QUEUE)) and not is_owned(document)


def _group_kind(owner: Any) -> tuple[str, str]:
    return str(at(owner, "apiVersion") or "").rpartition("/")[0], str(at(owner, "kind") or "")


def edited(document: Document, path: tuple[str, ...], value: Any) -> Document:
    """Return the document with another value at a path; unchanged parts are shared."""
    first, *rest = path
    below = document.get(first)
    if rest:
        value = edited(below if isinstance(below, dict) else {}, tuple(rest), value)
    return {**document, first: value}


def _notes(*path: str) -> tuple[str, ...]:
    return (*path, "metadata", "annotations")


def _deployment(document: Document) -> Document:
    """Label the pods of a Deployment with its queue, because Kueue gates each pod on its own."""
    document = edited(document, (*_notes("spec", "template"), PARENT), "deployment")
    return _labelled(
        edited(document, ("spec", "template", "metadata", "labels", MANAGED), "true"), ("spec", "template")
    )


def _labelled(document: Document, template: tuple[str, ...]) -> Document:
    """Copy the job's queue and priority class labels to a pod template."""
    for label in (QUEUE, PRIORITY_CLASS):
        value = at(document, "metadata", "labels", label)
        if value:
            document = edited(document, (*template, "metadata", "labels", label), value)
    return document


def _worker_set(document: Document, gates: Gates) -> Document:
    led = at(document, *_GROUP, "leaderTemplate") is not None
    for key in ("leaderTemplate", "workerTemplate") if led else ("workerTemplate",):
        document = _labelled(document, (*_GROUP, key))
        notes = _notes(*_GROUP, key)
        document = edited(document, (*notes, PARENT), "leaderworkerset.x-k8s.io/leaderworkerset")
        document = edited(document, (*notes, SERVING), "true")
    worker = _notes(*_GROUP, "workerTemplate")
    if led and enabled(gates, "TopologyAwareScheduling") and GROUP not in at(document, *worker):
        document = edited(document, (*worker, OFFSET), "1")
    return document


def _mpi(document: Document, gates: Gates) -> Document:
    """Offset the workers' pod indexes by 1 in an MPIJob whose launcher is also a worker, so that it has rank 0."""
    launcher, worker = ("spec", "mpiReplicaSpecs", "Launcher"), ("spec", "mpiReplicaSpecs", "Worker")
    both = at(document, *launcher) is not None and at(document, *worker) is not None
    if not (both and at(document, "spec", "runLauncherAsWorker") is True and enabled(gates, "TopologyAwareScheduling")):
        return document
    if GROUP in (at(document, *_notes(*launcher, "template")) or {}):
        return document
    return edited(document, (*_notes(*worker, "template"), OFFSET), "1")


def _gated(group: str, kind: str, document: Document) -> Document:
    """Gate the pods of an elastic job until its workload slice is admitted."""
    if (group, kind) == ("batch", "Job"):
        return _with_gate(document, ("spec", "template"))
    cluster = _ELASTIC_TEMPLATES.get((group, kind))
    if cluster is None:
        return document
    document = _with_gate(document, (*cluster, "headGroupSpec", "template"))
    workers = [_with_gate(worker, ("template",)) for worker in entries(document, *cluster, "workerGroupSpecs")]
    return edited(document, (*cluster, "workerGroupSpecs"), workers) if workers else document


def _with_gate(document: Document, template: tuple[str, ...]) -> Document:
    path = (*template, "spec", "schedulingGates")
    gates = entries(document, *path)
    return document if ELASTIC_GATE in gates else edited(document, path, [*gates, ELASTIC_GATE])

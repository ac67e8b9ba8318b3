"""Webhooks of Job, JobSet, Kubeflow's and Ray's jobs, pods, Deployment, StatefulSet, LeaderWorkerSet (Kueue 0.19).

`defaulted` is what the mutating webhooks do to a new job: default queue, suspension, scheduling gates. The validating
webhooks, with the parameters of `kinds.JobCreateCheck` and `kinds.JobUpdateCheck`, follow by kind: services, whose
fields are partly immutable while their pods run; batch/v1 Job (`check`, `check_change`), with partial admission; then
jobs with several pod sets, and plain pods.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from gpuconsole.model.apiserver.common_validation import Gates, check_gates, check_gates_change, enabled
from gpuconsole.model.apiserver.jobs.framework import (
    Document,
    JobView,
    Pods,
    at,
    at_once,
    check_bound,
    check_class_change,
    check_elastic,
    check_groups,
    check_job,
    check_job_change,
    check_queue_name,
    check_request,
    entries,
    immutable,
    is_elastic,
    not_truth,
    not_whole,
    number,
    pods_of,
    truth,
    whole,
)
from gpuconsole.model.apiserver.schema import forbidden, invalid, too_many
from gpuconsole.model.apiserver.workload_webhook import ELASTIC, MOST_POD_SETS
from gpuconsole.model.documents.findings import FieldError, MapKey, Path
from gpuconsole.model.jobs.common import GROUP, PREFERRED, REQUIRED
from gpuconsole.model.jobs.kubeflow import ALL, Replicas
from gpuconsole.model.jobs.workloads import PRIORITY_CLASS, QUEUE

DEFAULT_QUEUE = "default"
"""LocalQueue of jobs without a queue name, if their namespace has a LocalQueue of this name."""
MANAGED = "kueue.x-k8s.io/managed"
PARENT = "kueue.x-k8s.io/pod-suspending-parent"
"""Annotation of a pod template: name of the integration that suspends the pods (Kueue's pod-suspending-parent)."""
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
_LEADER_WORKER_TEMPLATE = ("spec", "leaderWorkerTemplate")
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
    """Return a copy of the document with this value at a path; unchanged parts are shared."""
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
    led = at(document, *_LEADER_WORKER_TEMPLATE, "leaderTemplate") is not None
    for key in ("leaderTemplate", "workerTemplate") if led else ("workerTemplate",):
        document = _labelled(document, (*_LEADER_WORKER_TEMPLATE, key))
        notes = _notes(*_LEADER_WORKER_TEMPLATE, key)
        document = edited(document, (*notes, PARENT), "leaderworkerset.x-k8s.io/leaderworkerset")
        document = edited(document, (*notes, SERVING), "true")
    worker = _notes(*_LEADER_WORKER_TEMPLATE, "workerTemplate")
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


MOST_GROUPS = 1_000_000
"""Most groups of a LeaderWorkerSet."""
_REPLICAS: Path = ("spec", "replicas")
_SHAPE = (
    *("nodeSelector", "affinity", "tolerations", "runtimeClassName", "priority", "topologySpreadConstraints"),
    *("overhead", "resourceClaims"),
)
_NO_RESIZING = "scale it to 0 first, or leave it"


def check_service(document: Document, job: JobView, gates: Gates) -> Iterator[FieldError]:
    """Validate a new Deployment or StatefulSet, except a StatefulSet that another integration manages."""
    if _is_managed_elsewhere(document):
        return
    yield from _check_labels(job, gates)
    if enabled(gates, "AdmissionGatedBy"):
        yield from check_gates(job.notes)


def _is_managed_elsewhere(document: Document) -> bool:
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
    if _is_managed_elsewhere(document):
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
        path: Path = (*_LEADER_WORKER_TEMPLATE, key)
        new, was = at(document, *path), at(old, *path)
        if key == "leaderTemplate" and (new is None or was is None):
            yield from immutable(path, new, was, "leave it as it was")
        else:
            yield from check_shape(at(new, "spec"), at(was, "spec"), (*path, "spec"))
    if enabled(gates, "LWSImmutableGroupSize"):
        path = (*_LEADER_WORKER_TEMPLATE, "size")
        yield from immutable(path, number(document, *path), number(old, *path), "leave it as it was")


def _parts(document: Document) -> Iterator[Pods]:
    """Yield the pod sets of one group."""
    size, leader = (
        number(document, *_LEADER_WORKER_TEMPLATE, "size"),
        at(document, *_LEADER_WORKER_TEMPLATE, "leaderTemplate"),
    )
    if leader is not None:
        yield pods_of(leader, "leader", 1, (*_LEADER_WORKER_TEMPLATE, "leaderTemplate"))
        size -= 1
    path: Path = (*_LEADER_WORKER_TEMPLATE, "workerTemplate")
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


MIN_PARALLELISM = "kueue.x-k8s.io/job-min-parallelism"
"""Annotation of a Job for partial admission: the fewest pods with which it may start."""
SYNC_COMPLETIONS = "kueue.x-k8s.io/job-completions-equal-parallelism"
"""Annotation of a Job: with partial admission, its completions are reduced with its parallelism."""
_NOTES: Path = ("metadata", "annotations")
_MINIMUM: Path = (*_NOTES, MapKey(MIN_PARALLELISM))
_SYNC: Path = (*_NOTES, MapKey(SYNC_COMPLETIONS))


def check(document: Document, job: JobView, gates: Gates) -> Iterator[FieldError]:
    """Validate a new Job of batch/v1."""
    yield from check_job(job, gates)
    yield from _check_minimum(document, job, gates)
    yield from _check_sync(document, job)
    yield from _check_topology(document, job, gates)


def check_change(
    document: Document, job: JobView, old: Document, before: JobView, gates: Gates, *, default_queue: bool
) -> Iterator[FieldError]:
    """Validate the update of a Job of batch/v1."""
    yield from check_job(job, gates)
    if job.notes.get(MIN_PARALLELISM) != before.notes.get(MIN_PARALLELISM):
        yield from _check_minimum(document, job, gates)
    yield from _check_sync(document, job)
    yield from check_job_change(job, before, gates, default_queue=default_queue)
    started = MIN_PARALLELISM in before.notes and not at(old, "spec", "suspend")
    if started and number(document, "spec", "parallelism") != number(old, "spec", "parallelism"):
        detail = "cannot change when partial admission is enabled and the job is not suspended"
        yield forbidden(("spec", "parallelism"), detail, "suspend the job first")
    if not before.suspended and not job.suspended and _synced(before) != _synced(job):
        yield forbidden(_SYNC, "field is immutable while the job is not suspended", "suspend the job first")
    yield from _check_topology(document, job, gates)


def _check_minimum(document: Document, job: JobView, gates: Gates) -> Iterator[FieldError]:
    text = job.notes.get(MIN_PARALLELISM)
    if text is None:
        return
    least, most = whole(text), at_once(at(document, "spec")) - 1
    if least is None:
        yield invalid(_MINIMUM, text, not_whole(text), 'write a number, such as "4"', "bad-number")
    elif least > most or least <= 0:
        yield invalid(_MINIMUM, least, f"should be between 0 and {most}", f"write 1 to {most}", "bad-number")
    if is_elastic(job, gates):
        detail = "partial admission and elastic job cannot be used together"
        yield invalid(_MINIMUM, text, detail, "drop one of the two annotations")


def _check_sync(document: Document, job: JobView) -> Iterator[FieldError]:
    text = job.notes.get(SYNC_COMPLETIONS)
    if text is None:
        return
    if truth(text) is None:
        yield invalid(_SYNC, text, not_truth(text), 'write "true" or "false"')
    elif truth(text):
        spec = at(document, "spec")
        if at(spec, "completionMode") in (None, "NonIndexed"):
            detail = "should not be enabled for NonIndexed jobs"
            yield invalid(_SYNC, text, detail, "write completionMode: Indexed, or drop it")
        completions, parallelism = number(spec, "completions"), number(spec, "parallelism")
        if completions != parallelism:
            detail = f"should be equal to parallelism when {SYNC_COMPLETIONS} annotation is true"
            yield invalid(("spec", "completions"), completions, detail, f"write {parallelism}")


def _synced(job: JobView) -> bool:
    return truth(job.notes.get(SYNC_COMPLETIONS, "")) is True


def _check_topology(document: Document, job: JobView, gates: Gates) -> Iterator[FieldError]:
    if not enabled(gates, "TopologyAwareScheduling"):
        return
    spec = at(document, "spec")
    pods = pods_of(at(spec, "template"), "main", at_once(spec), ("spec", "template"))
    wrong = list(check_request(pods.notes, pods.path, gates))
    asked = [key for key in (REQUIRED, PREFERRED) if key in pods.notes]
    if wrong:
        yield from wrong
    elif asked and is_elastic(job, gates):
        word = "required" if asked[0] == REQUIRED else "preferred"
        detail = f"{word} topology is not supported with elastic jobs"
        yield forbidden((*pods.path, asked[0]), detail, "ask for podset-unconstrained-topology")
    else:
        yield from check_bound(pods)


_MULTI_KUEUE = "kueue.x-k8s.io/multikueue"
_HEAD = "head"


def check_job_set(document: Document, job: JobView, gates: Gates) -> Iterator[FieldError]:
    """Validate a new or changed JobSet."""
    yield from check_job(job, gates)
    if enabled(gates, "TopologyAwareScheduling"):
        path: Path = ("spec", "replicatedJobs")
        pod_sets = [_replicated(entry, (*path, n)) for n, entry in enumerate(entries(document, *path))]
        yield from _check_each(pod_sets, gates)
        yield from check_groups(pod_sets)


def change_job_set(
    document: Document, job: JobView, old: Document, before: JobView, gates: Gates, *, default_queue: bool
) -> Iterator[FieldError]:
    """Validate the update of a JobSet."""
    yield from check_job_change(job, before, gates, default_queue=default_queue)
    yield from check_job_set(document, job, gates)


def _replicated(entry: object, path: Path) -> Pods:
    spec = at(entry, "template", "spec")
    count = number(entry, "replicas", default=0) * at_once(spec)
    name = str(at(entry, "name") or "").lower()
    return pods_of(at(spec, "template"), name, count, (*path, "template", "spec", "template"))


def _check_each(pod_sets: Sequence[Pods], gates: Gates) -> Iterator[FieldError]:
    for pods in pod_sets:
        yield from check_request(pods.notes, pods.path, gates)
        yield from check_bound(pods)


class KubeflowCheck(Struct, frozen=True):
    """Validating webhook of one kind of Kubeflow job."""

    replicas: Replicas

    def check(self, document: Document, job: JobView, gates: Gates) -> Iterator[FieldError]:
        """Validate a new job."""
        yield from check_job(job, gates)
        yield from self._check_replicas(document, gates)

    def change(
        self, document: Document, job: JobView, old: Document, before: JobView, gates: Gates, *, default_queue: bool
    ) -> Iterator[FieldError]:
        """Validate the update of a job."""
        yield from check_job_change(job, before, gates, default_queue=default_queue)
        yield from self._check_replicas(document, gates)

    def _check_replicas(self, document: Document, gates: Gates) -> Iterator[FieldError]:
        path: Path = ("spec", self.replicas.field)
        replicas = at(document, *path)
        if not enabled(gates, "TopologyAwareScheduling") or not isinstance(replicas, dict):
            return
        parts = [_replica(replicas, type, path) for type in self.replicas.types if type in replicas]
        yield from _check_each(parts, gates)
        if self.replicas.kind == "MPIJob":
            yield from check_groups(parts)


def _replica(replicas: object, type: str, path: Path) -> Pods:
    count = number(replicas, type, "replicas")
    return pods_of(at(replicas, type, "template"), type, count, (*path, MapKey(type), "template"))


def check_ray_service(document: Document, job: JobView, gates: Gates) -> Iterator[FieldError]:
    """Validate a new or changed RayService."""
    path: Path = ("spec", "rayClusterConfig")
    shown: Path = ("spec", "rayClusterSpec")
    spec = at(document, *path)
    if job.queue:
        yield from check_cluster_spec(spec, job, shown)
    yield from check_job(job, gates)
    if enabled(gates, "TopologyAwareScheduling"):
        yield from _check_ray_topology(spec, gates, shown)


def check_cluster_spec(spec: object, job: JobView, path: Path) -> Iterator[FieldError]:
    """Validate the cluster of a RayService (or RayJob) that has a queue."""
    if at(spec, "enableInTreeAutoscaling") is True and job.notes.get(ELASTIC) != "true":
        detail = "a kueue managed job should only use autoscaling when workload slicing is enabled"
        yield invalid((*path, "enableInTreeAutoscaling"), True, detail, f'write {ELASTIC}: "true", or drop it')
    yield from _check_groups_of_workers(entries(spec, "workerGroupSpecs"), path)


def check_train_job(document: Document, job: JobView, gates: Gates) -> Iterator[FieldError]:
    """Validate a new TrainJob; its runtime's pods are unknown here."""
    yield from check_job(job, gates)


def change_train_job(
    document: Document, job: JobView, old: Document, before: JobView, gates: Gates, *, default_queue: bool
) -> Iterator[FieldError]:
    """Validate the update of a TrainJob."""
    yield from check_job_change(job, before, gates, default_queue=default_queue)
    yield from check_job(job, gates)


def check_ray_cluster(document: Document, job: JobView, gates: Gates) -> Iterator[FieldError]:
    """Validate a new or changed RayCluster."""
    spec = at(document, "spec")
    workers = entries(spec, "workerGroupSpecs")
    if job.queue:
        yield from _check_scaling(spec, job, gates)
        yield from _check_groups_of_workers(workers, ("spec",))
    yield from check_job(job, gates)
    if enabled(gates, "TopologyAwareScheduling"):
        yield from _check_ray_topology(spec, gates)


def _check_groups_of_workers(workers: Sequence[object], path: Path) -> Iterator[FieldError]:
    if len(workers) + 1 > MOST_POD_SETS:
        yield too_many((*path, "workerGroupSpecs"), len(workers) + 1, MOST_POD_SETS)
    for n, group in enumerate(workers):
        if at(group, "groupName") == _HEAD:
            where: Path = (*path, "workerGroupSpecs", n, "groupName")
            yield forbidden(where, f'"{_HEAD}" is reserved for the head group', "rename the group")


def _check_scaling(spec: object, job: JobView, gates: Gates) -> Iterator[FieldError]:
    scales, path = at(spec, "enableInTreeAutoscaling") is True, ("spec", "enableInTreeAutoscaling")
    if not is_elastic(job, gates):
        if scales:
            detail = (
                "a kueue-managed RayCluster can use autoscaling only as an elastic job: enable the "
                f'ElasticJobsViaWorkloadSlices feature gate and set the "{ELASTIC}": "true" annotation'
            )
            yield invalid(path, True, detail, f'write {ELASTIC}: "true", or enableInTreeAutoscaling: false')
        return
    groups = [("workerGroupSpecs", n) for n in range(len(entries(spec, "workerGroupSpecs")))]
    for keys in (*groups, ("headGroupSpec",)):
        gated = entries(spec, *keys, "template", "spec", "schedulingGates")
        if not any(at(gate, "name") == ELASTIC for gate in gated):
            place: Path = ("spec", *keys, "template", "spec", "schedulingGates")
            yield invalid(place, gated, "an elastic job must have the ElasticJobSchedulingGate", f"add {ELASTIC}")
    if scales and at(spec, "managedBy") == _MULTI_KUEUE:
        yield forbidden(
            path,
            "in-tree autoscaling is not supported for a MultiKueue-managed elastic RayCluster",
            "write enableInTreeAutoscaling: false",
        )


def check_ray_job(document: Document, job: JobView, gates: Gates) -> Iterator[FieldError]:
    """Validate a new or changed RayJob."""
    yield from check_job(job, gates)
    if enabled(gates, "TopologyAwareScheduling"):
        path: Path = ("spec", "rayClusterSpec")
        yield from _check_ray_topology(at(document, *path), gates, path)


def _check_ray_topology(spec: object, gates: Gates, path: Path = ("spec",)) -> Iterator[FieldError]:
    head = pods_of(at(spec, "headGroupSpec", "template"), _HEAD, 1, (*path, "headGroupSpec", "template"))
    workers = [
        _workers(group, (*path, "workerGroupSpecs", n)) for n, group in enumerate(entries(spec, "workerGroupSpecs"))
    ]
    yield from check_request(head.notes, head.path, gates)
    yield from check_groups([head, *workers])
    yield from check_bound(head)
    yield from _check_each(workers, gates)


def _workers(group: object, path: Path) -> Pods:
    count = number(group, "replicas") * max(1, number(group, "numOfHosts"))
    return pods_of(at(group, "template"), str(at(group, "groupName") or ""), count, (*path, "template"))


def check_pod(document: Document, job: JobView, gates: Gates) -> Iterator[FieldError]:
    """Validate a plain pod that names a queue."""
    yield from check_job(job, gates)
    if enabled(gates, "TopologyAwareScheduling"):
        yield from check_request(job.notes, ("metadata", "annotations"), gates)


def change_pod(
    document: Document, job: JobView, old: Document, before: JobView, gates: Gates, *, default_queue: bool
) -> Iterator[FieldError]:
    """Validate the update of a plain pod."""
    yield from check_pod(document, job, gates)

"""Webhooks of jobs with several pod sets, and of pods: JobSet, Kubeflow's jobs, Ray's, Pod (Kueue 0.19)."""

from collections.abc import Iterator, Sequence

from msgspec import Struct

from gpuconsole.model.apiserver.gates import Gates, enabled
from gpuconsole.model.apiserver.jobs.framework import JobView, check_job, check_job_change, is_elastic
from gpuconsole.model.apiserver.jobs.parts import Document, at, at_once, entries, number, pods_of
from gpuconsole.model.apiserver.jobs.topology import Pods, check_bound, check_groups, check_request
from gpuconsole.model.apiserver.refusals import forbidden, invalid, too_many
from gpuconsole.model.apiserver.workload import MOST_POD_SETS
from gpuconsole.model.apiserver.workload_changes import ELASTIC
from gpuconsole.model.documents.fields import FieldError
from gpuconsole.model.documents.findings import MapKey, Path
from gpuconsole.model.jobs.kubeflow import Replicas

_GATE = ELASTIC
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
    """Webhook of one kind of Kubeflow job."""

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


def change_ray_service(
    document: Document, job: JobView, old: Document, before: JobView, gates: Gates, *, default_queue: bool
) -> Iterator[FieldError]:
    """Validate the update of a RayService."""
    if _minded(job, before, gates):
        yield from check_job_change(job, before, gates, default_queue=default_queue)
        yield from check_ray_service(document, job, gates)


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


def change_ray_cluster(
    document: Document, job: JobView, old: Document, before: JobView, gates: Gates, *, default_queue: bool
) -> Iterator[FieldError]:
    """Validate the update of a RayCluster."""
    if _minded(job, before, gates):
        yield from check_job_change(job, before, gates, default_queue=default_queue)
        yield from check_ray_cluster(document, job, gates)


def _check_scaling(spec: object, job: JobView, gates: Gates) -> Iterator[FieldError]:
    scales, path = at(spec, "enableInTreeAutoscaling") is True, ("spec", "enableInTreeAutoscaling")
    if not is_elastic(job, gates):
        if scales:
            detail = (
                "a kueue-managed RayCluster can use autoscaling only as an elastic job: enable the "
                f'ElasticJobsViaWorkloadSlices feature gate and set the "{_GATE}": "true" annotation'
            )
            yield invalid(path, True, detail, f'write {_GATE}: "true", or enableInTreeAutoscaling: false')
        return
    groups = [("workerGroupSpecs", n) for n in range(len(entries(spec, "workerGroupSpecs")))]
    for keys in (*groups, ("headGroupSpec",)):
        gated = entries(spec, *keys, "template", "spec", "schedulingGates")
        if not any(at(gate, "name") == _GATE for gate in gated):
            place: Path = ("spec", *keys, "template", "spec", "schedulingGates")
            yield invalid(place, gated, "an elastic job must have the ElasticJobSchedulingGate", f"add {_GATE}")
    if scales and at(spec, "managedBy") == _MULTI_KUEUE:
        yield forbidden(
            path,
            "in-tree autoscaling is not supported for a MultiKueue-managed elastic RayCluster",
            "write enableInTreeAutoscaling: false",
        )


def _minded(job: JobView, before: JobView, gates: Gates) -> bool:
    """True if Kueue validates the update of a Ray job: it manages, or managed, the job."""
    return bool(job.queue or (before.queue and enabled(gates, "ValidateRayAndSparkJobUpdates")))


def check_ray_job(document: Document, job: JobView, gates: Gates) -> Iterator[FieldError]:
    """Validate a new or changed RayJob."""
    yield from check_job(job, gates)
    if enabled(gates, "TopologyAwareScheduling"):
        path: Path = ("spec", "rayClusterSpec")
        yield from _check_ray_topology(at(document, *path), gates, path)


def change_ray_job(
    document: Document, job: JobView, old: Document, before: JobView, gates: Gates, *, default_queue: bool
) -> Iterator[FieldError]:
    """Validate the update of a RayJob."""
    if _minded(job, before, gates):
        yield from check_job_change(job, before, gates, default_queue=default_queue)
        yield from check_ray_job(document, job, gates)


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

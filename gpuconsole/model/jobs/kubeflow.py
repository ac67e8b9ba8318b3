"""kubeflow.org PyTorchJob: a master and its workers."""

from msgspec.structs import replace

from gpuconsole.model.clock import Time
from gpuconsole.model.documents.reader import Reader
from gpuconsole.model.jobs.common import job, phase, pod_set, pods
from gpuconsole.model.workloads import Job, PodSet

REPLICA_TYPES = ("Master", "Worker")
REPLICA_INDEX = "training.kubeflow.org/replica-index"
_FIELDS = ("elasticPolicy", "nprocPerNode", "pytorchReplicaSpecs", "runPolicy")


def pytorch_job(reader: Reader, now: Time) -> Job:
    """A PyTorchJob: pod sets master and worker; a schedulingPolicy.minAvailable makes it a gang."""
    spec = reader.mapping("spec")
    spec.only(*_FIELDS)
    replicas = spec.mapping("pytorchReplicaSpecs")
    replicas.only(*REPLICA_TYPES)
    policy = spec.mapping("runPolicy")
    scheduling = policy.mapping("schedulingPolicy")
    least = scheduling.optional("minAvailable", low=0)
    suspended = policy.flag("suspend")
    found = tuple(_replica(replicas, kind) for kind in REPLICA_TYPES if kind in replicas)
    if not found:
        spec.report.refused(
            spec.at("pytorchReplicaSpecs"), "pytorchReplicaSpecs is empty", "give it a Master or a Worker", "required"
        )
    return job(
        reader,
        now,
        "PyTorchJob",
        with_priority_class(found, scheduling.text("priorityClass")),
        gang=least is not None,
        min_available=least,
        suspended=suspended,
        backoff_limit=policy.number("backoffLimit", 6, low=0),
        phase=phase(reader, suspended),
    )


def _replica(replicas: Reader, kind: str) -> PodSet:
    place = replicas.mapping(kind)
    place.only("replicas", "restartPolicy", "template")
    place.one_of("restartPolicy", "", ("Always", "OnFailure", "Never", "ExitCode"))
    count = pods(place, "replicas")
    if kind == "Master" and count > 1:
        place.report.refused(
            place.at("replicas"), "there must be only 1 Master replica", "write replicas: 1", "bad-replicas"
        )
    return pod_set(place, kind, count, index=REPLICA_INDEX)


def with_priority_class(pod_sets: tuple[PodSet, ...], name: str) -> tuple[PodSet, ...]:
    """Give templates that name no priority class the job's."""
    if not name:
        return pod_sets
    return tuple(
        pods if pods.template.priority_class else replace(pods, template=replace(pods.template, priority_class=name))
        for pods in pod_sets
    )

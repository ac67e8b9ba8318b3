"""ray.io RayJob: a head, worker groups, and a submitter in K8sJobMode, as Kueue 0.19 counts them."""

from msgspec.structs import replace

from gpuconsole.model.clock import Time
from gpuconsole.model.cluster import Container, PodTemplate
from gpuconsole.model.documents.amounts import resources
from gpuconsole.model.documents.names import unique
from gpuconsole.model.documents.reader import Reader
from gpuconsole.model.jobs.common import MOST_PODS, job, phase, pod_set, pods
from gpuconsole.model.jobs.labels import QUEUE
from gpuconsole.model.quantity import CPU, MEMORY
from gpuconsole.model.workloads import Job, PodSet

MIB = 1024 * 1024
# What KubeRay gives the containers that it adds itself.
_SUBMITTER = Container(
    "ray-job-submitter", requests={CPU: 500, MEMORY: 200 * MIB}, limits={CPU: 1000, MEMORY: 1024 * MIB}
)
_AUTOSCALER = {CPU: 500, MEMORY: 512 * MIB}
_MODES = ("K8sJobMode", "HTTPMode", "InteractiveMode", "SidecarMode")


def ray_job(reader: Reader, now: Time) -> Job:
    """A RayJob; one that selects an existing cluster is not managed by Kueue."""
    spec = reader.mapping("spec")
    cluster = spec.mapping("rayClusterSpec")
    mode = spec.one_of("submissionMode", _MODES[0], _MODES)
    managed = QUEUE in reader.down("metadata", "labels")
    suspended = spec.flag("suspend")
    if "clusterSelector" in spec:
        _existing_cluster(spec, managed)
        return job(reader, now, "RayJob", _submitter(spec, mode), queue="", suspended=suspended)
    if "rayClusterSpec" not in spec:
        problem = "rayClusterSpec is required for Kueue-managed jobs that don't use clusterSelector"
        spec.report.refused(spec.at("rayClusterSpec"), problem, "describe the cluster", "required")
    elif managed and not spec.flag("shutdownAfterJobFinishes"):
        spec.report.refused(
            spec.at("shutdownAfterJobFinishes"),
            "a kueue managed job should delete the cluster after finishing",
            "write shutdownAfterJobFinishes: true",
            "ray-shutdown",
        )
    pod_sets = (_head(cluster, mode), *_workers(cluster), *_submitter(spec, mode))
    limit = spec.number("backoffLimit", 0, low=0)
    state = phase(reader, suspended)
    return job(reader, now, "RayJob", pod_sets, suspended=suspended, backoff_limit=limit, phase=state)


def _existing_cluster(spec: Reader, managed: bool) -> None:
    if managed:
        spec.report.refused(
            spec.at("clusterSelector"),
            "a kueue managed job should not use an existing cluster",
            "drop clusterSelector, or the queue-name label",
            "ray-cluster-selector",
        )


def _head(cluster: Reader, mode: str) -> PodSet:
    head = pod_set(cluster.mapping("headGroupSpec"), "head", 1)
    extra: tuple[Container, ...] = ()
    if cluster.flag("enableInTreeAutoscaling"):
        options = cluster.mapping("autoscalerOptions").mapping("resources")
        own = resources(options, "requests") if options.value else _AUTOSCALER
        extra += (Container("autoscaler", requests=own, limits=resources(options, "limits")),)
    if mode == "SidecarMode":
        extra += (_SUBMITTER,)
    return replace(head, template=replace(head.template, containers=head.template.containers + extra))


def _workers(cluster: Reader) -> tuple[PodSet, ...]:
    workers = tuple(_worker(place) for place in cluster.items("workerGroupSpecs", 1000))
    unique(cluster, "workerGroupSpecs", [pods.name for pods in workers], "groupName", fatal=True)
    return workers


def _worker(place: Reader) -> PodSet:
    hosts = place.number("numOfHosts", 1, low=0, high=MOST_PODS)
    count = min(MOST_PODS, pods(place, "replicas") * max(1, hosts))
    return pod_set(place, place.required("groupName"), count)


def _submitter(spec: Reader, mode: str) -> tuple[PodSet, ...]:
    if mode != "K8sJobMode":
        return ()
    if "submitterPodTemplate" in spec:
        own = Reader({"template": spec.raw("submitterPodTemplate")}, spec.report, spec, "submitterPodTemplate")
        return (pod_set(own, "submitter", 1),)
    return (PodSet(name="submitter", template=PodTemplate(containers=(_SUBMITTER,), restart_policy="Never")),)

"""ray.io RayJob, RayCluster, RayService: a head, worker groups, and a RayJob's submitter, counted as in Kueue 0.19."""

from collections.abc import Callable, Mapping

from msgspec.structs import replace

from gpuconsole.model.clock import Time
from gpuconsole.model.documents.amounts import resources
from gpuconsole.model.documents.findings import Finding, Severity
from gpuconsole.model.documents.names import unique
from gpuconsole.model.documents.reader import INT32, Reader
from gpuconsole.model.job import Job
from gpuconsole.model.job_rules import ReplicaRules
from gpuconsole.model.jobs.common import MOST_PODS, job, phase, pod_set, pods
from gpuconsole.model.jobs.labels import QUEUE
from gpuconsole.model.jobs.ray_schedulers import (
    HEAD,
    K8S_JOB_MODE,
    SELECTOR,
    SUBMISSION,
    SUBMITTER,
    RayPods,
    RayWorkerGroup,
    check_existing,
    check_submission,
    group_of,
    needs_of,
    scheduled,
)
from gpuconsole.model.pod_sets import PodSet
from gpuconsole.model.pod_template import Container, PodTemplate
from gpuconsole.model.quantity import CPU, MEMORY
from gpuconsole.model.resources import largest

MIB = 1024 * 1024
# Resources of the containers that KubeRay adds.
_SUBMITTER = Container(
    "ray-job-submitter", requests={CPU: 500, MEMORY: 200 * MIB}, limits={CPU: 1000, MEMORY: 1024 * MIB}
)
_AUTOSCALER = {CPU: 500, MEMORY: 512 * MIB}
_REDIS_CLEANUP = {CPU: 200, MEMORY: 256 * MIB}
"""Requests of the Job that cleans up the Redis of a fault-tolerant cluster, which replaces the head."""
_FAULT_TOLERANT = "ray.io/ft-enabled"
_CLUSTER_FIELDS = (
    *("authOptions", "autoscalerOptions", "enableInTreeAutoscaling", "gcsFaultToleranceOptions", "headGroupSpec"),
    *("headServiceAnnotations", "historyServerOptions", "managedBy", "networkPolicy", "rayVersion", "suspend"),
    *("tlsOptions", "upgradeStrategy", "workerGroupSpecs"),
)
_SERVICE_FIELDS = (
    *("deploymentUnhealthySecondThreshold", "excludeHeadPodFromServeSvc", "managedBy", "rayClusterConfig"),
    *("rayClusterDeletionDelaySeconds", "serveConfigV2", "serveService", "serviceUnhealthySecondThreshold"),
    *("suspend", "upgradeStrategy"),
)
_MODES = (K8S_JOB_MODE, "HTTPMode", "InteractiveMode", "SidecarMode")


def ray_job(reader: Reader, now: Time, configured: str = "") -> Job:
    """Read a RayJob; Kueue does not manage one that selects an existing cluster."""
    spec = reader.mapping("spec")
    cluster = spec.mapping("rayClusterSpec")
    mode = spec.one_of("submissionMode", _MODES[0], _MODES)
    managed = QUEUE in reader.down("metadata", "labels")
    suspended = spec.flag("suspend")
    if "clusterSelector" in spec:
        _existing_cluster(spec, managed)
        pod_sets = scheduled(reader, _submitter(spec, mode), configured)
        check_existing(spec, pod_sets)
        return job(reader, now, "RayJob", pod_sets, queue="", suspended=suspended)
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
    tolerant = _is_fault_tolerant(cluster, reader.down("metadata", "annotations"))
    ray = _ray_pods(cluster, spec, mode, tolerant=tolerant, managed=managed)
    pod_sets = scheduled(reader, ray.pod_sets, configured)
    check_submission(spec, mode, pod_sets)
    limit = spec.number("backoffLimit", 0, low=0)
    state = phase(reader, suspended)
    own = {
        "suspended": suspended,
        "backoff_limit": limit,
        "phase": state,
        "ray_group": group_of(reader, ray, pod_sets, configured),
    }
    return job(reader, now, "RayJob", pod_sets, **own)


def ray_job_pods(spec: Reader) -> tuple[PodSet, ...]:
    """Read the pods of the RayJob spec in a RayCronJob's template, which has no labels and no manager."""
    mode = spec.one_of("submissionMode", _MODES[0], _MODES)
    if "clusterSelector" in spec:
        return _submitter(spec, mode)
    cluster = spec.mapping("rayClusterSpec")
    if "rayClusterSpec" not in spec:
        problem = "one of RayClusterSpec or ClusterSelector must be set"
        spec.report.refused(spec.at("rayClusterSpec"), problem, "describe the cluster", "required")
    tolerant = "gcsFaultToleranceOptions" in cluster
    return _ray_pods(cluster, spec, mode, tolerant=tolerant, managed=False).pod_sets


def ray_cluster(reader: Reader, now: Time, configured: str = "") -> Job:
    """Read a RayCluster: it runs until it is deleted; a lost worker is replaced alone."""
    spec = reader.mapping("spec")
    spec.only(*_CLUSTER_FIELDS)
    return _served(reader, now, "RayCluster", spec, configured)


def ray_service(reader: Reader, now: Time, configured: str = "") -> Job:
    """Read a RayService: a serving cluster, described in its rayClusterConfig."""
    spec = reader.mapping("spec")
    spec.only(*_SERVICE_FIELDS)
    if "rayClusterConfig" not in spec:
        spec.report.refused(spec.at("rayClusterConfig"), "rayClusterConfig is missing", "describe it", "required")
    return _served(reader, now, "RayService", spec.mapping("rayClusterConfig"), configured)


def _served(reader: Reader, now: Time, kind: str, cluster: Reader, configured: str) -> Job:
    suspended = cluster.flag("suspend")
    tolerant = _is_fault_tolerant(cluster, reader.down("metadata", "annotations"))
    if not ("headGroupSpec" in cluster or tolerant):
        problem = "headGroupSpec is missing"
        cluster.report.refused(cluster.at("headGroupSpec"), problem, "every cluster has a head", "required")
    managed = QUEUE in reader.down("metadata", "labels")
    ray = _ray_pods(cluster, None, "", tolerant=tolerant, managed=managed)
    pod_sets = scheduled(reader, ray.pod_sets, configured)
    group = group_of(reader, ray, pod_sets, configured)
    state = phase(reader, suspended)
    return job(reader, now, kind, pod_sets, rules=ReplicaRules(), suspended=suspended, phase=state, ray_group=group)


def _is_fault_tolerant(cluster: Reader, notes: Reader) -> bool:
    return "gcsFaultToleranceOptions" in cluster or notes.text(_FAULT_TOLERANT).lower() == "true"


def _existing_cluster(spec: Reader, managed: bool) -> None:
    if managed:
        spec.report.refused(
            spec.at("clusterSelector"),
            "a kueue managed job should not use an existing cluster",
            "drop clusterSelector, or the queue-name label",
            "ray-cluster-selector",
        )


def _ray_pods(cluster: Reader, spec: Reader | None, mode: str, *, tolerant: bool, managed: bool) -> RayPods:
    """Return the pods of a cluster, and of the RayJob with this `spec`."""
    group = cluster.mapping("headGroupSpec")
    plain = pod_set(group, HEAD, 1) if "headGroupSpec" in cluster or tolerant else PodSet(name=HEAD)
    submitter = _submitter(spec, mode) if spec is not None else ()
    sidecar = (PodTemplate(containers=(_SUBMITTER,)),) if mode == "SidecarMode" else ()
    return RayPods(
        head=_head(cluster, plain, mode, tolerant),
        head_needs=needs_of(plain.template),
        workers=_workers(cluster, managed),
        submitter=submitter,
        submitting=(*(pods.template for pods in submitter), *sidecar),
        scales_itself=cluster.flag("enableInTreeAutoscaling"),
    )


def _head(cluster: Reader, head: PodSet, mode: str, tolerant: bool) -> PodSet:
    """Return the head with what the operator adds to it."""
    containers = head.template.containers
    if tolerant and not containers:
        problem = "cannot account for Redis cleanup resources: head pod template must include the Ray container"
        where = cluster.at("headGroupSpec", "template", "spec", "containers")
        cluster.report.error(where, problem, "write the head's container", "required")
    elif tolerant:
        requests = largest(containers[0].requests, _REDIS_CLEANUP)
        containers = (replace(containers[0], requests=requests), *containers[1:])
    if cluster.flag("enableInTreeAutoscaling"):
        options = cluster.mapping("autoscalerOptions").mapping("resources")
        needs, limits = (resources(options, key) if options.value else _AUTOSCALER for key in ("requests", "limits"))
        containers += (Container("autoscaler", requests=needs, limits=limits),)
    if mode == "SidecarMode":
        containers += (_SUBMITTER,)
    return replace(head, template=replace(head.template, containers=containers))


def _workers(cluster: Reader, managed: bool) -> tuple[RayWorkerGroup, ...]:
    workers = tuple(_worker(place, managed) for place in cluster.items("workerGroupSpecs", 1000))
    unique(cluster, "workerGroupSpecs", [group.pods.name for group in workers], "groupName", fatal=True)
    return workers


def _worker(place: Reader, managed: bool) -> RayWorkerGroup:
    """Read a worker group; if Kueue manages it, replicas count as they are written.

    Otherwise KubeRay creates as many as are within minReplicas and maxReplicas, and none for a suspended group
    (GetWorkerGroupDesiredReplicas).
    """
    hosts = max(1, place.number("numOfHosts", 1, low=0, high=MOST_PODS))
    replicas, least = pods(place, "replicas", 0), pods(place, "minReplicas", 0)
    asked, desired = replicas, max(least, min(replicas, place.number("maxReplicas", INT32, low=0)))
    if place.flag("suspend"):
        asked = desired = least = 0
    desired, asked, least, written = (min(MOST_PODS, count * hosts) for count in (desired, asked, least, replicas))
    counted = pod_set(place, place.required("groupName"), written if managed else desired)
    return RayWorkerGroup(counted, desired=desired, asked=asked, least=least)


def _submitter(spec: Reader, mode: str) -> tuple[PodSet, ...]:
    if mode != K8S_JOB_MODE:
        return ()
    if "submitterPodTemplate" in spec:
        return (pod_set(spec, SUBMITTER, 1, key="submitterPodTemplate"),)
    return (PodSet(name=SUBMITTER, template=PodTemplate(containers=(_SUBMITTER,), restart_policy="Never")),)


RAY_GROUP = "ray.io"
RAY_KINDS: Mapping[str, Callable[[Reader, Time, str], Job]] = {
    "RayJob": ray_job,
    "RayCluster": ray_cluster,
    "RayService": ray_service,
}
"""Readers of the kinds into whose pods the operator writes its batch scheduler."""


def is_of_scheduler(finding: Finding) -> bool:
    """True for a finding about a Ray job's batch scheduler."""
    return finding.severity is Severity.WARNING and finding.code in (SUBMISSION, SELECTOR)

"""RayJob, RayCluster, RayService (ray.io): a head, worker groups, and a RayJob's submitter, counted as in Kueue 0.19.

KubeRay's operator is configured for one batch scheduler (`--batch-scheduler`), whose name it writes as schedulerName of
the head, the workers and the submitter, whatever their templates say. If no manifest has that configuration
(`manifests.loading`), it is inferred from labels that only one of the schedulers reads (KubeRay 1.6
ray-operator/controllers/ray/batchscheduler). Kueue's queue label implies no scheduler: Kueue admits the pods, and any
scheduler places them.
"""

from collections.abc import Callable, Mapping

from msgspec import Struct
from msgspec.structs import replace

from gpuconsole.model.clock import Time
from gpuconsole.model.documents.findings import Finding, Severity
from gpuconsole.model.documents.metadata import unique
from gpuconsole.model.documents.reader import INT32, Reader, resources
from gpuconsole.model.job import Job, ReplicaRules
from gpuconsole.model.jobs.common import MOST_PODS, job, phase, pod_set, pods
from gpuconsole.model.jobs.workloads import QUEUE
from gpuconsole.model.pod_template import Container, PodSet, PodTemplate
from gpuconsole.model.resources import CPU, MEMORY, Resources, add, largest, scale
from gpuconsole.model.volcano import NetworkTopology, RayGroup

RAY_PRIORITY = "ray.io/priority-class-name"
VOLCANO_QUEUE = "volcano.sh/queue-name"
VOLCANO = "volcano"
KAI = "kai-scheduler"
COSCHEDULING = "scheduler-plugins-scheduler"
"""Name under which the scheduler of kubernetes-sigs/scheduler-plugins is installed."""
LEGACY_NAME = "ray.io/scheduler-name"
"""Label that named the scheduler of a cluster before KubeRay 1.1."""
GANG = "ray.io/gang-scheduling-enabled"
"""Label with which YuniKorn and the Coscheduling plugin start the pods together; its value is ignored."""
TASK_GROUP, TASK_GROUPS = "yunikorn.apache.org/task-group-name", "yunikorn.apache.org/task-groups"
HEAD, SUBMITTER = "head", "submitter"
GROUP_NAMES = {HEAD: "headgroup", SUBMITTER: "submittergroup"}
"""Pod set → name of its group of pods in KubeRay; worker groups keep their own names."""
_MODE, _TIER = "volcano.sh/network-topology-mode", "volcano.sh/network-topology-highest-tier-allowed"
K8S_JOB_MODE = "K8sJobMode"
SUBMISSION, SELECTOR = "ray-submission-mode", "ray-cluster-selector"
"""Codes of findings about a Ray job's batch scheduler."""


class BatchScheduler(Struct, frozen=True):
    """Scheduler for which KubeRay's operator can be configured."""

    name: str
    """schedulerName that the operator writes."""
    signs: tuple[str, ...]
    """Labels of the job or cluster that only this scheduler reads."""
    copied: Mapping[str, str]
    """Label of the job or cluster → label that its pods get."""


BATCH_SCHEDULERS = (
    BatchScheduler(VOLCANO, (VOLCANO_QUEUE,), {VOLCANO_QUEUE: VOLCANO_QUEUE, RAY_PRIORITY: RAY_PRIORITY}),
    BatchScheduler(KAI, ("kai.scheduler/queue",), {"kai.scheduler/queue": "kai.scheduler/queue"}),
    BatchScheduler(
        "yunikorn",
        ("yunikorn.apache.org/queue", "yunikorn.apache.org/app-id"),
        {"yunikorn.apache.org/app-id": "applicationId", "yunikorn.apache.org/queue": "queue"},
    ),
)


_COSCHEDULING = BatchScheduler(COSCHEDULING, (GANG,), {})
DEFAULT_SCHEDULER = "default"
"""Stands for an operator without a batch scheduler: pods keep the schedulerName of their templates."""
CONFIGURED: Mapping[str, BatchScheduler | None] = {
    DEFAULT_SCHEDULER: None,
    **{one.name: one for one in BATCH_SCHEDULERS},
    "scheduler-plugins": _COSCHEDULING,
}
"""Name in the operator's configuration (`batchScheduler`) → scheduler that it writes into pods, or None."""


class RayWorkerGroup(Struct, frozen=True):
    """Worker group of a Ray cluster, with its pod counts in KubeRay."""

    pods: PodSet
    desired: int
    """Pods that KubeRay creates: replicas, within minReplicas and maxReplicas, times numOfHosts."""
    asked: int
    """Replicas as written, times numOfHosts; minResources are computed from it."""
    least: int
    """minReplicas times numOfHosts: the initial size in a cluster with autoscaling."""


class RayPods(Struct, frozen=True, kw_only=True):
    """Pods that KubeRay creates for a Ray cluster or job."""

    head: PodSet
    head_needs: Resources
    """Requests of the head's containers as written, without those that the operator adds."""
    workers: tuple[RayWorkerGroup, ...] = ()
    submitter: tuple[PodSet, ...] = ()
    submitting: tuple[PodTemplate, ...] = ()
    """Templates that submit the job: the submitter, or the container that KubeRay adds to the head."""
    scales_itself: bool = False
    """Value of enableInTreeAutoscaling."""

    @property
    def pod_sets(self) -> tuple[PodSet, ...]:
        """Head, worker groups and submitter."""
        return (self.head, *(group.pods for group in self.workers), *self.submitter)


def scheduled(reader: Reader, pod_sets: tuple[PodSet, ...], configured: str = "") -> tuple[PodSet, ...]:
    """Return the pod sets with the scheduler, labels and annotations that KubeRay's operator writes into their pods.

    `configured` is one of CONFIGURED, or empty if the operator's configuration is not known.
    """
    scheduler = _scheduler_of(reader, pod_sets, configured)
    if scheduler is None:
        return pod_sets
    place = reader.mapping("metadata")
    labels, notes = place.mapping("labels"), place.mapping("annotations")
    copied = {target: labels.text(source) for source, target in scheduler.copied.items() if labels.text(source)}
    own: dict[str, dict[str, str]] = {pods.name: {} for pods in pod_sets}
    if scheduler.name == "yunikorn" and GANG in labels:
        groups = {TASK_GROUPS: notes.text(TASK_GROUPS, limit=65536)} if notes.text(TASK_GROUPS, limit=65536) else {}
        own = {name: {**groups, TASK_GROUP: GROUP_NAMES.get(name, name)} for name in own}
    return tuple(
        replace(pods, template=_placed_by(pods.template, scheduler.name, copied, own[pods.name])) for pods in pod_sets
    )


def group_of(reader: Reader, ray: RayPods, pod_sets: tuple[PodSet, ...], configured: str = "") -> RayGroup | None:
    """Return the PodGroup that KubeRay creates for a Ray object; None if its batch scheduler needs none.

    `reader` reads the whole object, whose labels select and configure the scheduler. `configured` is the batch
    scheduler in the KubeRay operator's configuration, one of CONFIGURED; empty if that is not known.
    """
    scheduler = _scheduler_of(reader, pod_sets, configured)
    if scheduler is None or scheduler.name not in (VOLCANO, COSCHEDULING):
        return None
    labels = reader.down("metadata", "labels")
    if scheduler.name == COSCHEDULING and GANG not in labels:
        return None
    by_least = ray.scales_itself and scheduler.name == VOLCANO
    members = 1 + sum(group.least if by_least else group.desired for group in ray.workers)
    needs = ray.head_needs
    for group in ray.workers:
        needs = add(needs, scale(needs_of(group.pods.template), group.least if by_least else group.asked))
    if scheduler.name == COSCHEDULING:
        return RayGroup(for_volcano=False, min_member=members, min_resources=needs)
    for template in ray.submitting:
        needs = add(needs, needs_of(template))
    return RayGroup(
        for_volcano=True,
        min_member=members,
        min_resources=needs,
        queue=labels.text(VOLCANO_QUEUE),
        priority_class=labels.text(RAY_PRIORITY),
        network_topology=_topology(labels),
    )


def needs_of(template: PodTemplate) -> Resources:
    """Sum the requests of a pod's containers; init containers and overhead do not count (CalculatePodResource)."""
    return add(*(container.effective for container in template.containers))


def _topology(labels: Reader) -> NetworkTopology | None:
    if _MODE not in labels:
        return None
    tier = labels.text(_TIER)
    if tier and not tier.removeprefix("-").isdecimal():
        problem = f"{_TIER} is not a number: KubeRay makes no PodGroup, and no pods"
        labels.report.warning(labels.at(_TIER), problem, "write the number of a tier", "bad-number")
        return None
    return NetworkTopology(mode=labels.text(_MODE), highest_tier=min(int(tier), INT32) if tier else None)


def _scheduler_of(reader: Reader, pod_sets: tuple[PodSet, ...], configured: str) -> BatchScheduler | None:
    """Return the configured scheduler, else the one that labels show; None if unknown."""
    if configured:
        return CONFIGURED[configured]
    labels = reader.down("metadata", "labels")
    legacy = labels.text(LEGACY_NAME)
    found = [one for one in BATCH_SCHEDULERS if legacy == one.name or any(labels.text(sign) for sign in one.signs)]
    if not found:
        return _COSCHEDULING if GANG in labels else None
    # With labels of several schedulers, schedulerName in a template tells which one the operator is configured for.
    said = {pods.template.scheduler_name for pods in pod_sets}
    return next((one for one in found if one.name in said), found[0])


def _placed_by(
    template: PodTemplate, scheduler: str, labels: Mapping[str, str], annotations: Mapping[str, str]
) -> PodTemplate:
    return replace(
        template,
        scheduler_name=scheduler,
        labels={**template.labels, **labels},
        annotations={**template.annotations, **annotations},
    )


def check_submission(spec: Reader, mode: str, pod_sets: tuple[PodSet, ...]) -> None:
    """Report a RayJob that KubeRay's operator never starts: KAI cannot place a submitter that comes later."""
    if mode == K8S_JOB_MODE and any(pods.template.scheduler_name == KAI for pods in pod_sets):
        problem = "KAI-Scheduler does not support RayJob with K8sJobMode: the submitter pod is created after RayCluster"
        remedy = "write submissionMode: HTTPMode or SidecarMode"
        spec.report.warning(spec.at("submissionMode"), f"{problem} is ready", remedy, SUBMISSION)


def check_existing(spec: Reader, pod_sets: tuple[PodSet, ...]) -> None:
    """Report a RayJob on an existing cluster with Volcano, because KubeRay never starts it."""
    if any(pods.template.scheduler_name == VOLCANO for pods in pod_sets):
        problem = "KubeRay with Volcano does not support a RayJob that refers to an existing RayCluster"
        remedy = f"drop the label {VOLCANO_QUEUE}, or write a rayClusterSpec"
        spec.report.warning(spec.at("clusterSelector"), problem, remedy, SELECTOR)


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
    """True if a finding is about a Ray job's batch scheduler."""
    return finding.severity is Severity.WARNING and finding.code in (SUBMISSION, SELECTOR)

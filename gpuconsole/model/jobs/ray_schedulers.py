"""Batch scheduler of a Ray job or cluster, which KubeRay's operator writes into every pod.

An operator is configured for one scheduler (`--batch-scheduler`), whose name it writes as schedulerName of the head,
the workers and the submitter, whatever their templates say. If no manifest has that configuration
(`model.manifests.kuberay`), it is inferred from labels that only one of the schedulers reads (KubeRay 1.6
ray-operator/controllers/ray/batchscheduler). Kueue's queue label implies no scheduler: Kueue admits the pods, and any
scheduler places them.
"""

from collections.abc import Mapping

from msgspec import Struct
from msgspec.structs import replace

from gpuconsole.model.documents.reader import INT32, Reader
from gpuconsole.model.pod_sets import PodSet
from gpuconsole.model.pod_template import PodTemplate
from gpuconsole.model.resources import Resources, add, scale
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
"""The operator writes no scheduler: that of the templates stays."""
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
    """Pods of a Ray cluster or job."""

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
    """Return the PodGroup that KubeRay creates for a RayCluster or RayJob; None if its scheduler needs none."""
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

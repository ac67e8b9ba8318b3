"""Which batch scheduler places the pods of a Ray job or cluster: KubeRay's operator writes it into every pod.

An operator is configured for one scheduler (`--batch-scheduler`), whose name it writes as schedulerName of the head,
the workers and the submitter, whatever their templates say. A manifest does not show that configuration, but the
labels that only one of the schedulers reads (KubeRay 1.6 ray-operator/controllers/ray/batchscheduler). Kueue's label
names no scheduler: it admits, and kube-scheduler or another one places.
"""

from collections.abc import Mapping

from msgspec import Struct
from msgspec.structs import replace

from gpuconsole.model.documents.reader import Reader
from gpuconsole.model.pod_sets import PodSet
from gpuconsole.model.pod_template import PodTemplate

RAY_PRIORITY = "ray.io/priority-class-name"
VOLCANO_QUEUE = "volcano.sh/queue-name"
KAI = "kai-scheduler"
K8S_JOB_MODE = "K8sJobMode"


class BatchScheduler(Struct, frozen=True):
    """A scheduler that KubeRay's operator can be configured for."""

    name: str
    """What it writes as schedulerName."""
    signs: tuple[str, ...]
    """Labels of the job or cluster that only this scheduler reads."""
    copied: Mapping[str, str]
    """Label of the job or cluster → label that its pods get."""


BATCH_SCHEDULERS = (
    BatchScheduler("volcano", (VOLCANO_QUEUE,), {VOLCANO_QUEUE: VOLCANO_QUEUE, RAY_PRIORITY: RAY_PRIORITY}),
    BatchScheduler(KAI, ("kai.scheduler/queue",), {"kai.scheduler/queue": "kai.scheduler/queue"}),
    BatchScheduler(
        "yunikorn",
        ("yunikorn.apache.org/queue", "yunikorn.apache.org/app-id"),
        {"yunikorn.apache.org/app-id": "applicationId", "yunikorn.apache.org/queue": "queue"},
    ),
)


def scheduled(reader: Reader, pod_sets: tuple[PodSet, ...]) -> tuple[PodSet, ...]:
    """The pod sets with the scheduler and the labels that KubeRay's operator writes into their pods."""
    labels = reader.mapping("metadata").mapping("labels")
    texts = {key: labels.text(key) for scheduler in BATCH_SCHEDULERS for key in scheduler.copied if key in labels}
    found = [scheduler for scheduler in BATCH_SCHEDULERS if any(texts.get(sign) for sign in scheduler.signs)]
    if not found:
        return pod_sets
    # With the queues of several schedulers, what a template says shows for which one the operator is configured.
    said = {pods.template.scheduler_name for pods in pod_sets}
    scheduler = next((one for one in found if one.name in said), found[0])
    copied = {target: texts[source] for source, target in scheduler.copied.items() if texts.get(source)}
    return tuple(replace(pods, template=_placed_by(pods.template, scheduler.name, copied)) for pods in pod_sets)


def _placed_by(template: PodTemplate, scheduler: str, labels: Mapping[str, str]) -> PodTemplate:
    return replace(template, scheduler_name=scheduler, labels={**template.labels, **labels})


def check_submission(spec: Reader, mode: str, pod_sets: tuple[PodSet, ...]) -> None:
    """Report a RayJob that KubeRay's operator never starts: KAI cannot place a submitter that comes later."""
    if mode == K8S_JOB_MODE and any(pods.template.scheduler_name == KAI for pods in pod_sets):
        problem = "KAI-Scheduler does not support RayJob with K8sJobMode: the submitter pod is created after RayCluster"
        remedy = "write submissionMode: HTTPMode or SidecarMode"
        spec.report.warning(spec.at("submissionMode"), f"{problem} is ready", remedy, "ray-submission-mode")

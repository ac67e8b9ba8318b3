"""The pods of a Volcano Job: their names, labels and annotations (Volcano 1.15 createJobPod).

Volumes of a Volcano Job: PersistentVolumeClaims, existing or created for the job, that all its pods mount.

Volcano 1.15 createJobIOIfNotExist.
"""

from collections.abc import Callable, Mapping
from typing import Any

from msgspec.structs import replace

from gpuconsole.model.cluster import Pod
from gpuconsole.model.job import Job
from gpuconsole.model.pod_template import PodTemplate, PodVolume
from gpuconsole.model.storage import PersistentVolumeClaim
from gpuconsole.scheduling.volcano.jobs import tasks as labels
from gpuconsole.scheduling.volcano.jobs.pod_group import group_name
from gpuconsole.scheduling.volcano.jobs.tasks import JobTask, pod_name, spec_of


class VolumeClaimMissing(Exception):
    """A claim that the job names does not exist: the job waits until it is created."""


def with_claims(
    job: Job, exists: Callable[[str], bool], name_for: Callable[[int], str]
) -> tuple[Job, list[PersistentVolumeClaim]]:
    """The job with a claim name for each volume, and the claims to create.

    `exists` gets `namespace/name`; `name_for` names the claim of the n-th volume.

    Raises:
        VolumeClaimMissing: a claim that the job names does not exist; the message is Volcano's.
    """
    spec, made, volumes = spec_of(job), [], []
    for number, volume in enumerate(spec.volumes):
        if volume.claim:
            if not exists(f"{job.namespace}/{volume.claim}"):
                text = f"pvc {volume.claim} is not found, the job will be in the Pending state until the PVC is created"
                raise VolumeClaimMissing(text)
        else:
            volume = replace(volume, claim=name_for(number))
            if volume.makes:
                made.append(
                    PersistentVolumeClaim(
                        namespace=job.namespace,
                        name=volume.claim,
                        storage_class=volume.storage_class,
                        storage=volume.storage,
                        access_modes=volume.access_modes,
                        volume=volume.volume,
                        job=job.key,
                    )
                )
        volumes.append(volume)
    if tuple(volumes) == spec.volumes:
        return job, made
    return replace(job, volcano=replace(spec, volumes=tuple(volumes))), made


def mounted(job: Job, template: PodTemplate) -> PodTemplate:
    """A pod's template with the job's volumes, each claim once."""
    claims = dict.fromkeys(volume.claim for volume in spec_of(job).volumes if volume.claim)
    added = tuple(PodVolume(name=f"{job.name}-{number}", claim=claim) for number, claim in enumerate(claims))
    return replace(template, volumes=(*template.volumes, *added)) if added else template


_COPIED_NOTES = (labels.PREEMPTABLE, labels.COOLDOWN, labels.REVOCABLE_ZONE)
_COPIED_LABELS = (labels.PREEMPTABLE, labels.COOLDOWN)


def pod_of(job: Job, task: JobTask, index: int, **own: Any) -> Pod:
    """Build a pod of a task; `own` are further fields of the pod.

    Its priority class is the job's if the template names none, and the job's volumes are mounted.
    """
    spec, template = spec_of(job), task.template
    template = replace(template, priority_class=template.priority_class or spec.priority_class)
    template = mounted(job, template)
    return Pod(
        namespace=job.namespace,
        name=pod_name(job.name, task.name, index),
        job=job.key,
        pod_set=task.name,
        index=index,
        labels={**template.labels, **pod_labels(job, task, index)},
        annotations={**template.annotations, **pod_annotations(job, task, index)},
        template=template,
        **own,
    )


def pod_annotations(job: Job, task: JobTask, index: int) -> dict[str, str]:
    """Annotations that Volcano sets on a pod; of the two disruption budgets only jdb-min-available is copied if both
    are set.
    """
    notes = job.annotations
    own = {
        labels.TASK_INDEX: str(index),
        labels.TASK_SPEC: task.name or labels.DEFAULT_TASK,
        labels.GROUP_NAME: group_name(job),
        labels.JOB_NAME: job.name,
        labels.QUEUE_NAME: spec_of(job).queue,
        labels.JOB_VERSION: str(job.volcano_status.version),
        labels.TEMPLATE: f"{job.name}-{task.name}",
        labels.JOB_RETRY_COUNT: str(job.volcano_status.retry_count),
    }
    if task.spec.topology_policy:
        own[labels.NUMA_POLICY] = task.spec.topology_policy
    own |= _copied(notes, _COPIED_NOTES)
    budget = labels.BUDGET_LEAST if labels.BUDGET_LEAST in notes else labels.BUDGET_MOST
    return own | _copied(notes, (budget,))


def pod_labels(job: Job, task: JobTask, index: int) -> dict[str, str]:
    """Labels that Volcano sets on a pod, with the partition id if its task has partitions."""
    own = {
        labels.TASK_INDEX: str(index),
        labels.JOB_NAME: job.name,
        labels.TASK_SPEC: task.name or labels.DEFAULT_TASK,
        labels.JOB_NAMESPACE: job.namespace,
        labels.QUEUE_NAME: spec_of(job).queue,
        **_copied(job.labels, _COPIED_LABELS),
    }
    if task.partition is not None:
        own[labels.PARTITION] = str(int(index / task.partition.size) if task.partition.size > 0 else 0)
    return own


def _copied(source: Mapping[str, str], keys: tuple[str, ...]) -> dict[str, str]:
    return {key: source[key] for key in keys if key in source}

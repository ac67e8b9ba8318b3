"""Volumes of a Volcano Job: PersistentVolumeClaims, existing or created for the job, that all its pods mount.

Volcano 1.15 createJobIOIfNotExist.
"""

from collections.abc import Callable

from msgspec.structs import replace

from gpuconsole.model.job import Job
from gpuconsole.model.pod_template import PodTemplate, PodVolume
from gpuconsole.model.storage import PersistentVolumeClaim
from gpuconsole.scheduling.volcano.jobs.tasks import spec_of


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

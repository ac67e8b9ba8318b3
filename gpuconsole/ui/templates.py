"""Job templates of the submit form, with their default sizes.

To add a template, write one function from `Request` to a manifest in `template_jobs`, and add one line to `TEMPLATES`.
"""

from collections.abc import Callable

import yaml
from msgspec import Struct

from gpuconsole.model.clock import HOUR, MINUTE, Span
from gpuconsole.model.device_units import WHOLE_GPU, DeviceUnit
from gpuconsole.ui.template_jobs import (
    JobTemplateRequest,
    Manifest,
    claim_template,
    claims_devices,
    cron_job,
    deployment,
    inference,
    jobset,
    mpi,
    notebook,
    pytorch,
    ray_cluster,
    rayjob,
    stateful_set,
    sweep,
    train_job,
    training,
    volcano,
    worker_set,
)


class JobTemplate(Struct, frozen=True, kw_only=True):
    """A kind of job that the form offers, with its default sizes."""

    id: str
    title: str
    build: Callable[[JobTemplateRequest], Manifest]
    gpus: int
    pods: int
    duration: Span | None = None
    """None for services, which never end."""
    checkpoint: Span | None = None

    def text(self, request: JobTemplateRequest) -> str:
        """The manifest as YAML, after the ResourceClaimTemplate if pods claim devices."""
        manifests = [claim_template(request)] if claims_devices(request) else []
        return yaml.safe_dump_all([*manifests, self.build(request)], sort_keys=False, allow_unicode=True, width=1000)

    def title_in(self, unit: DeviceUnit) -> str:
        """The title where devices are counted in another unit than whole GPUs."""
        return self.title.replace(WHOLE_GPU.noun, unit.noun)


TEMPLATES: tuple[JobTemplate, ...] = (
    JobTemplate(id="notebook", title="Notebook: 1 GPU", build=notebook, gpus=1, pods=1, duration=4 * HOUR),
    JobTemplate(
        id="training",
        title="Training: one pod of 8 GPUs",
        build=training,
        gpus=8,
        pods=1,
        duration=8 * HOUR,
        checkpoint=30 * MINUTE,
    ),
    JobTemplate(
        id="pytorch",
        title="Distributed: PyTorchJob 4 × 8",
        build=pytorch,
        gpus=8,
        pods=4,
        duration=12 * HOUR,
        checkpoint=HOUR,
    ),
    JobTemplate(
        id="jobset",
        title="Distributed: JobSet 2 × 8",
        build=jobset,
        gpus=8,
        pods=2,
        duration=6 * HOUR,
        checkpoint=HOUR,
    ),
    JobTemplate(id="rayjob", title="Ray: head and 4 workers", build=rayjob, gpus=1, pods=4, duration=3 * HOUR),
    JobTemplate(id="sweep", title="Sweep: 8 pods of 1 GPU", build=sweep, gpus=1, pods=8, duration=HOUR),
    JobTemplate(id="inference", title="Inference: 4 replicas", build=inference, gpus=1, pods=4, duration=24 * HOUR),
    JobTemplate(id="deployment", title="Service: Deployment of 4", build=deployment, gpus=1, pods=4),
    JobTemplate(id="statefulset", title="Service: StatefulSet of 2", build=stateful_set, gpus=1, pods=2),
    JobTemplate(id="workerset", title="Service: leader and workers 1 × 4", build=worker_set, gpus=8, pods=4),
    JobTemplate(id="raycluster", title="Ray: cluster of 4 workers", build=ray_cluster, gpus=1, pods=4),
    JobTemplate(id="mpi", title="Distributed: MPIJob 4 × 8", build=mpi, gpus=8, pods=4, duration=6 * HOUR),
    JobTemplate(id="trainjob", title="Distributed: TrainJob 2 × 8", build=train_job, gpus=8, pods=2, duration=6 * HOUR),
    JobTemplate(id="nightly", title="Nightly: CronJob at 02:00", build=cron_job, gpus=8, pods=1, duration=3 * HOUR),
    JobTemplate(id="volcano", title="Volcano: a gang of 4 × 8", build=volcano, gpus=8, pods=4, duration=6 * HOUR),
)
"""In the order in which the form offers them."""

BY_ID = {template.id: template for template in TEMPLATES}

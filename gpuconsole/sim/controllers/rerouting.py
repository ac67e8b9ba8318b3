"""Rewrites jobs of Kueue's queues for a scheduler that replaces Kueue."""

from msgspec.structs import replace

from gpuconsole.model.clock import Span, parse_span
from gpuconsole.model.job import Job, JobPhase
from gpuconsole.model.jobs.workloads import CHECKPOINT, DURATION
from gpuconsole.model.labels import Toleration
from gpuconsole.model.pod_template import PodTemplate
from gpuconsole.model.queues import ResourceFlavor
from gpuconsole.model.workloads import Workload
from gpuconsole.scheduling.kai.config import QUEUE_LABEL
from gpuconsole.scheduling.volcano.jobs.pod_group import QUEUE_NAME
from gpuconsole.sim.controllers.priorities import workload_priority
from gpuconsole.sim.policy import Substitute
from gpuconsole.sim.world import World

_SCHEDULERS = {Substitute.VOLCANO: "volcano", Substitute.KAI: "kai-scheduler"}


def rerouted(world: World, job: Job) -> Job:
    """The job as written for the scheduler that replaces Kueue; a job without a queue is unchanged."""
    substitute = world.policy.substitute
    if substitute is None or not job.queue or job.volcano is not None:
        return job
    local_queue = world.local_queue(f"{job.namespace}/{job.queue}")
    queue = local_queue.cluster_queue if local_queue is not None else ""
    tolerations = _tolerations(world, queue)
    priority = workload_priority(world, job.workload_priority_class, job.pod_sets)[0]
    own = priority if job.workload_priority_class else None
    parts = tuple(
        replace(part, template=_template(part.template, substitute, queue, own, tolerations), topology=None)
        for part in job.pod_sets
    )
    phase = JobPhase.PENDING if job.phase is JobPhase.SUSPENDED else job.phase
    return replace(job, pod_sets=parts, suspended=False, phase=phase)


def _tolerations(world: World, queue: str) -> tuple[Toleration, ...]:
    """The tolerations that Kueue would add for any of a ClusterQueue's flavors."""
    known = world.cluster_queue(queue)
    names = dict.fromkeys(flavor for flavor, _ in known.quotas()) if known is not None else {}
    flavors = [flavor for name in names if (flavor := world.state.get(ResourceFlavor, name)) is not None]
    return tuple(toleration for flavor in flavors for toleration in flavor.tolerations)


def _template(
    template: PodTemplate,
    substitute: Substitute,
    queue: str,
    priority: int | None,
    tolerations: tuple[Toleration, ...],
) -> PodTemplate:
    labels, annotations = dict(template.labels), dict(template.annotations)
    if substitute is Substitute.KAI and queue:
        labels[QUEUE_LABEL] = queue
    if substitute is Substitute.VOLCANO and queue:
        annotations[QUEUE_NAME] = queue
    return replace(
        template,
        labels=labels,
        annotations=annotations,
        tolerations=(*template.tolerations, *tolerations),
        scheduler_name=_SCHEDULERS.get(substitute, template.scheduler_name),
        priority=template.priority if priority is None else priority,
    )


def job_of_workload(workload: Workload) -> Job:
    """A job equivalent to a Workload without a job."""
    return Job(
        kind="Workload",
        namespace=workload.namespace,
        name=workload.name,
        labels=workload.labels,
        annotations=workload.annotations,
        queue=workload.queue,
        workload_priority_class=workload.priority_class,
        pod_sets=workload.pod_sets,
        duration=_span(workload.annotations.get(DURATION, "")),
        checkpoint_interval=_span(workload.annotations.get(CHECKPOINT, "")),
    )


def _span(text: str) -> Span | None:
    try:
        return parse_span(text) or None
    except ValueError:
        return None

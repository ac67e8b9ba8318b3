"""Arrival of jobs and pods: with a queue name they get a Workload, without one their pods are created at once.

Before that, a TrainJob gets the pods of its runtime (Kubeflow trainer), and a job of Kueue's queues is rewritten for
the scheduler that replaces Kueue, if any (`rewrite_for_substitute`). The functions on CronJobs decide when one creates
a Job (Kubernetes' CronJob controller; the Spark operator's for its kind); `generators` creates it.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from gpuconsole.model.apiserver.jobs.webhooks import DEFAULT_QUEUE
from gpuconsole.model.clock import MINUTE, Span, Time, parse_cron, parse_span
from gpuconsole.model.cluster import Namespace, Pod
from gpuconsole.model.events import HistoryEventKind
from gpuconsole.model.job import (
    CLUSTER_WIDE,
    Concurrency,
    CronRules,
    Job,
    JobPhase,
    MemberRules,
    TrainingRuntime,
    TrainRules,
)
from gpuconsole.model.jobs import applications, workload_of
from gpuconsole.model.jobs.kubeflow import with_runtime_pods
from gpuconsole.model.jobs.workloads import CHECKPOINT, DURATION, GROUPS, QUEUE, without_topology
from gpuconsole.model.labels import NAMESPACE_NAME, Toleration
from gpuconsole.model.pod_template import PodTemplate
from gpuconsole.model.queues import ResourceFlavor
from gpuconsole.model.workloads import Workload
from gpuconsole.scheduling.kai.config import QUEUE_LABEL
from gpuconsole.scheduling.kueue.slices import is_elastic, new_slice
from gpuconsole.scheduling.volcano.jobs.pod_group import QUEUE_NAME
from gpuconsole.sim.controllers import admission_plugins, job_lifecycle, pods, volcano_jobs, workloads
from gpuconsole.sim.controllers.admission_plugins import (
    CARRIED_OUT,
    Refusal,
    pod_priority,
    pod_sets_with_defaults,
    with_defaults,
    workload_priority,
)
from gpuconsole.sim.controllers.pod_specs import job_pods
from gpuconsole.sim.kernel import CronDue, RetryWorkloadCreation
from gpuconsole.sim.policy import Substitute
from gpuconsole.sim.world import RunningGroup, World, running_group_key

_SCHEDULERS = {Substitute.VOLCANO: "volcano", Substitute.KAI: "kai-scheduler"}


def rewrite_for_substitute(world: World, job: Job) -> Job:
    """Rewrite a job that has a queue for the scheduler that replaces Kueue, if any (`SimPolicy.substitute`)."""
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
    """Return a job with the pods and queue of a Workload that has no job, so that it can run without Kueue."""
    return Job(
        kind="Workload",
        namespace=workload.namespace,
        name=workload.name,
        labels=workload.labels,
        annotations=workload.annotations,
        queue=workload.queue,
        workload_priority_class=workload.priority_class,
        pod_sets=workload.pod_sets,
        duration=_parse_annotation_span(workload.annotations.get(DURATION, "")),
        checkpoint_interval=_parse_annotation_span(workload.annotations.get(CHECKPOINT, "")),
    )


def _parse_annotation_span(text: str) -> Span | None:
    try:
        return parse_span(text) or None
    except ValueError:
        return None


_SPARK = "SparkApplication"
MAX_MISSED_RUNS = 10_000
"""Maximum missed times to consider; a schedule that missed more continues from now."""


def set_cron_timer(world: World, job: Job) -> None:
    """Set the timer for a CronJob's next run."""
    if isinstance(job.rules, CronRules) and not job.suspended:
        due = parse_cron(job.rules.schedule).next_in(world.now, job.rules.time_zone)
        if due is not None:
            world.kernel.set_timer(due, CronDue(job.key, job.uid))


def latest_run(job: Job, rules: CronRules, now: Time) -> Time | None:
    """The latest scheduled time of a CronJob that has passed without a Job; None if there is none."""
    since = job.created if rules.last is None else rules.last
    if rules.starting_deadline is not None:
        since = max(since, now - rules.starting_deadline - 1)
    schedule, found = parse_cron(rules.schedule), None
    for _ in range(MAX_MISSED_RUNS):
        due = schedule.next_in(since, rules.time_zone)
        if due is None or due > now:
            return found
        found = since = due
    return now // MINUTE * MINUTE


def skips_missed_runs(rules: CronRules) -> bool:
    """True if a run that becomes due while an earlier one is active is dropped (Spark operator), not started later."""
    return rules.makes == _SPARK


def _run_name(parent: Job, rules: CronRules, scheduled: Time) -> str:
    """Name of a run's Job: with the minute of its time, for Spark applications with the nanosecond."""
    return f"{parent.name}-{scheduled * 1000 if rules.makes == _SPARK else scheduled // MINUTE}"


def job_for_run(parent: Job, rules: CronRules, scheduled: Time, *, uid: str, now: Time) -> Job:
    """Return the Job that a CronJob creates for one scheduled time."""
    return Job(
        kind=rules.makes,
        namespace=parent.namespace,
        name=_run_name(parent, rules, scheduled),
        uid=uid,
        created=now,
        owner=parent.key,
        labels=rules.labels,
        annotations=rules.annotations,
        queue=rules.queue,
        workload_priority_class=rules.priority_class,
        pod_sets=parent.pod_sets,
        rules=rules.batch if rules.makes == "Job" else applications.RULES if rules.makes == _SPARK else None,
        min_available=None if rules.volcano is None else rules.volcano.min_available,
        volcano=rules.volcano,
        duration=parent.duration,
        checkpoint_interval=parent.checkpoint_interval,
        max_execution_time=rules.max_execution_time,
        backoff_limit=parent.backoff_limit,
    )


def surplus_runs(rules: CronRules, children: Sequence[Job]) -> list[Job]:
    """Finished Jobs of a CronJob beyond its history limits, of each phase the oldest first."""
    gone = []
    for phase, kept in ((JobPhase.SUCCEEDED, rules.keep_succeeded), (JobPhase.FAILED, rules.keep_failed)):
        ended = sorted((job for job in children if job.phase is phase), key=lambda job: (job.started, job.key))
        gone += ended[: max(0, len(ended) - kept)]
    return gone


def is_run_held_back(rules: CronRules, active: Sequence[Job]) -> bool:
    """True if an active Job of a CronJob forbids the next one (concurrencyPolicy Forbid)."""
    return rules.concurrency is Concurrency.FORBID and bool(active)


def replaced_runs(rules: CronRules, active: Sequence[Job]) -> Sequence[Job]:
    """Active Jobs of a CronJob that the next one replaces (concurrencyPolicy Replace)."""
    return active if rules.concurrency is Concurrency.REPLACE else ()


def with_skipped_run(job: Job, rules: CronRules, scheduled: Time) -> Job:
    """The CronJob after a scheduled time for which no Job is created."""
    return replace(job, rules=replace(rules, last=scheduled))


def with_created_run(job: Job, rules: CronRules, scheduled: Time) -> Job:
    """The CronJob after it created the Job of this time."""
    return replace(job, rules=replace(rules, last=scheduled), phase=JobPhase.RUNNING)


def with_runtime(world: World, job: Job) -> Job:
    """A TrainJob with the pods of its runtime; any other job is unchanged."""
    runtime = _runtime(world, job, job.rules) if isinstance(job.rules, TrainRules) else None
    return job if runtime is None else with_runtime_pods(job, runtime)


def missing_runtime(world: World, job: Job) -> Refusal:
    """Why a TrainJob cannot be created: its runtime does not exist."""
    rules = job.rules
    if not isinstance(rules, TrainRules) or job.pod_sets or _runtime(world, job, rules) is not None:
        return CARRIED_OUT
    kind = rules.kind[0].lower() + rules.kind[1:]
    value = f"specified {kind} must be created before the TrainJob is created"
    return f"spec.runtimeRef: {rules.runtime} not found: {value}"


def _runtime(world: World, job: Job, rules: TrainRules) -> TrainingRuntime | None:
    key = rules.runtime if rules.kind == CLUSTER_WIDE else f"{job.namespace}/{rules.runtime}"
    found: TrainingRuntime | None = world.state.get(TrainingRuntime, key)
    return found


FORBIDDEN = "Forbidden"
"""The API server's reason where a ResourceQuota refuses an object."""


def create_job(world: World, job: Job) -> None:
    """Create a job; then its Workload if Kueue queues it, else its pods unless it is suspended."""
    job = replace(job, uid=job.uid or world.uid(job.kind, job.key), created=job.created or world.now)
    ensure_namespace(world, job.namespace)
    job = rewrite_for_substitute(world, _in_default_queue(world, with_runtime(world, job)))
    if is_job_creator(world, job):
        _create_job_creator(world, job)
        return
    if is_managed(world, job):
        world.put(replace(job, suspended=True, phase=JobPhase.SUSPENDED))
        create_workload_of_job(world, job, since=job.created)
        return
    world.put(replace(job, phase=JobPhase.SUSPENDED if job.suspended else JobPhase.PENDING))
    world.record_event(
        HistoryEventKind.SUBMITTED, workload=job.key, **world.devices.of_pod_sets(job.namespace, job.pod_sets)
    )
    if not job.suspended:
        start_unmanaged(world, job)


def is_managed(world: World, job: Job) -> bool:
    """True if Kueue queues this job."""
    return world.session is not None and bool(job.queue)


def _in_default_queue(world: World, job: Job) -> Job:
    """Put a job without a queue name into the LocalQueue `default` of its namespace, if it exists (Kueue's webhooks).

    The Jobs of a CronJob are defaulted individually; a job that another job created is in that job's queue.
    """
    queues = world.session is not None or world.policy.substitute is not None
    if not queues or job.queue or job.kind not in GROUPS or job.volcano is not None:
        return job
    if isinstance(job.rules, MemberRules | CronRules):
        return job
    there = world.local_queue(f"{job.namespace}/{DEFAULT_QUEUE}") is not None
    return replace(job, queue=DEFAULT_QUEUE, labels={**job.labels, QUEUE: DEFAULT_QUEUE}) if there else job


def is_job_creator(world: World, job: Job) -> bool:
    """True if the job creates jobs: CronJobs, flows, groups of leaders and workers, queued replicas."""
    return job.makes_jobs or (job.kind == "Deployment" and is_managed(world, job))


def _create_job_creator(world: World, job: Job) -> None:
    world.put(job)
    world.record_event(HistoryEventKind.SUBMITTED, workload=job.key)
    world.creators_to_reconcile[job.key] = None
    set_cron_timer(world, job)


def create_workload_of_job(world: World, job: Job, since: Time = 0) -> None:
    """Create the Workload of a job (Kueue jobframework), with creation time `since` (0: now).

    A service without replicas needs none yet. If a ResourceQuota refuses it, it is tried again later.
    """
    if job.solo and job.endless and not any(part.count for part in job.pod_sets):
        return
    workload = new_workload_of(world, job)
    workload = replace(workload, created=since or workload.created)
    if refusal := admission_plugins.quota_refusal(world, workload):
        # Kueue writes no event of it, only a line of its log ("Handling job with no workload").
        if job.created == world.now:
            world.record_event(HistoryEventKind.PENDING, workload=job.key, reason=FORBIDDEN, message=refusal)
        return
    create_workload(world, new_slice(workload, None) if is_elastic_job(world, job) else workload)


def retry_workload_creation(world: World, timer: RetryWorkloadCreation) -> None:
    """Try again to create the Workload that a ResourceQuota refused, if its job still needs one."""
    job = world.job(timer.job)
    if job is None or job.uid != timer.uid or not job.suspended or not is_managed(world, job):
        return
    if all(workload.owner != job.key for workload in world.state.table("workloads").all()):
        create_workload_of_job(world, job)


def is_elastic_job(world: World, job: Job) -> bool:
    """True for a job that may change its size while it runs (workload slices)."""
    config = world.policy.kueue
    return config is not None and is_elastic(job.annotations, config)


def new_workload_of(world: World, job: Job) -> Workload:
    """The Workload of a job in its current state, with the priority of its class."""
    number, name = workload_priority(world, job.workload_priority_class, job.pod_sets)
    if world.session is not None and not world.session.config.enabled("TopologyAwareScheduling"):
        job = replace(job, pod_sets=without_topology(job.pod_sets))
    return workload_of(job, now=world.now, priority=number, priority_class=name)


def start_unmanaged(world: World, job: Job) -> None:
    """Create the pods of a job without a Workload; those of Volcano Jobs are left to Volcano's controller."""
    if job.volcano is not None:
        volcano_jobs.start_job(world, job)
        return
    job_lifecycle.start_deadline(world, job.key)
    if job.solo:
        pods.create_group(world, RunningGroup(key=job.key, job=job.key, is_independent=True), ())
        return
    made = job_pods(world, job)
    pods.create_group(world, RunningGroup(key=job.key, job=job.key, pods_needed=job.min_available or len(made)), made)


def create_workload(world: World, workload: Workload) -> None:
    """Create a Workload, with or without a job; as a job if another scheduler replaces Kueue."""
    if world.policy.substitute is not None and not workload.owner:
        create_job(world, job_of_workload(workload))
        return
    ensure_namespace(world, workload.namespace)
    uid = workload.uid or world.next_uid(workload.key)
    pod_sets = pod_sets_with_defaults(world, workload.namespace, workload.pod_sets)
    workload = replace(workload, uid=uid, created=workload.created or world.now, pod_sets=pod_sets)
    if not workload.owner and not workload.priority:
        number, name = workload_priority(world, workload.priority_class, workload.pod_sets)
        workload = replace(workload, priority=number, priority_class=name)
    workloads.submit_workload(world, workload)


def create_pod(world: World, pod: Pod) -> None:
    """Create a pod without a job."""
    ensure_namespace(world, pod.namespace)
    pod = replace(
        pod,
        uid=pod.uid or world.uid("Pod", pod.key),
        created=pod.created or world.now,
        priority=pod.priority or pod_priority(world, pod.template),
        template=with_defaults(world, pod.namespace, pod.template),
    )
    world.record_event(
        HistoryEventKind.SUBMITTED, workload=pod.key, priority=pod.priority, **world.devices.requested([pod])
    )
    pods.create_group(world, RunningGroup(key=running_group_key(pod)), (pod,))


def ensure_namespace(world: World, name: str) -> None:
    """Create a namespace that objects only refer to."""
    if world.state.get(Namespace, name) is None:
        world.put(Namespace(name=name, labels={NAMESPACE_NAME: name}, named_only=True))

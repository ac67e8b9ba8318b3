"""Arrival of jobs and pods: with a queue name they get a Workload, without one their pods are created at once."""

from msgspec.structs import replace

from gpuconsole.model.apiserver.jobs.defaulting import DEFAULT_QUEUE
from gpuconsole.model.clock import Time
from gpuconsole.model.cluster import Namespace, Pod
from gpuconsole.model.events import HistoryEventKind
from gpuconsole.model.job import CronRules, Job, JobPhase, MemberRules
from gpuconsole.model.jobs import workload_of
from gpuconsole.model.jobs.workloads import GROUPS, QUEUE, without_topology
from gpuconsole.model.labels import NAMESPACE_NAME
from gpuconsole.model.workloads import Workload
from gpuconsole.scheduling.kueue.slices import is_elastic, prepared
from gpuconsole.sim.controllers import deadlines, pods, quotas, workloads
from gpuconsole.sim.controllers.limits import defaulted, defaulted_sets
from gpuconsole.sim.controllers.making import cron
from gpuconsole.sim.controllers.making.training import with_runtime
from gpuconsole.sim.controllers.priorities import pod_priority, workload_priority
from gpuconsole.sim.controllers.rerouting import job_of_workload, rerouted
from gpuconsole.sim.controllers.specs import job_pods
from gpuconsole.sim.controllers.volcano import actions
from gpuconsole.sim.kernel import StandFor
from gpuconsole.sim.pod_group_state import RunningGroup, running_group_key
from gpuconsole.sim.world import World

FORBIDDEN = "Forbidden"
"""The API server's reason where a ResourceQuota refuses an object."""


def create_job(world: World, job: Job) -> None:
    """Create a job; then its Workload if Kueue queues it, else its pods unless it is suspended."""
    job = replace(job, uid=job.uid or world.uid(job.kind, job.key), created=job.created or world.now)
    ensure_namespace(world, job.namespace)
    job = rerouted(world, _in_default_queue(world, with_runtime(world, job)))
    if makes_jobs(world, job):
        _create_parent(world, job)
        return
    if managed(world, job):
        world.put(replace(job, suspended=True, phase=JobPhase.SUSPENDED))
        stand_for(world, job, since=job.created)
        return
    world.put(replace(job, phase=JobPhase.SUSPENDED if job.suspended else JobPhase.PENDING))
    world.tell(HistoryEventKind.SUBMITTED, workload=job.key, **world.devices.of_pod_sets(job.namespace, job.pod_sets))
    if not job.suspended:
        start_unmanaged(world, job)


def managed(world: World, job: Job) -> bool:
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


def makes_jobs(world: World, job: Job) -> bool:
    """True if the job creates jobs: CronJobs, flows, groups of leaders and workers, queued replicas."""
    return job.makes_jobs or (job.kind == "Deployment" and managed(world, job))


def _create_parent(world: World, job: Job) -> None:
    world.put(job)
    world.tell(HistoryEventKind.SUBMITTED, workload=job.key)
    world.parents[job.key] = None
    cron.arm_cron(world, job)


def stand_for(world: World, job: Job, since: Time = 0) -> None:
    """Create the Workload of a job (Kueue jobframework), with creation time `since` (0: now).

    A service without pods needs none yet. If a ResourceQuota refuses it, it is tried again later.
    """
    if job.solo and job.endless and not any(part.count for part in job.pod_sets):
        return
    workload = workload_for(world, job)
    workload = replace(workload, created=since or workload.created)
    if refusal := quotas.quota_refusal(world, workload):
        # Kueue writes no event of it, only a line of its log ("Handling job with no workload").
        if job.created == world.now:
            world.tell(HistoryEventKind.PENDING, workload=job.key, reason=FORBIDDEN, message=refusal)
        return
    create_workload(world, prepared(workload, None) if elastic(world, job) else workload)


def stand_again(world: World, timer: StandFor) -> None:
    """Retry to create a Workload that a ResourceQuota refused, if its job still needs one."""
    job = world.job(timer.job)
    if job is None or job.uid != timer.uid or not job.suspended or not managed(world, job):
        return
    if all(workload.owner != job.key for workload in world.state.table("workloads").all()):
        stand_for(world, job)


def elastic(world: World, job: Job) -> bool:
    """True for a job that may change its size while it runs (workload slices)."""
    config = world.policy.kueue
    return config is not None and is_elastic(job.annotations, config)


def workload_for(world: World, job: Job) -> Workload:
    """The Workload of a job in its current state, with the priority of its class."""
    number, name = workload_priority(world, job.workload_priority_class, job.pod_sets)
    if world.session is not None and not world.session.config.enabled("TopologyAwareScheduling"):
        job = replace(job, pod_sets=without_topology(job.pod_sets))
    return workload_of(job, now=world.now, priority=number, priority_class=name)


def start_unmanaged(world: World, job: Job) -> None:
    """Create the pods of a job without a Workload; those of Volcano Jobs are left to Volcano's controller."""
    if job.volcano is not None:
        actions.start(world, job)
        return
    deadlines.begin_deadline(world, job.key)
    if job.solo:
        pods.form(world, RunningGroup(key=job.key, job=job.key, solo=True), ())
        return
    made = job_pods(world, job)
    pods.form(world, RunningGroup(key=job.key, job=job.key, need=job.min_available or len(made)), made)


def create_workload(world: World, workload: Workload) -> None:
    """Create a Workload, with or without a job; as a job if another scheduler replaces Kueue."""
    if world.policy.substitute is not None and not workload.owner:
        create_job(world, job_of_workload(workload))
        return
    ensure_namespace(world, workload.namespace)
    uid = workload.uid or world.next_uid(workload.key)
    pod_sets = defaulted_sets(world, workload.namespace, workload.pod_sets)
    workload = replace(workload, uid=uid, created=workload.created or world.now, pod_sets=pod_sets)
    if not workload.owner and not workload.priority:
        number, name = workload_priority(world, workload.priority_class, workload.pod_sets)
        workload = replace(workload, priority=number, priority_class=name)
    workloads.submit(world, workload)


def create_pod(world: World, pod: Pod) -> None:
    """Create a pod without a job."""
    ensure_namespace(world, pod.namespace)
    pod = replace(
        pod,
        uid=pod.uid or world.uid("Pod", pod.key),
        created=pod.created or world.now,
        priority=pod.priority or pod_priority(world, pod.template),
        template=defaulted(world, pod.namespace, pod.template),
    )
    world.tell(HistoryEventKind.SUBMITTED, workload=pod.key, priority=pod.priority, **world.devices.requested([pod]))
    pods.form(world, RunningGroup(key=running_group_key(pod)), (pod,))


def ensure_namespace(world: World, name: str) -> None:
    """Create a namespace that objects only refer to."""
    if world.state.get(Namespace, name) is None:
        world.put(Namespace(name=name, labels={NAMESPACE_NAME: name}, named_only=True))

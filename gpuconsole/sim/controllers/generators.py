"""Jobs that create jobs: queued Deployments, LeaderWorkerSets, CronJobs, and Volcano's JobFlows.

The children are replicas that Kueue admits one by one, groups of a leader and its workers, the Job of each scheduled
time, and the Jobs of a flow's templates in the order of their dependencies (Volcano 1.15 controllers/jobflow).
"""

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from gpuconsole.model.clock import Time
from gpuconsole.model.events import HistoryEventKind
from gpuconsole.model.job import CronRules, FlowRules, GroupRules, Job, JobPhase, MemberRules, TemplateRules
from gpuconsole.model.jobs.workloads import LWS_GROUP, POD, workload_of
from gpuconsole.model.labels import NO_LABELS
from gpuconsole.model.pod_template import PodSet
from gpuconsole.model.workloads import Workload
from gpuconsole.sim.controllers import admission_plugins, jobs, pods, workloads
from gpuconsole.sim.kernel import CronDue
from gpuconsole.sim.world import World

BY_TEMPLATE, BY_FLOW = "volcano.sh/createdByJobTemplate", "volcano.sh/createdByJobFlow"
"""Labels and annotations of the created Jobs."""


def ready_flow_jobs(world: World, flow: Job, rules: FlowRules, children: Sequence[Job]) -> Iterator[Job]:
    """The Jobs that a JobFlow creates now: those missing whose template exists and whose dependencies are complete."""
    phases = {child.name: child.phase for child in children}
    for one in rules.flows:
        needs = (phases.get(f"{flow.name}-{target}") for target in one.targets)
        if f"{flow.name}-{one.template}" not in phases and all(phase is JobPhase.SUCCEEDED for phase in needs):
            template = world.job(f"JobTemplate/{flow.namespace}/{one.template}")
            if template is not None and isinstance(template.rules, TemplateRules):
                yield _flow_job(world, flow, template, template.rules)


def _flow_job(world: World, flow: Job, template: Job, rules: TemplateRules) -> Job:
    name = f"{flow.name}-{template.name}"
    marks = {BY_TEMPLATE: f"{flow.namespace}.{template.name}", BY_FLOW: f"{flow.namespace}.{flow.name}"}
    return Job(
        kind="VolcanoJob",
        namespace=flow.namespace,
        name=name,
        uid=world.uid("VolcanoJob", f"{flow.namespace}/{name}"),
        created=world.now,
        owner=flow.key,
        labels=marks,
        annotations=marks,
        pod_sets=template.pod_sets,
        min_available=rules.volcano.min_available,
        volcano=rules.volcano,
        duration=template.duration,
        checkpoint_interval=template.checkpoint_interval,
        backoff_limit=template.backoff_limit,
    )


def flow_with_phase(flow: Job, rules: FlowRules, children: Sequence[Job], now: Time) -> Job:
    """The JobFlow with its phase: succeeded if all of its Jobs have, failed if one has, running once one runs."""
    phases = [child.phase for child in children]
    if JobPhase.FAILED in phases:
        return replace(flow, phase=JobPhase.FAILED, finished=now)
    if phases and phases.count(JobPhase.SUCCEEDED) == len(rules.flows):
        return replace(flow, phase=JobPhase.SUCCEEDED, finished=now)
    if JobPhase.RUNNING in phases or JobPhase.SUCCEEDED in phases:
        return replace(flow, phase=JobPhase.RUNNING, started=flow.started or now)
    return flow


LWS_NAME = "leaderworkerset.sigs.k8s.io/name"


def reconcile_children(world: World, key: str) -> None:
    """Create the jobs that a job is to have now as its children, or delete them after it."""
    job = world.job(key)
    children = [child for name in world.children.get(key, {}) if (child := world.job(name)) is not None]
    if job is None:
        for child in children:
            delete_child(world, child)
        world.children.pop(key, None)
    elif isinstance(job.rules, CronRules):
        _create_due_run(world, job, job.rules, children)
    elif isinstance(job.rules, FlowRules):
        _advance_flow(world, job, job.rules, children)
    elif isinstance(job.rules, TemplateRules):
        # Flows created before this template may wait for it.
        for other in world.state.table("jobs").all():
            if isinstance(other.rules, FlowRules) and other.namespace == job.namespace and not other.ended:
                world.creators_to_reconcile[other.key] = None
    elif jobs.is_job_creator(world, job):
        # The StatefulSets that a live LeaderWorkerSet created are not the children that stand for its groups here.
        members = [child for child in children if isinstance(child.rules, MemberRules)]
        if members or not _has_pods(world, job):
            _adjust_replicas(world, job, members)


def delete_child(world: World, child: Job) -> None:
    """Delete a child, with its Workload and its pods."""
    workload = f"{child.namespace}/{workload_of(child, now=world.now).name}"
    if world.workload(workload) is not None:
        workloads.delete_owner(world, Workload, workload)
    else:
        workloads.delete_owner(world, Job, child.key)


def is_replica(job: Job | None) -> bool:
    """True for a replica of a Deployment, which is replaced when it is lost."""
    return job is not None and job.kind == POD and isinstance(job.rules, MemberRules)


def run_cron_job(world: World, timer: CronDue) -> None:
    """Run a CronJob whose time has come, if it still exists and is not suspended."""
    job = world.job(timer.job)
    if job is not None and job.uid == timer.uid and not job.suspended:
        world.creators_to_reconcile[job.key] = None
        jobs.set_cron_timer(world, job)


def _create_due_run(world: World, job: Job, rules: CronRules, children: list[Job]) -> None:
    """Create the Job that is due, and delete those beyond the history limit."""
    for old in jobs.surplus_runs(rules, children):
        delete_child(world, old)
    active = [child for child in children if not child.ended]
    scheduled = None if job.suspended else jobs.latest_run(job, rules, world.now)
    if scheduled is None:
        return
    if jobs.is_run_held_back(rules, active):
        if jobs.skips_missed_runs(rules):
            world.put(jobs.with_skipped_run(job, rules, scheduled))
        return
    for earlier in jobs.replaced_runs(rules, active):
        delete_child(world, earlier)
    name = f"{rules.makes}/{job.namespace}/{job.name}-{scheduled}"
    made = jobs.job_for_run(job, rules, scheduled, uid=world.uid(rules.makes, name), now=world.now)
    # If a quota refuses it, its time stays open, and is tried again when another Job of the CronJob ends or is deleted.
    if _is_refused_by_quota(world, job, made):
        return
    world.put(jobs.with_created_run(job, rules, scheduled))
    jobs.create_job(world, made)


def _is_refused_by_quota(world: World, parent: Job, child: Job) -> bool:
    """True if a ResourceQuota refuses a job to be created; its creator records an event."""
    refusal = admission_plugins.quota_refusal(world, child)
    if refusal:
        message = f"Error creating job: {refusal}"
        world.record_event(HistoryEventKind.PENDING, workload=parent.key, reason=pods.FAILED_CREATE, message=message)
    return bool(refusal)


def _advance_flow(world: World, job: Job, rules: FlowRules, children: list[Job]) -> None:
    """Create the Jobs of a flow that are due, and update its status."""
    if job.ended:
        return
    for child in ready_flow_jobs(world, job, rules, children):
        if not _is_refused_by_quota(world, job, child):
            jobs.create_job(world, child)
            children.append(child)
    current = flow_with_phase(job, rules, children, world.now)
    if current != job:
        world.put(current)
    if current.phase is JobPhase.SUCCEEDED and rules.deletes:
        for child in children:
            delete_child(world, child)


def _has_pods(world: World, job: Job) -> bool:
    """True for a job whose pods exist already, although it is unknown which of its children they belong to."""
    return any(pod.job == job.key or pod.labels.get(LWS_NAME) == job.name for pod in world.state.table("pods").all())


def _adjust_replicas(world: World, job: Job, children: list[Job]) -> None:
    """Create missing replicas or groups, and delete surplus ones, the last ones first."""
    wanted = {f"{_kind(job)}/{job.namespace}/{job.name}-{index}": index for index in range(_replicas(job))}
    for child in reversed(children):
        if child.key not in wanted:
            delete_child(world, child)
    there = {child.key for child in children}
    for key, index in wanted.items():
        if key not in there:
            jobs.create_job(world, _new_member(world, job, index))
    running = any(child.phase is JobPhase.RUNNING for child in children)
    phase = JobPhase.RUNNING if running else JobPhase.PENDING
    current = world.job(job.key)
    if current is not None and current.phase is not phase:
        started = current.started or (world.now if running else 0)
        world.put(replace(current, phase=phase, started=started))


def _replicas(job: Job) -> int:
    return job.rules.replicas if isinstance(job.rules, GroupRules) else sum(part.count for part in job.pod_sets)


def _kind(job: Job) -> str:
    return LWS_GROUP if isinstance(job.rules, GroupRules) else POD


def _new_member(world: World, job: Job, index: int) -> Job:
    name, kind = f"{job.name}-{index}", _kind(job)
    grouped = isinstance(job.rules, GroupRules)
    template = job.pod_sets[0].template
    return Job(
        kind=kind,
        namespace=job.namespace,
        name=name,
        uid=job.uid if grouped else world.uid(kind, f"{job.namespace}/{name}"),
        created=world.now,
        owner=job.key,
        labels=NO_LABELS if grouped else template.labels,
        annotations=NO_LABELS if grouped else template.annotations,
        queue=job.queue,
        workload_priority_class=job.workload_priority_class,
        pod_sets=_group_pod_sets(job, index) if grouped else (replace(job.pod_sets[0], count=1),),
        rules=MemberRules(index=index, recreate=isinstance(job.rules, GroupRules) and job.rules.recreate),
        max_execution_time=job.max_execution_time,
    )


def _group_pod_sets(job: Job, index: int) -> tuple[PodSet, ...]:
    """The pod sets of one group: `NAME-GROUP` is the leader, `NAME-GROUP-1` and later ones are workers."""
    leader, parts = f"{job.name}-{index}", []
    first = 0
    for part in job.pod_sets:
        numbers = range(first, first + part.count)
        parts.append(replace(part, pod_names=tuple(f"{leader}-{n}" if n else leader for n in numbers)))
        first += part.count
    return tuple(parts)

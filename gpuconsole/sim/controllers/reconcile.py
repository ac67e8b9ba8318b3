"""Reconciles what changed: running groups above all, which start work, recreate missing pods, and release quota.

`reconcile_all` is the loop over everything that is due at one moment, `reconcile_batch_job` handles jobs whose pods
work independently. A pod that fails by itself, or is rejected by the kubelet, counts as a failure of its job, which
recreates it after a backoff.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from gpuconsole.model.clock import MINUTE, SECOND, Span, Time
from gpuconsole.model.cluster import Pod, PodPhase
from gpuconsole.model.cooperative import Steps
from gpuconsole.model.events import HistoryEventKind
from gpuconsole.model.gpus.sharing import UNEXPECTED, may_refuse, refusal
from gpuconsole.model.job import BatchRules, Job, JobPhase, MemberRules, ReplicaRules
from gpuconsole.model.jobs.batch import count_finished, count_pieces, next_pieces
from gpuconsole.model.volcano import VolcanoPhase
from gpuconsole.model.workloads import Workload
from gpuconsole.scheduling.kueue.apply_decisions import queued_since
from gpuconsole.scheduling.kueue.workload_controller import PODS_READY
from gpuconsole.scheduling.volcano.jobs.states import request_of_job
from gpuconsole.sim.controllers import (
    admission_plugins,
    eviction,
    generators,
    job_lifecycle,
    nodes,
    pod_specs,
    pods,
    volcano_jobs,
    work,
    workload_controller,
    workloads,
)
from gpuconsole.sim.controllers.pod_specs import job_pods, workload_pods
from gpuconsole.sim.kernel import RecreatePods, ReleaseQuota
from gpuconsole.sim.world import RunningGroup, World, running_group_key


def reconcile_batch_job(world: World, group: RunningGroup, workload: Workload | None, job: Job) -> None:
    """Reconcile a job whose pods work independently: create pods, update its status, finish it."""
    present = [pod for pod in pods.pods_of(world, group) if not pod.done]
    rules = job.rules
    if isinstance(rules, BatchRules):
        verdict = work.job_ending(job, rules, parallelism_limit(job, workload), len(present))
        if verdict is not None:
            if not verdict.succeeded or _is_counted(world, group):
                workloads.end_job(world, group, verdict)
            return
    if world.now >= group.recreate_after:
        group = _create_due_pods(world, group, workload, job, present)
    if group.with_started_containers and group.start is None:
        _start_job(world, group, workload)
    _update_pods_ready(world, group, workload, job)


def _is_counted(world: World, group: RunningGroup) -> bool:
    """True once the Job controller has counted the last succeeded pod; else a timer for that is set."""
    if world.policy.latencies is None or (group.completes_at is not None and group.completes_at <= world.now):
        return True
    if group.completes_at is None:
        await_completion(world, group, world.now)
    return False


def await_completion(world: World, group: RunningGroup, ended: Time) -> None:
    """Set the timer of the Job controller's next count of a group's pods, the last of which succeeded at `ended`."""
    at = completion_time(world, group, ended)
    world.groups[group.key] = replace(group, completes_at=at)
    world.kernel.set_timer(at, RecreatePods(group.key))


def completion_time(world: World, group: RunningGroup, ended: Time) -> Time:
    """When Kueue releases the quota of a group of pods, the last of which succeeded at `ended`; with latencies only."""
    return world.draw_due_time(ended, "workload_reconcile", of=(group.key, "completion"), least=JOB_SYNC_PERIOD)


def parallelism_limit(job: Job, workload: Workload | None) -> int:
    """The most pods of a job that may run at once: those that Kueue admitted, else the job's parallelism."""
    if workload is not None and workload.admission is not None:
        return sum(part.count for part in workload.admission.pod_sets)
    return sum(part.count for part in job.pod_sets)


def _create_due_pods(
    world: World, group: RunningGroup, workload: Workload | None, job: Job, present: Sequence[Pod]
) -> RunningGroup:
    """Create the pods that are due; existing ones continue."""
    wanted = _pods_due(world, workload, job, present)
    if not wanted and not group.missing:
        return group
    for pod in wanted:
        old = world.pod(pod.key)
        if old is not None and old.done and old.job == pod.job:
            world.drop(Pod, pod.key)
    kept = [pod for pod in pods.pods_of(world, group) if not pod.done]
    due = [pods.with_free_name(world, pod) for pod in wanted]
    made = due[: len(due) - pods.create_pods(world, group.key, due)]
    world.put_group(
        replace(
            world.groups[group.key],
            pods=tuple(pod.key for pod in (*kept, *made)),
            running=sum(bool(pod.node) and not pod.deleted for pod in kept),
            starting=sum(bool(pod.node) and not pod.deleted and not pod.started for pod in kept),
            terminating=sum(bool(pod.deleted) for pod in kept),
            missing=0,
        )
    )
    return world.groups[group.key]


def _pods_due(world: World, workload: Workload | None, job: Job, present: Sequence[Pod]) -> list[Pod]:
    if isinstance(job.rules, BatchRules):
        active = {pod.index for pod in present}
        pieces = next_pieces(job, job.rules, parallelism_limit(job, workload), active)
        return list(pod_specs.pods_for(world, job, workload, pieces)) if pieces else []
    there = {(pod.pod_set, pod.index) for pod in present}
    wanted = pod_specs.pods_for(world, job, workload)
    if isinstance(job.rules, ReplicaRules) and job.rules.ordered:
        return _next_in_order(wanted, there, present)
    return [pod for pod in wanted if (pod.pod_set, pod.index) not in there]


def _next_in_order(wanted: Sequence[Pod], there: set[tuple[str, int]], present: Sequence[Pod]) -> list[Pod]:
    """The first missing pod, if all before it run (a StatefulSet creates them in order)."""
    running = {(pod.pod_set, pod.index) for pod in present if pod.started and not pod.deleted}
    for pod in wanted:
        if (pod.pod_set, pod.index) not in there:
            return [pod]
        if (pod.pod_set, pod.index) not in running:
            return []
    return []


def _start_job(world: World, group: RunningGroup, workload: Workload | None) -> None:
    """Start the job when its first pods run."""
    world.groups[group.key] = replace(group, start=world.now)
    job_lifecycle.set_phase(world, group.job, JobPhase.RUNNING)
    members = [pod for pod in pods.pods_of(world, group) if pod.started and not pod.done]
    world.record_event(
        HistoryEventKind.STARTED,
        workload=group.workload or group.job,
        queue=workload.cluster_queue if workload is not None else "",
        node=members[0].node if len(members) == 1 else "",
        **world.devices.held(members),
        priority=workload.priority if workload is not None else members[0].priority,
        waited=world.now - queued_since(workload) if workload is not None else 0,
    )


def _update_pods_ready(world: World, group: RunningGroup, workload: Workload | None, job: Job) -> None:
    """Set PodsReady when as many pods run, or succeeded, as were admitted."""
    if workload is None or workload.is_true(PODS_READY) or not group.with_started_containers:
        return
    done = (
        count_finished(job, count_pieces(job.rules, parallelism_limit(job, workload)))
        if isinstance(job.rules, BatchRules)
        else 0
    )
    if group.with_started_containers + done >= parallelism_limit(job, workload):
        world.put(workloads.with_pods_ready(workload, world.now))


JOB_SYNC_PERIOD: Span = SECOND
"""Time for which the Job controller collects changes of pods before it counts them (job_controller.go:
syncJobBatchPeriod)."""
_FIRST_BACKOFF = 10 * SECOND
_LONGEST_BACKOFF = 6 * MINUTE


def reconcile_all(world: World) -> Steps[None]:
    """Handle the nodes, admission checks and running groups that have changed, until nothing changes any more."""
    while (
        world.groups_to_reconcile
        or world.workloads_with_checks_due
        or world.nodes_to_examine
        or world.families_to_reconcile
        or world.volcano_changes
        or world.volcano_requests
        or world.creators_to_reconcile
        or world.quotas_to_recount
    ):
        if world.volcano_changes or world.volcano_requests:
            volcano_jobs.run_step(world)
            continue
        for queue, reconcile in (
            (world.nodes_to_examine, nodes.reconcile_node),
            (world.workloads_with_checks_due, workload_controller.reconcile_checks),
            (world.families_to_reconcile, workload_controller.reconcile_workload_variants),
            (world.creators_to_reconcile, generators.reconcile_children),
        ):
            if queue:
                reconcile(world, _pop_first(queue))
                break
        else:
            if not world.groups_to_reconcile:
                admission_plugins.recount_quotas(world)
                continue
            group = world.groups.get(_pop_first(world.groups_to_reconcile))
            if group is not None:
                _reconcile_group(world, group)
                yield


def _pop_first(queue: dict[str, None]) -> str:
    key = next(iter(queue))
    del queue[key]
    return key


def recreation_backoff(failures: int) -> Span:
    """Time before a job recreates a failed pod (Kubernetes' Job controller: 10 s, doubled, to 6 min)."""
    return min(_LONGEST_BACKOFF, _FIRST_BACKOFF << min(failures - 1, 10))


def _reconcile_group(world: World, group: RunningGroup) -> None:
    workload = world.workload(group.workload) if group.workload else None
    job = world.job(group.job) if group.job else None
    if _is_orphaned(group, workload, job):
        if not group.existing:
            pods.delete_group(world, group)
    elif job is not None and job.volcano is not None and workload is None:
        _reconcile_volcano_group(world, group, job)
    elif workload is not None and workload.is_true("Evicted"):
        if not group.existing:
            pods.delete_group(world, group)
        eviction.release_when_stopped(world, group, workload)
    elif _wants_no_pods(workload, job):
        if not group.existing:
            pods.delete_group(world, group)
    elif group.is_independent and job is not None:
        reconcile_batch_job(world, group, workload, job)
    elif group.missing and group.refused_since is None and _delete_lost_replica(world, job):
        pass
    elif (
        group.missing
        and group.refused_since is None
        and job is not None
        and _is_recreated_as_whole(job)
        and group.existing
    ):
        pods.delete_pods(world, pods.pods_of(world, group), "GroupRecreated")
    elif job is not None and job.failures > job.backoff_limit and not job.endless:
        _fail_over_backoff_limit(world, group)
    elif group.missing and world.now >= group.recreate_after:
        _recreate_missing(world, group, workload, job)
    elif group.start is None and group.with_started_containers >= group.pods_needed and not group.terminating:
        _begin_work(world, group, workload)
    elif workload is not None and group.start is not None and group.with_started_containers >= group.pods_needed:
        _all_ready(world, workload)


def release_quota_when_due(world: World, timer: ReleaseQuota) -> None:
    """Release the quota of a workload whose Release timer is due.

    A lost replica of a Deployment is deleted instead, as the Deployment creates a new one.
    """
    workload = world.workload(timer.workload)
    if workload is None or not eviction.is_released_by(workload, timer):
        return
    if not _delete_lost_replica(world, world.job(workload.owner) if workload.owner else None):
        eviction.release_quota(world, workload.key)


def _wants_no_pods(workload: Workload | None, job: Job | None) -> bool:
    """True for a job that wants no pods now: it is suspended, or its Workload is on hold."""
    if workload is None:
        return job is not None and job.suspended and job.volcano is None
    return not workload.reserved


def _delete_lost_replica(world: World, job: Job | None) -> bool:
    """Delete a lost replica of a Deployment with its Workload: another pod replaces it."""
    if job is None or not generators.is_replica(job):
        return False
    generators.delete_child(world, job)
    return True


def _is_recreated_as_whole(job: Job) -> bool:
    """True for a leader-worker group that is recreated as a whole."""
    return isinstance(job.rules, MemberRules) and job.rules.recreate


def _reconcile_volcano_group(world: World, group: RunningGroup, job: Job) -> None:
    """Volcano's controller creates and deletes the pods; their work continues while enough of them run."""
    group = volcano_jobs.recount_pods(world, job, group)
    if (
        group.start is None
        and group.with_started_containers >= group.pods_needed
        and job.volcano_status.phase is VolcanoPhase.RUNNING
    ):
        _begin_work(world, group, None)


def _all_ready(world: World, workload: Workload) -> None:
    """Mark the Workload ready when the pods added by a scale-up run, too."""
    if not workload.is_true(PODS_READY):
        world.put(workloads.with_pods_ready(workload, world.now))


def _is_orphaned(group: RunningGroup, workload: Workload | None, job: Job | None) -> bool:
    """True if its owner is deleted or finished, or for a missing pod without a controller."""
    if group.workload:
        return workload is None or workload.finished
    if group.job:
        return job is None or job.ended
    return bool(group.missing)


def _fail_over_backoff_limit(world: World, group: RunningGroup) -> None:
    if group.existing:
        pods.delete_pods(world, pods.pods_of(world, group), "BackoffLimitExceeded")
        group = world.groups[group.key]
    if not group.existing:
        workloads.fail_over_backoff_limit(world, group)


def _recreate_missing(world: World, group: RunningGroup, workload: Workload | None, job: Job | None) -> None:
    wanted: tuple[Pod, ...] = ()
    if workload is not None:
        wanted = workload_pods(world, workload)
    elif job is not None:
        wanted = job_pods(world, job)
    due = []
    for key, pod in zip(group.pods, wanted, strict=False):
        old = world.pod(key)
        if old is None or (old.done and not (group.ended and old.phase is PodPhase.SUCCEEDED)):
            if old is not None:
                world.drop(Pod, key)
            due.append(replace(pod, name=key.partition("/")[2]))
    refused = pods.create_pods(world, group.key, due)
    # Surplus pods (of a scaled-down job) are not missed either.
    missing = group.missing - len(due) + refused if due else 0
    world.put_group(replace(world.groups[group.key], missing=missing, is_reported=False))


def _begin_work(world: World, group: RunningGroup, workload: Workload | None) -> None:
    work.begin_work(world, group)
    waited = 0
    if workload is not None:
        waited = world.now - queued_since(workload)
        world.put(workloads.with_pods_ready(workload, world.now))
    job_lifecycle.set_phase(world, group.job, JobPhase.RUNNING)
    members = pods.pods_of(world, group)
    world.record_event(
        HistoryEventKind.STARTED,
        workload=group.workload or group.job or members[0].key,
        queue=workload.cluster_queue if workload is not None else "",
        node=members[0].node if len(members) == 1 else "",
        **world.devices.held(members),
        # A job without wanted pods (replicas: 0) has begun, too.
        priority=workload.priority if workload is not None else next((pod.priority for pod in members), 0),
        waited=waited,
    )


def fail_pod(world: World, pod: Pod) -> None:
    """Let a pod fail as if its container exited with an error."""
    _fail_pod(world, pod, "Error", f"pod {pod.name} failed", exit_code=1)


def admit_pod(world: World, key: str) -> None:
    """The kubelet admits a pod; it rejects one that requests more than one shared device."""
    pod = world.pod(key)
    node = None if pod is None else world.node(pod.node)
    if pod is not None and node is not None and may_refuse(node.labels, node.annotations):
        message = refusal(pod.template.requests, node.labels, node.annotations)
        if message:
            _fail_pod(world, pod, UNEXPECTED, message)


def _fail_pod(world: World, pod: Pod, reason: str, message: str, exit_code: int | None = None) -> None:
    nodes.fail_pod(world, pod, reason, message)
    job = world.job(pod.job) if pod.job else None
    if job is not None and job.volcano is not None:
        # What follows is up to the job's policies.
        return
    key = running_group_key(pod)
    group = world.groups.get(key)
    if group is not None and group.is_independent:
        verdict = work.count_failure(world, pod, exit_code)
        if verdict is not None:
            workloads.end_job(world, group, verdict)
            return
    elif job is not None and not job.endless:
        world.put(replace(job, failures=job.failures + 1))
    counted = world.job(pod.job) if pod.job else None
    failures = max(1, counted.failures if counted is not None else 1)
    group = world.groups.get(key)
    if group is not None:
        delay = recreation_backoff(failures)
        world.put_group(replace(group, recreate_after=world.now + delay))
        world.kernel.set_timer(world.now + delay, RecreatePods(key))


def recreate_failed_pods(world: World, timer: RecreatePods) -> None:
    """Recreate failed pods when the backoff is over."""
    group = world.groups.get(timer.group)
    job = world.job(group.job) if group is not None and group.job else None
    if job is not None and job.volcano is not None:
        volcano_jobs.queue_request(world, request_of_job(job))
    if group is not None:
        world.groups_to_reconcile[timer.group] = None

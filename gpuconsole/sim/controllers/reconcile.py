"""Reconciles what changed: running groups above all, which start work, recreate missing pods, and release quota.

`settle` is the loop over everything that is due at one moment, `reconcile_batch_job` handles jobs whose pods work
independently. A pod that fails by itself, or is rejected by the kubelet, counts as a failure of its job, which
recreates it after a backoff.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from gpuconsole.model.clock import MINUTE, SECOND, Span
from gpuconsole.model.cluster import Pod, PodPhase
from gpuconsole.model.cooperative import Steps
from gpuconsole.model.events import HistoryEventKind
from gpuconsole.model.gpus.sharing import UNEXPECTED, may_refuse, refusal
from gpuconsole.model.job import BatchRules, Job, JobPhase, MemberRules, ReplicaRules
from gpuconsole.model.volcano import VolcanoPhase
from gpuconsole.model.workloads import Workload
from gpuconsole.scheduling.kueue.apply_decisions import queued_since
from gpuconsole.scheduling.kueue.workload_controller import PODS_READY
from gpuconsole.scheduling.volcano.jobs.requests import request_of_job
from gpuconsole.sim.controllers import (
    admission_checks,
    admission_plugins,
    batch_job,
    completion,
    eviction,
    generators,
    job_lifecycle,
    nodes,
    pod_specs,
    pods,
    tas,
    volcano_jobs,
    work,
    workload_controller,
    workloads,
)
from gpuconsole.sim.controllers.pod_specs import job_pods, workload_pods
from gpuconsole.sim.kernel import Release, Restart
from gpuconsole.sim.world import RunningGroup, World, running_group_key


def reconcile_batch_job(world: World, group: RunningGroup, workload: Workload | None, job: Job) -> None:
    """Reconcile a job whose pods work independently: create pods, update its status, finish it."""
    present = [pod for pod in pods.pods_of(world, group) if not pod.done]
    rules = job.rules
    if isinstance(rules, BatchRules):
        verdict = batch_job.verdict(job, rules, parallelism_limit(job, workload), len(present))
        if verdict is not None:
            completion.conclude(world, group, verdict)
            return
    if world.now >= group.hold:
        group = _fill(world, group, workload, job, present)
    if group.started and group.start is None:
        _begin_job(world, group, workload)
    _note_ready(world, group, workload, job)


def parallelism_limit(job: Job, workload: Workload | None) -> int:
    """The most pods of a job that may run at once: those that Kueue admitted, else the job's parallelism."""
    if workload is not None and workload.admission is not None:
        return sum(part.count for part in workload.admission.pod_sets)
    return sum(part.count for part in job.pod_sets)


def _fill(
    world: World, group: RunningGroup, workload: Workload | None, job: Job, present: Sequence[Pod]
) -> RunningGroup:
    """Create the pods that are due; existing ones continue."""
    wanted = _due(world, workload, job, present)
    if not wanted and not group.missing:
        return group
    for pod in wanted:
        old = world.pod(pod.key)
        if old is not None and old.done and old.job == pod.job:
            world.drop(Pod, pod.key)
    kept = [pod for pod in pods.pods_of(world, group) if not pod.done]
    due = [pods.with_free_name(world, pod) for pod in wanted]
    made = due[: len(due) - pods.create(world, group.key, due)]
    world.put_group(
        replace(
            world.groups[group.key],
            pods=tuple(pod.key for pod in (*kept, *made)),
            running=sum(bool(pod.node) and not pod.deleted for pod in kept),
            starting=sum(bool(pod.node) and not pod.deleted and not pod.started for pod in kept),
            leaving=sum(bool(pod.deleted) for pod in kept),
            missing=0,
        )
    )
    return world.groups[group.key]


def _due(world: World, workload: Workload | None, job: Job, present: Sequence[Pod]) -> list[Pod]:
    if isinstance(job.rules, BatchRules):
        active = {pod.index for pod in present}
        pieces = batch_job.next_pieces(job, job.rules, parallelism_limit(job, workload), active)
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


def _begin_job(world: World, group: RunningGroup, workload: Workload | None) -> None:
    """Start the job when its first pods run."""
    world.groups[group.key] = replace(group, start=world.now)
    job_lifecycle.mark_phase(world, group.job, JobPhase.RUNNING)
    members = [pod for pod in pods.pods_of(world, group) if pod.started and not pod.done]
    world.tell(
        HistoryEventKind.STARTED,
        workload=group.workload or group.job,
        queue=workload.cluster_queue if workload is not None else "",
        node=members[0].node if len(members) == 1 else "",
        **world.devices.held(members),
        priority=workload.priority if workload is not None else members[0].priority,
        waited=world.now - queued_since(workload) if workload is not None else 0,
    )


def _note_ready(world: World, group: RunningGroup, workload: Workload | None, job: Job) -> None:
    """Set PodsReady when as many pods run, or succeeded, as were admitted."""
    if workload is None or workload.is_true(PODS_READY) or not group.started:
        return
    done = (
        batch_job.finished(job, batch_job.pieces(job.rules, parallelism_limit(job, workload)))
        if isinstance(job.rules, BatchRules)
        else 0
    )
    if group.started + done >= parallelism_limit(job, workload):
        world.put(workloads.with_pods_ready(workload, world.now))


_FIRST_BACKOFF = 10 * SECOND
_LONGEST_BACKOFF = 6 * MINUTE


def settle(world: World) -> Steps[None]:
    """Handle the nodes, admission checks and running groups that have changed, until nothing changes any more."""
    while (
        world.dirty or world.unchecked or world.suspects or world.families or world.changes or world.requests
        or world.parents or world.uncounted
    ):  # fmt: skip
        if world.changes or world.requests:
            volcano_jobs.proceed(world)
            continue
        if world.suspects:
            name = next(iter(world.suspects))
            del world.suspects[name]
            tas.look(world, name)
            continue
        if world.unchecked:
            key = next(iter(world.unchecked))
            del world.unchecked[key]
            admission_checks.reconcile_checks(world, key)
            continue
        if world.families:
            key = next(iter(world.families))
            del world.families[key]
            workload_controller.reconcile_family(world, key)
            continue
        if world.parents:
            key = next(iter(world.parents))
            del world.parents[key]
            generators.reconcile_children(world, key)
            continue
        if not world.dirty:
            admission_plugins.recount_quotas(world)
            continue
        key = next(iter(world.dirty))
        del world.dirty[key]
        group = world.groups.get(key)
        if group is not None:
            _reconcile(world, group)
            yield


def backoff(failures: int) -> Span:
    """Time before a job recreates a failed pod (Kubernetes' Job controller: 10 s, doubled, to 6 min)."""
    return min(_LONGEST_BACKOFF, _FIRST_BACKOFF << min(failures - 1, 10))


def _reconcile(world: World, group: RunningGroup) -> None:
    workload = world.workload(group.workload) if group.workload else None
    job = world.job(group.job) if group.job else None
    if _orphaned(group, workload, job):
        if not group.present:
            pods.disband(world, group)
    elif job is not None and job.volcano is not None and workload is None:
        _look_at_volcano(world, group, job)
    elif workload is not None and workload.is_true("Evicted"):
        if not group.present:
            pods.disband(world, group)
        eviction.release_when_stopped(world, group, workload)
    elif _is_halted(workload, job):
        if not group.present:
            pods.disband(world, group)
    elif group.solo and job is not None:
        reconcile_batch_job(world, group, workload, job)
    elif group.missing and group.refused_since is None and _replaced(world, job):
        pass
    elif group.missing and group.refused_since is None and job is not None and _recreates(job) and group.present:
        pods.remove(world, pods.pods_of(world, group), "GroupRecreated")
    elif job is not None and job.failures > job.backoff_limit and not job.endless:
        _give_up(world, group)
    elif group.missing and world.now >= group.hold:
        _make_again(world, group, workload, job)
    elif group.start is None and group.started >= group.need and not group.leaving:
        _begin(world, group, workload)
    elif workload is not None and group.start is not None and group.started >= group.need:
        _all_ready(world, workload)


def released(world: World, timer: Release) -> None:
    """Release the quota of a workload whose Release timer is due.

    A lost replica of a Deployment is deleted instead, as the Deployment creates a new one.
    """
    workload = world.workload(timer.workload)
    if workload is None or not eviction.is_released_by(workload, timer):
        return
    if not _replaced(world, world.job(workload.owner) if workload.owner else None):
        eviction.release(world, workload.key)


def _is_halted(workload: Workload | None, job: Job | None) -> bool:
    """True for a job that wants no pods now: it is suspended, or its Workload is on hold."""
    if workload is None:
        return job is not None and job.suspended and job.volcano is None
    return not workload.reserved


def _replaced(world: World, job: Job | None) -> bool:
    """Delete a lost replica of a Deployment with its Workload: another pod replaces it."""
    if job is None or not generators.is_replica(job):
        return False
    generators.delete_child(world, job)
    return True


def _recreates(job: Job) -> bool:
    """True for a leader-worker group that is recreated as a whole."""
    return isinstance(job.rules, MemberRules) and job.rules.recreate


def _look_at_volcano(world: World, group: RunningGroup, job: Job) -> None:
    """Volcano's controller creates and deletes the pods; their work continues while enough of them run."""
    group = volcano_jobs.recount_pods(world, job, group)
    if group.start is None and group.started >= group.need and job.volcano_status.phase is VolcanoPhase.RUNNING:
        _begin(world, group, None)


def _all_ready(world: World, workload: Workload) -> None:
    """Mark the Workload ready when the pods added by a scale-up run, too."""
    if not workload.is_true(PODS_READY):
        world.put(workloads.with_pods_ready(workload, world.now))


def _orphaned(group: RunningGroup, workload: Workload | None, job: Job | None) -> bool:
    """True if its owner is deleted or finished, or for a missing pod without a controller."""
    if group.workload:
        return workload is None or workload.finished
    if group.job:
        return job is None or job.ended
    return bool(group.missing)


def _give_up(world: World, group: RunningGroup) -> None:
    if group.present:
        pods.remove(world, pods.pods_of(world, group), "BackoffLimitExceeded")
        group = world.groups[group.key]
    if not group.present:
        completion.give_up(world, group)


def _make_again(world: World, group: RunningGroup, workload: Workload | None, job: Job | None) -> None:
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
    refused = pods.create(world, group.key, due)
    # Surplus pods (of a scaled-down job) are not missed either.
    missing = group.missing - len(due) + refused if due else 0
    world.put_group(replace(world.groups[group.key], missing=missing, is_reported=False))


def _begin(world: World, group: RunningGroup, workload: Workload | None) -> None:
    work.begin(world, group)
    waited = 0
    if workload is not None:
        waited = world.now - queued_since(workload)
        world.put(workloads.with_pods_ready(workload, world.now))
    job_lifecycle.mark_phase(world, group.job, JobPhase.RUNNING)
    members = pods.pods_of(world, group)
    world.tell(
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
    _fail(world, pod, "Error", f"pod {pod.name} failed", exit_code=1)


def admit_pod(world: World, key: str) -> None:
    """The kubelet admits a pod; it rejects one that requests more than one shared device."""
    pod = world.pod(key)
    node = None if pod is None else world.node(pod.node)
    if pod is not None and node is not None and may_refuse(node.labels, node.annotations):
        message = refusal(pod.template.requests, node.labels, node.annotations)
        if message:
            _fail(world, pod, UNEXPECTED, message)


def _fail(world: World, pod: Pod, reason: str, message: str, exit_code: int | None = None) -> None:
    nodes.fail_pod(world, pod, reason, message)
    job = world.job(pod.job) if pod.job else None
    if job is not None and job.volcano is not None:
        # What follows is up to the job's policies.
        return
    key = running_group_key(pod)
    group = world.groups.get(key)
    if group is not None and group.solo:
        verdict = work.count_failure(world, pod, exit_code)
        if verdict is not None:
            completion.conclude(world, group, verdict)
            return
    elif job is not None and not job.endless:
        world.put(replace(job, failures=job.failures + 1))
    counted = world.job(pod.job) if pod.job else None
    failures = max(1, counted.failures if counted is not None else 1)
    group = world.groups.get(key)
    if group is not None:
        delay = backoff(failures)
        world.put_group(replace(group, hold=world.now + delay))
        world.kernel.at(world.now + delay, Restart(key))


def restart_pods(world: World, timer: Restart) -> None:
    """Recreate failed pods when the backoff is over."""
    group = world.groups.get(timer.group)
    job = world.job(group.job) if group is not None and group.job else None
    if job is not None and job.volcano is not None:
        volcano_jobs.ask(world, request_of_job(job))
    if group is not None:
        world.dirty[timer.group] = None

"""Reconciles a job whose pods work independently: creates pods, updates its status, finishes it."""

from collections.abc import Sequence

from msgspec.structs import replace

from gpuconsole.model.cluster import Pod
from gpuconsole.model.events import HistoryEventKind
from gpuconsole.model.job import BatchRules, Job, JobPhase, ReplicaRules
from gpuconsole.model.workloads import Workload
from gpuconsole.scheduling.kueue.apply_decisions import queued_since
from gpuconsole.scheduling.kueue.workload_controller import PODS_READY
from gpuconsole.sim.controllers import completion, jobphases, pods, queue_conditions, specs
from gpuconsole.sim.controllers.solo import progress
from gpuconsole.sim.pod_group_state import RunningGroup
from gpuconsole.sim.world import World


def reconcile_batch_job(world: World, group: RunningGroup, workload: Workload | None, job: Job) -> None:
    """Reconcile the job of a running group."""
    present = [pod for pod in pods.pods_of(world, group) if not pod.done]
    rules = job.rules
    if isinstance(rules, BatchRules):
        verdict = progress.verdict(job, rules, parallelism_limit(job, workload), len(present))
        if verdict is not None:
            completion.conclude(world, group, verdict)
            return
    if world.now >= group.hold:
        group = _fill(world, group, workload, job, present)
    if group.started and group.start is None:
        _begin_job(world, group, workload)
    _note_ready(world, group, workload, job)


def parallelism_limit(job: Job, workload: Workload | None) -> int:
    """The most pods that may run at once: those admitted, else the job's parallelism."""
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
        pieces = progress.next_pieces(job, job.rules, parallelism_limit(job, workload), active)
        return list(specs.pods_for(world, job, workload, pieces)) if pieces else []
    there = {(pod.pod_set, pod.index) for pod in present}
    wanted = specs.pods_for(world, job, workload)
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
    jobphases.mark_phase(world, group.job, JobPhase.RUNNING)
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
        progress.finished(job, progress.pieces(job.rules, parallelism_limit(job, workload)))
        if isinstance(job.rules, BatchRules)
        else 0
    )
    if group.started + done >= parallelism_limit(job, workload):
        world.put(queue_conditions.with_pods_ready(workload, world.now))

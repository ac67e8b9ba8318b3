"""MultiKueue in the simulation: the manager dispatches workloads to worker clusters and mirrors their status.

The workers are separate simulations on the manager's clock. A workload's copy there is a Workload without a job that
runs as long as the manager's job; the manager creates no pods for it.
"""

from collections.abc import Iterator

from msgspec.structs import replace

from gpuconsole.model.clock import MILLISECOND, Span, Time
from gpuconsole.model.commands import Command, Delete, SetActive, Submit
from gpuconsole.model.events import HistoryEventKind
from gpuconsole.model.job import JobPhase
from gpuconsole.model.jobs.workloads import CHECKPOINT, DURATION
from gpuconsole.model.queues import AdmissionCheck, MultiKueueCluster, MultiKueueConfig
from gpuconsole.model.workloads import CheckState, Workload
from gpuconsole.scheduling.kueue import conditions
from gpuconsole.scheduling.kueue.admission_checks import (
    EVICTED_ON_MANAGER,
    MULTIKUEUE_CONTROLLER,
    ClusterNomination,
    MultiKueueActions,
    MultiKueueGroup,
    next_multikueue_actions,
    nominate_all,
    nominate_incrementally,
)
from gpuconsole.scheduling.kueue.apply_decisions import queued_since
from gpuconsole.scheduling.kueue.conditions import with_check
from gpuconsole.scheduling.kueue.config import DEFAULT, MultiKueueSettings
from gpuconsole.sim.controllers import eviction, job_lifecycle, workloads
from gpuconsole.sim.controllers.admission_plugins import CARRIED_OUT, NoChange, Refusal
from gpuconsole.sim.kernel import SyncWorkerClusters
from gpuconsole.sim.run_times import random_for
from gpuconsole.sim.world import Dispatch, World

ORIGIN = "kueue.x-k8s.io/multikueue-origin"


def sync_worker_clusters(world: World) -> bool:
    """Advance all worker clusters to now, and the dispatch of every workload by one step; True if anything changed."""
    for member in world.members.values():
        member.cluster.advance(world.now)
    moved = False
    for key in list(world.dispatches):
        moved |= _step_dispatch(world, key)
    return moved


def check_of(world: World, workload: Workload) -> CheckState | None:
    """The workload's MultiKueue check, if it has one and worker clusters exist."""
    if not world.members:
        return None
    return next((check for check in workload.checks if _is_multikueue(world, check.name)), None)


def _is_multikueue(world: World, name: str) -> bool:
    known: AdmissionCheck | None = world.state.get(AdmissionCheck, name)
    return known is not None and known.controller == MULTIKUEUE_CONTROLLER


def forward_command(world: World, name: str, command: Command) -> Refusal:
    """Carry out a command in a worker cluster, even if the manager cannot reach it."""
    member = world.members.get(name)
    if member is None:
        return _unknown_cluster(world, name)
    member.cluster.advance(world.now)
    member.cluster.submit(command)
    return CARRIED_OUT


def set_disconnected(world: World, name: str, disconnected: bool) -> Refusal:
    """Disconnect a worker cluster (`disconnected`) or reconnect it; a disconnected one continues on its own."""
    member = world.members.get(name)
    if member is None:
        return _unknown_cluster(world, name)
    if (member.disconnected_since is not None) == disconnected:
        return NoChange(f"worker cluster {name} is {'lost' if disconnected else 'connected'} already")
    world.members[name] = replace(member, disconnected_since=world.now if disconnected else None)
    known: MultiKueueCluster | None = world.state.get(MultiKueueCluster, name)
    if known is not None:
        world.put(replace(known, active=not disconnected))
    return CARRIED_OUT


def _unknown_cluster(world: World, name: str) -> Refusal:
    return f"there is no worker cluster {name}; there are: {', '.join(world.members) or 'none'}"


def _step_dispatch(world: World, key: str) -> bool:
    dispatch, local = world.dispatches[key], world.workload(key)
    check = check_of(world, local) if local is not None else None
    if local is None or check is None:
        return _delete_copies(world, key, dispatch.clusters_with_copy)
    group = _multikueue_group(world, local, check, dispatch)
    actions = next_multikueue_actions(group, world.now, _settings(world).worker_lost_timeout)
    if actions.reconcile_at is not None:
        world.kernel.set_timer(actions.reconcile_at, SyncWorkerClusters())
    moved = _delete_copies(world, key, actions.delete_copies) or _apply_actions(world, local, actions)
    if actions.nominate:
        moved |= _nominate_clusters(world, local, check)
    return _mirror_status(world, key) or moved


def _multikueue_group(world: World, local: Workload, check: CheckState, dispatch: Dispatch) -> MultiKueueGroup:
    names = dict.fromkeys((*_worker_clusters(world, check), *dispatch.clusters_with_copy))
    members = {name: world.members[name] for name in names if name in world.members}
    return MultiKueueGroup(
        local=local,
        check=check,
        copies={name: m.cluster.workload(local.key) for name, m in members.items() if m.disconnected_since is None},
        unreachable={name: m.disconnected_since for name, m in members.items() if m.disconnected_since is not None},
    )


def _worker_clusters(world: World, check: CheckState) -> Iterator[str]:
    """The worker clusters of a check, in the order of its config."""
    known: AdmissionCheck | None = world.state.get(AdmissionCheck, check.name)
    name = known.parameters.rpartition("/")[2] if known is not None else ""
    config: MultiKueueConfig | None = world.state.get(MultiKueueConfig, name)
    yield from (cluster for cluster in (config.clusters if config is not None else ()) if cluster in world.members)


def _settings(world: World) -> MultiKueueSettings:
    return (world.policy.kueue or DEFAULT).multi_kueue


def _apply_actions(world: World, local: Workload, actions: MultiKueueActions) -> bool:
    if actions.finish is not None:
        job_lifecycle.set_phase(
            world, local.owner, JobPhase.FAILED if actions.finish[0] == "Failed" else JobPhase.SUCCEEDED
        )
        workloads.finish_workload(world, local, *actions.finish)
        return True
    if actions.check is not None:
        answered = replace(
            local,
            checks=with_check(local.checks, replace(actions.check, since=world.now), world.now),
            cluster=actions.cluster or local.cluster,
            nominated_clusters=() if actions.cluster else local.nominated_clusters,
        )
        world.put(answered)
        world.workloads_with_checks_due[local.key] = None
        if actions.cluster:
            world.dispatches[local.key] = replace(world.dispatches[local.key], admitted_cluster=actions.cluster)
        return True
    if actions.deactivate is not None:
        name, why = actions.deactivate
        copy = world.members[name].cluster.workload(local.key)
        if copy is not None and copy.active:
            world.members[name].cluster.submit(SetActive(local.key, False, EVICTED_ON_MANAGER, why))
            return True
    return False


def _delete_copies(world: World, key: str, names: tuple[str, ...]) -> bool:
    """Delete copies; those on disconnected clusters are deleted after reconnection."""
    dispatch = world.dispatches[key]
    gone = [name for name in names if name in world.members and world.members[name].disconnected_since is None]
    for name in gone:
        if world.members[name].cluster.workload(key) is not None:
            world.members[name].cluster.submit(Delete("workloads", key))
    left = tuple(name for name in dispatch.clusters_with_copy if name not in gone)
    local = world.workload(key)
    if not left and (local is None or local.finished or not local.reserved):
        del world.dispatches[key]
    else:
        world.dispatches[key] = replace(dispatch, clusters_with_copy=left)
    return bool(gone)


def _nominate_clusters(world: World, local: Workload, check: CheckState) -> bool:
    dispatch = world.dispatches[local.key]
    nomination = _nomination(world, local, tuple(_worker_clusters(world, check)), dispatch.round_started)
    if nomination.next_round is not None and nomination.started != dispatch.round_started:
        world.kernel.set_timer(nomination.next_round, SyncWorkerClusters())
    reached = [name for name in nomination.clusters if world.members[name].disconnected_since is None]
    new = [name for name in reached if world.members[name].cluster.workload(local.key) is None]
    for name in new:
        world.members[name].cluster.submit(Submit((_worker_copy(world, local),)))
    sent = tuple(dict.fromkeys((*dispatch.clusters_with_copy, *new)))
    world.dispatches[local.key] = replace(dispatch, round_started=nomination.started, clusters_with_copy=sent)
    if nomination.clusters != local.nominated_clusters:
        world.put(replace(local, nominated_clusters=nomination.clusters))
    return bool(new)


def _nomination(world: World, local: Workload, remotes: tuple[str, ...], started: Time | None) -> ClusterNomination:
    settings, kueue = _settings(world), world.policy.kueue or DEFAULT
    if not settings.incremental:
        return nominate_all(remotes)
    return nominate_incrementally(
        local.nominated_clusters,
        remotes,
        started=started,
        now=world.now,
        step_size=settings.step_size,
        config_order=kueue.enabled("MultiKueueIncrementalDispatcherRespectConfigOrder"),
    )


def _worker_copy(world: World, local: Workload) -> Workload:
    """The workload as created in a worker: its spec and the duration of its work."""
    job = world.job(local.owner) if local.owner else None
    notes = dict(local.annotations)
    if job is not None:
        drawn = world.policy.durations.sample(random_for(world.seed, "duration", local.key))
        notes[DURATION] = _exact_duration(job.duration if job.duration is not None else drawn)
        if job.checkpoint_interval is not None:
            notes[CHECKPOINT] = _exact_duration(job.checkpoint_interval)
    return Workload(
        namespace=local.namespace,
        name=local.name,
        labels={**local.labels, ORIGIN: "multikueue"},
        annotations=notes,
        queue=local.queue,
        priority=local.priority,
        priority_class=local.priority_class,
        pod_sets=local.pod_sets,
        max_execution_time=local.max_execution_time,
    )


def _exact_duration(span: Span) -> str:
    return f"{span // MILLISECOND}ms"


def _mirror_status(world: World, key: str) -> bool:
    """Copy the status of the remote workload that runs into the local one."""
    local, dispatch = world.workload(key), world.dispatches.get(key)
    member = world.members.get(dispatch.admitted_cluster) if dispatch is not None else None
    if local is None or member is None or local.finished or not local.reserved:
        return False
    copy = member.cluster.workload(key)
    if local.is_true(conditions.EVICTED):
        if member.disconnected_since is not None or copy is None or not copy.reserved:
            eviction.release_quota(world, key)
            world.dispatches[key] = replace(world.dispatches[key], admitted_cluster="")
            return True
        return False
    if not local.admitted or member.disconnected_since is not None:
        return False
    if copy is None or copy.is_true("PodsReady") == local.is_true("PodsReady"):
        return False
    if not copy.is_true("PodsReady"):
        waiting = workloads.with_pods_not_ready(local, world.now)
        world.put(waiting)
        workloads.set_requeue_timer(world, waiting)
        return True
    world.put(workloads.with_pods_ready(local, world.now))
    job_lifecycle.set_phase(world, local.owner, JobPhase.RUNNING)
    world.record_event(
        HistoryEventKind.STARTED,
        workload=key,
        queue=local.cluster_queue,
        priority=local.priority,
        waited=world.now - queued_since(local),
        **world.devices.of_workload(local),
    )
    return True

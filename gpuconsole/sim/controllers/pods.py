"""Lifecycle of pods: created, bound, terminating, deleted, failed. Keeps the counts of their running groups.

It also creates the PodGroups that pods name: those of a Workload (scheduling.k8s.io/v1alpha1), and that of a RayCluster
or RayJob (KubeRay). kube-scheduler 1.35 has no such objects: there each pod group of a Workload, and each replica of
it, is a gang of its own.
"""

from collections.abc import Collection, Iterable, Sequence

from msgspec.structs import replace

from gpuconsole.model.clock import Span
from gpuconsole.model.cluster import Pod, PodPhase, SchedulingWorkload
from gpuconsole.model.events import Bind, HistoryEventKind
from gpuconsole.model.job import Job
from gpuconsole.model.labels import NO_LABELS
from gpuconsole.model.resources import EMPTY
from gpuconsole.model.text import MAX_NAME
from gpuconsole.model.volcano import PodGroup
from gpuconsole.scheduling.queue_names import group_key, own_queue, queue_by
from gpuconsole.sim.controllers import admission_plugins
from gpuconsole.sim.kernel import PodsGone
from gpuconsole.sim.world import RunningGroup, World, first_group_phase, is_member, running_group_key


def ensure_pod_groups(world: World, pods: Iterable[Pod]) -> None:
    """Create the PodGroups of pods whose Workload exists, and those of Ray's jobs and clusters."""
    for pod in pods:
        _ensure_ray_group(world, pod)
        reference = pod.template.scheduling_workload
        key = f"{pod.namespace}/{pod.template.scheduling_group}"
        if not reference or world.state.get(PodGroup, key) is not None:
            continue
        name, _, group = reference.partition("/")
        workload = world.state.get(SchedulingWorkload, f"{pod.namespace}/{name}")
        if workload is None or group not in workload.groups:
            continue
        world.put(
            PodGroup(
                namespace=pod.namespace,
                name=pod.template.scheduling_group,
                uid=world.uid("PodGroup", key),
                created=world.now,
                min_member=workload.groups[group],
                policy="gang",
            )
        )


def _ensure_ray_group(world: World, pod: Pod) -> None:
    """Create the PodGroup of a RayCluster or RayJob before its first pod (KubeRay DoBatchSchedulingOnSubmission)."""
    job = world.job(pod.job)
    if job is None or job.ray_group is None or world.state.get(PodGroup, f"{pod.namespace}/{pod.gang}") is not None:
        return
    group = job.ray_group
    world.put(
        PodGroup(
            namespace=pod.namespace,
            name=pod.gang,
            uid=world.uid("PodGroup", f"{pod.namespace}/{pod.gang}"),
            created=world.now,
            annotations=job.annotations if group.for_volcano else NO_LABELS,
            min_member=group.min_member,
            min_resources=group.min_resources,
            queue=group.queue,
            priority_class=group.priority_class,
            network_topology=group.network_topology,
            phase=first_group_phase(world.policy),
        )
    )


def release_ray_group(world: World, job: Job) -> None:
    """Set the PodGroup of a finished RayJob to zero members (KubeRay CleanupOnCompletion)."""
    if job.ray_group is not None and job.ray_group.for_volcano:
        group = world.state.get(PodGroup, f"{job.namespace}/{job.ray_group.name_for(job.name)}")
        if group is not None:
            world.put(replace(group, min_member=0, min_resources=EMPTY))


def ensure_waiting_pod_groups(world: World, workload: SchedulingWorkload) -> None:
    """Create the PodGroups of the pods that waited for this Workload."""
    ensure_pod_groups(world, [pod for pod in world.state.table("pods").all() if pod.namespace == workload.namespace])


FAILED_CREATE = "FailedCreate"
"""The reason of the event that a controller writes of a pod that it could not create."""


def create_group(world: World, group: RunningGroup, pods: Sequence[Pod]) -> None:
    """Create the pods of a new running group, and store the group."""
    named = [with_free_name(world, pod) for pod in pods]
    world.put_group(replace(group, pods=tuple(pod.key for pod in named)))
    refused = create_pods(world, group.key, named)
    if refused:
        world.put_group(replace(world.groups[group.key], missing=refused))


def create_pods(world: World, key: str, pods: Sequence[Pod]) -> int:
    """Create pods of a running group as far as ResourceQuotas allow; returns how many the API server refuses.

    The job's controller retries when the quotas allow more.
    """
    admitted, message = admission_plugins.accept_pods(world, pods)
    ensure_pod_groups(world, admitted)
    for pod in admitted:
        world.put(pod)
    group = world.groups[key]
    noted = admission_plugins.note_refusal(world, group, len(pods) - len(admitted), message)
    if noted is not group:
        world.put_group(noted)
    if message and message != group.refusal:
        world.record_event(
            HistoryEventKind.PENDING,
            workload=group.workload or group.job,
            queue=queue_of(world, pods[0]),
            reason=FAILED_CREATE,
            message=f"Error creating: {message}",
            priority=pods[0].priority,
            **world.devices.template(pods[0].namespace, pods[0].template, len(pods) - len(admitted)),
        )
    return len(pods) - len(admitted)


def create_missing(world: World, group: RunningGroup, wanted: Sequence[Pod]) -> None:
    """Create those `wanted` pods of a running group that do not exist; the existing ones continue to work."""
    present: dict[tuple[str, int], str] = {}
    for pod in pods_of(world, group):
        if pod.done:
            world.drop(Pod, pod.key)
        else:
            present[pod.pod_set, pod.index] = pod.key
    made = [with_free_name(world, pod) for pod in wanted if (pod.pod_set, pod.index) not in present]
    present |= {(pod.pod_set, pod.index): pod.key for pod in made}
    keys = tuple(present[pod.pod_set, pod.index] for pod in wanted)
    world.put_group(replace(group, pods_needed=len(wanted), pods=keys, missing=0, ended=0, is_reported=False))
    refused = create_pods(world, group.key, [replace(pod, gang_size=len(made) if pod.gang else 0) for pod in made])
    if refused:
        world.put_group(replace(world.groups[group.key], missing=refused))


def delete_surplus(world: World, group: RunningGroup, surplus: Collection[str], reason: str) -> None:
    """Delete surplus pods (keys) of a running group, which no longer counts them."""
    pods = [pod for key in surplus if (pod := world.pod(key)) is not None and not pod.done]
    kept = tuple(key for key in group.pods if key not in surplus)
    on_nodes = [pod for pod in pods if pod.node and not pod.deleted]
    running = group.running - len(on_nodes)
    starting = group.starting - sum(not pod.started for pod in on_nodes)
    leaving = group.terminating - sum(bool(pod.deleted) for pod in pods)
    missing = group.missing - (len(surplus) - len(pods))
    counts = {"running": running, "starting": starting, "terminating": leaving, "missing": missing}
    world.put_group(replace(group, pods_needed=len(kept), pods=kept, **counts))
    for pod in pods:
        # Detached from its group, which then does not miss it when it is deleted.
        alone = replace(pod, workload="", job="", gang="", gang_size=0)
        on_node = bool(pod.node)
        starting = on_node and not pod.started
        world.groups[running_group_key(alone)] = RunningGroup(
            key=running_group_key(alone), pods=(pod.key,), running=int(on_node), starting=int(starting)
        )
        world.put(alone)
        delete_pods(world, [alone], reason)


def with_free_name(world: World, pod: Pod) -> Pod:
    """The pod, renamed if its name is taken.

    Two owners can generate the same pod name; the second gets a part of its uid, as Kubernetes does.
    """
    if world.pod(pod.key) is None:
        return pod
    return replace(pod, name=f"{pod.name[: MAX_NAME - 6]}-{pod.uid[:5]}")


def bind_pod(world: World, decision: Bind) -> None:
    """Bind a pod to its node and GPUs. It runs at once if containers take no time to start."""
    pod = world.pod(decision.pod)
    if pod is None or pod.node:
        return
    now, starts = world.now, world.policy.latencies is None
    bound = replace(
        pod,
        node=decision.node,
        gpus=decision.gpus,
        slices=decision.slices,
        phase=PodPhase.RUNNING if starts else PodPhase.PENDING,
        bound=now,
        started=now if starts else 0,
        nominated_node="",
        reason="",
        message="",
    )
    world.put(bound)
    group = world.groups[running_group_key(pod)]
    world.put_group(replace(group, running=group.running + 1, starting=group.starting + (not starts)))
    world.record_event(
        HistoryEventKind.POD_BOUND,
        workload=history_subject(pod),
        pod=pod.key,
        queue=queue_of(world, pod),
        node=decision.node,
        priority=pod.priority,
        waited=now - pod.created,
        **world.devices.held([bound]),
    )


def start_containers(world: World, pod: Pod) -> Pod:
    """Mark the containers of a bound pod as started."""
    started = replace(pod, phase=PodPhase.RUNNING, started=world.now)
    world.put(started)
    group = world.groups[running_group_key(pod)]
    world.put_group(replace(group, starting=group.starting - 1))
    return started


def delete_pods(world: World, pods: Iterable[Pod], reason: str, message: str = "", *, after: Span = 0) -> None:
    """Delete pods; with `after`, those with a node are only marked as deleted after this time (controller latency).

    A pod without a node is gone at once; a bound one occupies its node until it has terminated.
    """
    leaving: dict[int, list[tuple[str, str]]] = {}
    for pod in pods:
        if pod.deleted:
            continue
        if not pod.node or pod.done:
            delete_immediately(world, pod)
            continue
        grace = after + termination_time(world, pod)
        if grace <= 0:
            delete_immediately(world, pod)
            continue
        world.put(replace(pod, deleted=world.now + after, reason=reason, message=message))
        group = world.groups[running_group_key(pod)]
        starting = group.starting - (not pod.started)
        world.put_group(replace(group, running=group.running - 1, starting=starting, terminating=group.terminating + 1))
        leaving.setdefault(grace, []).append((pod.key, pod.uid))
    for grace, gone in leaving.items():
        world.kernel.set_timer(world.now + grace, PodsGone(tuple(gone)))


def termination_time(world: World, pod: Pod) -> Span:
    """How long a bound pod takes to terminate: its grace period, if its containers have started.

    With latencies at least their start-up time: otherwise a scheduler that evicts what it has just bound would stop the
    clock.
    """
    return max(pod.template.grace_period if pod.started else 0, world.draw_latency("start", of=(pod.key, pod.uid)))


def delete_terminated(world: World, timer: PodsGone) -> None:
    """Delete pods whose grace period is over."""
    for key, uid in timer.pods:
        pod = world.pod(key)
        if pod is not None and pod.uid == uid and pod.deleted:
            delete_immediately(world, pod)


def fail_pod(world: World, pod: Pod, reason: str, message: str) -> None:
    """Fail a pod: its GPUs are free at once, and its running group counts it as missing."""
    _count_as_missing(world, pod)
    world.put(replace(pod, phase=PodPhase.FAILED, finished=world.now, reason=reason, message=message))


def complete_pod(world: World, pod: Pod) -> None:
    """Complete a pod while others of its running group continue."""
    _count_as_missing(world, pod)
    world.put(replace(pod, phase=PodPhase.SUCCEEDED, finished=world.now, reason="", message=""))


def complete_group(world: World, group: RunningGroup) -> None:
    """Complete all pods of a running group and delete the group."""
    for pod in pods_of(world, group):
        if pod.deleted or not pod.node:
            delete_immediately(world, pod)
        elif pod.phase is not PodPhase.SUCCEEDED:
            world.put(replace(pod, phase=PodPhase.SUCCEEDED, finished=world.now, reason="", message=""))
    delete_group(world, group)


def detach_terminating_group(world: World, group: RunningGroup) -> None:
    """Delete the record of a running group whose pods still terminate when its job restarts; they leave their gang."""
    for pod in pods_of(world, group):
        if pod.gang:
            world.put(replace(pod, gang="", gang_size=0))
    delete_group(world, group)


def delete_group(world: World, group: RunningGroup) -> None:
    """Delete the record of a running group; its pods stay."""
    world.groups.pop(group.key, None)
    world.groups_to_reconcile.pop(group.key, None)


def pods_of(world: World, group: RunningGroup) -> list[Pod]:
    """The existing pods of a running group, including failed ones."""
    return [pod for pod in map(world.pod, group.pods) if pod is not None]


def history_subject(pod: Pod) -> str:
    """The key under which the history reports a pod: its Workload's, or its own without a Workload."""
    return pod.workload or pod.key


def queue_of(world: World, pod: Pod) -> str:
    """The ClusterQueue whose quota a pod uses; without a Workload, its queue of Volcano or KAI, if any."""
    if pod.workload:
        workload = world.workload(pod.workload)
        return workload.cluster_queue if workload is not None else ""
    kai, volcano, queues = (world.state.table(name).get for name in ("kai_pod_groups", "pod_groups", "volcano_queues"))
    return queue_by(group_key(pod), own_queue(pod), kai, volcano, queues)


def delete_immediately(world: World, pod: Pod) -> None:
    """Delete a pod immediately, without a grace period."""
    if not pod.done:
        _count_as_missing(world, pod)
    world.drop(Pod, pod.key)


def _count_as_missing(world: World, pod: Pod) -> None:
    """Count a pod of a running group as missing."""
    group = world.groups.get(running_group_key(pod))
    if group is None or not is_member(pod, group):
        return
    if pod.deleted:
        group = replace(group, terminating=group.terminating - 1)
    elif pod.node:
        group = replace(group, running=group.running - 1, starting=group.starting - (not pod.started))
    world.put_group(replace(group, missing=group.missing + 1))

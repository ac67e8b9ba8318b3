"""PodGroups created for pods: of a Workload's pod groups (scheduling.k8s.io/v1alpha1), and as by KubeRay's operator.

kube-scheduler 1.35 has no such objects: each pod group, and each replica of it, is a gang of its own.
"""

from collections.abc import Iterable

from msgspec.structs import replace

from gpuconsole.model.cluster import Pod, SchedulingWorkload
from gpuconsole.model.job import Job
from gpuconsole.model.labels import NO_LABELS
from gpuconsole.model.resources import EMPTY
from gpuconsole.model.volcano import PodGroup
from gpuconsole.sim.engines import first_group_phase
from gpuconsole.sim.world import World


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

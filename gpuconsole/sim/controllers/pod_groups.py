"""PodGroups that are made of a Workload's pod groups (scheduling.k8s.io/v1alpha1), where pods name the Workload.

kube-scheduler 1.35 has no such objects: each pod group, and each replica of it, is a gang of its own.
"""

from collections.abc import Iterable

from gpuconsole.model.cluster import Pod
from gpuconsole.model.scheduling_groups import SchedulingWorkload
from gpuconsole.model.volcano import PodGroup
from gpuconsole.sim.world import World


def ensure(world: World, pods: Iterable[Pod]) -> None:
    """Make the PodGroups of pods that name a Workload which is there."""
    for pod in pods:
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


def ensure_all(world: World, workload: SchedulingWorkload) -> None:
    """Make those of the pods that waited for this Workload."""
    ensure(world, [pod for pod in world.state.table("pods").all() if pod.namespace == workload.namespace])

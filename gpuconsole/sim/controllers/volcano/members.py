"""Pods of a Volcano Job and the counts of their running group: pods come and go while the job lives."""

from collections.abc import Sequence

from msgspec.structs import replace

from gpuconsole.model.cluster import Pod
from gpuconsole.model.job import Job
from gpuconsole.scheduling.volcano.jobs.plugins import on_pod
from gpuconsole.scheduling.volcano.jobs.pod_group import group_name
from gpuconsole.scheduling.volcano.jobs.tasks import spec_of
from gpuconsole.sim.controllers.pods import create
from gpuconsole.sim.controllers.priorities import pod_priority
from gpuconsole.sim.pod_group_state import RunningGroup
from gpuconsole.sim.world import World


def pods_of_job(world: World, job: Job) -> list[Pod]:
    """The pods of a job, including terminating and finished ones."""
    group = world.groups.get(job.key)
    return [pod for key in (group.pods if group else ()) if (pod := world.pod(key)) is not None]


def enlist_pods(world: World, job: Job, made: Sequence[Pod]) -> bool:
    """Create these pods of a job, with the additions of its plugins; False if the API server refuses some."""
    group = world.groups.get(job.key) or RunningGroup(key=job.key, job=job.key)
    fresh = [_finished(world, job, pod) for pod in made]
    # A recreated pod has the name of the previous one, which the group may still list.
    keys = tuple(dict.fromkeys((*group.pods, *(pod.key for pod in fresh))))
    world.put_group(replace(group, pods=keys, is_reported=False))
    return not create(world, group.key, fresh)


def _finished(world: World, job: Job, pod: Pod) -> Pod:
    whole = on_pod(job, pod)
    return replace(
        whole,
        uid=world.uid("Pod", pod.key),
        created=world.now,
        priority=pod_priority(world, pod.template),
        gang=group_name(job),
    )


def recount_pods(world: World, job: Job, group: RunningGroup) -> RunningGroup:
    """Count a job's pods again; ended ones count as missing."""
    pods = pods_of_job(world, job)
    counted = replace(
        group,
        pods=tuple(pod.key for pod in pods),
        need=max(spec_of(job).min_available, 1),
        running=sum(bool(pod.node) and not pod.deleted and not pod.done for pod in pods),
        starting=sum(bool(pod.node) and not (pod.deleted or pod.done or pod.started) for pod in pods),
        leaving=sum(bool(pod.node) and pod.deleted > 0 and not pod.done for pod in pods),
        missing=sum(pod.done for pod in pods),
    )
    world.groups[group.key] = counted
    return counted

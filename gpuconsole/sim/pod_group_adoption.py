"""Builds running groups from existing pods: the index of each pod, missing pods, completed work."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from operator import is_
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from gpuconsole.model.cluster import Pod, PodPhase
from gpuconsole.model.events import Applied
from gpuconsole.model.job import BatchRules, Job, LaunchRules
from gpuconsole.model.jobs.batch import count_numbers, lacking
from gpuconsole.model.objects import Object
from gpuconsole.model.pod_template import PodSet
from gpuconsole.model.workloads import Workload
from gpuconsole.scheduling.kueue.requests import reserved_at
from gpuconsole.sim.controllers import eviction, pods, work
from gpuconsole.sim.controllers.solo import progress, reconciling, running
from gpuconsole.sim.controllers.specs import job_pods, workload_pods
from gpuconsole.sim.kernel import PodsGone, WorkEnds
from gpuconsole.sim.pod_group_state import RunningGroup, running_group_key
from gpuconsole.sim.pod_indexes import Place, failures_before, labelled_index, with_pod_indexes
from gpuconsole.sim.world import World

Owners: TypeAlias = tuple[Workload | None, Job | None, Job | None]
"""The Workload of a group of pods, its job, and the job that its Workload stands for."""


class GroupCounts(Struct, frozen=True):
    """Cached counts of a group, valid while its pods and objects are the same."""

    members: tuple[Pod, ...]
    owners: Owners
    group: RunningGroup
    ready: tuple[Pod, ...]
    """Pods that have a node and have not ended."""
    over: bool
    """True if all of its work is done."""
    written: tuple[Object, ...]
    """Objects that the counting changed."""

    def is_of(self, members: Sequence[Pod], owners: Owners) -> bool:
        """True if the counts are of these same pods and owners."""
        same = len(self.members) == len(members) and all(map(is_, self.owners, owners))
        return same and all(map(is_, self.members, members))


def adopt_group(world: World, key: str, members: Sequence[Pod], counted: dict[str, GroupCounts]) -> None:
    """Build a running group from its pods: count them, and set the timers of work under way.

    `counted` is a cache, which is read and updated.
    """
    first = members[0]
    group = RunningGroup(key=key, workload=first.workload, job=first.job, pods=tuple(pod.key for pod in members))
    if work.ended(world, group):
        return
    workload = world.workload(group.workload) if group.workload else None
    if workload is not None and workload.reserved and eviction.starts_before_old_pods_end(world, workload):
        # Pods that are older than the quota, such as those of an elastic job's earlier slice, are members, too.
        group = replace(group, formed=min(reserved_at(workload, world.now), *(pod.created for pod in members)))
    job = world.job(group.job) if group.job else None
    owners = workload, job, world.job(workload.owner) if workload is not None else None
    known = counted.get(key)
    if known is not None and known.is_of(members, owners):
        for obj in known.written:
            world.put(obj)
    else:
        known = _counted(world, group, owners, members, counted)
    world.put_group(known.group)
    _set_timers(world, known)


def _counted(
    world: World,
    group: RunningGroup,
    owners: Owners,
    members: Sequence[Pod],
    counted: dict[str, GroupCounts],
) -> GroupCounts:
    """Count a group; cached unless counting changed more than the group itself."""
    events, groups = len(world.out), len(world.groups)
    # Terminating and ended pods get the indexes that the others leave over.
    inside = sorted(members, key=lambda pod: (pod.done, bool(pod.deleted), pod.name))
    job = owners[1]
    count = _count_each if job is not None and job.solo else _count_all
    group, ready, over = count(world, group, job, inside)
    written = tuple(event.object for event in world.out[events:] if isinstance(event, Applied))
    made = GroupCounts(tuple(members), owners, group, ready, over, written)
    if len(world.groups) == groups and len(written) == len(world.out) - events:
        counted[group.key] = made
    return made


def _set_timers(world: World, known: GroupCounts) -> None:
    group = known.group
    if group.solo:
        for pod in known.ready:
            running.begin_pod(world, pod)
    elif known.over:
        world.groups[group.key] = replace(group, start=world.now)
        world.kernel.at(world.now, WorkEnds(group.key, world.now))
    elif group.running >= group.need:
        work.resume(world, group, max(pod.started for pod in known.ready))
    for pod in known.members:
        if pod.deleted:
            _terminate(world, pod)


def leave_behind(world: World, pod: Pod) -> None:
    """Set the timer of a terminating pod without a running group."""
    if pod.gang:
        world.put(replace(pod, gang="", gang_size=0))
    _terminate(world, pod)


def _terminate(world: World, pod: Pod) -> None:
    due = max(world.now, pod.deleted + pods.terminates(world, pod))
    world.kernel.at(due, PodsGone(((pod.key, pod.uid),)))


def _count_each(
    world: World, group: RunningGroup, job: Job | None, members: Sequence[Pod]
) -> tuple[RunningGroup, tuple[Pod, ...], bool]:
    """Count independent pods; finished ones are ignored."""
    there = [pod for pod in members if not pod.done]
    if job is not None and isinstance(job.rules, BatchRules):
        there = _pieces(world, group, job, job.rules, members, there)
    else:
        there = _placed(world, job, _wanted(world, group), there)
    at_work = tuple(pod for pod in there if pod.node and not pod.deleted)
    group = replace(
        group,
        solo=True,
        pods=tuple(pod.key for pod in there),
        running=len(at_work),
        leaving=sum(bool(pod.node and pod.deleted) for pod in there),
        start=min((pod.started for pod in at_work), default=None),
    )
    return group, at_work, False


def _pieces(
    world: World, group: RunningGroup, job: Job, rules: BatchRules, members: Iterable[Pod], there: Sequence[Pod]
) -> list[Pod]:
    """The pods of a batch/v1 Job with the pieces of work that they do.

    Succeeded pods count as completed even before the Job's controller has counted them.
    """
    workload = world.workload(group.workload) if group.workload else None
    part = job.pod_sets[0]
    total = progress.pieces(rules, reconciling.parallelism_limit(job, workload))
    well = [pod for pod in members if pod.phase is PodPhase.SUCCEEDED]
    after = job
    for pod in well:
        piece = labelled_index(pod, part)
        if piece is not None and piece < total:
            after = progress.succeeded(after, piece)
    uncounted = len(well) - count_numbers((after.batch.completed,), total)
    for piece in list(islice(lacking(progress.over(after), total), max(0, uncounted))):
        after = progress.succeeded(after, piece)
    if rules.limit_per_index is not None:
        after = _with_failures(after, rules, members)
    if after.batch != job.batch:
        world.put(after)
    return _put(world, there, with_pod_indexes(there, job.pod_sets, {part.name: total}, over=progress.over(after)))


def _with_failures(job: Job, rules: BatchRules, members: Iterable[Pod]) -> Job:
    """The job with the failures of each of its indexes, which only its pods show."""
    failures = dict(job.batch.failures)
    ignores = any(rule.action == "Ignore" for rule in rules.failure_rules)
    for pod in members:
        piece, before = labelled_index(pod, job.pod_sets[0]), failures_before(pod)
        if piece is not None and before is not None:
            times = before + (pod.phase is PodPhase.FAILED and not ignores)
            failures[str(piece)] = max(times, failures.get(str(piece), 0))
    return replace(job, batch=replace(job.batch, failures={piece: n for piece, n in failures.items() if n}))


def _count_all(
    world: World, group: RunningGroup, job: Job | None, members: Sequence[Pod]
) -> tuple[RunningGroup, tuple[Pod, ...], bool]:
    """Count pods that work together, each at its index among the wanted pods."""
    wanted = _wanted(world, group)
    others = {(pod.pod_set, pod.index): pod for pod in _placed(world, job, wanted, members)}
    mine = [others.pop((pod.pod_set, pod.index), None) for pod in wanted]
    spare = [pod for pod in others.values() if not wanted or not (pod.done or pod.deleted)]
    for pod in others.values():
        if wanted and pod.deleted and not pod.done:
            _let_go(world, pod)
    there = [pod for pod in (*mine, *spare) if pod is not None]
    well = [pod for pod in there if pod.phase is PodPhase.SUCCEEDED] if _may_end_early(job) else []
    group = replace(
        group,
        pods=tuple(pod.key for pod in (*(found or want for found, want in zip(mine, wanted, strict=True)), *spare)),
        need=max(1, _least(group, job, len(wanted) or len(there)) - len(well)),
        running=sum(bool(pod.node) and not pod.deleted and not pod.done for pod in there),
        leaving=sum(bool(pod.node and pod.deleted) and not pod.done for pod in there),
        missing=mine.count(None) + sum(pod.done for pod in there) - len(well),
        ended=len(well),
    )
    ready = tuple(pod for pod in there if pod.node and not pod.done)
    return group, ready, bool(wanted) and _is_over(job, mine)


def _may_end_early(job: Job | None) -> bool:
    """True if succeeded pods are not recreated while others work; Volcano's controller counts its own pods."""
    return job is None or (job.volcano is None and not job.endless)


def _least(group: RunningGroup, job: Job | None, wanted: int) -> int:
    """The number of pods that must run before work can begin."""
    return (job.min_available if job is not None and not group.workload else None) or wanted


def _is_over(job: Job | None, members: Sequence[Pod | None]) -> bool:
    """True if all pods succeeded, or all those that decide how their job ends."""
    if not _may_end_early(job):
        return False
    deciders = job.rules.deciders if job is not None and isinstance(job.rules, LaunchRules) else ()
    decide = [pod for pod in members if pod is not None and pod.pod_set in deciders] if deciders else members
    return bool(decide) and all(pod is not None and pod.phase is PodPhase.SUCCEEDED for pod in decide)


def _let_go(world: World, pod: Pod) -> None:
    """Detach a terminating pod whose index another pod has."""
    alone = replace(pod, workload="", job="", gang="", gang_size=0)
    world.put(alone)
    world.put_group(RunningGroup(key=running_group_key(alone), pods=(alone.key,), leaving=int(bool(alone.node))))


def _placed(world: World, job: Job | None, wanted: Sequence[Pod], members: Sequence[Pod]) -> list[Pod]:
    """The pods, each with its own index: wanted pods first."""
    if not wanted:
        return list(members)
    parts = job.pod_sets if job is not None else ()
    sizes = dict(Counter(pod.pod_set for pod in wanted))
    sets = [next((part for part in parts if part.name == name), PodSet(name=name)) for name in sizes]
    return _put(
        world, members, with_pod_indexes(members, sets, sizes, {pod.name: (pod.pod_set, pod.index) for pod in wanted})
    )


def _put(world: World, members: Sequence[Pod], places: Mapping[str, Place]) -> list[Pod]:
    """Store the index of each pod."""
    known = []
    for pod in members:
        pod_set, index = places[pod.key]
        if (pod.pod_set, pod.index) != (pod_set, index):
            pod = replace(pod, pod_set=pod_set, index=index)
            world.put(pod)
        known.append(pod)
    return known


def _wanted(world: World, group: RunningGroup) -> tuple[Pod, ...]:
    workload = world.workload(group.workload) if group.workload else None
    if workload is not None:
        return workload_pods(world, workload)
    job = world.job(group.job) if group.job else None
    return job_pods(world, job) if job is not None else ()

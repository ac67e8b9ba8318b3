"""Suggested changes as commands, for trials in forks and for what-ifs."""

from collections.abc import Iterator, Sequence

from msgspec import UNSET
from msgspec.structs import replace

from gpuconsole.insight.unblock.apply_change import Around, Reshape, all_around, changed, changed_job
from gpuconsole.insight.unblock.steps import (
    AddNodesStep,
    AdmitNamespace,
    End,
    LoosenBudget,
    LowerGang,
    MoveTo,
    RaiseLimit,
    Resume,
    Step,
    UsePriority,
)
from gpuconsole.model import commands
from gpuconsole.model.cluster import Node, Pod, PodDisruptionBudget
from gpuconsole.model.commands import Command
from gpuconsole.model.job import Job, again
from gpuconsole.model.objects import Object
from gpuconsole.model.queues import ClusterQueue, LocalQueue
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.model.workloads import Workload
from gpuconsole.sim.autoscaling.evictions import covers

Asked = Reshape | LowerGang
"""Steps that only take effect when the work is submitted again."""
GROUP = "PodGroup/"
"""Prefix of the gang of a LowerGang if a PodGroup has the number."""


def change_commands(before: Snapshot, key: str, steps: Sequence[Step]) -> tuple[Command, ...]:
    """Return the commands for the workload, the job or the pod `key`, to be carried out together.

    Work that is submitted again keeps its name, its age and so its queue position. Raises LookupError if it is gone.
    """
    return tuple(_orders(before, key, steps))


def _orders(before: Snapshot, key: str, steps: Sequence[Step]) -> Iterator[Command]:
    around, work, late = list[Around](), list[Asked](), list[Command]()
    for step in steps:
        match step:
            case End(other):
                yield commands.Finish(other)
            case AddNodesStep():
                yield commands.AddNodes(before.nodes[step.like].name, step.count)
            case Resume(kind="Workload"):
                yield commands.SetActive(step.name, True)
            case RaiseLimit() | AdmitNamespace() | Resume():
                around.append(step)
            case LoosenBudget():
                budget = before.pod_disruption_budgets[step.budget]
                yield commands.Submit((loosened(before, budget, step.by),))
            case LowerGang() if step.gang.startswith(GROUP):
                name = step.gang.removeprefix(GROUP)
                group = before.pod_groups.get(name) or before.kai_pod_groups[name]
                yield commands.Submit((replace(group, min_member=step.count),))
            case UsePriority():
                late.append(commands.SetPriority(key, step.priority))
            case MoveTo():
                late.append(commands.MoveToQueue(key, step.queue))
            case _:
                work.append(step)
    for obj in all_around(before, around):
        yield from _around(before, obj)
    if work:
        yield from _asked_otherwise(before, key, work)
    yield from late


def _around(before: Snapshot, obj: Object) -> Iterator[Command]:
    """Return the commands that change an object: the most specific one, else the whole object."""
    match obj:
        case ClusterQueue() if _only_resized(before.cluster_queues[obj.name], obj):
            old = before.cluster_queues[obj.name]
            for (flavor, resource), quota in obj.quotas().items():
                was = old.quotas()[flavor, resource]
                if quota != was:
                    yield commands.SetQuota(
                        obj.name,
                        flavor,
                        resource,
                        quota.nominal,
                        UNSET if quota.borrowing_limit == was.borrowing_limit else quota.borrowing_limit,
                        UNSET if quota.lending_limit == was.lending_limit else quota.lending_limit,
                    )
            if obj.stop_policy is not old.stop_policy:
                yield commands.SetStopPolicy(obj.name, obj.stop_policy)
        case LocalQueue():
            yield commands.SetStopPolicy(obj.key, obj.stop_policy)
        case Node():
            yield commands.Cordon(obj.name, obj.unschedulable)
        case _:
            yield commands.Submit((obj,))


def _only_resized(old: ClusterQueue, new: ClusterQueue) -> bool:
    """True if only amounts of existing quotas and the stop policy differ."""
    same = replace(new, resource_groups=old.resource_groups, stop_policy=old.stop_policy) == old
    return same and old.quotas().keys() == new.quotas().keys()


def _asked_otherwise(before: Snapshot, key: str, steps: Sequence[Asked]) -> Iterator[Command]:
    """Return commands that submit the job, or the Workload, again with the change at its original time."""
    job = before.jobs.get(key)
    if job is not None:
        for step in steps:
            job = changed_job(job, step)
        yield commands.Delete("jobs", job.key)
        yield commands.Submit((_again(job),))
        return
    workload = before.workloads[key]
    for step in steps:
        workload = changed(workload, step)
    yield commands.Delete("workloads", key)
    yield commands.Submit((_anew(before, workload),))


def _again(job: Job) -> Job:
    return replace(again(job, job.name), uid=job.uid, created=job.created)


def _anew(before: Snapshot, workload: Workload) -> Object:
    """Return the object to submit for a changed workload: the Workload, or its job if that has independent pods."""
    job = before.jobs.get(workload.owner)
    if job is None or job.owner or not job.solo or sum(part.count for part in workload.pod_sets) == 1:
        return replace(workload, owner="", inadmissible=False, conditions=())
    return replace(again(job, job.name), uid=job.uid, created=workload.created, pod_sets=workload.pod_sets)


def covered(snapshot: Snapshot, budget: PodDisruptionBudget) -> list[Pod]:
    """Return the pods that a disruption budget selects."""
    return [pod for pod in snapshot.pods.all() if covers(budget, pod)]


def loosened(snapshot: Snapshot, budget: PodDisruptionBudget, by: int) -> PodDisruptionBudget:
    """Return the budget with `by` more disruptions allowed."""
    expected = len(covered(snapshot, budget))
    away = budget.allowed(expected, expected)
    return replace(budget, min_available="", max_unavailable=str(away + by))

"""Synthetic Workloads for jobs and pods without one, so that unqueued work is listed like queued work."""

from collections.abc import Callable, Mapping

from gpuconsole.insight.derived import incremental, memoized
from gpuconsole.insight.index.gpu_time import gpu_allocations, queue_of, starts
from gpuconsole.insight.index.pods import all_refused_pods, pods_by_node
from gpuconsole.insight.pending.reasons import PendingReason
from gpuconsole.model.clock import Time
from gpuconsole.model.cluster import Pod, PodPhase
from gpuconsole.model.job import CronRules, FlowRules, Job, JobPhase, TemplateRules
from gpuconsole.model.jobs.workloads import MAKERS
from gpuconsole.model.pod_template import PodSet
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.model.workloads import Condition, Workload

KnownWork = Mapping[str, tuple[object, str, PendingReason | None, Workload]]
_NO_WORK: KnownWork = {}
_starting = (Condition("PodScheduled", True),)
"""All its pods are scheduled, but not all are running."""
_refused = (Condition("PodScheduled", False, PendingReason.RESOURCE_QUOTA),)
"""A ResourceQuota refuses some of its pods."""


@memoized(
    *("jobs", "pods", "workloads", "pod_groups", "kai_pod_groups", "volcano_queues"),
    *("resource_quotas", "priority_classes", "seen"),
)
def unqueued_work(snapshot: Snapshot) -> Mapping[str, Workload]:
    """Map the key of a job (`Kind/ns/name`) or of a single pod (`ns/name`) to its synthetic Workload.

    Unchanged ones are the same objects. A job that another job owns is part of that one; the Jobs of a CronJob count on
    their own.
    """
    return {key: workload for key, (_, _, _, workload) in _known_work(snapshot).items()}


@incremental(_NO_WORK)
def _known_work(snapshot: Snapshot, before: KnownWork) -> KnownWork:
    owned = {workload.owner for workload in snapshot.workloads.all()}
    queues, waiting = _queues(snapshot)
    now = dict[str, tuple[object, str, PendingReason | None, Workload]]()
    for job in snapshot.jobs.all():
        if job.key not in owned and _stands_for_itself(job):
            queue, waits = queues.get(job.key, ""), waiting.get(job.key)
            known = before.get(job.key)
            same = known is not None and known[0] is job and known[1:3] == (queue, waits)
            now[job.key] = known if same and known is not None else (job, queue, waits, _of_job(job, queue, waits))
    for pods in pods_by_node(snapshot).by_node.values():
        for pod in pods.values():
            if not pod.workload and not pod.job:
                known = before.get(pod.key)
                same = known is not None and known[0] is pod
                queue = queues.get(pod.key, "")
                now[pod.key] = known if same and known is not None else (pod, queue, None, _of_pod(pod, queue))
    return now


def outermost(job: Callable[[str], Job | None], key: str) -> str:
    """Return the key of the topmost owner of a job, as far as `job` finds the owners."""
    seen = set[str]()
    while (one := job(key)) is not None and not _stands_for_itself(one) and job(one.owner) is not None:
        if key in seen:
            break
        seen.add(key)
        key = one.owner
    return key


def pods_of(snapshot: Snapshot, job: str) -> frozenset[str]:
    """Return the keys of the existing pods of a job without a Workload."""
    if job not in snapshot.jobs:
        return frozenset()
    return frozenset(
        pod.key for pod in snapshot.pods.all() if not pod.workload and outermost(snapshot.jobs.get, pod.job) == job
    )


def _stands_for_itself(job: Job) -> bool:
    makes = isinstance(job.rules, CronRules | TemplateRules | FlowRules)
    return not makes and job.owner.partition("/")[0] in ("", *MAKERS)


def _queues(snapshot: Snapshot) -> tuple[dict[str, str], dict[str, PendingReason]]:
    """Map owners (or single pods) to the queue that their pods name, and to the reason why pods do not run."""
    queues: dict[str, str] = {}
    waiting: dict[str, PendingReason] = {}
    for node, held in gpu_allocations(snapshot).items():
        for one in held:
            if not one.workload:
                for key in {one.owner, one.pod}:
                    queues.setdefault(key, queue_of(snapshot, one))
                    if not node:
                        waiting[key] = PendingReason.NODES
                    elif starts(snapshot, one):
                        waiting.setdefault(key, PendingReason.STARTING)
    refused = (key for key in all_refused_pods(snapshot) if key in snapshot.jobs)
    waiting.update((outermost(snapshot.jobs.get, key), PendingReason.RESOURCE_QUOTA) for key in refused)
    return queues, waiting


def _of_job(job: Job, queue: str, waits: PendingReason | None) -> Workload:
    started = job.started or job.created
    if job.ended:
        reason = "Failed" if job.phase is JobPhase.FAILED else "Succeeded"
        conditions = (*running_since(started), Condition("Finished", True, reason, "", job.finished or started))
    elif job.phase is JobPhase.RUNNING and waits is None:
        conditions = running_since(started)
    else:
        conditions = _WAITING.get(waits, ()) if waits is not None else ()
    return Workload(
        namespace=job.namespace,
        name=job.name,
        created=job.created,
        labels=job.labels,
        annotations=job.annotations,
        owner=job.key,
        queue=queue or job.queue,
        active=not job.suspended,
        pod_sets=job.pod_sets,
        conditions=conditions,
    )


_WAITING = {PendingReason.STARTING: _starting, PendingReason.RESOURCE_QUOTA: _refused}


def _of_pod(pod: Pod, queue: str) -> Workload:
    began = pod.started or pod.bound
    return Workload(
        namespace=pod.namespace,
        name=pod.name,
        created=pod.created,
        labels=pod.labels,
        owner=f"Pod/{pod.key}",
        queue=queue,
        priority=pod.priority,
        pod_sets=(PodSet(count=1, template=pod.template),),
        conditions=() if not pod.node else running_since(began) if pod.phase is PodPhase.RUNNING else _starting,
    )


def running_since(since: Time) -> tuple[Condition, ...]:
    """Return the conditions of a synthetic Workload that has been running since this time."""
    return tuple(Condition(type, True, "", "", since) for type in ("QuotaReserved", "Admitted", "PodsReady"))


def waits_because(stand_in: Workload) -> PendingReason:
    """Return the reason code for a synthetic Workload of which not all pods run."""
    scheduled = stand_in.condition("PodScheduled")
    if scheduled is None:
        return PendingReason.NODES
    return PendingReason.STARTING if scheduled.status else PendingReason.RESOURCE_QUOTA

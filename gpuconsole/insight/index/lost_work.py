"""Work that an eviction would lose: GPU time of running pods since their start or their last checkpoint.

Work that an eviction would lose: GPU time of running pods since their start or their last checkpoint.

The simulator's rule (`sim.controllers.work`), applied to the objects: independent pods work from their own start,
others from the time when enough of them run.
"""

from collections.abc import Collection, Sequence

from msgspec import Struct

from gpuconsole.insight.index.demand import annotated, device_counter
from gpuconsole.insight.index.pods import pods_by_node
from gpuconsole.model.clock import Span, Time
from gpuconsole.model.cluster import Pod, PodPhase
from gpuconsole.model.device_requests import DeviceCounter
from gpuconsole.model.job import Job
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.model.workloads import Workload


class UncheckpointedWork(Struct, frozen=True):
    """Lost work of one pod, or of all pods of a workload if none of them is visible."""

    pod: Pod | None
    gpus: float
    """GPUs; a MIG instance or a replica is a fraction of one, a DRA device is one."""
    span: Span


def uncheckpointed(
    workload: Workload,
    job: Job | None,
    pods: Collection[Pod],
    now: Time,
    devices: DeviceCounter,
    *,
    all_seen: bool = True,
    again: Time = 0,
) -> Sequence[UncheckpointedWork] | None:
    """Return the lost work of an eviction at a given time, for each pod that ran then; None if unknown.

    `pods` are those that existed then; `all_seen` if there are no others. `again` is the time at which the work
    restarted after it had lost pods, if known.
    """
    if job is not None and job.endless:
        return ()
    if not pods:
        return _without_pods(workload, job, now, devices, all_seen)
    at_work = {pod.key: (pod, _began(pod, job)) for pod in pods if _ran(pod, now)}
    starts = sorted(start for _, start in at_work.values())
    if 0 in starts:
        return None
    since = again
    together = job is None or not job.solo
    if together:
        least = _least(workload, job, sum(not pod.done for pod in pods))
        ready = workload.condition("PodsReady")
        if len(starts) < least or (ready is not None and not ready.status):
            return ()
        since = max(again, starts[least - 1])
    interval = _interval(workload, job)
    return tuple(
        UncheckpointedWork(
            pod,
            devices.gpus(pod),
            # A pod that joined late has no work from before its start, whatever the last common checkpoint.
            min(now - start, _since_checkpoint(now - (since if together else max(since, start)), interval)),
        )
        for pod, start in at_work.values()
    )


def uncheckpointed_now(snapshot: Snapshot, workload: Workload) -> Sequence[UncheckpointedWork] | None:
    """Return the lost work if a workload of a Snapshot is evicted now; None if unknown."""
    pods = pods_by_node(snapshot).of(workload.key).values()
    all_seen = snapshot.seen.all_of(Pod, within=workload.namespace)
    job = snapshot.jobs.get(workload.owner)
    return uncheckpointed(workload, job, pods, snapshot.time, device_counter(snapshot), all_seen=all_seen)


def uncheckpointed_gpu_time(snapshot: Snapshot, workload: Workload) -> Span | None:
    """Return `uncheckpointed_now` as one number, GPUs × time; None if unknown."""
    lost = uncheckpointed_now(snapshot, workload)
    return gpu_time(lost) if lost is not None else None


def gpu_time(lost: Sequence[UncheckpointedWork]) -> Span:
    """Return the total lost work, GPUs × time."""
    return round(sum(one.gpus * one.span for one in lost))


def _ran(pod: Pod, now: Time) -> bool:
    """True if the pod ran then: started, and not terminating."""
    begun = pod.started <= now if pod.started else pod.phase is PodPhase.RUNNING
    return bool(pod.node) and begun and not pod.done and not 0 < pod.deleted < now


def _began(pod: Pod, job: Job | None) -> Time:
    """Return the start time of a running pod; 0 if unknown."""
    return pod.started or pod.bound or (job.started if job is not None and job.started else 0)


def _least(workload: Workload, job: Job | None, there: int) -> int:
    """Return the number of existing pods that have to run for work to progress; all if Kueue admitted the workload."""
    least = job.min_available if job is not None and workload.admission is None else None
    return max(1, min(there, least or there))


def _without_pods(
    workload: Workload, job: Job | None, now: Time, devices: DeviceCounter, all_seen: bool
) -> Sequence[UncheckpointedWork] | None:
    """Return the lost work without visible pods, which run if PodsReady is true; None if that is unknown."""
    ready = workload.condition("PodsReady")
    if not workload.admitted or (ready is not None and not ready.status):
        return ()
    if ready is not None:
        gpus = devices.gpus_of_workload(workload)
        return (UncheckpointedWork(None, gpus, _since_checkpoint(max(0, now - ready.since), _interval(workload, job))),)
    of_another_kind = bool(workload.owner) and job is None
    return () if all_seen and not of_another_kind and not workload.cluster else None


def _interval(workload: Workload, job: Job | None) -> Span | None:
    """Return the checkpoint interval; None without checkpoints."""
    return job.checkpoint_interval if job is not None else annotated(workload, "gpuconsole.io/checkpoint-interval")


def _since_checkpoint(worked: Span, interval: Span | None) -> Span:
    return worked % interval if interval else worked

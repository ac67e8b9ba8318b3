"""Resubmits an existing job, workload or pod under another name."""

from msgspec.structs import replace

from gpuconsole.model.cluster import Pod
from gpuconsole.model.job import Job, again
from gpuconsole.model.workloads import Workload, anew
from gpuconsole.sim.controllers import creating
from gpuconsole.sim.controllers.refusals import Refusal
from gpuconsole.sim.world import World


def copy(world: World, key: str, name: str) -> Refusal:
    """Submit a copy of a job, a workload or a lone pod, whether that is pending, running or finished."""
    twin = _twin(world, key, name)
    if twin is None:
        return f"there is no job, workload or pod {key} to resubmit"
    return creating.create(world, twin)


def _twin(world: World, key: str, name: str) -> Job | Workload | Pod | None:
    workload = world.workload(key)
    job = _job(world, workload.owner if workload is not None else key)
    if job is not None:
        return again(job, name)
    if workload is not None:
        return replace(anew(workload), name=name, created=world.now)
    pod = world.pod(key.removeprefix("Pod/"))
    return _pod(pod, name) if pod is not None and not pod.job and not pod.workload else None


def _job(world: World, key: str) -> Job | None:
    """The job with this `Kind/namespace/name`, or the only one with this `namespace/name`."""
    exact = world.job(key)
    if exact is not None:
        return exact
    same = [job for job in world.state.table("jobs").all() if job.key.partition("/")[2] == key]
    return same[0] if len(same) == 1 else None


def _pod(pod: Pod, name: str) -> Pod:
    return Pod(
        namespace=pod.namespace,
        name=name,
        labels=pod.labels,
        annotations=pod.annotations,
        template=pod.template,
        priority=pod.priority,
        gang=pod.gang,
        gang_size=pod.gang_size,
        gates=pod.template.scheduling_gates,
    )

"""Limits of Volcano queues that block a job: its gang exceeds the capability, or other jobs use it."""

from collections.abc import Iterator

from gpuconsole.insight.device_demand import quota_unit
from gpuconsole.insight.engine_uses import let_in
from gpuconsole.insight.shortage import MOST_HOLDERS, show
from gpuconsole.model.device_units import DeviceUnit, added, described
from gpuconsole.model.resources import EMPTY, GPU
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.model.volcano import PodGroup, VolcanoQueue
from gpuconsole.scheduling.queue_names import VOLCANO_DEFAULT
from gpuconsole.scheduling.volcano.jobs.pod_group import group_name


def beyond(snapshot: Snapshot, group: PodGroup) -> str:
    """Describe that a gang exceeds the capability of its queue or of one above it; empty if it does not."""
    for queue in _way_up(snapshot, group.queue or VOLCANO_DEFAULT):
        for resource, asked in (group.min_resources or EMPTY).items():
            limit = queue.capability.get(resource)
            if limit is not None and asked > limit:
                asks = f"Its gang requests {show(resource, asked)}"
                return (
                    f"{asks}; the capability of queue {queue.name} is {show(resource, limit)}: waiting does not help."
                )
    return ""


def _way_up(snapshot: Snapshot, name: str) -> Iterator[VolcanoQueue]:
    seen: set[str] = set()
    while name not in seen and (queue := snapshot.volcano_queues.get(name)) is not None:
        seen.add(name)
        yield queue
        name = queue.parent


def takers(snapshot: Snapshot, queue: str) -> tuple[str, ...]:
    """Name the jobs that use a queue's accelerators, or have enqueued requests without nodes, most first."""
    jobs = {f"{job.namespace}/{group_name(job)}": job.key for job in snapshot.jobs.all() if job.volcano}
    found = []
    for group, held, promised in let_in(snapshot):
        taken = added(*({_unit(snapshot, name): n} for part in (held, promised) for name, n in part.items()))
        if (group.queue or VOLCANO_DEFAULT) == queue and taken:
            found.append((taken, jobs.get(group.key, group.key), sum(promised.values())))
    found.sort(key=lambda one: (-sum(one[0].values()), one[1]))
    return tuple(
        f"{name} uses {described(taken)} of queue {queue}"
        + (f", {promised} of them not scheduled yet" if promised else "")
        for taken, name, promised in found[:MOST_HOLDERS]
    )


def _unit(snapshot: Snapshot, counted: str) -> DeviceUnit:
    return quota_unit(snapshot, counted or GPU)

"""Victims' losses: tasks above a gang's minimum one by one, those within it together (KAI 0.13 proportion)."""

from collections.abc import Iterable, Iterator

from gpuconsole.scheduling.kai.api.amounts import ResourceAmounts
from gpuconsole.scheduling.kai.api.statuses import ACTIVE_ALLOCATED
from gpuconsole.scheduling.kai.api.tasks import PodInfo
from gpuconsole.scheduling.kai.functions import VictimJob


def losses_by_queue(victims: Iterable[VictimJob], *, ignore_placed: bool) -> dict[str, list[ResourceAmounts]]:
    """Losses by queue, in order; with `ignore_placed`, tasks that were placed again are not lost."""
    losses: dict[str, list[ResourceAmounts]] = {}
    for victim in victims:
        found = list(losses_of(victim, ignore_placed=ignore_placed))
        if found:
            losses.setdefault(victim.job.queue, []).extend(found)
    return losses


def losses_of(victim: VictimJob, *, ignore_placed: bool) -> Iterator[ResourceAmounts]:
    """Losses of one victim: each task above a pod set's minimum, then all others in one sum."""
    by_set: dict[str, list[PodInfo]] = {}
    for task in victim.tasks:
        by_set.setdefault(task.set_name, []).append(task)
    core: list[PodInfo] = []
    for name, tasks in by_set.items():
        minimum = victim.job.pod_sets[name].minimum
        core += tasks[:minimum]
        for task in tasks[minimum:]:
            yield from _sum([task], ignore_placed)
    yield from _sum(core, ignore_placed)


def _sum(tasks: list[PodInfo], ignore_placed: bool) -> Iterator[ResourceAmounts]:
    lost = [task for task in tasks if not (ignore_placed and task.status in ACTIVE_ALLOCATED)]
    if lost:
        total = ResourceAmounts()
        for task in lost:
            total.add_request(task.accepted)
        yield total

"""What victims lose: tasks above a gang's minimum one by one, those within it together (KAI 0.13 proportion)."""

from collections.abc import Iterable, Iterator

from gpuconsole.scheduling.kai.api.amounts import Amounts
from gpuconsole.scheduling.kai.api.statuses import ACTIVE_ALLOCATED
from gpuconsole.scheduling.kai.api.tasks import Task
from gpuconsole.scheduling.kai.functions import Victim


def losses_by_queue(victims: Iterable[Victim], *, ignore_placed: bool) -> dict[str, list[Amounts]]:
    """Losses of each queue in turn; `ignore_placed`: what found another place is not lost."""
    losses: dict[str, list[Amounts]] = {}
    for victim in victims:
        found = list(losses_of(victim, ignore_placed=ignore_placed))
        if found:
            losses.setdefault(victim.job.queue, []).extend(found)
    return losses


def losses_of(victim: Victim, *, ignore_placed: bool) -> Iterator[Amounts]:
    by_set: dict[str, list[Task]] = {}
    for task in victim.tasks:
        by_set.setdefault(task.set_name, []).append(task)
    core: list[Task] = []
    for name, tasks in by_set.items():
        minimum = victim.job.pod_sets[name].minimum
        core += tasks[:minimum]
        for task in tasks[minimum:]:
            yield from _sum([task], ignore_placed)
    yield from _sum(core, ignore_placed)


def _sum(tasks: list[Task], ignore_placed: bool) -> Iterator[Amounts]:
    lost = [task for task in tasks if not (ignore_placed and task.status in ACTIVE_ALLOCATED)]
    if lost:
        total = Amounts()
        for task in lost:
            total.add_request(task.accepted)
        yield total

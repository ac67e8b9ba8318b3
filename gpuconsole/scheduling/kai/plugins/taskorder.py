"""taskorder plugin: orders tasks by the number in a label, highest first (KAI 0.13)."""

from gpuconsole.scheduling.kai.api.tasks import PodInfo
from gpuconsole.scheduling.kai.conf import KaiPluginArguments
from gpuconsole.scheduling.kai.session import KaiSession

TASK_PRIORITY_LABEL = "kai.scheduler/task-priority"


class TaskOrder:
    """Registers the task order."""

    def __init__(self, arguments: KaiPluginArguments) -> None:
        pass

    def open(self, session: KaiSession) -> None:
        session.functions.task_order.append(compare_task_labels)


def compare_task_labels(one: PodInfo, other: PodInfo) -> int:
    """Negative if the first task comes first: tasks with the label before others, values that are no integer last."""
    mine, theirs = one.spec.labels.get(TASK_PRIORITY_LABEL), other.spec.labels.get(TASK_PRIORITY_LABEL)
    if mine is None or theirs is None:
        return (mine is None) - (theirs is None)
    rank, other_rank = _number(mine), _number(theirs)
    if rank is None:
        return 1
    if other_rank is None:
        return -1
    return (rank < other_rank) - (rank > other_rank)


def _number(text: str) -> int | None:
    try:
        return int(text)
    except ValueError:
        return None

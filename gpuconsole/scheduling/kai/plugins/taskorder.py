"""taskorder plugin: orders tasks by the number in a label, highest first (KAI 0.13)."""

from gpuconsole.scheduling.kai.api.tasks import PodInfo
from gpuconsole.scheduling.kai.conf import KaiPluginArguments
from gpuconsole.scheduling.kai.session import KaiSession

LABEL = "kai.scheduler/task-priority"


class TaskOrder:
    def __init__(self, arguments: KaiPluginArguments) -> None:
        pass

    def open(self, session: KaiSession) -> None:
        session.functions.task_order.append(compare)


def compare(one: PodInfo, other: PodInfo) -> int:
    """Those with the label come first; a label that is no number comes last among them."""
    mine, theirs = one.spec.labels.get(LABEL), other.spec.labels.get(LABEL)
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

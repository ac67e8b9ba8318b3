"""Choice of shared GPUs on a node for a task (KAI 0.13 gpu_sharing)."""

from collections.abc import Callable, Sequence

from msgspec import Struct

from gpuconsole.scheduling.kai.api import node_sharing
from gpuconsole.scheduling.kai.api.nodes import KaiNodeInfo
from gpuconsole.scheduling.kai.api.tasks import PodInfo
from gpuconsole.scheduling.kai.session import WHOLE_GPU, KaiSession
from gpuconsole.scheduling.kai.statement import KaiStatement


class Chosen(Struct, frozen=True):
    """Sharing groups of the chosen GPUs; with `releasing`, the task cannot start on all of them now."""

    groups: tuple[str, ...]
    releasing: bool


def choose_gpus(
    fitting: Sequence[str], node: KaiNodeInfo, task: PodInfo, new_group: Callable[[], str], *, waiting: bool
) -> Chosen | None:
    """The first GPUs of the list, as many as the task needs; None if there are not enough.

    Unused GPUs get a new group each, and count as releasing if `waiting` or if the task cannot start now.
    """
    groups: list[str] = []
    releasing = False
    for gpu in fitting:
        if gpu == WHOLE_GPU:
            releasing = releasing or waiting or not node.fits_idle(task)
            groups.append(new_group())
        else:
            now = node_sharing.fits_shared_now(node, task.request, gpu) and node.fits_idle(task)
            releasing = releasing or not now
            groups.append(gpu)
        if len(groups) == task.request.count:
            return Chosen(tuple(groups), releasing)
    return None


def place_on_shared(
    session: KaiSession, statement: KaiStatement, task: PodInfo, node: KaiNodeInfo, *, waiting: bool
) -> bool:
    """Place a task that requests part of a GPU; False if the node has too few GPUs for it."""
    chosen = choose_gpus(session.gpus_for(task, node), node, task, session.new_group, waiting=waiting)
    if chosen is None:
        return False
    task.groups = chosen.groups
    if waiting or chosen.releasing:
        statement.pipeline(task, node.name, False)
    else:
        statement.allocate(task, node.name)
    return True

"""pdb plugin: forbids evictions that violate a PodDisruptionBudget."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, ClassVar

from gpuconsole.scheduling.volcano.api.budgets import OpenBudget
from gpuconsole.scheduling.volcano.api.task import TaskInfo
from gpuconsole.scheduling.volcano.functions import PERMIT, Victims
from gpuconsole.scheduling.volcano.plugin import VolcanoPlugin

if TYPE_CHECKING:
    from gpuconsole.scheduling.volcano.session import VolcanoSession


class PdbPlugin(VolcanoPlugin):
    """Volcano 1.15 plugins/pdb. Each vote starts from the budgets as of the session's opening."""

    name: ClassVar[str] = "pdb"

    def on_session_open(self, session: "VolcanoSession") -> None:
        def allowed(_: TaskInfo, candidates: list[TaskInfo]) -> Victims:
            return within(session.budgets, candidates), PERMIT

        session.functions.preemptable[self.name] = session.functions.reclaimable[self.name] = allowed
        session.functions.victim_tasks[self.name] = [lambda tasks: within(session.budgets, tasks)]


def within(budgets: list[OpenBudget], tasks: Iterable[TaskInfo]) -> list[TaskInfo]:
    """The tasks that can be evicted together within the budgets, in order; tasks without labels are never among
    them.
    """
    left = [budget.allowed for budget in budgets]
    victims = []
    for task in tasks:
        if not task.pod.labels:
            continue
        covering = [number for number, budget in enumerate(budgets) if budget.covers(task.pod)]
        for number in covering:
            left[number] -= 1
        if all(left[number] >= 0 for number in covering):
            victims.append(task)
    return victims

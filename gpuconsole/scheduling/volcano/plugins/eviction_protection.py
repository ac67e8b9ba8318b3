"""Plugins that protect tasks from eviction: cdp, conformance and pdb.

cdp protects pods that started recently (cooldown protection), conformance critical pods and those in kube-system. pdb
forbids evictions that violate a PodDisruptionBudget.
"""

from collections.abc import Iterable
from typing import ClassVar

from gpuconsole.model.clock import Span
from gpuconsole.model.cluster import Pod, PodPhase
from gpuconsole.scheduling.volcano.api.task import TaskInfo
from gpuconsole.scheduling.volcano.config import VolcanoArguments, parse_duration
from gpuconsole.scheduling.volcano.session import BudgetAllowance, VolcanoPlugin, VolcanoSession
from gpuconsole.scheduling.volcano.session_plugins import PERMIT, VictimsVote

COOLDOWN_TIME = "volcano.sh/cooldown-time"


class CdpPlugin(VolcanoPlugin):
    """cdp plugin: protects pods from eviction for some time after their start (Volcano 1.15)."""

    name: ClassVar[str] = "cdp"

    def on_session_open(self, session: VolcanoSession) -> None:
        def unprotected(_: TaskInfo, candidates: list[TaskInfo]) -> VictimsVote:
            return [task for task in candidates if not _is_protected(task.pod, session.now)], PERMIT

        session.functions.preemptable[self.name] = session.functions.reclaimable[self.name] = unprotected


def cooldown_time(pod: Pod) -> Span | None:
    """How long the pod is protected after it was bound, by its label or else its annotation; None if not at all."""
    text = pod.labels.get(COOLDOWN_TIME, pod.annotations.get(COOLDOWN_TIME))
    return None if text is None else parse_duration(text)


def _is_protected(pod: Pod, now: int) -> bool:
    span = cooldown_time(pod)
    return span is not None and pod.phase is PodPhase.RUNNING and (pod.bound or pod.started) + span > now


CRITICAL_CLASSES = frozenset(("system-cluster-critical", "system-node-critical"))
SYSTEM_NAMESPACE = "kube-system"


class ConformancePlugin(VolcanoPlugin):
    """conformance plugin: protects critical pods and those in kube-system from eviction (Volcano 1.15)."""

    name: ClassVar[str] = "conformance"

    def __init__(self, arguments: VolcanoArguments) -> None:
        pass

    def on_session_open(self, session: VolcanoSession) -> None:
        functions, name = session.functions, self.name
        functions.preemptable[name] = functions.reclaimable[name] = _without_critical
        functions.unified_evictable[name] = _without_critical


def _without_critical(_: object, candidates: list[TaskInfo]) -> VictimsVote:
    return [
        task
        for task in candidates
        if task.pod.template.priority_class not in CRITICAL_CLASSES and task.namespace != SYSTEM_NAMESPACE
    ], PERMIT


class PdbPlugin(VolcanoPlugin):
    """pdb plugin: forbids evictions that violate a PodDisruptionBudget (Volcano 1.15).

    Each vote starts from the budgets as of the session's opening.
    """

    name: ClassVar[str] = "pdb"

    def on_session_open(self, session: VolcanoSession) -> None:
        def allowed(_: TaskInfo, candidates: list[TaskInfo]) -> VictimsVote:
            return tasks_within_budgets(session.budgets, candidates), PERMIT

        session.functions.preemptable[self.name] = session.functions.reclaimable[self.name] = allowed
        session.functions.victim_tasks[self.name] = [lambda tasks: tasks_within_budgets(session.budgets, tasks)]


def tasks_within_budgets(budgets: list[BudgetAllowance], tasks: Iterable[TaskInfo]) -> list[TaskInfo]:
    """The tasks, in order, that can be evicted together within the budgets; never tasks without labels."""
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

"""minruntime plugin: protects jobs from eviction for their queue's minimum runtime (KAI 0.13 plugins/minruntime)."""

from collections import Counter
from collections.abc import Callable, Mapping

from gpuconsole.model.clock import Span
from gpuconsole.scheduling.kai.api.jobs import PodGroupInfo
from gpuconsole.scheduling.kai.config import KaiPluginArguments
from gpuconsole.scheduling.kai.fair_share.resource_share import QueueState
from gpuconsole.scheduling.kai.functions import SolverScenario, VictimJob
from gpuconsole.scheduling.kai.session import KaiSession

LCA, QUEUE = "lca", "queue"


class MinRuntime:
    """Registers the protection; elastic jobs may lose tasks above their minimum at any time."""

    def __init__(self, arguments: KaiPluginArguments) -> None:
        self.reclaim = arguments.span("defaultReclaimMinRuntime")
        self.preempt = arguments.span("defaultPreemptMinRuntime")
        method = arguments.text("reclaimResolveMethod", LCA)
        self.method = method if method in (LCA, QUEUE) else LCA

    def open(self, session: KaiSession) -> None:
        self._session = session
        functions = session.functions
        functions.reclaim_victims.append(lambda job, victim: victim.elastic or not self._from_reclaim(job, victim))
        functions.preempt_victims.append(lambda job, victim: victim.elastic or not self._from_preempt(victim))
        functions.reclaim_scenarios.append(
            lambda scenario: self._allows(scenario, lambda victim: self._from_reclaim(scenario.preemptor, victim))
        )
        functions.preempt_scenarios.append(lambda scenario: self._allows(scenario, self._from_preempt))

    def _from_reclaim(self, job: PodGroupInfo, victim: PodGroupInfo) -> bool:
        """True if the victim is still protected against reclaim."""
        queues = self._session.queues
        mine, theirs = queues.get(job.queue), queues.get(victim.queue)
        span = self.reclaim
        if mine is not None and theirs is not None:
            span = reclaim_min_runtime(queues, mine, theirs, self.method, self.reclaim)
        return self._protected(victim, span)

    def _from_preempt(self, victim: PodGroupInfo) -> bool:
        queue = self._session.queues.get(victim.queue)
        span = self.preempt if queue is None else preempt_min_runtime(self._session.queues, queue, self.preempt)
        return self._protected(victim, span)

    def _protected(self, victim: PodGroupInfo, span: Span) -> bool:
        return victim.started is not None and self._session.now < victim.started + span

    def _allows(self, scenario: SolverScenario, protected: Callable[[PodGroupInfo], bool]) -> bool:
        return all(
            keeps_minimum(victim)
            for victim in scenario.victims().values()
            if victim.job.elastic and protected(victim.job)
        )


def keeps_minimum(victim: VictimJob) -> bool:
    """True if every pod set that loses tasks keeps its minimum."""
    losses = Counter(task.set_name for task in victim.tasks)
    sets = victim.job.pod_sets
    return all(sets[name].minimum <= sets[name].active_used - lost for name, lost in losses.items())


def path_to(queues: Mapping[str, QueueState], queue: QueueState) -> list[QueueState]:
    """The queues from the top down to this one."""
    path = [queue]
    while (above := queues.get(path[-1].parent)) is not None:
        path.append(above)
    return path[::-1]


def preempt_min_runtime(queues: Mapping[str, QueueState], queue: QueueState, base: Span) -> Span:
    """The minimum runtime of the queue, or of the nearest one above that sets it; `base` if none does."""
    for above in reversed(path_to(queues, queue)):
        if above.preempt_min_runtime is not None:
            return above.preempt_min_runtime
    return base


def reclaim_min_runtime(
    queues: Mapping[str, QueueState], mine: QueueState, theirs: QueueState, method: str, base: Span
) -> Span:
    """The minimum runtime that protects a job of queue `theirs` against one of `mine`; `base` if no queue sets it.

    Method queue: that of the victim's queue or the nearest above. Method lca: that of the victim's ancestor just below
    the lowest common ancestor, or the nearest above; of the top queue only, if they have no common ancestor.
    """
    path = path_to(queues, theirs)
    if method == LCA:
        common = sum(1 for one, other in zip(path_to(queues, mine), path, strict=False) if one.uid == other.uid)
        path = path[: common + 1]
    for queue in reversed(path):
        if queue.reclaim_min_runtime is not None:
            return queue.reclaim_min_runtime
    return base

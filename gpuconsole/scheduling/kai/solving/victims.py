"""Builder of scenarios with more and more victims, in the order of a victim queue (KAI 0.13 pod_scenario_builder)."""

from collections.abc import Iterable, Mapping, Sequence

from gpuconsole.scheduling.kai.api.jobs import PodGroupInfo
from gpuconsole.scheduling.kai.api.nodes import KaiNodeInfo
from gpuconsole.scheduling.kai.api.statuses import ALIVE
from gpuconsole.scheduling.kai.choosing import tasks_to_evict
from gpuconsole.scheduling.kai.order import JobsByQueue, Wanted
from gpuconsole.scheduling.kai.session import KaiSession
from gpuconsole.scheduling.kai.solving.affinity_filter import AffinityFilter
from gpuconsole.scheduling.kai.solving.gpu_filters import DomainGpus, IdleGpus, NotGrown
from gpuconsole.scheduling.kai.solving.scenario import GrowingScenario


def victim_queue(session: KaiSession, jobs: Iterable[PodGroupInfo]) -> JobsByQueue:
    """The jobs in victim order, without those whose live tasks are all on nodes outside the session."""
    seated = (job for job in jobs if any(_seated(session, job)))
    return JobsByQueue(session, Wanted(victims=True), seated)


def _seated(session: KaiSession, job: PodGroupInfo) -> Iterable[bool]:
    return (task.status in ALIVE and (not task.node or task.node in session.nodes) for task in job.tasks())


class Scenarios:
    """Adds victims to a scenario until its filters find that the job could fit. Mutates."""

    def __init__(
        self,
        session: KaiSession,
        job: PodGroupInfo,
        recorded: Sequence[PodGroupInfo],
        victims: JobsByQueue,
        feasible: Mapping[str, KaiNodeInfo],
    ) -> None:
        self._session, self._victims = session, victims
        self._recorded = {task.uid for victim in recorded for task in victim.tasks()}
        self._scenario = GrowingScenario(session, job, recorded)
        self._filters = [
            found
            for found in (
                AffinityFilter.of(self._scenario, session, feasible),
                DomainGpus.of(self._scenario, session),
                IdleGpus.of(self._scenario, session),
            )
            if found is not None
        ]

    def first(self) -> GrowingScenario | None:
        """The scenario without potential victims if it passes the filters, else the next one."""
        return self._scenario if self._could_do() else self.next()

    def next(self) -> GrowingScenario | None:
        """The next scenario that passes the filters; None if there are no more victims."""
        while self._victims:
            if self._grow() and self._could_do():
                return self._scenario
        return None

    def _could_do(self) -> bool:
        return all(self._passes(found) for found in self._filters)

    def _passes(self, found: AffinityFilter | DomainGpus | IdleGpus) -> bool:
        """True also if the filter cannot decide: an unnecessary trial changes nothing."""
        try:
            return found.could_do(self._scenario)
        except NotGrown:
            return True

    def _grow(self) -> bool:
        """Add the next victims; False if they were recorded already."""
        session, job = self._session, self._victims.pop()
        tasks, more = tasks_to_evict(job, session.pod_set_before, session.task_before)
        if any(task.uid in self._recorded for task in tasks):
            rest = [task for task in job.tasks() if task.uid not in self._recorded]
            if rest:
                self._victims.push(job.part(rest))
            return False
        if more:
            self._victims.push(job.part([task for task in job.tasks() if task not in tasks]))
        self._scenario.add(tasks)
        return True

"""Victim search for a job, task by task; victims of earlier tasks are kept (KAI 0.13 job_solver, by_pod_solver)."""

from collections.abc import Callable, Sequence

from msgspec import Struct

from gpuconsole.scheduling.kai.api.jobs import PodGroupInfo
from gpuconsole.scheduling.kai.api.nodes import KaiNodeInfo
from gpuconsole.scheduling.kai.api.statuses import KaiPodStatus
from gpuconsole.scheduling.kai.api.tasks import PodInfo
from gpuconsole.scheduling.kai.functions import SolverScenario
from gpuconsole.scheduling.kai.job_placement import PlacementAttempt
from gpuconsole.scheduling.kai.order import JobsByQueue, Wanted
from gpuconsole.scheduling.kai.session import EvictedTask, KaiSession
from gpuconsole.scheduling.kai.solving.reasons import eviction_message
from gpuconsole.scheduling.kai.solving.scenario import GrowingScenario
from gpuconsole.scheduling.kai.solving.victims import Scenarios
from gpuconsole.scheduling.kai.statement import KaiStatement


class Solution(Struct, frozen=True):
    """The victims that make the job fit, and the statement that has the changes."""

    tasks: Sequence[PodInfo]
    """Evicted victims, then those that were placed again."""
    jobs: Sequence[PodGroupInfo]
    """The partial jobs that these were added with."""
    statement: KaiStatement


class Solver:
    """Looks for victims of one action for one job at a time."""

    def __init__(
        self,
        session: KaiSession,
        *,
        action: str,
        nodes: Sequence[KaiNodeInfo],
        allowed: Callable[[SolverScenario], bool],
        victims: Callable[[], JobsByQueue],
    ) -> None:
        self._session, self._action, self._allowed, self._victims = session, action, allowed, victims
        self._nodes = {node.name: node for node in nodes}

    def carry_out(self, job: PodGroupInfo) -> bool:
        """Carry out evictions and placements for the job; False, with nothing changed, if there is no solution."""
        before = job.active_used
        solution = self._solve(job)
        if solution is None:
            return False
        if not job.satisfied or job.active_used <= before:
            solution.statement.discard()
            return False
        solution.statement.commit()
        return True

    def _solve(self, job: PodGroupInfo) -> Solution | None:
        tasks = list(self._session.choose(job, False))
        found: Solution | None = None
        for count in range(1, len(tasks) + 1):
            if found is not None:
                found.statement.discard()
            found = self._solve_part(_part(job, tasks[:count]), found)
            if found is None:
                return None
        return found

    def _solve_part(self, job: PodGroupInfo, known: Solution | None) -> Solution | None:
        nodes = dict(self._nodes)
        for task in known.tasks if known else ():
            nodes[task.node] = self._session.nodes[task.node]
        scenarios = Scenarios(self._session, job, known.jobs if known else (), self._victims(), nodes)
        scenario = scenarios.first()
        while scenario is not None:
            found = self._try(scenario, nodes)
            if found is not None:
                return found
            scenario = scenarios.next()
        return None

    def _try(self, scenario: GrowingScenario, nodes: dict[str, KaiNodeInfo]) -> Solution | None:
        """Try the scenario on each node of the latest victim's job; the first node with which the job fits decides."""
        statement = KaiStatement(self._session)
        self._evict(statement, scenario.recorded, scenario.preemptor)
        latest = scenario.latest
        if latest is None:
            if scenario.recorded and self._makes_room(scenario, statement, nodes, scenario.recorded):
                return self._judge(scenario, statement, scenario.recorded)
            statement.discard()
            return None
        for name in sorted({task.node for task in latest.tasks()}):
            checkpoint = statement.checkpoint()
            tasks = scenario.victims_on(name)
            self._evict(statement, tasks, scenario.preemptor)
            opened = {task.node for task in tasks} - nodes.keys()
            nodes.update((node, self._session.nodes[node]) for node in opened)
            victims = [*scenario.recorded, *tasks]
            if self._makes_room(scenario, statement, nodes, victims):
                return self._judge(scenario, statement, victims)
            for node in opened:
                del nodes[node]
            statement.rollback(checkpoint)
        statement.discard()
        return None

    def _evict(self, statement: KaiStatement, tasks: Sequence[PodInfo], preemptor: PodGroupInfo) -> None:
        by = f"{preemptor.namespace}/{preemptor.name}"
        texts = [eviction_message(self._session, self._action, task, preemptor) for task in tasks]
        for task, text in zip(tasks, texts, strict=True):
            statement.evict(EvictedTask(task=task, message=text, action=self._action, by=by, gang=len(tasks)))

    def _makes_room(
        self,
        scenario: GrowingScenario,
        statement: KaiStatement,
        nodes: dict[str, KaiNodeInfo],
        victims: Sequence[PodInfo],
    ) -> bool:
        """Place the job, then the victims that still fit, in the order of queues."""
        session, preemptor = self._session, scenario.preemptor
        losers = {task.job: session.jobs[task.job] for task in victims}
        trying = {job.uid: job for job in session.jobs.values() if KaiPodStatus.PENDING in job.by_status}
        trying.update(losers)
        trying[preemptor.uid] = preemptor
        queue = JobsByQueue(session, Wanted(), trying.values())
        open_nodes = [nodes[name] for name in sorted(nodes)]
        placed = False
        while queue:
            job = queue.pop()
            if job.uid == preemptor.uid:
                placed = PlacementAttempt(session, statement, preemptor, waiting=True).run(open_nodes)
                if not placed:
                    return False
            elif job.uid in losers:
                PlacementAttempt(session, statement, job, waiting=True).run(open_nodes)
        return placed

    def _judge(self, scenario: GrowingScenario, statement: KaiStatement, victims: Sequence[PodInfo]) -> Solution | None:
        if not self._allowed(scenario):
            statement.discard()
            return None
        gone = [task for task in victims if task.status is KaiPodStatus.RELEASING]
        gone += [task for task in victims if task.status is KaiPodStatus.PIPELINED]
        return Solution(gone, _jobs_of(gone, scenario), statement)


def _jobs_of(tasks: Sequence[PodInfo], scenario: GrowingScenario) -> list[PodGroupInfo]:
    """The partial jobs that the tasks were added with, each once."""
    jobs: list[PodGroupInfo] = []
    for task in tasks:
        group = scenario.group_of(task)
        if group is not None and all(group is not known for known in jobs):
            jobs.append(group)
    return jobs


def _part(job: PodGroupInfo, tasks: Sequence[PodInfo]) -> PodGroupInfo:
    """The job with only these tasks, all of which must be placed."""
    part = job.part(tasks)
    for pod_set in part.pod_sets.values():
        if pod_set.tasks:
            pod_set.minimum = len(pod_set.tasks)
    return part

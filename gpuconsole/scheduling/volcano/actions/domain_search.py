"""Domain search for a job with a network topology or sub-jobs: tries every domain and keeps the best.

Volcano 1.15 actions/allocate: domains come in gradients, the closest first; the first gradient in which a domain fits
the job decides, and inside it the score of the plugins.
"""

from msgspec.structs import replace

from gpuconsole.scheduling.heap import Heap
from gpuconsole.scheduling.volcano.actions.decisions import Decisions
from gpuconsole.scheduling.volcano.actions.pending_sub_jobs import Worksheet, drained
from gpuconsole.scheduling.volcano.actions.task_placement import TaskPlacement
from gpuconsole.scheduling.volcano.api.hyper_nodes import HyperNodeInfo
from gpuconsole.scheduling.volcano.api.job import JobInfo
from gpuconsole.scheduling.volcano.api.node import NodeInfo
from gpuconsole.scheduling.volcano.api.sub_job import SubJobInfo
from gpuconsole.scheduling.volcano.api.task import TaskInfo
from gpuconsole.scheduling.volcano.functions import Purpose
from gpuconsole.scheduling.volcano.search import best_of
from gpuconsole.scheduling.volcano.session import VolcanoSession
from gpuconsole.scheduling.volcano.statement import CannotPlace, StatementStep, VolcanoStatement, saved


class DomainSearch:
    """Tries domains for the jobs of one action."""

    def __init__(self, session: VolcanoSession, placing: TaskPlacement) -> None:
        self._session = session
        self.placing = placing
        self.decisions = Decisions(session.domains)

    def for_job(self, job: JobInfo, sheet: Worksheet, below: HyperNodeInfo) -> VolcanoStatement | None:
        """Place a job in the best domain of the first gradient with a domain that fits it; None if there is none."""
        session = self._session
        if not sheet:
            return None
        self.decisions.remember(job, sheet.tasks)
        for gradient in session.job_gradients(job, below, Purpose.ALLOCATE):
            tries: dict[str, tuple[float, list[StatementStep], Worksheet]] = {}
            for hyper_node in gradient:
                job.reset_fit_errors()
                copy = sheet.clone()
                statements, score = self._parts(job, copy, hyper_node)
                self.decisions.take_back(job)
                steps = saved(statements)
                if steps and (session.job_ready(job) or session.job_pipelined(job)):
                    tries[hyper_node.name] = score, steps, copy
                for trial in statements:
                    trial.discard()
            if not tries:
                continue
            best = min(tries, key=lambda name: (-tries[name][0], name))
            _, steps, rest = tries[best]
            statement = self._again(steps)
            if statement is not None:
                sheet.take(rest)
                self.decisions.save_job(job.uid, best)
            return statement
        return None

    def for_sub_job(
        self, sub_job: SubJobInfo, sheet: Worksheet, below: HyperNodeInfo
    ) -> tuple[VolcanoStatement | None, float]:
        """Place a sub-job likewise, at or below `below`, the domain tried for its job; returns also that domain's
        score.

        (None, 0.0) if no domain fits; a placement by nomination scores 0.
        """
        session, tasks = self._session, sheet.tasks[sub_job.uid]
        if not tasks:
            return None, 0.0
        if sub_job.nominated_hyper_node:
            statement = self.from_nomination(sub_job, tasks, below)
            if statement is not None:
                return statement, 0.0
        job = session.jobs[sub_job.job]
        for gradient in session.sub_job_gradients(sub_job, below, Purpose.ALLOCATE):
            tries: dict[str, tuple[list[StatementStep], Heap[TaskInfo]]] = {}
            for hyper_node in gradient:
                job.reset_fit_errors(sub_job.uid)
                copy = tasks.clone()
                trial = self.placing.tasks(sub_job, copy, hyper_node.name)
                if trial is not None and trial.operations:
                    tries[hyper_node.name] = saved([trial]), copy
                    trial.discard()
            if not tries:
                continue
            scores = session.hyper_node_scores(sub_job, {name: session.real_node_list[name] for name in tries})
            best = best_of(scores)
            steps, rest = tries[best]
            statement = self._again(steps)
            if statement is None:
                return None, 0.0
            sheet.tasks[sub_job.uid] = rest
            self._decide(sub_job, below, best)
            return statement, scores[best]
        return None, 0.0

    def from_nomination(
        self, sub_job: SubJobInfo, tasks: Heap[TaskInfo], below: HyperNodeInfo
    ) -> VolcanoStatement | None:
        """Place tasks on their nominated nodes; None, with all nominations dropped, if one does not fit."""
        pinned = sub_job.nominated_hyper_node
        statement = self._redeem(sub_job, tasks)
        if statement is None:
            sub_job.nominated_hyper_node = ""
            for task in drained(tasks):
                task.pod = replace(task.pod, nominated_node="")
            return None
        while tasks:
            tasks.pop()
        self._decide(sub_job, below, pinned)
        return statement

    def nominated_places(
        self, sub_job: SubJobInfo, tasks: Heap[TaskInfo], names: set[str]
    ) -> list[tuple[TaskInfo, NodeInfo]] | None:
        """Each task with its nominated node; None if one does not fit there (validateNomination)."""
        session, finder = self._session, self.placing.finder()
        queue = session.queues[session.jobs[sub_job.job].queue]
        plan = []
        for task in drained(tasks):
            node = session.nodes.get(task.pod.nominated_node)
            if node is None or node.name not in names or not session.allocatable(queue, task):
                return None
            if session.pre_predicate(task) is not None or not finder.fitting(task, [node], self.placing.fits)[0]:
                return None
            plan.append((task, node))
        return plan

    def _redeem(self, sub_job: SubJobInfo, tasks: Heap[TaskInfo]) -> VolcanoStatement | None:
        pinned = sub_job.nominated_hyper_node
        names = self._session.real_nodes.get(pinned)
        plan = self.nominated_places(sub_job, tasks, names) if names else None
        if plan is None:
            return None
        statement = VolcanoStatement(self._session)
        for task, node in plan:
            if sub_job.network_topology is not None:
                task.hyper_node = pinned
            if not self.placing.place(statement, task, node):
                statement.discard()
                return None
        return statement

    def _parts(self, job: JobInfo, sheet: Worksheet, hyper_node: HyperNodeInfo) -> tuple[list[VolcanoStatement], float]:
        """Place sub-jobs in one domain until the job is ready or none is left; returns also the sum of their scores."""
        statements: list[VolcanoStatement] = []
        total = 0.0
        while sheet.sub_jobs:
            sub_job = sheet.sub_jobs.pop()
            statement, score = self.for_sub_job(sub_job, sheet, hyper_node)
            if statement is None or not statement.operations:
                continue
            statements.append(statement)
            total += score
            if sheet.tasks[sub_job.uid]:
                sheet.sub_jobs.push(sub_job)
            if self._session.job_ready(job):
                break
        return statements, total

    def _decide(self, sub_job: SubJobInfo, below: HyperNodeInfo, hyper_node: str) -> None:
        sub_job.allocated_hyper_node = self._session.domains.common(sub_job.allocated_hyper_node, hyper_node)
        self.decisions.save_sub_job(sub_job.job, below.name, sub_job.uid, sub_job.allocated_hyper_node)

    def _again(self, steps: list[StatementStep]) -> VolcanoStatement | None:
        statement = VolcanoStatement(self._session)
        try:
            statement.recover(steps)
        except CannotPlace:
            return None
        return statement

"""Victim search for a job, task by task; victims of earlier tasks are kept (KAI 0.13 job_solver, by_pod_solver).

`ScenarioGenerator` adds victims to a `GrowingScenario`, in the order of a victim queue (pod_scenario_builder), until
its filters find that the job could fit: node affinity, and free GPUs per node and per topology domain. `Solver` tries
such a scenario in a statement, and continues with more victims if the job does not fit. `FailedJobs` skips jobs that
request no less than an equivalent job that failed (actions/common minimal_job_comparison over scheduling constraints
signatures).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

import msgspec
from msgspec import Struct

from gpuconsole.model.cluster import Node
from gpuconsole.model.pod_template import PodAffinity
from gpuconsole.scheduling.kai import messages
from gpuconsole.scheduling.kai.api.jobs import PodGroupInfo, PodSetInfo, SubGroup, tasks_to_evict
from gpuconsole.scheduling.kai.api.nodes import KaiNodeInfo, node_matches_selector
from gpuconsole.scheduling.kai.api.tasks import ACTIVE_ALLOCATED, ALIVE, KaiPodStatus, PodInfo, ResourceRequirements
from gpuconsole.scheduling.kai.functions import SolverScenario, VictimJob
from gpuconsole.scheduling.kai.job_placement import KaiStatement, PlacementAttempt
from gpuconsole.scheduling.kai.session import EvictedTask, JobFilter, JobsByQueue, KaiSession
from gpuconsole.scheduling.kube.plugins.framework import host_ports


class GrowingScenario:
    """The victims that are tried together for a job; more are added step by step (KAI 0.13 solvers/scenario). Mutates.

    Recorded victims were found for earlier tasks of the job; the others are potential ones.
    """

    def __init__(self, session: KaiSession, preemptor: PodGroupInfo, recorded: Sequence[PodGroupInfo]) -> None:
        self._session = session
        self.preemptor = preemptor
        self.pending: list[PodInfo] = list(preemptor.tasks())
        self.potential: list[PodInfo] = []
        self.recorded: list[PodInfo] = [task for job in recorded for task in job.tasks()]
        self.groups: dict[str, list[PodGroupInfo]] = {}
        """Job → its victims, one partial job for each set of tasks that was added together."""
        self._victims: dict[str, VictimJob] = {}
        self._jobs_on: dict[str, list[str]] = {}
        for job in recorded:
            self._add_to_victims(list(job.tasks()))

    def add_victims(self, tasks: Sequence[PodInfo]) -> None:
        """Add tasks of one job as potential victims."""
        if not tasks:
            return
        self.potential += tasks
        self._add_to_victims(tasks)
        for task in tasks:
            jobs = self._jobs_on.setdefault(task.node, [])
            if task.job not in jobs:
                jobs.append(task.job)

    def _add_to_victims(self, tasks: Sequence[PodInfo]) -> None:
        job = self._session.jobs[tasks[0].job]
        self.groups.setdefault(job.uid, []).append(job.partial_job(tasks))
        known = self._victims.get(job.uid)
        self._victims[job.uid] = VictimJob(job, [*(known.tasks if known else ()), *tasks])

    def victims(self) -> Mapping[str, VictimJob]:
        """All victims by job."""
        return self._victims

    @property
    def latest_victim_job(self) -> PodGroupInfo | None:
        """The job whose tasks were added last."""
        return self._session.jobs[self.potential[-1].job] if self.potential else None

    def victims_on(self, node: str) -> list[PodInfo]:
        """The victims of every job that has a potential victim on the node, except recorded ones."""
        recorded = {task.uid for task in self.recorded}
        return [
            task
            for job in sorted(self._jobs_on.get(node, ()))
            for group in self.groups[job]
            for task in group.tasks()
            if task.uid not in recorded
        ]

    def partial_job_of(self, task: PodInfo) -> PodGroupInfo | None:
        """The partial job that the victim was added with; None if it is not a victim of the scenario."""
        return next((g for g in self.groups.get(task.job, ()) if any(t.uid == task.uid for t in g.tasks())), None)


class AffinityFilter:
    """Scenario filter: tasks with node affinity must match a feasible node or the node of a victim. Mutates."""

    def __init__(self, nodes: Mapping[str, Node], feasible: Mapping[str, KaiNodeInfo]) -> None:
        self._all = nodes
        self._feasible = {name: node.node for name, node in feasible.items()}

    @classmethod
    def for_scenario(
        cls, scenario: GrowingScenario, session: KaiSession, feasible: Mapping[str, KaiNodeInfo]
    ) -> AffinityFilter | None:
        """The filter for a scenario's job; None if the job has no node affinity."""
        if not any(_has_node_affinity(task) for task in scenario.pending):
            return None
        return cls({name: node.node for name, node in session.nodes.items()}, feasible)

    def may_succeed(self, scenario: GrowingScenario) -> bool:
        """False if a pending task with node affinity matches no such node."""
        for task in (*scenario.potential, *scenario.recorded):
            if task.node in self._all:
                self._feasible.setdefault(task.node, self._all[task.node])
        return all(
            any(node_matches_selector(task.spec, node) for node in self._nodes_to_check(task))
            for task in scenario.pending
            if _has_node_affinity(task)
        )

    def _nodes_to_check(self, task: PodInfo) -> Iterable[Node]:
        """The nodes to check; for a task that selects nodes by name, all of those (as in NodeAffinity's PreFilter)."""
        named = _named_nodes(task)
        if named is None:
            return self._feasible.values()
        return [self._all[name] for name in sorted(named) if name in self._all]


def _has_node_affinity(task: PodInfo) -> bool:
    return bool(task.spec.node_selector) or task.spec.affinity is not None


def _named_nodes(task: PodInfo) -> set[str] | None:
    """The nodes that the affinity's terms select by metadata.name; None if one of them selects by labels alone."""
    names: set[str] = set()
    for term in task.spec.affinity or ():
        picked = [set(field.values) for field in term.fields if field.key == "metadata.name" and field.operator == "In"]
        if not picked:
            return None
        names |= set.intersection(*picked)
    return names or None


T = TypeVar("T")
_MISMATCH = (
    "accumulatedIdleGpus requires all the filters scenarios using the same instance to be based on the same scenario"
    " with accumulation of potential victims. "
)
DomainKey = tuple[str, str, str]
"""A topology domain: (topology, level, value of the level's label)."""


def free_gpus(node: KaiNodeInfo) -> float:
    """Idle and releasing GPUs of a node."""
    return node.idle_gpus() + node.releasing_gpus()


def can_match_greedily(needs: Sequence[float], holders: Sequence[T], capacity: Callable[[T], float]) -> bool:
    """True if every need finds a holder with enough capacity left; each in turn gets the first such holder.

    Needs and holders are sorted, the largest first.
    """
    taken: dict[T, float] = {}
    for need in needs:
        if need == 0:
            return True
        for holder in holders:
            if capacity(holder) < need:
                return False
            if capacity(holder) - taken.get(holder, 0) >= need:
                taken[holder] = taken.get(holder, 0) + need
                break
        else:
            return False
    return True


def _freed_gpus(task: PodInfo) -> float:
    return task.accepted_request.gpus + task.accepted_request.dra_gpus


class ScenarioNotExtended(Exception):
    """The scenario does not extend the previous one, so the filter's counts do not apply."""


class IdleGpusFilter:
    """Scenario filter: single nodes must have enough free GPUs, counting victims', for every pending task. Mutates.

    Only as many nodes count as there are tasks.
    """

    def __init__(self, free: Mapping[str, float], pending: Iterable[str], nodes: int) -> None:
        self.free = dict(free)
        self.candidate_nodes = sorted(self.free, key=lambda name: -self.free[name])[:nodes]
        """The nodes that count, the one with the most free GPUs first."""
        self._pending = frozenset(pending)
        self.recorded: set[str] = set()
        self.potential: set[str] = set()

    @classmethod
    def for_scenario(cls, scenario: GrowingScenario, session: KaiSession) -> IdleGpusFilter:
        """The filter for a scenario's job."""
        free = {name: free_gpus(node) for name, node in session.nodes.items()}
        solution = cls(free, (task.uid for task in scenario.pending), len(scenario.pending))
        solution.count_new_victims(scenario, first=True)
        return solution

    def may_succeed(self, scenario: GrowingScenario) -> bool:
        """False if single nodes cannot give the pending tasks their GPUs. Raises NotGrown."""
        self.count_new_victims(scenario)
        needs = sorted((task.request.gpus + task.request.dra_gpus for task in scenario.pending), reverse=True)
        return can_match_greedily(needs, self.candidate_nodes, lambda name: self.free[name])

    def count_new_victims(self, scenario: GrowingScenario, first: bool = False) -> None:
        """Count the GPUs of the scenario's new victims as free. Raises NotGrown."""
        stranger = next((task.uid for task in scenario.pending if task.uid not in self._pending), None)
        if stranger is not None:
            where = "in the scenario given at the AccumulatedIdleGpus ctor"
            raise ScenarioNotExtended(f"{_MISMATCH}The pending task {stranger} didn't appear {where}")
        known = len(self.recorded)
        hits = self._add_victims(scenario.recorded, self.recorded)
        if not first and not known == hits == len(self.recorded):
            raise ScenarioNotExtended(
                f"{_MISMATCH}The recorded victims should remain the same between the different scenario filtering."
                f" {hits} cache hits, pre update recorded tasks seen {known},"
                f" post update recorded tasks seen {len(self.recorded)}"
            )
        known = len(self.potential)
        hits = self._add_victims(scenario.potential, self.potential)
        if hits != known:
            raise ScenarioNotExtended(
                f"{_MISMATCH}The list of potential victims for the current scenario should contain the previous list"
                f" of potential victims. Only {hits} out {known} tasks are the contained in the current scenario"
            )

    def _add_victims(self, victims: Iterable[PodInfo], seen: set[str]) -> int:
        """Add the GPUs of new victims to the free ones; returns how many victims were seen before."""
        hits = 0
        for task in victims:
            if task.uid in seen:
                hits += 1
            elif task.node:
                seen.add(task.uid)
                self.add_free_gpus(task.node, _freed_gpus(task))
        return hits

    def add_free_gpus(self, node: str, gpus: float) -> None:
        """Add GPUs that a victim would free on the node."""
        least = self.free[self.candidate_nodes[-1]] if self.candidate_nodes else 0.0
        self.free[node] = self.free.get(node, 0) + gpus
        if not self.candidate_nodes or self.free[node] <= least:
            return
        if node not in self.candidate_nodes:
            self.candidate_nodes[-1] = node
        self.candidate_nodes.sort(key=lambda name: -self.free[name])


class DomainGpusFilter:
    """Scenario filter: single domains must have enough GPUs for sub-groups with a required level. Mutates."""

    def __init__(self, session: KaiSession, groups: Sequence[SubGroup]) -> None:
        self._needs: dict[tuple[str, str], list[float]] = {}
        for group in groups:
            if group.constraint is not None:
                key = (group.constraint.topology, group.constraint.required)
                self._needs.setdefault(key, []).append(_requested_gpus(group))
        self._free: dict[DomainKey, float] = {}
        self._domains_of: dict[str, list[DomainKey]] = {}
        for name, node in session.nodes.items():
            for topology, level in self._needs:
                value = node.node.labels.get(level, "")
                if value:
                    domain = (topology, level, value)
                    self._free[domain] = self._free.get(domain, 0) + free_gpus(node)
                    self._domains_of.setdefault(name, []).append(domain)
        self.seen: set[str] = set()

    @classmethod
    def for_scenario(cls, scenario: GrowingScenario, session: KaiSession) -> DomainGpusFilter | None:
        """The filter for a scenario's job; None if no sub-group has to stay in one domain."""
        groups = [g for g in _sub_groups(scenario.preemptor.root) if g.constraint is not None and g.constraint.required]
        return cls(session, groups) if groups else None

    def may_succeed(self, scenario: GrowingScenario) -> bool:
        """False if a sub-group finds no domain with enough GPUs; GPUs of victims count as free."""
        for task in (*scenario.recorded, *scenario.potential):
            if task.node and task.uid not in self.seen:
                self.seen.add(task.uid)
                for domain in self._domains_of.get(task.node, ()):
                    self._free[domain] += _freed_gpus(task)
        return all(self._fits(topology, level, needs) for (topology, level), needs in self._needs.items())

    def _fits(self, topology: str, level: str, needs: Sequence[float]) -> bool:
        domains = sorted((d for d in self._free if d[:2] == (topology, level)), key=lambda d: -self._free[d])
        return can_match_greedily(sorted(needs, reverse=True), domains, lambda domain: self._free[domain])


def _sub_groups(group: SubGroup) -> Iterator[SubGroup]:
    yield group
    for child in group.groups:
        yield from _sub_groups(child)


def _requested_gpus(group: SubGroup) -> float:
    return sum(
        task.request.gpus + task.request.dra_gpus
        for pod_set in group.all_pod_sets().values()
        for task in pod_set.tasks.values()
    )


def victim_order(session: KaiSession, jobs: Iterable[PodGroupInfo]) -> JobsByQueue:
    """The jobs in victim order, if they have a live task that is on a node of the session or has no node."""
    seated = (job for job in jobs if any(_has_node(session, job)))
    return JobsByQueue(session, JobFilter(victims=True), seated)


def _has_node(session: KaiSession, job: PodGroupInfo) -> Iterable[bool]:
    return (task.status in ALIVE and (not task.node or task.node in session.nodes) for task in job.tasks())


class ScenarioGenerator:
    """Generates scenarios for a job: adds victims until all filters find that the job could fit. Mutates."""

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
            solution
            for solution in (
                AffinityFilter.for_scenario(self._scenario, session, feasible),
                DomainGpusFilter.for_scenario(self._scenario, session),
                IdleGpusFilter.for_scenario(self._scenario, session),
            )
            if solution is not None
        ]

    def first_scenario(self) -> GrowingScenario | None:
        """The scenario without potential victims if it passes the filters, else the next one."""
        return self._scenario if self._may_succeed() else self.next_scenario()

    def next_scenario(self) -> GrowingScenario | None:
        """The next scenario that passes the filters; None if there are no more victims."""
        while self._victims:
            if self._add_next_victims() and self._may_succeed():
                return self._scenario
        return None

    def _may_succeed(self) -> bool:
        return all(self._passes(solution) for solution in self._filters)

    def _passes(self, solution: AffinityFilter | DomainGpusFilter | IdleGpusFilter) -> bool:
        """True also if the filter cannot decide: an unnecessary trial changes nothing."""
        try:
            return solution.may_succeed(self._scenario)
        except ScenarioNotExtended:
            return True

    def _add_next_victims(self) -> bool:
        """Add the next victims; False if they were recorded already."""
        session, job = self._session, self._victims.pop()
        tasks, more = tasks_to_evict(job, session.pod_set_before, session.task_before)
        if any(task.uid in self._recorded for task in tasks):
            rest = [task for task in job.tasks() if task.uid not in self._recorded]
            if rest:
                self._victims.push(job.partial_job(rest))
            return False
        if more:
            self._victims.push(job.partial_job([task for task in job.tasks() if task not in tasks]))
        self._scenario.add_victims(tasks)
        return True


def eviction_message(session: KaiSession, action: str, victim: PodInfo, preemptor: PodGroupInfo) -> str:
    """The message of the eviction (GetMessageOfEviction); for a reclaim, with the usage and quota of both queues."""
    pod, by = f"{victim.namespace}/{victim.name}", f"{preemptor.namespace}/{preemptor.name}"
    match action:
        case "preempt":
            return messages.preempted_message(pod, by)
        case "consolidation":
            return messages.consolidated_message(pod)
    return f"{messages.reclaimed_message(pod, by)}\n{_usage_of_both_queues(session, victim, preemptor)}"


def _usage_of_both_queues(session: KaiSession, victim: PodInfo, preemptor: PodGroupInfo) -> str:
    queues = session.queues
    mine, theirs = queues[preemptor.queue], queues[session.jobs[victim.job].queue]
    if mine.parent != theirs.parent:
        mine, theirs = queues.get(mine.parent, mine), queues.get(theirs.parent, theirs)
    return f"{session.queue_usage_text(theirs)}\n{session.queue_usage_text(mine)}"


class SolverSolution(Struct, frozen=True):
    """Victims whose eviction makes the job fit, and the statement in which they were tried."""

    tasks: Sequence[PodInfo]
    """The victims: first those evicted, then those that were placed again."""
    jobs: Sequence[PodGroupInfo]
    """The partial jobs that the victims were added with."""
    statement: KaiStatement


class Solver:
    """Searches victims for one job at a time, by the rules of one action."""

    def __init__(
        self,
        session: KaiSession,
        *,
        action: str,
        nodes: Sequence[KaiNodeInfo],
        allowed: Callable[[SolverScenario], bool],
        victims: Callable[[], JobsByQueue],
    ) -> None:
        self._session, self._action, self._is_allowed, self._victims = session, action, allowed, victims
        self._nodes = {node.name: node for node in nodes}

    def solve_and_commit(self, job: PodGroupInfo) -> bool:
        """Carry out evictions and placements for the job; False, with nothing changed, if there is no solution."""
        before = job.active_used_tasks
        solution = self._solve_all_tasks(job)
        if solution is None:
            return False
        if not job.is_satisfied or job.active_used_tasks <= before:
            solution.statement.discard()
            return False
        solution.statement.commit()
        return True

    def _solve_all_tasks(self, job: PodGroupInfo) -> SolverSolution | None:
        tasks = list(self._session.tasks_to_allocate(job, False))
        solution: SolverSolution | None = None
        for count in range(1, len(tasks) + 1):
            if solution is not None:
                solution.statement.discard()
            solution = self._solve_part(_partial_job(job, tasks[:count]), solution)
            if solution is None:
                return None
        return solution

    def _solve_part(self, job: PodGroupInfo, known: SolverSolution | None) -> SolverSolution | None:
        nodes = dict(self._nodes)
        for task in known.tasks if known else ():
            nodes[task.node] = self._session.nodes[task.node]
        scenarios = ScenarioGenerator(self._session, job, known.jobs if known else (), self._victims(), nodes)
        scenario = scenarios.first_scenario()
        while scenario is not None:
            solution = self._try_scenario(scenario, nodes)
            if solution is not None:
                return solution
            scenario = scenarios.next_scenario()
        return None

    def _try_scenario(self, scenario: GrowingScenario, nodes: dict[str, KaiNodeInfo]) -> SolverSolution | None:
        """Try the scenario on each node of the latest victim's job; the first node with which the job fits decides."""
        statement = KaiStatement(self._session)
        self._evict(statement, scenario.recorded, scenario.preemptor)
        latest = scenario.latest_victim_job
        if latest is None:
            if scenario.recorded and self._place_job_and_victims(scenario, statement, nodes, scenario.recorded):
                return self._check_solution(scenario, statement, scenario.recorded)
            statement.discard()
            return None
        for name in sorted({task.node for task in latest.tasks()}):
            checkpoint = statement.checkpoint()
            tasks = scenario.victims_on(name)
            self._evict(statement, tasks, scenario.preemptor)
            opened = {task.node for task in tasks} - nodes.keys()
            nodes.update((node, self._session.nodes[node]) for node in opened)
            victims = [*scenario.recorded, *tasks]
            if self._place_job_and_victims(scenario, statement, nodes, victims):
                return self._check_solution(scenario, statement, victims)
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

    def _place_job_and_victims(
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
        queue = JobsByQueue(session, JobFilter(), trying.values())
        open_nodes = [nodes[name] for name in sorted(nodes)]
        placed = False
        while queue:
            job = queue.pop()
            if job.uid == preemptor.uid:
                placed = PlacementAttempt(session, statement, preemptor, only_pipeline=True).run(open_nodes)
                if not placed:
                    return False
            elif job.uid in losers:
                PlacementAttempt(session, statement, job, only_pipeline=True).run(open_nodes)
        return placed

    def _check_solution(
        self, scenario: GrowingScenario, statement: KaiStatement, victims: Sequence[PodInfo]
    ) -> SolverSolution | None:
        if not self._is_allowed(scenario):
            statement.discard()
            return None
        gone = [task for task in victims if task.status is KaiPodStatus.RELEASING]
        gone += [task for task in victims if task.status is KaiPodStatus.PIPELINED]
        return SolverSolution(gone, _partial_jobs(gone, scenario), statement)


def _partial_jobs(tasks: Sequence[PodInfo], scenario: GrowingScenario) -> list[PodGroupInfo]:
    """The partial jobs that the tasks were added with, each once."""
    jobs: list[PodGroupInfo] = []
    for task in tasks:
        group = scenario.partial_job_of(task)
        if group is not None and all(group is not known for known in jobs):
            jobs.append(group)
    return jobs


def _partial_job(job: PodGroupInfo, tasks: Sequence[PodInfo]) -> PodGroupInfo:
    """The job with only these tasks, all of which must be placed."""
    part = job.partial_job(tasks)
    for pod_set in part.pod_sets.values():
        if pod_set.tasks:
            pod_set.minimum = len(pod_set.tasks)
    return part


class FailedJobs:
    """Skips jobs that cannot fit because a smaller equivalent job failed; off if `enabled` is False. Mutates.

    Keeps the smallest failed job for each `scheduling_constraints_signature`.
    """

    def __init__(self, enabled: bool) -> None:
        self._enabled = enabled
        self._smallest: dict[Hashable, PodGroupInfo] = {}

    def has_failed_before(self, job: PodGroupInfo) -> bool:
        """True if an equivalent job that requests no more has failed already."""
        if not self._enabled or not self._smallest:
            return False
        failed = self.smallest_equivalent(job)
        return failed is not None and not is_easier(job, failed)

    def smallest_equivalent(self, job: PodGroupInfo) -> PodGroupInfo | None:
        """The smallest failed job with the same constraints; None if there is none."""
        return self._smallest.get(scheduling_constraints_signature(job))

    def add(self, job: PodGroupInfo) -> None:
        """Record that the job failed."""
        if not self._enabled:
            return
        key = scheduling_constraints_signature(job)
        failed = self._smallest.get(key)
        if failed is None or is_no_larger(job, failed):
            self._smallest[key] = job


def is_easier(job: PodGroupInfo, failed: PodGroupInfo) -> bool:
    """True if the job has fewer pending tasks than the failed one, or one that requests less."""
    tasks, others = job.pending_tasks, failed.pending_tasks
    if not tasks or not others:
        return False
    if len(others) > len(tasks):
        return True
    for mine, theirs in zip(_sorted_by_request(tasks), _sorted_by_request(others), strict=False):
        if mine.is_within(theirs) and not theirs.is_within(mine):
            return True
    return False


def is_no_larger(job: PodGroupInfo, failed: PodGroupInfo) -> bool:
    """True if the job has no more pending tasks than the failed one, and none requests more."""
    tasks, others = job.pending_tasks, failed.pending_tasks
    if not tasks or not others or len(tasks) > len(others):
        return False
    return all(
        mine.is_within(theirs)
        for mine, theirs in zip(_sorted_by_request(tasks), _sorted_by_request(others), strict=False)
    )


def _sorted_by_request(tasks: Sequence[PodInfo]) -> list[ResourceRequirements]:
    """Requests from small to large, as far as they can be compared."""
    rising: list[ResourceRequirements] = []
    for task in tasks:
        at = next((i for i, other in enumerate(rising) if task.request.is_within(other)), len(rising))
        rising.insert(at, task.request)
    return rising


def scheduling_constraints_signature(job: PodGroupInfo) -> Hashable:
    """Key of the constraints of the job's tasks that are not placed; equal for jobs that fit the same nodes."""
    return tuple(sorted(filter(None, (_pod_set_signature(pod_set) for pod_set in job.pod_sets.values())), key=repr))


def _pod_set_signature(pod_set: PodSetInfo) -> tuple[object, ...]:
    tasks = [task for task in pod_set.tasks.values() if task.status not in ACTIVE_ALLOCATED]
    if not tasks:
        return ()
    constraints: list[object] = [pod_set.constraint]
    parent: SubGroup | None = pod_set.parent
    while parent is not None:
        constraints.append(parent.constraint)
        parent = parent.parent
    return (*constraints, *sorted((_task_signature(task) for task in tasks), key=repr))


def _task_signature(task: PodInfo) -> Hashable:
    spec, template = task.spec, task.spec.pod.template
    return (
        tuple(sorted(spec.node_selector.items())),
        spec.affinity,
        *(_hashable(template.pod_affinity), _hashable(template.pod_anti_affinity)),
        *(template.volumes, template.resource_claims, host_ports(template)),
        tuple((t.key, t.operator, t.value, t.effect) for t in spec.tolerations),
        spec.priority_class,
        spec.priority,
    )


def _hashable(wish: PodAffinity | None) -> bytes:
    """A hashable form of pod affinity, whose label selectors are not hashable."""
    return b"" if wish is None else msgspec.json.encode(wish, order="deterministic")

"""Scenarios of victims, and filters that reject hopeless ones: node affinity and free GPUs (KAI 0.13 solvers).

A set of victims tried together for a job, by job and by node (KAI 0.13 solvers/scenario).

Scenario filter by node affinity: rejects scenarios in which no candidate node matches a task (KAI 0.13).

Scenario filters by GPU count, per node and per topology domain (KAI 0.13 scenario filters).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from gpuconsole.model.cluster import Node
from gpuconsole.scheduling.kai.api.jobs import PodGroupInfo, SubGroup
from gpuconsole.scheduling.kai.api.nodes import KaiNodeInfo, node_matches
from gpuconsole.scheduling.kai.api.tasks import PodInfo
from gpuconsole.scheduling.kai.functions import VictimJob
from gpuconsole.scheduling.kai.session import KaiSession


class GrowingScenario:
    """Recorded victims, needed by earlier tasks of the job, and potential ones. Mutates."""

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
            self._take(list(job.tasks()))

    def add(self, tasks: Sequence[PodInfo]) -> None:
        """Add these tasks, of one job, as potential victims."""
        if not tasks:
            return
        self.potential += tasks
        self._take(tasks)
        for task in tasks:
            jobs = self._jobs_on.setdefault(task.node, [])
            if task.job not in jobs:
                jobs.append(task.job)

    def _take(self, tasks: Sequence[PodInfo]) -> None:
        job = self._session.jobs[tasks[0].job]
        self.groups.setdefault(job.uid, []).append(job.part(tasks))
        known = self._victims.get(job.uid)
        self._victims[job.uid] = VictimJob(job, [*(known.tasks if known else ()), *tasks])

    def victims(self) -> Mapping[str, VictimJob]:
        """All victims by job."""
        return self._victims

    @property
    def latest(self) -> PodGroupInfo | None:
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

    def group_of(self, task: PodInfo) -> PodGroupInfo | None:
        """The partial job that the victim was added with; None if it is not a victim of the scenario."""
        return next((g for g in self.groups.get(task.job, ()) if any(t.uid == task.uid for t in g.tasks())), None)


class AffinityFilter:
    """Checks node affinity against the feasible nodes and the nodes of all victims so far. Mutates."""

    def __init__(self, nodes: Mapping[str, Node], feasible: Mapping[str, KaiNodeInfo]) -> None:
        self._all = nodes
        self._open = {name: node.node for name, node in feasible.items()}

    @classmethod
    def of(
        cls, scenario: GrowingScenario, session: KaiSession, feasible: Mapping[str, KaiNodeInfo]
    ) -> AffinityFilter | None:
        """The filter for a job; None if the job has no node affinity."""
        if not any(_choosy(task) for task in scenario.pending):
            return None
        return cls({name: node.node for name, node in session.nodes.items()}, feasible)

    def could_do(self, scenario: GrowingScenario) -> bool:
        """False if a pending task with node affinity matches none of these nodes."""
        for task in (*scenario.potential, *scenario.recorded):
            if task.node in self._all:
                self._open.setdefault(task.node, self._all[task.node])
        return all(
            any(node_matches(task.spec, node) for node in self._in_question(task))
            for task in scenario.pending
            if _choosy(task)
        )

    def _in_question(self, task: PodInfo) -> Iterable[Node]:
        """The nodes to check; for a task that selects nodes by name, all of those (as in NodeAffinity's PreFilter)."""
        named = _named_nodes(task)
        if named is None:
            return self._open.values()
        return [self._all[name] for name in sorted(named) if name in self._all]


def _choosy(task: PodInfo) -> bool:
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
_NOT_GROWN = (
    "accumulatedIdleGpus requires all the filters scenarios using the same instance to be based on the same scenario"
    " with accumulation of potential victims. "
)
Domain = tuple[str, str, str]
"""Topology, level, and the value of the level's label."""


def free_gpus(node: KaiNodeInfo) -> float:
    """Idle and releasing GPUs of a node."""
    return node.idle_gpus() + node.releasing_gpus()


def match_greedily(needs: Sequence[float], holders: Sequence[T], capacity: Callable[[T], float]) -> bool:
    """True if every need, taken in turn, finds a holder with enough capacity left; it gets the first one.

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


def _freed(task: PodInfo) -> float:
    return task.accepted.gpus + task.accepted.claimed


class NotGrown(Exception):
    """The scenario does not extend the previous one, so the filter's counts do not apply."""


class IdleGpus:
    """Checks that single nodes have enough free GPUs for every pending task, counting GPUs of victims. Mutates.

    Only as many nodes count as there are tasks.
    """

    def __init__(self, free: Mapping[str, float], pending: Iterable[str], nodes: int) -> None:
        self.free = dict(free)
        self.best = sorted(self.free, key=lambda name: -self.free[name])[:nodes]
        """The nodes that count, the one with the most free GPUs first."""
        self._pending = frozenset(pending)
        self.recorded: set[str] = set()
        self.potential: set[str] = set()

    @classmethod
    def of(cls, scenario: GrowingScenario, session: KaiSession) -> IdleGpus:
        """The filter for a scenario's job."""
        free = {name: free_gpus(node) for name, node in session.nodes.items()}
        found = cls(free, (task.uid for task in scenario.pending), len(scenario.pending))
        found.absorb(scenario, first=True)
        return found

    def could_do(self, scenario: GrowingScenario) -> bool:
        """False if the pending tasks cannot get their GPUs. Raises NotGrown."""
        self.absorb(scenario)
        needs = sorted((task.request.gpus + task.request.claimed for task in scenario.pending), reverse=True)
        return match_greedily(needs, self.best, lambda name: self.free[name])

    def absorb(self, scenario: GrowingScenario, first: bool = False) -> None:
        """Add the GPUs of new victims to the free ones. Raises NotGrown."""
        stranger = next((task.uid for task in scenario.pending if task.uid not in self._pending), None)
        if stranger is not None:
            where = "in the scenario given at the AccumulatedIdleGpus ctor"
            raise NotGrown(f"{_NOT_GROWN}The pending task {stranger} didn't appear {where}")
        known = len(self.recorded)
        hits = self._take(scenario.recorded, self.recorded)
        if not first and not known == hits == len(self.recorded):
            raise NotGrown(
                f"{_NOT_GROWN}The recorded victims should remain the same between the different scenario filtering."
                f" {hits} cache hits, pre update recorded tasks seen {known},"
                f" post update recorded tasks seen {len(self.recorded)}"
            )
        known = len(self.potential)
        hits = self._take(scenario.potential, self.potential)
        if hits != known:
            raise NotGrown(
                f"{_NOT_GROWN}The list of potential victims for the current scenario should contain the previous list"
                f" of potential victims. Only {hits} out {known} tasks are the contained in the current scenario"
            )

    def _take(self, victims: Iterable[PodInfo], seen: set[str]) -> int:
        """Add the GPUs of new victims to the free ones; returns how many victims were seen before."""
        hits = 0
        for task in victims:
            if task.uid in seen:
                hits += 1
            elif task.node:
                seen.add(task.uid)
                self.free_up(task.node, _freed(task))
        return hits

    def free_up(self, node: str, gpus: float) -> None:
        """Add GPUs that a victim would free on the node."""
        least = self.free[self.best[-1]] if self.best else 0.0
        self.free[node] = self.free.get(node, 0) + gpus
        if not self.best or self.free[node] <= least:
            return
        if node not in self.best:
            self.best[-1] = node
        self.best.sort(key=lambda name: -self.free[name])


class DomainGpus:
    """Checks that single domains have enough free GPUs for every sub-group with a required level. Mutates."""

    def __init__(self, session: KaiSession, groups: Sequence[SubGroup]) -> None:
        self._needs: dict[tuple[str, str], list[float]] = {}
        for group in groups:
            if group.constraint is not None:
                key = (group.constraint.topology, group.constraint.required)
                self._needs.setdefault(key, []).append(_gpus_of(group))
        self._free: dict[Domain, float] = {}
        self._domains_of: dict[str, list[Domain]] = {}
        for name, node in session.nodes.items():
            for topology, level in self._needs:
                value = node.node.labels.get(level, "")
                if value:
                    domain = (topology, level, value)
                    self._free[domain] = self._free.get(domain, 0) + free_gpus(node)
                    self._domains_of.setdefault(name, []).append(domain)
        self.seen: set[str] = set()

    @classmethod
    def of(cls, scenario: GrowingScenario, session: KaiSession) -> DomainGpus | None:
        """The filter for a job; None if no sub-group has to stay in one domain."""
        groups = [g for g in _groups(scenario.preemptor.root) if g.constraint is not None and g.constraint.required]
        return cls(session, groups) if groups else None

    def could_do(self, scenario: GrowingScenario) -> bool:
        """False if a sub-group finds no domain with enough GPUs; GPUs of victims count as free."""
        for task in (*scenario.recorded, *scenario.potential):
            if task.node and task.uid not in self.seen:
                self.seen.add(task.uid)
                for domain in self._domains_of.get(task.node, ()):
                    self._free[domain] += _freed(task)
        return all(self._fit(topology, level, needs) for (topology, level), needs in self._needs.items())

    def _fit(self, topology: str, level: str, needs: Sequence[float]) -> bool:
        domains = sorted((d for d in self._free if d[:2] == (topology, level)), key=lambda d: -self._free[d])
        return match_greedily(sorted(needs, reverse=True), domains, lambda domain: self._free[domain])


def _groups(group: SubGroup) -> Iterator[SubGroup]:
    yield group
    for child in group.groups:
        yield from _groups(child)


def _gpus_of(group: SubGroup) -> float:
    return sum(
        task.request.gpus + task.request.claimed
        for pod_set in group.all_pod_sets().values()
        for task in pod_set.tasks.values()
    )

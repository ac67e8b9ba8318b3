"""Scenarios that cannot do for want of GPUs, by node and by topology domain (KAI 0.13 scenario filters)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from gpuconsole.scheduling.kai.api.nodes import NodeState
from gpuconsole.scheduling.kai.api.pod_sets import SubGroup
from gpuconsole.scheduling.kai.api.tasks import Task
from gpuconsole.scheduling.kai.session import Session
from gpuconsole.scheduling.kai.solving.scenario import GrowingScenario

T = TypeVar("T")
Domain = tuple[str, str, str]
"""Topology, level, and the value of the level's label."""


def free_gpus(node: NodeState) -> float:
    return node.idle_gpus() + node.releasing_gpus()


def match_greedily(needs: Sequence[float], holders: Sequence[T], capacity: Callable[[T], float]) -> bool:
    """True if the needs, falling, go one by one into the first of the holders, falling too, that has room left."""
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


def _freed(task: Task) -> float:
    return task.accepted.gpus + task.accepted.claimed


class IdleGpus:
    """Enough GPUs free on single nodes for every pending task? Only as many nodes count as there are tasks. Mutates."""

    def __init__(self, free: Mapping[str, float], needs: Iterable[float]) -> None:
        self.free = dict(free)
        self._needs = sorted(needs, reverse=True)
        self.best = sorted(self.free, key=lambda name: -self.free[name])[: len(self._needs)]
        """The nodes that count, the one with the most free GPUs first."""
        self.seen: set[str] = set()

    @classmethod
    def of(cls, scenario: GrowingScenario, session: Session) -> IdleGpus:
        """The filter for a scenario's job."""
        free = {name: free_gpus(node) for name, node in session.nodes.items()}
        return cls(free, (task.request.gpus + task.request.claimed for task in scenario.pending))

    def could_do(self, scenario: GrowingScenario) -> bool:
        self.absorb(scenario)
        return match_greedily(self._needs, self.best, lambda name: self.free[name])

    def absorb(self, scenario: GrowingScenario) -> None:
        """Count the GPUs of victims that were not seen yet."""
        for task in (*scenario.recorded, *scenario.potential):
            if task.node and task.uid not in self.seen:
                self.seen.add(task.uid)
                self.free_up(task.node, _freed(task))

    def free_up(self, node: str, gpus: float) -> None:
        """A victim would leave so many GPUs of the node."""
        least = self.free[self.best[-1]] if self.best else 0.0
        self.free[node] = self.free.get(node, 0) + gpus
        if not self.best or self.free[node] <= least:
            return
        if node not in self.best:
            self.best[-1] = node
        self.best.sort(key=lambda name: -self.free[name])


class DomainGpus:
    """Enough GPUs free in single domains for every sub-group that must stay in one? Mutates."""

    def __init__(self, session: Session, groups: Sequence[SubGroup]) -> None:
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
    def of(cls, scenario: GrowingScenario, session: Session) -> DomainGpus | None:
        """The filter for a job; None if no sub-group has to stay in one domain."""
        groups = [g for g in _groups(scenario.preemptor.root) if g.constraint is not None and g.constraint.required]
        return cls(session, groups) if groups else None

    def could_do(self, scenario: GrowingScenario) -> bool:
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

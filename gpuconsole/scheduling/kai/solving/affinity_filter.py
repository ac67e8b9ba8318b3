"""Scenario filter by node affinity: rejects scenarios in which no candidate node matches a task (KAI 0.13)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gpuconsole.model.cluster import Node
from gpuconsole.scheduling.kai.api.nodes import KaiNodeInfo
from gpuconsole.scheduling.kai.api.tasks import PodInfo
from gpuconsole.scheduling.kai.matching import node_matches
from gpuconsole.scheduling.kai.session import KaiSession
from gpuconsole.scheduling.kai.solving.scenario import GrowingScenario


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

"""topology plugin: keeps a sub-group's tasks in one domain of a level, or as close as possible (KAI 0.13)."""

import math
from collections.abc import Hashable, Mapping, Sequence

from gpuconsole.scheduling.kai.api.errors import POD_ERRORS, JobError
from gpuconsole.scheduling.kai.api.jobs import PodGroupInfo
from gpuconsole.scheduling.kai.api.nodes import KaiNodeInfo
from gpuconsole.scheduling.kai.api.pod_sets import PodSetInfo, SubGroup, TopologyConstraint
from gpuconsole.scheduling.kai.api.requests import PortionsDiffer
from gpuconsole.scheduling.kai.api.statuses import ACTIVE_ALLOCATED
from gpuconsole.scheduling.kai.api.tasks import DEFAULT_POD_SET, PodInfo
from gpuconsole.scheduling.kai.api.topologies import TopologyInfo
from gpuconsole.scheduling.kai.conf import KaiPluginArguments
from gpuconsole.scheduling.kai.functions import NodeSet, NoNodes, NoScore, Scorer
from gpuconsole.scheduling.kai.plugins import scores
from gpuconsole.scheduling.kai.plugins.topology_fit import Counting, countable, misfit, total_of
from gpuconsole.scheduling.kai.plugins.topology_tree import (
    ROOT,
    TopologyDomainInfo,
    TopologyTree,
    common_domain,
    narrow_first,
    of_level,
    sort_tree,
)
from gpuconsole.scheduling.kai.session import KaiSession


class TopologyAware:
    """Registers the choice of domains; keeps the session's trees, and node scores by preferred level. Mutates."""

    def __init__(self, arguments: KaiPluginArguments) -> None:
        self.trees: dict[str, TopologyTree] = {}
        self._scores: dict[str, dict[str, float]] = {}
        self._scored = 0
        """Number of times that scores were computed; part of the key under which rankings are cached."""

    def open(self, session: KaiSession) -> None:
        self._session = session
        self.trees = {topology.name: TopologyTree(topology, session.nodes.values()) for topology in session.topologies}
        session.functions.subsets.append(self.subsets)
        session.functions.node_order.append(Scorer("topology", 10 * scores.TOPOLOGY, self._score))
        session.functions.standing.append(self._standing)
        session.functions.before_job.append(lambda job: self._scores.clear())

    def subsets(
        self,
        job: PodGroupInfo,
        group: SubGroup | PodSetInfo,
        pod_sets: Mapping[str, PodSetInfo],
        tasks: Sequence[PodInfo],
        nodes: NodeSet,
    ) -> list[NodeSet]:
        """The nodes of every domain that fits the group, the narrowest and fullest first. Raises NoNodes.

        All nodes without a topology constraint or without tasks.
        """
        constraint = group.constraint
        if constraint is None or not constraint.topology:
            return [nodes]
        tree = self.trees.get(constraint.topology)
        if tree is None:
            _note(job, f"Requested topology {constraint.topology} does not exist")
            return []
        if not tasks:
            return [nodes]
        key, level, valid = common_domain(nodes, tree.topology.levels, constraint)
        domain = tree.levels.get(level, {}).get(key)
        if domain is None:
            raise NoNodes(f"domain not found for node set in topology {constraint.topology}")
        return self._split(job, group, constraint, pod_sets, tasks, tree, domain, valid)

    def _split(
        self,
        job: PodGroupInfo,
        group: SubGroup | PodSetInfo,
        constraint: TopologyConstraint,
        pod_sets: Mapping[str, PodSetInfo],
        tasks: Sequence[PodInfo],
        tree: TopologyTree,
        domain: TopologyDomainInfo,
        valid: Mapping[str, KaiNodeInfo],
    ) -> list[NodeSet]:
        tree.forget()
        domain.sum_up()
        if countable(tasks):
            try:
                Counting(tasks).count(domain)
            except PortionsDiffer as problem:
                raise NoNodes(str(problem)) from None
        needs = total_of(tasks)
        if misfit(domain, needs, len(tasks), group.name) is not None:
            where = "the cluster" if domain.key == ROOT else domain.key
            _note(job, no_match(job, group, constraint, f": not enough resources in {where} to allocate the job"))
            return []
        sort_tree(needs, domain, constraint.preferred or constraint.required)
        if constraint.preferred:
            self._scores[group.name] = node_scores(domain, constraint.preferred)
            self._scored += 1
        found = self._domains(job, group, constraint, pod_sets, tasks, tree)
        ordered = [d for d in narrow_first(tree.root) if any(d is candidate for candidate in found)]
        return [[node for name, node in sorted(d.nodes.items()) if name in valid] for d in ordered]

    def _domains(
        self,
        job: PodGroupInfo,
        group: SubGroup | PodSetInfo,
        constraint: TopologyConstraint,
        pod_sets: Mapping[str, PodSetInfo],
        tasks: Sequence[PodInfo],
        tree: TopologyTree,
    ) -> list[TopologyDomainInfo]:
        """The domains of the eligible levels that fit the tasks; if none does, the reasons are added to the job."""
        levels = levels_in_question(constraint, group.name, tree.topology)
        candidates = tree.levels
        if constraint.required and any(pod_set.active_allocated for pod_set in pod_sets.values()):
            candidates = with_pods(tree, constraint.required, pod_sets)
        needs = total_of(tasks)
        found, misfits = [], []
        for level in levels:
            for _, domain in sorted(candidates.get(level, {}).items()):
                error = misfit(domain, needs, len(tasks), group.name)
                if error is None:
                    found.append(domain)
                elif level == levels[-1]:
                    misfits.append(error)
        if not found:
            job.errors += misfits
            _note(job, no_match(job, group, constraint))
        return found

    def _standing(self, task: PodInfo) -> Hashable:
        return (self._scored, task.job, task.set_name) if self._scores else None

    def _score(self, task: PodInfo, node: KaiNodeInfo) -> float:
        if not self._scores:
            return 0
        pod_set = self._session.jobs[task.job].pod_sets.get(task.set_name)
        group: PodSetInfo | SubGroup | None = pod_set
        while group is not None:
            if group.name in self._scores:
                known = self._scores[group.name]
                if node.name not in known:
                    raise NoScore(node.name)
                return known[node.name]
            group = group.parent
        return 0


def levels_in_question(constraint: TopologyConstraint, group: str, topology: TopologyInfo) -> list[str]:
    """Levels from the preferred one up to the required one, else to the root. Raises NoNodes for unknown levels.

    Without a preferred level, only the required one.
    """
    if not constraint.required and not constraint.preferred:
        name = topology.name
        raise NoNodes(f"no topology constraints were found for subgroup {group}, with topology name {name}")
    levels = [*reversed(topology.levels), ROOT]
    if constraint.required:
        if constraint.required not in levels:
            raise NoNodes(_unknown(group, topology, "required", constraint.required))
        levels = levels[: levels.index(constraint.required) + 1]
    if not constraint.preferred:
        return levels[-1:]
    if constraint.preferred not in levels:
        # The level does not exist, or is wider than the required one.
        raise NoNodes(_unknown(group, topology, "preferred", constraint.preferred))
    return levels[levels.index(constraint.preferred) :]


def _unknown(group: str, topology: TopologyInfo, kind: str, level: str) -> str:
    who = "workload" if group == DEFAULT_POD_SET else f"sub-group {group}"
    return (
        f"topology constraint error: {who} specified '{level}' as the {kind} topology constraint level, but the"
        f" topology tree '{topology.name}' does not contain a level with this name"
    )


def with_pods(
    tree: TopologyTree, required: str, pod_sets: Mapping[str, PodSetInfo]
) -> dict[str, dict[str, TopologyDomainInfo]]:
    """The domains of the required level that have placed tasks of the group, and all domains below them, by level."""
    seats = {task.node for p in pod_sets.values() for task in p.tasks.values() if task.status in ACTIVE_ALLOCATED}
    found: dict[str, dict[str, TopologyDomainInfo]] = {}
    for domain in tree.levels.get(required, {}).values():
        if seats & domain.nodes.keys():
            for below in narrow_first(domain):
                found.setdefault(below.level, {})[below.key] = below
    return found


def node_scores(domain: TopologyDomainInfo, level: str) -> dict[str, float]:
    """Scores of the nodes by their domain of the level: the later it comes in the tree, the higher."""
    domains = list(of_level(domain, level))
    return {
        name: math.floor(rank / len(domains) * 10) * scores.TOPOLOGY
        for rank, found in enumerate(domains, start=1)
        for name in found.nodes
    }


def no_match(job: PodGroupInfo, group: SubGroup | PodSetInfo, constraint: TopologyConstraint, why: str = "") -> str:
    """KAI's text for a topology requirement that no domain satisfies."""
    whose = f"job <{job.namespace}/{job.name}>"
    if group.name not in ("", DEFAULT_POD_SET):
        whose += f", subgroup {group.name}"
    return f"topology {constraint.topology}, requirement {constraint.required} couldn't be satisfied for {whose}{why}"


def _note(job: PodGroupInfo, text: str) -> None:
    job.errors.append(JobError(reason=POD_ERRORS, messages=(text,), sub_group=DEFAULT_POD_SET))

"""topology plugin: keeps a sub-group's tasks in one domain of a level, or as close as possible (KAI 0.13 plugins).

`TopologyTree` has the topology's domains over the nodes of a session. `Counting` counts the tasks that fit a domain,
and `misfit` says why not all do (plugins/topology job_filtering).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence

from gpuconsole.scheduling.kai.api.jobs import PodGroupInfo, PodSetInfo, SubGroup, TopologyConstraint, TopologyInfo
from gpuconsole.scheduling.kai.api.nodes import KaiNodeInfo
from gpuconsole.scheduling.kai.api.resources import (
    PODS,
    PortionsDiffer,
    ResourceAmounts,
    ResourceRequirements,
    largest_request,
)
from gpuconsole.scheduling.kai.api.tasks import ACTIVE_ALLOCATED, DEFAULT_POD_SET, PodInfo
from gpuconsole.scheduling.kai.config import KaiPluginArguments
from gpuconsole.scheduling.kai.functions import NodeSet, NoNodes, NoScore, Scorer
from gpuconsole.scheduling.kai.messages import POD_ERRORS, TOO_FEW, JobError, digits
from gpuconsole.scheduling.kai.plugins.node_scores import TOPOLOGY
from gpuconsole.scheduling.kai.session import KaiSession

ROOT = "root"
_NOT_THERE = 1000.0


class TopologyDomainInfo:
    """A topology domain such as a rack, or the root: its nodes, the domains below, and what fits. Mutates."""

    def __init__(self, key: str, level: str) -> None:
        self.key, self.level = key, level
        self.children: list[TopologyDomainInfo] = []
        self.nodes: dict[str, KaiNodeInfo] = {}
        self.pods: int | None = None
        """How many of the tasks fit; None if that was not counted."""
        self.free = ResourceAmounts()

    def add_child(self, child: TopologyDomainInfo) -> None:
        """Add a domain below, unless it is there."""
        if all(known.key != child.key for known in self.children):
            self.children.append(child)

    def forget(self) -> None:
        """Delete the results of counting pods and summing up free resources."""
        self.pods, self.free = None, ResourceAmounts()

    def sum_up(self) -> ResourceAmounts:
        """Add up idle and releasing resources in the domain and in those below."""
        if self.children:
            for child in self.children:
                self.free.add(child.sum_up())
        else:
            for node in self.nodes.values():
                self.free.add(node.idle)
                self.free.add(node.releasing)
        return self.free


class TopologyTree:
    """The domains of one topology over the session's nodes, by level and key. Mutates.

    The key has the labels' values from the widest level down, joined by dots.
    """

    def __init__(self, topology: TopologyInfo, nodes: Iterable[KaiNodeInfo]) -> None:
        self.topology = topology
        self.root = TopologyDomainInfo(ROOT, ROOT)
        self.levels: dict[str, dict[str, TopologyDomainInfo]] = {ROOT: {ROOT: self.root}}
        for node in nodes:
            if labelled(node.node.labels, topology.levels):
                self._add(node)

    def _add(self, node: KaiNodeInfo) -> None:
        values = [node.node.labels[level] for level in self.topology.levels]
        parent = self.root
        parent.nodes[node.name] = node
        for depth, level in enumerate(self.topology.levels, start=1):
            key = ".".join(values[:depth])
            domain = self.levels.setdefault(level, {}).setdefault(key, TopologyDomainInfo(key, level))
            domain.nodes[node.name] = node
            parent.add_child(domain)
            parent = domain

    def forget(self) -> None:
        """Delete the counts of every domain."""
        for domains in self.levels.values():
            for domain in domains.values():
                domain.forget()


def labelled(labels: Mapping[str, str], levels: Sequence[str]) -> bool:
    """True if a node has the label of every level."""
    return all(level in labels for level in levels)


def common_domain(
    nodes: Sequence[KaiNodeInfo], levels: Sequence[str], constraint: TopologyConstraint
) -> tuple[str, str, dict[str, KaiNodeInfo]]:
    """The narrowest domain, no narrower than the preferred level, that contains all nodes.

    Returns its key and level, and the nodes that have the labels of all levels.
    """
    valid = {node.name: node for node in nodes if labelled(node.node.labels, levels)}
    parts: list[str] = []
    for level in levels:
        values = {node.node.labels[level] for node in valid.values()}
        if len(values) != 1 or "" in values:
            break
        parts += values
        if constraint.preferred == level:
            break
    if not parts:
        return ROOT, ROOT, valid
    return ".".join(parts), levels[len(parts) - 1], valid


def sort_tree(needs: ResourceAmounts, domain: TopologyDomainInfo, deepest: str) -> None:
    """Sort the domains below, down to the level `deepest`, so that those with the least free resources come first."""
    if not deepest:
        return
    domain.children.sort(key=lambda child: (-ratio(needs, child), child.key))
    if domain.level != deepest:
        for child in domain.children:
            sort_tree(needs, child, deepest)


def ratio(needs: ResourceAmounts, domain: TopologyDomainInfo) -> float:
    """How full `needs` would make a domain: the largest ratio to its free amounts, over all resources but pods.

    1000 for a resource of which nothing is free, infinite for GPUs.
    """
    if needs.within(ResourceAmounts()):
        return 0.0
    free = domain.free
    most = 0.0
    if needs.gpus > 0:
        most = needs.gpus / free.gpus if free.gpus else math.inf
    asked = {"cpu": needs.cpu, **needs.scalars}
    for name, amount in asked.items():
        if name != PODS:
            most = max(most, _part(math.ceil(amount / 1000), math.ceil(free.get(name) / 1000)))
    return max(most, _part(int(needs.memory), int(free.memory)))


def _part(asked: int, free: int) -> float:
    if asked == 0:
        return 0.0
    return asked / free if free else _NOT_THERE


def narrow_first(root: TopologyDomainInfo) -> list[TopologyDomainInfo]:
    """All domains, level by level from the narrowest up, in the order of the tree."""
    levels = [[root]]
    while below := [child for domain in levels[-1] for child in domain.children]:
        levels.append(below)
    return [domain for level in reversed(levels) for domain in level]


def of_level(domain: TopologyDomainInfo, level: str) -> Iterator[TopologyDomainInfo]:
    """The domains of a level at or below a domain, in the order of the tree."""
    if domain.level == level:
        yield domain
        return
    for child in domain.children:
        yield from of_level(child, level)


_ONE_POD = ResourceRequirements(scalars={PODS: 1})


def total_of(tasks: Sequence[PodInfo]) -> ResourceAmounts:
    """Total request of the tasks."""
    total = ResourceAmounts()
    for task in tasks:
        total.add_request(task.request)
    return total


def countable(tasks: Sequence[PodInfo]) -> bool:
    """True if it makes sense to count the tasks by the largest request: same resources, and all or none with GPUs."""
    with_gpus = sum(task.request.gpus > 0 for task in tasks)
    if with_gpus not in (0, len(tasks)):
        return False
    counts = Counter(name for task in tasks for name in task.request.scalars)
    return all(count == len(tasks) for count in counts.values())


class Counting:
    """Counts how many pods fit nodes and domains, each with the tasks' largest request. Mutates: it caches sums."""

    def __init__(self, tasks: Sequence[PodInfo]) -> None:
        """Raises PortionsDiffer if tasks request different fractions of a GPU."""
        self._tasks = len(tasks)
        largest = ResourceRequirements()
        for task in tasks:
            largest = largest_request(largest, task.request)
        self._largest = largest
        self._of = [largest]

    def count(self, domain: TopologyDomainInfo) -> int:
        """Count, and set in each domain, the pods that fit this domain and those below."""
        domain.pods = (
            sum(map(self.count, domain.children)) if domain.children else sum(map(self.on_node, domain.nodes.values()))
        )
        return domain.pods

    def on_node(self, node: KaiNodeInfo) -> int:
        """How many pods fit the node's free resources; all tasks if they request nothing but a pod."""
        if self._largest.within(_ONE_POD):
            return self._tasks
        free, pods = node.free(), 0
        while node.fits_by_devices(self._request(pods), free):
            pods += 1
        return pods

    def _request(self, more: int) -> ResourceRequirements:
        while len(self._of) <= more:
            self._of.append(_together(self._of[-1], self._largest))
        return self._of[more]


def _together(some: ResourceRequirements, one: ResourceRequirements) -> ResourceRequirements:
    """The request of one more pod on top of some; MIG requests keep their GPU count."""
    scalars = {name: some.scalars.get(name, 0) + n for name, n in one.scalars.items()}
    cpu, memory = some.cpu + one.cpu, some.memory + one.memory
    if some.mig:
        mig = {name: some.mig.get(name, 0) + n for name, n in one.mig.items()}
        return ResourceRequirements(
            cpu=cpu, memory=memory, scalars=scalars, count=some.count, portion=some.portion, mig=mig
        )
    count = some.count + one.count
    return ResourceRequirements(
        cpu=cpu, memory=memory, scalars=scalars, count=count, portion=some.portion, gpu_memory=some.gpu_memory
    )


def misfit(domain: TopologyDomainInfo, needs: ResourceAmounts, tasks: int, group: str) -> JobError | None:
    """Why the tasks do not fit the domain, by counted pods or else by free resources; None if they do."""
    if domain.pods is None:
        return None if ratio(needs, domain) <= 1 else _too_little(domain, needs, group)
    if domain.pods >= tasks:
        return None
    text = f"node-group {domain.key} can allocate only {domain.pods} of {tasks} required pods"
    return JobError(reason=TOO_FEW, messages=(text,), sub_group=group, domain=domain.key)


def _too_little(domain: TopologyDomainInfo, needs: ResourceAmounts, group: str) -> JobError:
    short, full = [], []
    where, free = domain.key, domain.free
    if needs.mig:
        for name, count in needs.mig.items():
            if free.scalars.get(name, 0) < count:
                has = free.scalars.get(name, 0)
                full.append(f"{where} didn't have enough resource: {name}, requested: {count}, available: {has}")
                short.append(f"node-group(s) didn't have enough of mig profile: {name}")
    elif needs.gpus > free.gpus:
        numbers = f"requested: {needs.gpus:.3g}, available: {free.gpus:.3g}"
        full.append(f"{where} didn't have enough resource: GPUs, {numbers}")
        short.append("node-group(s) didn't have enough resources: GPUs")
    plain = (("CPU cores", needs.cpu, free.cpu, 1000.0), ("memory", needs.memory, free.memory, 1e9))
    for name, asked, left, unit in plain:
        if int(asked) > int(left):
            amounts = f"requested: {digits(asked / unit)}, available: {digits(left / unit)}"
            full.append(f"{where} didn't have enough resources: {name}, {amounts}")
            short.append(f"node-group(s) didn't have enough resources: {name}")
    for name, count in needs.scalars.items():
        if free.scalars.get(name, 0) < count:
            has = free.scalars.get(name, 0)
            full.append(f"{where} didn't have enough resource: {name}, requested: {count}, available: {has}")
            short.append(f"node-group(s) didn't have enough resources: {name}")
    return JobError(reason=TOO_FEW, messages=tuple(short), details=tuple(full), sub_group=group, domain=domain.key)


class TopologyAware:
    """topology plugin: chooses domains, and scores nodes by preferred level. Mutates: keeps the session's trees."""

    def __init__(self, arguments: KaiPluginArguments) -> None:
        self.trees: dict[str, TopologyTree] = {}
        self._scores: dict[str, dict[str, float]] = {}
        self._scored = 0
        """Number of times that scores were computed; part of the key under which rankings are cached."""

    def open(self, session: KaiSession) -> None:
        self._session = session
        self.trees = {topology.name: TopologyTree(topology, session.nodes.values()) for topology in session.topologies}
        session.functions.subsets.append(self.subsets)
        session.functions.node_order.append(Scorer("topology", 10 * TOPOLOGY, self._score))
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
        """The node sets on which a group may be placed: one for each fitting domain, the narrowest and fullest first.

        All nodes without a topology constraint or without tasks. Raises NoNodes.
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
    """Domains of the required level in which the group has placed tasks, and all domains below them, by level."""
    seats = {task.node for p in pod_sets.values() for task in p.tasks.values() if task.status in ACTIVE_ALLOCATED}
    found: dict[str, dict[str, TopologyDomainInfo]] = {}
    for domain in tree.levels.get(required, {}).values():
        if seats & domain.nodes.keys():
            for below in narrow_first(domain):
                found.setdefault(below.level, {})[below.key] = below
    return found


def node_scores(domain: TopologyDomainInfo, level: str) -> dict[str, float]:
    """Score by node name: the later the node's domain of the level comes in the tree, the higher."""
    domains = list(of_level(domain, level))
    return {
        name: math.floor(rank / len(domains) * 10) * TOPOLOGY
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

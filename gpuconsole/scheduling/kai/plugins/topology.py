"""topology plugin: keeps a sub-group's tasks in one domain of a level, or as close as possible (KAI 0.13 plugins).

`TopologyTree` has the topology's domains over the nodes of a session. `FittingPodCounter` counts the tasks that fit a
domain, and `domain_misfit` says why not all do (plugins/topology job_filtering).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence

from gpuconsole.scheduling.kai.api.jobs import PodGroupInfo, PodSetInfo, SubGroup, TopologyConstraint, TopologyInfo
from gpuconsole.scheduling.kai.api.nodes import KaiNodeInfo
from gpuconsole.scheduling.kai.api.tasks import (
    ACTIVE_ALLOCATED,
    DEFAULT_POD_SET,
    PODS,
    DifferentGpuPortions,
    PodInfo,
    ResourceAmounts,
    ResourceRequirements,
    largest_request,
)
from gpuconsole.scheduling.kai.config import KaiPluginArguments
from gpuconsole.scheduling.kai.functions import CannotScore, NodeScorer, NodeSet, NoSuitableNodes
from gpuconsole.scheduling.kai.messages import NOT_ENOUGH_PODS, POD_ERRORS, JobError, format_decimals
from gpuconsole.scheduling.kai.plugins.node_scores import TOPOLOGY
from gpuconsole.scheduling.kai.session import KaiSession

ROOT = "root"
_MISSING_RESOURCE_RATIO = 1000.0


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

    def clear_counts(self) -> None:
        """Delete the results of counting pods and summing up free resources."""
        self.pods, self.free = None, ResourceAmounts()

    def sum_free(self) -> ResourceAmounts:
        """Add up idle and releasing resources in the domain and in those below."""
        if self.children:
            for child in self.children:
                self.free.add(child.sum_free())
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
            if has_all_levels(node.node.labels, topology.levels):
                self._add_node(node)

    def _add_node(self, node: KaiNodeInfo) -> None:
        values = [node.node.labels[level] for level in self.topology.levels]
        parent = self.root
        parent.nodes[node.name] = node
        for depth, level in enumerate(self.topology.levels, start=1):
            key = ".".join(values[:depth])
            domain = self.levels.setdefault(level, {}).setdefault(key, TopologyDomainInfo(key, level))
            domain.nodes[node.name] = node
            parent.add_child(domain)
            parent = domain

    def clear_counts(self) -> None:
        """Delete the counts of every domain."""
        for domains in self.levels.values():
            for domain in domains.values():
                domain.clear_counts()


def has_all_levels(labels: Mapping[str, str], levels: Sequence[str]) -> bool:
    """True if a node has the label of every level."""
    return all(level in labels for level in levels)


def common_domain(
    nodes: Sequence[KaiNodeInfo], levels: Sequence[str], constraint: TopologyConstraint
) -> tuple[str, str, dict[str, KaiNodeInfo]]:
    """The narrowest domain, no narrower than the preferred level, that contains all nodes.

    Returns its key and level, and the nodes that have the labels of all levels.
    """
    valid = {node.name: node for node in nodes if has_all_levels(node.node.labels, levels)}
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


def sort_tree(request: ResourceAmounts, domain: TopologyDomainInfo, lowest_level: str) -> None:
    """Sort the domains below, down to `lowest_level`, so that those with the least free resources come first."""
    if not lowest_level:
        return
    domain.children.sort(key=lambda child: (-fullness(request, child), child.key))
    if domain.level != lowest_level:
        for child in domain.children:
            sort_tree(request, child, lowest_level)


def fullness(request: ResourceAmounts, domain: TopologyDomainInfo) -> float:
    """How full `request` would make a domain: the largest ratio to its free amounts, over all resources but pods.

    1000 for a resource of which nothing is free, infinite for GPUs.
    """
    if request.is_within(ResourceAmounts()):
        return 0.0
    free = domain.free
    most = 0.0
    if request.gpus > 0:
        most = request.gpus / free.gpus if free.gpus else math.inf
    asked = {"cpu": request.cpu, **request.scalars}
    for name, amount in asked.items():
        if name != PODS:
            most = max(most, _used_ratio(math.ceil(amount / 1000), math.ceil(free.get(name) / 1000)))
    return max(most, _used_ratio(int(request.memory), int(free.memory)))


def _used_ratio(asked: int, free: int) -> float:
    if asked == 0:
        return 0.0
    return asked / free if free else _MISSING_RESOURCE_RATIO


def domains_narrowest_first(root: TopologyDomainInfo) -> list[TopologyDomainInfo]:
    """All domains, level by level from the narrowest up, in the order of the tree."""
    levels = [[root]]
    while below := [child for domain in levels[-1] for child in domain.children]:
        levels.append(below)
    return [domain for level in reversed(levels) for domain in level]


def domains_of_level(domain: TopologyDomainInfo, level: str) -> Iterator[TopologyDomainInfo]:
    """The domains of a level at or below a domain, in the order of the tree."""
    if domain.level == level:
        yield domain
        return
    for child in domain.children:
        yield from domains_of_level(child, level)


_ONE_POD = ResourceRequirements(scalars={PODS: 1})


def total_request(tasks: Sequence[PodInfo]) -> ResourceAmounts:
    """Total request of the tasks."""
    total = ResourceAmounts()
    for task in tasks:
        total.add_request(task.request)
    return total


def are_comparable(tasks: Sequence[PodInfo]) -> bool:
    """True if it makes sense to count the tasks by the largest request: same resources, and all or none with GPUs."""
    with_gpus = sum(task.request.gpus > 0 for task in tasks)
    if with_gpus not in (0, len(tasks)):
        return False
    counts = Counter(name for task in tasks for name in task.request.scalars)
    return all(count == len(tasks) for count in counts.values())


class FittingPodCounter:
    """Counts how many pods fit nodes and domains, each with the tasks' largest request. Mutates: it caches sums."""

    def __init__(self, tasks: Sequence[PodInfo]) -> None:
        """Raises PortionsDiffer if tasks request different fractions of a GPU."""
        self._tasks = len(tasks)
        largest = ResourceRequirements()
        for task in tasks:
            largest = largest_request(largest, task.request)
        self._largest = largest
        self._requests = [largest]

    def count(self, domain: TopologyDomainInfo) -> int:
        """Count, and set in each domain, the pods that fit this domain and those below."""
        domain.pods = (
            sum(map(self.count, domain.children))
            if domain.children
            else sum(map(self.count_on_node, domain.nodes.values()))
        )
        return domain.pods

    def count_on_node(self, node: KaiNodeInfo) -> int:
        """How many pods fit the node's free resources; all tasks if they request nothing but a pod."""
        if self._largest.is_within(_ONE_POD):
            return self._tasks
        free, pods = node.idle_or_releasing(), 0
        while node.fits_devices(self._request_of_count(pods), free):
            pods += 1
        return pods

    def _request_of_count(self, more: int) -> ResourceRequirements:
        while len(self._requests) <= more:
            self._requests.append(_add_pod(self._requests[-1], self._largest))
        return self._requests[more]


def _add_pod(total: ResourceRequirements, one: ResourceRequirements) -> ResourceRequirements:
    """The request of one more pod on top of some; MIG requests keep their GPU count."""
    scalars = {name: total.scalars.get(name, 0) + n for name, n in one.scalars.items()}
    cpu, memory = total.cpu + one.cpu, total.memory + one.memory
    if total.mig:
        mig = {name: total.mig.get(name, 0) + n for name, n in one.mig.items()}
        return ResourceRequirements(
            cpu=cpu, memory=memory, scalars=scalars, count=total.count, portion=total.portion, mig=mig
        )
    count = total.count + one.count
    return ResourceRequirements(
        cpu=cpu, memory=memory, scalars=scalars, count=count, portion=total.portion, gpu_memory=total.gpu_memory
    )


def domain_misfit(domain: TopologyDomainInfo, request: ResourceAmounts, tasks: int, group: str) -> JobError | None:
    """Why the tasks do not fit the domain, by counted pods or else by free resources; None if they do."""
    if domain.pods is None:
        return None if fullness(request, domain) <= 1 else _insufficient_resources(domain, request, group)
    if domain.pods >= tasks:
        return None
    text = f"node-group {domain.key} can allocate only {domain.pods} of {tasks} required pods"
    return JobError(reason=NOT_ENOUGH_PODS, messages=(text,), sub_group=group, domain=domain.key)


def _insufficient_resources(domain: TopologyDomainInfo, request: ResourceAmounts, group: str) -> JobError:
    short, full = [], []
    where, free = domain.key, domain.free
    if request.mig:
        for name, count in request.mig.items():
            if free.scalars.get(name, 0) < count:
                has = free.scalars.get(name, 0)
                full.append(f"{where} didn't have enough resource: {name}, requested: {count}, available: {has}")
                short.append(f"node-group(s) didn't have enough of mig profile: {name}")
    elif request.gpus > free.gpus:
        numbers = f"requested: {request.gpus:.3g}, available: {free.gpus:.3g}"
        full.append(f"{where} didn't have enough resource: GPUs, {numbers}")
        short.append("node-group(s) didn't have enough resources: GPUs")
    plain = (("CPU cores", request.cpu, free.cpu, 1000.0), ("memory", request.memory, free.memory, 1e9))
    for name, asked, left, unit in plain:
        if int(asked) > int(left):
            amounts = f"requested: {format_decimals(asked / unit)}, available: {format_decimals(left / unit)}"
            full.append(f"{where} didn't have enough resources: {name}, {amounts}")
            short.append(f"node-group(s) didn't have enough resources: {name}")
    for name, count in request.scalars.items():
        if free.scalars.get(name, 0) < count:
            has = free.scalars.get(name, 0)
            full.append(f"{where} didn't have enough resource: {name}, requested: {count}, available: {has}")
            short.append(f"node-group(s) didn't have enough resources: {name}")
    return JobError(
        reason=NOT_ENOUGH_PODS, messages=tuple(short), details=tuple(full), sub_group=group, domain=domain.key
    )


class TopologyAware:
    """topology plugin: chooses domains, and scores nodes by preferred level. Mutates: keeps the session's trees."""

    def __init__(self, arguments: KaiPluginArguments) -> None:
        self.trees: dict[str, TopologyTree] = {}
        self._scores: dict[str, dict[str, float]] = {}
        self._scores_version = 0
        """Number of times that scores were computed; part of the key under which rankings are cached."""

    def open(self, session: KaiSession) -> None:
        self._session = session
        self.trees = {topology.name: TopologyTree(topology, session.nodes.values()) for topology in session.topologies}
        session.functions.subsets.append(self.subsets)
        session.functions.node_order.append(NodeScorer("topology", 10 * TOPOLOGY, self._score))
        session.functions.score_keys.append(self._score_key)
        session.functions.on_job_placement_start.append(lambda job: self._scores.clear())

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
            _add_pod_errors(job, f"Requested topology {constraint.topology} does not exist")
            return []
        if not tasks:
            return [nodes]
        key, level, valid = common_domain(nodes, tree.topology.levels, constraint)
        domain = tree.levels.get(level, {}).get(key)
        if domain is None:
            raise NoSuitableNodes(f"domain not found for node set in topology {constraint.topology}")
        return self._node_sets_in_domain(job, group, constraint, pod_sets, tasks, tree, domain, valid)

    def _node_sets_in_domain(
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
        tree.clear_counts()
        domain.sum_free()
        if are_comparable(tasks):
            try:
                FittingPodCounter(tasks).count(domain)
            except DifferentGpuPortions as problem:
                raise NoSuitableNodes(str(problem)) from None
        request = total_request(tasks)
        if domain_misfit(domain, request, len(tasks), group.name) is not None:
            where = "the cluster" if domain.key == ROOT else domain.key
            _add_pod_errors(
                job, no_domain_message(job, group, constraint, f": not enough resources in {where} to allocate the job")
            )
            return []
        sort_tree(request, domain, constraint.preferred or constraint.required)
        if constraint.preferred:
            self._scores[group.name] = node_scores(domain, constraint.preferred)
            self._scores_version += 1
        found = self._fitting_domains(job, group, constraint, pod_sets, tasks, tree)
        ordered = [d for d in domains_narrowest_first(tree.root) if any(d is candidate for candidate in found)]
        return [[node for name, node in sorted(d.nodes.items()) if name in valid] for d in ordered]

    def _fitting_domains(
        self,
        job: PodGroupInfo,
        group: SubGroup | PodSetInfo,
        constraint: TopologyConstraint,
        pod_sets: Mapping[str, PodSetInfo],
        tasks: Sequence[PodInfo],
        tree: TopologyTree,
    ) -> list[TopologyDomainInfo]:
        """The domains of the eligible levels that fit the tasks; if none does, the reasons are added to the job."""
        levels = eligible_levels(constraint, group.name, tree.topology)
        candidates = tree.levels
        if constraint.required and any(pod_set.active_allocated_tasks for pod_set in pod_sets.values()):
            candidates = domains_with_pods(tree, constraint.required, pod_sets)
        request = total_request(tasks)
        found, misfits = [], []
        for level in levels:
            for _, domain in sorted(candidates.get(level, {}).items()):
                error = domain_misfit(domain, request, len(tasks), group.name)
                if error is None:
                    found.append(domain)
                elif level == levels[-1]:
                    misfits.append(error)
        if not found:
            job.errors += misfits
            _add_pod_errors(job, no_domain_message(job, group, constraint))
        return found

    def _score_key(self, task: PodInfo) -> Hashable:
        return (self._scores_version, task.job, task.set_name) if self._scores else None

    def _score(self, task: PodInfo, node: KaiNodeInfo) -> float:
        if not self._scores:
            return 0
        pod_set = self._session.jobs[task.job].pod_sets.get(task.set_name)
        group: PodSetInfo | SubGroup | None = pod_set
        while group is not None:
            if group.name in self._scores:
                known = self._scores[group.name]
                if node.name not in known:
                    raise CannotScore(node.name)
                return known[node.name]
            group = group.parent
        return 0


def eligible_levels(constraint: TopologyConstraint, group: str, topology: TopologyInfo) -> list[str]:
    """Levels from the preferred one up to the required one, else to the root. Raises NoNodes for unknown levels.

    Without a preferred level, only the required one.
    """
    if not constraint.required and not constraint.preferred:
        name = topology.name
        raise NoSuitableNodes(f"no topology constraints were found for subgroup {group}, with topology name {name}")
    levels = [*reversed(topology.levels), ROOT]
    if constraint.required:
        if constraint.required not in levels:
            raise NoSuitableNodes(_unknown_level_message(group, topology, "required", constraint.required))
        levels = levels[: levels.index(constraint.required) + 1]
    if not constraint.preferred:
        return levels[-1:]
    if constraint.preferred not in levels:
        # The level does not exist, or is wider than the required one.
        raise NoSuitableNodes(_unknown_level_message(group, topology, "preferred", constraint.preferred))
    return levels[levels.index(constraint.preferred) :]


def _unknown_level_message(group: str, topology: TopologyInfo, kind: str, level: str) -> str:
    who = "workload" if group == DEFAULT_POD_SET else f"sub-group {group}"
    return (
        f"topology constraint error: {who} specified '{level}' as the {kind} topology constraint level, but the"
        f" topology tree '{topology.name}' does not contain a level with this name"
    )


def domains_with_pods(
    tree: TopologyTree, required: str, pod_sets: Mapping[str, PodSetInfo]
) -> dict[str, dict[str, TopologyDomainInfo]]:
    """Domains of the required level in which the group has placed tasks, and all domains below them, by level."""
    seats = {task.node for p in pod_sets.values() for task in p.tasks.values() if task.status in ACTIVE_ALLOCATED}
    found: dict[str, dict[str, TopologyDomainInfo]] = {}
    for domain in tree.levels.get(required, {}).values():
        if seats & domain.nodes.keys():
            for below in domains_narrowest_first(domain):
                found.setdefault(below.level, {})[below.key] = below
    return found


def node_scores(domain: TopologyDomainInfo, level: str) -> dict[str, float]:
    """Score by node name: the later the node's domain of the level comes in the tree, the higher."""
    domains = list(domains_of_level(domain, level))
    return {
        name: math.floor(rank / len(domains) * 10) * TOPOLOGY
        for rank, found in enumerate(domains, start=1)
        for name in found.nodes
    }


def no_domain_message(
    job: PodGroupInfo, group: SubGroup | PodSetInfo, constraint: TopologyConstraint, why: str = ""
) -> str:
    """KAI's text for a topology requirement that no domain satisfies."""
    whose = f"job <{job.namespace}/{job.name}>"
    if group.name not in ("", DEFAULT_POD_SET):
        whose += f", subgroup {group.name}"
    return f"topology {constraint.topology}, requirement {constraint.required} couldn't be satisfied for {whose}{why}"


def _add_pod_errors(job: PodGroupInfo, text: str) -> None:
    job.errors.append(JobError(reason=POD_ERRORS, messages=(text,), sub_group=DEFAULT_POD_SET))

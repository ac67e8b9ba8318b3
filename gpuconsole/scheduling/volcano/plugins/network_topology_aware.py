"""network-topology-aware plugin: places gangs in the smallest possible domain, and other tasks in the fullest."""

from collections.abc import Collection, Iterable, Mapping
from typing import ClassVar

from gpuconsole.scheduling.volcano.api.hyper_nodes import HyperNodeInfo, ancestors, lowest_common_ancestor
from gpuconsole.scheduling.volcano.api.job import JobInfo, SubJobInfo
from gpuconsole.scheduling.volcano.api.node import NodeInfo
from gpuconsole.scheduling.volcano.api.resource import ZERO, Resource
from gpuconsole.scheduling.volcano.api.task import TaskInfo
from gpuconsole.scheduling.volcano.config import VolcanoArguments, resource_weights
from gpuconsole.scheduling.volcano.session import VolcanoPlugin, VolcanoSession
from gpuconsole.scheduling.volcano.session_plugins import EventHandler, HyperNodeGradients, Purpose


def count_tasks_within(domain: str, tasks: Iterable[TaskInfo], real_nodes: Mapping[str, Collection[str]]) -> int:
    """How many of the tasks are on nodes of the domain (FindJobTaskNumOfHyperNode)."""
    nodes = real_nodes.get(domain, ())
    return sum(task.node_name in nodes for task in tasks if task.node_name)


class DomainResources:
    """Total resources of the nodes of a domain when a session opens; `used` also follows its placements. Mutates."""

    __slots__ = ("allocatable", "future_idle", "idle", "used")

    def __init__(self) -> None:
        self.allocatable, self.used, self.idle, self.future_idle = Resource(), Resource(), Resource(), Resource()

    @classmethod
    def from_nodes(cls, nodes: Iterable[NodeInfo]) -> "DomainResources":
        """The sums over these nodes."""
        resources = cls()
        for node in nodes:
            resources.allocatable.add(node.allocatable)
            resources.used.add(node.used)
            resources.idle.add(node.idle)
            resources.future_idle.add(node.future_idle())
        return resources


MAX_SCORE = 100.0
TIER_WEIGHT_FACTOR = 0.8
EVICTION_DOMAINS = 8
"""Default number of domains that are searched for victims."""


class NetworkTopologyAwarePlugin(VolcanoPlugin):
    """network-topology-aware plugin: places gangs in the smallest possible domain (Volcano 1.15)."""

    name: ClassVar[str] = "network-topology-aware"

    def __init__(self, arguments: VolcanoArguments) -> None:
        weight = arguments.integer("weight", 1)
        self.weight = weight if weight >= 0 else 1
        self.weights = resource_weights(arguments, "hypernode.binpack")
        self.packs_normal_pods = arguments.flag("hypernode.binpack.normal-pod.enable", True)
        """True if pods without a network topology are packed by domain too."""
        fading = arguments.number("hypernode.binpack.normal-pod.fading", TIER_WEIGHT_FACTOR)
        self.tier_weight_factor = fading if fading >= 0 else TIER_WEIGHT_FACTOR
        """Weight of each tier for them, as a factor of the weight of the tier below."""
        most = arguments.integer("hypernode.gradient.evict.max-hypernodes", EVICTION_DOMAINS)
        self.eviction_domains = most if most > 0 else EVICTION_DOMAINS

    def on_session_open(self, session: VolcanoSession) -> None:
        self._session = session
        self.domain_resources = {
            name: DomainResources.from_nodes(
                session.nodes[node] for node in session.real_nodes.get(name, ()) if node in session.nodes
            )
            for name in session.hyper_nodes
        }
        self._domains: dict[int, dict[str, str]] = {}
        self._domains_by_node: dict[str, list[DomainResources]] = {}
        for name, resources in self.domain_resources.items():
            for node in session.real_nodes.get(name, ()):
                self._domains_by_node.setdefault(node, []).append(resources)
        functions = session.functions
        functions.hyper_node_order[self.name] = self._domain_scores
        functions.batch_node_order[self.name] = self._node_scores
        functions.job_gradients[self.name] = self._gradients
        functions.sub_job_gradients[self.name] = self._gradients
        functions.handlers.append(EventHandler(self._allocated, self._deallocated))

    # Candidate domains.

    def _gradients(self, sub_job: JobInfo | SubJobInfo, top: HyperNodeInfo, purpose: Purpose) -> HyperNodeGradients:
        """Domains at or below `top` with room for the unit, by tier; for evictions the widest first, and only a few."""
        tier = sub_job.hard_tier
        if tier is None:
            return [[top]]
        root = self._search_root(top, tier, sub_job.allocated_hyper_node)
        if root is None:
            return []
        request = None if sub_job.allocated_hyper_node else sub_job.min_resources()
        by_tier: dict[int, list[HyperNodeInfo]] = {}
        for info in self._domain_and_below(root):
            if info.tier <= tier and (request is None or self._may_fit(info.name, request, purpose)):
                by_tier.setdefault(info.tier, []).append(info)
        groups = [by_tier[number] for number in sorted(by_tier)]
        return self._limit_to_widest(groups) if purpose is Purpose.EVICT else groups

    def _search_root(self, top: HyperNodeInfo, tier: int, allocated: str) -> HyperNodeInfo | None:
        """Where to search: below `top` and, if tasks have nodes already, in the highest domain of theirs that the tier
        allows.
        """
        if not allocated:
            return top
        tree = self._session.hyper_nodes
        highest = ""
        for name in ancestors(tree, allocated):
            if name not in tree:
                return None
            if tree[name].tier > tier:
                break
            highest = name
        if not highest:
            return None
        common = lowest_common_ancestor(tree, top.name, highest)
        if common == highest:
            return top
        return tree[highest] if common == top.name else None

    def _domain_and_below(self, root: HyperNodeInfo) -> Iterable[HyperNodeInfo]:
        """The domain and all below it, level by level, by name within one."""
        found, seen = [root], {root.name}
        for info in found:
            for child in sorted(info.children):
                if child not in seen and child in self._session.hyper_nodes:
                    seen.add(child)
                    found.append(self._session.hyper_nodes[child])
        return found

    def _may_fit(self, name: str, request: Resource, purpose: Purpose) -> bool:
        resources = self.domain_resources.get(name)
        if resources is None:
            return True
        if purpose is Purpose.EVICT:
            return request.less_equal(resources.allocatable, ZERO)
        return request.less_equal(resources.idle, ZERO) or request.less_equal(resources.future_idle, ZERO)

    def _limit_to_widest(self, groups: HyperNodeGradients) -> HyperNodeGradients:
        left, result = self.eviction_domains, []
        for group in reversed(groups):
            if left:
                result.append(group[-left:])
                left -= len(result[-1])
        return result

    # Scores.

    def _domain_scores(self, sub_job: SubJobInfo, domains: Mapping[str, object]) -> dict[str, float]:
        """How full each domain is with the gang; among the fullest also how many of its tasks are there already."""
        request: dict[str, float] = {}
        for task in sub_job.tasks.values():
            for name in task.request.names():
                if name in self.weights:
                    request[name] = request.get(name, 0.0) + task.request.get(name)
        scores = {name: self._binpack_score(name, request) for name in domains}
        return self._scale_scores(self._prefer_placed_domains(scores, sub_job, {name: name for name in scores}))

    def _node_scores(self, task: TaskInfo, nodes: list[NodeInfo]) -> dict[str, float]:
        job = self._session.jobs.get(task.job)
        if job is None:
            return {}
        sub_job = job.sub_jobs.get(job.task_to_sub_job.get(task.uid, ""))
        if sub_job is None:
            # Upstream leaves these scores between 0 and 1.
            return self._utilization_scores(task, nodes)
        if sub_job.network_topology is None:
            return self._scale_scores(self._utilization_scores(task, nodes))
        return self._scale_scores(self._proximity_scores(task, sub_job, nodes))

    def _proximity_scores(self, task: TaskInfo, sub_job: SubJobInfo, nodes: Iterable[NodeInfo]) -> dict[str, float]:
        """How close each node is to the gang's placed tasks: by the tier of the domain that contains both."""
        placed = task.hyper_node
        if not placed:
            return {}
        domains = {node.name: self._domain_of(node.name) for node in nodes}
        scores = {name: self._proximity(domain, placed) for name, domain in domains.items()}
        return self._prefer_placed_domains(scores, sub_job, domains)

    def _prefer_placed_domains(
        self, scores: dict[str, float], sub_job: SubJobInfo, domains: Mapping[str, str]
    ) -> dict[str, float]:
        """Add to each of several best scores the fraction of the gang's tasks that are there already."""
        top = max(scores.values(), default=0.0)
        best = [name for name, score in scores.items() if score == top]
        if len(best) > 1 and sub_job.tasks:
            for name in best:
                there = count_tasks_within(domains[name], sub_job.tasks.values(), self._session.real_nodes)
                scores[name] += there / len(sub_job.tasks)
        return scores

    def _proximity(self, domain: str, placed: str) -> float:
        if not domain:
            return 0.0
        if domain == placed:
            return 1.0
        info = self._session.hyper_nodes.get(lowest_common_ancestor(self._session.hyper_nodes, domain, placed))
        tiers = self._session.hyper_node_tiers
        if info is None:
            return 0.0
        if tiers[0] == tiers[-1]:
            return 1.0
        return (tiers[-1] - info.tier) / (tiers[-1] - tiers[0]) if tiers[0] <= info.tier <= tiers[-1] else 0.0

    def _utilization_scores(self, task: TaskInfo, nodes: Iterable[NodeInfo]) -> dict[str, float]:
        """How full the domains of each node are with the task, each higher tier counting less."""
        tiers = self._session.hyper_node_tiers
        if not self.packs_normal_pods or not tiers:
            return {}
        request = {name: task.request.get(name) for name in task.request.names() if name in self.weights}
        weights = {tier: self.tier_weight_factor ** (tier - 1) for tier in range(tiers[0], tiers[-1] + 1)}
        total = sum(weights.values())
        packed: dict[str, float] = {}
        scores = {}
        for node in nodes:
            score = 0.0
            for tier, weight in weights.items():
                domain = self._domain_of(node.name, tier)
                if domain and domain not in packed:
                    packed[domain] = self._binpack_score(domain, request)
                # A node outside of all domains fragments none, so it scores as a full one.
                score += weight * (packed[domain] if domain else 1.0)
            scores[node.name] = score / total
        return scores if total > 0 else {}

    def _domain_of(self, node: str, tier: int | None = None) -> str:
        """The domain of a tier that contains a node, the first by name; without a tier, of the lowest one."""
        session = self._session
        if tier is None:
            tier = session.hyper_node_tiers[0]
        if tier not in self._domains:
            names = sorted(session.hyper_nodes_by_tier.get(tier, ()), reverse=True)
            self._domains[tier] = {inside: name for name in names for inside in session.real_nodes.get(name, ())}
        return self._domains[tier].get(node, "")

    def _binpack_score(self, domain: str, request: Mapping[str, float]) -> float:
        """Σ w·(used + requested)/allocatable / Σ w; 0 if it does not fit, or if no requested resource has a weight."""
        resources = self.domain_resources.get(domain)
        total, weights = 0.0, 0
        for name, amount in request.items() if resources is not None else ():
            assert resources is not None
            after, capacity = resources.used.get(name) + amount, resources.allocatable.get(name)
            if after > capacity:
                return 0.0
            total += self.weights[name] * after / capacity
            weights += self.weights[name]
        return total / weights if weights > 0 else 0.0

    def _scale_scores(self, scores: Mapping[str, float]) -> dict[str, float]:
        return {name: MAX_SCORE * self.weight * score for name, score in scores.items()}

    def _allocated(self, task: TaskInfo) -> None:
        for resources in self._domains_by_node.get(task.node_name, ()):
            resources.used.add(task.request)

    def _deallocated(self, task: TaskInfo) -> None:
        for resources in self._domains_by_node.get(task.node_name, ()):
            resources.used.sub(task.request)

"""Decisions to remove nodes: Karpenter's candidates, budgets and savings, and which pods may be evicted. Pure.

Candidates are ordered by savings per disruption; several nodes may be replaced by one cheaper node or none, a single
node may be removed or replaced by a cheaper one. `AutoscalerView` is the cluster as an autoscaler sees it in one scan:
nodes with pods, starting machines, unschedulable pods; the Cluster Autoscaler uses it, too. Prices and savings are USD
an hour. (Karpenter 1.x disruption/{consolidation,multinodeconsolidation,balanced}.go.)

`EvictionAllowances` and the functions before it are the rules for evicting pods from a node: PodDisruptionBudgets, and
annotations that forbid an eviction.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

from msgspec import Struct
from msgspec.structs import replace

from gpuconsole.model.autoscaling import (
    GROUP,
    POOL,
    SPOT,
    InstanceTypeCatalogue,
    NodeGroup,
    NodePool,
    NodePoolBudget,
    ProvisionedInstance,
)
from gpuconsole.model.clock import Span, Time, parse_cron, parse_span
from gpuconsole.model.cluster import Node, Pod, PodDisruptionBudget, PodPhase
from gpuconsole.model.resources import Resources, add
from gpuconsole.scheduling.kube.pod_classes import PodClasses
from gpuconsole.sim.autoscaling.provisioning import (
    NodeFit,
    PlannedNode,
    PoolOffering,
    Pools,
    node_fits_of,
    node_of,
    offerings_of,
    plan_nodes,
)
from gpuconsole.sim.world import World

DO_NOT_DISRUPT = "karpenter.sh/do-not-disrupt"


class EvictionAllowances:
    """How many more pods each PodDisruptionBudget lets be evicted. Mutates by `note_eviction`."""

    def __init__(self, budgets: Iterable[PodDisruptionBudget], pods: Iterable[Pod]) -> None:
        everything = list(pods)
        self._budgets = [(budget, _allowed_disruptions(budget, everything)) for budget in budgets]
        self._used: dict[str, int] = {}

    def blocker(self, pod: Pod) -> str:
        """The key of a budget that forbids evicting this pod; empty if none does.

        A pod that is not running is never blocked.
        """
        if not _is_healthy(pod):
            return ""
        for budget, allowed in self._budgets:
            if budget.covers(pod) and allowed - self._used.get(budget.key, 0) < 1:
                return budget.key
        return ""

    def covers(self, pod: Pod) -> bool:
        """True if a budget selects this pod."""
        return any(budget.covers(pod) for budget, _ in self._budgets)

    def note_eviction(self, pod: Pod) -> None:
        """Count the pod as evicted, in all budgets that select it."""
        for budget, _ in self._budgets:
            if _is_healthy(pod) and budget.covers(pod):
                self._used[budget.key] = self._used.get(budget.key, 0) + 1


def annotation_of(pod: Pod, key: str) -> str:
    """Return an annotation of a pod, else of its template; empty if absent."""
    return pod.annotations.get(key) or pod.template.annotations.get(key, "")


def node_disruption_blocker(node: Node) -> str:
    """Why Karpenter never disrupts this node, in Karpenter's words; empty if it may."""
    if node.annotations.get(DO_NOT_DISRUPT) == "true":
        return f'Disruption is blocked through the "{DO_NOT_DISRUPT}" annotation'
    return ""


def pods_disruption_blocker(pods: Iterable[Pod], allowances: EvictionAllowances) -> str:
    """Why Karpenter does not disrupt the node of these pods voluntarily, in its words; empty if it may."""
    for pod in sorted(pods, key=lambda pod: pod.key):
        if pod.done or pod.deleted:
            continue
        if annotation_of(pod, DO_NOT_DISRUPT) == "true":
            return f'Pod has "{DO_NOT_DISRUPT}" annotation (Pod={pod.key})'
        budget = allowances.blocker(pod)
        if budget:
            return f"PDB prevents pod evictions (PodDisruptionBudget={budget})"
    return ""


def _is_healthy(pod: Pod) -> bool:
    return pod.phase is PodPhase.RUNNING and not pod.deleted


def _allowed_disruptions(budget: PodDisruptionBudget, pods: Iterable[Pod]) -> int:
    """Allowed disruptions of a budget (Kubernetes' disruption controller: healthy pods less the required ones)."""
    covered = [pod for pod in pods if budget.covers(pod)]
    return budget.allowed(len(covered), sum(map(_is_healthy, covered)))


class AutoscalerView:
    """The cluster as an autoscaler sees it in one scan. Immutable."""

    def __init__(self, world: World, catalogue: InstanceTypeCatalogue) -> None:
        state = world.state
        self.now: Time = world.now
        self.catalogue = catalogue
        self.pod_classes = PodClasses()
        self._offering_cache = world.offers
        self._equipment = world.policy.equipment
        self.nodes: dict[str, Node] = {node.name: node for node in state.table("nodes").all()}
        self.groups: dict[str, NodeGroup] = {group.name: group for group in state.table("node_groups").all()}
        self.node_pools: dict[str, NodePool] = {pool.name: pool for pool in state.table("node_pools").all()}
        self.all_pods: list[Pod] = [pod for pod in state.table("pods").all() if not pod.done]
        self.pods: dict[str, list[Pod]] = {}
        for pod in self.all_pods:
            if pod.node:
                self.pods.setdefault(pod.node, []).append(pod)
        self.drainable_pods: frozenset[str] = frozenset(world.autoscaler_state.draining)
        waiting = (world.pod(key) for key in world.autoscaler_state.unschedulable_since)
        self.unschedulable: list[Pod] = [pod for pod in waiting if pod is not None]
        self._budgets: list[PodDisruptionBudget] = list(state.table("pod_disruption_budgets").all())

    @cached_property
    def allowances(self) -> EvictionAllowances:
        """How many more pods each PodDisruptionBudget lets be evicted."""
        return EvictionAllowances(self._budgets, self.all_pods)

    @cached_property
    def offerings(self) -> Mapping[str, list[PoolOffering]]:
        """The offerings of every NodePool, by the pool's name."""
        return {name: self._offerings_of(pool) for name, pool in self.node_pools.items()}

    def _offerings_of(self, pool: NodePool) -> list[PoolOffering]:
        known = self._offering_cache.get(id(pool))
        if known is None:
            known = self._offering_cache[id(pool)] = (pool, offerings_of(pool, self.catalogue, self._equipment))
        return known[1]

    def instances(self) -> Iterable[ProvisionedInstance]:
        """The machines of all node pools and groups."""
        return (instance for group in self.groups.values() for instance in group.instances)

    @cached_property
    def draining_nodes(self) -> set[str]:
        """Names of the nodes that are being removed."""
        return {instance.name for instance in self.instances() if instance.leaving is not None}

    @cached_property
    def pods_on_draining_nodes(self) -> list[Pod]:
        """Pods on draining nodes, which need capacity elsewhere: their owners will recreate them."""
        names = sorted(self.drainable_pods)
        return [pod for name in names for pod in self.pods.get(name, ()) if pod.job or pod.workload]

    @cached_property
    def starting_machines(self) -> list[ProvisionedInstance]:
        """Machines whose nodes have not joined yet."""
        return [i for i in self.instances() if i.ready is None and i.leaving is None]

    def free_capacity(self, without: Iterable[str] = ()) -> list[NodeFit]:
        """Free capacity for moved pods: of existing nodes except those in `without`, then of starting machines."""
        gone = set(without)
        return [room.copy() for room in self._all_free_capacity if room.node.name not in gone]

    @cached_property
    def _all_free_capacity(self) -> list[NodeFit]:
        there = node_fits_of(self.nodes.values(), self.pods, self.pod_classes, self.draining_nodes)
        return [*there, *(NodeFit(node) for node in map(self._future_node, self.starting_machines) if node is not None)]

    def _future_node(self, instance: ProvisionedInstance) -> Node | None:
        kind = self.catalogue.types.get(instance.type)
        group = instance.name.rpartition("-")[0]
        if kind is None:
            return None
        pool, equipment = self.node_pools.get(group), self._equipment
        if pool is not None:
            return node_of(instance, kind, self.now, {**pool.labels, POOL: pool.name}, pool.taints, equipment)
        return node_of(instance, kind, self.now, {GROUP: group}, equipment=equipment)

    @cached_property
    def pools(self) -> Pools:
        """The NodePools with their offerings, and how much their limits still allow."""
        return Pools(
            self.node_pools.values(), self.offerings, {name: self._used_by_pool(name) for name in self.node_pools}
        )

    def _used_by_pool(self, pool: str) -> Resources:
        group = self.groups.get(pool)
        machines: Sequence[ProvisionedInstance] = group.instances if group is not None else ()
        kinds = (self.catalogue.types.get(machine.type) for machine in machines)
        return add(*(kind.capacity for kind in kinds if kind is not None))


DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
MIN_SPOT_TYPES = 15
"""Minimum number of cheaper instance types without which a spot node is not replaced by another spot node."""
MAX_CANDIDATES = 100
BALANCED_K = 2
_UNBOUNDED = 2**31 - 1


class DisruptionCandidate(Struct, frozen=True):
    """A node that could be disrupted, with its price in USD an hour and its disruption cost."""

    node: str
    pool: NodePool
    instance: ProvisionedInstance
    pods: tuple[Pod, ...]
    price: float
    disruption: float
    """Disruption cost: 1, plus about 1 for each pod, more where its deletion cost or priority is high."""

    @property
    def is_empty(self) -> bool:
        """True if no pod has to be evicted."""
        return self.disruption <= 1.0

    @property
    def saving_ratio(self) -> float:
        """USD an hour that its removal saves, per unit of disruption cost."""
        return self.price / self.disruption


class ConsolidationMove(Struct, frozen=True):
    """A planned disruption: the nodes to remove, and the node that replaces them, if any."""

    nodes: tuple[str, ...]
    replacement: PlannedNode | None = None
    saving: float = 0.0
    """USD an hour that the disruption saves, if the replacement is its cheapest offering."""
    more_replacements: tuple[PlannedNode, ...] = ()
    """Further replacements; only a drifted node is replaced by several nodes."""


def new_candidate(
    view: AutoscalerView, pool: NodePool, instance: ProvisionedInstance, pods: Iterable[Pod]
) -> DisruptionCandidate:
    """The machine's node as a disruption candidate, with those of `pods` that have not ended and do not terminate."""
    moving = tuple(pod for pod in pods if not pod.done and not pod.deleted)
    price = view.catalogue.price(view.nodes[instance.name].labels)
    disruption = 1.0 + sum(max(0.0, eviction_cost(pod)) for pod in moving)
    return DisruptionCandidate(
        instance.name, pool, instance, moving, instance.price if price is None else price, disruption
    )


def eviction_cost(pod: Pod) -> float:
    """Cost of evicting a pod, from -10 to 10 (utils/disruption EvictionCost)."""
    text = annotation_of(pod, DELETION_COST)
    deletion = int(text) if text.removeprefix("-").isdigit() and len(text) < 12 else 0
    return max(-10.0, min(10.0, 1.0 + deletion / 2**27 + pod.priority / 2**25))


def sorted_candidates(candidates: Iterable[DisruptionCandidate]) -> list[DisruptionCandidate]:
    """Order candidates by savings per disruption cost, highest first."""
    return sorted(candidates, key=lambda one: (-one.saving_ratio, one.node))


def consolidate_after(pool: NodePool) -> Span | None:
    """Return a pool's consolidateAfter: the time without pod events before a node may be consolidated; None: never."""
    return None if pool.consolidate_after == "Never" else parse_span(pool.consolidate_after or "0s")


def allowed_disruptions(pool: NodePool, reason: str, total: int, disrupting: int, now: Time) -> int:
    """How many more nodes of the pool may be disrupted for this reason: the strictest active budget decides.

    The pool has `total` nodes, of which `disrupting` are being disrupted.
    """
    bounds = [
        _budget_count(budget, total)
        for budget in pool.budgets
        if (not budget.reasons or reason in budget.reasons) and is_active(budget, now)
    ]
    return max(0, min(bounds, default=_UNBOUNDED) - disrupting)


def is_active(budget: NodePoolBudget, now: Time) -> bool:
    """True within the budget's window: its schedule fired no longer ago than its duration."""
    if not budget.schedule:
        return True
    hit = parse_cron(budget.schedule).next_after(now - budget.duration)
    return hit is not None and hit <= now


def plan_multi_node(
    view: AutoscalerView, candidates: Sequence[DisruptionCandidate], *, spot_to_spot: bool
) -> ConsolidationMove | None:
    """The move of the most candidates for one cheaper node or none, by binary search; None if none is approved."""
    best: ConsolidationMove | None = None
    low, high = 1, min(len(candidates) - 1, MAX_CANDIDATES)
    while low <= high:
        middle = (low + high) // 2
        chosen = candidates[: middle + 1]
        move, _ = plan_consolidation(view, chosen, spot_to_spot=spot_to_spot)
        if move is not None and move.replacement is not None:
            move = _without_same_type(move, chosen)
        if move is not None and is_approved(view, move, candidates=chosen)[0]:
            best, low = move, middle + 1
        else:
            high = middle - 1
    return best


def plan_consolidation(
    view: AutoscalerView, candidates: Sequence[DisruptionCandidate], *, spot_to_spot: bool
) -> tuple[ConsolidationMove | None, str]:
    """Plan to replace these nodes by at most one cheaper node; returns None and the reason if that is impossible."""
    names = tuple(one.node for one in candidates)
    moving = [pod for one in candidates for pod in one.pods]
    result = plan_nodes(
        [*moving, *view.pods_on_draining_nodes, *view.unschedulable],
        view.free_capacity(names),
        view.pools,
        view.pod_classes,
    )
    starting = {instance.name for instance in view.starting_machines}
    for pod in moving:
        if pod.key in result.failed:
            return None, f"Not all pods would schedule, {pod.key} => {result.failed[pod.key]}"
        if result.placed.get(pod.key) in starting:
            return None, f"Not all pods would schedule, {pod.key} => would schedule against uninitialized node"
    new = [one for one in result.new if set(one.pods) & {pod.key for pod in moving}]
    price = sum(one.price for one in candidates)
    if not new:
        return ConsolidationMove(names, None, price), ""
    if len(result.new) != 1:
        return None, f"Can't remove without creating {len(result.new)} candidates"
    return _with_cheaper_offerings(candidates, new[0], price, spot_to_spot=spot_to_spot)


def plan_drift_replacement(view: AutoscalerView, one: DisruptionCandidate) -> tuple[ConsolidationMove | None, str]:
    """Plan to replace a drifted node, at any price; returns None and the reason if that is impossible."""
    result = plan_nodes(
        [*one.pods, *view.pods_on_draining_nodes, *view.unschedulable],
        view.free_capacity((one.node,)),
        view.pools,
        view.pod_classes,
    )
    for pod in one.pods:
        if pod.key in result.failed:
            return None, f"Not all pods would schedule, {pod.key} => {result.failed[pod.key]}"
    new = [planned for planned in result.new if set(planned.pods) & {pod.key for pod in one.pods}]
    return ConsolidationMove((one.node,), new[0] if new else None, more_replacements=tuple(new[1:])), ""


def is_approved(
    view: AutoscalerView, move: ConsolidationMove, candidates: Sequence[DisruptionCandidate]
) -> tuple[bool, str]:
    """Whether the Balanced policy approves the move (saved against disrupted fraction), and its score as text."""
    pools = {one.pool.name: one.pool for one in candidates}
    verdict, text = True, ""
    total = sum(one.price for one in candidates)
    for name, pool in sorted(pools.items()):
        if pool.consolidation_policy != "Balanced":
            continue
        own = [one for one in candidates if one.pool.name == name]
        saving = move.saving * (sum(one.price for one in own) / total if total else 0.0)
        ok, text = _balanced_score(view, pool, saving, sum(one.disruption for one in own))
        verdict = verdict and ok
    return verdict, text


def _balanced_score(view: AutoscalerView, pool: NodePool, saving: float, disruption: float) -> tuple[bool, str]:
    ready = [one for one in view.groups[pool.name].instances if one.ready is not None and one.name in view.nodes]
    everyone = [new_candidate(view, pool, one, view.pods.get(one.name, ())) for one in ready]
    cost, all_disruption = sum(one.price for one in everyone), sum(one.disruption for one in everyone)
    saved = saving / cost if cost > 0 else 0.0
    disrupted = disruption / all_disruption if all_disruption > 0 else 0.0
    score = 0.0 if saved <= 0 else saved / disrupted if disrupted else float("inf")
    sign = ">=" if score >= 1 / BALANCED_K else "<"
    return score >= 1 / BALANCED_K, (
        f"score {score:.2f} {sign} threshold {1 / BALANCED_K:.2f} (k: {BALANCED_K}, savings {saved * 100:.1f}%, "
        f"disruption {disrupted * 100:.1f}%)"
    )


def _with_cheaper_offerings(
    candidates: Sequence[DisruptionCandidate], new: PlannedNode, price: float, *, spot_to_spot: bool
) -> tuple[ConsolidationMove | None, str]:
    names = tuple(one.node for one in candidates)
    spot = [offer for offer in new.offers if offer.is_spot]
    offers: Sequence[PoolOffering] = new.offers
    from_spot = bool(spot) and all(one.instance.capacity_type == SPOT for one in candidates)
    if from_spot:
        if not spot_to_spot:
            return None, "SpotToSpotConsolidation is disabled, can't replace a spot node with a spot node"
        offers = spot
    cheaper = [offer for offer in offers if offer.price < price]
    if not cheaper:
        return None, "Can't replace with a cheaper node"
    if from_spot and len(candidates) == 1:
        types = list(dict.fromkeys(offer.type for offer in sorted(cheaper, key=lambda offer: offer.price)))
        if len(types) < MIN_SPOT_TYPES:
            return None, (
                f"SpotToSpotConsolidation requires {MIN_SPOT_TYPES} cheaper instance type options than the current "
                f"candidate to consolidate, got {len(types)}"
            )
        cheaper = [offer for offer in cheaper if offer.type in types[:MIN_SPOT_TYPES]]
    if any(offer.is_spot for offer in cheaper):
        # The saving assumes spot: without spot capacity nothing is launched, rather than a more expensive node.
        cheaper = [offer for offer in cheaper if offer.is_spot]
    saving = price - min(offer.price for offer in cheaper)
    return ConsolidationMove(names, replace(new, offers=tuple(cheaper)), saving), ""


def _without_same_type(move: ConsolidationMove, candidates: Sequence[DisruptionCandidate]) -> ConsolidationMove | None:
    """The move without offerings that cost as much as a removed node of the same type, or more; None if none is left.

    It would be as good to keep that node (filterOutSameInstanceType).
    """
    assert move.replacement is not None
    kept: Mapping[str, float] = {one.instance.type: one.price for one in sorted(candidates, key=lambda c: -c.price)}
    bound = min((kept[offer.type] for offer in move.replacement.offers if offer.type in kept), default=float("inf"))
    left = tuple(offer for offer in move.replacement.offers if offer.price < bound)
    return replace(move, replacement=replace(move.replacement, offers=left)) if left else None


def _budget_count(budget: NodePoolBudget, total: int) -> int:
    """A number of nodes, or a percentage of them, rounded up."""
    if budget.nodes.endswith("%"):
        return -(-int(budget.nodes[:-1]) * total // 100)
    return int(budget.nodes)

"""Karpenter's scheduling simulation: places pods on existing nodes, and plans nodes for the others. Pure.

Pods with most cpu and memory come first; each goes on the first node with room, else on the emptiest planned one, else
on a new one of the pool of highest weight. A planned node keeps every offering that still fits all its pods;
`choose_offering` takes one of them at launch. `NodeFit` is the free capacity of a node, filled pod by pod to test where
pods would fit; the node itself does not change. (Karpenter 1.x scheduler.go.)
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from gpuconsole.model.autoscaling import (
    CAPACITY_TYPE,
    POOL,
    PRICE,
    SPOT,
    InstanceType,
    InstanceTypeCatalogue,
    NodePool,
    Offering,
    ProvisionedInstance,
)
from gpuconsole.model.clock import Time
from gpuconsole.model.cluster import Node, Pod
from gpuconsole.model.labels import HOSTNAME, NO_LABELS, Requirement, Taint
from gpuconsole.model.resources import CPU, EMPTY, MEMORY, PODS, Resources, format_quantity, short
from gpuconsole.scheduling.kube.filters import node_refusal
from gpuconsole.scheduling.kube.pod_classes import PodClass, PodClasses
from gpuconsole.sim.policy import NO_GPU_SETUP, GpuSetup, SpotPolicy, apply_gpu_setup


class NodeFit:
    """The free capacity of a node, for testing where pods fit. Mutates by `place` and `reset`."""

    __slots__ = ("_refused", "left", "node")

    def __init__(self, node: Node, pods: Iterable[Pod] = (), pod_classes: PodClasses | None = None) -> None:
        self.node = node
        self.left = dict(node.allocatable)
        self._refused: set[int] = set()
        for pod in pods:
            self._subtract((pod_classes or PodClasses()).of(pod.template))

    def copy(self) -> "NodeFit":
        """A copy with the same free capacity."""
        copied = NodeFit.__new__(NodeFit)
        copied.node, copied.left, copied._refused = self.node, self.left.copy(), set()
        return copied

    def fits(self, pod_class: PodClass) -> bool:
        """True if a pod of this class tolerates the node and fits. A refusal is cached until `reset`."""
        if id(pod_class) in self._refused:
            return False
        left = self.left
        fits = (
            left.get(PODS, 1) >= 1
            and all(left.get(name, 0) >= amount for name, amount in pod_class.requests.items())
            and not node_refusal(self.node, pod_class)
        )
        if not fits:
            self._refused.add(id(pod_class))
        return fits

    def place(self, pod_class: PodClass) -> bool:
        """Place a pod of this class here if it fits; False if it does not."""
        if not self.fits(pod_class):
            return False
        self._subtract(pod_class)
        return True

    def reset(self, left: Mapping[str, int]) -> None:
        """Undo placements: set the free capacity back to `left`."""
        self.left = dict(left)
        self._refused.clear()

    def _subtract(self, pod_class: PodClass) -> None:
        for name, amount in pod_class.requests.items():
            self.left[name] = self.left.get(name, 0) - amount
        if PODS in self.left:
            self.left[PODS] -= 1


def first_fit(capacities: Sequence[NodeFit], pod_class: PodClass) -> NodeFit | None:
    """Place the pod on the first node that it fits, and return that node; None if it fits none."""
    return next((room for room in capacities if room.place(pod_class)), None)


def node_fits_of(
    nodes: Iterable[Node], pods: Mapping[str, Sequence[Pod]], pod_classes: PodClasses, without: Iterable[str] = ()
) -> list[NodeFit]:
    """The free capacity of nodes that accept pods, ordered by name, except of those named in `without`."""
    gone = set(without)
    usable = (node for node in nodes if node.ready and not node.unschedulable and node.name not in gone)
    return [NodeFit(node, pods.get(node.name, ()), pod_classes) for node in sorted(usable, key=lambda node: node.name)]


def node_of(
    instance: ProvisionedInstance,
    kind: InstanceType,
    now: Time,
    labels: Mapping[str, str] = NO_LABELS,
    taints: tuple[Taint, ...] = (),
    equipment: GpuSetup = NO_GPU_SETUP,
) -> Node:
    """Return the Node that a machine of this instance type becomes, with its GPUs partitioned and shared."""
    node = Node(
        name=instance.name,
        uid=f"node-{instance.name}-{instance.launched}",
        created=now,
        labels={**kind.labels(instance.zone, instance.capacity_type), **labels, HOSTNAME: instance.name},
        annotations={PRICE: f"{instance.price:.10g}"},
        taints=taints,
        capacity=kind.capacity,
        allocatable=kind.capacity,
    )
    return apply_gpu_setup(node, equipment)


def with_taint(node: Node, taint: Taint) -> Node:
    """The node with an additional taint."""
    return node if taint in node.taints else replace(node, taints=(*node.taints, taint))


def without_taint(node: Node, taint: Taint) -> Node:
    """The node without this taint."""
    return replace(node, taints=tuple(other for other in node.taints if other != taint))


class PoolOffering(Struct, frozen=True, eq=False):
    """An offering (instance type, zone, capacity type) and the node that a NodePool would launch from it."""

    offering: Offering
    node: Node
    capacity: Resources

    @property
    def price(self) -> float:
        return self.offering.price

    @property
    def is_spot(self) -> bool:
        return self.offering.capacity_type == SPOT

    @property
    def type(self) -> str:
        return self.offering.type.name


def to_requirement(key: str, operator: str, values: tuple[str, ...]) -> Requirement:
    """A requirement of a NodePool as a node selector requirement; Gte and Lte become Gt and Lt."""
    if operator in ("Gte", "Lte") and values and values[0].isdigit():
        step = -1 if operator == "Gte" else 1
        return Requirement(key, operator[:2], (str(int(values[0]) + step),))
    return Requirement(key, operator, values)


def offerings_of(
    pool: NodePool, catalogue: InstanceTypeCatalogue, equipment: GpuSetup = NO_GPU_SETUP
) -> list[PoolOffering]:
    """The pool's offerings, cheapest first. Without a capacity-type requirement Karpenter launches on demand."""
    wanted = [to_requirement(*one) for one in pool.requirements]
    if all(one.key != CAPACITY_TYPE for one in wanted):
        wanted.append(Requirement(CAPACITY_TYPE, "In", ("on-demand",)))
    found = []
    for offering in catalogue.offerings():
        labels = {
            **offering.type.labels(offering.zone, offering.capacity_type),
            **pool.labels,
            POOL: pool.name,
            HOSTNAME: "",
        }
        if all(one.matches(labels) for one in wanted):
            node = Node(name="", labels=labels, taints=pool.taints, allocatable=offering.type.capacity)
            node = apply_gpu_setup(node, equipment)
            found.append(PoolOffering(offering, node, node.allocatable))
    return found


def drift_reason(pool: NodePool, node: Node) -> str:
    """Why a node no longer matches its pool (Karpenter's Drifted reasons); empty if it does."""
    if any(node.labels.get(key) != value for key, value in pool.labels.items()):
        return "NodePoolDrifted"
    if any(taint not in node.taints for taint in pool.taints):
        return "NodePoolDrifted"
    if not all(to_requirement(*one).matches(node.labels) for one in pool.requirements):
        return "RequirementsDrifted"
    return ""


def choose_offering(
    offers: Sequence[PoolOffering],
    ours: Iterable[ProvisionedInstance],
    available: Callable[[PoolOffering], bool],
    policy: SpotPolicy,
) -> PoolOffering | None:
    """The offering to launch: spot before on demand, as in Karpenter's AWS provider; None if none is available.

    On demand the cheapest; spot by price and interruption frequency (price-capacity-optimized), where each spot machine
    in use (`ours`) of the same family and zone raises the price that is compared.
    """
    there = [offer for offer in offers if available(offer)]
    spot = [offer for offer in there if offer.is_spot]
    if not spot:
        return min(there, key=lambda offer: (offer.price, offer.offering.key), default=None)
    count: dict[tuple[str, str], int] = {}
    for machine in ours:
        if machine.capacity_type == SPOT:
            place = (machine.type.partition(".")[0], machine.zone)
            count[place] = count.get(place, 0) + 1
    return min(spot, key=lambda offer: (_effective_price(offer, count, policy), offer.offering.key))


def is_unavailable(key: str, patterns: Iterable[str]) -> bool:
    """True if an offering (`type/zone/capacity type`) is configured as unavailable; `*` matches any part."""
    parts = key.split("/")
    return any(
        all(want in ("*", part) for want, part in zip(pattern.split("/"), parts, strict=False)) for pattern in patterns
    )


def _effective_price(offer: PoolOffering, count: Mapping[tuple[str, str], int], policy: SpotPolicy) -> float:
    kind = offer.offering.type
    machines = count.get((kind.family, offer.offering.zone), 0)
    return offer.price * (1 + kind.interrupted / 100) * (1 + policy.diversity * machines)


class PlannedNode(Struct, frozen=True):
    """A node to launch: its possible offerings and its pods."""

    pool: str
    offers: tuple[PoolOffering, ...]
    pods: tuple[str, ...]


class ProvisioningPlan(Struct, frozen=True):
    """Where each pod goes: to an existing node, to a new one, or nowhere."""

    placed: Mapping[str, str] = {}
    """Pod → existing node."""
    new: tuple[PlannedNode, ...] = ()
    failed: Mapping[str, str] = {}
    """Pod → why no node can be launched for it."""


class Pools:
    """The NodePools by weight, highest first, with their offerings and how much their limits still allow."""

    def __init__(
        self, pools: Iterable[NodePool], offers: Mapping[str, Sequence[PoolOffering]], used: Mapping[str, Resources]
    ) -> None:
        live = (pool for pool in pools if pool.replicas is None)
        self.ordered = sorted(live, key=lambda pool: (-pool.weight, pool.name))
        self.offers = offers
        self.used = used
        self._suitable: dict[tuple[str, int], frozenset[int]] = {}
        self._new_node_offerings: dict[tuple[str, int, bool], list[PoolOffering]] = {}

    def remaining_limits(self, pool: NodePool) -> dict[str, int] | None:
        """How much of each resource the pool's limits still allow to be added; None without limits."""
        if not pool.limits:
            return None
        used = self.used.get(pool.name, EMPTY)
        return {name: limit - used.get(name, 0) for name, limit in pool.limits.items()}

    def suitable_offerings(self, pool: str, pod_class: PodClass) -> frozenset[int]:
        """Python ids of the pool's offerings whose taints and labels suit a pod of this class, whatever its size."""
        known = self._suitable.get((pool, id(pod_class)))
        if known is None:
            known = frozenset(id(offer) for offer in self.offers[pool] if not node_refusal(offer.node, pod_class))
            self._suitable[pool, id(pod_class)] = known
        return known

    def offerings_for_new_node(self, pool: str, pod_class: PodClass, without_spot: bool) -> list[PoolOffering]:
        """The pool's offerings for a new node with one pod of this class; without spot if `without_spot`."""
        known = self._new_node_offerings.get((pool, id(pod_class), without_spot))
        if known is None:
            fitting, need = self.suitable_offerings(pool, pod_class), {**pod_class.requests, PODS: 1}
            known = [
                offer
                for offer in self.offers[pool]
                if id(offer) in fitting
                and not (without_spot and offer.is_spot)
                and _fits_capacity(offer.capacity, need)
            ]
            self._new_node_offerings[pool, id(pod_class), without_spot] = known
        return known


class _Draft:
    """A node that is being planned. Mutates."""

    def __init__(self, pool: NodePool, offers: list[PoolOffering], pod: str, pod_class: PodClass) -> None:
        self.pool = pool
        self.offers = offers
        self.used: dict[str, int] = {**pod_class.requests, PODS: 1}
        self.pods = [pod]
        self.refused: set[tuple[int, bool]] = set()

    def add(self, pod: str, pod_class: PodClass, pools: Pools, without_spot: bool) -> bool:
        """Add a pod if some offering fits it with all the others."""
        if (id(pod_class), without_spot) in self.refused:
            return False
        used = {name: self.used.get(name, 0) + amount for name, amount in pod_class.requests.items()}
        used = {**self.used, **used, PODS: len(self.pods) + 1}
        fitting = pools.suitable_offerings(self.pool.name, pod_class)
        left = [
            o
            for o in self.offers
            if id(o) in fitting and not (without_spot and o.is_spot) and _fits_capacity(o.capacity, used)
        ]
        if not left or _min_values_problem(self.pool, left):
            self.refused.add((id(pod_class), without_spot))
            return False
        self.offers, self.used = left, used
        self.pods.append(pod)
        return True

    @property
    def largest_capacity(self) -> dict[str, int]:
        """The largest possible resources of the node, which count against limits until it is launched."""
        top: dict[str, int] = {}
        for offer in self.offers:
            for name, amount in offer.capacity.items():
                top[name] = max(top.get(name, 0), amount)
        return top


def plan_nodes(
    pods: Iterable[Pod],
    capacities: Sequence[NodeFit],
    pools: Pools,
    pod_classes: PodClasses,
    without_spot: Iterable[str] = (),
) -> ProvisioningPlan:
    """Place pods on existing or planned nodes; those in `without_spot` get no new spot node."""
    placed, failed = dict[str, str](), dict[str, str]()
    drafts: list[_Draft] = []
    on_demand = set(without_spot)
    for pod in sorted(pods, key=_pod_order):
        pod_class = pod_classes.of(pod.template)
        room = first_fit(capacities, pod_class)
        if room is not None:
            placed[pod.key] = room.node.name
            continue
        wants = pod.key in on_demand
        emptiest = sorted(drafts, key=lambda draft: len(draft.pods))
        if any(draft.add(pod.key, pod_class, pools, wants) for draft in emptiest):
            continue
        draft, reason = _open_node(pod.key, pod_class, pools, drafts, wants)
        if draft is None:
            failed[pod.key] = reason
        else:
            drafts.append(draft)
    return ProvisioningPlan(
        placed, tuple(PlannedNode(d.pool.name, tuple(d.offers), tuple(d.pods)) for d in drafts), failed
    )


def _pod_order(pod: Pod) -> tuple[int, int, int, str]:
    """Sort key: most cpu, most memory, oldest (byCPUAndMemoryDescending), name."""
    requests = pod.template.requests
    return (-requests.get(CPU, 0), -requests.get(MEMORY, 0), pod.created, pod.key)


def _open_node(
    pod: str, pod_class: PodClass, pools: Pools, drafts: Sequence[_Draft], without_spot: bool
) -> tuple[_Draft | None, str]:
    """A new node for this pod from the first pool that has one, or why no pool has."""
    reasons = []
    for pool in pools.ordered:
        offers = pools.offerings_for_new_node(pool.name, pod_class, without_spot)
        left = pools.remaining_limits(pool)
        if left is not None:
            for draft in drafts:
                if draft.pool is pool:
                    left = {name: amount - draft.largest_capacity.get(name, 0) for name, amount in left.items()}
            within = [offer for offer in offers if _fits_limits(left, offer.capacity)]
            if offers and not within:
                reasons.append(f'all available instance types exceed limits for nodepool: "{pool.name}"')
                continue
            offers = within
        narrow = _min_values_problem(pool, offers) if offers else ""
        if offers and not narrow:
            return _Draft(pool, offers, pod, pod_class), ""
        if narrow:
            reasons.append(f'incompatible with nodepool "{pool.name}", {narrow}')
            continue
        reasons.append(_incompatibility_message(pool, pod_class, bool(pools.suitable_offerings(pool.name, pod_class))))
    return None, "; ".join(reasons) or "no nodepools found"


def _min_values_problem(pool: NodePool, offers: Sequence[PoolOffering]) -> str:
    """Why these offerings do not satisfy the pool's minValues; empty if they do."""
    short = [
        key
        for key, least in sorted(pool.min_values.items())
        if len({offer.node.labels.get(key) for offer in offers} - {None}) < least
    ]
    return f"minValues requirement is not met for label(s) (label(s)=[{' '.join(short)}])" if short else ""


def _incompatibility_message(pool: NodePool, pod_class: PodClass, selects: bool) -> str:
    asked = ", ".join(
        f'"{name}":"{format_quantity(name, pod_class.requests[name])}"' for name in short(pod_class.requests)
    )
    why = f"no instance type has enough resources, requests={{{asked}}}" if selects else "incompatible requirements"
    return f'incompatible with nodepool "{pool.name}", {why}'


def _fits_capacity(capacity: Resources, used: Resources) -> bool:
    return all(capacity.get(name, 0) >= amount for name, amount in used.items())


def _fits_limits(left: Resources, capacity: Resources) -> bool:
    return all(capacity.get(name, 0) <= amount for name, amount in left.items())

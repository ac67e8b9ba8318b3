"""Offerings that a NodePool can launch by its requirements, and the choice among them at launch."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec import Struct

from gpuconsole.model.autoscaling import CAPACITY_TYPE, POOL, SPOT, NodePool, ProvisionedInstance
from gpuconsole.model.catalogue import InstanceTypeCatalogue, Offering
from gpuconsole.model.cluster import Node
from gpuconsole.model.labels import HOSTNAME, Requirement
from gpuconsole.model.resources import Resources
from gpuconsole.sim.autoscaling.policy import SpotPolicy
from gpuconsole.sim.gpu_setup import BARE, GpuSetup, apply_gpu_setup


class PoolOffering(Struct, frozen=True, eq=False):
    """An offering with the node that a pool would launch from it."""

    offering: Offering
    node: Node
    capacity: Resources

    @property
    def price(self) -> float:
        return self.offering.price

    @property
    def spot(self) -> bool:
        return self.offering.capacity_type == SPOT

    @property
    def type(self) -> str:
        return self.offering.type.name


def requirement(key: str, operator: str, values: tuple[str, ...]) -> Requirement:
    """A requirement of a NodePool as a node selector requirement; Gte and Lte become Gt and Lt."""
    if operator in ("Gte", "Lte") and values and values[0].isdigit():
        step = -1 if operator == "Gte" else 1
        return Requirement(key, operator[:2], (str(int(values[0]) + step),))
    return Requirement(key, operator, values)


def offers_of(pool: NodePool, catalogue: InstanceTypeCatalogue, equipment: GpuSetup = BARE) -> list[PoolOffering]:
    """The pool's offerings, cheapest first. Without a capacity-type requirement Karpenter launches on demand."""
    wanted = [requirement(*one) for one in pool.requirements]
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


def drifted(pool: NodePool, node: Node) -> str:
    """Why a node no longer matches its pool (Karpenter's Drifted reasons); empty if it does."""
    if any(node.labels.get(key) != value for key, value in pool.labels.items()):
        return "NodePoolDrifted"
    if any(taint not in node.taints for taint in pool.taints):
        return "NodePoolDrifted"
    if not all(requirement(*one).matches(node.labels) for one in pool.requirements):
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
    in use of the same family and zone raises the price that is compared.
    """
    there = [offer for offer in offers if available(offer)]
    spot = [offer for offer in there if offer.spot]
    if not spot:
        return min(there, key=lambda offer: (offer.price, offer.offering.key), default=None)
    count: dict[tuple[str, str], int] = {}
    for machine in ours:
        if machine.capacity_type == SPOT:
            place = (machine.type.partition(".")[0], machine.zone)
            count[place] = count.get(place, 0) + 1
    return min(spot, key=lambda offer: (_looks(offer, count, policy), offer.offering.key))


def is_unavailable(key: str, patterns: Iterable[str]) -> bool:
    """True if an offering (`type/zone/capacity type`) is configured as unavailable; `*` matches any part."""
    parts = key.split("/")
    return any(
        all(want in ("*", part) for want, part in zip(pattern.split("/"), parts, strict=False)) for pattern in patterns
    )


def _looks(offer: PoolOffering, count: Mapping[tuple[str, str], int], policy: SpotPolicy) -> float:
    kind = offer.offering.type
    crowd = count.get((kind.family, offer.offering.zone), 0)
    return offer.price * (1 + kind.interrupted / 100) * (1 + policy.diversity * crowd)

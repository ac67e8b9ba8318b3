"""Autoscaling objects: Karpenter NodePools, and node groups with their cost."""

from collections.abc import Mapping

from msgspec import Struct

from gpuconsole.model.clock import HOUR, Span, Time
from gpuconsole.model.cluster import Node
from gpuconsole.model.labels import NO_LABELS, Taint
from gpuconsole.model.resources import EMPTY, Resources

SPOT, ON_DEMAND = "spot", "on-demand"
CAPACITY_TYPE = "karpenter.sh/capacity-type"
POOL = "karpenter.sh/nodepool"
GROUP = "eks.amazonaws.com/nodegroup"
INSTANCE_TYPE = "node.kubernetes.io/instance-type"
ZONE = "topology.kubernetes.io/zone"
PRICE = "gpuconsole.io/price-per-hour"
"""Annotation of a node: USD an hour for the whole machine."""


class NodePoolBudget(Struct, frozen=True, omit_defaults=True):
    """Disruption budget of a NodePool: how many nodes may be disrupted at once, for which reasons, when."""

    nodes: str = "10%"
    """A number, or a part of the pool's nodes, rounded up."""
    reasons: tuple[str, ...] = ()
    """`Underutilized`, `Empty`, `Drifted`; none means all."""
    schedule: str = ""
    """Cron in UTC: when the budget begins to count; empty is always."""
    duration: Span = 0


DEFAULT_BUDGETS = (NodePoolBudget(),)
EXPIRE_AFTER = 720 * HOUR
"""How long nodes live where their pool does not say it."""


class NodePool(Struct, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """A Karpenter NodePool (karpenter.sh/v1)."""

    name: str
    labels: Mapping[str, str] = NO_LABELS
    taints: tuple[Taint, ...] = ()
    requirements: tuple[tuple[str, str, tuple[str, ...]], ...] = ()
    """Label key, operator, values: what its nodes have to be."""
    min_values: Mapping[str, int] = {}
    """Label key → from how many values of it there has to be a choice when a machine is bought (minValues)."""
    limits: Resources = EMPTY
    """What all its nodes have together at most."""
    weight: int = 0
    """Pools of a higher weight are tried first."""
    replicas: int | None = None
    """A static pool keeps this number of nodes; it is read and never consolidated."""
    consolidation_policy: str = "WhenEmptyOrUnderutilized"
    consolidate_after: str = ""
    """A duration since a pod came or went, or `Never`; empty is at once."""
    expire_after: Span | None = EXPIRE_AFTER
    """Nodes live for this long; None for ever."""
    termination_grace: Span | None = None
    """How long a drain may take before the node goes with what is left on it; None for ever."""
    budgets: tuple[NodePoolBudget, ...] = DEFAULT_BUDGETS

    @property
    def key(self) -> str:
        return self.name


def machine_hourly(node: Node) -> float | None:
    """USD per hour of a node whose annotation has its price; None for any other."""
    try:
        price = float(node.annotations.get(PRICE, ""))
    except ValueError:
        return None
    return price if 0 <= price < 1_000_000 else None


class ProvisionedInstance(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A machine that an autoscaler provisioned; its node has the same name."""

    name: str
    type: str
    zone: str = ""
    capacity_type: str = ON_DEMAND
    price: float = 0.0
    """USD an hour while it exists."""
    list_price: float = 0.0
    """USD an hour of the same machine on demand; 0 where it is not sold so."""
    gpus: int = 0
    launched: Time = 0
    ready: Time | None = None
    """When its node joined; None while it starts."""
    leaving: Time | None = None
    """When it was decided that it goes."""
    reason: str = ""
    """Why it goes."""

    def cost(self, now: Time) -> float:
        """USD since launch."""
        return self.price * (now - self.launched) / HOUR


class NodeGroup(Struct, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """The machines of one NodePool (Karpenter) or of one scaling group (Cluster Autoscaler), and their cost."""

    name: str
    autoscaler: str = "karpenter"
    instances: tuple[ProvisionedInstance, ...] = ()
    launched: int = 0
    """How many were ever launched: numbers their names."""
    gone: int = 0
    interrupted: int = 0
    """How many the cloud took back."""
    spent: float = 0.0
    """USD for the machines that are gone."""

    @property
    def key(self) -> str:
        return self.name

    @property
    def hourly(self) -> float:
        """USD per hour of the existing machines."""
        return sum(instance.price for instance in self.instances)

    def cost(self, now: Time) -> float:
        """Accrued cost in USD."""
        return self.spent + sum(instance.cost(now) for instance in self.instances)

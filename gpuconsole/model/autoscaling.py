"""Autoscaling objects: Karpenter NodePools, node groups and their cost, and ProvisioningRequests.

A `NodeGroup` holds the instances that an autoscaler (Karpenter or the Cluster Autoscaler) has launched. By a
`ProvisioningRequest` (autoscaling.x-k8s.io) Kueue requests capacity from an autoscaler before it admits a workload.
"""

from collections.abc import Mapping

from msgspec import Struct

from gpuconsole.model.clock import HOUR, SECOND, Span, Time
from gpuconsole.model.cluster import Node
from gpuconsole.model.labels import NO_LABELS, Taint
from gpuconsole.model.pod_template import PodTemplate
from gpuconsole.model.resources import EMPTY, Resources
from gpuconsole.model.workloads import Condition

SPOT, ON_DEMAND = "spot", "on-demand"
CAPACITY_TYPE = "karpenter.sh/capacity-type"
POOL = "karpenter.sh/nodepool"
GROUP = "eks.amazonaws.com/nodegroup"
INSTANCE_TYPE = "node.kubernetes.io/instance-type"
ZONE = "topology.kubernetes.io/zone"
PRICE = "gpuconsole.io/price-per-hour"
"""Annotation of a node: USD per hour for the whole node."""


class NodePoolBudget(Struct, frozen=True, omit_defaults=True):
    """Disruption budget of a NodePool: how many nodes may be disrupted at once, for which reasons, when."""

    nodes: str = "10%"
    """A number, or a percentage of the pool's nodes, rounded up."""
    reasons: tuple[str, ...] = ()
    """`Underutilized`, `Empty`, `Drifted`; none means all."""
    schedule: str = ""
    """Cron schedule in UTC at which the budget becomes active; empty for always."""
    duration: Span = 0


DEFAULT_BUDGETS = (NodePoolBudget(),)
EXPIRE_AFTER = 720 * HOUR
"""Default lifetime of a pool's nodes."""


class NodePool(Struct, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """A Karpenter NodePool (karpenter.sh/v1)."""

    name: str
    labels: Mapping[str, str] = NO_LABELS
    taints: tuple[Taint, ...] = ()
    requirements: tuple[tuple[str, str, tuple[str, ...]], ...] = ()
    """Label key, operator and values that its nodes must match."""
    min_values: Mapping[str, int] = {}
    """Label key → minimum number of its values among the instance types to choose from (minValues)."""
    limits: Resources = EMPTY
    """Maximum total resources of its nodes."""
    weight: int = 0
    """Pools with a higher weight are tried first."""
    replicas: int | None = None
    """Number of nodes of a static pool, which is never consolidated."""
    consolidation_policy: str = "WhenEmptyOrUnderutilized"
    consolidate_after: str = ""
    """Time since a pod was added or removed, or `Never`; empty for immediately."""
    expire_after: Span | None = EXPIRE_AFTER
    """Lifetime of its nodes; None for unlimited."""
    termination_grace: Span | None = None
    """Longest time for a drain, after which the node is removed with its remaining pods; None for unlimited."""
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
    """Instance that an autoscaler provisioned; its node has the same name."""

    name: str
    type: str
    zone: str = ""
    capacity_type: str = ON_DEMAND
    price: float = 0.0
    """USD per hour."""
    list_price: float = 0.0
    """USD per hour of the same instance type on demand; 0 if it is not offered on demand."""
    gpus: int = 0
    launched: Time = 0
    ready: Time | None = None
    """Time at which its node joined; None while it starts."""
    leaving: Time | None = None
    """Time of the decision to remove it; None if there is none."""
    reason: str = ""
    """Reason for its removal."""

    def cost(self, now: Time) -> float:
        """USD since launch."""
        return self.price * (now - self.launched) / HOUR


class NodeGroup(Struct, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """Instances of one NodePool (Karpenter) or one scaling group (Cluster Autoscaler), and their cost."""

    name: str
    autoscaler: str = "karpenter"
    instances: tuple[ProvisionedInstance, ...] = ()
    launched: int = 0
    """Number of instances launched so far; their names are numbered by it."""
    gone: int = 0
    interrupted: int = 0
    """Number of instances that the cloud reclaimed."""
    spent: float = 0.0
    """USD for instances that no longer exist."""

    @property
    def key(self) -> str:
        return self.name

    @property
    def hourly(self) -> float:
        """USD per hour of the existing instances."""
        return sum(instance.price for instance in self.instances)

    def cost(self, now: Time) -> float:
        """Accrued cost in USD."""
        return self.spent + sum(instance.cost(now) for instance in self.instances)


class RetryStrategy(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Number and delay of retries after a failed request."""

    limit: int = 3
    base: Span = 60 * SECOND
    most: Span = 1800 * SECOND


class ProvisioningRequestConfig(Struct, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """Parameters of a provisioning admission check (kueue.x-k8s.io)."""

    name: str
    provisioning_class: str = ""
    parameters: Mapping[str, str] = NO_LABELS
    managed_resources: tuple[str, ...] = ()
    """Only pod sets that request one of these are included; empty means all."""
    retry: RetryStrategy = RetryStrategy()
    node_selectors: tuple[tuple[str, str], ...] | None = None
    """(node label, provisioning class detail that is its value) for the pods; None without podSetUpdates."""
    merge_policy: str = ""
    """`IdenticalPodTemplates` or `IdenticalWorkloadSchedulingRequirements`: pod sets that are merged in the request."""

    @property
    def key(self) -> str:
        return self.name


class RequestedPods(Struct, frozen=True):
    """A number of pods of a PodTemplate in the same namespace."""

    template: str
    count: int


class ProvisioningRequest(Struct, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """One attempt to get capacity for a workload. The autoscaler sets its conditions."""

    namespace: str = "default"
    name: str
    created: Time = 0
    labels: Mapping[str, str] = NO_LABELS
    owners: tuple[str, ...] = ()
    """Names of its owners, in its namespace: the workload that needs the capacity."""
    provisioning_class: str = ""
    parameters: Mapping[str, str] = NO_LABELS
    pod_sets: tuple[RequestedPods, ...] = ()
    conditions: tuple[Condition, ...] = ()
    details: Mapping[str, str] = NO_LABELS
    """provisioningClassDetails: the autoscaler's details of the provisioned capacity."""

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"

    def condition(self, type: str) -> Condition | None:
        """Return its condition of this type if it is true."""
        return next((c for c in self.conditions if c.type == type and c.status), None)

    def message(self, type: str) -> str:
        """Return the message of its condition of this type, true or not; empty if absent."""
        return next((c.message for c in self.conditions if c.type == type), "")


class StoredTemplate(Struct, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """A PodTemplate object, which describes the pods of a ProvisioningRequest."""

    namespace: str = "default"
    name: str
    labels: Mapping[str, str] = NO_LABELS
    owner: str = ""
    """`Kind/namespace/name` of its controlling owner."""
    template: PodTemplate = PodTemplate()

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"

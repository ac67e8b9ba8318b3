"""Autoscaling objects: Karpenter NodePools, node groups, ProvisioningRequests, and the instance-type catalogue.

A `NodeGroup` holds the instances that an autoscaler (Karpenter or the Cluster Autoscaler) has launched. By a
`ProvisioningRequest` (autoscaling.x-k8s.io) Kueue requests capacity from an autoscaler before it admits a workload. The
catalogue has sizes, and on-demand and spot prices in USD per hour, by zone.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct

from gpuconsole.model.clock import HOUR, SECOND, Span, Time
from gpuconsole.model.cluster import Node
from gpuconsole.model.documents.findings import DocumentFindings, Finding, Severity
from gpuconsole.model.documents.reader import Reader, shown
from gpuconsole.model.documents.yaml_json import FormError, read_yaml
from gpuconsole.model.labels import NO_LABELS, ClusterScopedObject, NamespacedObject, Taint
from gpuconsole.model.pod_template import PodTemplate
from gpuconsole.model.resources import CPU, EMPTY, GPU, MEMORY, PODS, Resources, amount
from gpuconsole.model.text import clean
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
    """Most nodes that may be disrupted at once: a number, or a percentage of the pool's nodes, rounded up."""
    reasons: tuple[str, ...] = ()
    """`Underutilized`, `Empty`, `Drifted`; none means all."""
    schedule: str = ""
    """Cron schedule in UTC at which the budget becomes active; empty for always."""
    duration: Span = 0


DEFAULT_BUDGETS = (NodePoolBudget(),)
EXPIRE_AFTER = 720 * HOUR
"""Default lifetime of a pool's nodes."""


class NodePool(ClusterScopedObject, frozen=True, kw_only=True, omit_defaults=True, tag=True):
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
    """Time without added or removed pods after which a node may be consolidated, or `Never`; empty for immediately."""
    expire_after: Span | None = EXPIRE_AFTER
    """Lifetime of its nodes; None for unlimited."""
    termination_grace: Span | None = None
    """Longest time for a drain, after which the node is removed with its remaining pods; None for unlimited."""
    budgets: tuple[NodePoolBudget, ...] = DEFAULT_BUDGETS


def machine_hourly(node: Node) -> float | None:
    """USD per hour of a node by its price annotation; None for a node without one."""
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
    """Reason for its removal; empty if it stays."""

    def cost(self, now: Time) -> float:
        """USD since launch."""
        return self.price * (now - self.launched) / HOUR


class NodeGroup(ClusterScopedObject, frozen=True, kw_only=True, omit_defaults=True, tag=True):
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


class ProvisioningRequestConfig(ClusterScopedObject, frozen=True, kw_only=True, omit_defaults=True, tag=True):
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


class RequestedPods(Struct, frozen=True):
    """A PodTemplate in the same namespace, and the number of its pods that a ProvisioningRequest asks for."""

    template: str
    count: int


class ProvisioningRequest(NamespacedObject, frozen=True, kw_only=True, omit_defaults=True, tag=True):
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

    def condition(self, type: str) -> Condition | None:
        """Return its condition of this type if it is true."""
        return next((c for c in self.conditions if c.type == type and c.status), None)

    def message(self, type: str) -> str:
        """Return the message of its condition of this type, true or not; empty if absent."""
        return next((c.message for c in self.conditions if c.type == type), "")


class StoredTemplate(NamespacedObject, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """A PodTemplate object, to which a ProvisioningRequest refers for the pods that need capacity."""

    namespace: str = "default"
    name: str
    labels: Mapping[str, str] = NO_LABELS
    owner: str = ""
    """`Kind/namespace/name` of its controlling owner."""
    template: PodTemplate = PodTemplate()


_MOST_TEXT = 1_000_000
_MOST_TYPES, _MOST_ZONES = 2000, 50
_DEFAULT_PODS = 110
_MEBI = 2**20


class CatalogueError(ValueError):
    """Invalid catalogue; the text has one line per problem."""


class InstanceType(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An instance type and its prices."""

    name: str
    cpu: int = 0
    """In thousandths of a CPU."""
    memory: int = 0
    gpus: int = 0
    gpu: str = ""
    """The cloud's short name of its GPU (`a10g`)."""
    product: str = ""
    """Name in the label of GPU feature discovery (`NVIDIA-A10G`)."""
    gpu_memory: int = 0
    """Bytes of one GPU."""
    pods: int = _DEFAULT_PODS
    on_demand: float | None = None
    """USD per hour; None if it is not offered on demand."""
    spot: Mapping[str, float] = {}
    """USD per hour by zone; empty if it is not offered as spot."""
    zones: tuple[str, ...] = ()
    """Zones in which it is offered on demand."""
    interrupted: float = 0.0
    """Percentage of its spot instances that the cloud reclaims per month."""

    @property
    def family(self) -> str:
        """Instance family, the part before the dot: `g5` of `g5.xlarge`."""
        return self.name.partition(".")[0]

    @property
    def capacity(self) -> Resources:
        """Capacity of a node of this type."""
        plain = {CPU: self.cpu, MEMORY: self.memory, PODS: self.pods}
        return {**plain, GPU: self.gpus} if self.gpus else plain

    def labels(self, zone: str, capacity_type: str) -> dict[str, str]:
        """Return the labels of a node of this type, as the cloud's controllers and GPU feature discovery set them."""
        found = {
            INSTANCE_TYPE: self.name,
            ZONE: zone,
            CAPACITY_TYPE: capacity_type,
            "kubernetes.io/arch": "amd64",
            "kubernetes.io/os": "linux",
            "karpenter.k8s.aws/instance-family": self.family,
            "karpenter.k8s.aws/instance-category": self.name[:1],
            "karpenter.k8s.aws/instance-size": self.name.partition(".")[2],
            "karpenter.k8s.aws/instance-cpu": str(self.cpu // 1000),
            "karpenter.k8s.aws/instance-memory": str(self.memory // _MEBI),
        }
        if self.gpus:
            found |= {
                "karpenter.k8s.aws/instance-gpu-count": str(self.gpus),
                "karpenter.k8s.aws/instance-gpu-name": self.gpu,
                "nvidia.com/gpu.count": str(self.gpus),
                "nvidia.com/gpu.product": self.product,
                "nvidia.com/gpu.memory": str(self.gpu_memory // _MEBI),
            }
        return found


class Offering(Struct, frozen=True):
    """One instance type in one zone, on demand or spot, at its price in USD per hour."""

    type: InstanceType
    zone: str
    capacity_type: str
    price: float

    @property
    def key(self) -> str:
        return f"{self.type.name}/{self.zone}/{self.capacity_type}"


class InstanceTypeCatalogue(Struct, frozen=True):
    """All instance types, by name."""

    types: Mapping[str, InstanceType] = {}

    def offerings(self) -> Iterator[Offering]:
        """Yield every offering, the cheapest first."""
        return iter(sorted(_offerings(self), key=lambda o: (o.price, o.type.name, o.zone, o.capacity_type)))

    def price(self, labels: Mapping[str, str]) -> float | None:
        """USD per hour of a node with these labels; None if the catalogue has no such offering."""
        kind = self.types.get(labels.get(INSTANCE_TYPE, ""))
        if kind is None:
            return None
        if labels.get(CAPACITY_TYPE) == SPOT:
            return kind.spot.get(labels.get(ZONE, ""))
        return kind.on_demand


def _offerings(catalogue: InstanceTypeCatalogue) -> Iterator[Offering]:
    for kind in catalogue.types.values():
        if kind.on_demand is not None:
            yield from (Offering(kind, zone, ON_DEMAND, kind.on_demand) for zone in kind.zones)
        yield from (Offering(kind, zone, SPOT, price) for zone, price in kind.spot.items())


def load(text: str, source: str = "catalogue") -> InstanceTypeCatalogue:
    """Read a catalogue from YAML. Raises CatalogueError with every invalid line of `source`."""
    if len(text) > _MOST_TEXT:
        raise CatalogueError(f"{source}: a catalogue has at most {_MOST_TEXT} characters, this one has {len(text)}")
    try:
        tree = read_yaml(text)
    except FormError as error:
        trouble = error.problem
        raise CatalogueError(f"{source}:{trouble.line}: {trouble.problem}; {trouble.remedy}") from None
    report = DocumentFindings(source, line_of=tree.place.find)
    catalogue = read(tree.value, report)
    problems = _errors(report.findings)
    if problems:
        raise CatalogueError("\n".join(f"{e.file}:{e.line}: {e.path}: {e.problem}; {e.remedy}" for e in problems))
    return catalogue


def read(document: Any, report: DocumentFindings) -> InstanceTypeCatalogue:
    """Read a catalogue from a document with `zones`, `types` and `gpus`; adds problems to the report."""
    if not isinstance(document, dict):
        report.error((), "a catalogue is a mapping", "write zones: […] and types: {g5.xlarge: {…}}", "wrong-type")
        return InstanceTypeCatalogue()
    place = Reader(document, report)
    place.only("zones", "types", "gpus")
    zones = place.texts("zones", _MOST_ZONES)
    if not zones:
        report.error(("zones",), "the catalogue names no zone", "write zones: [us-east-1a]", "required")
    gpus, types = place.mapping("gpus"), place.mapping("types")
    names = list(types.value)[:_MOST_TYPES]
    if len(types.value) > _MOST_TYPES:
        report.error(("types",), f"it has more than {_MOST_TYPES} types", "leave some out", "too-many")
    found = (_type(clean(str(name), 80), types.mapping(name), gpus, zones) for name in names)
    return InstanceTypeCatalogue({kind.name: kind for kind in found})


def _errors(findings: list[Finding]) -> list[Finding]:
    return [finding for finding in findings if finding.severity is not Severity.NOTE]


def _type(name: str, place: Reader, gpus: Reader, zones: tuple[str, ...]) -> InstanceType:
    place.only("cpu", "memory", "gpus", "gpu", "pods", "onDemand", "spot", "zones", "interrupted")
    count, gpu = place.number("gpus", 0, low=0, high=64), place.text("gpu")
    if count and gpu not in gpus:
        place.report.error(
            place.at("gpu"), f"{shown(gpu)} is not described", f"write it under gpus: {gpu}: …", "unknown"
        )
    model = gpus.mapping(gpu) if count else Reader({}, place.report)
    model.only("product", "memory")
    sold = place.texts("zones", _MOST_ZONES) or zones
    return InstanceType(
        name=name,
        cpu=_amount(place, CPU, "cpu"),
        memory=_amount(place, MEMORY, "memory"),
        gpus=count,
        gpu=gpu,
        product=model.text("product"),
        gpu_memory=_amount(model, MEMORY, "memory"),
        pods=place.number("pods", _DEFAULT_PODS, low=1, high=1000),
        on_demand=_price(place, "onDemand"),
        spot=_spot(place, sold),
        zones=sold,
        interrupted=_price(place, "interrupted") or 0.0,
    )


def _amount(place: Reader, resource: str, key: str) -> int:
    raw = place.raw(key)
    if raw is None:
        return 0
    try:
        return max(0, amount(resource, raw))
    except (ValueError, TypeError):
        place.report.error(place.at(key), f"{shown(raw)} is not a quantity", "write it as 8 or 32Gi", "bad-quantity")
        return 0


def _price(place: Reader, key: str) -> float | None:
    """Read a number of 0 or more, below a million; None if it is absent or invalid (reported)."""
    raw = place.raw(key)
    if raw is None:
        return None
    if isinstance(raw, int | float) and not isinstance(raw, bool) and 0 <= raw < 1_000_000:
        return float(raw)
    place.report.error(place.at(key), f"{shown(raw)} is not a valid number", "write 0 or more", "bad-value")
    return None


def _spot(place: Reader, zones: tuple[str, ...]) -> Mapping[str, float]:
    """Read the spot price: one for all zones, or one per zone that offers spot."""
    if not isinstance(place.raw("spot"), dict):
        everywhere = _price(place, "spot")
        return {} if everywhere is None else dict.fromkeys(zones, everywhere)
    inner = place.mapping("spot")
    prices = ((clean(str(zone), 80), _price(inner, zone)) for zone in list(inner.value)[:_MOST_ZONES])
    return {zone: price for zone, price in prices if price is not None}

"""What Kubernetes itself knows: nodes, pods, namespaces, priorities, and what a pod asks for."""

import re
from collections.abc import Mapping
from enum import StrEnum

from msgspec import Struct, field
from msgspec.structs import replace

from gpuconsole.model.clock import SECOND, Span, Time
from gpuconsole.model.gpus.mig import Instance
from gpuconsole.model.quantity import CPU, MEMORY
from gpuconsole.model.resources import EMPTY, Resources, add, gpus, largest

HOSTNAME = "kubernetes.io/hostname"
NAMESPACE_NAME = "kubernetes.io/metadata.name"
"""The label of every namespace that holds its name."""
NO_LABELS: Mapping[str, str] = {}
_INTEGER = re.compile(r"[-+]?[0-9]{1,18}")


class Taint(Struct, frozen=True, omit_defaults=True):
    """A mark on a node (or a flavor) that keeps pods away unless they tolerate it."""

    key: str
    value: str = ""
    effect: str = "NoSchedule"


class Toleration(Struct, frozen=True, omit_defaults=True):
    """What a pod puts up with. An empty key with operator Exists tolerates everything, an empty effect any effect."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""
    seconds: int | None = None

    def tolerates(self, taint: Taint) -> bool:
        """True if this toleration covers the taint (k8s.io/api/core/v1 Toleration.ToleratesTaint)."""
        if self.effect and self.effect != taint.effect:
            return False
        if self.key and self.key != taint.key:
            return False
        return self.operator == "Exists" or (bool(self.key) and self.value == taint.value)


class Requirement(Struct, frozen=True, omit_defaults=True):
    """One expression over labels: operator is In, NotIn, Exists, DoesNotExist, Gt or Lt."""

    key: str
    operator: str
    values: tuple[str, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Evaluate against labels, as k8s.io/component-helpers nodeaffinity does."""
        value = labels.get(self.key)
        match self.operator:
            case "In":
                return value is not None and value in self.values
            case "NotIn":
                return value is None or value not in self.values
            case "Exists":
                return value is not None
            case "DoesNotExist":
                return value is None
            case "Gt" | "Lt":
                return self._compares(value)
        return False

    def _compares(self, value: str | None) -> bool:
        texts = (value or "", self.values[0] if self.values else "")
        if not all(_INTEGER.fullmatch(text) for text in texts):
            return False
        left, right = map(int, texts)
        return left > right if self.operator == "Gt" else left < right


class LabelSelector(Struct, frozen=True, omit_defaults=True):
    """A selector over labels; an empty one selects everything. `None` in its place selects nothing."""

    match_labels: Mapping[str, str] = NO_LABELS
    match_expressions: tuple[Requirement, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        return all(labels.get(k) == v for k, v in self.match_labels.items()) and all(
            requirement.matches(labels) for requirement in self.match_expressions
        )


class NodeTerm(Struct, frozen=True, omit_defaults=True):
    """One alternative of a node affinity: all its expressions must hold. An empty term matches nothing."""

    expressions: tuple[Requirement, ...] = ()
    fields: tuple[Requirement, ...] = ()

    def matches(self, labels: Mapping[str, str], name: str) -> bool:
        """True for a node of these labels and this name."""
        if not self.expressions and not self.fields:
            return False
        fields = {"metadata.name": name}
        return all(one.matches(labels) for one in self.expressions) and all(one.matches(fields) for one in self.fields)


class PreferredTerm(Struct, frozen=True, omit_defaults=True):
    """A term that raises a node's score by its weight (1 to 100)."""

    weight: int
    term: NodeTerm


class HostPort(Struct, frozen=True, omit_defaults=True):
    """A port of its node that a container takes."""

    port: int
    protocol: str = "TCP"
    ip: str = "0.0.0.0"
    """The address of the node; 0.0.0.0 is all of them."""


class Container(Struct, frozen=True, omit_defaults=True):
    """What one container asks for. `sidecar` is an init container with restartPolicy Always."""

    name: str = "main"
    image: str = ""
    requests: Resources = EMPTY
    limits: Resources = EMPTY
    sidecar: bool = False
    fractions: Mapping[str, str] = NO_LABELS
    """Requested devices that are no whole number, as quantities; `requests` has them rounded up."""
    ports: tuple[HostPort, ...] = ()
    """Those that it takes of its node."""

    @property
    def effective(self) -> Resources:
        """Requests, with limits where a request is missing (the API server's defaulting)."""
        return {**self.limits, **self.requests} if self.limits else self.requests


class PodResources(Struct, frozen=True, omit_defaults=True):
    """What all containers of a pod have together, whatever each of them asks for (KEP-2837)."""

    requests: Resources = EMPTY
    limits: Resources = EMPTY

    @property
    def effective(self) -> Resources:
        """Requests, with limits where a request is missing; only of CPU, memory and hugepages."""
        asked = {**self.limits, **self.requests}
        return {name: value for name, value in asked.items() if name in (CPU, MEMORY) or name.startswith("hugepages-")}


class SpreadConstraint(Struct, frozen=True, omit_defaults=True):
    """A topologySpreadConstraint."""

    topology_key: str
    max_skew: int = 1
    when_unsatisfiable: str = "DoNotSchedule"
    selector: LabelSelector | None = None
    min_domains: int | None = None
    honors_affinity: bool = True
    """False counts nodes too that the pod's node affinity forbids (nodeAffinityPolicy: Ignore)."""
    honors_taints: bool = False
    """True leaves out nodes whose taints the pod does not tolerate (nodeTaintsPolicy: Honor)."""
    match_label_keys: tuple[str, ...] = ()
    """Labels in which a pod has to be like this one, besides what the selector asks for."""


class PodTerm(Struct, frozen=True, omit_defaults=True):
    """Other pods, and how near: those that it selects, in the same domain of a node's label."""

    topology_key: str
    selector: LabelSelector | None = None
    """Which pods; None is none of them, an empty one all."""
    namespaces: tuple[str, ...] = ()
    """Where they are; together with `namespace_selector`. Where neither is given, the pod's own namespace."""
    namespace_selector: LabelSelector | None = None
    match_label_keys: tuple[str, ...] = ()
    """Labels in which a pod has to be like the one that asks, besides what the selector asks for."""
    mismatch_label_keys: tuple[str, ...] = ()
    """Labels in which it has to differ."""


class PodAffinity(Struct, frozen=True, omit_defaults=True):
    """Which pods a pod wants near it, or (anti-affinity) far from it."""

    required: tuple[PodTerm, ...] = ()
    preferred: tuple[tuple[int, PodTerm], ...] = ()
    """(weight of 1 to 100, term)."""


class PodClaim(Struct, frozen=True, omit_defaults=True):
    """Devices that a pod claims: by a template, a claim of its own for each pod, or by one shared claim."""

    name: str
    template: str = ""
    claim: str = ""


class PodVolume(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Storage that a pod mounts: by a claim that others may name too, or by one of its own (generic ephemeral)."""

    name: str
    claim: str = ""
    """Empty for a claim that is made for the pod, and goes with it: `POD-NAME`."""
    storage_class: str | None = None
    """What a claim of its own asks for."""
    storage: int = 0
    access_modes: tuple[str, ...] = ()


class PodTemplate(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a pod asks for: shared by all pods of a pod set."""

    labels: Mapping[str, str] = NO_LABELS
    annotations: Mapping[str, str] = NO_LABELS
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    resources: PodResources | None = None
    """What the pod asks for as a whole; None where only its containers ask."""
    overhead: Resources = EMPTY
    node_selector: Mapping[str, str] = NO_LABELS
    affinity: tuple[NodeTerm, ...] | None = None
    """Required node affinity: any of the terms; None means no affinity at all."""
    preferred: tuple[PreferredTerm, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    priority_class: str = ""
    priority: int | None = None
    preemption_policy: str = ""
    """`Never` or `PreemptLowerPriority`; empty takes the priority class's."""
    restart_policy: str = ""
    grace_period: Span = 30 * SECOND
    scheduler_name: str = "default-scheduler"
    scheduling_gates: tuple[str, ...] = ()
    runtime_class: str = ""
    hostname: str = ""
    subdomain: str = ""
    resource_claims: tuple[PodClaim, ...] = ()
    volumes: tuple[PodVolume, ...] = ()
    """Those of its volumes that are claims."""
    local_volumes: tuple[str, ...] = ()
    """Names of those that lie on the node's own disk, and are lost with the pod (emptyDir, hostPath)."""
    spread: tuple[SpreadConstraint, ...] = ()
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None

    @property
    def requests(self) -> dict[str, int]:
        """What one pod needs: max(init containers in turn, all containers and sidecars) + overhead.

        What the pod asks for as a whole replaces what its containers come to. Sidecars run from their place on, so
        each later init container runs beside them (k8s.io/component-helpers/resource PodRequests).
        """
        if len(self.containers) == 1 and not self.init_containers and not self.overhead and self.resources is None:
            return dict(self.containers[0].effective)
        running = add(*(c.effective for c in self.containers))
        sidecars: dict[str, int] = {}
        starting: dict[str, int] = {}
        for container in self.init_containers:
            if container.sidecar:
                sidecars = add(sidecars, container.effective)
                starting = largest(starting, sidecars)
            else:
                starting = largest(starting, add(sidecars, container.effective))
        needs = largest(add(running, sidecars), starting)
        if self.resources is not None:
            needs.update(self.resources.effective)
        return add(needs, self.overhead)


class Node(Struct, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """A machine. Its GPUs are numbered 0 … `gpus` - 1; pods name the indices that they own."""

    name: str
    uid: str = ""
    created: Time = 0
    labels: Mapping[str, str] = NO_LABELS
    annotations: Mapping[str, str] = NO_LABELS
    taints: tuple[Taint, ...] = ()
    capacity: Resources = EMPTY
    allocatable: Resources = EMPTY
    unschedulable: bool = False
    """Cordoned."""
    ready: bool = True
    not_ready_since: Time | None = None
    """None also where nothing says whether it is ready."""
    conditions: Mapping[str, bool] = {}
    """Its other conditions: MemoryPressure, DiskPressure …"""
    images: Mapping[str, int] = {}
    """Size in bytes of each image that it holds, by each of its names."""
    synthesised: bool = False
    """Made from a flavor because the input had no nodes."""

    @property
    def key(self) -> str:
        return self.name

    @property
    def gpus(self) -> int:
        return gpus(self.allocatable)

    def twin(self, name: str) -> "Node":
        """Another node like this one, as it joins: ready, and taking pods."""
        labels = {**self.labels, HOSTNAME: name} if HOSTNAME in self.labels else self.labels
        joins = replace(self, name=name, uid="", labels=labels, conditions={})
        return replace(joins, unschedulable=False, ready=True, not_ready_since=None)


class PodPhase(StrEnum):
    PENDING = "Pending"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


class Pod(Struct, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """A pod, as the API server would show it."""

    namespace: str = "default"
    name: str
    uid: str = ""
    created: Time = 0
    labels: Mapping[str, str] = NO_LABELS
    annotations: Mapping[str, str] = NO_LABELS
    template: PodTemplate = field(default_factory=PodTemplate)
    priority: int = 0
    """Resolved from the priority class when the pod was created."""
    job: str = ""
    """`Kind/namespace/name` of the job that owns it."""
    workload: str = ""
    """`namespace/name` of the Workload that it belongs to."""
    pod_set: str = ""
    index: int = 0
    gang: str = ""
    """Pods of the same non-empty gang start together or not at all."""
    gang_size: int = 0
    """How many pods of the gang must be placed at once."""
    gates: tuple[str, ...] = ()
    phase: PodPhase = PodPhase.PENDING
    node: str = ""
    gpus: tuple[int, ...] = ()
    """Indices of the GPUs that it owns on its node."""
    guessed: bool = False
    """Nobody said which GPUs those are: a live cluster only tells how many."""
    slices: tuple[Instance, ...] = ()
    """The MIG instances that it owns there."""
    bound: Time = 0
    started: Time = 0
    finished: Time = 0
    deleted: Time = 0
    """When its deletion was asked for; it holds its node until it is gone."""
    nominated_node: str = ""
    reason: str = ""
    """Why it is where it is (`Unschedulable`, `Preempted`, `NodeLost`)."""
    message: str = ""
    unready: bool = False
    """It runs, and one of its containers is not ready."""
    hostname: str = ""
    subdomain: str = ""
    """The service in which it is known by its host name."""
    env: Mapping[str, str] = NO_LABELS
    """What plugins add to the environment of all its containers."""
    command: str = ""
    """What a plugin lets its main container run."""

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def done(self) -> bool:
        return self.phase in (PodPhase.SUCCEEDED, PodPhase.FAILED)


class PodDisruptionBudget(Struct, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """How many of some pods may be away at once (policy/v1). It binds evictions of drains, never those of Kueue."""

    namespace: str = "default"
    name: str
    selector: LabelSelector | None = None
    """Which pods of the namespace; None is none, an empty one all."""
    min_available: str = ""
    """A number, or a part of the pods (`50%`); empty where the other one is given."""
    max_unavailable: str = ""

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"

    def allowed(self, expected: int, healthy: int) -> int:
        """How many pods may go now of so many, so many of which are healthy (status.disruptionsAllowed)."""
        if self.max_unavailable:
            stay = max(0, expected - _part(self.max_unavailable, expected))
        else:
            stay = _part(self.min_available, expected)
        return max(0, healthy - stay)


def _part(text: str, total: int) -> int:
    """A number, or a percentage of the total, rounded up; what is neither counts nothing."""
    number = text.removesuffix("%")
    if not number.isdecimal():
        return 0
    return -(-int(number) * total // 100) if text.endswith("%") else int(number)


class Namespace(Struct, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    name: str
    labels: Mapping[str, str] = NO_LABELS
    named_only: bool = False
    """Made because something named it; no manifest declared it."""

    @property
    def key(self) -> str:
        return self.name


class PriorityClass(Struct, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    name: str
    value: int
    global_default: bool = False
    preemption_policy: str = "PreemptLowerPriority"
    description: str = ""

    @property
    def key(self) -> str:
        return self.name


class ResourceQuota(Struct, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """How much a namespace may use of each resource, and how much it uses; scopes are not read."""

    namespace: str = "default"
    name: str
    hard: Resources = EMPTY
    used: Resources = EMPTY

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"


class RuntimeClass(Struct, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """A way to run containers, and what that costs each pod."""

    name: str
    handler: str = ""
    overhead: Resources = EMPTY

    @property
    def key(self) -> str:
        return self.name


class LimitRangeItem(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Limits and defaults for one type (Container or Pod)."""

    type: str = "Container"
    max: Resources = EMPTY
    min: Resources = EMPTY
    default: Resources = EMPTY
    default_request: Resources = EMPTY
    max_ratio: Mapping[str, str] = NO_LABELS


class LimitRange(Struct, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    namespace: str
    name: str
    items: tuple[LimitRangeItem, ...] = ()

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"

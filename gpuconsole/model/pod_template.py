"""Pod templates: containers, node and pod affinity, devices and storage."""

from collections.abc import Mapping, Sequence

from msgspec import Struct

from gpuconsole.model.clock import SECOND, Span
from gpuconsole.model.labels import NO_LABELS, LabelSelector, NodeTerm, PreferredTerm, Toleration
from gpuconsole.model.quantity import CPU, MEMORY
from gpuconsole.model.resources import EMPTY, Resources, add, largest


class HostPort(Struct, frozen=True, omit_defaults=True):
    """A host port that a container uses."""

    port: int
    protocol: str = "TCP"
    ip: str = "0.0.0.0"
    """The address of the node; 0.0.0.0 is all of them."""


class Container(Struct, frozen=True, omit_defaults=True):
    """Requests and limits of one container. `sidecar` is an init container with restartPolicy Always."""

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
    """Pod-level resources, which override the sum of the containers (KEP-2837)."""

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
    """A pod affinity term: the pods it selects, and the node label whose domain they share."""

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
    """Pod affinity, or (anti-affinity) pods to keep away from."""

    required: tuple[PodTerm, ...] = ()
    preferred: tuple[tuple[int, PodTerm], ...] = ()
    """(weight of 1 to 100, term)."""


class PodClaim(Struct, frozen=True, omit_defaults=True):
    """DRA claim of a pod: from a template, one per pod, or a shared claim."""

    name: str
    template: str = ""
    claim: str = ""


class PodVolume(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Volume of a pod: a PersistentVolumeClaim that others may share, or a generic ephemeral volume."""

    name: str
    claim: str = ""
    """Empty for a claim that is made for the pod, and goes with it: `POD-NAME`."""
    storage_class: str | None = None
    """What a claim of its own asks for."""
    storage: int = 0
    access_modes: tuple[str, ...] = ()


class PodTemplate(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Spec shared by all pods of a pod set."""

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
    active_deadline: Span | None = None
    """activeDeadlineSeconds of the pod itself, which makes it Terminating for a ResourceQuota."""
    grace_period: Span = 30 * SECOND
    scheduler_name: str = "default-scheduler"
    scheduling_gates: tuple[str, ...] = ()
    runtime_class: str = ""
    hostname: str = ""
    subdomain: str = ""
    scheduling_group: str = ""
    """Name of its PodGroup of scheduling.k8s.io; of a replica of a Workload's pod group WORKLOAD-GROUP-REPLICA."""
    scheduling_workload: str = ""
    """`WORKLOAD/GROUP` of the Workload that the PodGroup is made from (spec.workloadRef)."""
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
        """Effective requests of one pod: max(init containers in turn, all containers and sidecars) + overhead.

        What the pod asks for as a whole replaces what its containers come to. Sidecars run from their place on, so
        each later init container runs beside them (k8s.io/component-helpers/resource PodRequests).
        """
        if len(self.containers) == 1 and not self.init_containers and not self.overhead and self.resources is None:
            return dict(self.containers[0].effective)
        needs = self._at_most([c.effective for c in self.containers], [c.effective for c in self.init_containers])
        if self.resources is not None:
            needs.update(self.resources.effective)
        return add(needs, self.overhead)

    @property
    def limits(self) -> dict[str, int]:
        """Effective limits of one pod (k8s.io/component-helpers/resource PodLimits)."""
        needs = self._at_most([c.limits for c in self.containers], [c.limits for c in self.init_containers])
        if self.resources is not None:
            needs.update(self.resources.limits)
        return add(needs, {name: amount for name, amount in self.overhead.items() if needs.get(name)})

    def _at_most(self, containers: Sequence[Resources], init_containers: Sequence[Resources]) -> dict[str, int]:
        """max(init containers in turn, all containers and sidecars), of these amounts of the containers."""
        running = add(*containers)
        sidecars: dict[str, int] = {}
        starting: dict[str, int] = {}
        for container, amounts in zip(self.init_containers, init_containers, strict=True):
            if container.sidecar:
                sidecars = add(sidecars, amounts)
                starting = largest(starting, sidecars)
            else:
                starting = largest(starting, add(sidecars, amounts))
        return largest(add(running, sidecars), starting)

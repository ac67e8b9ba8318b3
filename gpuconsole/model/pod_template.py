"""Pod templates, and pod sets: a number of identical pods and their topology request.

A template has what placement depends on: containers, affinity, tolerations, device claims, volumes.
"""

from collections.abc import Mapping, Sequence

from msgspec import Struct

from gpuconsole.model.clock import SECOND, Span
from gpuconsole.model.labels import NO_LABELS, LabelSelector, NodeTerm, PreferredTerm, Toleration
from gpuconsole.model.resources import CPU, EMPTY, MEMORY, Resources, add, largest, scale


class HostPort(Struct, frozen=True, omit_defaults=True):
    """A host port that a container uses."""

    port: int
    protocol: str = "TCP"
    ip: str = "0.0.0.0"
    """Address of the node; 0.0.0.0 means all of them."""


class Container(Struct, frozen=True, omit_defaults=True):
    """Requests and limits of one container. `sidecar` is an init container with restartPolicy Always."""

    name: str = "main"
    image: str = ""
    requests: Resources = EMPTY
    limits: Resources = EMPTY
    sidecar: bool = False
    fractions: Mapping[str, str] = NO_LABELS
    """Requested device amounts that are not integers, as quantities; `requests` has them rounded up."""
    ports: tuple[HostPort, ...] = ()
    """Ports of the node that the container uses."""

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
    """False also counts nodes that the pod's node affinity excludes (nodeAffinityPolicy: Ignore)."""
    honors_taints: bool = False
    """True excludes nodes whose taints the pod does not tolerate (nodeTaintsPolicy: Honor)."""
    match_label_keys: tuple[str, ...] = ()
    """Labels that counted pods must share with this pod, in addition to the selector."""


class PodTerm(Struct, frozen=True, omit_defaults=True):
    """A pod affinity term: the pods it selects, and the node label whose domain they share."""

    topology_key: str
    selector: LabelSelector | None = None
    """Selects the pods; None selects none, an empty one all."""
    namespaces: tuple[str, ...] = ()
    """Namespaces of the selected pods, beside `namespace_selector`; without both, the pod's own namespace."""
    namespace_selector: LabelSelector | None = None
    match_label_keys: tuple[str, ...] = ()
    """Labels that they must share with the pod, in addition to the selector."""
    mismatch_label_keys: tuple[str, ...] = ()
    """Labels in which they must differ from the pod."""


class PodAffinity(Struct, frozen=True, omit_defaults=True):
    """Pod affinity or anti-affinity."""

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
    """Empty for a claim that is created for the pod and deleted with it: `POD-NAME`."""
    storage_class: str | None = None
    """Storage class of a claim that is created for the pod."""
    storage: int = 0
    access_modes: tuple[str, ...] = ()


class PodTemplate(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Spec shared by all pods of a pod set."""

    labels: Mapping[str, str] = NO_LABELS
    annotations: Mapping[str, str] = NO_LABELS
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    resources: PodResources | None = None
    """Pod-level resources; None if it has none."""
    overhead: Resources = EMPTY
    node_selector: Mapping[str, str] = NO_LABELS
    affinity: tuple[NodeTerm, ...] | None = None
    """Required node affinity: any of the terms; None without affinity."""
    preferred: tuple[PreferredTerm, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    priority_class: str = ""
    priority: int | None = None
    preemption_policy: str = ""
    """`Never` or `PreemptLowerPriority`; empty for that of the priority class."""
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
    """Name of its PodGroup of scheduling.k8s.io; WORKLOAD-GROUP-REPLICA for a replica of a Workload's pod group."""
    scheduling_workload: str = ""
    """`WORKLOAD/GROUP` of the Workload from which the PodGroup is created (spec.workloadRef)."""
    resource_claims: tuple[PodClaim, ...] = ()
    volumes: tuple[PodVolume, ...] = ()
    """Volumes of the pod that use a PersistentVolumeClaim."""
    local_volumes: tuple[str, ...] = ()
    """Names of its volumes on the node's disk, which are lost with the pod (emptyDir, hostPath)."""
    spread: tuple[SpreadConstraint, ...] = ()
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None

    @property
    def requests(self) -> dict[str, int]:
        """Effective requests of one pod: max(init containers in turn, all containers and sidecars) + overhead.

        Pod-level requests replace the sum of the containers. Sidecars run from their position on, so each later init
        container runs in addition to them (k8s.io/component-helpers/resource PodRequests).
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
        """Return max(init containers in turn, all containers and sidecars) of the containers' amounts."""
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


class TopologyRequest(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Topology request of a pod set; `required` and `preferred` name a level's node label."""

    required: str = ""
    preferred: str = ""
    unconstrained: bool = False
    slice_required: str = ""
    slice_size: int | None = None
    slice_constraints: tuple[tuple[str, int], ...] = ()
    group: str = ""
    index_label: str = ""
    subgroup_index_label: str = ""
    subgroup_count: int | None = None

    @property
    def explicit(self) -> bool:
        """True if it requests a topology, and not only an order of pods (IsExplicitlyRequestingTAS)."""
        levels = self.required or self.preferred or self.unconstrained
        return bool(levels or self.slice_required or self.slice_size or self.slice_constraints)


class PodSet(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A number of identical pods of a job (Kueue's podSet)."""

    name: str = "main"
    count: int = 1
    min_count: int | None = None
    template: PodTemplate = PodTemplate()
    topology: TopologyRequest | None = None
    pod_names: tuple[str, ...] = ()
    """Names of the first pods, if they existed before (pod group); the other pods are numbered."""

    @property
    def requests(self) -> dict[str, int]:
        """Total requests of all its pods, before Kueue's adjustments."""
        return scale(self.template.requests, self.count)

"""Volcano's objects; the scheduler that acts on them is in `gpuconsole.sim`."""

from collections.abc import Mapping

from msgspec import Struct

from gpuconsole.model.clock import Time
from gpuconsole.model.labels import NO_LABELS, LabelSelector
from gpuconsole.model.resources import EMPTY, Resources


class GroupAffinity(Struct, frozen=True, omit_defaults=True):
    """Node groups for a queue's pods (the nodegroup plugin)."""

    required: tuple[str, ...] = ()
    preferred: tuple[str, ...] = ()
    anti_required: tuple[str, ...] = ()
    anti_preferred: tuple[str, ...] = ()


class NetworkTopology(Struct, frozen=True, omit_defaults=True):
    """Network topology constraint: within one HyperNode of at most this tier (`hard`), or as close as possible."""

    mode: str = ""
    """`hard` or `soft`."""
    highest_tier: int | None = None
    highest_tier_name: str = ""


class SubGroupPolicy(Struct, frozen=True, omit_defaults=True):
    """Subgroups of a PodGroup: pods with equal values of these labels form a gang."""

    name: str
    size: int | None = None
    """Number of pods that start together."""
    least: int | None = None
    """Number of such gangs that the PodGroup needs (minSubGroups)."""
    network_topology: NetworkTopology | None = None
    selector: LabelSelector | None = None
    """Selects the pods; None selects all."""
    match_label_keys: tuple[str, ...] = ()


class HyperNodeMember(Struct, frozen=True, omit_defaults=True):
    """Member of a HyperNode: nodes, or one HyperNode below it."""

    type: str
    """`Node` or `HyperNode`."""
    exact: str | None = None
    pattern: str | None = None
    """Regular expression that must match a part of a node's name."""
    selector: LabelSelector | None = None


class HyperNode(Struct, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """A network topology domain: the lower its tier, the closer its nodes (topology.volcano.sh)."""

    name: str
    created: Time = 0
    tier: int = 0
    tier_name: str = ""
    members: tuple[HyperNodeMember, ...] = ()

    @property
    def key(self) -> str:
        return self.name


class CpuPlace(Struct, frozen=True, omit_defaults=True):
    """NUMA node, socket and core of a CPU."""

    numa: int = 0
    socket: int = 0
    core: int = 0
    """Number of the core; two CPUs of one core are its threads."""


class Numatopology(Struct, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """NUMA topology of a node by its exporter (nodeinfo.volcano.sh); has the node's name."""

    name: str
    created: Time = 0
    cpu_policy: str = ""
    """CPUManagerPolicy of the kubelet; only `static` assigns CPUs exclusively."""
    topology_policy: str = ""
    """TopologyManagerPolicy: none, best-effort, restricted or single-numa-node."""
    reserved_cpu: int = 0
    """Milli-CPU that the node reserves for itself."""
    cpus: Mapping[int, CpuPlace] = {}
    free: tuple[int, ...] = ()
    """CPUs that are not assigned exclusively, in ascending order."""

    @property
    def key(self) -> str:
        return self.name


class VolcanoQueue(Struct, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """Queue of Volcano."""

    name: str
    uid: str = ""
    created: Time = 0
    annotations: Mapping[str, str] = NO_LABELS
    weight: int = 1
    parent: str = ""
    capability: Resources = EMPTY
    deserved: Resources = EMPTY
    guarantee: Resources = EMPTY
    reclaimable: bool = True
    priority: int = 0
    dequeue_strategy: str = ""
    """`fifo` stops at the first job that does not fit, `traverse` continues; empty means traverse."""
    affinity: GroupAffinity | None = None
    state: str = "Open"
    """Open, Closed, Closing or Unknown; only an open queue takes new jobs."""

    @property
    def key(self) -> str:
        return self.name


class GroupCondition(Struct, frozen=True, omit_defaults=True):
    """Condition of a PodGroup by Volcano's scheduler: Unschedulable or Scheduled, and why."""

    type: str
    status: bool
    reason: str = ""
    message: str = ""
    since: Time = 0


class RayGroup(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """PodGroup that KubeRay's operator creates for the pods of a RayCluster or RayJob.

    KubeRay 1.6 ray-operator/controllers/ray/batchscheduler/volcano and scheduler-plugins.
    """

    for_volcano: bool
    """True for one of Volcano's; False for one of the Coscheduling plugin's, which pods name by a label."""
    min_member: int
    """Head and workers; a submitter is created later and does not count."""
    min_resources: Resources = EMPTY
    queue: str = ""
    priority_class: str = ""
    network_topology: NetworkTopology | None = None

    def name_for(self, owner: str) -> str:
        """Return its name for a RayCluster or RayJob."""
        return f"ray-{owner}-pg" if self.for_volcano else owner


class PodGroup(Struct, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """A gang by Volcano (scheduling.volcano.sh), the Coscheduling plugin (scheduling.x-k8s.io) or Kubernetes."""

    namespace: str = "default"
    name: str
    uid: str = ""
    created: Time = 0
    labels: Mapping[str, str] = NO_LABELS
    annotations: Mapping[str, str] = NO_LABELS
    min_member: int = 1
    min_task_member: Mapping[str, int] = {}
    """Minimum number of pods of each task (role)."""
    queue: str = ""
    priority_class: str = ""
    min_resources: Resources | None = None
    """Resources that must be available before its pods are considered; None for no condition."""
    network_topology: NetworkTopology | None = None
    sub_groups: tuple[SubGroupPolicy, ...] = ()
    policy: str = ""
    """`gang` or `basic` for a group of scheduling.k8s.io; empty for others, which have no `topology_key` and
    `parent_group`.
    """
    topology_key: str = ""
    """All its pods must be on nodes with the same value of this label."""
    parent_group: str = ""
    """Name of the CompositePodGroup that contains it."""
    phase: str = ""
    """Pending, Inqueue, Running, Unknown or Completed; empty means Pending."""
    conditions: tuple[GroupCondition, ...] = ()

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"

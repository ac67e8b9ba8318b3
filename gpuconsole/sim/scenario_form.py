"""The scenario file as written: keys, defaults and their meaning. `scenario` turns it into a simulation.

Durations are strings such as `90s`, `40m` or `1h30m`; objects are Kubernetes objects.
"""

from typing import Any, Literal

from msgspec import Struct, field

from gpuconsole.scheduling.kube.profile import Score

Document = dict[str, Any]


class ScenarioError(ValueError):
    """A scenario is invalid; the text has one line for each error, with the valid alternatives."""


class SpreadForm(Struct, frozen=True, rename="camel"):
    """A log-normal distribution of durations; a plain string in its place is a constant duration."""

    median: str = "1h"
    sigma: float = 0.0
    least: str = "1s"
    most: str = "1000h"


class ShapeForm(Struct, frozen=True, rename="camel"):
    """A job size."""

    pods: int = 1
    gpus: int = 1
    weight: float = 1.0
    resources: dict[str, str | int | float] = field(default_factory=dict)
    node_selector: dict[str, str] = field(default_factory=dict)
    min_pods: int | None = None
    kinds: dict[str, float] = field(default_factory=dict)
    duration: SpreadForm | str | None = None


class StreamForm(Struct, frozen=True, rename="camel"):
    """A stream of job submissions; see `arrivals.ArrivalStream`."""

    name: str
    namespace: str
    queue: str = ""
    per_hour: float = 1.0
    by_hour: tuple[float, ...] = ()
    kinds: dict[str, float] = field(default_factory=lambda: {"Job": 1.0})
    shapes: tuple[ShapeForm, ...] = (ShapeForm(),)
    duration: SpreadForm | str = SpreadForm(sigma=0.8)
    checkpoint: SpreadForm | str | None = None
    checkpointed: float = 1.0
    priorities: dict[str, float] = field(default_factory=dict)
    pod_priority_class: str = ""
    grace: str | None = None
    at_start: int = 0
    first: str = "0s"
    image: str | None = None


class UsageForm(Struct, frozen=True, rename="camel"):
    """Past usage of KAI's queues: a sliding window, with exponential decay by half-life (0s: no decay)."""

    window: str = "168h"
    half_life: str = "0s"


class PlacementForm(Struct, frozen=True, rename="camel"):
    """The scheduler that places pods, and its configuration."""

    engine: Literal["kube-scheduler", "Volcano", "KAI"] = "kube-scheduler"
    conf: str = ""
    """The engine's own configuration: its text, or a file relative to the scenario's own.

    Empty: that of Volcano's Helm chart, or KAI's default; for kube-scheduler, nodes are scored by `score` unless
    `profile` is named.
    """
    profile: str = ""
    """Only kube-scheduler: the schedulerName of a profile of conf, or of kube-scheduler's own, default-scheduler."""
    devices: str = ""
    """Only Volcano: its device-config.yaml, written out or as a file, with the MIG instances that GPUs divide into."""
    feature_gates: dict[str, bool] = {}
    """Only Volcano: Kubernetes' feature gates of its scheduler."""
    usage: UsageForm | None = None
    """Only KAI: past use counts in the fair shares."""
    score: Score = "binpack"
    gangs: bool = True
    preemption: bool = True


class GroupForm(Struct, frozen=True, rename="camel"):
    """A node group of the Cluster Autoscaler."""

    name: str
    instance_type: str
    zone: str = ""
    capacity_type: Literal["on-demand", "spot"] = "on-demand"
    min: int = 0
    max: int = 10
    size: int = 0
    labels: dict[str, str] = field(default_factory=dict)
    taints: tuple[Document, ...] = ()
    priority: int = 0


class SpotForm(Struct, frozen=True, rename="camel"):
    """Spot interruptions; see `autoscaling.policy.SpotPolicy`."""

    notice: str = "2m"
    interruptions: float = 1.0
    critical_priority: int | None = None
    diversity: float = 0.1


class LinksForm(Struct, frozen=True, rename="camel"):
    """GPU interconnects of nodes whose annotations do not describe them."""

    wiring: str = ""
    """Groups of GPUs by index, `nvlink=0-3,4-7 switch=… numa=…`; empty: the usual wiring of the GPU model."""
    nvlink: int | None = None
    """GB/s inside an NVLink domain; None: that of the GPU model (A100 600, H100 900)."""
    network: int | None = None
    """GB/s between nodes; None: 25."""


class CapacityForm(Struct, frozen=True, rename="camel"):
    """Capacity: fixed nodes (generated where the objects have none), the Cluster Autoscaler or Karpenter."""

    kind: Literal["fixed", "cluster-autoscaler", "karpenter"] = "fixed"
    gpus_per_node: int = 8
    links: LinksForm = LinksForm()
    catalogue: Document | str | None = None
    """The instance-type catalogue, or a file that holds it, relative to the scenario's own."""
    startup: SpreadForm | str | None = None
    """Time from launching a machine until its node joins."""
    unavailable: tuple[str, ...] = ()
    """Unavailable offerings, as `type/zone/capacity type`; `*` matches any part."""
    spot: SpotForm = SpotForm()
    spot_to_spot_consolidation: bool = False
    groups: tuple[GroupForm, ...] = ()
    expander: Literal["least-waste", "most-pods", "least-nodes", "price", "priority", "random"] = "least-waste"
    scan_interval: str = "10s"
    new_pod_scale_up_delay: str = "0s"
    max_node_provision_time: str = "15m"
    scale_down_unneeded_time: str = "10m"
    scale_down_unready_time: str = "20m"
    scale_down_delay_after_add: str = "10m"
    scale_down_delay_after_failure: str = "3m"
    scale_down_utilization_threshold: float = 0.5
    scale_down_gpu_utilization_threshold: float = 0.5
    ok_total_unready_count: int = 3
    max_total_unready_percentage: float = 45.0


class AutoscalerForm(Struct, frozen=True, rename="camel"):
    """Answers to ProvisioningRequests."""

    delay: str = "30s"
    failures: int = 0
    """Number of first attempts of a workload's check that fail whatever the free capacity."""


class QuantilesForm(Struct, frozen=True, rename="camel"):
    """A latency as quantiles; see `latencies.LatencyDistribution`."""

    p5: str
    p50: str
    p90: str
    p99: str
    max: str


class LatenciesForm(Struct, frozen=True, rename="camel"):
    """Latencies of controller steps, see `latencies.Latencies`: constants, or quantiles.

    Omitted steps have the measured latencies.
    """

    scheduling_cycle: QuantilesForm | str | None = None
    job_unsuspend: QuantilesForm | str | None = None
    pod_creation: QuantilesForm | str | None = None
    bind: QuantilesForm | str | None = None
    start: QuantilesForm | str | None = None
    job_suspend: QuantilesForm | str | None = None
    pod_deletion: QuantilesForm | str | None = None
    status_update: QuantilesForm | str | None = None
    workload_reconcile: QuantilesForm | str | None = None


class ScenarioAdmissionFairSharing(Struct, frozen=True, rename="camel"):
    """Admission fair sharing among LocalQueues of ClusterQueues with UsageBasedAdmissionFairSharing."""

    usage_half_life_time: str
    usage_sampling_interval: str = "5m"
    resource_weights: dict[str, float] = field(default_factory=dict)


class ResourceReplicasForm(Struct, frozen=True, rename="camel"):
    """One resource whose devices are shared."""

    name: str = "nvidia.com/gpu"
    replicas: int = 2
    rename: str = ""


class ReplicasForm(Struct, frozen=True, rename="camel"):
    """Time-slicing or MPS, as in the configuration of NVIDIA's device plugin."""

    resources: tuple[ResourceReplicasForm, ...] = ()
    rename_by_default: bool = False
    fail_requests_greater_than_one: bool = False


class MigForm(Struct, frozen=True, rename="camel"):
    """MIG instances by a configuration of mig-parted."""

    strategy: Literal["none", "single", "mixed"] = "mixed"
    config: str = "all-balanced"
    """Name of a configuration that mig-parted ships, or of one in `configs`."""
    configs: Document | str | None = None
    """Configurations as mig-parted reads them, or a file that holds them, relative to the scenario's own."""
    dynamic: bool = False
    """MIG instances are created for pods that need them, and deleted when these end."""


class SharingForm(Struct, frozen=True, rename="camel"):
    """GPU partitioning and sharing of some nodes."""

    node_selector: dict[str, str] = field(default_factory=dict)
    mig: MigForm | None = None
    time_slicing: ReplicasForm | None = None
    mps: ReplicasForm | None = None


class EngineForm(Struct, frozen=True, rename="camel"):
    """Admission, placement and all other settings of the simulated cluster."""

    admission: Literal["Kueue", "none"] = "Kueue"
    kueue_config: Document | str | None = None
    """Kueue's Configuration (config.kueue.x-k8s.io), or a file that holds it, relative to the scenario's own."""
    placement: PlacementForm = PlacementForm()
    capacity: CapacityForm = CapacityForm()
    sharing: SharingForm | tuple[SharingForm, ...] = ()
    """How GPUs are divided and shared: for all nodes, or of several rules the first that fits a node."""


class ClusterForm(Struct, frozen=True, rename="camel"):
    """A MultiKueue worker cluster: its objects, and manifests relative to the scenario's file."""

    objects: tuple[Document, ...] = ()
    files: tuple[str, ...] = ()


class StepForm(Struct, frozen=True, rename="camel"):
    """A step: time passes, then finish, delete, commands and create are run in this order, then `expect` is checked."""

    advance_seconds: float = 0.0
    finish: tuple[str, ...] = ()
    """`namespace/name` of workloads, jobs or pods."""
    delete: tuple[str, ...] = ()
    """`namespace/name` of a workload, job or pod, or `Kind/name`, `Kind/namespace/name` of anything."""
    commands: tuple[Document, ...] = ()
    """Commands of `model.commands`, such as `{type: fail-node, node: a100-1}`, keys in camelCase."""
    create: tuple[Document, ...] = ()
    expect: tuple[Document, ...] = ()
    max_cycles: int | None = None
    """Maximum cycles, in conformance scenarios only; a simulation runs cycles until they change nothing."""


class ScenarioForm(Struct, frozen=True, rename="camel"):
    """A complete scenario."""

    name: str = ""
    description: str = ""
    start: str = "2026-01-05T08:00:00Z"
    seed: int = 0
    objects: tuple[Document, ...] = ()
    files: tuple[str, ...] = ()
    """Manifests, relative to the scenario's own file."""
    clusters: dict[str, ClusterForm] = field(default_factory=dict)
    """Worker clusters by name, for MultiKueue; the scenario itself is their manager."""
    steps: tuple[StepForm, ...] = ()
    arrivals: tuple[StreamForm, ...] = ()
    durations: SpreadForm | str = SpreadForm()
    """Durations of work that does not state its own."""
    prices: Document = field(default_factory=dict)
    engine: EngineForm = EngineForm()
    checks: Literal["pass", "wait"] = "pass"
    """Admission checks without a controller here pass at once, or wait for an `answer-check` command."""
    autoscaler: AutoscalerForm = AutoscalerForm()
    wake_up_batch: str = ""
    """Interval in which requeues of inadmissible workloads are batched; empty: as in Kueue."""
    latencies: Literal["measured", "none"] | LatenciesForm | None = None
    """Latencies of controller steps; None: `latencies.DEFAULT_LATENCIES`, or none if a step has `expect`."""
    fair_sharing_enabled: bool = False
    fair_sharing: tuple[str, ...] = ()
    """Preemption strategies of fair sharing, in the order in which they are tried."""
    admission_fair_sharing: ScenarioAdmissionFairSharing | None = None
    feature_gates: dict[str, bool] = field(default_factory=dict)
    keep_finished: str = ""
    """Finished workloads are removed after this span; empty: they are kept."""

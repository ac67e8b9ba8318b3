"""Settings of a simulation: engines, run times, capacity, prices, GPU setup; and the state of the autoscalers.

`apply_gpu_setup` partitions and shares GPUs and describes their interconnects, as the device plugin and the MIG manager
do. It is applied to nodes as they join; links in a node's own annotations stay. Autoscalers know the resources of the
nodes that they could provision, as from NodeOverlays and the template tags of groups.

Capacity is a fixed set of nodes, or provided by the Cluster Autoscaler or Karpenter. `AutoscalerState` is what
autoscalers keep between two scans: it mutates, and is forked and saved with the simulation.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Union

from msgspec import Struct, field
from msgspec.structs import replace

from gpuconsole.model.autoscaling import ON_DEMAND, InstanceTypeCatalogue
from gpuconsole.model.clock import HOUR, MINUTE, SECOND, Span, Time
from gpuconsole.model.cluster import Node, Pod
from gpuconsole.model.gpus import mig_reconfiguration
from gpuconsole.model.gpus.mig_reconfiguration import DYNAMIC, LAYOUT, MigStrategy, offer, written
from gpuconsole.model.gpus.models import GpuModel, model_of
from gpuconsole.model.gpus.sharing import FAIL, Sharing, labelled, shared
from gpuconsole.model.labels import NO_LABELS, Taint
from gpuconsole.model.prices import Prices
from gpuconsole.model.resources import GPU, is_mig
from gpuconsole.scheduling.kai.config import KaiPolicy
from gpuconsole.scheduling.kube.profile import PlacementPolicy
from gpuconsole.scheduling.kueue.config import KueueConfig
from gpuconsole.scheduling.volcano.config import VolcanoPolicy
from gpuconsole.sim.run_times import ArrivalStream, Latencies, LogNormal, RunTimes

MONTH = 730 * HOUR
"""The period of the interruption rates in catalogues."""
INTERRUPTED = "SpotInterrupted"
"""Reason of the history event of an interruption notice."""
SPOT_INTERRUPTION = "SpotInterruption"
"""Reason for which pods of an interrupted node are evicted."""


class SpotPolicy(Struct, frozen=True, kw_only=True):
    """Frequency of spot interruptions, and the response to them."""

    notice: Span = 2 * MINUTE
    interruptions: float = 1.0
    """Factor on the catalogue's interruption rates; 0: no random interruptions."""
    critical: int | None = None
    """Work of this priority or more gets on-demand nodes only, once it has lost a spot node; None: never."""
    retry_after: Span = field(default=3 * MINUTE, name="shun")
    """Time for which an interrupted or unavailable offering is not tried again."""
    diversity: float = 0.1
    """Price increase (0.1: 10%) of a family in a zone for each spot machine in use there, to spread the machines."""


class FixedCapacity(Struct, frozen=True, kw_only=True, tag="fixed"):
    """Capacity without autoscaler: nodes change by commands only."""


class KarpenterPolicy(Struct, frozen=True, kw_only=True, tag="karpenter"):
    """Capacity from Karpenter; its NodePools are objects of the simulation."""

    catalogue: InstanceTypeCatalogue = InstanceTypeCatalogue()
    startup: LogNormal = LogNormal(median=45 * SECOND)
    """Time from launching a machine until its node joins."""
    unavailable: tuple[str, ...] = ()
    """Unavailable offerings, as `type/zone/capacity type`; `*` matches any part."""
    batch_idle: Span = SECOND
    batch_max: Span = field(default=10 * SECOND, name="batch_most")
    poll: Span = 10 * SECOND
    validation: Span = 15 * SECOND
    """How long a consolidation waits before it is computed again and carried out."""
    spot_to_spot: bool = False
    """True if spot nodes may be replaced by cheaper spot nodes (feature gate SpotToSpotConsolidation)."""


class Expander(StrEnum):
    """The strategy by which the Cluster Autoscaler chooses among scale-up options."""

    LEAST_WASTE = "least-waste"
    MOST_PODS = "most-pods"
    LEAST_NODES = "least-nodes"
    PRICE = "price"
    PRIORITY = "priority"
    RANDOM = "random"


class ScalingGroup(Struct, frozen=True, kw_only=True):
    """A node group: equal machines, with a minimum and maximum size."""

    name: str
    type: str
    zone: str = ""
    """Empty: the first zone that offers the type."""
    capacity_type: str = ON_DEMAND
    min_size: int = field(default=0, name="least")
    max_size: int = field(default=10, name="most")
    initial_size: int = field(default=0, name="size")
    """Number of nodes at the start, if more than `min_size`."""
    labels: Mapping[str, str] = NO_LABELS
    taints: tuple[Taint, ...] = ()
    priority: int = 0
    """For the priority expander: the highest is tried first."""


class AutoscalerPolicy(Struct, frozen=True, kw_only=True, tag="cluster-autoscaler"):
    """The Cluster Autoscaler; the durations are its flags, with their defaults."""

    catalogue: InstanceTypeCatalogue = InstanceTypeCatalogue()
    groups: tuple[ScalingGroup, ...] = ()
    startup: LogNormal = LogNormal(median=4 * MINUTE)
    unavailable: tuple[str, ...] = ()
    expander: Expander = Expander.LEAST_WASTE
    scan_interval: Span = 10 * SECOND
    new_pod_delay: Span = 0
    provision_time: Span = 15 * MINUTE
    unneeded_time: Span = 10 * MINUTE
    unready_time: Span = 20 * MINUTE
    """Time after which an unready node is removed."""
    delay_after_add: Span = 10 * MINUTE
    delay_after_failure: Span = 3 * MINUTE
    unremovable_recheck: Span = 5 * MINUTE
    utilization: float = 0.5
    gpu_utilization: float = 0.5
    empty_bulk: int = 10
    max_ok_unready: int = field(default=3, name="ok_unready")
    max_unready_fraction: float = field(default=0.45, name="most_unready")
    """While more nodes than `max_ok_unready` and than this fraction are not ready, nothing is scaled."""
    cutoff: int = -10
    """Pods below this priority neither trigger scale-up nor block scale-down."""


Capacity = Union[FixedCapacity, KarpenterPolicy, AutoscalerPolicy]
FIXED = FixedCapacity()


class DisruptionOrder(Struct, frozen=True):
    """A disruption under way: nodes that are drained as soon as their replacement is ready."""

    reason: str
    nodes: tuple[str, ...]
    replacements: tuple[str, ...] = ()


class Proposal(Struct, frozen=True):
    """A consolidation that is computed again when it is due, and only carried out if it is still valid."""

    method: str
    nodes: tuple[str, ...]
    due: Time


class GroupBackoff(Struct, frozen=True):
    """The backoff of a node group after a failed scale-up, doubled at each failure."""

    until: Time
    span: Span


class AutoscalerState(Struct, kw_only=True):
    """What the autoscalers of a cluster remember between scans: pods, nodes and timers under way."""

    has_changes: bool = field(default=False, name="stirred")
    """True if pods or nodes have changed since the autoscalers last reacted."""
    unschedulable_since: dict[str, Time] = field(name="waiting", default_factory=dict)
    """Unschedulable pod → time since which it is unschedulable."""
    last_pod_event: dict[str, Time] = field(name="moved", default_factory=dict)
    """Node → when a pod was last bound to it, ended or was deleted there."""
    next_scan: Time | None = field(default=None, name="look")
    """Time of the next provisioning or scan, if a timer is set for it."""
    next_disruption_round: Time | None = field(default=None, name="poll")
    """Time of Karpenter's next disruption round, if a timer is set for it."""
    batch_started: Time | None = field(default=None, name="batch")
    """Start of the current batch of pods (Karpenter)."""
    batched_pods: tuple[str, ...] = field(default=(), name="batched")
    """Pods that belong to the last batch or the current one."""
    draining: dict[str, None] = field(default_factory=dict)
    """Nodes whose pods are being evicted; a set in order."""
    orders: list[DisruptionOrder] = field(default_factory=list)
    proposal: Proposal | None = None
    unavailable_until: dict[str, Time] = field(name="shunned", default_factory=dict)
    """Offering → time before which it is not tried again."""
    unneeded: dict[str, Time] = field(default_factory=dict)
    """Unneeded node → time since which it is unneeded (Cluster Autoscaler)."""
    unremovable: dict[str, Time] = field(default_factory=dict)
    """Nodes that cannot be removed, and when that is checked again (Cluster Autoscaler)."""
    backoffs: dict[str, GroupBackoff] = field(default_factory=dict)
    last_scale_up: Time | None = field(default=None, name="added")
    last_failed_scale_up: Time | None = field(default=None, name="failed")
    """Time of the last failed scale-up; `last_scale_up` is that of the last successful one (Cluster Autoscaler)."""
    interruption_ends: dict[str, Time] = field(name="interrupted", default_factory=dict)
    """Spot nodes with an interruption notice, and when they are gone."""
    lost_spot_workloads: dict[str, None] = field(name="fallen", default_factory=dict)
    """Critical workloads that have lost a spot node."""
    silent_until: dict[str, Time] = field(name="hushed", default_factory=dict)
    """Node → time before which the reason why it is not consolidated is not recorded again."""
    last_messages: dict[str, str] = field(name="said", default_factory=dict)
    """Node, pod or pool → the message recorded last, which is not repeated."""

    def note_pod(self, pod: Pod, now: Time) -> None:
        """Note a created or changed pod, to which the autoscalers then react."""
        waits = not (pod.node or pod.deleted or pod.done or pod.gates or pod.nominated_node)
        if waits and pod.reason == "Unschedulable":
            if pod.key not in self.unschedulable_since:
                self.unschedulable_since[pod.key] = now
                self.has_changes = True
        elif self.unschedulable_since.pop(pod.key, None) is not None:
            self.has_changes = True
        if pod.node:
            self.has_changes = True
            if now in (pod.bound, pod.finished) or pod.deleted >= now:
                self.last_pod_event[pod.node] = now

    def forget_node(self, node: str) -> None:
        """Remove what is remembered of a deleted node."""
        for table in (
            self.last_pod_event,
            self.unneeded,
            self.unremovable,
            self.draining,
            self.last_messages,
            self.silent_until,
        ):
            table.pop(node, None)
        self.has_changes = True

    def fork(self) -> "AutoscalerState":
        """Return an equal, independent copy."""
        return replace(
            self,
            unschedulable_since=self.unschedulable_since.copy(),
            last_pod_event=self.last_pod_event.copy(),
            draining=self.draining.copy(),
            orders=self.orders.copy(),
            unavailable_until=self.unavailable_until.copy(),
            unneeded=self.unneeded.copy(),
            unremovable=self.unremovable.copy(),
            backoffs=self.backoffs.copy(),
            interruption_ends=self.interruption_ends.copy(),
            lost_spot_workloads=self.lost_spot_workloads.copy(),
            silent_until=self.silent_until.copy(),
            last_messages=self.last_messages.copy(),
        )


class Mig(Struct, frozen=True, kw_only=True):
    """How GPUs are partitioned into MIG instances."""

    strategy: MigStrategy
    name: str
    """Name of the configuration, as in the label nvidia.com/mig.config."""
    config: mig_reconfiguration.Config | None = None
    """None: mig-parted's configuration of that name for the GPU model."""
    dynamic: bool = False


class SharingRule(Struct, frozen=True, kw_only=True):
    """How GPUs of the nodes that match a selector are partitioned and shared."""

    node_selector: Mapping[str, str]
    mig: Mig | None = None
    sharing: Sharing | None = None


class GpuSetup(Struct, frozen=True, kw_only=True):
    """How GPUs of all nodes are partitioned, shared and connected."""

    rules: tuple[SharingRule, ...] = ()
    """The first rule whose selector matches a node applies."""
    links: Mapping[str, str] = {}
    """Annotations that describe the GPU interconnects."""


NO_GPU_SETUP = GpuSetup()


def apply_gpu_setup(node: Node, equipment: GpuSetup, problems: list[str] | None = None) -> Node:
    """The node with its GPU setup applied; errors are added to `problems`.

    An invalid MIG configuration leaves its GPUs whole.
    """
    if equipment == NO_GPU_SETUP or not node.gpus:
        return node
    node = replace(node, annotations={**equipment.links, **node.annotations})
    rule = next((rule for rule in equipment.rules if rule.node_selector.items() <= node.labels.items()), None)
    if rule is None:
        return node
    divided = node if rule.mig is None else _with_mig(node, rule.mig, [] if problems is None else problems)
    return divided if rule.sharing is None else _with_sharing(divided, rule.sharing)


def _with_mig(node: Node, mig: Mig, problems: list[str]) -> Node:
    model = model_of(node.labels)
    config = mig.config if mig.config is not None or model is None else mig_reconfiguration.known(model, mig.name)
    if model is None or config is None:
        what = "its labels name no GPU with MIG" if model is None else f"there is no configuration {mig.name}"
        problems.append(f"node {node.name}: {what}")
        return node
    try:
        layouts = mig_reconfiguration.divided(config, model, node.allocatable.get(GPU, 0))
    except mig_reconfiguration.MigConfigError as error:
        problems.append(f"node {node.name}: {error}")
        return node
    product = node.labels.get("nvidia.com/gpu.product", model.name)
    offered = offer(model, product, layouts, mig.strategy)
    if offered.problem:
        problems.append(f"node {node.name} offers nothing under single: {offered.problem}")
    resources = _dynamic_capacity(model, len(layouts)) if mig.dynamic else offered.resources
    notes = {LAYOUT: written(layouts)}
    notes = {DYNAMIC: str(len(layouts))} if mig.dynamic else notes if any(map(is_mig, resources)) else {}
    return replace(
        node,
        labels={**node.labels, **offered.labels, "nvidia.com/mig.config": mig.name, _STATE: "success"},
        annotations={**node.annotations, **notes},
        capacity=_replace_gpus(node.capacity, resources),
        allocatable=_replace_gpus(node.allocatable, resources),
    )


_STATE = "nvidia.com/mig.config.state"


def _dynamic_capacity(model: GpuModel, gpus: int) -> dict[str, int]:
    """The capacity of dynamically partitioned GPUs: for each MIG profile the most instances of it alone."""
    assert model.mig is not None
    return {
        profile.resource: gpus
        * (1 if profile.media else min(len(profile.starts), model.mig.compute // profile.compute))
        for profile in model.mig.profiles
    }


def _replace_gpus(resources: Mapping[str, int], offered: Mapping[str, int]) -> dict[str, int]:
    return {**{name: amount for name, amount in resources.items() if name != GPU}, **offered}


def _with_sharing(node: Node, sharing: Sharing) -> Node:
    return replace(
        node,
        labels=labelled(node.labels, node.allocatable, sharing),
        annotations={**node.annotations, **({FAIL: "true"} if sharing.strict else {})},
        capacity=shared(node.capacity, sharing),
        allocatable=shared(node.allocatable, sharing),
    )


class Checks(StrEnum):
    """The handling of admission checks whose controller is not simulated."""

    PASS = "pass"
    WAIT = "wait"
    """They stay pending until a command answers them."""


class Substitute(StrEnum):
    """Where Kueue is absent: the scheduler that gets the jobs that name a queue of Kueue."""

    KUBE = "kube-scheduler"
    VOLCANO = "volcano"
    KAI = "kai"


class Autoscaler(Struct, frozen=True, kw_only=True):
    """Answers to ProvisioningRequests with fixed capacity: delay, and failures of the first attempts."""

    delay: Span = 30 * SECOND
    failures: int = 0
    """Number of first attempts of a workload's check that fail whatever the free capacity."""


class SimPolicy(Struct, frozen=True, kw_only=True):
    """All settings of a simulation besides its objects and its seed."""

    kueue: KueueConfig | None = KueueConfig()
    """None = no queueing at all: every job's pods are created at once."""
    substitute: Substitute | None = None
    """Scheduler of jobs that name a LocalQueue, without Kueue; None leaves them as they are.

    They start at once, in the scheduler's queue of the ClusterQueue's name, and the value of their
    WorkloadPriorityClass becomes their pods' priority.
    """
    placement: PlacementPolicy | VolcanoPolicy | KaiPolicy = PlacementPolicy()
    second_scheduler: VolcanoPolicy | None = field(default=None, name="beside")
    """Volcano as a second scheduler, for the pods that name it."""
    wake_up_batch: Span | None = None
    """Interval in which requeues of inadmissible workloads are batched; 0 requeues at once, None is as in Kueue."""
    latencies: Latencies | None = None
    """None: controller steps take no time, except 1 s to release quota (`eviction.RELEASE_DELAY`)."""
    prices: Prices = field(default_factory=Prices)
    durations: LogNormal = LogNormal()
    """Durations of work that does not state its own."""
    run_times: RunTimes | None = None
    """Past run times from which durations are drawn, even stated ones; None: stated durations are used."""
    checks: Checks = Checks.PASS
    autoscaler: Autoscaler = Autoscaler()
    capacity: Capacity = FIXED
    spot: SpotPolicy = SpotPolicy()
    equipment: GpuSetup = NO_GPU_SETUP
    """How GPUs of generated and provisioned nodes are partitioned, shared and connected."""
    keep_finished: Span | None = None
    """Finished workloads, with their jobs and pods, are removed after this span; None keeps them."""
    arrivals: tuple[ArrivalStream, ...] = ()
    """Random arrivals of jobs."""
    traces_preemptions: bool = field(default=False, name="tells_choices")
    """Records for each of Kueue's preemptions the other candidates, and why they were skipped."""

    @property
    def requeue_batch_interval(self) -> Span:
        """The interval in which requeues of inadmissible workloads are batched; 0: they are requeued at once."""
        if self.wake_up_batch is not None:
            return self.wake_up_batch
        return 0 if self.kueue is None else self.kueue.requeue_interval

"""Settings of a simulation: admission, placement, run times, capacity, prices, and the GPU setup of nodes.

`apply_gpu_setup` partitions and shares GPUs and describes their interconnects, as the device plugin and the MIG manager
do. It is applied to nodes as they join; links in a node's own annotations stay. Autoscalers know the resources of the
nodes that they could provision, as from NodeOverlays and the template tags of groups.
"""

from collections.abc import Mapping
from enum import StrEnum

from msgspec import Struct, field
from msgspec.structs import replace

from gpuconsole.model.clock import SECOND, Span
from gpuconsole.model.cluster import Node
from gpuconsole.model.gpus import mig_reconfiguration
from gpuconsole.model.gpus.mig_resources import DYNAMIC, LAYOUT, MigStrategy, offer, written
from gpuconsole.model.gpus.models import GpuModel, model_of
from gpuconsole.model.gpus.sharing import FAIL, Sharing, labelled, shared
from gpuconsole.model.prices import Prices
from gpuconsole.model.resources import GPU, is_mig
from gpuconsole.scheduling.kai.config import KaiPolicy
from gpuconsole.scheduling.kube.profile import PlacementPolicy
from gpuconsole.scheduling.kueue.config import KueueConfig
from gpuconsole.scheduling.volcano.config import VolcanoPolicy
from gpuconsole.sim.autoscaling.policy import FIXED, Capacity, SpotPolicy
from gpuconsole.sim.run_times import ArrivalStream, Latencies, LogNormal, RunTimes


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

"""Scheduler profiles: the plugins that filter and score nodes, with weights and arguments.

The defaults are those of kube-scheduler 1.35 (apis/config/v1 default_plugins.go, defaults.go).

Placement options: how nodes are scored, whether gangs start all or nothing, whether pods preempt.
"""

from typing import Literal

from msgspec import Struct

from gpuconsole.model.clock import SECOND, Span
from gpuconsole.model.labels import HOSTNAME, NodeTerm, PreferredTerm
from gpuconsole.model.pod_template import SpreadConstraint
from gpuconsole.model.resources import CPU, GPU_RESOURCES, MEMORY, MIG_PREFIX
from gpuconsole.scheduling.kube.packing.policies import Name

Weights = tuple[tuple[str, int], ...]

NODE_UNSCHEDULABLE = "NodeUnschedulable"
NODE_NAME = "NodeName"
TAINT_TOLERATION = "TaintToleration"
NODE_AFFINITY = "NodeAffinity"
NODE_PORTS = "NodePorts"
FIT = "NodeResourcesFit"
VOLUME_RESTRICTIONS = "VolumeRestrictions"
NODE_VOLUME_LIMITS = "NodeVolumeLimits"
VOLUME_BINDING = "VolumeBinding"
VOLUME_ZONE = "VolumeZone"
SPREAD = "PodTopologySpread"
POD_AFFINITY = "InterPodAffinity"
CLAIMS = "DynamicResources"
BALANCED = "NodeResourcesBalancedAllocation"
IMAGES = "ImageLocality"
PREEMPTION = "DefaultPreemption"

FILTERS = (
    *(NODE_UNSCHEDULABLE, NODE_NAME, TAINT_TOLERATION, NODE_AFFINITY, NODE_PORTS, FIT),
    *(VOLUME_RESTRICTIONS, NODE_VOLUME_LIMITS, VOLUME_BINDING, VOLUME_ZONE, SPREAD, POD_AFFINITY, CLAIMS),
)
SCORES: Weights = (
    *((TAINT_TOLERATION, 3), (NODE_AFFINITY, 2), (FIT, 1), (SPREAD, 2), (POD_AFFINITY, 2)),
    *((BALANCED, 1), (IMAGES, 1)),
)
CPU_AND_MEMORY: Weights = ((CPU, 1), (MEMORY, 1))
ZONE = "topology.kubernetes.io/zone"
REGION = "topology.kubernetes.io/region"
SYSTEM_CONSTRAINTS = (
    SpreadConstraint(HOSTNAME, 3, "ScheduleAnyway"),
    SpreadConstraint(ZONE, 5, "ScheduleAnyway"),
)
"""Default constraints of Deployment, StatefulSet and similar pods without their own (defaultingType System)."""


class ScoringStrategy(Struct, frozen=True, kw_only=True):
    """NodeResourcesFit's scoringStrategy."""

    type: Literal["LeastAllocated", "MostAllocated", "RequestedToCapacityRatio"] = "LeastAllocated"
    resources: Weights = CPU_AND_MEMORY
    shape: tuple[tuple[int, int], ...] = ()
    """(utilization 0 to 100, score 0 to 10), in order of rising utilization; only for RequestedToCapacityRatio."""


class BackoffSettings(Struct, frozen=True):
    """Back-off of refused pods: the first delay, doubled with each refusal up to a maximum."""

    initial: Span = SECOND
    most: Span = 10 * SECOND

    def after(self, attempts: int) -> Span:
        """Back-off after this number of refusals."""
        return min(self.initial << min(attempts - 1, 40), self.most) if attempts > 0 else 0


class SchedulerProfile(Struct, frozen=True, kw_only=True):
    """Plugins, weights and arguments of one scheduler."""

    name: str = "default-scheduler"
    filters: tuple[str, ...] = FILTERS
    scores: Weights = SCORES
    preempts: bool = True
    """DefaultPreemption is enabled at postFilter."""
    strategy: ScoringStrategy = ScoringStrategy()
    ignored_resources: tuple[str, ...] = ()
    ignored_groups: tuple[str, ...] = ()
    """Groups of resources, such as `example.com`, that NodeResourcesFit ignores in its filter."""
    balanced: Weights = CPU_AND_MEMORY
    added_affinity: tuple[NodeTerm, ...] | None = None
    """Terms of which a node has to match one for every pod, besides the pod's own (NodeAffinity addedAffinity)."""
    added_preferred: tuple[PreferredTerm, ...] = ()
    spread: tuple[SpreadConstraint, ...] | None = None
    """Constraints for pods without their own (defaultConstraints); None stands for `SYSTEM_CONSTRAINTS`."""
    hard_affinity_weight: int = 1
    ignore_theirs: bool = False
    """ignorePreferredTermsOfExistingPods."""
    percentage: int = 0
    """percentageOfNodesToScore; 0 depends on the number of nodes, 100 evaluates all."""
    candidates: tuple[int, int] = (10, 100)
    """Nodes on which preemption is tried: (minCandidateNodesPercentage, minCandidateNodesAbsolute)."""
    backoff: BackoffSettings | None = BackoffSettings()
    """None retries refused pods as soon as capacity is freed."""

    def weight(self, plugin: str) -> int:
        """Weight of the plugin's score; 0 if it does not score."""
        return dict(self.scores).get(plugin, 0)

    def wanted(self, nodes: int) -> int:
        """Number of feasible nodes that end the search among this many nodes (numFeasibleNodesToFind)."""
        if nodes < 100 or self.percentage >= 100:
            return nodes
        percentage = self.percentage or max(5, 50 - nodes // 125)
        return max(100, nodes * percentage // 100)

    def dry_runs(self, nodes: int) -> int:
        """Number of nodes on which preemption is simulated (calculateNumCandidates)."""
        percentage, least = self.candidates
        return min(max(nodes * percentage // 100, least), nodes)


Formula = Literal["binpack", "spread"]
Score = Literal[Formula, Name]

ANY_MIG = MIG_PREFIX + "*"
"""Stands for every MIG profile in `PlacementPolicy.resources`."""

GPU_WEIGHTS: tuple[tuple[str, int], ...] = (
    *((name, 5) for name in GPU_RESOURCES),
    (ANY_MIG, 5),
    (CPU, 1),
    (MEMORY, 1),
)
"""Accelerators outweigh cpu and memory, so that binpack and spread apply to GPUs; kube-scheduler's default scores only
cpu and memory."""


class PlacementPolicy(Struct, frozen=True, kw_only=True, tag="kube-scheduler", tag_field="engine"):
    """Placement by a kube-scheduler profile or by one of the built-in choices."""

    score: Score = "binpack"
    """`binpack` is NodeResourcesFit's MostAllocated, `spread` its LeastAllocated; the others are packing policies.

    They replace NodeResourcesFit's score, with `fit_weight`; only `random` ignores the other scores as well.
    """
    resources: tuple[tuple[str, int], ...] = GPU_WEIGHTS
    """(resource, weight) of the score; `nvidia.com/mig-*` stands for every MIG profile."""
    fit_weight: int = 1
    affinity_weight: int = 2
    taint_weight: int = 3
    gangs: bool = True
    """False places the pods of a gang one by one, as plain kube-scheduler does."""
    preemption: bool = True
    """False leaves out the PostFilter step: no pod is ever evicted for another."""
    profile: SchedulerProfile | None = None
    """A profile of a KubeSchedulerConfiguration; it replaces score, resources and weights."""

    @property
    def rules(self) -> SchedulerProfile:
        """The profile; for a built-in choice, one that has every filter, evaluates all nodes and has no back-off.

        A built-in choice has a single goal, so NodeResourcesBalancedAllocation and ImageLocality do not score.
        """
        if self.profile is not None:
            return self.profile
        formula: Literal["LeastAllocated", "MostAllocated"] = (
            "LeastAllocated" if self.score == "spread" else "MostAllocated"
        )
        weights = ((TAINT_TOLERATION, self.taint_weight), (NODE_AFFINITY, self.affinity_weight), (FIT, self.fit_weight))
        return SchedulerProfile(
            filters=FILTERS,
            scores=(*weights, (SPREAD, 2), (POD_AFFINITY, 2)),
            strategy=ScoringStrategy(type=formula, resources=self.resources),
            spread=(),
            percentage=100,
            candidates=(100, 100),
            backoff=None,
        )

    @property
    def packing(self) -> Name | None:
        """The packing policy that replaces NodeResourcesFit's score, if any."""
        if self.profile is not None or self.score == "binpack" or self.score == "spread":
            return None
        return self.score

    @property
    def preempts(self) -> bool:
        """True if a pod may evict others."""
        return self.preemption and (self.profile is None or self.profile.preempts)

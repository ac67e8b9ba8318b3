"""Placement options: how nodes are scored, whether gangs start all or nothing, whether pods preempt."""

from typing import Literal

from msgspec import Struct

from gpuconsole.model.resources import CPU, GPU_RESOURCES, MEMORY, MIG_PREFIX
from gpuconsole.scheduling.kube.packing.policies import Name
from gpuconsole.scheduling.kube.profile import (
    FILTERS,
    FIT,
    NODE_AFFINITY,
    POD_AFFINITY,
    SPREAD,
    TAINT_TOLERATION,
    SchedulerProfile,
    ScoringStrategy,
)

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

"""What an operator chooses about placement: how nodes are scored, whether gangs hold together, whether pods preempt."""

from typing import Literal

from msgspec import Struct

from gpuconsole.model.quantity import CPU, MEMORY, MIG_PREFIX
from gpuconsole.model.resources import GPU_RESOURCES
from gpuconsole.scheduling.kube.packing.policies import Name

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
"""Accelerators outweigh cpu and memory, so that binpack and spread mean GPUs; kube-scheduler's own default is cpu and
memory alone, which packs and spreads nothing that costs money."""


class PlacementPolicy(Struct, frozen=True, kw_only=True, tag="kube-scheduler", tag_field="engine"):
    """How pods are placed. Weights are kube-scheduler 1.36's default plugin weights unless said otherwise."""

    score: Score = "binpack"
    """`binpack` is NodeResourcesFit's MostAllocated, `spread` its LeastAllocated; the others are packing policies.

    They stand in its place, with `fit_weight`; `random` alone looks at no other score either.
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

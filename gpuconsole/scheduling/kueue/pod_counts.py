"""Compares and replaces the pod counts of pod sets; elastic workloads scale by them.

Kueue 0.19 pkg/workload/podsetscounts.go.
"""

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from gpuconsole.model.pod_template import PodSet
from gpuconsole.model.workloads import Workload

ELASTIC = "kueue.x-k8s.io/elastic-job"
ELASTIC_VALUE = "true"
"""The annotation of jobs, and of their Workloads, that may grow and shrink while they run."""

Counts = Mapping[str, int]
"""Pod set → number of its pods."""


def counts_of(pod_sets: Iterable[PodSet]) -> dict[str, int]:
    """Return the number of pods by pod set."""
    return {pod_set.name: pod_set.count for pod_set in pod_sets}


def is_fewer(counts: Counts, than: Counts) -> bool:
    """True if some pod set has fewer pods than in `than`; pod sets of one side only are ignored."""
    return any(count < than[name] for name, count in counts.items() if name in than)


def with_counts(workload: Workload, counts: Counts) -> Workload:
    """Return the workload with these numbers of pods; pod sets that are not named keep theirs."""
    pod_sets = tuple(replace(pods, count=counts.get(pods.name, pods.count)) for pods in workload.pod_sets)
    return workload if pod_sets == workload.pod_sets else replace(workload, pod_sets=pod_sets)


def reclaimed(workload: Workload, reported: Counts) -> dict[str, int]:
    """Return the reclaimable pods, at most as many as their pod set has: it may have shrunk
    (LimitReclaimablePodsToPodSetSizes).
    """
    sizes = counts_of(workload.pod_sets)
    return {name: min(count, sizes.get(name, count)) for name, count in reported.items()}


def reclaim(workload: Workload, reported: Counts) -> Workload:
    """Return the workload with these reclaimable pods, which need no quota any more (UpdateReclaimablePods)."""
    done = reclaimed(workload, reported)
    return workload if done == workload.reclaimable else replace(workload, reclaimable=done)

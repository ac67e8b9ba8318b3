"""Elastic jobs: a job that grows gets a second Workload, a slice that replaces the first when it is admitted.

The new slice needs quota only for what it adds, in the flavors of the old one; then the old one is finished. A job that
shrinks, or is still pending, is changed in place. Kueue 0.19 pkg/workloadslicing.
"""

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from gpuconsole.model.jobs.workloads import JOB_UID
from gpuconsole.model.pod_template import PodSet
from gpuconsole.model.resources import Resources
from gpuconsole.model.workloads import TopologyDomain, Workload
from gpuconsole.scheduling.kueue.conditions import EVICTED
from gpuconsole.scheduling.kueue.config import KueueConfig
from gpuconsole.scheduling.kueue.pod_resources import Holding, admitted_requests
from gpuconsole.scheduling.kueue.podset import (
    ELASTIC,
    ELASTIC_VALUE,
    SLICE_NAME,
    Counts,
    counts_of,
    is_fewer,
    with_counts,
)

GATE = "ElasticJobsViaWorkloadSlices"
REPLACEMENT_FOR = "kueue.x-k8s.io/workload-slice-replacement-for"

REPLACED = "WorkloadSliceReplaced"
OUT_OF_SYNC = "OutOfSync"
_REPLACED_BY_NEWER = "Replaced to accommodate a new workload slice"
_OUT_OF_SYNC = "The workload slice is out of sync with its parent job"


class ReplacedPodSet(Struct, frozen=True):
    """A pod set of a replaced workload slice as admitted: pods, resource → flavor, total usage, topology assignment."""

    pod_set: str
    count: int
    flavors: Mapping[str, str]
    usage: Resources
    topology: tuple[TopologyDomain, ...] = ()


class FinishedSlice(Struct, frozen=True):
    """A slice to finish, with its reason."""

    workload: Workload
    reason: str
    message: str


class SlicePlan(Struct, frozen=True, kw_only=True):
    """The planned changes of a job's slices."""

    current: Workload | None = None
    """The slice that stands for the job, perhaps with other counts than it had; None = make a new one."""
    is_edited: bool = False
    """True if the pod counts of `current` changed."""
    is_compatible: bool = True
    """False if the job's pod sets are no longer those of its slices: nothing can be done."""
    endings: tuple[FinishedSlice, ...] = ()


def is_elastic(annotations: Mapping[str, str], config: KueueConfig) -> bool:
    """True for jobs (and Workloads) that may scale while they run (gate ElasticJobsViaWorkloadSlices)."""
    return annotations.get(ELASTIC) == ELASTIC_VALUE and config.enabled(GATE)


def replacement_for(workload: Workload) -> str | None:
    """Return the key of the slice that this one replaces; None if it replaces none."""
    return workload.annotations.get(REPLACEMENT_FOR)


def slice_name(workload: Workload) -> str:
    """Return the name of the first slice of the chain; pods keep it from slice to slice."""
    return workload.annotations.get(SLICE_NAME, workload.name)


def new_slice(workload: Workload, old: Workload | None) -> Workload:
    """Return a new slice of an elastic job with its annotations: the first of its chain, or the successor of `old`."""
    notes = {**workload.annotations, ELASTIC: ELASTIC_VALUE, SLICE_NAME: workload.name}
    if old is not None:
        notes |= {REPLACEMENT_FOR: old.key, SLICE_NAME: slice_name(old)}
    return replace(workload, annotations=notes)


def replaced_slice(workload: Workload, held: Iterable[Holding], config: KueueConfig) -> Holding | None:
    """Return the slice that a pending one replaces, if it is among `held`, the quota holders of its ClusterQueue."""
    key = replacement_for(workload)
    if key is None or not config.enabled(GATE):
        return None
    return next((h for h in held if h.key == key and h.workload.namespace == workload.namespace), None)


def replaced_pod_sets(holding: Holding | None, config: KueueConfig) -> tuple[ReplacedPodSet, ...]:
    """Return the admitted pod sets of a replaced slice, in the order of its successor's; empty without one."""
    if holding is None:
        return ()
    held = admitted_requests(holding.workload, config)
    return tuple(ReplacedPodSet(a.name, count, a.flavors, usage, a.topology) for a, count, usage in held)


def replacement_message(new: Workload) -> str:
    """Return the message of a slice that finished because a new one was admitted."""
    uids = f"UID: {new.uid}, JobUID: {new.labels.get(JOB_UID, '')}"
    return f"Replaced to accommodate a workload ({uids}) due to workload slice aggregation"


def is_scaled_down(old: Counts, new: Counts) -> bool:
    """True if some pod set has fewer pods than before, and none has more."""
    return is_fewer(new, old) and not is_fewer(old, new)


def unfinished_slices(workloads: Iterable[Workload], owner: str) -> list[Workload]:
    """Return the slices of a job that are not finished, oldest first."""
    slices = [workload for workload in workloads if workload.owner == owner and not workload.finished]
    return sorted(slices, key=lambda workload: (workload.created, workload.uid))


def latest_active_slice(slices: Sequence[Workload]) -> Workload | None:
    """Return the newest slice that has quota and is not being evicted: what the job may use now."""
    return next((w for w in reversed(slices) if w.reserved and not w.is_true(EVICTED)), None)


def plan_slices(slices: Sequence[Workload], pod_sets: Sequence[PodSet]) -> SlicePlan:
    """Plan the changes that make a job's slices match its pod sets; `slices` are oldest first and not finished."""
    endings: tuple[FinishedSlice, ...] = ()
    selected = slices[0] if len(slices) == 1 else None
    if len(slices) > 1:
        selected, endings = normalise_slices(slices)
    if selected is None:
        return SlicePlan(endings=endings)
    wanted, has = counts_of(pod_sets), counts_of(selected.pod_sets)
    if wanted.keys() != has.keys():
        return SlicePlan(is_compatible=False, endings=endings)
    if wanted == has:
        return SlicePlan(current=selected, endings=endings)
    if not selected.reserved or is_scaled_down(has, wanted):
        return SlicePlan(current=with_counts(selected, wanted), is_edited=True, endings=endings)
    return SlicePlan(endings=endings)


def normalise_slices(slices: Sequence[Workload]) -> tuple[Workload | None, tuple[FinishedSlice, ...]]:
    """Return the slice that represents a job with several, and the endings of the superfluous ones.

    One slice with quota stays, and the pending one that is to replace it. If none has quota, the newest stays; one that
    is being evicted never does.
    """
    living = [workload for workload in slices if not workload.is_true(EVICTED)]
    successors = _successors(living)
    active: Workload | None = None
    for workload in living:
        successor = successors.get(workload.key)
        if workload.reserved and (successor is None or not successor.reserved):
            active = workload
    selected = living[-1] if living else None
    if active is not None:
        successor = successors.get(active.key)
        selected = successor if successor is not None and not successor.reserved else active
    endings = tuple(
        FinishedSlice(workload, REPLACED, _REPLACED_BY_NEWER)
        if workload.key in successors
        else FinishedSlice(workload, OUT_OF_SYNC, _OUT_OF_SYNC)
        for workload in slices
        if workload is not selected and workload is not active
    )
    return selected, endings


def _successors(living: Iterable[Workload]) -> dict[str, Workload]:
    """Key → the slice that replaces it; of several, the first with quota."""
    found: dict[str, Workload] = {}
    for workload in living:
        key = replacement_for(workload)
        if key is not None and (key not in found or (workload.reserved and not found[key].reserved)):
            found[key] = workload
    return found

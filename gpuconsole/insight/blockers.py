"""Reason code of a workload that the admission engine does not admit, from its decision instead of Kueue's messages.

The engine tries the workload on the current cluster (`KueueSession.examine`); its entry has the result.
"""

from collections.abc import Iterable, Iterator

from gpuconsole.insight.reasons import SEVERITY, PendingReason
from gpuconsole.scheduling.kueue import messages
from gpuconsole.scheduling.kueue.assignment import FlavorAssignmentMode, FlavorResult, FlavorSearch, PodSetResult
from gpuconsole.scheduling.kueue.cluster_queue import RequeueReason
from gpuconsole.scheduling.kueue.entry import CycleEntry, EntryStatus
from gpuconsole.scheduling.kueue.messages import GranularReason

_CAUSES = {
    GranularReason.NONE: PendingReason.QUOTA,
    GranularReason.WAITING_FOR_QUOTA: PendingReason.QUOTA,
    GranularReason.EXCEEDS_MAX_QUOTA: PendingReason.EXCEEDS_MAX,
    GranularReason.NO_MATCHING_FLAVOR: PendingReason.FLAVOR_MISMATCH,
    GranularReason.TOPOLOGY_PLACEMENT_FAILED: PendingReason.TOPOLOGY,
}
_STATUSES = {
    EntryStatus.ASSUMED: PendingReason.NOT_WAITING,
    EntryStatus.SKIPPED: PendingReason.CONTENTION,
    EntryStatus.GATED: PendingReason.GATED,
    EntryStatus.BLOCKED: PendingReason.PODS_READY,
    EntryStatus.EVICTED: PendingReason.TOPOLOGY,
}


def dominant_blocker(entry: CycleEntry) -> PendingReason:
    """Return the dominant reason code of an engine entry; `not-waiting` if it would be admitted."""
    if entry.status in _STATUSES:
        return _STATUSES[entry.status]
    if entry.requeue in (RequeueReason.PENDING_PREEMPTION, RequeueReason.PENDING_MIGRATION):
        return PendingReason.WAITING_FOR_VICTIMS
    if not entry.assignment.pod_sets:
        return _unfit(entry)
    codes = (code for result in entry.assignment.pod_sets for code in _obstacles(result))
    return _worst(codes, PendingReason.QUOTA)


def _unfit(entry: CycleEntry) -> PendingReason:
    """Return the code of a workload that was refused before its flavors were evaluated."""
    if entry.message == messages.FAILED_CHECKS:
        return PendingReason.CHECKS
    if entry.cause is GranularReason.SUSPENDED:
        return PendingReason.QUEUE_INACTIVE
    unknown = entry.message == messages.no_namespace(entry.request.workload.namespace)
    if unknown or entry.requeue is RequeueReason.NAMESPACE_MISMATCH:
        return PendingReason.NAMESPACE
    return PendingReason.INVALID


def _obstacles(result: PodSetResult) -> Iterator[PendingReason]:
    """Yield the code of each resource group of a pod set: that of its flavor that is closest to fitting."""
    if result.mode == FlavorAssignmentMode.FIT:
        return
    if result.failure:
        yield PendingReason.TOPOLOGY
    elif not result.choices:
        yield _unanswered(result)
    else:
        searched = [search for search in result.searches if not _fits(result, search)]
        yield from (_least(search.noted) for search in searched)
        if not searched:
            # There is quota for every resource, so only topology can be the reason.
            yield PendingReason.TOPOLOGY


def _unanswered(result: PodSetResult) -> PendingReason:
    """Return the code where no flavor was found, or no resource group covers the next resource."""
    last = result.searches[-1].noted if result.searches else ()
    covered = bool(last) and all(noted.mode == FlavorAssignmentMode.NO_FIT for noted in last)
    return _least(last) if covered else PendingReason.FLAVOR_MISMATCH


def _fits(result: PodSetResult, search: FlavorSearch) -> bool:
    choice = result.choices.get(search.resource)
    return choice is not None and any(
        n.flavor == choice.flavor and n.mode == FlavorAssignmentMode.FIT for n in search.noted
    )


def _least(noted: Iterable[FlavorResult]) -> PendingReason:
    """Return the code of the flavor that is closest to fitting."""
    codes = [cause(one) for one in noted if one.reasons]
    return min(codes, key=lambda code: SEVERITY[code], default=PendingReason.QUOTA)


def cause(noted: FlavorResult) -> PendingReason:
    """Return the reason code of a flavor that does not fit; `not-waiting` if it fits."""
    return (
        PendingReason.NOT_WAITING
        if noted.mode == FlavorAssignmentMode.FIT
        else _CAUSES.get(noted.cause, PendingReason.QUOTA)
    )


def _worst(codes: Iterable[PendingReason], otherwise: PendingReason) -> PendingReason:
    return max(codes, key=lambda code: SEVERITY[code], default=otherwise)

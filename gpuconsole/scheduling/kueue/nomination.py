"""Nomination: computes the assignment and victims of a head, at full size or, where allowed, with fewer pods.

Kueue 0.19 scheduler.nominate, getAssignments and flavorassigner.PodSetReducer.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

from gpuconsole.model.pod_template import PodSet
from gpuconsole.scheduling.kueue import messages
from gpuconsole.scheduling.kueue.assignment import Assignment, FlavorAssignmentMode, Resume
from gpuconsole.scheduling.kueue.cluster_queue import RequeueReason
from gpuconsole.scheduling.kueue.compiled_config import ClusterQueueConfig
from gpuconsole.scheduling.kueue.context import Context
from gpuconsole.scheduling.kueue.entry import CycleEntry
from gpuconsole.scheduling.kueue.flavor_assigner import FlavorAssigner, Nominated
from gpuconsole.scheduling.kueue.messages import GranularReason
from gpuconsole.scheduling.kueue.nomination_cache import Nomination, nominate_cached
from gpuconsole.scheduling.kueue.pod_resources import WorkloadRequest
from gpuconsole.scheduling.kueue.preemption import PreemptionSearch, PreemptionTarget, find_targets
from gpuconsole.scheduling.kueue.preemption.oracle import find_targets_with_trace
from gpuconsole.scheduling.kueue.slices import replaced_pod_sets, replaced_slice
from gpuconsole.scheduling.kueue.topology.tas_assignment import demands, place_after_preemption

Found = TypeVar("Found")


def nominate(context: Context, entry: CycleEntry) -> None:
    """Fill in the entry's assignment and victims."""
    if entry.resume:
        entry.record(*propose(context, entry.rules, entry.request, entry.resume))
    else:
        entry.record(*nominate_cached(context, entry, propose))


def eligible(context: Context, entry: CycleEntry) -> bool:
    """False if the entry cannot be evaluated; its message says why."""
    workload = entry.request.workload
    if any(check.state in ("Retry", "Rejected") for check in workload.checks):
        entry.refuse(messages.FAILED_CHECKS, GranularReason.PENDING_EVALUATION)
        return False
    if not entry.rules.active:
        entry.refuse(messages.inactive(entry.rules.name), GranularReason.SUSPENDED)
        return False
    if workload.namespace not in context.setup.objects.namespaces:
        entry.refuse(messages.no_namespace(workload.namespace), GranularReason.MISCONFIGURED)
        return False
    if not context.setup.matches_namespace(entry.rules.queue, workload.namespace):
        entry.refuse(messages.NAMESPACE_MISMATCH, GranularReason.MISCONFIGURED)
        entry.requeue = RequeueReason.NAMESPACE_MISMATCH
        return False
    problem = entry.request.problem(context.setup.limits_of(workload.namespace))
    if problem:
        entry.refuse(problem, GranularReason.MISCONFIGURED)
        return False
    return True


def propose(
    context: Context,
    rules: ClusterQueueConfig,
    request: WorkloadRequest,
    resume: Resume | None = None,
    nominated: Nominated | None = None,
) -> Nomination:
    """Return the assignment and the victims of a workload, with fewer pods if neither exists at full size.

    A slice that it replaces is the first target, without a rule.
    """
    replaced = replaced_slice(request.workload, context.held_by(rules.name), context.config)
    given = replaced_pod_sets(replaced, context.config)
    assigner = FlavorAssigner(context, rules, request, resume, nominated, replaced=given)
    assignment = assigner.assign()
    targets = _targets(context, rules, request, assignment)
    if not _viable(assignment, targets) and context.gates.partial_admission:
        assignment, targets = _reduce(context, rules, request, assigner) or (assignment, targets)
    if replaced is not None and _viable(assignment, targets):
        # As in Kueue, the old slice counts as gone, like a victim, when the cycle checks whether this entry and later
        # ones still fit. As only the difference is added, the quota of a cohort may be exceeded in that cycle.
        targets = [PreemptionTarget(replaced, None), *targets]
    victims = [target.holding for target in targets]
    place_after_preemption(context, rules, request, assignment, victims)
    return assignment, targets


def _viable(assignment: Assignment, targets: Sequence[PreemptionTarget]) -> bool:
    return assignment.mode == FlavorAssignmentMode.FIT or bool(targets)


def _targets(
    context: Context, rules: ClusterQueueConfig, request: WorkloadRequest, assignment: Assignment
) -> Sequence[PreemptionTarget]:
    if assignment.mode != FlavorAssignmentMode.PREEMPT:
        return []
    wanted = demands(context, rules, request, assignment)
    needing = assignment.needing_preemption
    search = PreemptionSearch(context, rules, request, needing, assignment.preemption_uses, wanted)
    return (
        find_targets(search)
        if context.search_traces is None
        else find_targets_with_trace(search, context.search_traces)
    )


def _reduce(
    context: Context, rules: ClusterQueueConfig, request: WorkloadRequest, assigner: FlavorAssigner
) -> Nomination | None:
    """Return the nomination for the largest size that fits or can preempt."""
    pod_sets = [need.pod_set for need in request.pod_sets]
    return largest(pod_sets, lambda counts: _try_counts(context, rules, request, assigner, counts))


def largest(pod_sets: Sequence[PodSet], attempt: Callable[[Sequence[int]], Found | None]) -> Found | None:
    """Return the result of `attempt` for the largest counts that have one; None if no counts do or no pod set can
    shrink.

    All pod sets shrink in proportion to what they can lose. It is a binary search over the number of pods removed; as
    in Kueue, the result counts only if the search ends at the last size that succeeded (PodSetReducer.Search).
    """
    spare = [p.count - (p.min_count if p.min_count is not None else p.count) for p in pod_sets]
    total = sum(spare)
    if not total:
        return None
    low, high = 0, total + 1
    good: tuple[int, Found] | None = None
    while low < high:
        middle = (low + high) // 2
        found = attempt([p.count - d * middle // total for p, d in zip(pod_sets, spare, strict=True)])
        if found is not None:
            good, high = (middle, found), middle
        else:
            low = middle + 1
    return good[1] if good is not None and good[0] == low else None


def _try_counts(
    context: Context,
    rules: ClusterQueueConfig,
    request: WorkloadRequest,
    assigner: FlavorAssigner,
    counts: Sequence[int],
) -> Nomination | None:
    assignment = assigner.assign(counts)
    targets = _targets(context, rules, request, assignment)
    return (assignment, targets) if _viable(assignment, targets) else None

"""Nomination: an assignment, and victims if it needs them, for each head (Kueue 0.19 scheduler.go: nominate).

All heads are nominated with the usage at the start of the cycle. The assignment is for the full size or, where allowed,
for fewer pods (getAssignments, flavorassigner.PodSetReducer). `flavor_assigner` tries the flavors, `preemption` finds
the victims.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from gpuconsole.model.pod_template import PodSet
from gpuconsole.scheduling.kueue import messages
from gpuconsole.scheduling.kueue.assignment import Assignment, FlavorAssignmentMode, ResumePosition
from gpuconsole.scheduling.kueue.cluster_queue import RequeueReason
from gpuconsole.scheduling.kueue.cluster_queue_status import ClusterQueueConfig
from gpuconsole.scheduling.kueue.context import Context
from gpuconsole.scheduling.kueue.entry import CycleEntry
from gpuconsole.scheduling.kueue.flavor_assigner import FlavorAssigner, NominatedFlavors
from gpuconsole.scheduling.kueue.messages import GranularReason
from gpuconsole.scheduling.kueue.nomination_cache import Nomination, nominate_cached
from gpuconsole.scheduling.kueue.pod_resources import WorkloadRequest
from gpuconsole.scheduling.kueue.preemption import PreemptionSearch, PreemptionTarget, find_targets
from gpuconsole.scheduling.kueue.preemption.classical import find_targets_with_trace
from gpuconsole.scheduling.kueue.requeue import resume_position
from gpuconsole.scheduling.kueue.slices import replaced_pod_sets, replaced_slice
from gpuconsole.scheduling.kueue.state import KueueState
from gpuconsole.scheduling.kueue.topology.tas_assignment import place_pods_after_preemption, topology_requests

Found = TypeVar("Found")


def nominate(
    state: KueueState, context: Context, heads: Iterable[CycleEntry]
) -> tuple[list[CycleEntry], list[CycleEntry]]:
    """Fill in the assignment and the victims of each head (nominate).

    Returns the nominated entries, and those that cannot be evaluated, whose message says why (inadmissibleEntries).
    Entries that repeat a refusal are returned as they are.
    """
    entries, ineligible = [], []
    for entry in heads:
        if entry.refusal is not None:
            entries.append(entry)
        elif is_eligible(context, entry):
            entry.resume = resume_position(state, entry.request)
            entry.resumed = bool(entry.resume)
            _nominate_head(context, entry)
            entries.append(entry)
        else:
            ineligible.append(entry)
    return entries, ineligible


def _nominate_head(context: Context, entry: CycleEntry) -> None:
    """Nominate one head; the nomination cache answers for a head that starts at its first flavor."""
    if entry.resume:
        entry.record_nomination(*compute_nomination(context, entry.rules, entry.request, entry.resume))
    else:
        entry.record_nomination(*nominate_cached(context, entry, compute_nomination))


def is_eligible(context: Context, entry: CycleEntry) -> bool:
    """False if the entry cannot be evaluated; its message says why."""
    workload = entry.request.workload
    if any(check.state in ("Retry", "Rejected") for check in workload.checks):
        entry.refuse(messages.FAILED_CHECKS, GranularReason.PENDING_EVALUATION)
        return False
    if not entry.rules.active:
        entry.refuse(messages.inactive_message(entry.rules.name), GranularReason.SUSPENDED)
        return False
    if workload.namespace not in context.setup.objects.namespaces:
        entry.refuse(messages.missing_namespace_message(workload.namespace), GranularReason.MISCONFIGURED)
        return False
    if not context.setup.matches_namespace(entry.rules.queue, workload.namespace):
        entry.refuse(messages.NAMESPACE_MISMATCH, GranularReason.MISCONFIGURED)
        entry.requeue = RequeueReason.NAMESPACE_MISMATCH
        return False
    problem = entry.request.limits_problem(context.setup.limits_of(workload.namespace))
    if problem:
        entry.refuse(problem, GranularReason.MISCONFIGURED)
        return False
    return True


def compute_nomination(
    context: Context,
    rules: ClusterQueueConfig,
    request: WorkloadRequest,
    resume: ResumePosition | None = None,
    nominated: NominatedFlavors | None = None,
) -> Nomination:
    """Return the assignment and the victims of a workload, with fewer pods if neither exists at full size
    (getAssignments).

    The search for flavors continues from `resume`; with `nominated` it tries only these flavors. A slice that the
    workload replaces is the first target, without a rule.
    """
    replaced = replaced_slice(request.workload, context.held_by(rules.name), context.config)
    given = replaced_pod_sets(replaced, context.config)
    assigner = FlavorAssigner(context, rules, request, resume, nominated, replaced=given)
    assignment = assigner.assign()
    targets = _find_targets(context, rules, request, assignment)
    if not _is_viable(assignment, targets) and context.gates.partial_admission:
        assignment, targets = _try_partial_admission(context, rules, request, assigner) or (assignment, targets)
    if replaced is not None and _is_viable(assignment, targets):
        # As in Kueue, the old slice counts as gone, like a victim, when the cycle checks whether this entry and later
        # ones still fit. As only the difference is added, the quota of a cohort may be exceeded in that cycle.
        targets = [PreemptionTarget(replaced, None), *targets]
    victims = [target.holding for target in targets]
    place_pods_after_preemption(context, rules, request, assignment, victims)
    return assignment, targets


def _is_viable(assignment: Assignment, targets: Sequence[PreemptionTarget]) -> bool:
    return assignment.mode == FlavorAssignmentMode.FIT or bool(targets)


def _find_targets(
    context: Context, rules: ClusterQueueConfig, request: WorkloadRequest, assignment: Assignment
) -> Sequence[PreemptionTarget]:
    if assignment.mode != FlavorAssignmentMode.PREEMPT:
        return []
    wanted = topology_requests(context, rules, request, assignment)
    needing = assignment.columns_needing_preemption
    search = PreemptionSearch(context, rules, request, needing, assignment.preemption_usage, wanted)
    return (
        find_targets(search)
        if context.search_traces is None
        else find_targets_with_trace(search, context.search_traces)
    )


def _try_partial_admission(
    context: Context, rules: ClusterQueueConfig, request: WorkloadRequest, assigner: FlavorAssigner
) -> Nomination | None:
    """Return the nomination for the largest size that fits or can preempt."""
    pod_sets = [need.pod_set for need in request.pod_sets]
    return largest_fitting_counts(pod_sets, lambda counts: _try_counts(context, rules, request, assigner, counts))


def largest_fitting_counts(
    pod_sets: Sequence[PodSet], attempt: Callable[[Sequence[int]], Found | None]
) -> Found | None:
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
    targets = _find_targets(context, rules, request, assignment)
    return (assignment, targets) if _is_viable(assignment, targets) else None

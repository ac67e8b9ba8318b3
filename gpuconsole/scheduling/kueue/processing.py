"""Nomination and processing: the two steps of a cycle that decide on its entries (Kueue 0.19 scheduler.go).

`nominate` computes the assignment and the victims of a head, at full size or, where allowed, with fewer pods (nominate,
getAssignments, flavorassigner.PodSetReducer). All heads are nominated with the usage at the start of the cycle.

`process_entries` then decides on them one after the other (processEntry). Each changes the usage that the next is
checked against, so several may be admitted as long as they still fit. Under fair sharing each entry is the winner of a
new tournament in every cohort, because every admission changes the shares (fair_sharing_iterator.go).
"""

from collections.abc import Callable, Container, Iterator, Sequence
from enum import Enum, auto
from typing import TypeVar

from gpuconsole.model.pod_template import PodSet
from gpuconsole.scheduling.kueue import messages
from gpuconsole.scheduling.kueue.assignment import Assignment, FlavorAssignmentMode, ResumePosition
from gpuconsole.scheduling.kueue.cluster_queue import RequeueReason
from gpuconsole.scheduling.kueue.cluster_queue_status import ClusterQueueConfig
from gpuconsole.scheduling.kueue.concurrent_admission import NO_SIBLINGS, Siblings, admitted_siblings, may_migrate
from gpuconsole.scheduling.kueue.conditions import is_on_failed_node
from gpuconsole.scheduling.kueue.context import Context, CycleSnapshot
from gpuconsole.scheduling.kueue.entry import CycleEntry, EntryStatus
from gpuconsole.scheduling.kueue.flavor_assigner import FlavorAssigner, NominatedFlavors
from gpuconsole.scheduling.kueue.messages import GranularReason
from gpuconsole.scheduling.kueue.nomination_cache import (
    Nomination,
    can_always_reclaim,
    capacity_to_reserve,
    nominate_cached,
)
from gpuconsole.scheduling.kueue.pod_resources import Holding, WorkloadRequest
from gpuconsole.scheduling.kueue.preemption import PreemptionSearch, PreemptionTarget, find_targets
from gpuconsole.scheduling.kueue.preemption.classical import find_targets_with_trace
from gpuconsole.scheduling.kueue.preemption.fair_sharing import DominantResourceShare, share_of
from gpuconsole.scheduling.kueue.slices import replaced_pod_sets, replaced_slice
from gpuconsole.scheduling.kueue.topology.tas_assignment import place_pods_after_preemption, topology_requests

Found = TypeVar("Found")


def nominate(context: Context, entry: CycleEntry) -> None:
    """Fill in the entry's assignment and victims."""
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
    """Return the assignment and the victims of a workload, with fewer pods if neither exists at full size.

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


_Shares = dict[tuple[int, int], DominantResourceShare]
"""(cohort, workload id) → share, with the workload, of the cohort's child on the workload's path."""


def fair_sharing_order(context: Context, entries: list[CycleEntry]) -> Iterator[CycleEntry]:
    """Yield entries in fair sharing order; trees follow one another by the name of their first ClusterQueue.

    Entries with a cached outcome come in the order of the cached cycle.
    """
    waiting = {entry.rules.node: entry for entry in sorted(entries, key=lambda entry: entry.rules.name)}
    tree = context.snapshot.usage.tree
    while waiting:
        first = next(iter(waiting))
        root = tree.root(first)
        if root in waiting:
            yield waiting.pop(root)
        elif waiting[first].order:
            members = [node for node in waiting if tree.root(node) == root]
            yield from sorted((waiting.pop(node) for node in members), key=lambda entry: entry.order)
        else:
            yield from _tournaments(context, root, waiting)


def _tournaments(context: Context, root: int, waiting: dict[int, CycleEntry]) -> Iterator[CycleEntry]:
    """Yield all entries of one tree; shares are computed again only after the usage changed."""
    shares: _Shares = {}
    weighed = -1
    members = [node for node in context.snapshot.usage.tree.subtree_queues(root) if node in waiting]
    for _ in members:
        if weighed != context.version:
            weighed = context.version
            for node in members:
                if node in waiting:
                    _compute_shares(context, waiting[node], shares)
        winner = _best_entry(context, root, waiting, shares)
        assert winner is not None
        del waiting[winner.rules.node]
        yield winner


def _compute_shares(context: Context, entry: CycleEntry, shares: _Shares) -> None:
    """Compute the share that each node on the entry's path would have with it."""
    usage = context.snapshot.usage
    node, uses = entry.rules.node, entry.assignment.quota_usage
    usage.add(node, uses)
    for parent in usage.tree.paths[node]:
        shares[parent, entry.request.id] = share_of(usage, node)
        node = parent
    usage.remove(entry.rules.node, uses)


def _best_entry(context: Context, cohort: int, waiting: dict[int, CycleEntry], shares: _Shares) -> CycleEntry | None:
    """Return the winner among a cohort's children; child cohorts take part with their own winners."""
    tree = context.snapshot.usage.tree
    candidates = [_best_entry(context, child, waiting, shares) for child in tree.children[cohort]]
    candidates += [waiting.get(child) for child in tree.queue_children[cohort]]
    found = [candidate for candidate in candidates if candidate is not None]
    return min(found, key=lambda entry: tournament_rank(context, entry, shares[cohort, entry.request.id]), default=None)


def tournament_rank(
    context: Context, entry: CycleEntry, share: DominantResourceShare
) -> tuple[bool, bool, tuple[bool, float], int, int]:
    """Return the sort key by which the best entries of a cohort's children compete; the lowest wins.

    Preemptors whose victims are terminating (gate PrioritizePreemptorWorkloads), entries that borrow nothing they
    request (gate FairSharingPrioritizeNonBorrowing), the lower share, the higher priority, the older workload.
    """
    requested = entry.assignment.usage
    borrowing = any(requested.get(column, 0) > 0 for column in share.borrowed)
    return (
        context.gates.preemptors_first and not entry.preemptor,
        borrowing and context.gates.prioritize_non_borrowing,
        share.key,
        -entry.request.priority if context.gates.priority_sorting else 0,
        entry.request.timestamp,
    )


def process_entries(context: Context, entries: list[CycleEntry]) -> Iterator[CycleEntry]:
    """Decide on the nominated entries and yield them in order, with their status, message and requeue reason.

    Entries whose outcome was restored from the cache are only yielded. When an entry is blocked until all admitted
    workloads are ready, later ones are not decided on yet: a caller that continues the iteration states that all are
    ready now. The blocked entry is then yielded again, as admitted, whatever changed meanwhile (Kueue 0.19
    scheduler.processEntry: WaitForPodsReady).
    """
    chosen_victims: dict[int, PreemptionTarget] = {}
    ordered = (
        fair_sharing_order(context, entries) if context.config.fair_sharing else sorted_for_processing(context, entries)
    )
    for turn, entry in enumerate(ordered, start=1):
        if not entry.order:
            entry.order = turn
            _process_entry(context, entry, chosen_victims)
        yield entry
        if entry.status is EntryStatus.BLOCKED:
            entry.status = EntryStatus.ASSUMED
            context.unready = context.blocks_admission
            yield entry


def sorted_for_processing(context: Context, entries: list[CycleEntry]) -> list[CycleEntry]:
    """Sort entries: second passes, least borrowing, highest priority, oldest, the ClusterQueue's name.

    With the gate PrioritizePreemptorWorkloads, those whose victims are terminating follow the second passes.
    """
    sorting = context.gates.priority_sorting
    return sorted(
        entries,
        key=lambda entry: (
            not entry.second_pass_round,
            context.gates.preemptors_first and not entry.preemptor,
            entry.assignment.borrowing_height,
            -entry.request.priority if sorting else 0,
            entry.request.timestamp,
            entry.rules.name,
        ),
    )


def _process_entry(context: Context, entry: CycleEntry, chosen_victims: dict[int, PreemptionTarget]) -> None:
    """Process one entry in the steps of Kueue's processEntry."""
    keep = context.gates.preserve_scan_progress
    siblings = _admitted_siblings(context, entry)
    if siblings.more_favorable is not None:
        entry.skip(messages.BETTER_VARIANT_ADMITTED, GranularReason.PENDING_EVALUATION, keep_progress=keep)
        return
    # Without topologies the fit is only checked at the end: no earlier step depends on it.
    early = bool(context.setup.topologies)
    room = _check_fit(context, entry, chosen_victims) if early else FitCheck.FITS
    deferred = False
    if context.gates.overlap_recompute and _overlaps(entry, chosen_victims):
        with context.without_holdings(target.holding for target in chosen_victims.values()):
            _nominate_again(context, entry)
        deferred = entry.assignment.mode == FlavorAssignmentMode.FIT
        room = _check_fit(context, entry, chosen_victims) if early else FitCheck.FITS
    elif room is FitCheck.NO_TOPOLOGY and context.gates.topology_recompute:
        _nominate_again(context, entry)
        room = _check_fit(context, entry, chosen_victims)
    assignment = entry.assignment
    if (
        assignment.mode != FlavorAssignmentMode.FIT
        and context.gates.fail_fast
        and is_on_failed_node(entry.request.workload)
    ):
        entry.status = EntryStatus.EVICTED
        return
    if assignment.mode == FlavorAssignmentMode.NO_FIT or (
        assignment.mode == FlavorAssignmentMode.PREEMPT and not entry.targets
    ):
        entry.requeue, entry.granular_reason = assignment.requeue_reasons(
            entry.rules.groups, granular=context.gates.granular
        )
        if assignment.mode == FlavorAssignmentMode.NO_FIT:
            return
        if not can_always_reclaim(entry.rules) or (context.gates.preemptors_first and entry.preemptor):
            reserved = capacity_to_reserve(context.snapshot.usage, entry.rules, assignment)
            _count_usage(context, entry, [] if entry.second_pass_round else reserved)
        return
    if (
        assignment.mode == FlavorAssignmentMode.PREEMPT
        and context.gates.preemption_gates
        and entry.request.workload.gated
    ):
        entry.requeue_gated()
        return
    if deferred:
        entry.requeue_until_terminated(messages.DEFERRED, RequeueReason.PENDING_PREEMPTION)
        _count_usage(context, entry, entry.additional_usage)
        return
    if _overlaps(entry, chosen_victims):
        entry.skip(messages.OVERLAPPING_TARGETS, keep_progress=keep)
        return
    if (room if early else _check_fit(context, entry, chosen_victims)) is not FitCheck.FITS:
        entry.skip(messages.NO_LONGER_FITS, keep_progress=keep)
        return
    victims = _additional_usage(entry, chosen_victims)
    context.exclude_victims(victims)
    chosen_victims.update({target.holding.id: target for target in entry.targets})
    _count_usage(context, entry, entry.additional_usage)
    if assignment.mode == FlavorAssignmentMode.PREEMPT:
        entry.requeue_until_victims_terminated(entry.victim_count)
        return
    if context.unready and not entry.second_pass_round:
        entry.requeue_blocked()
        return
    if siblings.less_favorable is not None:
        _migrate(entry, siblings.less_favorable)
        return
    entry.status = EntryStatus.ASSUMED
    context.unready = context.blocks_admission


def _admitted_siblings(context: Context, entry: CycleEntry) -> Siblings:
    """Return the admitted variants of the same parent; none without concurrent admission."""
    workload = entry.request.workload
    if not (context.gates.concurrent_admission and workload.parent):
        return NO_SIBLINGS
    return admitted_siblings(workload, entry.rules.queue, context.held_by(entry.rules.name))


def _migrate(entry: CycleEntry, sibling: Holding) -> None:
    """Evict a sibling on a less favorable flavor, if the policy allows this flavor."""
    if not may_migrate(entry.request.workload, entry.rules.queue):
        entry.refuse(messages.BELOW_LAST_ACCEPTABLE, GranularReason.PENDING_EVALUATION)
        return
    entry.migrating_sibling = sibling
    entry.requeue_until_terminated(messages.pending_migration_message(entry.message), RequeueReason.PENDING_MIGRATION)


def _overlaps(entry: CycleEntry, chosen_victims: dict[int, PreemptionTarget]) -> bool:
    """True if an earlier entry of the cycle preempts one of its victims."""
    return any(target.holding.id in chosen_victims for target in entry.targets)


class FitCheck(Enum):
    """Result of checking whether an entry still fits after earlier ones."""

    FITS = auto()
    NO_QUOTA = auto()
    NO_TOPOLOGY = auto()
    """There is quota, but its topology domains are taken."""


def _check_fit(context: Context, entry: CycleEntry, chosen_victims: Container[int]) -> FitCheck:
    """Check whether the entry fits once all victims chosen so far, and its own, are gone."""
    victims, snapshot = _additional_usage(entry, chosen_victims), context.without_targets
    if not victims:
        return _check_fit_in(context, snapshot, entry)
    with snapshot.revertible():
        snapshot.remove_holdings(victims)
        return _check_fit_in(context, snapshot, entry)


def _additional_usage(entry: CycleEntry, chosen_victims: Container[int]) -> list[Holding]:
    """Return its victims that no earlier entry chose."""
    return [target.holding for target in entry.targets if target.holding.id not in chosen_victims]


def _check_fit_in(context: Context, snapshot: CycleSnapshot, entry: CycleEntry) -> FitCheck:
    if not snapshot.usage.fits_available(entry.rules.node, entry.additional_usage):
        return FitCheck.NO_QUOTA
    return (
        FitCheck.FITS
        if snapshot.topology_usage.fits(entry.additional_topology_usage(context.setup.topologies))
        else FitCheck.NO_TOPOLOGY
    )


def _nominate_again(context: Context, entry: CycleEntry) -> None:
    """Nominate the entry again with the same flavors, because earlier entries took its victims or topology domains."""
    nominated = entry.assignment.nominated_flavors()
    entry.record_nomination(*compute_nomination(context, entry.rules, entry.request, nominated=nominated))


def _count_usage(context: Context, entry: CycleEntry, uses: Sequence[tuple[int, int]]) -> None:
    """Add the entry's usage, or its reserved capacity, to the usage of the cycle."""
    context.add_usage(entry.rules.node, uses, entry.additional_topology_usage(context.setup.topologies))

"""Order and processing: the steps of a cycle that decide on its nominated entries (Kueue 0.19 scheduler.go).

`in_processing_order` is makeIterator. Under fair sharing each entry is the winner of a new tournament in every cohort,
because every admission changes the shares (fair_sharing_iterator.go).

`process_entry` is processEntry. Each entry changes the usage that the next is checked against, so several may be
admitted as long as they still fit. `issue_evictions` and `assume` carry out what was decided on an entry.
"""

from collections.abc import Container, Iterator, Sequence
from enum import Enum, auto

from gpuconsole.model.events import Admit, Evict, Preempt
from gpuconsole.scheduling.kueue import conditions, messages
from gpuconsole.scheduling.kueue.assignment import Assignment, FlavorAssignmentMode, attempts_text
from gpuconsole.scheduling.kueue.cluster_queue import RequeueReason
from gpuconsole.scheduling.kueue.cluster_queue_status import ClusterQueueConfig
from gpuconsole.scheduling.kueue.concurrent_admission import NO_SIBLINGS, Siblings, admitted_siblings, may_migrate
from gpuconsole.scheduling.kueue.context import Context, CycleSnapshot
from gpuconsole.scheduling.kueue.entry import CycleEntry, EntryStatus
from gpuconsole.scheduling.kueue.messages import GranularReason
from gpuconsole.scheduling.kueue.nomination import compute_nomination
from gpuconsole.scheduling.kueue.pod_resources import Holding
from gpuconsole.scheduling.kueue.preemption import PreemptionTarget
from gpuconsole.scheduling.kueue.preemption.classical import trace_of_victim
from gpuconsole.scheduling.kueue.preemption.fair_sharing import DominantResourceShare, share_of
from gpuconsole.scheduling.kueue.preemption.search import can_always_reclaim
from gpuconsole.scheduling.kueue.quota_tree import UsageTree
from gpuconsole.scheduling.kueue.state import KueueState
from gpuconsole.scheduling.kueue.workloads import assume_admission


def in_processing_order(context: Context, entries: list[CycleEntry]) -> Iterator[CycleEntry]:
    """Yield the nominated entries in the order in which they are processed, which is noted on each (makeIterator).

    Under fair sharing the order depends on the usage, so process each entry before the next is taken.
    """
    ordered = (
        fair_sharing_order(context, entries) if context.config.fair_sharing else sorted_for_processing(context, entries)
    )
    for turn, entry in enumerate(ordered, start=1):
        entry.order = entry.order or turn
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


ChosenVictims = dict[int, PreemptionTarget]
"""Workload id → victim that an entry of the cycle preempts (preemptedWorkloads)."""


class FitCheck(Enum):
    """Result of checking whether an entry still fits after earlier ones."""

    FITS = auto()
    NO_QUOTA = auto()
    NO_TOPOLOGY = auto()
    """There is quota, but its topology domains are taken."""


def process_entry(context: Context, entry: CycleEntry, chosen_victims: ChosenVictims) -> None:
    """Decide on an entry: sets its status, message and requeue reason, and counts its usage (processEntry).

    An entry that repeats a refusal is left as it is.
    """
    if entry.refusal is not None:
        return
    gates, keep = context.gates, context.gates.preserve_scan_progress
    siblings = _admitted_siblings(context, entry)
    if siblings.more_favorable is not None:
        entry.skip(messages.BETTER_VARIANT_ADMITTED, GranularReason.PENDING_EVALUATION, keep_progress=keep)
        return
    checked, deferred = _update_assignment_if_needed(context, entry, chosen_victims)
    workload, mode = entry.request.workload, entry.assignment.mode
    if mode != FlavorAssignmentMode.FIT and gates.fail_fast and conditions.is_on_failed_node(workload):
        entry.status = EntryStatus.EVICTED
        return
    if mode == FlavorAssignmentMode.NO_FIT or (mode == FlavorAssignmentMode.PREEMPT and not entry.targets):
        entry.requeue, entry.granular_reason = entry.assignment.requeue_reasons(
            entry.rules.groups, granular=gates.granular
        )
        if mode == FlavorAssignmentMode.PREEMPT:
            _reserve_capacity(context, entry)
        return
    if mode == FlavorAssignmentMode.PREEMPT and gates.preemption_gates and workload.gated:
        entry.requeue_gated()
        return
    if deferred:
        entry.requeue_until_terminated(messages.DEFERRED, RequeueReason.PENDING_PREEMPTION)
        _count_usage(context, entry, entry.additional_usage)
        return
    if _overlaps(entry, chosen_victims):
        entry.skip(messages.OVERLAPPING_TARGETS, keep_progress=keep)
        return
    if (checked or _check_fit(context, entry, chosen_victims)) is not FitCheck.FITS:
        entry.skip(messages.NO_LONGER_FITS, keep_progress=keep)
        return
    context.exclude_victims(_new_victims(entry, chosen_victims))
    chosen_victims.update({target.holding.id: target for target in entry.targets})
    _count_usage(context, entry, entry.additional_usage)
    if mode == FlavorAssignmentMode.PREEMPT:
        entry.requeue_until_victims_terminated(entry.victim_count)
    elif context.unready and not entry.second_pass_round:
        entry.requeue_blocked()
    elif siblings.less_favorable is not None:
        _migrate(entry, siblings.less_favorable)
    else:
        mark_assumed(context, entry)


def mark_assumed(context: Context, entry: CycleEntry) -> None:
    """Mark an entry as admitted; later ones wait for it to be ready if waitForPodsReady blocks admission."""
    entry.status = EntryStatus.ASSUMED
    context.unready = context.blocks_admission


def _update_assignment_if_needed(
    context: Context, entry: CycleEntry, chosen_victims: ChosenVictims
) -> tuple[FitCheck | None, bool]:
    """Nominate an entry again if earlier ones took its victims or topology domains (updateAssignmentIfNeeded).

    Returns the result of the fit check, and True if the entry fits once the victims of others are gone. Without
    topologies the fit is not checked (None): no step before the last one depends on it.
    """
    check_now = bool(context.setup.topologies)
    checked = _check_fit(context, entry, chosen_victims) if check_now else None
    if context.gates.overlap_recompute and _overlaps(entry, chosen_victims):
        with context.without_holdings(target.holding for target in chosen_victims.values()):
            _nominate_again(context, entry)
        deferred = entry.assignment.mode == FlavorAssignmentMode.FIT
        return _check_fit(context, entry, chosen_victims) if check_now else None, deferred
    if checked is FitCheck.NO_TOPOLOGY and context.gates.topology_recompute:
        _nominate_again(context, entry)
        checked = _check_fit(context, entry, chosen_victims)
    return checked, False


def _reserve_capacity(context: Context, entry: CycleEntry) -> None:
    """Keep capacity for an entry without preemption candidates (reserveCapacityForUnreclaimablePreempt)."""
    if not can_always_reclaim(entry.rules) or (context.gates.preemptors_first and entry.preemptor):
        reserved = capacity_to_reserve(context.snapshot.usage, entry.rules, entry.assignment)
        _count_usage(context, entry, [] if entry.second_pass_round else reserved)


def capacity_to_reserve(usage: UsageTree, rules: ClusterQueueConfig, assignment: Assignment) -> list[tuple[int, int]]:
    """Return the (column, amount) pairs that a head without preemption candidates keeps from later entries.

    Amounts are limited to the free nominal quota, plus the borrowing limit if the assignment borrows.
    """
    return [
        (column, _reserved_amount(usage, rules, column, amount, assignment.is_borrowing))
        for column, amount in assignment.usage.items()
    ]


def _reserved_amount(usage: UsageTree, rules: ClusterQueueConfig, column: int, amount: int, borrowing: bool) -> int:
    tree = usage.tree
    at = rules.node * tree.width + column
    free = tree.nominal[at] - usage.usage[at]
    if not borrowing:
        return max(0, min(amount, free))
    limit = tree.borrowing_limit[at]
    return amount if limit is None else min(amount, free + limit)


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


def _overlaps(entry: CycleEntry, chosen_victims: ChosenVictims) -> bool:
    """True if an earlier entry of the cycle preempts one of its victims."""
    return any(target.holding.id in chosen_victims for target in entry.targets)


def _check_fit(context: Context, entry: CycleEntry, chosen_victims: Container[int]) -> FitCheck:
    """Check whether the entry fits once all victims chosen so far, and its own, are gone."""
    victims, snapshot = _new_victims(entry, chosen_victims), context.without_targets
    if not victims:
        return _check_fit_in(context, snapshot, entry)
    with snapshot.revertible():
        snapshot.remove_holdings(victims)
        return _check_fit_in(context, snapshot, entry)


def _new_victims(entry: CycleEntry, chosen_victims: Container[int]) -> list[Holding]:
    """Return the victims of an entry that no earlier entry chose."""
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


def issue_evictions(state: KueueState, context: Context, entry: CycleEntry) -> Iterator[Preempt | Evict]:
    """Yield the evictions that an entry needs (issuePreemptions, issueMigration, handleFailedTASReplacement).

    Skips victims that are gone, terminating or already evicted in this state.
    """
    workload, asked = entry.request.workload, state.evictions_in_flight
    if entry.status is EntryStatus.EVICTED:
        # No replacement for a failed node was found, and the workload must not wait for one.
        message = messages.no_replacement_message(workload.unhealthy_nodes)
        yield Evict(workload.key, conditions.NODE_FAILURES, message, entry.message)
        return
    sibling = entry.migrating_sibling
    if sibling is not None and not sibling.evicted and sibling.id not in asked:
        asked.add(sibling.id)
        yield Evict(sibling.key, conditions.FLAVOR_MIGRATION, messages.migration_message(workload))
    if entry.requeue is not RequeueReason.PENDING_PREEMPTION or entry.refusal is not None:
        return
    for target in entry.targets:
        victim = target.holding
        gone = not isinstance(state.workload_index.records[victim.id], Holding)
        if target.rule is not None and not gone and not victim.evicted and victim.id not in asked:
            asked.add(victim.id)
            path = state.setup.queues[victim.cluster_queue].path_text
            message = messages.preempted_message(workload, target.rule, entry.rules.path_text, path)
            traces = context.search_traces
            choice = trace_of_victim(traces, entry.request, entry.targets, victim) if traces is not None else None
            yield Preempt(victim.key, workload.key, target.rule, message, choice)


def assume(state: KueueState, entry: CycleEntry) -> Admit:
    """Count the usage of an admitted entry in the state and return its admission (admit, assumeWorkload)."""
    admission = entry.assignment.admission(entry.rules.name, state.setup.topologies)
    assume_admission(state, entry.request, admission)
    tried = attempts_text((result.pod_set.name, result.searches) for result in entry.assignment.pod_sets)
    replaces = entry.replaced_slice.key if entry.replaced_slice is not None else ""
    return Admit(entry.request.workload.key, admission, entry.assignment.is_borrowing, tried, replaces)

"""The scheduler as a session: `apply` takes objects, `run_cycle` returns decisions.

The session has no clock and no randomness: time is an argument, and the same calls return the same decisions. It
assumes its own admissions until the admitted workloads are applied.

`dump_state` and `load_state` save and restore what applying the objects again would not, so that a restored session
continues like the original. `targets_for_amount` finds the workloads that a ClusterQueue could preempt for an amount of
one flavor, before any workload is pending.
"""

from collections.abc import Iterable, Mapping

from msgspec import Struct, field
from msgspec.structs import replace

from gpuconsole.model.clock import Span, Time
from gpuconsole.model.cluster import Pod
from gpuconsole.model.events import (
    AdmissionDecision,
    Applied,
    Deleted,
    Event,
    HistoryEvent,
    Pending,
    PreemptionRule,
    Refuse,
)
from gpuconsole.model.objects import TABLES, Object
from gpuconsole.model.snapshot import NO_ASSUMPTIONS
from gpuconsole.model.workloads import Workload
from gpuconsole.scheduling.kueue import afs_charges, config_events, scheduler
from gpuconsole.scheduling.kueue.admissibility import QueueLookup, look_up_queues
from gpuconsole.scheduling.kueue.afs_charges import LocalQueueUsageReport
from gpuconsole.scheduling.kueue.cluster_queue_status import (
    ActiveCondition,
    ClusterQueueConfig,
    CompiledConfig,
    active_condition,
)
from gpuconsole.scheduling.kueue.config import DEFAULT, KueueConfig
from gpuconsole.scheduling.kueue.entry import CycleEntry
from gpuconsole.scheduling.kueue.pod_resources import Holding, WorkloadRequest
from gpuconsole.scheduling.kueue.preemption import PreemptionSearch, find_targets
from gpuconsole.scheduling.kueue.quota_tree import UsageTree
from gpuconsole.scheduling.kueue.requeue import requeue_observed, set_preemptors
from gpuconsole.scheduling.kueue.scheduler import ReportRefusals, has_head, skip_idle_cycles
from gpuconsole.scheduling.kueue.state import COHORT, FlavorScanProgress, KueueState, ObservedWorkloads, SecondPass
from gpuconsole.scheduling.kueue.topology.layout import UsageChanges
from gpuconsole.scheduling.kueue.workload_index import LocalQueueUsage
from gpuconsole.scheduling.kueue.workloads import (
    apply_workload,
    backoff_ended,
    has_second_pass_due,
    remove_workload,
)


class ClusterQueueState(Struct, frozen=True):
    """Saved state of a ClusterQueue's queue: inadmissible workloads and classes, and the sticky workload, by key."""

    inadmissible: tuple[str, ...] = field(default=(), name="parked")
    inadmissible_classes: tuple[tuple[bytes, str], ...] = field(default=(), name="closed")
    """Scheduling hashes of inadmissible classes, with the granular reason."""
    sticky: str = ""
    requeued_from_local_queue: tuple[str, ...] = field(default=(), name="brought_back")
    """Workloads that are tried although their class is inadmissible."""


class SessionState(Struct, frozen=True, kw_only=True):
    """What a saved session needs besides its objects (`dump_state`, `load_state`); encodes with msgspec."""

    now: Time = 0
    cycles: int = 0
    idle: int = 0
    due: tuple[str, ...] = ()
    generations: Mapping[str, int] = {}
    progress: Mapping[str, FlavorScanProgress] = {}
    evictions_in_flight: tuple[str, ...] = field(default=(), name="asked")
    """Victims whose evictions were not applied yet."""
    second_passes: Mapping[str, SecondPass] = {}
    queues: Mapping[str, ClusterQueueState] = {}
    ledgers: Mapping[str, LocalQueueUsage] = {}
    samples: Mapping[str, Time] = {}
    """LocalQueue → time of its next usage sample."""
    next_sample: Time | None = None
    """Next sample of all LocalQueues, in states that version 0.1 wrote."""


def dump_state(state: KueueState) -> SessionState:
    """Return the state that applying the objects again would not restore."""
    config_events.recompile(state)
    state.end_batches()
    names = {
        record.id: record.workload.key
        for record in state.workload_index.all_queues()
        if isinstance(record, WorkloadRequest | Holding)
    }
    queues = {}
    for name in state.setup.queues:
        queue = state.workload_index.read_queue(name)
        if queue is not None:
            inadmissible, closed, sticky = queue.dump()
            queues[name] = ClusterQueueState(
                inadmissible=tuple(names[number] for number in inadmissible),
                inadmissible_classes=closed,
                sticky=names.get(sticky, "") if sticky is not None else "",
                requeued_from_local_queue=tuple(names[number] for number in queue.requeued_from_local_queue),
            )
    return SessionState(
        now=state.now,
        cycles=state.cycles,
        idle=state.is_idle,
        due=tuple(state.due_trees),
        generations=state.generations.copy(),
        progress={names[number]: progress for number, progress in state.progress.items()},
        evictions_in_flight=tuple(sorted(names[number] for number in state.evictions_in_flight)),
        second_passes={names[number]: again for number, again in state.second_passes.items()},
        queues=queues,
        ledgers=state.local_queue_usage.copy(),
        samples=state.samples.copy(),
    )


def load_queues(state: KueueState, other: KueueState) -> None:
    """Copy the inadmissible workloads and preemptors of a session that got the same objects earlier.

    Workloads whose backoff has ended since then are admissible.
    """
    config_events.recompile(state)
    kept = dump_state(other).queues
    ended = (other.workload_index.records[number] for number, until in other.backoffs.items() if until <= state.now)
    active = {record.workload.key for record in ended if isinstance(record, WorkloadRequest)}
    for name, queue in kept.items():
        _load_queue(
            state, name, replace(queue, inadmissible=tuple(key for key in queue.inadmissible if key not in active))
        )


def _load_queue(state: KueueState, name: str, kept: ClusterQueueState) -> None:
    number = state.workload_index.id_of
    sticky = number(kept.sticky) if kept.sticky else None
    back = map(number, kept.requeued_from_local_queue)
    state.workload_index.queue(name).load(map(number, kept.inadmissible), kept.inadmissible_classes, sticky, back)


def load_state(state: KueueState, saved: SessionState) -> None:
    """Restore into `state`, which belongs to a new session, what `dump_state` returned from another one.

    The new session must have applied the other session's objects, and done nothing else.
    """
    state.now = max(state.now, saved.now)
    config_events.recompile(state)
    state.cycles, state.is_idle = saved.cycles, saved.idle
    state.due_trees = dict.fromkeys(due for due in saved.due if "/" in due)
    for name in saved.due:
        if "/" not in name:  # Written by 0.1, which named ClusterQueues only.
            state.mark_tree_due(name)
    state.generations = dict(saved.generations)
    number = state.workload_index.id_of
    state.progress = {number(key): progress for key, progress in saved.progress.items()}
    state.evictions_in_flight = set(map(number, saved.evictions_in_flight))
    state.second_passes = {number(key): again for key, again in saved.second_passes.items()}
    for name, kept in saved.queues.items():
        _load_queue(state, name, kept)
    samples = saved.samples
    if saved.next_sample is not None and not samples:
        samples = dict.fromkeys(saved.ledgers, saved.next_sample)
    afs_charges.restore(state, saved.ledgers, samples)


NO_PREEMPTOR_ID = -1
"""Id of the supposed preemptor, which no workload has."""


def targets_for_amount(
    state: KueueState, cluster_queue: str, flavor: str, resource: str, amount: int, priority: int
) -> list[tuple[str, PreemptionRule]] | None:
    """Return the victims and rules for an amount of a flavor; empty if it is free, None if no preemption helps.

    None also if the ClusterQueue has no quota of it. The supposed preemptor is the newest workload of its priority.
    """
    rules, context = state.setup.queues.get(cluster_queue), state.context()
    usage = context.snapshot.usage
    column = usage.tree.numbers.get((flavor, resource))
    if rules is None or column is None:
        return None
    if usage.fits_available(rules.node, [(column, amount)]):
        return []
    asking = Workload(namespace="", name="", priority=priority, created=state.now)
    request = WorkloadRequest(asking, NO_PREEMPTOR_ID, cluster_queue, state.config)
    targets = find_targets(PreemptionSearch(context, rules, request, frozenset((column,)), [(column, amount)]))
    return [(target.holding.key, target.rule) for target in targets if target.rule is not None] or None


class KueueSession:
    """Kueue's scheduler with its queues and its cache. Mutates; `fork` returns an independent copy."""

    def __init__(self, config: KueueConfig = DEFAULT) -> None:
        self._state = KueueState(config)
        self.assumptions = NO_ASSUMPTIONS
        """Refused workloads assumed to be inadmissible, or retried, if the session continues from a live cluster."""

    @property
    def config(self) -> KueueConfig:
        return self._state.config

    def apply(self, obj: Object, now: Time) -> None:
        """Apply a new or changed object; kinds that admission does not use are ignored."""
        table = TABLES[type(obj)]
        if isinstance(obj, Workload):
            apply_workload(self._set_time(now), obj)
        elif isinstance(obj, Pod):
            self._update_non_tas_usage(self._set_time(now).non_tas_pods.add_pod(obj))
        elif table in config_events.CONFIG_TABLES:
            self._state.now = max(self._state.now, now)
            config_events.store_object(self._state, table, obj.key, obj)

    def apply_unchanged_write(self, obj: Object, now: Time, *, spec_changed: bool) -> None:
        """Apply a write that changed nothing that admission depends on; `spec_changed`: the spec changed."""
        config_events.on_unchanged_write(self._set_time(now), obj, spec_changed=spec_changed)

    def delete(self, table: str, key: str, now: Time) -> None:
        """Delete an object; `table` as in `model.objects.TABLES`."""
        if table == "workloads":
            remove_workload(self._set_time(now), key)
            afs_charges.drop_penalty(self._state, key)
        elif table == "pods":
            self._update_non_tas_usage(self._set_time(now).non_tas_pods.remove_pod(key))
        elif table in config_events.CONFIG_TABLES:
            self._state.now = max(self._state.now, now)
            config_events.store_object(self._state, table, key, None)

    def apply_event(self, event: Event, now: Time) -> None:
        """Apply an event, as `apply` and `delete` do."""
        match event:
            case Applied(_, obj):
                self.apply(obj, now)
            case Deleted(_, table, key):
                self.delete(table, key, now)
            case HistoryEvent():
                pass

    def run_cycle(
        self,
        now: Time,
        *,
        with_traces: bool = False,
        report: ReportRefusals = ReportRefusals.EVERY,
        stays_open: bool = False,
    ) -> list[AdmissionDecision]:
        """Run one scheduling cycle; returns admissions and evictions in processing order, then refusals.

        With `with_traces` preemptions include how their victims were chosen, and `report` selects the refusals that are
        returned; both change no other decision. With `stays_open` a cycle in which waitForPodsReady blocks admission
        waits: the next call continues it. Without, its heads return to their queues and are retried.
        """
        return scheduler.run_cycle(self._set_time(now), with_traces=with_traces, report=report, stays_open=stays_open)

    @property
    def is_waiting_in_cycle(self) -> bool:
        """True if an open cycle still waits: some admitted workload is not ready."""
        state = self._apply_noted_changes
        return state.open_cycle is not None and any(
            not h.workload.is_true("PodsReady") for h in state.workload_index.holders_by_queue
        )

    @property
    def has_open_cycle(self) -> bool:
        """True if a cycle that waitForPodsReady blocked has not ended, whether it still waits or can go on."""
        return self._state.open_cycle is not None

    def observe_only(self, workloads: Iterable[str]) -> None:
        """Keep exact pending reasons only for these and for future workloads.

        Others may be stale where `run_cycle` leaves refusals out. Decisions are the same.
        """
        roster = self._apply_noted_changes.workload_index
        known = {roster.id_of(workload) for workload in workloads if roster.get(workload) is not None}
        # A future workload may have the name, and so the id, of one that is gone.
        known.update(number for number, record in enumerate(roster.records) if record is None)
        self._state.observed = ObservedWorkloads(len(roster.records), frozenset(known))

    def observe_all(self) -> None:
        """Keep exact pending reasons for all workloads again."""
        self._state.observed = None

    def skip_idle_cycles(self) -> int:
        """Skip the coming cycles in which heads would only repeat refusals; returns their number.

        Use it only if `run_cycle` reports CHANGED_REASON refusals. The queues are then as after these cycles.
        """
        return skip_idle_cycles(self._apply_noted_changes)

    def examine_cycle(self, now: Time, first: str = "") -> list[CycleEntry]:
        """Return the entries of the next cycle; with `first` that workload is tried as if it were the head.

        Nothing changes: it happens in a fork.
        """
        return scheduler.examine_cycle(self.fork()._set_time(now), first)

    def heads_in_processing_order(self, now: Time) -> list[CycleEntry]:
        """Return the head of each active ClusterQueue, as if all inadmissible workloads were requeued, in processing
        order.

        Nothing changes: it happens in a fork.
        """
        return scheduler.heads_in_processing_order(self.fork()._set_time(now))

    def rejected_claims(self) -> list[Refuse]:
        """Return the refusals of workloads that cannot be queued because of their resource claims, each once."""
        state = self._apply_noted_changes
        found = [r for n, r in state.rejected_claims.items() if isinstance(state.workload_index.records[n], Workload)]
        state.rejected_claims.clear()
        return found

    @property
    def has_progressed(self) -> bool:
        """False if another cycle would decide the same as the last one, as long as nothing is applied.

        True after a cycle that admitted, preempted or marked a workload inadmissible, and while some head has flavors
        left to try.
        """
        state = self._state
        return not state.is_idle or (bool(state.progress) and state.is_idle <= state.setup.max_flavors)

    @property
    def max_flavors_left(self) -> int:
        """Upper bound of the number of flavors that the heads still have to try; 0 if no head has any left.

        Kueue tries such a head in every cycle, and each cycle continues where the last one stopped, until its
        ClusterQueue changes (LastAssignment and AllocatableResourceGeneration).
        """
        return self._state.setup.max_flavors if self._state.progress else 0

    @property
    def has_heads(self) -> bool:
        """True if any active ClusterQueue has a head, or a second pass is due."""
        state = self._apply_noted_changes
        return has_second_pass_due(state) or has_head(state)

    @property
    def uses_topologies(self) -> bool:
        """True if any flavor has a topology, so that pods and their nodes matter."""
        return bool(self._apply_noted_changes.setup.topologies)

    @property
    def has_requeue_due(self) -> bool:
        """True if inadmissible workloads must be requeued by `requeue_inadmissible`."""
        return bool(self._apply_noted_changes.due_trees)

    def requeue_inadmissible(self, now: Time) -> None:
        """Requeue the inadmissible workloads of every tree that had a relevant change."""
        state = self._set_time(now)
        woken = _queues_of(state, state.due_trees)
        state.due_trees.clear()
        if state.open_cycle is not None:
            state.woken_in_flight.update(woken)
        for name in woken:
            self._requeue_tree_of(state.setup.queues[name])

    def workload(self, key: str) -> Workload | None:
        """Return a workload as applied last; None if it is gone."""
        record = self._state.workload_index.get(key)
        return record if record is None or isinstance(record, Workload) else record.workload

    def tree_name(self, local_queue: str) -> str:
        """Return the cohort tree of a LocalQueue, as `take_due_trees` names it; empty if there is none."""
        state = self._apply_noted_changes
        return state.tree_name(state.setup.cluster_queue_of(local_queue))

    def queues_of_tree(self, tree: str) -> list[str]:
        """Return the ClusterQueues of a cohort tree that is named as `take_due_trees` does."""
        return _queues_of(self._apply_noted_changes, [tree])

    def tree_requeued_by_status(self, local_queue: str) -> str:
        """Return the tree that is requeued when the status of a LocalQueue's ClusterQueue is written; empty if none.

        Kueue writes the numbers of pending and reserving workloads there, and reconciles the Cohorts above at every
        write.
        """
        state = self._apply_noted_changes
        if not (local_queue and state.objects.cohorts):
            return ""
        rules = state.setup.queues.get(state.setup.cluster_queue_of(local_queue))
        looked_at = rules is not None and config_events.has_cohort_below_root(state, rules.queue.cohort)
        return state.tree_name(rules.name) if rules is not None and looked_at else ""

    def take_due_trees(self) -> list[str]:
        """Return and clear the trees whose inadmissible workloads are to be requeued."""
        state = self._apply_noted_changes
        due = list(state.due_trees)
        state.due_trees.clear()
        return due

    def mark_trees_due(self, trees: Iterable[str]) -> None:
        """Let the next `requeue_inadmissible` include these trees."""
        self._apply_noted_changes.due_trees.update(dict.fromkeys(trees))

    def mark_unrefused_classes_admissible(self, trees: Iterable[str]) -> None:
        """Make equivalence classes admissible again that an external Kueue retried without refusing them."""
        state = self._apply_noted_changes
        for name in _queues_of(state, trees):
            state.workload_index.queue(name).mark_unrefused_classes_admissible()

    def requeue_observed(self, *, refused: Iterable[str], tried_again: Iterable[str]) -> None:
        """Requeue heads as another scheduler did: inadmissible with their class, or back in their queues."""
        requeue_observed(self._apply_noted_changes, refused, tried_again)

    def set_preemptors(self, preemptors: Iterable[str]) -> None:
        """Set the workloads for which another scheduler evicted victims; the last one of a ClusterQueue counts."""
        set_preemptors(self._apply_noted_changes, preemptors)

    def requeue_all_inadmissible(self, now: Time) -> None:
        """Requeue all inadmissible workloads, whether anything changed or not."""
        state = self._set_time(now)
        for name in state.setup.queues:
            state.mark_tree_due(name)
        self.requeue_inadmissible(now)

    @property
    def next_sample(self) -> Time | None:
        """Return the time of the next usage sample of admission fair sharing; None if there is none."""
        return min(self._state.samples.values(), default=None)

    def take_due_samples(self, now: Time) -> None:
        """Sample the usage of the LocalQueues that are due."""
        afs_charges.take_due_samples(self._set_time(now))

    def sample_local_queue(self, key: str, now: Time) -> Span | None:
        """Sample the usage of a LocalQueue if due; returns the time to its next sample, None if it is not sampled.

        For admission fair sharing, if the caller schedules the samples and `take_due_samples` is not used.
        """
        return afs_charges.sample_local_queue(self._set_time(now), key)

    def afs_usage_changes(self) -> list[LocalQueueUsageReport]:
        """Return the usage reports of LocalQueues that changed since the last call."""
        return afs_charges.take_usage_changes(self._apply_noted_changes) if self._state.charging else []

    @property
    def next_requeue(self) -> Time | None:
        """The earliest end of a backoff or time of a second pass; None if there is none."""
        state = self._state
        return min([*state.backoffs.values(), *(again.at for again in state.second_passes.values())], default=None)

    def is_stale(self, now: Time) -> bool:
        """True if a new session of the same objects may differ by now because time has passed.

        A backoff has ended, or admission fair sharing is configured, whose usage decays.
        """
        due = self.next_requeue
        return self.config.admission_fair_sharing is not None or (due is not None and due <= now)

    def pending_workloads(self, cluster_queue: str) -> list[Pending]:
        """Return all pending workloads of a ClusterQueue in queue order, inadmissible ones included."""
        state = self._apply_noted_changes
        queue, rules = state.workload_index.read_queue(cluster_queue), state.setup.queues.get(cluster_queue)
        listing = (
            queue.sorted_pending(state.usage_by_local_queue(rules)) if queue is not None and rules is not None else []
        )
        return [
            Pending(request.workload, position, inadmissible)
            for position, (request, inadmissible) in enumerate(listing, start=1)
        ]

    def is_inadmissible(self, workload: str) -> bool:
        """True if the workload is inadmissible until its tree changes."""
        roster = self._apply_noted_changes.workload_index
        record = roster.get(workload)
        queue = roster.read_queue(record.cluster_queue) if isinstance(record, WorkloadRequest) else None
        return isinstance(record, WorkloadRequest) and queue is not None and queue.is_inadmissible(record.id)

    def count_inadmissible(self, trees: Iterable[str] | None = None) -> int:
        """Count inadmissible workloads of all trees or of some, without those in a backoff."""
        state = self._apply_noted_changes
        names = state.setup.queues if trees is None else _queues_of(state, trees)
        queues = {name: queue for name in names if (queue := state.workload_index.read_queue(name)) is not None}
        records = (state.workload_index.records[number] for number in state.backoffs)
        backing_off = sum(isinstance(record, WorkloadRequest) and record.cluster_queue in queues for record in records)
        return sum(queue.inadmissible_count for queue in queues.values()) - backing_off

    def newly_inadmissible(self) -> list[str]:
        """Return the workloads that became inadmissible since the last call, each once."""
        return [request.workload.key for request in self._apply_noted_changes.workload_index.newly_inadmissible()]

    def look_up_queues(self, workload: Workload) -> QueueLookup:
        """Look up the queues of a workload, for its condition before the scheduler evaluates it."""
        return look_up_queues(self._apply_noted_changes, workload)

    def requests_of(self, workload: str) -> dict[str, dict[str, int]]:
        """Return pod set → total requests of a pending workload (status.resourceRequests); empty if it is not
        pending.
        """
        record = self._apply_noted_changes.workload_index.get(workload)
        if not isinstance(record, WorkloadRequest):
            return {}
        return {request.pod_set.name: dict(request.total) for request in record.pod_sets}

    def active_condition(self, cluster_queue: str) -> ActiveCondition:
        """Return the Active condition of a ClusterQueue: whether it can admit, and why not."""
        objects = self._state.objects
        queue = objects.cluster_queues.get(cluster_queue)
        return active_condition(queue, objects, topologies=self.config.enabled("TopologyAwareScheduling"))

    @property
    def compiled_config(self) -> CompiledConfig:
        """The compiled configuration; read-only."""
        return self._apply_noted_changes.setup

    @property
    def usage_tree(self) -> UsageTree:
        """Usage and quotas by node and column; read-only."""
        return self._apply_noted_changes.snapshot.usage

    def available(self, cluster_queue: str, flavor: str, resource: str) -> int:
        """Return the quota that this queue can use now without preemption, in base units; 0 if unknown."""
        usage = self.usage_tree
        node, column = usage.tree.queues.get(cluster_queue), usage.tree.numbers.get((flavor, resource))
        if node is None or column is None:
            return 0
        return max(0, usage.available(node, column))

    def holds_quota(self, cluster_queue: str) -> bool:
        """True if any workload holds quota in a ClusterQueue."""
        return bool(self._apply_noted_changes.workload_index.holdings.get(cluster_queue))

    def targets_for_amount(
        self, cluster_queue: str, flavor: str, resource: str, amount: int, *, priority: int
    ) -> list[tuple[str, PreemptionRule]] | None:
        """Return the victims and rules for an amount of a flavor that a workload of this queue would need.

        Empty if it is free; None if preemption does not help or is forbidden.
        """
        return targets_for_amount(self._apply_noted_changes, cluster_queue, flavor, resource, amount, priority)

    def fork(self) -> "KueueSession":
        """Return an equal, independent session."""
        copied = KueueSession.__new__(KueueSession)
        copied._state = self._state.fork()
        copied.assumptions = self.assumptions
        return copied

    def dump(self) -> SessionState:
        """Return the state that applying all objects again would not restore; `load_state` restores it."""
        return dump_state(self._state)

    def load(self, saved: SessionState) -> None:
        """Restore a state from `dump_state`; the objects must have been applied before."""
        load_state(self._state, saved)

    def load_queues(self, other: "KueueSession") -> None:
        """Copy the queues of a session that got the same objects earlier; time has passed since then."""
        load_queues(self._state, other._state)

    @property
    def _apply_noted_changes(self) -> KueueState:
        config_events.recompile(self._state)
        return self._state

    def _set_time(self, now: Time) -> KueueState:
        self._state.now = max(self._state.now, now)
        return self._apply_noted_changes

    def _update_non_tas_usage(self, moves: UsageChanges) -> None:
        """Update the usage of non-TAS pods; requeues pending workloads where capacity became free."""
        state = self._state
        state.snapshot.topology_usage.apply_changes(moves)
        freed = [node for node, _, sign in moves if sign < 0]
        flavors = {f for f, d in state.setup.topologies.items() if any(node in d.leaf_of for node in freed)}
        for rules in state.setup.queues.values() if flavors else ():
            if any(flavor in flavors for flavor, _ in rules.queue.quotas()):
                state.mark_tree_due(rules.name)

    def _requeue_tree_of(self, rules: ClusterQueueConfig) -> None:
        state, selector = self._state, rules.queue.namespace_selector
        all_match = selector is not None and not selector.match_labels and not selector.match_expressions
        state.workload_index.queue(rules.name).requeue_inadmissible(
            lambda request: backoff_ended(request.workload, state.now),
            None if all_match else lambda r: state.setup.matches_namespace(rules.queue, r.workload.namespace),
        )


def _queues_of(state: KueueState, trees: Iterable[str]) -> list[str]:
    """Return the ClusterQueues of trees that are named as in `KueueState.due_trees`, each once."""
    tree = state.setup.tree
    found: dict[str, None] = {}
    for due in trees:
        kind, _, name = due.partition("/")
        node = (tree.cohorts if f"{kind}/" == COHORT else tree.queues).get(name)
        found.update((tree.names[number], None) for number in (tree.subtree_queues(node) if node is not None else ()))
    return list(found)

"""The state of a session, its forks, and its update after configuration changes.

`KueueState` mutates; `workloads` changes it for workloads, `config_events` for configuration objects.

It also holds what lets a cycle repeat refusals without trying the heads again; `inadmissible_skip` fills and uses it.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache

from msgspec import Struct, field

from gpuconsole.model.clock import Time
from gpuconsole.model.events import Refuse
from gpuconsole.model.workloads import Workload
from gpuconsole.scheduling.kueue.assignment import ResumePosition
from gpuconsole.scheduling.kueue.cluster_queue import ClusterQueueHeap
from gpuconsole.scheduling.kueue.cluster_queue_status import ClusterQueueConfig, CompiledConfig, ConfigObjects
from gpuconsole.scheduling.kueue.config import KueueConfig
from gpuconsole.scheduling.kueue.context import Context, CycleSnapshot, Gates, NominationCache, UsageKey
from gpuconsole.scheduling.kueue.entry import CycleEntry, CycleResult
from gpuconsole.scheduling.kueue.messages import GranularReason
from gpuconsole.scheduling.kueue.nomination_cache import QuotaShortage
from gpuconsole.scheduling.kueue.pod_resources import Holding, WorkloadRequest
from gpuconsole.scheduling.kueue.quota_tree import Column, UsageTree
from gpuconsole.scheduling.kueue.topology.layout import NonTasPodUsage, TasUsage
from gpuconsole.scheduling.kueue.workload_index import (
    LocalQueueUsage,
    WorkloadIndex,
    comparable_usage,
    with_missed_samples,
)

COHORT, QUEUE = "Cohort/", "ClusterQueue/"
"""Prefixes of the names of cohort trees in `KueueState.due_trees`; a tree without a cohort has its queue's name."""


class FlavorScanProgress(Struct, frozen=True):
    """Position of a workload's search for flavors, and when it was recorded."""

    resume: ResumePosition
    generation: int
    """The ClusterQueue's generation: grows when a quota holder in it changes or leaves, or its tree's quotas change."""
    cycle: int
    scheduling_hash: bytes = field(name="shape")
    """Scheduling hash of the workload; empty if not known."""

    def is_outdated(self, generation: int, cycle: int, scheduling_hash: bytes, *, preserve: bool) -> bool:
        """True if the search must start from the first flavor (lastAssignmentOutdated).

        With `preserve` (gate FlavorFungibilityPreserveScanProgress) the progress of the last cycle stays valid, unless
        the workload's scheduling hash changed.
        """
        if preserve:
            if self.scheduling_hash and scheduling_hash and self.scheduling_hash != scheduling_hash:
                return True
            if cycle - self.cycle <= 1:
                return False
        return generation > self.generation


class SecondPass(Struct, frozen=True):
    """The next attempt of a workload that has quota but needs a topology assignment; `round` counts attempts from 1."""

    at: Time
    round: int


class ObservedWorkloads(Struct, frozen=True):
    """Workloads whose pending reason must be kept exact; others may be stale."""

    first_id: int
    """Workloads with this id or a greater one are observed, too: they are newer."""
    ids: frozenset[int]


class UnchangedCohort(Struct, frozen=True):
    """The refused heads of a cohort tree in which another cycle would change nothing."""

    entries: list[CycleEntry]
    versions: list[int]
    """Versions of the heads' queues."""


BatchHead = tuple[WorkloadRequest, GranularReason, QuotaShortage]
"""A head, the granular reason of its refusal, and its shortage."""


class BatchCandidates(Struct, frozen=True):
    """Heads of a queue, in order, with what must be checked to know that all of them would be refused again."""

    heads: tuple[BatchHead, ...]
    short: tuple[tuple[WorkloadRequest, int, int], ...]
    """For each column, priority and (if it matters) age: the head that requests least, the column and the amount."""
    bounds: tuple[tuple[WorkloadRequest, int, int], ...]
    """A quicker check: for each column the head that may preempt most and the least amount; if it is short, all are."""
    available: tuple[tuple[int, int], ...]
    """Column that is not short for some head → the greatest amount requested of it."""


class CachedBatch(Struct, frozen=True):
    """Cached `BatchCandidates` of a queue whose classes are all admissible.

    Valid while the queue's counter `members` and the configuration `setup` are the same.
    """

    candidates: BatchCandidates
    members: int
    setup: CompiledConfig


class InadmissibleBatch:
    """Heads that were marked inadmissible in advance, one for each coming cycle (`inadmissible_skip`). Mutates."""

    __slots__ = ("candidates", "counted", "heads", "usage_key", "version")

    def __init__(
        self,
        heads: tuple[BatchHead, ...],
        usage_key: UsageKey,
        version: int,
        candidates: BatchCandidates | None = None,
        done: int = 0,
    ) -> None:
        self.heads = heads
        self.candidates = candidates
        """Summary of `heads`; None until it is needed."""
        self.counted = done
        """Number of heads whose cycles are counted."""
        self.usage_key = usage_key
        self.version = version
        """Version of the queue with all of them inadmissible."""

    def copy(self) -> "InadmissibleBatch":
        """Return an independent copy."""
        return InadmissibleBatch(self.heads, self.usage_key, self.version, self.candidates, self.counted)

    def stop_batch(self, queue: ClusterQueueHeap) -> None:
        """Make the heads admissible again that were marked inadmissible in advance and had no cycle yet."""
        queue.mark_classes_admissible(request for request, _, _ in self.heads[self.counted :])


class InadmissibleSkip:
    """Heads whose refusals a session repeats without trying them again (`inadmissible_skip`). Mutates.

    It has at most one entry for each cohort tree and ClusterQueue. Changed quotas start an empty one.
    """

    __slots__ = ("batches", "candidates", "unchanged_cohorts")

    def __init__(self) -> None:
        self.unchanged_cohorts: dict[int, UnchangedCohort] = {}
        """Root → tree in which another cycle would change nothing; not copied to forks."""
        self.batches: dict[str, InadmissibleBatch] = {}
        """ClusterQueue → batch of heads that are marked inadmissible already; their cycles are only counted."""
        self.candidates: dict[str, CachedBatch] = {}
        """ClusterQueue → heads that may form a batch."""

    def fork(self) -> "InadmissibleSkip":
        """Return an independent copy for a fork of the session."""
        copied = InadmissibleSkip()
        copied.batches = {name: batch.copy() for name, batch in self.batches.items()}
        copied.candidates = self.candidates.copy()
        return copied


class KueueState:
    """The data of a session: objects, queues, usage, caches. Mutates; forks share what neither side changes."""

    __slots__ = (
        "_objects_shared",
        "backoffs",
        "changed_below",
        "charged",
        "charges_changed",
        "charging",
        "config",
        "cycles",
        "devices_stale",
        "due_trees",
        "evictions_in_flight",
        "gates",
        "generations",
        "in_flight",
        "inadmissible_skip",
        "is_config_stale",
        "is_idle",
        "local_queue_usage",
        "nodes_stale",
        "nomination_cache",
        "non_tas_pods",
        "noted_queues",
        "now",
        "objects",
        "observed",
        "open_cycle",
        "progress",
        "quotas_changed",
        "rejected_claims",
        "samples",
        "second_passes",
        "setup",
        "snapshot",
        "woken_in_flight",
        "workload_index",
    )

    def __init__(self, config: KueueConfig) -> None:
        self.config = config
        self.gates = Gates(config)
        self.objects = ConfigObjects()
        self._objects_shared = False
        self.setup = CompiledConfig(ConfigObjects(), config)
        self.is_config_stale = False
        """The objects changed since they were compiled; `config_events.recompile` compiles them."""
        self.nodes_stale = False
        """Nodes changed since they were compiled."""
        self.devices_stale = False
        """Device classes, claim templates or devices changed since they were compiled."""
        self.rejected_claims: dict[int, Refuse] = {}
        """Id → refusal of a workload that cannot be queued, until it is reported."""
        self.non_tas_pods = NonTasPodUsage()
        """Usage of pods without a topology assignment."""
        self.snapshot = self._empty_snapshot()
        self.workload_index = WorkloadIndex()
        self.nomination_cache = NominationCache()
        """What nominations and preemption searches found, for trees that have not changed since."""
        self.inadmissible_skip = InadmissibleSkip()
        """Heads whose refusals are repeated without trying them again."""
        self.progress: dict[int, FlavorScanProgress] = {}
        """Workload id → position of its search, while flavors are left to try."""
        self.generations: dict[str, int] = {}
        """ClusterQueue → number of changes of its capacity (AllocatableResourceGeneration)."""
        self.due_trees: dict[str, None] = {}
        """Cohort trees and ClusterQueues whose inadmissible workloads are to be requeued, as `tree_name` names them."""
        self.noted_queues: dict[str, None] = {}
        """ClusterQueues, and cohorts (as "Cohort/NAME"), to notify once the changed configuration is compiled."""
        self.changed_below: dict[str, None] = {}
        """Cohorts one of whose ClusterQueues changed since the setup was compiled."""
        self.quotas_changed: dict[str, None] = {}
        """ClusterQueues in whose trees quotas changed since the setup was compiled."""
        self.second_passes: dict[int, SecondPass] = {}
        """Workload id → its next second pass."""
        self.evictions_in_flight: set[int] = set()
        """Victims whose evictions were decided and not applied yet, by id."""
        self.backoffs: dict[int, Time] = {}
        """Id → time at which the backoff of an inadmissible workload ends."""
        self.charging = config.usage_based_fair_sharing is not None
        """Admission fair sharing is on; then `afs_charges` keeps the next four."""
        self.local_queue_usage: dict[str, LocalQueueUsage] = {}
        """LocalQueue → recorded usage and entry penalties."""
        self.charged: dict[str, str] = {}
        """Workload with an entry penalty → its LocalQueue."""
        self.charges_changed: dict[str, None] = {}
        """LocalQueues whose charges changed since `take_usage_changes` was called."""
        self.samples: dict[str, Time] = {}
        """LocalQueue → time of its next usage sample."""
        self.observed: ObservedWorkloads | None = None
        """Workloads whose pending reason must be kept exact; None = all."""
        self.open_cycle: Iterator[CycleResult] | None = None
        """Cycle that waits for admitted workloads to be ready; a fork drops it and requeues its heads."""
        self.in_flight: set[int] = set()
        """Ids of the heads that an open cycle has not requeued."""
        self.woken_in_flight: set[str] = set()
        """ClusterQueues that were requeued while a cycle was open: its heads are retried at once."""
        self.cycles = 0
        self.is_idle = 0
        """Number of consecutive cycles that decided nothing."""
        self.now: Time = 0
        """The latest time that was passed in."""

    def fork(self) -> "KueueState":
        """Return an independent copy; an open cycle is dropped, and its heads return to their queues."""
        copied = KueueState.__new__(KueueState)
        copied.config, copied.gates = self.config, self.gates
        copied.objects = self.objects
        copied._objects_shared = self._objects_shared = True
        copied.setup, copied.is_config_stale, copied.nodes_stale = self.setup, self.is_config_stale, self.nodes_stale
        copied.snapshot, copied.workload_index = self.snapshot.fork(), self.workload_index.fork()
        copied.nomination_cache, copied.inadmissible_skip = self.nomination_cache.fork(), self.inadmissible_skip.fork()
        copied.observed = self.observed
        copied.progress, copied.generations = self.progress.copy(), self.generations.copy()
        copied.non_tas_pods = self.non_tas_pods.copy()
        copied.devices_stale, copied.rejected_claims = self.devices_stale, self.rejected_claims.copy()
        copied.evictions_in_flight = self.evictions_in_flight.copy()
        copied.due_trees, copied.backoffs, copied.cycles = self.due_trees.copy(), self.backoffs.copy(), self.cycles
        copied.noted_queues, copied.changed_below = self.noted_queues.copy(), self.changed_below.copy()
        copied.quotas_changed = self.quotas_changed.copy()
        copied.second_passes = self.second_passes.copy()
        copied.charging, copied.samples = self.charging, self.samples.copy()
        copied.local_queue_usage, copied.charged = self.local_queue_usage.copy(), self.charged.copy()
        copied.charges_changed = self.charges_changed.copy()
        copied.is_idle, copied.now = self.is_idle, self.now
        copied.open_cycle, copied.in_flight, copied.woken_in_flight = None, set(), set()
        for number in sorted(self.in_flight):
            record = copied.workload_index.records[number]
            if isinstance(record, WorkloadRequest):
                copied.workload_index.queue(record.cluster_queue).push(record)
        return copied

    def weight_of(self, local_queue: str) -> float:
        """Return the fair sharing weight of a LocalQueue; the default for a deleted one (ResolveLQWeight)."""
        queue = self.objects.local_queues.get(local_queue)
        return 1.0 if queue is None else queue.fair_weight

    def recent_usage_of(self, local_queue: str) -> float:
        """Return the recent usage of a LocalQueue as one comparable number (CalcLocalQueueFSUsage)."""
        settings, ledger = self.config.usage_based_fair_sharing, self.local_queue_usage.get(local_queue)
        assert settings is not None
        weight = self.weight_of(local_queue)
        if ledger is None:
            return comparable_usage({}, {}, weight, settings.resource_weights)
        penalty = ledger.total_penalty
        if local_queue not in self.samples:
            ledger = with_missed_samples(ledger, self.now, settings.usage_sampling_interval, settings.usage_half_life)
        return comparable_usage(ledger.consumed, penalty, weight, settings.resource_weights)

    def usage_by_local_queue(self, rules: ClusterQueueConfig) -> Callable[[str], float] | None:
        """Return a cached function from LocalQueue to recent usage; None without admission fair sharing in it."""
        return cache(self.recent_usage_of) if self.charging and self.config.orders_local_queues(rules.queue) else None

    def next_head(self, rules: ClusterQueueConfig) -> WorkloadRequest | None:
        """Return the workload of a ClusterQueue that the next cycle would try; None if there is none or the queue is
        inactive.
        """
        queue = self.workload_index.read_queue(rules.name)
        return queue.head(self.usage_by_local_queue(rules)) if rules.active and queue is not None else None

    def unshared_objects(self) -> ConfigObjects:
        """Return the configuration objects for changes; copies them first if a fork shares them."""
        if self._objects_shared:
            self.objects, self._objects_shared = self.objects.copy(), False
        return self.objects

    def end_batches(self) -> None:
        """Stop all batches: heads that were marked inadmissible in advance are admissible again before their cycle."""
        for name, batch in self.inadmissible_skip.batches.items():
            batch.stop_batch(self.workload_index.queue(name))
        self.inadmissible_skip.batches.clear()

    def compile_config(self, extra: Iterable[Column] = ()) -> None:
        """Compile the configuration and the usage again, with `extra` columns; existing columns keep their numbers."""
        self.setup = CompiledConfig(self.objects, self.config, [*self.setup.tree.columns, *extra])
        self._rebuild_snapshot()
        self.is_config_stale = self.nodes_stale = self.devices_stale = False

    def rebuild_tas(self) -> None:
        """Rebuild the topologies after nodes changed."""
        if self.setup.topologies:
            self.setup = self.setup.with_nodes(self.objects)
            self._rebuild_snapshot()
        self.nodes_stale = False

    def rebuild_devices(self) -> None:
        """Rebuild the catalogue after device classes, claim templates or devices changed."""
        self.setup = self.setup.with_devices(self.objects, self.config)
        self.devices_stale = False

    def _rebuild_snapshot(self) -> None:
        self.end_batches()
        self.nomination_cache, self.inadmissible_skip = self.nomination_cache.new_empty(), InadmissibleSkip()
        self.snapshot = self._empty_snapshot()
        for holdings in self.workload_index.holdings.values():
            for holding in holdings.values():
                self.snapshot.add_holding(holding)

    def _empty_snapshot(self) -> CycleSnapshot:
        sites = TasUsage(self.setup.topologies)
        sites.apply_changes([(node, amounts, 1) for node, amounts in self.non_tas_pods.used.items()])
        return CycleSnapshot(UsageTree(self.setup.tree), sites)

    def is_observed(self, request: WorkloadRequest) -> bool:
        """True if the workload's pending reason must be kept exact."""
        observed = self.observed
        return observed is None or request.id >= observed.first_id or request.id in observed.ids

    def is_still_pending(self, request: WorkloadRequest) -> bool:
        """True if the workload of a head is still pending in the same ClusterQueue."""
        record = self.workload_index.records[request.id]
        return isinstance(record, WorkloadRequest) and record.cluster_queue == request.cluster_queue

    def record_holding(self, holding: Holding) -> None:
        """Record that a workload holds quota; callers remove its previous holding from the usage first."""
        old = self.workload_index.records[holding.id]
        self.snapshot.add_holding(holding)
        self.workload_index.add_holding(holding)
        if not isinstance(old, Holding) or old.decision_key != holding.decision_key:
            self.nomination_cache.invalidate(self.setup.tree, holding.cluster_queue)
        self.mark_holdings_changed(holding.cluster_queue)

    def mark_holdings_changed(self, cluster_queue: str) -> None:
        """Note that a quota holder of a ClusterQueue changed, so that its tree takes part in the next cycle."""
        node = self.setup.tree.queues.get(cluster_queue)
        if node is not None:
            self.inadmissible_skip.unchanged_cohorts.pop(self.setup.tree.root(node), None)

    def bump_generation(self, cluster_queue: str) -> None:
        """Note that a queue's capacity changed: recorded searches for flavors start again."""
        self.generations[cluster_queue] = self.generations.get(cluster_queue, 0) + 1

    def context(self) -> Context:
        """Return the working state of the next cycle, with a copy of the usage."""
        return Context(
            config=self.config,
            gates=self.gates,
            setup=self.setup,
            accounts=self.snapshot.for_cycle(overlapping=self.gates.layouts.overlapping),
            held_by=self._heaviest_first() if self.charging else self.workload_index.holdings_in_preemption_order,
            # Not cached: LocalQueue usage changes with time, and topology capacity with pods that are not workloads.
            cache=None if self.charging or self.setup.topologies else self.nomination_cache,
            shared=self.nomination_cache.shared,
            unready=lambda: any(not h.workload.is_true("PodsReady") for h in self.workload_index.holders_by_queue),
        )

    def _heaviest_first(self) -> Callable[[str], Sequence[Holding]]:
        """Return a function that lists quota holders; under admission fair sharing the greatest usage first."""
        used = cache(self.recent_usage_of)

        @cache
        def ranked(name: str) -> Sequence[Holding]:
            holdings = self.workload_index.holdings_in_preemption_order(name)
            if not self.config.orders_local_queues(self.setup.queues[name].queue):
                return holdings
            return sorted(holdings, key=lambda h: (not h.evicted, -used(h.workload.local_queue)))

        return ranked

    def mark_tree_due(self, cluster_queue: str) -> None:
        """Note that the inadmissible workloads of a ClusterQueue's tree are to be requeued.

        It is the tree at the time of the call. A tree with a cycle of cohorts is left alone (Kueue 0.19
        pkg/cache/queue/inadmissible_workloads.go: notifyRetryInadmissibleWithoutLock).
        """
        name = self.tree_name(cluster_queue)
        if name:
            self.due_trees[name] = None

    def tree_name(self, cluster_queue: str) -> str:
        """Return the name of a ClusterQueue's tree as used in `due_trees`; empty if the queue is not in the tree."""
        tree = self.setup.tree
        node = tree.queues.get(cluster_queue)
        if node is None:
            return ""
        root = tree.root(node)
        return f"{QUEUE if root == node else COHORT}{tree.names[root]}"

    def mark_cohort_due(self, cohort: str) -> None:
        """Note that the inadmissible workloads of a cohort's tree are to be requeued."""
        tree = self.setup.tree
        node = tree.cohorts.get(cohort)
        if node is not None:
            self.due_trees[f"{COHORT}{tree.names[tree.root(node)]}"] = None

    def mark_tree_of_workload_due(self, workload: Workload) -> None:
        """Note that the tree of a workload's ClusterQueue is to be requeued, unless its LocalQueue is stopped.

        Kueue 0.19 manager.go: QueueAssociatedInadmissibleWorkloadsAfter.
        """
        self.mark_tree_due(self.setup.cluster_queue_of(workload.local_queue))

    def queues_in_tree(self, cluster_queue: str) -> Iterable[str]:
        """Return all ClusterQueues in the tree of one, itself included."""
        tree = self.setup.tree
        node = tree.queues.get(cluster_queue)
        if node is None:
            return ()
        return (tree.names[queue] for queue in tree.subtree_queues(tree.root(node)))

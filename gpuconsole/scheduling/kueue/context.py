"""The working state of one scheduling cycle: configuration, a private copy of the usage, quota holders, and caches.

`Context` is that state. Its `CycleSnapshot` has the quota used and the pods placed in topologies; it mutates, and
`revertible` undoes the changes made in a block. `UsageKey` is the cache key for results that depend on a ClusterQueue's
usage, and `SearchTrace` records a search for victims if the caller requests it.

`NominationCache` has everything that depends on the usage of one cohort tree at the start of a cycle: the last
nomination of each queue, candidates, upper bounds and results of preemption searches. It drops the entries of a tree
when the quota holders of the tree change; in most cycles most trees are unchanged. Its `SharedNominations` have
nominations for other usage, too: their keys contain a number for the usage, so that forks find each other's results.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Any, TypeVar

from msgspec import Struct

from gpuconsole.model.clock import Time
from gpuconsole.model.events import CandidateVerdict, ConsideredCandidate
from gpuconsole.scheduling.kueue.cluster_queue_status import CompiledConfig
from gpuconsole.scheduling.kueue.config import KueueConfig
from gpuconsole.scheduling.kueue.pod_resources import Holding, TopologyUsage
from gpuconsole.scheduling.kueue.quota_tree import QuotaTree, UsageTree
from gpuconsole.scheduling.kueue.topology.layout import TasGates, TasUsage

Key = TypeVar("Key")
CacheEntries = dict[Hashable, Any]
"""Key → cached result; each module that caches here builds keys that no other module builds."""
PreemptionQuery = tuple[frozenset[int], tuple[tuple[int, int], ...]]
"""A search for victims: the columns that need preemption, and the requested (column, amount) pairs."""
MAX_ENTRIES_PER_COHORT = 2_000
"""Maximum number of entries of one cohort tree or queue; without it, many distinct priorities could fill the memory."""
MAX_ENTRIES = 10_000
"""Maximum number of entries of each shared cache; an entry takes about 3 KB."""


class SharedNominations:
    """Nominations that stay valid when usage changes, because their keys include it; shared by all forks.

    At most `MAX_ENTRIES`, then all are dropped; a change of quotas starts an empty one. Without them an hour ahead of a
    what-if takes four times as long.
    """

    __slots__ = ("_amounts", "_counted", "has_forks", "nominations")

    def __init__(self) -> None:
        self._amounts: CacheEntries = {}
        self._counted = count()
        self.nominations: CacheEntries = {}
        """Nominations without victims, by scheduling hash, nomination key and usage."""
        self.has_forks = False
        """The session was forked: only then are quota shortages computed, as only forks skip heads by them."""

    def usage_number(self, amounts: Hashable) -> int:
        """Return a number for the usage on the path from a queue to its root; faster to look up than the amounts."""
        found: int | None = self._amounts.get(amounts)
        if found is None:
            found = next(self._counted)
            put_bounded(self._amounts, amounts, found)
        return found


class NominationCache:
    """What nominations found for the current usage: by cohort tree, and by ClusterQueue if only its holders matter.

    The quota holders of a ClusterQueue are the workloads that have reserved quota in it. Each tree and each queue has
    at most `MAX_ENTRIES_PER_COHORT` entries. Without it an hour ahead of a what-if takes 1.8 times as long.
    """

    __slots__ = ("_queues", "_trees", "shared")

    def __init__(self) -> None:
        self._trees: dict[int, CacheEntries] = {}
        self._queues: dict[str, CacheEntries] = {}
        self.shared = SharedNominations()

    def fork(self) -> "NominationCache":
        """Return a cache with the same entries for a fork; `shared` stays shared."""
        self.shared.has_forks = True
        copied = NominationCache.__new__(NominationCache)
        copied._trees, copied._queues = self._trees.copy(), self._queues.copy()
        copied.shared = self.shared
        return copied

    def new_empty(self) -> "NominationCache":
        """Return an empty cache for changed quotas; it remembers whether the session has forks."""
        fresh = NominationCache()
        fresh.shared.has_forks = self.shared.has_forks
        return fresh

    def cohort_entries(self, root: int) -> CacheEntries:
        """Return the mutable cache entries of a cohort tree."""
        return _entries_of(self._trees, root)

    def queue_entries(self, name: str) -> CacheEntries:
        """Return the mutable cache entries about a ClusterQueue's quota holders."""
        return _entries_of(self._queues, name)

    def invalidate(self, tree: QuotaTree, name: str) -> None:
        """Drop the entries about the ClusterQueue `name` and its cohort tree after one of its quota holders changed."""
        self._queues.pop(name, None)
        node = tree.queues.get(name)
        if node is not None:
            self._trees.pop(tree.root(node), None)


def put_bounded(known: CacheEntries, key: Hashable, found: object) -> None:
    """Add an entry; clears the cache first when it is full."""
    if len(known) >= MAX_ENTRIES:
        known.clear()
    known[key] = found


def _entries_of(kept: dict[Key, CacheEntries], key: Key) -> CacheEntries:
    known = kept.get(key)
    if known is None or len(known) > MAX_ENTRIES_PER_COHORT:
        known = kept[key] = {}
    return known


class CycleSnapshot:
    """Quota usage and topology usage (`topology_usage`), updated together when a workload gets or loses quota."""

    __slots__ = ("topology_usage", "usage")

    def __init__(self, usage: UsageTree, sites: TasUsage) -> None:
        self.usage = usage
        self.topology_usage = sites

    def fork(self) -> "CycleSnapshot":
        """Return a copy for a fork of the session."""
        return CycleSnapshot(self.usage.copy(), self.topology_usage.fork())

    def copy(self) -> "CycleSnapshot":
        """Return an independent copy that can be changed and discarded."""
        return CycleSnapshot(self.usage.copy(), self.topology_usage.copy())

    def for_cycle(self, *, overlapping: bool) -> "CycleSnapshot":
        """Return a copy for one cycle to change; with `overlapping`, flavors that share nodes see each other's pods."""
        return CycleSnapshot(
            self.usage.copy(), self.topology_usage.with_shared_nodes() if overlapping else self.topology_usage.copy()
        )

    def revertible(self) -> "RevertOnExit":
        """Return a context manager that undoes the changes made in its block."""
        return RevertOnExit(self)

    def add_holding(self, holding: Holding) -> None:
        """Count what a workload holds, unless its ClusterQueue is not in the tree."""
        node = self.usage.tree.queues.get(holding.cluster_queue)
        if node is not None:
            self.usage.add(node, holding.usage)
            self.topology_usage.add_usage(holding.topology_usage)

    def remove_holding(self, holding: Holding) -> None:
        """The inverse of `add_holding`."""
        node = self.usage.tree.queues.get(holding.cluster_queue)
        if node is not None:
            self.usage.remove(node, holding.usage)
            self.topology_usage.add_usage(holding.topology_usage, -1)

    def remove_holdings(self, holdings: Iterable[Holding]) -> None:
        """Remove what these workloads hold."""
        for holding in holdings:
            self.remove_holding(holding)


class RevertOnExit:
    """Context manager that undoes changes of the usage; a class, because a generator is slower."""

    __slots__ = ("_accounts", "_sites", "_used")

    def __init__(self, accounts: CycleSnapshot) -> None:
        self._accounts = accounts

    def __enter__(self) -> None:
        sites = self._accounts.topology_usage
        self._used = self._accounts.usage.usage[:]
        self._sites = sites.copy() if sites.topologies else None

    def __exit__(self, *_: object) -> None:
        self._accounts.usage.usage[:] = self._used
        if self._sites is not None:
            self._accounts.topology_usage.restore(self._sites)


class SearchTrace:
    """Records a search for victims: its candidates in order, and the verdict on each. Mutates."""

    __slots__ = ("verdicts",)

    def __init__(self) -> None:
        self.verdicts: dict[int, tuple[Holding, CandidateVerdict]] = {}
        """Workload id → the workload and the verdict on it."""

    def start_attempt(self, candidates: Iterable[Holding]) -> None:
        """Start a new attempt with these candidates."""
        self.verdicts = {candidate.id: (candidate, CandidateVerdict.NOT_NEEDED) for candidate in candidates}

    def record(self, candidate: Holding, verdict: CandidateVerdict) -> None:
        """Record the verdict on a candidate."""
        self.verdicts[candidate.id] = candidate, verdict


class FinishedTrace(Struct, frozen=True):
    """Record of a finished search for victims, from which the choice of each victim is explained."""

    victims: frozenset[int]
    preemptor_share: str
    """Share of the preemptor's ClusterQueue before the preemption."""
    shares: Mapping[str, str]
    """ClusterQueue of a victim → its share before the preemption."""
    considered: tuple[ConsideredCandidate, ...]
    omitted: int
    """Number of workloads that `considered` omits."""


SearchTraces = dict[int, list[FinishedTrace]]
"""Id of the preemptor → its searches that found victims, in order."""


class Gates:
    """The feature gates as plain attributes, for the inner loops."""

    __slots__ = (
        "concurrent_admission",
        "fail_fast",
        "flavor_fungibility",
        "granular",
        "hashing",
        "layouts",
        "overlap_recompute",
        "partial_admission",
        "preempt_within_nominal",
        "preemption_gates",
        "preemptors_first",
        "preserve_scan_progress",
        "prioritize_non_borrowing",
        "priority_sorting",
        "timestamp_buffer",
        "topology",
        "topology_recompute",
    )

    def __init__(self, config: KueueConfig) -> None:
        self.concurrent_admission = config.enabled("ConcurrentAdmission")
        self.granular = config.has_granular_reasons
        self.preemption_gates = self.concurrent_admission or config.enabled("MultiKueueOrchestratedPreemption")
        self.fail_fast = config.enabled("TASFailedNodeReplacementFailFast")
        self.flavor_fungibility = config.enabled("FlavorFungibility")
        self.hashing = config.enabled("SchedulingEquivalenceHashing")
        self.overlap_recompute = config.enabled("RecomputeAssignmentUponPreemptionTargetsOverlap")
        self.preemptors_first = config.enabled("PrioritizePreemptorWorkloads")
        self.partial_admission = config.enabled("PartialAdmission")
        self.preempt_within_nominal = config.enabled("FairSharingPreemptWithinNominal")
        self.preserve_scan_progress = config.enabled("FlavorFungibilityPreserveScanProgress")
        self.prioritize_non_borrowing = config.enabled("FairSharingPrioritizeNonBorrowing")
        self.priority_sorting = config.enabled("PrioritySortingWithinCohort")
        self.timestamp_buffer = config.enabled("SchedulerTimestampPreemptionBuffer")
        self.topology = config.enabled("TopologyAwareScheduling")
        self.layouts = TasGates(
            config.enabled("TASProfileMixed"),
            config.enabled("TASBalancedPlacement"),
            config.enabled("TASRespectNodeAffinityPreferred"),
            config.enabled("TASHandleOverlappingFlavors"),
            config.enabled("ElasticJobsViaWorkloadSlicesWithTAS"),
        )
        self.topology_recompute = config.enabled("TASRecomputeAssignmentWithinSchedulingCycle")


class Context:
    """The working state of one cycle. Its usage is a private copy, so the cycle may change it freely."""

    __slots__ = (
        "_held_by",
        "_holdings_at_start",
        "blocks_admission",
        "cache",
        "candidates",
        "config",
        "forked",
        "gates",
        "nominations",
        "preemption_queries",
        "removed",
        "search_results",
        "search_traces",
        "setup",
        "snapshot",
        "unready",
        "usage_number",
        "version",
        "without_targets",
    )

    def __init__(
        self,
        *,
        config: KueueConfig,
        gates: Gates,
        setup: CompiledConfig,
        accounts: CycleSnapshot,
        held_by: Callable[[str], Sequence[Holding]],
        cache: NominationCache | None = None,
        shared: SharedNominations,
        unready: Callable[[], bool] = lambda: False,
    ) -> None:
        self.config = config
        self.gates = gates
        self.setup = setup
        self.snapshot = accounts
        self.without_targets = accounts
        """`snapshot` without the victims chosen in this cycle; the same object while there are none."""
        self._held_by = held_by
        self._holdings_at_start: dict[str, Sequence[Holding]] = {}
        """ClusterQueue → quota holders at the start of the cycle, if they may have changed since."""
        self.cache = cache
        """Results of earlier cycles; None once this cycle has changed the usage."""
        self.nominations = shared.nominations
        """Cached nominations without victims."""
        self.forked = shared.has_forks
        """The session was forked."""
        self.usage_number = shared.usage_number
        """Usage on the path from a ClusterQueue to its root → a number for it."""
        settings = config.pods_ready_settings
        self.blocks_admission = settings is not None and settings.block_admission
        """Admission is blocked until all admitted workloads are ready (waitForPodsReady.blockAdmission)."""
        self.unready = self.blocks_admission and unready()
        """Admission is blocked because some admitted workload is not ready."""
        self.search_traces: SearchTraces | None = None
        """Records of searches for victims, if requested."""
        self.removed: frozenset[int] = frozenset()
        """Ids of workloads treated as gone, see `without_holdings`."""
        self.candidates: dict[str, CacheEntries] = {}
        """ClusterQueue → preemption candidates by what they depend on; used while `cache` is None."""
        self.version = 0
        """Grows with every decision that changes the usage."""
        self.search_results: dict[Hashable, Any] = {}
        """Results for the current usage: the victims found for each query, and `cohort_cache` while `cache` is None."""
        self.preemption_queries: list[PreemptionQuery] | None = []
        """Searches without victims since the last reset; None once one found any."""

    def held_by(self, name: str) -> Sequence[Holding]:
        """Return the quota holders of a ClusterQueue at the start of the cycle, in preemption order.

        Empty for an inactive ClusterQueue: the snapshot of a cycle leaves it out, though its usage counts (Kueue 0.19
        pkg/cache/scheduler/snapshot.go). Decisions of the cycle change only the usage, as in Kueue's snapshot.
        """
        rules = self.setup.queues.get(name)
        if rules is None or not rules.active:
            return ()
        begin = self._holdings_at_start.get(name)
        return self._held_by(name) if begin is None else begin

    def keep_holdings(self, *names: str) -> None:
        """Save what `held_by` returns for these ClusterQueues before their quota holders change during the cycle."""
        for name in names:
            if name not in self._holdings_at_start:
                self._holdings_at_start[name] = self._held_by(name)

    @contextmanager
    def without_holdings(self, holdings: Iterable[Holding]) -> Iterator[None]:
        """Run the block as if these workloads held no quota and could not be preempted."""
        gone = list(holdings)
        saved = self.removed, self.candidates, self.search_results, self.cache
        self.removed, self.candidates, self.search_results = frozenset(holding.id for holding in gone), {}, {}
        self.cache = None
        with self.snapshot.revertible():
            self.snapshot.remove_holdings(gone)
            yield
        self.removed, self.candidates, self.search_results, self.cache = saved

    def add_usage(self, node: int, uses: Sequence[tuple[int, int]], places: Sequence[TopologyUsage]) -> None:
        """Add a decision's quota (at its ClusterQueue's `node`) and topology usage, so that later entries see it."""
        for accounts in (
            (self.snapshot,) if self.without_targets is self.snapshot else (self.snapshot, self.without_targets)
        ):
            accounts.usage.add(node, uses)
            accounts.topology_usage.add_usage(places)
        self.version += 1
        self.search_results.clear()
        self.cache = None

    def exclude_victims(self, victims: Sequence[Holding]) -> None:
        """Mark victims as chosen: `without_targets`, the usage after all preemptions of the cycle, excludes them."""
        if victims and self.without_targets is self.snapshot:
            self.without_targets = self.snapshot.copy()
        self.without_targets.remove_holdings(victims)

    def cohort_cache(self, node: int) -> CacheEntries:
        """Return the mutable cache entries of a node's tree for the current usage."""
        return (
            self.search_results
            if self.cache is None
            else self.cache.cohort_entries(self.snapshot.usage.tree.root(node))
        )

    def cluster_queue_cache(self, name: str) -> CacheEntries:
        """Return the mutable cache entries that depend on which workloads hold quota in a ClusterQueue."""
        return self.candidates.setdefault(name, {}) if self.cache is None else self.cache.queue_entries(name)


class UsageKey:
    """Identifies the usage that a ClusterQueue sees, for cache keys; also caches what preemption could free."""

    __slots__ = ("max_available", "number")

    def __init__(self, rows: int) -> None:
        self.number = rows
        """Number that stands for the usage on the path from the queue to its root."""
        self.max_available: dict[tuple[int, Time, int], int] = {}
        """(priority, age, column) → most that is available after preemption; filled on demand."""


def usage_key_for(context: Context, node: int) -> UsageKey:
    """Return the usage key of the queue at this node."""
    known = context.cohort_cache(node)
    found: UsageKey | None = known.get(node)
    if found is None:
        usage = context.snapshot.usage
        width, used = usage.tree.width, usage.usage
        path = (node, *usage.tree.paths[node])
        found = known[node] = UsageKey(
            context.usage_number(tuple(tuple(used[at * width : (at + 1) * width]) for at in path))
        )
    return found

"""What one scheduling cycle works on: the rules, the accounts that its trials change, and who holds quota."""

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from gpuconsole.scheduling.kueue.accounts import Accounts
from gpuconsole.scheduling.kueue.config import KueueConfig
from gpuconsole.scheduling.kueue.findings import Asked, Book, Findings, Known
from gpuconsole.scheduling.kueue.requests import Holding, Place
from gpuconsole.scheduling.kueue.rules import Setup
from gpuconsole.scheduling.kueue.stories import Stories
from gpuconsole.scheduling.kueue.topology.layout import Layouts


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
        self.granular = config.granular
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
        self.layouts = Layouts(
            config.enabled("TASProfileMixed"),
            config.enabled("TASBalancedPlacement"),
            config.enabled("TASRespectNodeAffinityPreferred"),
            config.enabled("TASHandleOverlappingFlavors"),
            config.enabled("ElasticJobsViaWorkloadSlicesWithTAS"),
        )
        self.topology_recompute = config.enabled("TASRecomputeAssignmentWithinSchedulingCycle")


class Context:
    """One cycle's view. The accounts are its own copy, so that what it tries and reserves ends with it."""

    __slots__ = (
        "_at_begin",
        "_held_by",
        "accounts",
        "asked",
        "away",
        "candidates",
        "cleared",
        "config",
        "findings",
        "forked",
        "found",
        "gates",
        "number_of",
        "one_by_one",
        "outcomes",
        "proposals",
        "setup",
        "stories",
        "unready",
        "version",
    )

    def __init__(
        self,
        *,
        config: KueueConfig,
        gates: Gates,
        setup: Setup,
        accounts: Accounts,
        held_by: Callable[[str], Sequence[Holding]],
        findings: Findings | None = None,
        book: Book,
        unready: Callable[[], bool] = lambda: False,
    ) -> None:
        self.config = config
        self.gates = gates
        self.setup = setup
        self.accounts = accounts
        self.cleared = accounts
        """The accounts without the victims that were chosen; the same object while there are none."""
        self._held_by = held_by
        self._at_begin: dict[str, Sequence[Holding]] = {}
        """ClusterQueue → who held quota there when the cycle began, where that may have changed since."""
        self.findings = findings
        """What earlier cycles found, as long as the accounts are those that this one began with."""
        self.proposals = book.proposals
        """What was proposed where nobody could be evicted, by what that depends on."""
        self.forked = book.shared
        """Somebody forked the session."""
        self.number_of = book.number_of
        """What is used on the way up from a queue → a number for it."""
        self.outcomes = book.outcomes
        """What became of the heads of trees, by what that depends on."""
        settings = config.pods_ready
        self.one_by_one = settings is not None and settings.block_admission
        """Nobody is admitted before all those that are admitted are ready (waitForPodsReady.blockAdmission)."""
        self.unready = self.one_by_one and unready()
        """Somebody is admitted and not ready."""
        self.stories: Stories | None = None
        """How searches for victims went, where somebody wants to know."""
        self.away: frozenset[int] = frozenset()
        """Ids of workloads that are taken for gone."""
        self.candidates: dict[str, Known] = {}
        """ClusterQueue → who may be preempted there, by what the answer depends on; of this cycle alone."""
        self.version = 0
        """Grows whenever what the cycle decided changes the accounts."""
        self.found: dict[Hashable, Any] = {}
        """What was found on the accounts as they are, by what was searched for: victims, and what to propose."""
        self.asked: list[Asked] | None = []
        """What was asked for since this was emptied that nobody could be evicted for; None once somebody could."""

    def held_by(self, name: str) -> Sequence[Holding]:
        """Who held quota in a ClusterQueue when the cycle began, in the order in which they would be preempted.

        Nobody in a ClusterQueue that is not active: the snapshot of a cycle leaves it out, though what is used there
        counts (Kueue 0.19 pkg/cache/scheduler/snapshot.go). What the cycle itself decides changes nobody's holdings: as
        in Kueue's snapshot it is only counted as used.
        """
        rules = self.setup.queues.get(name)
        if rules is None or not rules.active:
            return ()
        begin = self._at_begin.get(name)
        return self._held_by(name) if begin is None else begin

    def keep_holdings(self, *names: str) -> None:
        """Keep who holds quota in these ClusterQueues, which is about to change before the cycle ends."""
        for name in names:
            if name not in self._at_begin:
                self._at_begin[name] = self._held_by(name)

    @contextmanager
    def without(self, holdings: Iterable[Holding]) -> Iterator[None]:
        """Inside the block these workloads hold nothing and cannot be preempted."""
        gone = list(holdings)
        saved = self.away, self.candidates, self.found, self.findings
        self.away, self.candidates, self.found = frozenset(holding.id for holding in gone), {}, {}
        self.findings = None
        with self.accounts.trial():
            self.accounts.remove_all(gone)
            yield
        self.away, self.candidates, self.found, self.findings = saved

    def count(self, node: int, uses: Sequence[tuple[int, int]], places: Sequence[Place]) -> None:
        """Count as used what was decided; later entries are judged by it."""
        for accounts in (self.accounts,) if self.cleared is self.accounts else (self.accounts, self.cleared):
            accounts.usage.add(node, uses)
            accounts.sites.add(places)
        self.version += 1
        self.found.clear()
        self.findings = None

    def clear(self, victims: Sequence[Holding]) -> None:
        """Later entries may count on it that these workloads, which were chosen just now, will be gone."""
        if victims and self.cleared is self.accounts:
            self.cleared = self.accounts.copy()
        self.cleared.remove_all(victims)

    def known_of_tree(self, node: int) -> Known:
        """What was found in the tree of a node on the accounts as they are; to be added to."""
        return self.found if self.findings is None else self.findings.of_tree(self.accounts.usage.tree.root(node))

    def known_of_queue(self, name: str) -> Known:
        """What is known of those who hold quota in a ClusterQueue; to be added to."""
        return self.candidates.setdefault(name, {}) if self.findings is None else self.findings.of_queue(name)

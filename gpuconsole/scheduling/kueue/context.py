"""What one scheduling cycle works on: the rules, the accounts that its trials change, and who holds quota."""

from collections.abc import Mapping

from gpuconsole.model.clock import Time
from gpuconsole.scheduling.kueue.accounts import Accounts
from gpuconsole.scheduling.kueue.config import KueueConfig
from gpuconsole.scheduling.kueue.requests import Holding
from gpuconsole.scheduling.kueue.rules import Setup


class Gates:
    """The feature gates as plain attributes, for the inner loops."""

    __slots__ = (
        "flavor_fungibility",
        "hashing",
        "partial_admission",
        "preempt_within_nominal",
        "preserve_scan_progress",
        "prioritize_non_borrowing",
        "priority_sorting",
        "timestamp_buffer",
        "topology",
        "topology_mixed",
        "topology_recompute",
    )

    def __init__(self, config: KueueConfig) -> None:
        self.flavor_fungibility = config.enabled("FlavorFungibility")
        self.hashing = config.enabled("SchedulingEquivalenceHashing")
        self.partial_admission = config.enabled("PartialAdmission")
        self.preempt_within_nominal = config.enabled("FairSharingPreemptWithinNominal")
        self.preserve_scan_progress = config.enabled("FlavorFungibilityPreserveScanProgress")
        self.prioritize_non_borrowing = config.enabled("FairSharingPrioritizeNonBorrowing")
        self.priority_sorting = config.enabled("PrioritySortingWithinCohort")
        self.timestamp_buffer = config.enabled("SchedulerTimestampPreemptionBuffer")
        self.topology = config.enabled("TopologyAwareScheduling")
        self.topology_mixed = config.enabled("TASProfileMixed")
        self.topology_recompute = config.enabled("TASRecomputeAssignmentWithinSchedulingCycle")


Holdings = Mapping[str, Mapping[int, Holding]]
"""ClusterQueue → id → who holds quota there."""


class Context:
    """One cycle's view. The accounts are its own copy, so that what it tries and reserves ends with it."""

    __slots__ = ("accounts", "config", "gates", "holdings", "now", "number", "setup")

    def __init__(
        self,
        *,
        config: KueueConfig,
        gates: Gates,
        setup: Setup,
        accounts: Accounts,
        holdings: Holdings,
        now: Time,
        number: int,
    ) -> None:
        self.config = config
        self.gates = gates
        self.setup = setup
        self.accounts = accounts
        self.holdings = holdings
        self.now = now
        self.number = number
        """Counts the cycles of the session."""

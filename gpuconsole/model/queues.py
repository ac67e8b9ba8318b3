"""Kueue's configuration: flavors, ClusterQueues, cohorts, LocalQueues, priority classes, topologies, admission checks.

MultiKueue's objects of the manager are at the end: worker clusters, and the lists of them that admission checks name.
"""

from collections.abc import Mapping
from enum import StrEnum

from msgspec import Struct

from gpuconsole.model.clock import Time
from gpuconsole.model.labels import NO_LABELS, ClusterScopedObject, LabelSelector, NamespacedObject, Taint, Toleration


class QueueingStrategy(StrEnum):
    """Order in which a ClusterQueue admits its pending workloads."""

    STRICT_FIFO = "StrictFIFO"
    BEST_EFFORT_FIFO = "BestEffortFIFO"


class StopPolicy(StrEnum):
    """Whether a queue admits workloads, only keeps them pending, or also evicts admitted ones."""

    NONE = "None"
    HOLD = "Hold"
    HOLD_AND_DRAIN = "HoldAndDrain"


class PreemptionPolicy(StrEnum):
    """Which workloads a preemptor may preempt, by their priority."""

    NEVER = "Never"
    LOWER_PRIORITY = "LowerPriority"
    LOWER_OR_NEWER_EQUAL_PRIORITY = "LowerOrNewerEqualPriority"
    ANY = "Any"


class Fungibility(StrEnum):
    """Whether to try other flavors after one that needs borrowing or preemption (flavorFungibility).

    v1beta1's Borrow and Preempt are MayStopSearch.
    """

    MAY_STOP_SEARCH = "MayStopSearch"
    TRY_NEXT_FLAVOR = "TryNextFlavor"


class FungibilityPreference(StrEnum):
    """Preference between a flavor that needs borrowing and one that needs preemption."""

    BORROWING_OVER_PREEMPTION = "BorrowingOverPreemption"
    PREEMPTION_OVER_BORROWING = "PreemptionOverBorrowing"


class ResourceFlavor(ClusterScopedObject, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """Variant of a resource, such as one GPU model, on the nodes with these labels."""

    name: str
    uid: str = ""
    node_labels: Mapping[str, str] = NO_LABELS
    node_taints: tuple[Taint, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    topology: str = ""


class Quota(Struct, frozen=True, omit_defaults=True):
    """Quota of one resource in one flavor, in base units. No borrowing limit means unlimited, no lending limit all."""

    nominal: int = 0
    borrowing_limit: int | None = None
    lending_limit: int | None = None


class FlavorQuotas(Struct, frozen=True, omit_defaults=True):
    """The quotas of one flavor: resource → Quota, in the order of the manifest."""

    name: str
    resources: Mapping[str, Quota]


class ResourceGroup(Struct, frozen=True, omit_defaults=True):
    """Resources that share a flavor assignment, and the flavors in the order in which they are tried."""

    covered_resources: tuple[str, ...]
    flavors: tuple[FlavorQuotas, ...]


def _quotas(groups: tuple[ResourceGroup, ...]) -> dict[tuple[str, str], Quota]:
    return {
        (flavor.name, resource): quota
        for group in groups
        for flavor in group.flavors
        for resource, quota in flavor.resources.items()
    }


class FlavorFungibility(Struct, frozen=True, omit_defaults=True):
    """How a ClusterQueue chooses between the flavors of a resource group (flavorFungibility)."""

    when_can_borrow: Fungibility = Fungibility.MAY_STOP_SEARCH
    when_can_preempt: Fungibility = Fungibility.TRY_NEXT_FLAVOR
    preference: FungibilityPreference | None = None


class BorrowWithinCohort(Struct, frozen=True, omit_defaults=True):
    """Which workloads of the cohort a preemptor may preempt while it borrows."""

    policy: PreemptionPolicy = PreemptionPolicy.NEVER
    max_priority_threshold: int | None = None


class ClusterQueuePreemption(Struct, frozen=True, omit_defaults=True):
    """Preemption policies of a ClusterQueue, by where the victims are."""

    within_cluster_queue: PreemptionPolicy = PreemptionPolicy.NEVER
    reclaim_within_cohort: PreemptionPolicy = PreemptionPolicy.NEVER
    borrow_within_cohort: BorrowWithinCohort = BorrowWithinCohort()


class CheckRule(Struct, frozen=True, omit_defaults=True):
    """An admission check of a ClusterQueue, and the flavors to which it applies; to all if none are named."""

    name: str
    on_flavors: tuple[str, ...] = ()


class MigrationMode(StrEnum):
    """What Kueue does with a workload's other variants once one of them is admitted."""

    TRY_PREFERRED_FLAVORS = "TryPreferredFlavors"
    RETAIN_FIRST_ADMISSION = "RetainFirstAdmission"


class ConcurrentAdmission(Struct, frozen=True, omit_defaults=True):
    """Admission of a workload in all flavors concurrently, one variant each (feature gate ConcurrentAdmission)."""

    mode: MigrationMode = MigrationMode.TRY_PREFERRED_FLAVORS
    last_acceptable_flavor: str = ""
    """An admitted variant only moves to this flavor or one before it; empty for any better one."""


class ClusterQueue(ClusterScopedObject, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """Pool of quota that LocalQueues use."""

    name: str
    uid: str = ""
    created: Time = 0
    cohort: str = ""
    namespace_selector: LabelSelector | None = None
    """Namespaces that may use the queue; None selects none, so that nothing is admitted, an empty selector all."""
    queueing_strategy: QueueingStrategy = QueueingStrategy.BEST_EFFORT_FIFO
    resource_groups: tuple[ResourceGroup, ...] = ()
    fungibility: FlavorFungibility = FlavorFungibility()
    preemption: ClusterQueuePreemption = ClusterQueuePreemption()
    checks: tuple[CheckRule, ...] = ()
    stop_policy: StopPolicy = StopPolicy.NONE
    fair_weight: float = 1.0
    admission_mode: str = ""
    """`UsageBasedAdmissionFairSharing` or empty."""
    concurrent_admission: ConcurrentAdmission | None = None
    terminating: bool = False
    """Its deletion was requested; it admits no workloads, and is deleted once none holds quota in it."""

    @property
    def flavors(self) -> tuple[str, ...]:
        """Names of its flavors, in the order of the manifest."""
        return tuple(flavor.name for group in self.resource_groups for flavor in group.flavors)

    def quotas(self) -> dict[tuple[str, str], Quota]:
        """(flavor, resource) → quota, in the order of the manifest."""
        return _quotas(self.resource_groups)


class Cohort(ClusterScopedObject, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """Group of ClusterQueues and child cohorts that share their unused quota, and its own quota."""

    name: str
    uid: str = ""
    parent: str = ""
    resource_groups: tuple[ResourceGroup, ...] = ()
    fair_weight: float = 1.0

    def quotas(self) -> dict[tuple[str, str], Quota]:
        """(flavor, resource) → quota, in the order of the manifest."""
        return _quotas(self.resource_groups)


class LocalQueue(NamespacedObject, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """A namespace's queue, which points to a ClusterQueue."""

    namespace: str
    name: str
    uid: str = ""
    cluster_queue: str = ""
    stop_policy: StopPolicy = StopPolicy.NONE
    fair_weight: float = 1.0
    """Weight among the LocalQueues of a ClusterQueue with admission fair sharing."""
    consumed: Mapping[str, int] = {}
    """Decayed usage of its workloads, in billionths of a core, a byte, a GPU
    (status.fairSharing.admissionFairSharingStatus).
    """
    sampled: Time = 0
    """Time of the last update of `consumed`."""
    usage: float | None = None
    """Usage by which admission fair sharing orders LocalQueues: consumption and entry penalties, weighted by
    resource, divided by its weight. None without admission fair sharing.
    """


class WorkloadPriorityClass(ClusterScopedObject, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """Priority of workloads in Kueue, independent of pod priority."""

    name: str
    value: int
    description: str = ""


class Topology(ClusterScopedObject, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """Levels of a topology as node-label keys, highest first."""

    name: str
    levels: tuple[str, ...] = ()


class AdmissionCheck(ClusterScopedObject, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """Extra condition that a workload must pass before admission."""

    name: str
    controller: str = ""
    parameters: str = ""
    active: bool = True


class MultiKueueCluster(ClusterScopedObject, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """A worker cluster, as MultiKueue's manager cluster declares it."""

    name: str
    location: str = ""
    """Name of the Secret, or path, of its kubeconfig."""
    active: bool = True


class MultiKueueConfig(ClusterScopedObject, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """Worker clusters of an admission check, in the order in which workloads are dispatched to them."""

    name: str
    clusters: tuple[str, ...] = ()

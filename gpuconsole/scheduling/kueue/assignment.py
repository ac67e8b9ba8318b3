"""The result of assigning flavors to a workload: the flavors of each pod set, or the reasons why none fits.

A search for flavors rates each flavor that it tries by a mode and a borrowing level; `is_preferred` compares two
ratings. `FlavorSearch` records the ratings of one search, and `combine_attempts` combines the searches of a pod set on
demand, for the messages and events. An `Assignment` has one `PodSetResult` for each pod set, with a `FlavorAssignment`
for each resource. Kueue 0.19 pkg/scheduler/flavorassigner: flavorassigner.go, flavor_assigner_attempts.go.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import IntEnum

from msgspec import Struct
from msgspec.structs import replace

from gpuconsole.model.pod_template import PodSet
from gpuconsole.model.queues import FlavorFungibility, Fungibility, FungibilityPreference
from gpuconsole.model.resources import EMPTY, PODS, Resources, divide, scale
from gpuconsole.model.workloads import Admission, PodSetAssignment, TopologyDomain
from gpuconsole.scheduling.kueue import messages
from gpuconsole.scheduling.kueue.cluster_queue import RequeueReason
from gpuconsole.scheduling.kueue.cluster_queue_status import CompiledResourceGroup
from gpuconsole.scheduling.kueue.messages import GranularReason, most_severe, severity
from gpuconsole.scheduling.kueue.pod_resources import TopologyUsage
from gpuconsole.scheduling.kueue.slices import ReplacedPodSet
from gpuconsole.scheduling.kueue.topology.domains import TopologyDomainTree


class FlavorAssignmentMode(IntEnum):
    """Degree to which a flavor is usable, worst first."""

    NO_FIT = 0
    """Neither now nor by preemption."""
    NO_CANDIDATES = 1
    """Preemption could help, but there are no candidates."""
    PREEMPT = 2
    """By preemption, also in the own ClusterQueue."""
    RECLAIM = 3
    """By preemption in other ClusterQueues only."""
    FIT = 4


ModeAndHeight = tuple[FlavorAssignmentMode, int]
"""A mode and its borrowing level (0 = does not borrow)."""

WORST_MODE: ModeAndHeight = (FlavorAssignmentMode.NO_FIT, 1 << 62)
BEST_MODE: ModeAndHeight = (FlavorAssignmentMode.FIT, 0)


def is_preferred(a: ModeAndHeight, b: ModeAndHeight, fungibility: FlavorFungibility) -> bool:
    """True if outcome `a` is better than `b` for a ClusterQueue with this fungibility (isPreferred)."""
    if a[0] == FlavorAssignmentMode.NO_FIT:
        return False
    if b[0] == FlavorAssignmentMode.NO_FIT:
        return True
    if (a[0] == FlavorAssignmentMode.NO_CANDIDATES) != (b[0] == FlavorAssignmentMode.NO_CANDIDATES):
        return a[0] != FlavorAssignmentMode.NO_CANDIDATES
    if fungibility.preference == FungibilityPreference.PREEMPTION_OVER_BORROWING:
        return (a[1], -a[0]) < (b[1], -b[0])
    return (-a[0], a[1]) < (-b[0], b[1])


def stops_search(outcome: ModeAndHeight, fungibility: FlavorFungibility) -> bool:
    """True if the search stops at a flavor with this outcome (shouldTryNextFlavor)."""
    mode, height = outcome
    if mode in (FlavorAssignmentMode.NO_FIT, FlavorAssignmentMode.NO_CANDIDATES):
        return False
    if (
        mode in (FlavorAssignmentMode.PREEMPT, FlavorAssignmentMode.RECLAIM)
        and fungibility.when_can_preempt == Fungibility.TRY_NEXT_FLAVOR
    ):
        return False
    return height == 0 or fungibility.when_can_borrow != Fungibility.TRY_NEXT_FLAVOR


class FlavorResult(Struct, frozen=True):
    """The result of one flavor in one search: its worst mode over the resources, borrowing level and reasons."""

    flavor: str
    mode: FlavorAssignmentMode
    height: int = 0
    reasons: tuple[str, ...] = ()
    granular_reason: GranularReason = GranularReason.NONE
    """Granular reason why it does not fit."""


class FlavorSearch(Struct, frozen=True):
    """The flavors that were tried for one resource: `flavors` are all of its resource group, `results` the results."""

    resource: str
    flavors: tuple[str, ...]
    results: tuple[FlavorResult, ...]


class FlavorAttempt(Struct, frozen=True, kw_only=True):
    """The combined result of a flavor over all searches of a pod set."""

    flavor: str
    mode: FlavorAssignmentMode
    """NO_FIT, PREEMPT or FIT."""
    possibility: FlavorAssignmentMode | None = None
    """Result of the simulated preemption: NO_CANDIDATES, PREEMPT or RECLAIM; None without one."""
    height: int = 0
    reasons: tuple[str, ...] = ()
    granular_reason: GranularReason = GranularReason.NONE


def combine_attempts(searches: Iterable[FlavorSearch]) -> list[FlavorAttempt]:
    """Return the combined result of each flavor over these searches, sorted by flavor name.

    A flavor of the resource group that a later search did not try gets NO_FIT: it lacks that search's resource.
    """
    merged: dict[str, FlavorAttempt] = {}
    for search in searches:
        for results in search.results:
            merged[results.flavor] = _merge_result(merged.get(results.flavor), results)
        if search.results:
            tried = {results.flavor for results in search.results}
            for flavor in search.flavors:
                if flavor in merged and flavor not in tried:
                    merged[flavor] = _without_resource(merged[flavor], search.resource)
    return [merged[flavor] for flavor in sorted(merged)]


def _merge_result(known: FlavorAttempt | None, results: FlavorResult) -> FlavorAttempt:
    simulated = results.mode if results.mode not in (FlavorAssignmentMode.NO_FIT, FlavorAssignmentMode.FIT) else None
    mode = FlavorAssignmentMode.PREEMPT if simulated is not None else results.mode
    if known is None:
        reasons = tuple(sorted(set(results.reasons)))
        return FlavorAttempt(
            flavor=results.flavor,
            mode=mode,
            possibility=simulated,
            height=results.height,
            reasons=reasons,
            granular_reason=results.granular_reason,
        )
    possible = [p for p in (known.possibility, simulated) if p is not None]
    return FlavorAttempt(
        flavor=results.flavor,
        mode=min(known.mode, mode),
        possibility=min(possible, default=None),
        height=max(known.height, results.height),
        reasons=tuple(sorted({*known.reasons, *results.reasons})),
        granular_reason=most_severe((known.granular_reason, results.granular_reason)),
    )


def _without_resource(known: FlavorAttempt, resource: str) -> FlavorAttempt:
    reason = f"flavor {known.flavor} does not provide resource {resource}"
    return FlavorAttempt(
        flavor=known.flavor,
        mode=FlavorAssignmentMode.NO_FIT,
        possibility=known.possibility,
        height=known.height,
        reasons=tuple(sorted({*known.reasons, reason})),
        granular_reason=GranularReason.NO_MATCHING_FLAVOR,
    )


def attempts_text(searches_by_pod_set: Iterable[tuple[str, Sequence[FlavorSearch]]]) -> str:
    """Return the flavors, by pod set, that were tried and do not fit without borrowing, for the QuotaReserved event."""
    return " | ".join(
        f"{name}: {', '.join(texts)}"
        for name, searches in searches_by_pod_set
        if (texts := list(_attempt_texts(searches)))
    )


_MODE_NAMES = {
    FlavorAssignmentMode.NO_FIT: "NoFit",
    FlavorAssignmentMode.NO_CANDIDATES: "preemptionMode=NoCandidates",
    FlavorAssignmentMode.PREEMPT: "preemptionMode=Preempt",
    FlavorAssignmentMode.RECLAIM: "preemptionMode=Reclaim",
    FlavorAssignmentMode.FIT: "Fit",
}


def _attempt_texts(searches: Sequence[FlavorSearch]) -> Iterator[str]:
    for attempt in combine_attempts(searches):
        if attempt.mode == FlavorAssignmentMode.FIT and not attempt.height:
            continue
        outcome = _MODE_NAMES[attempt.mode if attempt.possibility is None else attempt.possibility]
        borrow = [f"borrow={attempt.height}"] if attempt.height else []
        yield f"{attempt.flavor}({';'.join([outcome, *borrow, *attempt.reasons])})"


ResumePosition = tuple[Mapping[str, int], ...]
"""For each pod set: resource → index of the last flavor tried; the search continues after it. -1 = from the first."""


class FlavorAssignment:
    """The flavor chosen for one resource. Pod sets of a group share their choices."""

    __slots__ = ("column", "flavor", "height", "mode", "tried")

    def __init__(self, flavor: str, column: int, mode: FlavorAssignmentMode, height: int) -> None:
        self.flavor = flavor
        self.column = column
        self.mode = mode
        """One of NO_FIT, PREEMPT and FIT."""
        self.height = height
        """Borrowing level."""
        self.tried = -1
        """Index of the last flavor tried; -1 if none is left to try."""


class PodSetResult:
    """The flavors that one pod set would get. The topology is filled in after the quota."""

    __slots__ = (
        "choices",
        "count",
        "failure",
        "is_delayed",
        "is_unplaced",
        "pod_set",
        "reasons",
        "requests",
        "searches",
        "topology",
    )

    def __init__(self, pod_set: PodSet, count: int, requests: Resources) -> None:
        self.pod_set = pod_set
        self.count = count
        self.requests = requests
        self.choices: dict[str, FlavorAssignment] = {}
        self.reasons: list[str] = []
        self.searches: list[FlavorSearch] = []
        """The searches for its flavors, for messages and events."""
        self.failure = ""
        """An error that makes the assignment impossible whatever the quota; empty if none."""
        self.topology: tuple[TopologyDomain, ...] = ()
        self.is_unplaced = ""
        """The flavor whose topology could not take its pods even if it were empty."""
        self.is_delayed = ""
        """`Pending` if its topology is assigned after the admission checks, `Ready` once it is; empty otherwise."""

    def keep_admitted_flavors(self, assignment: PodSetAssignment, numbers: Mapping[tuple[str, str], int]) -> None:
        """Use the flavors and topology of an earlier admission; `numbers` maps (flavor, resource) to columns."""
        for resource, flavor in assignment.flavors.items():
            self.choices[resource] = FlavorAssignment(flavor, numbers[flavor, resource], FlavorAssignmentMode.FIT, 0)
        self.topology, self.is_delayed = assignment.topology, assignment.delayed

    def requests_for(self, count: int) -> Resources:
        """Return the requests for another number of pods."""
        return scale(divide(self.requests, self.count), count) if self.count else EMPTY

    @property
    def worst_mode(self) -> FlavorAssignmentMode:
        """The worst mode of its flavors; FIT without reasons against them, NO_FIT after an error."""
        if self.failure:
            return FlavorAssignmentMode.NO_FIT
        if not self.reasons:
            return FlavorAssignmentMode.FIT
        return min((choice.mode for choice in self.choices.values()), default=FlavorAssignmentMode.NO_FIT)

    def granular_reason(self, groups: Sequence[CompiledResourceGroup]) -> GranularReason:
        """Return the granular reason: each resource group has that of its least severe flavor; the most severe wins."""
        tried = self.flavor_attempts()
        if not tried:
            return GranularReason.NO_MATCHING_FLAVOR
        least: dict[int, GranularReason] = {}
        for position, attempt in enumerate(tried):
            if attempt.mode != FlavorAssignmentMode.NO_FIT:
                continue
            cause = attempt.granular_reason
            for group in [n for n, group in enumerate(groups) if attempt.flavor in group.flavors] or [-1 - position]:
                least[group] = min(least.get(group, cause), cause, key=severity)
        return most_severe(least.values())

    def flavor_attempts(self) -> list[FlavorAttempt]:
        """Return the flavors that were tried; one whose topology could never take the pods does not fit."""
        unfit = {"mode": FlavorAssignmentMode.NO_FIT, "granular_reason": GranularReason.TOPOLOGY_PLACEMENT_FAILED}
        return [
            replace(tried, **unfit) if tried.flavor == self.is_unplaced else tried
            for tried in combine_attempts(self.searches)
        ]


class Assignment:
    """The flavors and topology that a workload would get, or why it does not fit. Mutated while it is built."""

    __slots__ = ("_mode", "_replaced", "borrowing_height", "pod_sets", "usage")

    def __init__(self, replaced: Sequence[ReplacedPodSet] = ()) -> None:
        self._replaced = replaced
        self.pod_sets: list[PodSetResult] = []
        self.usage: dict[int, int] = {}
        """Column → amount, over all pod sets; less the usage of the slice that this workload replaces."""
        self.borrowing_height = 0
        """The greatest borrowing level of its flavors."""
        self._mode: FlavorAssignmentMode | None = None

    @property
    def is_borrowing(self) -> bool:
        """True if some of its quota is borrowed."""
        return self.borrowing_height > 0

    def append(self, result: PodSetResult) -> None:
        """Add a pod set's result; its usage and borrowing levels count in the assignment."""
        self.pod_sets.append(result)
        assignment = self.replaced_pod_set(result)
        before = assignment.usage if assignment is not None else EMPTY
        for resource, choice in result.choices.items():
            self.borrowing_height = max(self.borrowing_height, choice.height)
            self.usage[choice.column] = self.usage.get(choice.column, 0) + (
                result.requests.get(resource, 0) - before.get(resource, 0)
            )

    def replaced_pod_set(self, result: PodSetResult) -> ReplacedPodSet | None:
        """Return the same pod set of the slice that this workload replaces; None if it replaces none."""
        return next((assignment for assignment in self._replaced if assignment.pod_set == result.pod_set.name), None)

    @property
    def mode(self) -> FlavorAssignmentMode:
        """NO_FIT, PREEMPT or FIT: the worst mode of its pod sets, or the mode that the topology allows."""
        if not self.pod_sets:
            return FlavorAssignmentMode.NO_FIT
        if self._mode is None:
            self._mode = min(result.worst_mode for result in self.pod_sets)
        return self._mode

    def downgrade(self, result: PodSetResult, mode: FlavorAssignmentMode) -> None:
        """Lower the mode of a pod set's flavors, and of the assignment, because of its topology."""
        for choice in result.choices.values():
            choice.mode = mode
        self._mode = mode

    def mark_unplaceable(self, result: PodSetResult, flavor: str) -> None:
        """Mark a pod set, and those of its group, as not placeable in the flavor's topology even when it is empty."""
        self.downgrade(result, FlavorAssignmentMode.NO_FIT)
        for other in self.pod_sets:
            if other.searches is result.searches:
                other.is_unplaced = flavor

    def requeue_reasons(
        self, groups: Sequence[CompiledResourceGroup], *, granular: bool
    ) -> tuple[RequeueReason, GranularReason]:
        """Return requeue reason and granular reason of a head that does not fit or has no preemption candidates."""
        if self.mode == FlavorAssignmentMode.NO_FIT:
            return RequeueReason.NO_FIT, self.granular_reason(groups) if granular else GranularReason.NONE
        return RequeueReason.PREEMPTION_NO_CANDIDATES, GranularReason.WAITING_FOR_QUOTA

    def granular_reason(self, groups: Sequence[CompiledResourceGroup]) -> GranularReason:
        """Return the granular reason why the workload does not fit (resolveNoFitReason); NONE if it fits."""
        if self.mode != FlavorAssignmentMode.NO_FIT:
            return GranularReason.NONE
        return most_severe(
            result.granular_reason(groups)
            for result in self.pod_sets
            if result.worst_mode == FlavorAssignmentMode.NO_FIT
        )

    def record_error(self, result: PodSetResult, error: str) -> None:
        """Record an error that makes a pod set impossible to assign."""
        result.failure = error
        self._mode = None

    def result(self, pod_set: str) -> PodSetResult:
        """Return the result of a pod set."""
        return next(result for result in self.pod_sets if result.pod_set.name == pod_set)

    def record_topology(self, places: Mapping[str, tuple[TopologyDomain, ...]]) -> None:
        """Record the topology domains of these pod sets; a delayed pod set with domains becomes `Ready`."""
        for name, domains in places.items():
            result = self.result(name)
            result.topology = domains
            if result.is_delayed and domains:
                result.is_delayed = "Ready"

    def topology_usage(
        self, topologies: Mapping[str, TopologyDomainTree], earlier_admission: Admission | None = None
    ) -> tuple[TopologyUsage, ...]:
        """Return the topology usage of the pods, without what the workload's earlier admission already uses."""
        before = _held_counts(earlier_admission)
        return tuple(
            TopologyUsage(flavor, domain.values, more, result.pod_set.template.requests)
            for result in self.pod_sets
            for flavor in sorted({choice.flavor for choice in result.choices.values()} & topologies.keys())[:1]
            for domain in result.topology
            if (more := domain.count - before.get((result.pod_set.name, domain.values), 0)) > 0
        )

    @property
    def quota_usage(self) -> list[tuple[int, int]]:
        """The (column, amount) pairs that the assignment adds to the quota usage."""
        return list(self.usage.items())

    @property
    def preemption_usage(self) -> list[tuple[int, int]]:
        """The quota that a search for victims must free, without zero amounts and, as in Kueue, without the number of
        pods.
        """
        uses: dict[int, int] = {}
        for result in self.pod_sets:
            assignment = self.replaced_pod_set(result)
            added = result.requests if assignment is None else result.requests_for(result.count - assignment.count)
            for resource, amount in added.items():
                if amount and resource != PODS and resource in result.choices:
                    column = result.choices[resource].column
                    uses[column] = uses.get(column, 0) + amount
        return list(uses.items())

    @property
    def columns_needing_preemption(self) -> frozenset[int]:
        """Columns in which preemption is needed."""
        return frozenset(
            choice.column
            for result in self.pod_sets
            for choice in result.choices.values()
            if choice.mode == FlavorAssignmentMode.PREEMPT
        )

    @property
    def resume_position(self) -> ResumePosition | None:
        """Position from which the next search for flavors continues; None to start from the first flavor."""
        tried = tuple({resource: c.tried for resource, c in result.choices.items()} for result in self.pod_sets)
        return tried if any(index != -1 for indices in tried for index in indices.values()) else None

    @property
    def message(self) -> str:
        """The reasons why the workload does not fit, as its condition shows them."""
        for result in self.pod_sets:
            if result.failure:
                return messages.failed_assignment_message(result.pod_set.name, result.failure)
        return messages.unassigned_message((result.pod_set.name, result.reasons) for result in self.pod_sets)

    def nominated_flavors(self) -> dict[str, dict[str, str]]:
        """The chosen flavors: pod set → resource → flavor."""
        return {
            result.pod_set.name: {resource: choice.flavor for resource, choice in result.choices.items()}
            for result in self.pod_sets
        }

    def admission(self, cluster_queue: str, topologies: Mapping[str, TopologyDomainTree]) -> Admission:
        """Return the Admission that the workload would get; resources without a flavor are left out."""
        granted = tuple(_pod_set_assignment(result, topologies) for result in self.pod_sets)
        return Admission(cluster_queue=cluster_queue, pod_sets=granted)


def _held_counts(earlier_admission: Admission | None) -> dict[tuple[str, tuple[str, ...]], int]:
    """(pod set, domain) → pods that the admission already counts there."""
    counts: dict[tuple[str, tuple[str, ...]], int] = {}
    for assignment in earlier_admission.pod_sets if earlier_admission is not None else ():
        for domain in assignment.topology:
            key = assignment.name, domain.values
            counts[key] = counts.get(key, 0) + domain.count
    return counts


def _pod_set_assignment(result: PodSetResult, topologies: Mapping[str, TopologyDomainTree]) -> PodSetAssignment:
    names = sorted(result.choices)
    placed = [c.flavor for c in result.choices.values() if c.flavor in topologies] if result.topology else []
    return PodSetAssignment(
        name=result.pod_set.name,
        flavors={name: result.choices[name].flavor for name in names},
        usage={name: result.requests[name] for name in names},
        count=result.count,
        levels=topologies[placed[0]].assignment_levels if placed else (),
        topology=result.topology,
        delayed=result.is_delayed,
    )

"""The result of assigning flavors to a workload: the flavors of each pod set, or the reasons why none fits."""

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from gpuconsole.model.pod_sets import PodSet
from gpuconsole.model.quantity import PODS
from gpuconsole.model.resources import EMPTY, Resources, divide, scale
from gpuconsole.model.workloads import Admission, PodSetAssignment, TopologyDomain
from gpuconsole.scheduling.kueue import messages
from gpuconsole.scheduling.kueue.cluster_queue import RequeueReason
from gpuconsole.scheduling.kueue.compiled_config import CompiledResourceGroup
from gpuconsole.scheduling.kueue.flavor_assignment_mode import FlavorAssignmentMode
from gpuconsole.scheduling.kueue.flavor_attempts import FlavorAttempt, FlavorSearch, attempts
from gpuconsole.scheduling.kueue.reasons import GranularReason, most_severe, severity
from gpuconsole.scheduling.kueue.requests import TopologyUsage
from gpuconsole.scheduling.kueue.slices import ReplacedPodSet
from gpuconsole.scheduling.kueue.topology.domains import TopologyDomainTree

Resume = tuple[Mapping[str, int], ...]
"""For each pod set: resource → index of the last flavor tried; the search goes on after it. -1 = from the start."""


class FlavorAssignment:
    """The flavor chosen for one resource. Pod sets of a group share their choices."""

    __slots__ = ("column", "flavor", "height", "mode", "tried")

    def __init__(self, flavor: str, column: int, mode: FlavorAssignmentMode, height: int) -> None:
        self.flavor = flavor
        self.column = column
        self.mode = mode
        """One of NO_FIT, PREEMPT and FIT."""
        self.height = height
        self.tried = -1


class PodSetResult:
    """What one pod set would get. The topology is filled in after the quota."""

    __slots__ = (
        "choices",
        "count",
        "delayed",
        "failure",
        "pod_set",
        "reasons",
        "requests",
        "searches",
        "topology",
        "unplaced",
    )

    def __init__(self, pod_set: PodSet, count: int, requests: Resources) -> None:
        self.pod_set = pod_set
        self.count = count
        self.requests = requests
        self.choices: dict[str, FlavorAssignment] = {}
        self.reasons: list[str] = []
        self.searches: list[FlavorSearch] = []
        """How its flavors were looked for."""
        self.failure = ""
        """An error that ends the assignment whatever the quota."""
        self.topology: tuple[TopologyDomain, ...] = ()
        self.unplaced = ""
        """The flavor whose topology would not have room for its pods even if it were empty."""
        self.delayed = ""
        """`Pending` if its places are to be found after the admission checks, `Ready` once they were."""

    def keep(self, given: PodSetAssignment, numbers: Mapping[tuple[str, str], int]) -> None:
        """Take over what it was admitted with; `numbers` are the columns of (flavor, resource)."""
        for resource, flavor in given.flavors.items():
            self.choices[resource] = FlavorAssignment(flavor, numbers[flavor, resource], FlavorAssignmentMode.FIT, 0)
        self.topology, self.delayed = given.topology, given.delayed

    def scaled(self, count: int) -> Resources:
        """The needs of another number of pods."""
        return scale(divide(self.requests, self.count), count) if self.count else EMPTY

    @property
    def mode(self) -> FlavorAssignmentMode:
        """The worst mode of its flavors; FIT where nothing stood in the way."""
        if self.failure:
            return FlavorAssignmentMode.NO_FIT
        if not self.reasons:
            return FlavorAssignmentMode.FIT
        return min((choice.mode for choice in self.choices.values()), default=FlavorAssignmentMode.NO_FIT)

    def cause(self, groups: Sequence[CompiledResourceGroup]) -> GranularReason:
        """Why it gets no flavors, in one word: the most severe of the resource groups, each by its best flavor."""
        tried = self.attempts()
        if not tried:
            return GranularReason.NO_MATCHING_FLAVOR
        least: dict[int, GranularReason] = {}
        for position, attempt in enumerate(tried):
            if attempt.mode != FlavorAssignmentMode.NO_FIT:
                continue
            cause = attempt.cause
            for group in [n for n, group in enumerate(groups) if attempt.flavor in group.flavors] or [-1 - position]:
                least[group] = min(least.get(group, cause), cause, key=severity)
        return most_severe(least.values())

    def attempts(self) -> list[FlavorAttempt]:
        """The flavors that were tried; one whose topology could never take the pods does not fit."""
        unfit = {"mode": FlavorAssignmentMode.NO_FIT, "cause": GranularReason.TOPOLOGY_PLACEMENT_FAILED}
        return [
            replace(tried, **unfit) if tried.flavor == self.unplaced else tried for tried in attempts(self.searches)
        ]


class Assignment:
    """Flavors for a whole workload, as far as they were found. Mutated while it is being made."""

    __slots__ = ("_mode", "_replaced", "borrows", "pod_sets", "usage")

    def __init__(self, replaced: Sequence[ReplacedPodSet] = ()) -> None:
        self._replaced = replaced
        self.pod_sets: list[PodSetResult] = []
        self.usage: dict[int, int] = {}
        """Column → amount, over all pod sets; beyond what a slice has that this one replaces."""
        self.borrows = 0
        """The greatest height that any of its flavors borrows from."""
        self._mode: FlavorAssignmentMode | None = None

    @property
    def borrowing(self) -> bool:
        """True if some of its quota comes from others."""
        return self.borrows > 0

    def append(self, result: PodSetResult) -> None:
        self.pod_sets.append(result)
        given = self.given(result)
        before = given.usage if given is not None else EMPTY
        for resource, choice in result.choices.items():
            self.borrows = max(self.borrows, choice.height)
            self.usage[choice.column] = self.usage.get(choice.column, 0) + (
                result.requests.get(resource, 0) - before.get(resource, 0)
            )

    def given(self, result: PodSetResult) -> ReplacedPodSet | None:
        """What the slice that is replaced has for this pod set."""
        return next((given for given in self._replaced if given.pod_set == result.pod_set.name), None)

    @property
    def mode(self) -> FlavorAssignmentMode:
        """NO_FIT, PREEMPT or FIT: the worst of its pod sets, or what the topology made of it."""
        if not self.pod_sets:
            return FlavorAssignmentMode.NO_FIT
        if self._mode is None:
            self._mode = min(result.mode for result in self.pod_sets)
        return self._mode

    def downgrade(self, result: PodSetResult, mode: FlavorAssignmentMode) -> None:
        """A pod set's topology changes the mode of all its flavors, and that of the assignment."""
        for choice in result.choices.values():
            choice.mode = mode
        self._mode = mode

    def unplace(self, result: PodSetResult, flavor: str) -> None:
        """A pod set would find no room in the flavor's topology whoever left; nor would those of its group."""
        self.downgrade(result, FlavorAssignmentMode.NO_FIT)
        for other in self.pod_sets:
            if other.searches is result.searches:
                other.unplaced = flavor

    def wanting(
        self, groups: Sequence[CompiledResourceGroup], *, granular: bool
    ) -> tuple[RequeueReason, GranularReason]:
        """What becomes of a head that does not fit, or for which nobody can be evicted."""
        if self.mode == FlavorAssignmentMode.NO_FIT:
            return RequeueReason.NO_FIT, self.cause(groups) if granular else GranularReason.NONE
        return RequeueReason.PREEMPTION_NO_CANDIDATES, GranularReason.WAITING_FOR_QUOTA

    def cause(self, groups: Sequence[CompiledResourceGroup]) -> GranularReason:
        """Why it does not fit, in one word (resolveNoFitReason); none if it could."""
        if self.mode != FlavorAssignmentMode.NO_FIT:
            return GranularReason.NONE
        return most_severe(
            result.cause(groups) for result in self.pod_sets if result.mode == FlavorAssignmentMode.NO_FIT
        )

    def fail(self, result: PodSetResult, error: str) -> None:
        """A pod set cannot be assigned at all."""
        result.failure = error
        self._mode = None

    def result(self, pod_set: str) -> PodSetResult:
        return next(result for result in self.pod_sets if result.pod_set.name == pod_set)

    def settle(self, places: Mapping[str, tuple[TopologyDomain, ...]]) -> None:
        """Note where the pods go; pod sets for which nothing was found get no place."""
        for name, domains in places.items():
            result = self.result(name)
            result.topology = domains
            if result.delayed and domains:
                result.delayed = "Ready"

    def places(
        self, topologies: Mapping[str, TopologyDomainTree], held: Admission | None = None
    ) -> tuple[TopologyUsage, ...]:
        """What the pods will use of the topologies beyond what they have by the admission `held`."""
        before = _held_counts(held)
        return tuple(
            TopologyUsage(flavor, domain.values, more, result.pod_set.template.requests)
            for result in self.pod_sets
            for flavor in sorted({choice.flavor for choice in result.choices.values()} & topologies.keys())[:1]
            for domain in result.topology
            if (more := domain.count - before.get((result.pod_set.name, domain.values), 0)) > 0
        )

    @property
    def uses(self) -> list[tuple[int, int]]:
        return list(self.usage.items())

    @property
    def preemption_uses(self) -> list[tuple[int, int]]:
        """What a search for victims has to make room for: all but nothing and, as in Kueue, the number of pods."""
        uses: dict[int, int] = {}
        for result in self.pod_sets:
            given = self.given(result)
            added = result.requests if given is None else result.scaled(result.count - given.count)
            for resource, amount in added.items():
                if amount and resource != PODS and resource in result.choices:
                    column = result.choices[resource].column
                    uses[column] = uses.get(column, 0) + amount
        return list(uses.items())

    @property
    def needing_preemption(self) -> frozenset[int]:
        """Columns in which somebody would have to make room."""
        return frozenset(
            choice.column
            for result in self.pod_sets
            for choice in result.choices.values()
            if choice.mode == FlavorAssignmentMode.PREEMPT
        )

    @property
    def resume(self) -> Resume | None:
        """Where the search goes on next time, or None where it starts anew."""
        tried = tuple({resource: c.tried for resource, c in result.choices.items()} for result in self.pod_sets)
        return tried if any(index != -1 for indices in tried for index in indices.values()) else None

    @property
    def message(self) -> str:
        for result in self.pod_sets:
            if result.failure:
                return messages.failed_assignment(result.pod_set.name, result.failure)
        return messages.assignment((result.pod_set.name, result.reasons) for result in self.pod_sets)

    def nominated(self) -> dict[str, dict[str, str]]:
        """Pod set → resource → flavor."""
        return {
            result.pod_set.name: {resource: choice.flavor for resource, choice in result.choices.items()}
            for result in self.pod_sets
        }

    def admission(self, cluster_queue: str, topologies: Mapping[str, TopologyDomainTree]) -> Admission:
        """What the workload is given if it is admitted; resources without a flavor are left out."""
        granted = tuple(_granted(result, topologies) for result in self.pod_sets)
        return Admission(cluster_queue=cluster_queue, pod_sets=granted)


def _held_counts(held: Admission | None) -> dict[tuple[str, tuple[str, ...]], int]:
    """(pod set, domain) → pods that are counted there already."""
    counts: dict[tuple[str, tuple[str, ...]], int] = {}
    for assignment in held.pod_sets if held is not None else ():
        for domain in assignment.topology:
            key = assignment.name, domain.values
            counts[key] = counts.get(key, 0) + domain.count
    return counts


def _granted(result: PodSetResult, topologies: Mapping[str, TopologyDomainTree]) -> PodSetAssignment:
    names = sorted(result.choices)
    placed = [c.flavor for c in result.choices.values() if c.flavor in topologies] if result.topology else []
    return PodSetAssignment(
        name=result.pod_set.name,
        flavors={name: result.choices[name].flavor for name in names},
        usage={name: result.requests[name] for name in names},
        count=result.count,
        levels=topologies[placed[0]].assignment_levels if placed else (),
        topology=result.topology,
        delayed=result.delayed,
    )

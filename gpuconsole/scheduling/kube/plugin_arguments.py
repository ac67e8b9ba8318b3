"""Plugin arguments from a profile's pluginConfig, with kube-scheduler's defaults and validation."""

from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from typing import Literal, get_args

from msgspec.structs import replace

from gpuconsole.model.documents.pods_and_selectors import node_affinity, selector
from gpuconsole.model.documents.reader import Reader
from gpuconsole.model.pod_template import SpreadConstraint
from gpuconsole.scheduling.kube.profile import (
    BALANCED,
    CPU_AND_MEMORY,
    FIT,
    NODE_AFFINITY,
    POD_AFFINITY,
    PREEMPTION,
    SPREAD,
    SchedulerProfile,
    ScoringStrategy,
    Weights,
)

Type = Literal["LeastAllocated", "MostAllocated", "RequestedToCapacityRatio"]
TYPES: tuple[Type, ...] = get_args(Type)
DO_NOT, ANYWAY = "DoNotSchedule", "ScheduleAnyway"


def _fit(profile: SchedulerProfile, args: Reader) -> SchedulerProfile:
    args.only("apiVersion", "kind", "ignoredResources", "ignoredResourceGroups", "scoringStrategy")
    place = args.mapping("scoringStrategy")
    place.only("type", "resources", "requestedToCapacityRatio")
    said = place.one_of("type", "LeastAllocated", TYPES)
    kind: Type = next((one for one in TYPES if one == said), "LeastAllocated")
    return replace(
        profile,
        strategy=ScoringStrategy(
            type=kind,
            resources=_resources(place, high=100),
            shape=_shape(place.mapping("requestedToCapacityRatio")) if kind == "RequestedToCapacityRatio" else (),
        ),
        ignored_resources=args.texts("ignoredResources"),
        ignored_groups=args.texts("ignoredResourceGroups"),
    )


def _resources(place: Reader, *, high: int) -> Weights:
    found = tuple((one.required("name"), one.number("weight", 1, low=1, high=high)) for one in place.items("resources"))
    return found or CPU_AND_MEMORY


def _shape(place: Reader) -> tuple[tuple[int, int], ...]:
    points = tuple(_points(place))
    rising = all(one[0] < other[0] for one, other in pairwise(points))
    if not points or not rising:
        problem = "utilization has to rise from point to point" if points else "it has no point"
        place.report.error(place.at("shape"), problem, "write {utilization: 0, score: 0}, {…: 100, …: 10}", "shape")
        return ((0, 0), (100, 10))
    return points


def _points(place: Reader) -> Iterator[tuple[int, int]]:
    for one in place.items("shape"):
        yield one.number("utilization", 0, low=0, high=100), one.number("score", 0, low=0, high=10)


def _balanced(profile: SchedulerProfile, args: Reader) -> SchedulerProfile:
    args.only("apiVersion", "kind", "resources")
    return replace(profile, balanced=_resources(args, high=1))


def _spread(profile: SchedulerProfile, args: Reader) -> SchedulerProfile:
    args.only("apiVersion", "kind", "defaultConstraints", "defaultingType")
    kind = args.one_of("defaultingType", "System", ("System", "List"))
    constraints = tuple(_constraint(one) for one in args.items("defaultConstraints"))
    if kind == "System" and constraints:
        problem = "defaultConstraints hold only with defaultingType List"
        args.report.error(args.at("defaultingType"), problem, "write defaultingType: List", "conflict")
    return replace(profile, spread=constraints if kind == "List" else None)


def _constraint(one: Reader) -> SpreadConstraint:
    if selector(one, "labelSelector") is not None:
        problem = "a default constraint selects no pods: it is for those of the same owner"
        one.report.error(one.at("labelSelector"), problem, "leave it out", "forbidden")
    return SpreadConstraint(
        one.required("topologyKey"),
        one.number("maxSkew", 1, low=1),
        one.one_of("whenUnsatisfiable", DO_NOT, (DO_NOT, ANYWAY)),
    )


def _pod_affinity(profile: SchedulerProfile, args: Reader) -> SchedulerProfile:
    args.only("apiVersion", "kind", "hardPodAffinityWeight", "ignorePreferredTermsOfExistingPods")
    return replace(
        profile,
        hard_affinity_weight=args.number("hardPodAffinityWeight", 1, low=0, high=100),
        ignore_theirs=args.flag("ignorePreferredTermsOfExistingPods"),
    )


def _node_affinity(profile: SchedulerProfile, args: Reader) -> SchedulerProfile:
    args.only("apiVersion", "kind", "addedAffinity")
    spec = args.reporting(args.report, {"affinity": {"nodeAffinity": args.mapping("addedAffinity").value}})
    required, preferred = node_affinity(spec)
    return replace(profile, added_affinity=required, added_preferred=preferred)


def _preemption(profile: SchedulerProfile, args: Reader) -> SchedulerProfile:
    args.only("apiVersion", "kind", "minCandidateNodesPercentage", "minCandidateNodesAbsolute")
    percentage = args.number("minCandidateNodesPercentage", 10, low=0, high=100)
    return replace(profile, candidates=(percentage, args.number("minCandidateNodesAbsolute", 100, low=0)))


ARGUMENTS: Mapping[str, Callable[[SchedulerProfile, Reader], SchedulerProfile]] = {
    FIT: _fit,
    BALANCED: _balanced,
    SPREAD: _spread,
    POD_AFFINITY: _pod_affinity,
    NODE_AFFINITY: _node_affinity,
    PREEMPTION: _preemption,
}

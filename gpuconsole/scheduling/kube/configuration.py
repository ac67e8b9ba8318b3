"""Reader of a KubeSchedulerConfiguration (kubescheduler.config.k8s.io/v1): its profiles, and findings about errors.

The text may be the file itself, or the ConfigMap that holds it. kube-scheduler enables its default plugins at every
extension point at once (multiPoint); a profile's settings for a single point take precedence.

Plugins that a profile enables at an extension point, in order: merges multiPoint with the point's own settings.

As kube-scheduler merges them (framework/runtime expandMultiPointPlugins): first those of multiPoint that the point
names as well, then the rest of multiPoint, then those that only the point names.

Plugin arguments from a profile's pluginConfig, with kube-scheduler's defaults and validation.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Literal, get_args

from msgspec import Struct
from msgspec.structs import replace

from gpuconsole.model.clock import SECOND
from gpuconsole.model.documents.findings import Finding, Severity
from gpuconsole.model.documents.pods_and_selectors import node_affinity, selector
from gpuconsole.model.documents.reader import Reader
from gpuconsole.model.documents.yaml_json import find_configuration
from gpuconsole.model.pod_template import SpreadConstraint
from gpuconsole.scheduling.kube.profile import (
    BALANCED,
    CPU_AND_MEMORY,
    FILTERS,
    FIT,
    IMAGES,
    NODE_AFFINITY,
    POD_AFFINITY,
    PREEMPTION,
    SCORES,
    SPREAD,
    BackoffSettings,
    SchedulerProfile,
    ScoringStrategy,
    Weights,
)

POINTS = (
    *("multiPoint", "preEnqueue", "queueSort", "preFilter", "filter", "postFilter", "preScore", "score"),
    *("reserve", "permit", "preBind", "bind", "postBind"),
)
OTHERS = ("SchedulingGates", "PrioritySort", "DefaultBinder", "Coscheduling", "GangScheduling")
"""Known plugins that neither filter nor score; the queue and gang scheduling do their work."""
KNOWN = (*FILTERS, BALANCED, IMAGES, PREEMPTION, *OTHERS)
EVERY = "*"


def enabled(plugins: Reader, point: str, defaults: Sequence[str]) -> tuple[str, ...]:
    """The plugins of `defaults` that are enabled at this point."""
    return tuple(name for name, _ in _expanded(plugins, point, tuple((name, 1) for name in defaults)))


def weighted(plugins: Reader, defaults: Weights) -> Weights:
    """The enabled score plugins with their weights; a weight of 0 counts as 1."""
    return tuple((name, weight or 1) for name, weight in _expanded(plugins, "score", defaults))


def _expanded(plugins: Reader, point: str, defaults: Weights) -> Weights:
    able = {name for name, _ in defaults}
    said = tuple((name, weight) for name, weight in _list(plugins, point, "enabled") if name in able)
    everywhere = _multi_point(plugins, defaults)
    off = {name for name, _ in _list(plugins, point, "disabled")}
    if EVERY in off:
        return said
    own = dict(said)
    both = tuple((name, own[name]) for name, _ in everywhere if name in own)
    kept = tuple((name, weight) for name, weight in everywhere if name not in own and name not in off)
    return (*both, *kept, *((name, weight) for name, weight in said if name not in dict(everywhere)))


def _multi_point(plugins: Reader, defaults: Weights) -> Weights:
    """What multiPoint enables of these: the defaults in their order, changed or not, then what is added."""
    able = {name for name, _ in defaults}
    off = {name for name, _ in _list(plugins, "multiPoint", "disabled")}
    said = {name: weight for name, weight in _list(plugins, "multiPoint", "enabled") if name in able}
    kept = () if EVERY in off else tuple((name, said.get(name, weight)) for name, weight in defaults if name not in off)
    return (*kept, *((name, weight) for name, weight in said.items() if name not in dict(kept)))


def _list(plugins: Reader, point: str, which: str) -> list[tuple[str, int]]:
    return [(str(place.raw("name")), place.number("weight", 0, low=0)) for place in plugins.mapping(point).items(which)]


def check(plugins: Reader) -> None:
    """Report unknown extension points and plugins as findings."""
    plugins.only(*POINTS)
    for point in POINTS:
        place = plugins.mapping(point)
        place.only("enabled", "disabled")
        for which in ("enabled", "disabled"):
            for one in place.items(which):
                one.only("name", "weight")
                name = one.required("name")
                if name and name not in KNOWN and (which == "enabled" or name != EVERY):
                    remedy = f"it has {', '.join(KNOWN)}"
                    one.report.warning(one.at("name"), f"there is no plugin {name} here", remedy, "unknown-plugin")


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


KIND = "KubeSchedulerConfiguration"
GROUP = "kubescheduler.config.k8s.io"
FIELDS = (
    *("apiVersion", "kind", "profiles", "percentageOfNodesToScore", "podInitialBackoffSeconds", "podMaxBackoffSeconds"),
    *("extenders", "parallelism", "leaderElection", "clientConnection", "delayCacheUntilActive"),
    *("enableProfiling", "enableContentionProfiling", "healthzBindAddress", "metricsBindAddress"),
)


class ParsedKubeSchedulerConfiguration(Struct, frozen=True):
    """The configuration of a file, and findings about it."""

    profiles: tuple[SchedulerProfile, ...]
    findings: tuple[Finding, ...] = ()

    @property
    def errors(self) -> list[Finding]:
        return [finding for finding in self.findings if finding.severity is Severity.ERROR]

    def named(self, name: str) -> SchedulerProfile | None:
        """The profile with this schedulerName, or the first if the name is empty; None if there is none."""
        return next((profile for profile in self.profiles if name in ("", profile.name)), None)


def read_configuration(text: str, name: str = "scheduler-config.yaml") -> ParsedKubeSchedulerConfiguration:
    """Read a configuration; values that cannot be read take their defaults and cause a finding."""
    document, report = find_configuration(
        text,
        name,
        meant=lambda found: found.get("kind") == KIND,
        holds=lambda _, held: KIND in held,
        absent=(f"it holds no {KIND}", f"write kind: {KIND}"),
        strict=True,
    )
    profiles = (SchedulerProfile(),) if document is None else _profiles(Reader(document, report))
    return ParsedKubeSchedulerConfiguration(profiles, tuple(report.findings))


def _profiles(root: Reader) -> tuple[SchedulerProfile, ...]:
    root.only(*FIELDS)
    version = root.text("apiVersion", f"{GROUP}/v1")
    if version != f"{GROUP}/v1":
        root.report.error(
            root.at("apiVersion"), f"kube-scheduler does not read {version}", f"write {GROUP}/v1", "version"
        )
    if root.raw("extenders"):
        problem = "extenders are not called by the simulated scheduler"
        root.report.warning(root.at("extenders"), problem, "expect other decisions where they matter", "extenders")
    common = SchedulerProfile(
        percentage=root.number("percentageOfNodesToScore", 0, low=0, high=100), backoff=_backoff(root)
    )
    found = tuple(_profile(place, common) for place in root.items("profiles")) or (common,)
    names = [profile.name for profile in found]
    for name in sorted({name for name in names if names.count(name) > 1}):
        root.report.error(root.at("profiles"), f"two profiles are named {name}", "name each once", "duplicate")
    return found


def _backoff(root: Reader) -> BackoffSettings:
    first = root.number("podInitialBackoffSeconds", 1, low=1)
    most = root.number("podMaxBackoffSeconds", 10, low=1)
    if most < first:
        problem = f"it is less than podInitialBackoffSeconds ({first})"
        root.report.error(root.at("podMaxBackoffSeconds"), problem, "write at least that", "out-of-range")
    return BackoffSettings(first * SECOND, max(first, most) * SECOND)


def _profile(place: Reader, common: SchedulerProfile) -> SchedulerProfile:
    place.only("schedulerName", "percentageOfNodesToScore", "plugins", "pluginConfig")
    plugins = place.mapping("plugins")
    check(plugins)
    filters = enabled(plugins, "filter", FILTERS)
    if FIT not in filters:
        problem = f"{FIT} does not filter, so pods would be bound to nodes without enough free resources"
        place.report.warning(plugins.at("filter"), problem, "it still filters in this simulation", "no-fit")
        filters = (*filters, FIT)
    profile = replace(
        common,
        name=place.text("schedulerName", common.name),
        percentage=place.number("percentageOfNodesToScore", common.percentage, low=0, high=100),
        filters=filters,
        scores=weighted(plugins, SCORES),
        preempts=PREEMPTION in enabled(plugins, "postFilter", (PREEMPTION,)),
    )
    return _argued(place, profile)


def _argued(place: Reader, profile: SchedulerProfile) -> SchedulerProfile:
    """The profile with the arguments of its plugins."""
    for one in place.items("pluginConfig"):
        one.only("name", "args")
        name = one.required("name")
        read = ARGUMENTS.get(name)
        if read is not None:
            profile = read(profile, one.mapping("args"))
        elif name:
            one.report.warning(one.at("name"), f"arguments of {name} change nothing here", "leave them", "no-arguments")
    return profile

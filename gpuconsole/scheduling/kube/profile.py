"""Scheduler profiles: the plugins that filter and score nodes, with weights and arguments, and where they come from.

A `SchedulerProfile` is read from a KubeSchedulerConfiguration (kubescheduler.config.k8s.io/v1) or follows from a
`PlacementPolicy`: how nodes are scored, whether gangs start all or nothing, whether pods preempt. The defaults are
those of kube-scheduler 1.35 (apis/config/v1 default_plugins.go, defaults.go).

kube-scheduler enables its default plugins at every extension point at once (multiPoint); a profile's settings for a
single point take precedence. The order of the enabled plugins is as in framework/runtime expandMultiPointPlugins: first
those of multiPoint that the point names as well, then the rest of multiPoint, then those that only the point names.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Literal, get_args

from msgspec import Struct
from msgspec.structs import replace

from gpuconsole.model.clock import SECOND, Span
from gpuconsole.model.documents.findings import Finding, Severity
from gpuconsole.model.documents.pods_and_selectors import node_affinity, selector
from gpuconsole.model.documents.reader import Reader
from gpuconsole.model.documents.yaml_json import find_configuration
from gpuconsole.model.labels import HOSTNAME, NodeTerm, PreferredTerm
from gpuconsole.model.pod_template import SpreadConstraint
from gpuconsole.model.resources import CPU, GPU_RESOURCES, MEMORY, MIG_PREFIX
from gpuconsole.scheduling.kube.packing.policies import Name

Weights = tuple[tuple[str, int], ...]

NODE_UNSCHEDULABLE = "NodeUnschedulable"
NODE_NAME = "NodeName"
TAINT_TOLERATION = "TaintToleration"
NODE_AFFINITY = "NodeAffinity"
NODE_PORTS = "NodePorts"
FIT = "NodeResourcesFit"
VOLUME_RESTRICTIONS = "VolumeRestrictions"
NODE_VOLUME_LIMITS = "NodeVolumeLimits"
VOLUME_BINDING = "VolumeBinding"
VOLUME_ZONE = "VolumeZone"
SPREAD = "PodTopologySpread"
POD_AFFINITY = "InterPodAffinity"
CLAIMS = "DynamicResources"
BALANCED = "NodeResourcesBalancedAllocation"
IMAGES = "ImageLocality"
PREEMPTION = "DefaultPreemption"

FILTERS = (
    *(NODE_UNSCHEDULABLE, NODE_NAME, TAINT_TOLERATION, NODE_AFFINITY, NODE_PORTS, FIT),
    *(VOLUME_RESTRICTIONS, NODE_VOLUME_LIMITS, VOLUME_BINDING, VOLUME_ZONE, SPREAD, POD_AFFINITY, CLAIMS),
)
SCORES: Weights = (
    *((TAINT_TOLERATION, 3), (NODE_AFFINITY, 2), (FIT, 1), (SPREAD, 2), (POD_AFFINITY, 2)),
    *((BALANCED, 1), (IMAGES, 1)),
)
CPU_AND_MEMORY: Weights = ((CPU, 1), (MEMORY, 1))
ZONE = "topology.kubernetes.io/zone"
REGION = "topology.kubernetes.io/region"
SYSTEM_CONSTRAINTS = (
    SpreadConstraint(HOSTNAME, 3, "ScheduleAnyway"),
    SpreadConstraint(ZONE, 5, "ScheduleAnyway"),
)
"""Default constraints of Deployment, StatefulSet and similar pods without their own (defaultingType System)."""

Type = Literal["LeastAllocated", "MostAllocated", "RequestedToCapacityRatio"]


class ScoringStrategy(Struct, frozen=True, kw_only=True):
    """How NodeResourcesFit scores nodes (its argument scoringStrategy)."""

    type: Type = "LeastAllocated"
    resources: Weights = CPU_AND_MEMORY
    shape: tuple[tuple[int, int], ...] = ()
    """(utilization 0 to 100, score 0 to 10), in order of rising utilization; only for RequestedToCapacityRatio."""


class BackoffSettings(Struct, frozen=True):
    """Back-off of refused pods: the first delay, doubled with each refusal up to a maximum."""

    initial: Span = SECOND
    most: Span = 10 * SECOND

    def after(self, attempts: int) -> Span:
        """Back-off after this number of refusals."""
        return min(self.initial << min(attempts - 1, 40), self.most) if attempts > 0 else 0


class SchedulerProfile(Struct, frozen=True, kw_only=True):
    """The configuration of one scheduler: plugins with weights and arguments, and limits of the search."""

    name: str = "default-scheduler"
    filters: tuple[str, ...] = FILTERS
    scores: Weights = SCORES
    preempts: bool = True
    """True if DefaultPreemption is enabled at postFilter."""
    strategy: ScoringStrategy = ScoringStrategy()
    ignored_resources: tuple[str, ...] = ()
    ignored_groups: tuple[str, ...] = ()
    """Groups of resources, such as `example.com`, that NodeResourcesFit ignores in its filter."""
    balanced: Weights = CPU_AND_MEMORY
    added_affinity: tuple[NodeTerm, ...] | None = None
    """Terms of which a node has to match one for every pod, besides the pod's own (NodeAffinity addedAffinity)."""
    added_preferred: tuple[PreferredTerm, ...] = ()
    spread: tuple[SpreadConstraint, ...] | None = None
    """Constraints for pods without their own (defaultConstraints); None stands for `SYSTEM_CONSTRAINTS`."""
    hard_affinity_weight: int = 1
    ignore_theirs: bool = False
    """InterPodAffinity's ignorePreferredTermsOfExistingPods."""
    percentage: int = 0
    """percentageOfNodesToScore; 0 depends on the number of nodes, 100 evaluates all."""
    candidates: tuple[int, int] = (10, 100)
    """Nodes on which preemption is tried: (minCandidateNodesPercentage, minCandidateNodesAbsolute)."""
    backoff: BackoffSettings | None = BackoffSettings()
    """Back-off of refused pods; with None they are retried as soon as capacity is freed."""

    def weight(self, plugin: str) -> int:
        """Weight of the plugin's score; 0 if it does not score."""
        return dict(self.scores).get(plugin, 0)

    def wanted(self, nodes: int) -> int:
        """Number of feasible nodes after which a search among this many nodes stops (numFeasibleNodesToFind)."""
        if nodes < 100 or self.percentage >= 100:
            return nodes
        percentage = self.percentage or max(5, 50 - nodes // 125)
        return max(100, nodes * percentage // 100)

    def dry_runs(self, nodes: int) -> int:
        """Number of nodes on which preemption is simulated (calculateNumCandidates)."""
        percentage, least = self.candidates
        return min(max(nodes * percentage // 100, least), nodes)


Formula = Literal["binpack", "spread"]
Score = Literal[Formula, Name]

ANY_MIG = MIG_PREFIX + "*"
"""Stands for every MIG profile in `PlacementPolicy.resources`."""

GPU_WEIGHTS: tuple[tuple[str, int], ...] = (
    *((name, 5) for name in GPU_RESOURCES),
    (ANY_MIG, 5),
    (CPU, 1),
    (MEMORY, 1),
)
"""Accelerators outweigh cpu and memory, so that binpack and spread apply to GPUs; kube-scheduler's default scores only
cpu and memory."""


class PlacementPolicy(Struct, frozen=True, kw_only=True, tag="kube-scheduler", tag_field="engine"):
    """The user's choice of how pods are placed: a kube-scheduler profile, or a built-in choice such as binpack."""

    score: Score = "binpack"
    """`binpack` is NodeResourcesFit's MostAllocated, `spread` its LeastAllocated; the others are packing policies.

    They replace NodeResourcesFit's score, with `fit_weight`; only `random` ignores the other scores as well.
    """
    resources: tuple[tuple[str, int], ...] = GPU_WEIGHTS
    """(resource, weight) of the score; `nvidia.com/mig-*` stands for every MIG profile."""
    fit_weight: int = 1
    affinity_weight: int = 2
    taint_weight: int = 3
    gangs: bool = True
    """True if gangs are placed all or nothing; False places their pods one by one, as plain kube-scheduler does."""
    preemption: bool = True
    """True if pods may preempt; False leaves out the PostFilter step, so that no pod is evicted for another."""
    profile: SchedulerProfile | None = None
    """A profile of a KubeSchedulerConfiguration; it replaces score, resources and weights."""

    @property
    def rules(self) -> SchedulerProfile:
        """The profile; for a built-in choice, one that has every filter, evaluates all nodes and has no back-off.

        A built-in choice has a single goal, so NodeResourcesBalancedAllocation and ImageLocality do not score.
        """
        if self.profile is not None:
            return self.profile
        formula: Type = "LeastAllocated" if self.score == "spread" else "MostAllocated"
        weights = ((TAINT_TOLERATION, self.taint_weight), (NODE_AFFINITY, self.affinity_weight), (FIT, self.fit_weight))
        return SchedulerProfile(
            filters=FILTERS,
            scores=(*weights, (SPREAD, 2), (POD_AFFINITY, 2)),
            strategy=ScoringStrategy(type=formula, resources=self.resources),
            spread=(),
            percentage=100,
            candidates=(100, 100),
            backoff=None,
        )

    @property
    def packing(self) -> Name | None:
        """The packing policy that replaces NodeResourcesFit's score, if any."""
        if self.profile is not None or self.score == "binpack" or self.score == "spread":
            return None
        return self.score

    @property
    def preempts(self) -> bool:
        """True if a pod may evict others."""
        return self.preemption and (self.profile is None or self.profile.preempts)


POINTS = (
    *("multiPoint", "preEnqueue", "queueSort", "preFilter", "filter", "postFilter", "preScore", "score"),
    *("reserve", "permit", "preBind", "bind", "postBind"),
)
OTHERS = ("SchedulingGates", "PrioritySort", "DefaultBinder", "Coscheduling", "GangScheduling")
"""Known plugins that neither filter nor score nodes; queue and gang scheduling do their work."""
KNOWN = (*FILTERS, BALANCED, IMAGES, PREEMPTION, *OTHERS)
EVERY = "*"


def enabled(plugins: Reader, point: str, defaults: Sequence[str]) -> tuple[str, ...]:
    """The plugins that a configuration enables at an extension point, out of kube-scheduler's `defaults`."""
    return tuple(name for name, _ in _expanded(plugins, point, tuple((name, 1) for name in defaults)))


def weighted(plugins: Reader, defaults: Weights) -> Weights:
    """The score plugins that a configuration enables, with their weights; a weight of 0 counts as 1."""
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
    """Add a finding for each unknown extension point or plugin in a profile's `plugins`."""
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
"""Plugin → reader of its arguments, with kube-scheduler's defaults and validation."""


KIND = "KubeSchedulerConfiguration"
GROUP = "kubescheduler.config.k8s.io"
FIELDS = (
    *("apiVersion", "kind", "profiles", "percentageOfNodesToScore", "podInitialBackoffSeconds", "podMaxBackoffSeconds"),
    *("extenders", "parallelism", "leaderElection", "clientConnection", "delayCacheUntilActive"),
    *("enableProfiling", "enableContentionProfiling", "healthzBindAddress", "metricsBindAddress"),
)


class ParsedKubeSchedulerConfiguration(Struct, frozen=True):
    """The profiles of a configuration file, and findings about the file."""

    profiles: tuple[SchedulerProfile, ...]
    findings: tuple[Finding, ...] = ()

    @property
    def errors(self) -> list[Finding]:
        return [finding for finding in self.findings if finding.severity is Severity.ERROR]

    def named(self, name: str) -> SchedulerProfile | None:
        """The profile with this schedulerName, or the first if the name is empty; None if there is none."""
        return next((profile for profile in self.profiles if name in ("", profile.name)), None)


def read_configuration(text: str, name: str = "scheduler-config.yaml") -> ParsedKubeSchedulerConfiguration:
    """Read a configuration: the file itself, or the ConfigMap that holds it.

    Values that cannot be read take their defaults and cause a finding.
    """
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

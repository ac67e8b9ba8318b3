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

from msgspec import Struct, field
from msgspec.structs import replace

from gpuconsole.model.clock import SECOND, Span
from gpuconsole.model.documents.findings import Finding, Severity
from gpuconsole.model.documents.pods_and_selectors import node_affinity, selector
from gpuconsole.model.documents.reader import Reader
from gpuconsole.model.documents.yaml_json import find_configuration
from gpuconsole.model.labels import HOSTNAME, NodeTerm, PreferredTerm
from gpuconsole.model.pod_template import SpreadConstraint
from gpuconsole.model.resources import CPU, GPU_RESOURCES, MEMORY, MIG_PREFIX
from gpuconsole.scheduling.kube.packing.policies import PolicyName

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
    maximum: Span = field(default=10 * SECOND, name="most")

    def delay_after(self, attempts: int) -> Span:
        """Back-off after this number of refusals."""
        return min(self.initial << min(attempts - 1, 40), self.maximum) if attempts > 0 else 0


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
    ignore_existing_preferred: bool = field(default=False, name="ignore_theirs")
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

    def nodes_to_find(self, nodes: int) -> int:
        """Number of feasible nodes after which a search among this many nodes stops (numFeasibleNodesToFind)."""
        if nodes < 100 or self.percentage >= 100:
            return nodes
        percentage = self.percentage or max(5, 50 - nodes // 125)
        return max(100, nodes * percentage // 100)

    def preemption_candidates(self, nodes: int) -> int:
        """Number of nodes on which preemption is simulated (calculateNumCandidates)."""
        percentage, least = self.candidates
        return min(max(nodes * percentage // 100, least), nodes)


Formula = Literal["binpack", "spread"]
Score = Literal[Formula, PolicyName]

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
    def scheduler_profile(self) -> SchedulerProfile:
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
    def packing(self) -> PolicyName | None:
        """The packing policy that replaces NodeResourcesFit's score, if any."""
        if self.profile is not None or self.score == "binpack" or self.score == "spread":
            return None
        return self.score

    @property
    def preempts(self) -> bool:
        """True if a pod may evict others."""
        return self.preemption and (self.profile is None or self.profile.preempts)


EXTENSION_POINTS = (
    *("multiPoint", "preEnqueue", "queueSort", "preFilter", "filter", "postFilter", "preScore", "score"),
    *("reserve", "permit", "preBind", "bind", "postBind"),
)
OTHER_PLUGINS = ("SchedulingGates", "PrioritySort", "DefaultBinder", "Coscheduling", "GangScheduling")
"""Known plugins that neither filter nor score nodes; queue and gang scheduling do their work."""
KNOWN_PLUGINS = (*FILTERS, BALANCED, IMAGES, PREEMPTION, *OTHER_PLUGINS)
ALL_POINTS = "*"


def enabled_plugins(plugins: Reader, point: str, defaults: Sequence[str]) -> tuple[str, ...]:
    """The plugins that a configuration enables at an extension point, out of kube-scheduler's `defaults`."""
    return tuple(name for name, _ in _expand_point(plugins, point, tuple((name, 1) for name in defaults)))


def enabled_scores(plugins: Reader, defaults: Weights) -> Weights:
    """The score plugins that a configuration enables, with their weights; a weight of 0 counts as 1."""
    return tuple((name, weight or 1) for name, weight in _expand_point(plugins, "score", defaults))


def _expand_point(plugins: Reader, point: str, defaults: Weights) -> Weights:
    known = {name for name, _ in defaults}
    named = tuple((name, weight) for name, weight in _plugin_list(plugins, point, "enabled") if name in known)
    multi_point = _multi_point(plugins, defaults)
    off = {name for name, _ in _plugin_list(plugins, point, "disabled")}
    if ALL_POINTS in off:
        return named
    own = dict(named)
    both = tuple((name, own[name]) for name, _ in multi_point if name in own)
    kept = tuple((name, weight) for name, weight in multi_point if name not in own and name not in off)
    return (*both, *kept, *((name, weight) for name, weight in named if name not in dict(multi_point)))


def _multi_point(plugins: Reader, defaults: Weights) -> Weights:
    """What multiPoint enables of these: the defaults in their order, changed or not, then what is added."""
    known = {name for name, _ in defaults}
    off = {name for name, _ in _plugin_list(plugins, "multiPoint", "disabled")}
    named = {name: weight for name, weight in _plugin_list(plugins, "multiPoint", "enabled") if name in known}
    kept = (
        ()
        if ALL_POINTS in off
        else tuple((name, named.get(name, weight)) for name, weight in defaults if name not in off)
    )
    return (*kept, *((name, weight) for name, weight in named.items() if name not in dict(kept)))


def _plugin_list(plugins: Reader, point: str, which: str) -> list[tuple[str, int]]:
    return [
        (str(reader.raw("name")), reader.number("weight", 0, low=0)) for reader in plugins.mapping(point).items(which)
    ]


def check_plugins(plugins: Reader) -> None:
    """Add a finding for each unknown extension point or plugin in a profile's `plugins`."""
    plugins.only(*EXTENSION_POINTS)
    for point in EXTENSION_POINTS:
        reader = plugins.mapping(point)
        reader.only("enabled", "disabled")
        for which in ("enabled", "disabled"):
            for entry in reader.items(which):
                entry.only("name", "weight")
                name = entry.required("name")
                if name and name not in KNOWN_PLUGINS and (which == "enabled" or name != ALL_POINTS):
                    remedy = f"it has {', '.join(KNOWN_PLUGINS)}"
                    entry.report.warning(entry.at("name"), f"there is no plugin {name} here", remedy, "unknown-plugin")


TYPES: tuple[Type, ...] = get_args(Type)
DO_NOT, ANYWAY = "DoNotSchedule", "ScheduleAnyway"


def _fit_args(profile: SchedulerProfile, args: Reader) -> SchedulerProfile:
    args.only("apiVersion", "kind", "ignoredResources", "ignoredResourceGroups", "scoringStrategy")
    reader = args.mapping("scoringStrategy")
    reader.only("type", "resources", "requestedToCapacityRatio")
    named = reader.one_of("type", "LeastAllocated", TYPES)
    kind: Type = next((entry for entry in TYPES if entry == named), "LeastAllocated")
    return replace(
        profile,
        strategy=ScoringStrategy(
            type=kind,
            resources=_resources(reader, high=100),
            shape=_shape(reader.mapping("requestedToCapacityRatio")) if kind == "RequestedToCapacityRatio" else (),
        ),
        ignored_resources=args.texts("ignoredResources"),
        ignored_groups=args.texts("ignoredResourceGroups"),
    )


def _resources(reader: Reader, *, high: int) -> Weights:
    found = tuple(
        (entry.required("name"), entry.number("weight", 1, low=1, high=high)) for entry in reader.items("resources")
    )
    return found or CPU_AND_MEMORY


def _shape(reader: Reader) -> tuple[tuple[int, int], ...]:
    points = tuple(_points(reader))
    rising = all(entry[0] < other[0] for entry, other in pairwise(points))
    if not points or not rising:
        problem = "utilization has to rise from point to point" if points else "it has no point"
        reader.report.error(reader.at("shape"), problem, "write {utilization: 0, score: 0}, {…: 100, …: 10}", "shape")
        return ((0, 0), (100, 10))
    return points


def _points(reader: Reader) -> Iterator[tuple[int, int]]:
    for entry in reader.items("shape"):
        yield entry.number("utilization", 0, low=0, high=100), entry.number("score", 0, low=0, high=10)


def _balanced_allocation_args(profile: SchedulerProfile, args: Reader) -> SchedulerProfile:
    args.only("apiVersion", "kind", "resources")
    return replace(profile, balanced=_resources(args, high=1))


def _topology_spread_args(profile: SchedulerProfile, args: Reader) -> SchedulerProfile:
    args.only("apiVersion", "kind", "defaultConstraints", "defaultingType")
    kind = args.one_of("defaultingType", "System", ("System", "List"))
    constraints = tuple(_constraint(entry) for entry in args.items("defaultConstraints"))
    if kind == "System" and constraints:
        problem = "defaultConstraints hold only with defaultingType List"
        args.report.error(args.at("defaultingType"), problem, "write defaultingType: List", "conflict")
    return replace(profile, spread=constraints if kind == "List" else None)


def _constraint(entry: Reader) -> SpreadConstraint:
    if selector(entry, "labelSelector") is not None:
        problem = "a default constraint selects no pods: it is for those of the same owner"
        entry.report.error(entry.at("labelSelector"), problem, "leave it out", "forbidden")
    return SpreadConstraint(
        entry.required("topologyKey"),
        entry.number("maxSkew", 1, low=1),
        entry.one_of("whenUnsatisfiable", DO_NOT, (DO_NOT, ANYWAY)),
    )


def _inter_pod_affinity_args(profile: SchedulerProfile, args: Reader) -> SchedulerProfile:
    args.only("apiVersion", "kind", "hardPodAffinityWeight", "ignorePreferredTermsOfExistingPods")
    return replace(
        profile,
        hard_affinity_weight=args.number("hardPodAffinityWeight", 1, low=0, high=100),
        ignore_existing_preferred=args.flag("ignorePreferredTermsOfExistingPods"),
    )


def _node_affinity_args(profile: SchedulerProfile, args: Reader) -> SchedulerProfile:
    args.only("apiVersion", "kind", "addedAffinity")
    spec = args.reporting(args.report, {"affinity": {"nodeAffinity": args.mapping("addedAffinity").value}})
    required, preferred = node_affinity(spec)
    return replace(profile, added_affinity=required, added_preferred=preferred)


def _default_preemption_args(profile: SchedulerProfile, args: Reader) -> SchedulerProfile:
    args.only("apiVersion", "kind", "minCandidateNodesPercentage", "minCandidateNodesAbsolute")
    percentage = args.number("minCandidateNodesPercentage", 10, low=0, high=100)
    return replace(profile, candidates=(percentage, args.number("minCandidateNodesAbsolute", 100, low=0)))


ARGUMENT_READERS: Mapping[str, Callable[[SchedulerProfile, Reader], SchedulerProfile]] = {
    FIT: _fit_args,
    BALANCED: _balanced_allocation_args,
    SPREAD: _topology_spread_args,
    POD_AFFINITY: _inter_pod_affinity_args,
    NODE_AFFINITY: _node_affinity_args,
    PREEMPTION: _default_preemption_args,
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
    found = tuple(_profile(reader, common) for reader in root.items("profiles")) or (common,)
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


def _profile(reader: Reader, common: SchedulerProfile) -> SchedulerProfile:
    reader.only("schedulerName", "percentageOfNodesToScore", "plugins", "pluginConfig")
    plugins = reader.mapping("plugins")
    check_plugins(plugins)
    filters = enabled_plugins(plugins, "filter", FILTERS)
    if FIT not in filters:
        problem = f"{FIT} does not filter, so pods would be bound to nodes without enough free resources"
        reader.report.warning(plugins.at("filter"), problem, "it still filters in this simulation", "no-fit")
        filters = (*filters, FIT)
    profile = replace(
        common,
        name=reader.text("schedulerName", common.name),
        percentage=reader.number("percentageOfNodesToScore", common.percentage, low=0, high=100),
        filters=filters,
        scores=enabled_scores(plugins, SCORES),
        preempts=PREEMPTION in enabled_plugins(plugins, "postFilter", (PREEMPTION,)),
    )
    return _with_plugin_args(reader, profile)


def _with_plugin_args(reader: Reader, profile: SchedulerProfile) -> SchedulerProfile:
    """The profile with the arguments of its plugins."""
    for entry in reader.items("pluginConfig"):
        entry.only("name", "args")
        name = entry.required("name")
        read = ARGUMENT_READERS.get(name)
        if read is not None:
            profile = read(profile, entry.mapping("args"))
        elif name:
            entry.report.warning(
                entry.at("name"), f"arguments of {name} change nothing here", "leave them", "no-arguments"
            )
    return profile

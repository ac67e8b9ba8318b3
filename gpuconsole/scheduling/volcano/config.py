"""Volcano's configuration, parsed: actions in order, tiers of plugins with their arguments, options of the engine.

`VolcanoPolicy` holds the texts of volcano-scheduler.conf and device-config.yaml, and `scheduler_conf` parses the former
into a `VolcanoConfiguration`. Arguments are read leniently, as in Volcano: a value of another type counts as missing.
"""

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Final

from msgspec import Struct, field

from gpuconsole.model.clock import Span, parse_span
from gpuconsole.model.documents.findings import Finding, Severity
from gpuconsole.model.resources import CPU, MEMORY

_TRUE = frozenset(("1", "t", "T", "TRUE", "true", "True"))
_FALSE = frozenset(("0", "f", "F", "FALSE", "false", "False"))


def parse_flag(text: str) -> bool | None:
    """Parse a boolean; None if it is not one (Go's strconv.ParseBool)."""
    return True if text in _TRUE else False if text in _FALSE else None


class VolcanoArguments(Mapping[str, object]):
    """Arguments of one plugin or action; a value of another type counts as missing.

    Volcano 1.15 framework.Arguments: only integers convert to floats, and strings to booleans.
    """

    def __init__(self, values: Mapping[str, object] | None = None) -> None:
        self._values = dict(values or {})

    def __getitem__(self, key: str) -> object:
        return self._values[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def integer(self, key: str, default: int) -> int:
        """The argument as an integer (GetInt); `default` if it is missing, a fraction or a string."""
        value = self._values.get(key)
        return value if isinstance(value, int) and not isinstance(value, bool) else default

    def number(self, key: str, default: float) -> float:
        """The argument as a number (GetFloat64); `default` if it is missing or no number."""
        value = self._values.get(key)
        return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else default

    def flag(self, key: str, default: bool) -> bool:
        """The argument as a boolean, also from a string (GetBool); `default` if it is missing or none."""
        value = self._values.get(key)
        if isinstance(value, bool):
            return value
        parsed = parse_flag(value) if isinstance(value, str) else None
        return default if parsed is None else parsed

    def text(self, key: str, default: str) -> str:
        """The argument as a string (GetString); `default` if it is missing or none."""
        value = self._values.get(key)
        return value if isinstance(value, str) else default


NO_ARGUMENTS = VolcanoArguments()


class EnabledFlag(StrEnum):
    """Extension points that a plugin can enable, as volcano-scheduler.conf spells them."""

    JOB_ORDER = "enableJobOrder"
    HIERARCHY = "enableHierarchy"
    JOB_READY = "enableJobReady"
    JOB_PIPELINED = "enableJobPipelined"
    TASK_ORDER = "enableTaskOrder"
    PREEMPTABLE = "enablePreemptable"
    RECLAIMABLE = "enableReclaimable"
    PREEMPTIVE = "enablePreemptive"
    QUEUE_ORDER = "enableQueueOrder"
    CLUSTER_ORDER = "EnabledClusterOrder"
    PREDICATE = "enablePredicate"
    BEST_NODE = "enableBestNode"
    NODE_ORDER = "enableNodeOrder"
    TARGET_JOB = "enableTargetJob"
    RESERVED_NODES = "enableReservedNodes"
    JOB_ENQUEUED = "enableJobEnqueued"
    VICTIM = "enabledVictim"
    JOB_STARVING = "enableJobStarving"
    OVERUSED = "enabledOverused"
    ALLOCATABLE = "enabledAllocatable"
    HYPER_NODE_ORDER = "enabledHyperNodeOrder"
    SUB_JOB_READY = "enabledSubJobReady"
    SUB_JOB_PIPELINED = "enabledSubJobPipelined"
    SUB_JOB_ORDER = "enabledSubJobOrder"
    HYPER_NODE_GRADIENT = "enabledHyperNodeGradient"


ENABLED_BY_DEFAULT: Final = frozenset(EnabledFlag) - {EnabledFlag.HIERARCHY, EnabledFlag.CLUSTER_ORDER}
"""Extension points that a plugin takes part in unless the configuration disables them (ApplyPluginConfDefaults)."""
KNOWN_ACTIONS: Final = (
    "enqueue",
    "allocate",
    "backfill",
    "preempt",
    "reclaim",
    "shuffle",
    "gangpreempt",
    "gangreclaim",
)
EVICTING_ACTIONS: Final = ("preempt", "reclaim", "gangpreempt", "gangreclaim")
"""The actions that evict tasks for pending ones."""


class VolcanoPluginOption(Struct, frozen=True, kw_only=True):
    """A plugin as the configuration lists it in a tier: its extension points and arguments."""

    name: str
    enabled: frozenset[EnabledFlag] = ENABLED_BY_DEFAULT
    arguments: VolcanoArguments = NO_ARGUMENTS


Tier = tuple[VolcanoPluginOption, ...]
"""Plugins that decide together; the next tier is asked only if they do not decide."""


def tier_of(*names: str) -> Tier:
    """A tier of plugins with all extension points enabled."""
    return tuple(VolcanoPluginOption(name=name) for name in names)


class VolcanoConfiguration(Struct, frozen=True, kw_only=True):
    """The configuration, parsed: actions in order, and tiers of plugins. Volcano's default never preempts."""

    actions: tuple[str, ...] = ("enqueue", "allocate", "backfill")
    tiers: tuple[Tier, ...] = (
        tier_of("priority", "gang", "conformance"),
        tier_of("overcommit", "drf", "predicates", "proportion", "nodeorder"),
    )
    arguments: Mapping[str, VolcanoArguments] = field(default_factory=dict)
    """Arguments of actions, by the action's name."""

    def arguments_of(self, action: str) -> VolcanoArguments:
        """The arguments of an action; empty if none are configured."""
        return self.arguments.get(action, NO_ARGUMENTS)


class ParsedVolcanoConfiguration(Struct, frozen=True):
    """The configuration of a volcano-scheduler.conf, and findings about the file."""

    configuration: VolcanoConfiguration
    findings: tuple[Finding, ...] = ()

    @property
    def errors(self) -> list[Finding]:
        return [finding for finding in self.findings if finding.severity is Severity.ERROR]


HELM_CONF = """\
actions: "enqueue, allocate, backfill"
tiers:
- plugins:
  - name: priority
  - name: gang
    enablePreemptable: false
  - name: conformance
- plugins:
  - name: overcommit
  - name: drf
    enablePreemptable: false
  - name: predicates
  - name: proportion
  - name: nodeorder
  - name: binpack
"""
"""The configuration in Volcano's Helm chart."""


FEATURE_GATES = ("DynamicResourceAllocation", "StorageCapacityScoring")
"""Feature gates of Kubernetes that vc-scheduler's predicates depend on: ResourceClaims, and scores of volumes."""


class VolcanoPolicy(Struct, frozen=True, kw_only=True, tag="Volcano", tag_field="engine"):
    """The user's settings for the Volcano engine, which places pods if they are given."""

    conf: str = HELM_CONF
    """Text of volcano-scheduler.conf."""
    devices: str = ""
    """Text of device-config.yaml: the MIG instances into which Volcano's device plugin can divide GPUs."""
    feature_gates: Mapping[str, bool] = {}
    """Feature gates that differ from Kubernetes' defaults (vc-scheduler --feature-gates)."""
    default_queue: str = "default"
    """The queue of PodGroups that name none; it is assumed to exist."""
    scheduler: str = ""
    """The schedulerName of the pods that Volcano places; empty if it places all pods."""


class Sampling(Struct, frozen=True, kw_only=True):
    """When a search for feasible nodes may stop (vc-scheduler's --minimum-feasible-nodes and related flags)."""

    minimum_nodes: int = 100
    """The search never stops before this number of feasible nodes."""
    minimum_percentage: int = 5
    percentage: int = 0
    """Percentage of all nodes; 0 means 50, less one for every 125 nodes, but at least `minimum_percentage`."""

    def nodes_to_find(self, nodes: int) -> int:
        """The number of feasible nodes after which a search among `nodes` stops (CalculateNumOfFeasibleNodesToFind)."""
        if nodes <= self.minimum_nodes or self.percentage >= 100:
            return nodes
        percentage = self.percentage
        if percentage <= 0:
            percentage = max(50 - nodes // 125, self.minimum_percentage)
        return max(nodes * percentage // 100, self.minimum_nodes)


class MigSize(Struct, frozen=True):
    """How many MIG instances of one size a card has if it is divided by a group."""

    name: str
    memory: int
    """MiB."""
    count: int


class MigGroup(Struct, frozen=True):
    """One way to divide a card: the MIG instances that it can have at the same time."""

    name: str
    sizes: tuple[MigSize, ...]

    def size_at(self, position: int) -> MigSize | None:
        """The size of the instance at a position, counted through the sizes in order; None if there is none."""
        for size in self.sizes:
            if position < size.count:
                return size
            position -= size.count
        return None


class MigModel(Struct, frozen=True):
    """The ways to divide the cards of GPU models (by parts of their names), in the order in which they are tried."""

    models: tuple[str, ...]
    groups: tuple[MigGroup, ...]


def parse_duration(text: str) -> Span | None:
    """The microseconds of a Go duration such as `1h30m`, without days (time.ParseDuration); None if it is invalid."""
    try:
        return None if "d" in text else parse_span(text)
    except ValueError:
        return None


def resource_weights(arguments: VolcanoArguments, prefix: str) -> dict[str, int]:
    """The weight of cpu, memory and each listed resource; 1 if it is missing or negative.

    Arguments have the form `PREFIX.cpu: 1`, `PREFIX.resources: a, b` and `PREFIX.resources.a: 2`.
    """
    listed = [name.strip() for name in arguments.text(f"{prefix}.resources", "").split(",")]
    keys = {name: f"{prefix}.resources.{name}" for name in listed if name}
    keys |= {CPU: f"{prefix}.cpu", MEMORY: f"{prefix}.memory"}
    weights = {name: arguments.integer(key, 1) for name, key in keys.items()}
    return {name: weight if weight >= 0 else 1 for name, weight in weights.items()}

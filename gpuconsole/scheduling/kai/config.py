"""KAI's configuration: actions, tiers of plugins with their arguments, and flags of the scheduler (KAI 0.13).

A `KaiPolicy` holds all of it as the user writes it, and says whether past usage counts. `parse_configuration` reads the
text of a scheduler configuration.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct, ValidationError, convert, field

from gpuconsole.model.clock import HOUR, MINUTE, SECOND, Span
from gpuconsole.model.documents.yaml_json import FormError, read_yaml

DEFAULT_ACTIONS = ("allocate", "consolidation", "reclaim", "preempt", "stalegangeviction")
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ns|us|µs|ms|w|d|h|m|s)")
_UNITS: Mapping[str, float] = {
    "ns": SECOND / 1e9,
    "us": SECOND / 1e6,
    "µs": SECOND / 1e6,
    "ms": SECOND / 1e3,
    "s": SECOND,
    "m": MINUTE,
    "h": HOUR,
    "d": 24 * HOUR,
    "w": 168 * HOUR,
}


class InvalidArgument(ValueError):
    """A plugin's argument, or the configuration, cannot be read."""


class KaiPluginArguments(Struct, frozen=True):
    """A plugin's arguments: strings by name."""

    values: Mapping[str, str] = {}

    def text(self, name: str, default: str = "") -> str:
        """An argument as it is written; `default` if it is missing."""
        return self.values.get(name, default)

    def number(self, name: str, default: float) -> float:
        """A number; `default` if it is missing. Raises BadArgument."""
        try:
            return float(self.values[name]) if name in self.values else default
        except ValueError:
            raise InvalidArgument(f"{name}: {self.values[name]!r} is not a number") from None

    def integer(self, name: str, default: int) -> int:
        """An integer; `default` if it is missing. Raises BadArgument."""
        try:
            return int(self.values[name]) if name in self.values else default
        except ValueError:
            raise InvalidArgument(f"{name}: {self.values[name]!r} is not an integer") from None

    def flag(self, name: str, default: bool) -> bool:
        """A boolean as Go's ParseBool reads it; `default` if it is missing. Raises BadArgument."""
        if name not in self.values:
            return default
        match self.values[name]:
            case "1" | "t" | "T" | "TRUE" | "true" | "True":
                return True
            case "0" | "f" | "F" | "FALSE" | "false" | "False":
                return False
        raise InvalidArgument(f"{name}: {self.values[name]!r} is not true or false")

    def duration(self, name: str, default: Span = 0) -> Span:
        """A duration such as 1h30m; `default` if it is missing, 0 if it is invalid or negative, as in KAI."""
        return parse_duration(self.values[name]) or 0 if name in self.values else default


def parse_duration(text: str) -> Span | None:
    """A duration with units from ns to w; None if it cannot be read or is negative."""
    parts = _DURATION.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text.removeprefix("+"):
        return 0 if text == "0" else None
    return round(sum(float(number) * _UNITS[unit] for number, unit in parts))


class KaiPluginOption(Struct, frozen=True, kw_only=True):
    """An enabled plugin and its arguments."""

    name: str
    arguments: Mapping[str, Any] = {}

    @property
    def as_strings(self) -> KaiPluginArguments:
        """The arguments as strings."""
        return KaiPluginArguments({name: str(value) for name, value in self.arguments.items()})


class Tier(Struct, frozen=True):
    """Plugins in evaluation order; KAI gives tiers no further meaning."""

    plugins: tuple[KaiPluginOption, ...] = ()


def _plugins(*names: str) -> tuple[KaiPluginOption, ...]:
    return tuple(KaiPluginOption(name=name) for name in names)


DEFAULT_TIERS = (
    Tier(
        (
            *_plugins("predicates", "proportion", "priority", "elastic", "kubeflow", "ray", "nodeavailability"),
            *_plugins("gpusharingorder", "gpupack", "resourcetype", "subgrouporder", "taskorder", "nominatednode"),
            *_plugins("dynamicresources"),
            KaiPluginOption(name="nodeplacement", arguments={"cpu": "binpack", "gpu": "binpack"}),
            *_plugins("minruntime", "topology", "snapshot"),
        )
    ),
)


QUEUE_LABEL = "kai.scheduler/queue"
"""The label by which pods name their queue, unless a flag names another."""
POD_GROUP = "pod-group-name"
"""The annotation by which pods name their pod group."""


class KaiConfiguration(Struct, frozen=True, kw_only=True):
    """Actions and plugins of a session, parsed; the defaults are KAI's."""

    actions: tuple[str, ...] = DEFAULT_ACTIONS
    tiers: Sequence[Tier] = DEFAULT_TIERS
    queue_depth: Mapping[str, int] = {}
    """Action → how many jobs of each queue it tries at most; actions without an entry try all."""


class SchedulerFlags(Struct, frozen=True, kw_only=True):
    """Command-line flags of the scheduler; the defaults are KAI's."""

    scheduler_name: str = "kai-scheduler"
    restrict_nodes: bool = False
    node_pool: str = ""
    max_consolidation_victims: int = 16
    """Most jobs that consolidation considers as victims; -1 is unlimited, 0 turns consolidation off."""
    consolidating_reclaim: bool = True
    """True if victims that are placed again do not count as reclaimed."""
    use_scheduling_signatures: bool = field(default=True, name="signatures")
    """True if jobs are skipped that are at least as hard to place as a similar one that failed."""
    staleness_grace: Span = 60 * SECOND
    """How long a gang may run below its minimum; negative means forever."""
    queue_label: str = QUEUE_LABEL
    """The label by which pods name their queue (queueLabelKey)."""


class _File(Struct, rename="camel"):
    actions: str = ""
    tiers: tuple[Tier, ...] = ()
    queue_depth_per_action: Mapping[str, int] = {}


def parse_configuration(text: str) -> KaiConfiguration:
    """Read a scheduler configuration (YAML); missing parts take KAI's defaults. Raises BadArgument."""
    try:
        # Not libyaml's document loader, which ends the process on very deeply nested lists.
        file = convert(read_yaml(text).value or {}, _File, strict=False)
    except FormError as error:
        raise InvalidArgument(f"line {error.problem.line}: {error.problem.problem}") from None
    except (ValidationError, ValueError) as problem:
        raise InvalidArgument(str(problem)) from None
    return configuration(file.actions, file.tiers, file.queue_depth_per_action)


def configuration(actions: str, tiers: Sequence[Tier], queue_depth: Mapping[str, int]) -> KaiConfiguration:
    """A configuration from its parts; empty actions or tiers take KAI's defaults. Raises BadArgument."""
    chosen = tuple(name.strip() for name in actions.split(",")) if actions else DEFAULT_ACTIONS
    for name in chosen:
        if name not in DEFAULT_ACTIONS:
            raise InvalidArgument(f"failed to find Action {name} as given in the config, ignore it")
    return KaiConfiguration(actions=chosen, tiers=tuple(tiers) or DEFAULT_TIERS, queue_depth=queue_depth)


class UsagePolicy(Struct, frozen=True, kw_only=True):
    """How past usage counts when surplus is divided (usageDBConfig): a sliding window with an optional half-life."""

    window: Span = 168 * HOUR
    half_life: Span = 0
    """Age at which usage counts half; 0 counts the whole window in full."""


class KaiPolicy(Struct, frozen=True, kw_only=True, tag="KAI", tag_field="engine"):
    """The user's settings for KAI: its configuration and flags, the default queue, and whether past usage counts."""

    conf: str = ""
    """Text of the scheduler configuration; empty means KAI's default."""
    parameters: SchedulerFlags = SchedulerFlags()
    default_queue: str = "default-queue"
    """The queue of pods without a queue label; if it is missing, it is created without limits (not in named shards)."""
    usage: UsagePolicy | None = None
    """How past usage counts; None if it does not, as without a usage database."""

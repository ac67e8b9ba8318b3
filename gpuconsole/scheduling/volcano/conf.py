"""Volcano's scheduler configuration: actions in order, tiers of plugins with their flags and arguments."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from msgspec import Struct, field

from gpuconsole.scheduling.volcano.arguments import NONE, VolcanoArguments


class Flag(StrEnum):
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


DEFAULTS: Final = frozenset(Flag) - {Flag.HIERARCHY, Flag.CLUSTER_ORDER}
"""Flags that hold where the configuration does not name them (ApplyPluginConfDefaults)."""
ACTIONS: Final = ("enqueue", "allocate", "backfill", "preempt", "reclaim", "shuffle", "gangpreempt", "gangreclaim")


class VolcanoPluginOption(Struct, frozen=True, kw_only=True):
    """A plugin in a tier."""

    name: str
    enabled: frozenset[Flag] = DEFAULTS
    arguments: VolcanoArguments = NONE


Tier = tuple[VolcanoPluginOption, ...]
"""Plugins that vote together; the next tier is asked if this one does not decide."""


def tier(*names: str) -> Tier:
    """A tier of plugins with all extension points enabled."""
    return tuple(VolcanoPluginOption(name=name) for name in names)


class VolcanoConfiguration(Struct, frozen=True, kw_only=True):
    """The scheduler's configuration: actions and tiers of plugins. The default is Volcano's own, which never
    preempts.
    """

    actions: tuple[str, ...] = ("enqueue", "allocate", "backfill")
    tiers: tuple[Tier, ...] = (
        tier("priority", "gang", "conformance"),
        tier("overcommit", "drf", "predicates", "proportion", "nodeorder"),
    )
    arguments: Mapping[str, VolcanoArguments] = field(default_factory=dict)
    """Arguments of actions, by the action's name."""

    def arguments_of(self, action: str) -> VolcanoArguments:
        """The arguments of an action; empty if none are configured."""
        return self.arguments.get(action, NONE)

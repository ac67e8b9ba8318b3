"""SchedulingShards: separate KAI schedulers for the nodes, queues and pod groups with a shard's label value.

KAI-Scheduler 0.14: pkg/apis/kai/v1 (SetDefaultsWhereNeeded), pkg/operator/operands/scheduler (the configuration that
the operator writes), pkg/scheduler/conf SchedulingNodePoolParams (which objects a scheduler sees).
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from msgspec.structs import replace

from gpuconsole.model.kai import NODE_POOL_LABEL, SPREAD, SchedulingShard, ShardSetting
from gpuconsole.scheduling.kai.config import (
    ACTIONS,
    InvalidArgument,
    KaiConfiguration,
    KaiPluginArguments,
    KaiPluginOption,
    SchedulerFlags,
    Tier,
)
from gpuconsole.scheduling.kai.config import parse_duration as span_of
from gpuconsole.scheduling.kai.plugins import PLUGINS

PLUGIN_PRIORITIES = {
    name: 100 * rank
    for rank, name in enumerate(
        (
            *("gpusharingorder", "nodeplacement", "gpupack", "snapshot", "topology", "minruntime", "dynamicresources"),
            *("nominatednode", "taskorder", "subgrouporder", "ray", "kubeflow", "elastic", "podaffinity"),
            *("resourcetype", "nodeavailability", "priority", "proportion", "predicates"),
        ),
        start=1,
    )
}
"""Plugin → priority; those of higher priority come first. gpuspread has that of gpupack."""
ACTION_PRIORITIES = {name: 100 * (len(ACTIONS) - place) for place, name in enumerate(ACTIONS)}


def handles(partition: str, labels: Mapping[str, str]) -> bool:
    """True if a shard's scheduler handles the object: by label value, or without the label if the shard has none."""
    return labels.get(NODE_POOL_LABEL) == partition if partition else NODE_POOL_LABEL not in labels


def configuration_of(shard: SchedulingShard) -> KaiConfiguration:
    """The scheduler configuration that KAI's operator writes for a shard."""
    packs = shard.gpu_strategy != SPREAD
    plugins = {name: _Choice(priority=priority) for name, priority in PLUGIN_PRIORITIES.items()}
    plugins["gpuspread"] = _Choice(priority=PLUGIN_PRIORITIES["gpupack"], enabled=not packs)
    plugins["gpupack"].enabled = plugins["gpusharingorder"].enabled = packs
    if shard.k_value is not None:
        plugins["proportion"].arguments = {"kValue": repr(shard.k_value)}
    least = {
        "defaultPreemptMinRuntime": shard.preempt_min_runtime,
        "defaultReclaimMinRuntime": shard.reclaim_min_runtime,
    }
    plugins["minruntime"].arguments = {name: text for name, text in least.items() if text}
    plugins["nodeplacement"].arguments = {"gpu": shard.gpu_strategy, "cpu": shard.cpu_strategy}
    actions = {name: _Choice(priority=priority) for name, priority in ACTION_PRIORITIES.items()}
    actions["consolidation"].enabled = SPREAD not in (shard.gpu_strategy, shard.cpu_strategy)
    chosen = [name for name in _enabled_names(actions, shard.action_settings) if name in ACTIONS]
    options = [_option(name, plugins) for name in _enabled_names(plugins, shard.plugin_settings)]
    return KaiConfiguration(actions=tuple(chosen), tiers=(Tier(tuple(options)),), queue_depth=shard.queue_depth)


class _Choice:
    """Settings of a plugin or an action: whether it is enabled, its priority and arguments. Mutates."""

    def __init__(self, *, priority: int, enabled: bool = True) -> None:
        self.priority = priority
        self.enabled = enabled
        self.arguments: Mapping[str, str] = {}


def _enabled_names(choices: dict[str, _Choice], settings: Mapping[str, ShardSetting]) -> Iterable[str]:
    """Apply a shard's own settings to the choices; returns the names of the enabled ones in order."""
    for name, setting in settings.items():
        choice = choices.setdefault(name, _Choice(priority=0))
        choice.enabled = choice.enabled if setting.enabled is None else setting.enabled
        choice.priority = choice.priority if setting.priority is None else setting.priority
        choice.arguments = choice.arguments if setting.arguments is None else setting.arguments
    running = [name for name, choice in choices.items() if choice.enabled]
    return sorted(running, key=lambda name: (-choices[name].priority, name))


def _option(name: str, choices: Mapping[str, _Choice]) -> KaiPluginOption:
    """A plugin with its arguments; without them if the plugin cannot read them."""
    arguments = choices[name].arguments
    try:
        if name in PLUGINS:
            PLUGINS[name](KaiPluginArguments(dict(arguments)))
    except InvalidArgument:
        arguments = {}
    return KaiPluginOption(name=name, arguments=arguments)


def flags_of(shard: SchedulingShard, base: SchedulerFlags) -> SchedulerFlags:
    """The flags of a shard's scheduler: `base`, its node pool, and those of its `args` that are known here.

    Values that cannot be read are ignored.
    """
    settings = KaiPluginArguments(dict(shard.args))
    parameters = replace(base, node_pool=shard.partition)
    for flag, change in _FLAGS.items():
        if flag in shard.args:
            try:
                parameters = replace(parameters, **change(settings, flag))
            except InvalidArgument:
                continue
    return parameters


def _staleness_grace(settings: KaiPluginArguments, flag: str) -> dict[str, int]:
    """The grace period for stale gangs; a negative one is unlimited."""
    text = settings.text(flag)
    found = span_of(text.removeprefix("-"))
    if found is None:
        raise InvalidArgument(f"{flag}: {text!r} is not a duration")
    return {"staleness_grace": -found if text.startswith("-") else found}


_FLAGS: Mapping[str, Callable[[KaiPluginArguments, str], dict[str, Any]]] = {
    "restrict-node-scheduling": lambda settings, flag: {"restrict_nodes": settings.flag(flag, default=False)},
    "max-consolidation-preemptees": lambda settings, flag: {"max_consolidation_victims": settings.integer(flag, 0)},
    "allow-consolidating-reclaim": lambda settings, flag: {"consolidating_reclaim": settings.flag(flag, default=True)},
    "use-scheduling-signatures": lambda settings, flag: {"signatures": settings.flag(flag, default=True)},
    "default-staleness-grace-period": _staleness_grace,
    "queue-label-key": lambda settings, flag: {"queue_label": settings.text(flag)},
}
